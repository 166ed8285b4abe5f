"""One eps of one experiment: five methods, as published and with the privacy that they state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from jaxfl.algorithms import registry as algorithms
from jaxfl.core.types import Problem
from jaxfl.papers.courses import courses, epsilons, find, ordering
from jaxfl.papers.entry import ATTACKS, Epsilons, Job, Numbers, Row, estimate, most
from jaxfl.papers.soteriafl.setting import CONSTANT, DELTA, METHODS, numbers, sent
from jaxfl.parts import sampling
from jaxfl.views.ink import Line, Panel, picture
from jaxfl.views.words import name_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["BITS", "LOSS_BAND", "Study"]

NAMES = dict(
    zip(METHODS, ("LDP-SGD", "LDP-SVRG", "CDP-SGD", "SoteriaFL-SGD", "SoteriaFL-SVRG"), strict=True)
)
WAYS = {"batch": "as published", "example": "private as stated"}
LOSS_BAND = 0.015
BITS = 64  # of a coordinate, as the authors count them
FEW = ("ldp_sgd", "soteriafl_svrg")  # of the fast variant: the first and the last


class Study(NamedTuple):
    """``ends`` and ``losses`` are read off the published curves, method by method."""

    what: str
    problem: Callable[[str | None], Problem]
    d: int  # of its model
    metric: str
    eps: float
    rounds: int
    steps: tuple[float, ...]
    ends: tuple[float, ...]
    band: float  # of the metric, whatever the seeds
    clip: float
    batch: int | None
    losses: tuple[tuple[float, float], ...] = ()
    every: int = 1  # rounds between evaluations
    quick: int = 0  # rounds of the fast variant; 0: all of them

    def measure(self, job: Job) -> Numbers:

        problem, cells = self.problem(job.data), []
        m, d = problem.m_max, problem.model.dim
        rounds = self.quick if job.fast and self.quick else self.rounds
        every = self.every if rounds == self.rounds else rounds
        for way in WAYS:
            for method in self.methods(way, job.fast):
                given = numbers(method, m, d, self.clip, self.eps, self.batch)
                parts = {"sampler": sampling.with_replacement()} if way == "batch" else {}
                algorithm = algorithms.algorithm(method, clip=way, **parts)
                if way == "batch":
                    given["noise_constant"] = CONSTANT[method]
                ds = job.sweep(
                    f"{method}-{way}",
                    algorithm,
                    {"lr": [self.steps[METHODS.index(method)]]},
                    problem,
                    rounds=rounds,
                    eval_every=every,
                    noise="paper" if way == "batch" else "calibrated",
                    numbers=given,
                )
                end = {"end": lambda rounds: rounds == rounds[-1]}
                (cell,) = courses(ds, (self.metric, "loss", "uplink_bits"), end)
                if method == "ldp_sgd":
                    cell["audited_eps"] = job.audit(
                        algorithm,
                        rounds=rounds,
                        m=m,
                        delta=DELTA,
                        clip=self.clip,
                        batch=given["batch"],
                        sigma=cell["used_sigma"],
                    )
                cells.append({**cell, "method": method, "way": way, "used_eps": self.eps})
        return {"cells": cells, "attacks": job.attacks}

    def methods(self, way: str, fast: bool) -> tuple[str, ...]:
        """The methods that run; the fast variant runs all only where they are quick, and as published."""
        whole = not fast or (way == "batch" and not self.quick)
        return METHODS if whole else FEW

    def judge(self, numbers: Numbers) -> list[Row]:
        if any(cell["round"][-1] < self.rounds for cell in numbers["cells"]):
            return self.shortened(numbers)
        rows = []
        for way, name in WAYS.items():
            judged = way == "batch"
            for cell in [c for c in numbers["cells"] if c["way"] == way]:
                i = METHODS.index(cell["method"])
                what, published = f"{NAMES[cell['method']]}, {name}", self.ends[i]
                rows.append(_near(f"{name_of(self.metric)} at the end, {what}", (published, published),
                                  cell[f"{self.metric}@end"], self.band, judged))  # fmt: skip
                if self.losses:
                    rows.append(_near(f"training loss at the end, {what}", self.losses[i],
                                      cell["loss@end"], LOSS_BAND, judged))  # fmt: skip
        return rows

    def shortened(self, numbers: Numbers) -> list[Row]:
        """The order of the methods in the fast variant, whose ends are not those of the figure."""
        names = [NAMES[method] for method in reversed(FEW)]
        rows = []
        for way, words in WAYS.items():
            ends = [
                find(numbers["cells"], method=method, way=way)[f"{self.metric}@end"]
                for method in reversed(FEW)
            ]
            what = f"{name_of(self.metric)}, {words}, for {' and '.join(names)}"
            rows.append(ordering(what, f"{names[-1]} is ahead", ends, 1))
        return rows

    def draw(self, numbers: Numbers) -> dict[str, Figure]:
        rows = []
        for metric in (self.metric, "loss"):
            powers = None if metric != "loss" else not self.losses  # the network's spans more
            up = name_of(metric)
            rounds, bits = self.lines(numbers, metric, False), self.lines(numbers, metric, True)
            rows.append(
                [
                    Panel("", "communication round", up, rounds, powers=powers),
                    Panel("", f"bits sent, {BITS} for a coordinate", up, bits, True, powers),
                ]
            )
        title = f"SoteriaFL, {self.what}, ε = {self.eps:g}"
        notes = [
            f"As published: ε = {self.eps:g} is claimed, and nothing is proven.  Private as stated: "
            f"ε = {self.eps:g} is proven.",
        ]
        return {"": picture(title, rows, notes)}

    def lines(self, numbers: Numbers, metric: str, bits: bool) -> list[Line]:
        """Against rounds, or against bits: those of coordinates alone, as the authors count."""
        lines = []
        for method in METHODS:
            for style, way in enumerate(WAYS):
                for cell in numbers["cells"]:
                    if (cell["method"], cell["way"]) != (method, way):
                        continue
                    x, y, error = (cell[key] for key in ("round", metric, f"{metric}_error"))
                    if bits:  # none before the first round
                        x = [BITS * sent(method, self.d) * t for t in x[1:]]
                        y, error = y[1:], error[1:]
                    color = METHODS.index(method)
                    lines.append(Line(NAMES[method], x, y, error, color, style, kind=WAYS[way]))
        return lines

    def privacy(self, numbers: Numbers) -> list[Epsilons]:
        clipped = "the mean of a batch is clipped, which bounds no record"
        runs = numbers.get("attacks", ATTACKS)
        found = []
        for cell in numbers["cells"]:
            note = clipped if cell["way"] == "batch" else ""
            if note and "audited_eps" in cell:
                note += f"; twice {runs:,} runs show {most(runs, cell['delta']):.4g} at most"
            found.append(epsilons(cell, f"{NAMES[cell['method']]}, {WAYS[cell['way']]}", note))
        return found


def _near(
    what: str, published: tuple[float, float], values: list[float], band: float, judged: bool
) -> Row:
    """Our mean within the band around what was published, which no spread of ours widens."""
    low, high = published
    ours = estimate(values)
    words = f"~{low:g}" if low == high else f"{low:g} to {high:g}"
    inside = bool(low - band <= ours.mean <= high + band)
    return Row(what, words, ours, inside if judged else None, f"± {band:g}" * judged)
