"""Ratios within a turn, shares of the machine's limits, and a table of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from workloads import Workload

__all__ = [
    "EVALUATED",
    "OURS",
    "PER_CLIENT",
    "RANDOM_K",
    "SWEEP",
    "UNSEEN",
    "derive",
    "show",
    "uneven",
]

OURS = "jaxfl, SGD"
RANDOM_K = "jaxfl, SGD, random-k"
PER_CLIENT = "jaxfl, SGD, noise per client"
SWEEP = "jaxfl, sweep of 64"
EVALUATED = "jaxfl, simulate, evaluation at a hundredth of the rounds"
UNSEEN = "jaxfl, simulate, evaluation off"
PACKAGED = ("pfl-research", "FedJAX", "Flower")
APART = 2.0  # how many times as fast the best turn of uneven ones is
SHARED_NOISE = ("aggregate noise", "central noise")

Rates = Sequence[float | None]


def ratio(over: Rates, under: Rates) -> float | None:
    """The median of the ratios within the turns that both took part in."""
    pairs = zip(over, under, strict=False)
    found = [a / b for a, b in pairs if a is not None and b is not None]
    return statistics.median(found) if found else None


def best(rows: dict[str, Any], names: Sequence[str]) -> list[float | None]:
    """The fastest of these, turn by turn."""
    turns = zip(*(rows[name]["rates"] for name in names), strict=False)
    return [max((rate for rate in turn if rate is not None), default=None) for turn in turns]


def uneven(rates: Rates) -> str:
    """Words for turns that are too far apart for their median to say much, as with rare full passes."""
    known = [rate for rate in rates if rate is not None]
    if not known or max(known) <= APART * min(known):
        return ""
    return f"  uneven turns, {min(known):,.3g} to {max(known):,.3g}"


def derive(name: str, w: Workload | None, found: dict[str, Any]) -> None:
    """Add what follows from the rates of the turns: ``ratios``, ``matmul`` and ``scale``."""
    rows = found["contenders"]
    if name == "scale":
        found["scale"] = scale(rows) if len(rows) > 1 else {}
        return
    assert w is not None
    rates = {who: row["rates"] for who, row in rows.items()}
    others = [who for who in rows if not who.startswith("jaxfl") and "matrix product" not in who]
    plain = [who for who in others if "random-k" not in who]
    by_hand = [who for who in plain if not who.startswith(PACKAGED)]
    groups = {
        "hand-written, noise per client": [w for w in by_hand if not w.endswith(SHARED_NOISE)],
        "hand-written, aggregate noise": [w for w in by_hand if w.endswith(SHARED_NOISE)],
        "packaged": [w for w in plain if w.startswith(PACKAGED) and not w.startswith("Flower")],
        "random-k": [who for who in others if "random-k" in who],
        "uncompressed": [w for w in plain if not w.startswith("Flower")],
    }
    ratios: dict[str, float | None] = {}

    def note(over: str, under: str, values: Rates | None = None) -> None:
        values = rates.get(under) if values is None else values
        if over in rates and values:
            ratios[f"{over} / {under}"] = ratio(rates[over], values)

    for who in others:
        note(RANDOM_K if "random-k" in who else OURS, who)
        if who.startswith("Flower") and f"{OURS} (beside flower)" in rates:
            ratios[f"{OURS} / {who}"] = ratio(rates[f"{OURS} (beside flower)"], rates[who])
    for group, names in groups.items():
        if names:
            fastest = best(rows, names)
            note(RANDOM_K if group == "random-k" else OURS, f"best of {group}", fastest)
            if group == "hand-written, noise per client":
                note(PER_CLIENT, f"best of {group}", fastest)
            if group == "uncompressed":
                note(SWEEP, f"best of {group}", fastest)
    note(OURS, PER_CLIENT)
    note(OURS, RANDOM_K)
    note(EVALUATED, UNSEEN)
    found["ratios"] = {who: value for who, value in ratios.items() if value is not None}
    products = [who for who in rows if "matrix product" in who]
    if products and OURS in rates:
        limit = [None if v is None else 2.0 * 2048**3 * v for v in best(rows, products)]
        reached = [None if v is None else w.flops * v for v in rates[OURS]]
        found["matmul"] = {
            "ceiling_gflops": statistics.median(v for v in limit if v is not None) / 1e9,
            "unavoidable_gflop_per_round": w.flops / 1e9,
            "share": ratio(reached, limit),
        }


def scale(rows: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a round with r clients as a + c r, and what one more client costs, by size."""
    seconds = {int(row["r"]): 1 / row["rounds_per_s"] for row in rows.values()}
    sizes = sorted(seconds)
    # least squares of relative errors: (a + c r) / t = 1
    weights = [(1 / seconds[r], r / seconds[r]) for r in sizes]
    aa, ac, cc = (sum(v[i] * v[j] for v in weights) for i, j in ((0, 0), (0, 1), (1, 1)))
    ta, tc = (sum(v[i] for v in weights) for i in (0, 1))
    det = aa * cc - ac * ac
    line = {"a": (ta * cc - tc * ac) / det, "c": (tc * aa - ta * ac) / det} if det else {}
    least = sizes[0]
    each = {r: (seconds[r] - seconds[least]) / (r - least) for r in sizes[1:]}
    known = each.get(1000)
    return {
        "seconds": seconds,
        "fit": line,
        "marginal_s": each,
        "marginal_over_that_at_1000": {r: v / known for r, v in each.items()} if known else {},
        "scratch_mib": {int(row["r"]): row.get("scratch_mib") for row in rows.values()},
        "peak_mib": {int(row["r"]): row.get("peak_mib") for row in rows.values()},
    }


def show(name: str, w: Workload | None, found: dict[str, Any]) -> None:
    shape = f": n={w.n:,} m={w.m:,} d={w.d:,} b={w.b} r={w.r:,}" if w else ""
    print(f"\n{name}{shape}   (took {found['took_s']:.0f} s)")
    if "load" in found:
        print(f"load {found['load'][0]:.2f} before, {found['load'][1]:.2f} after")
    rows = found.get("contenders", {})
    if rows:
        print(f"  {'':50s}{'rounds/s':>14s}{'compile s':>11s}{'first s':>9s}{'peak MiB':>10s}")
    for who, row in rows.items():
        compiled = f"{row['compile_s']:.2f}" if "compile_s" in row else ""
        first = f"{row['first_round_s']:.2f}" if "first_round_s" in row else ""
        rate, peak = row["rounds_per_s"], row.get("peak_mib", 0)
        told = uneven(row.get("rates", ()))
        print(f"  {who:50s}{rate:14,.2f}{compiled:>11s}{first:>9s}{peak:10,.0f}{told}")
    for who, value in found.get("ratios", {}).items():
        print(f"  {who}: {value:.2f}x")
    for part in ("matmul", "scale", "start"):
        for what, value in found.get(part, {}).items():
            print(f"  {what}: {_short(value)}")
    for who, why in found.get("skipped", {}).items():
        print(f"  skipped {who}: {why}")
    print(flush=True)


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_short(v)}" for key, v in value.items())
    if isinstance(value, list):
        return " ".join(map(_short, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def largest(row: dict[str, Any]) -> str:
    """The operations that move most, with their megabytes."""
    return ", ".join(
        f"{where.split('/')[-1]} {n / 1e6:,.3g}" for where, n in row["largest"].items()
    )
