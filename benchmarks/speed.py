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
    "a draw for each client by hand, one draw in jaxfl",
    "a draw for each client in both",
    "one draw in both",
    "best packaged simulator",
)
WORDS = """\
How many times as fast as the best of loops in NumPy, PyTorch and JAX written for the task, and as
pfl-research, FedJAX and Flower.  jaxfl draws the noise of a mean at once, which gives the trajectory the
same law as a draw for each client (`noise="per_client"`); loops by hand do the one or the other, and the
second and the third of the ratios compare like with like.  Medians over turns in which the contenders
alternate, each in a process of its own and with the same data, on two shared cores, by
`python benchmarks/rounds.py`; [how it is measured](benchmarks/README.md), all numbers are in
`benchmarks/results/rounds.json`.  Shared cores have better and worse hours, and the ratios move with them:
W1 was 1.4 to 2.0 times the best within two days, a sweep of it 18 to 25 times.
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
        f"A million clients that all take part, with batches of 1, make a round in {one:.2f} s, and in "
        f"{each:.2f} s with a draw of noise for each;\nwith batches of 4 in {four:.2f} s and in "
        f"{each_four:.2f} s."
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
