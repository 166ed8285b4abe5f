"""One eps of one experiment: five methods, as published and with the privacy that they state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxfl.papers.courses import courses, epsilons, find, ordering
from jaxfl.papers.entry import Epsilons, Job, Numbers, Row, estimate
from jaxfl.papers.panels import Line, Panel, picture
from jaxfl.papers.soteriafl.setting import CONSTANT, DELTA, METHODS, numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jaxfl.types import Problem

__all__ = ["Study"]

WORDS = {
    "utility": "utility (running mean of ‖∇f‖²)",
    "test_accuracy": "test accuracy",
    "loss": "training loss",
}
NAMES = dict(
    zip(METHODS, ("LDP-SGD", "LDP-SVRG", "CDP-SGD", "SoteriaFL-SGD", "SoteriaFL-SVRG"), strict=True)
)
WAYS = {"batch": "as published", "example": "private as stated"}
LOSS_BAND = 0.015
FEW = ("ldp_sgd", "soteriafl_svrg")  # of the fast variant: the first and the last


class Study(NamedTuple):
    """``ends`` and ``losses`` are read off the published curves, method by method."""

    problem: Callable[[str | None], Problem]
    metric: str
    eps: float
    rounds: int
    steps: tuple[float, ...]
    ends: tuple[float, ...]
    band: float
    clip: float
    batch: int | None
    losses: tuple[tuple[float, float], ...] = ()
    every: int = 1  # rounds between evaluations
    quick: int = 0  # rounds of the fast variant; 0: all of them
    deviations: float = 3.0  # between seeds, by which the bands are at least as wide

    def measure(self, job: Job) -> Numbers:
        from jaxfl import algorithms, sampling

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
        return {"cells": cells}

    def methods(self, way: str, fast: bool) -> tuple[str, ...]:
        """Those that run: in the fast variant all only where they are quick, and as published."""
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
                rows.append(_near(f"{WORDS[self.metric]} at the end, {what}", (published, published),
                                  cell[f"{self.metric}@end"], self.band, self.deviations,
                                  judged))  # fmt: skip
                if self.losses:
                    rows.append(_near(f"training loss at the end, {what}", self.losses[i],
                                      cell["loss@end"], LOSS_BAND, self.deviations,
                                      judged))  # fmt: skip
        return rows

    def shortened(self, numbers: Numbers) -> list[Row]:
        """Of the fast variant, whose ends are not those of the figure: who is ahead in it."""
        names = [NAMES[method] for method in reversed(FEW)]
        rows = []
        for way, words in WAYS.items():
            ends = [
                find(numbers["cells"], method=method, way=way)[f"{self.metric}@end"]
                for method in reversed(FEW)
            ]
            what = f"{WORDS[self.metric]}, {words}, for {' and '.join(names)}"
            rows.append(ordering(what, f"{names[-1]} is ahead", ends, 1))
        return rows

    def draw(self, numbers: Numbers) -> dict[str, Figure]:
        there = {(cell["method"], cell["way"]) for cell in numbers["cells"]}
        known = [method for method in METHODS if any(method == one for one, _ in there)]
        rows = []
        for metric in (self.metric, "loss"):
            panels = []
            for along, words in (("round", "communication round"), ("uplink_bits", "bits sent")):
                lines = []
                for method in known:
                    for style, way in enumerate(WAYS):
                        if (method, way) not in there:
                            continue
                        cell = find(numbers["cells"], method=method, way=way)
                        first = 0 if along == "round" else 1  # no bits before the first round
                        x, y, error = (
                            cell[key][first:] for key in (along, metric, f"{metric}_error")
                        )
                        lines.append(
                            Line(
                                NAMES[method],
                                x,
                                y,
                                error,
                                METHODS.index(method),
                                style,
                            )
                        )
                top = max(max(line.y[:1]) for line in lines) * 1.3 if metric == "loss" else None
                panels.append(
                    Panel("", words, WORDS[metric], lines, logarithmic=along != "round", top=top)
                )
            rows.append(panels)
        return {"": picture(f"SoteriaFL, ε = {self.eps:g}", rows, tuple(WAYS.values()))}

    def privacy(self, numbers: Numbers) -> list[Epsilons]:
        notes = {"batch": "the mean of a batch is clipped, which bounds no record", "example": ""}
        return [
            epsilons(cell, f"{NAMES[cell['method']]}, {WAYS[cell['way']]}", notes[cell["way"]])
            for cell in numbers["cells"]
        ]


def _near(
    what: str,
    published: tuple[float, float],
    values: list[float],
    band: float,
    deviations: float,
    judged: bool,
) -> Row:
    """Within the band, or that many deviations between seeds, of what was published."""
    low, high = published
    spread = max(band, deviations * float(np.std(values, ddof=1))) if len(values) > 1 else band
    ours = estimate(values)
    words = f"~{low:g}" if low == high else f"{low:g} to {high:g}"
    inside = bool(low - spread <= ours.mean <= high + spread)
    return Row(what, words, ours, inside if judged else None, f"± {spread:.3g}" * judged)
