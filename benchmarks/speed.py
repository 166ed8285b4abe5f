"""Write README's section on speed from the recorded results: `python benchmarks/speed.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tables import EVALUATED, OURS, PER_CLIENT, SWEEP, UNSEEN

__all__ = ["evaluation", "placed", "section"]

HERE = Path(__file__).resolve().parent
RECORD, README = HERE / "results" / "rounds.json", HERE.parent / "README.md"
BEGIN, END = "<!-- speed -->", "<!-- /speed -->"
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
    "speed-up over hand-written loops",
    "the same, noise for each client",
    "speed-up over other simulators",
)
WORDS = """\
Medians on two CPU cores; [the method](benchmarks/README.md).  The hand-written loops are the fastest of
NumPy, PyTorch and JAX, and draw noise as jaxfl does: once for the mean of all clients (jaxfl's default,
with the same law), or for each client.  The other simulators are the fastest of pfl-research, FedJAX and
Flower.  Timings vary on shared machines: within two days the sweep's {swept} was between 18x and 25x.
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
        f"A round of a million clients takes {one:.2f} s with batches of 1 and {four:.2f} s with "
        f"batches of 4\n({each:.2f} s and {each_four:.2f} s with noise for each client)."
    )
    return "\n".join(["", *lines, "", WORDS.format(swept=many) + huge, ""])


def evaluation(found: dict[str, Any], name: str) -> float:
    """How many rounds an evaluation costs."""
    part = found[name]
    share = part["ratios"][f"{EVALUATED} / {UNSEEN}"]
    rounds = part["contenders"][EVALUATED]["rounds_per_call"]
    return float((1 / share - 1) * rounds / EVALUATIONS)


def placed(readme: str, found: dict[str, Any]) -> str:
    """README with the section in its place."""
    before, rest = readme.split(f"{BEGIN}\n", 1)
    _, after = rest.split(END, 1)
    return f"{before}{BEGIN}\n{section(found)}\n{END}{after}"


def _million(found: dict[str, Any], batch: int) -> tuple[float, float]:
    rows = found[f"W5 b={batch} all"]["contenders"]
    return 1 / rows[OURS]["rounds_per_s"], 1 / rows[PER_CLIENT]["rounds_per_s"]


def _rate(value: float) -> str:
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


def _times(value: float) -> str:
    return f"{value:.0f}x" if value >= 10 else f"{value:.1f}x"


if __name__ == "__main__":
    workloads = json.loads(RECORD.read_text("utf-8"))["workloads"]
    README.write_text(placed(README.read_text("utf-8"), workloads), "utf-8")
