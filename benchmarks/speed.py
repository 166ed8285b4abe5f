"""README's section on speed, from the recorded numbers: `python benchmarks/speed.py` writes it anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tables import EVALUATED, OURS, PER_CLIENT, SWEEP, UNSEEN

__all__ = ["evaluation", "placed", "section"]

HERE = Path(__file__).resolve().parent
RECORD, README = HERE / "results" / "rounds.json", HERE.parent / "README.md"
BEGIN, END = "<!-- speed -->", "<!-- /speed -->"
EVALUATIONS = 100  # of a run with the default cadence
EACH, ONE, PACKAGED = (
    f"best of {group}"
    for group in ("hand-written, noise per client", "hand-written, aggregate noise", "packaged")
)
WORK = {
    "W1": "10 clients with 3,256 samples each, d = 124, batches of 128",
    "W2": "10 clients with 6,000 samples each, 784-64-10 network, batches of 128",
    "W3": "1,000 clients with 60 samples each, the same network, batches of 20",
}
HEADS = (
    "work",
    "jaxfl, rounds/s",
    "speed-up over loops with noise per client",
    "speed-up, both with noise per client",
    "speed-up, both with one fused draw",
    "speed-up over packaged simulators",
)
WORDS = """\
Speed-ups are over the best hand-written loop (NumPy, PyTorch or JAX), and in the last column over the
best of pfl-research, FedJAX and Flower.  By default jaxfl draws the noise of the mean of all clients
once (one fused draw), which gives the trajectory the same law as noise drawn for each client
(`noise="per_client"`).  The two middle columns compare like with like.  `python benchmarks/rounds.py`
measures medians over alternating turns on two shared cores, with one process per library and the same
data ([method](benchmarks/README.md), `benchmarks/results/rounds.json`).  Timings vary on shared machines:
within two days the speed-up of W1 was 1.4 to 2.0, that of its sweep 18 to 25.
"""


def section(found: dict[str, Any]) -> str:
    """What stands between the marks, from the workloads of ``rounds.json``."""
    rows = []
    for name, words in WORK.items():
        ratios, rate = found[name]["ratios"], found[name]["contenders"][OURS]["rounds_per_s"]
        pairs = (OURS, EACH), (PER_CLIENT, EACH), (OURS, ONE), (OURS, PACKAGED)
        shown = [_times(ratios[f"{over} / {under}"]) for over, under in pairs]
        rows.append([f"{name}: {words}", _rate(rate), *shown])
    swept = found["W1"]
    rate, ratio = swept["contenders"][SWEEP]["rounds_per_s"], swept["ratios"]
    many = _times(ratio[f"{SWEEP} / best of uncompressed"])
    rows.append(["a sweep of 64 cells of W1, cell-rounds/s", _rate(rate), "", "", many, ""])
    lines = [f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS)]
    lines += [
        f"| {' | '.join(row)} |".replace("|  |", "| |").replace("|  |", "| |") for row in rows
    ]
    (one, each), (four, each_four) = (_million(found, b) for b in (1, 4))
    huge = (
        f"A round of a million clients with batches of 1 takes {one:.2f} s, and {each:.2f} s with noise "
        f"per client;\nwith batches of 4 it takes {four:.2f} s and {each_four:.2f} s."
    )
    return "\n".join(["", *lines, "", WORDS + huge, ""])


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
