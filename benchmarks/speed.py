"""Write README's section on speed, and the table of accelerators in README.md here, from the records.

python benchmarks/speed.py
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from tables import EVALUATED, OURS, PER_CLIENT, SWEEP, UNSEEN, largest

__all__ = ["accelerators", "evaluation", "placed", "section"]

HERE = Path(__file__).resolve().parent
RECORD, README = HERE / "results" / "rounds.json", HERE.parent / "README.md"
BUDGETS, TABLE = HERE / "results" / "accelerators.json", HERE / "README.md"
EVALUATIONS = 100  # of a run that is evaluated every hundredth of its rounds
EACH, ONE, PACKAGED = (
    f"best of {group}"
    for group in ("hand-written, noise per client", "hand-written, aggregate noise", "packaged")
)
WORK = {
    "W1": "10 clients, logistic regression, d = 124",
    "W2": "10 clients, 784-64-10 network",
    "W3": "1,000 clients, the same network",
}
HEADS = (
    "workload",
    "jaxfl, rounds/s",
    "over hand-written loops",
    "the same, noise drawn for each client",
    "over other simulators",
)
WORDS = """\
Medians on two CPU cores ([method](benchmarks/README.md)); speed-ups over the fastest of NumPy, PyTorch
and JAX, and of pfl-research, FedJAX and Flower.  The column "over hand-written loops" compares with loops
that also draw one noise vector where the server needs only the mean of the messages.  Repeated over two
days, the sweep's speed-up was 18x to 25x.  On GPUs and TPUs nothing is measured yet:
[estimates](docs/scale.md#gpus) are derived from compiled programs.
"""


def section(found: dict[str, Any]) -> str:
    """What stands between the marks, from the workloads of ``rounds.json``."""
    rows = []
    for name, words in WORK.items():
        ratios, rate = found[name]["ratios"], found[name]["contenders"][OURS]["rounds_per_s"]
        pairs = (OURS, ONE), (PER_CLIENT, EACH), (OURS, PACKAGED)
        rows.append([words, _rate(rate), *(_times(ratios[f"{a} / {b}"]) for a, b in pairs)])
    swept = found["W1"]
    rate, ratio = swept["contenders"][SWEEP]["rounds_per_s"], swept["ratios"]
    many = _times(ratio[f"{SWEEP} / best of uncompressed"])
    rows.append(["64 settings of the first row in one sweep", _rate(rate), many, "", ""])
    lines = [f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS)]
    lines += [
        f"| {' | '.join(row)} |".replace("|  |", "| |").replace("|  |", "| |") for row in rows
    ]
    (one, each), (four, each_four) = (_million(found, b) for b in (1, 4))
    huge = (
        f"A round of logistic regression with a million clients takes {one:.2f} s with batches of 1 and\n"
        f"{four:.2f} s with batches of 4 ({each:.2f} s and {each_four:.2f} s with noise for each client)."
    )
    deep = found["W6"]["ratios"]
    example, update = (
        _times(deep[f"{OURS} / {who}"])
        for who in ("FedJAX, clip per example", "pfl-research, central noise")
    )
    images = (
        "With 100 clients, batches of 20 images and the convolutional network of FedJAX's EMNIST\n"
        f"study, jaxfl is {example} as fast as FedJAX where both clip per example, and {update} as fast\n"
        "as pfl-research, which clips updates."
    )
    return "\n".join(["", *lines, "", f"{WORDS}{huge}\n{images}", ""])


def evaluation(found: dict[str, Any], name: str) -> float:
    """How many rounds an evaluation costs."""
    part = found[name]
    share = part["ratios"][f"{EVALUATED} / {UNSEEN}"]
    rounds = part["contenders"][EVALUATED]["rounds_per_call"]
    return float((1 / share - 1) * rounds / EVALUATIONS)


def accelerators(found: dict[str, Any], budgets: dict[str, Any]) -> str:
    """The table of rounds that were compiled for accelerators, with their budgets."""
    names = {device: found["constants"][device]["name"] for device in found["devices"]}
    heads = ["case"]
    for name in names.values():
        heads += [f"{name}: kernels", "waits", "million draws", "MB", "of the least"]
        heads += ["model, us", "largest, MB"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for case in dict.fromkeys(case for rows in found["devices"].values() for case in rows):
        cells = [case]
        for device in names:
            row, most = found["devices"][device].get(case), budgets[device].get(case)
            if row is None or most is None:
                cells += [""] * 7
                continue
            rarely = f" + {row['rare_kernels']:g} rarely" if row["rare_kernels"] else ""
            cells += [
                f"{row['kernels']:g}{rarely} ({most[0]:g})",
                f"{row['waits']:g} ({most[1]:g})",
                f"{row['draws'] / 1e6:.2f}",
                f"{row['bytes'] / 1e6:,.1f}",
                f"{row['bytes_over_least']:.1f} ({most[2]:g})",
                f"{row['model_us']:,.0f}",
                largest(row),
            ]
        lines.append(f"| {' | '.join(cells)} |")
    skipped = [f"{device}: {why}." for device, why in found["skipped"].items()]
    rows = [row for rows in found["devices"].values() for row in rows.values()]
    stamps = {f"commit {row['commit']}, JAX {row['jax']}, {row['date']}" for row in rows}
    return "\n".join(["", *lines, "", *skipped, f"Recorded at {'; '.join(sorted(stamps))}.", ""])


def placed(text: str, mark: str, section: str) -> str:
    """A page with a section between its marks."""
    before, rest = text.split(f"<!-- {mark} -->\n", 1)
    _, after = rest.split(f"<!-- /{mark} -->", 1)
    return f"{before}<!-- {mark} -->\n{section}\n<!-- /{mark} -->{after}"


def _million(found: dict[str, Any], batch: int) -> tuple[float, float]:
    rows = found[f"W5 b={batch} all"]["contenders"]
    return 1 / rows[OURS]["rounds_per_s"], 1 / rows[PER_CLIENT]["rounds_per_s"]


def _rate(value: float) -> str:
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


def _times(value: float) -> str:
    return f"{value:.0f}x" if value >= 10 else f"{value:.1f}x"


if __name__ == "__main__":
    measured = section(json.loads(RECORD.read_text("utf-8"))["workloads"])
    README.write_text(placed(README.read_text("utf-8"), "speed", measured), "utf-8")
    budgets = tomllib.loads((HERE / "budgets.toml").read_text("utf-8"))
    compiled = accelerators(json.loads(BUDGETS.read_text("utf-8")), budgets)
    TABLE.write_text(placed(TABLE.read_text("utf-8"), "accelerators", compiled), "utf-8")
