"""One eps of one experiment: five methods, as published and with the privacy that they state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jaxfl
from jaxfl import Problem
from jaxfl.parts import sampling
from jaxfl.views.ink import Line, Panel, picture
from papers.courses import ahead, best, courses, epsilons, find, name_of, ordering
from papers.entry import ATTACKS, Epsilons, Job, Numbers, Row, estimate, most
from papers.soteriafl.setting import CONSTANT, DELTA, METHODS, STEPS, numbers, sent

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["BITS", "TUNING", "Remark", "Study"]

Span: TypeAlias = tuple[float, float]
NAMES = dict(
    zip(METHODS, ("LDP-SGD", "LDP-SVRG", "CDP-SGD", "SoteriaFL-SGD", "SoteriaFL-SVRG"), strict=True)
)
WAYS = {"batch": "as published", "example": "private as stated"}
BITS = 64  # of a coordinate, as the authors count them
FEW = ("ldp_sgd", "soteriafl_svrg")  # of the fast variant: the first and the last
TUNING = 1000  # the first seed of those that choose steps, none of which is shown


class Remark(NamedTuple):
    """What Section 6.1 or 6.2 says of the curves: each of some methods is ahead of each of others."""

    says: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    metrics: tuple[str, ...]
    bits: bool = False  # of those that the first send in all rounds, not of rounds


class Study(NamedTuple):
    """``published`` are read off the curves: lowest and highest value at the end, method by method."""

    what: str
    problem: Callable[[str | None], Problem]
    d: int  # of its model
    metrics: tuple[str, str]  # of the upper and of the lower row
    eps: float
    rounds: int
    steps: tuple[float, ...]
    published: Mapping[str, tuple[Span, ...]]
    bands: Mapping[str, float]  # of each published metric, whatever the seeds
    remarks: tuple[Remark, ...]
    clip: float
    batch: int | None
    tuning: int  # seeds for each step
    every: int = 1  # rounds between evaluations
    evaluated: int | None = None  # records of each client that metrics read; None: all
    quick: int = 0  # rounds of the fast variant; 0: all of them

    def measure(self, job: Job) -> Numbers:
        problem = dataclasses.replace(self.problem(job.data), evaluated=self.evaluated)
        cells = [
            self.cell(job, problem, method, way)
            for way in WAYS
            for method in self.methods(way, job.fast)
        ]
        out: Numbers = {"cells": cells, "attacks": job.attacks}
        if self.batch is None:  # of LDP-SGD, by the omega of the others
            other = self.given(problem, "cdp_sgd")["batch"]
            out["other"] = self.cell(job, problem, "ldp_sgd", "batch", other)
        return out

    def methods(self, way: str, fast: bool) -> tuple[str, ...]:
        """The methods that run; the fast variant runs all only where they are quick, and as published."""
        whole = not fast or (way == "batch" and not self.quick)
        return METHODS if whole else FEW

    def given(self, problem: Problem, method: str) -> dict[str, Any]:
        m, d = problem.m_max, problem.model.dim
        return numbers(method, m, d, self.clip, self.eps, self.batch)

    def cell(
        self, job: Job, problem: Problem, method: str, way: str, batch: int | None = None
    ) -> Numbers:
        """One method: its curves, and what an attack shows of LDP-SGD."""
        rounds = self.quick if job.fast and self.quick else self.rounds
        given = self.given(problem, method) | ({} if batch is None else {"batch": batch})
        parts = {"sampler": sampling.with_replacement()} if way == "batch" else {}
        algorithm = jaxfl.algorithm(method, clip=way, **parts)
        if way == "batch":
            given["noise_constant"] = CONSTANT[method]
        lr, name = self.steps[METHODS.index(method)], f"{method}-{way}"
        noise = {"noise": "paper" if way == "batch" else "calibrated", **given}
        if way == "example" and not job.fast:
            place, near = STEPS.index(lr), 1 if self.quick else len(STEPS)
            tried = STEPS[max(0, place - near) : place + near + 1]
            seeds = range(TUNING, TUNING + self.tuning)
            ds = job.sweep(
                f"{name}-steps",
                algorithm,
                problem,
                rounds=rounds,
                eval_every=rounds // 12,
                seeds=seeds,
                lr=tried,
                **noise,
            )
            lr = tried[int(best(ds["utility"].isel(round=-1, drop=True)).squeeze())]
        ds = job.sweep(
            f"{name}{'' if batch is None else f'-{batch}'}",
            algorithm,
            problem,
            rounds=rounds,
            eval_every=self.every if rounds == self.rounds else rounds,
            lr=[lr],
            **noise,
        )
        budget = rounds * sent("cdp_sgd", self.d) / sent("ldp_sgd", self.d)
        windows = {
            "end": lambda ticks: ticks == ticks[-1],
            # of uncompressed methods, when they have sent what the others send in all rounds
            "budget": lambda ticks: ticks == ticks[ticks >= budget][0],
        }
        (found,) = courses(ds, (*dict.fromkeys((*self.metrics, "loss")), "uplink_bits"), windows)
        if method == "ldp_sgd" and batch is None:
            found["audited_eps"] = job.audit(algorithm, rounds=rounds, m=problem.m_max, delta=DELTA,
                                             clip=self.clip, batch=given["batch"],
                                             sigma=found["used_sigma"])  # fmt: skip
        about = {"method": method, "way": way, "used_eps": self.eps, "batch": given["batch"]}
        return {**found, **about}

    def judge(self, numbers: Numbers) -> list[Row]:
        if any(cell["round"][-1] < self.rounds for cell in numbers["cells"]):
            return self.shortened(numbers)
        rows, of_ways = [], {way: [c for c in numbers["cells"] if c["way"] == way] for way in WAYS}
        for way, cells in of_ways.items():
            for cell in cells:
                rows += self.ends(cell, WAYS[way], way == "batch")
        if "other" in numbers:
            words = f"{WAYS['batch']}, batch of the compressed methods, {numbers['other']['batch']}"
            rows += self.ends(numbers["other"], words, True)
        for way, cells in of_ways.items():
            if len(cells) == len(METHODS):
                rows += [
                    self.remark(remark, metric, cells, way)
                    for remark in self.remarks
                    for metric in remark.metrics
                ]
        return rows

    def ends(self, cell: Numbers, words: str, judged: bool) -> list[Row]:
        """The means of our seeds, within the band around what was published, which no spread widens."""
        rows = []
        for metric in self.metrics:
            what = f"{name_of(metric)} at the end, {NAMES[cell['method']]}, {words}"
            if not judged:
                what += f", η = {cell['lr']:g}"
            ours = estimate(cell[f"{metric}@end"])
            if metric not in self.published:
                rows.append(Row(what, "–", ours, None))
                continue
            low, high = self.published[metric][METHODS.index(cell["method"])]
            published = f"~{low:g}" if low == high else f"{low:g} to {high:g}"
            band = self.bands[metric]
            inside = bool(low - band <= ours.mean <= high + band)
            rows.append(
                Row(what, published, ours, inside if judged else None, f"± {band:g}" * judged)
            )
        return rows

    def remark(self, remark: Remark, metric: str, cells: list[Numbers], way: str) -> Row:
        """Whether it holds at the end of all rounds, or of the bits that compressed methods send."""
        sign = 1 if metric == "test_accuracy" else -1
        margins = {
            f"{NAMES[a]} before {NAMES[b]}": [
                sign * (x - y)
                for x, y in zip(
                    find(cells, method=a)[f"{metric}@end"],
                    find(cells, method=b)[f"{metric}@{'budget' if remark.bits else 'end'}"],
                    strict=True,
                )
            ]
            for a in remark.first
            for b in remark.second
        }
        what = f"{remark.says}, {name_of(metric)}, {WAYS[way]}"
        return ahead(what, "ahead" if way == "batch" else "–", margins)

    def shortened(self, numbers: Numbers) -> list[Row]:
        """The order of the methods in the fast variant, whose ends are not those of the figure."""
        names = [NAMES[method] for method in reversed(FEW)]
        rows, metric = [], self.metrics[-1]
        for way, words in WAYS.items():
            ends = [
                find(numbers["cells"], method=method, way=way)[f"{metric}@end"]
                for method in reversed(FEW)
            ]
            what = f"{name_of(metric)}, {words}, for {' and '.join(names)}"
            rows.append(ordering(what, f"{names[-1]} is ahead", ends, 1))
        return rows

    def draw(self, numbers: Numbers) -> dict[str, Figure]:
        across = "communication round", f"bits sent, {BITS} for a coordinate"
        rows = [
            [
                Panel("", across[bits], name_of(metric), self.lines(numbers, metric, bits), bits)
                for bits in (False, True)
            ]
            for metric in self.metrics
        ]
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
