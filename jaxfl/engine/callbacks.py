"""Callbacks: the evaluations that they receive, of single runs and of the runs of a sweep."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from jaxfl.core.errors import require
from jaxfl.core.types import Info, Source
from jaxfl.engine.dataset import SKIPPED, accounted, record_of
from jaxfl.engine.log import Entry, Log
from jaxfl.engine.plan import Chunk, looks
from jaxfl.engine.planned import Planned
from jaxfl.engine.results import labelled
from jaxfl.engine.runs import DONE, LOST, Record, totals
from jaxfl.engine.store import Arrays

__all__ = ["Callback", "Evaluation", "RunInfo", "Spent", "Watch"]


@dataclasses.dataclass(frozen=True, eq=False)
class RunInfo:
    """The run of an evaluation.  All evaluations of a run have the same object, equal to no other."""

    algorithm: str
    problem: str
    labels: dict[str, Any]  # the value on each axis of a sweep that applies; of a single run empty
    seed: int | None  # of a run of a sweep; of a single run None
    rounds: int  # that are planned
    values: dict[str, Any] = dataclasses.field(repr=False)  # all hyper-parameters
    sources: dict[str, Source] = dataclasses.field(repr=False)  # of each value
    settings: dict[str, Any] = dataclasses.field(repr=False)  # data, model, key, versions

    @property
    def name(self) -> str:
        """Labels and seed, as in ``algorithm=ldp_sgd,eps=1,seed=0``; empty for a single run."""
        seed = {} if self.seed is None else {"seed": self.seed}
        return ",".join(f"{axis}={value}" for axis, value in {**self.labels, **seed}.items())


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """One evaluation of one run, as callbacks receive it."""

    run: RunInfo
    round: int
    metrics: dict[str, Any]  # numbers and arrays; NaN as they are
    totals: dict[str, float]  # messages, gradients, uplink_bits, ... of all clients so far
    spent: Spent = dataclasses.field(repr=False)

    @property
    def eps(self) -> float:
        """The eps proven for the rounds so far, as ``eps_spent`` of results; inf if none is.

        It is computed when it is read.  An accountant runs for at most 25 of the evaluated rounds, and
        once for runs with equal mechanisms; others hold the value of the next of these, an upper bound.
        """
        return self.spent.proven(self.round, self.totals)

    @property
    def claimed_eps(self) -> float | None:
        """The eps that the paper's formula claims for the rounds so far; None if it has none."""
        return self.spent.claimed(self.round)


class Spent:
    """The eps of the first rounds of the runs of a cell, to be evaluated at ``rounds``."""

    def __init__(self, record: Record, rounds: Sequence[int]) -> None:
        self.record = record
        self.rounds = np.asarray(rounds)[accounted(len(rounds))]
        self.known: dict[tuple[int, bool], float] = {}
        self.claimed = functools.cache(self._claimed)

    def proven(self, t: int, spent: Mapping[str, float]) -> float:
        at = int(self.rounds[np.searchsorted(self.rounds, t)])
        clamped = spent["clamped"] > 0
        if (at, clamped) not in self.known:
            log = Log([Entry(at, {}, {"clamped": int(clamped)})])
            record = dataclasses.replace(self.record, log=log)
            self.known[at, clamped] = float(record.spent([at])[0])
        return self.known[at, clamped]

    def _claimed(self, t: int) -> float | None:
        counted = self.record.counted if t == self.rounds[-1] else t
        if t == 0:
            return 0.0
        values = {**self.record.values, "rounds": counted}
        claim = self.record.algorithm.claim(values, self.record.facts)
        return None if claim is None else float(claim.eps)


Callback: TypeAlias = Callable[[Evaluation], object]


class Watch(contextlib.AbstractContextManager[Any]):
    """Hands the evaluations of runs to functions, while a chunk is computed and when it is finished.

    A run is followed from its first evaluation to its last, or to the one at which it diverged or a rule
    stopped it.  Then ``end(run, ended)`` of the functions, if any, is called once.
    """

    found: Planned  # the runs, once they are planned

    def __init__(self, functions: Sequence[Callback], alone: bool) -> None:
        listed = isinstance(functions, list | tuple) and all(map(callable, functions))
        require(listed, "must be a list of functions of an Evaluation", callbacks=functions)
        self.functions, self.alone = tuple(functions), alone
        self.begun: dict[RunInfo, None] = {}  # and not ended
        self.chunk: Chunk | None = None  # in progress
        self.count = 0  # its evaluations that were handed over
        self.runs: dict[tuple[int, int], RunInfo] = {}  # that have not ended, by their place
        self.spent: dict[int, Spent] = {}  # by place of the cell

    def __exit__(self, *error: object) -> None:
        """End the runs that an error has interrupted; an error of their ends would hide it."""
        for run in list(self.begun):
            with contextlib.suppress(Exception):
                self._end(run, "interrupted")

    def _end(self, run: RunInfo, ended: str) -> None:
        del self.begun[run]
        for function in self.functions:
            if callable(end := getattr(function, "end", None)):
                end(run, ended)

    def read(self, chunk: Chunk, arrays: Arrays) -> None:
        """Call the callbacks with the new evaluations of a chunk in progress, run by run."""
        if chunk is not self.chunk:
            self._begin(chunk)
        program, rounds = self.found.programs[chunk.program], arrays["rounds"].tolist()
        for j, c in enumerate(chunk.cells):
            cell = program.cells[c]
            counts: Any = {name: arrays[name][:, j] for name in Info._fields}
            spent = labelled(totals(program.algorithm.cost(cell.values, cell.facts), counts))
            for i in range(len(chunk.seeds)):
                for k in range(self.count, len(rounds) if (i, j) in self.runs else 0):
                    run, now = self.runs[i, j], rounds[k]
                    seen = {n: _plain(a[i, j, k]) for n, a in arrays.items() if n not in SKIPPED}
                    used = {name: row[i, k].item() for name, row in spent.items()}
                    self._call(Evaluation(run, now, seen, used, self.spent[j]))
                    lost = now == arrays["diverged_at"][i, j]
                    if lost or now == arrays["stopped_at"][i, j]:
                        why = LOST.format(now) if lost else str(arrays["ended"][i, j])
                        self._end(self.runs.pop((i, j)), why)
                        break
        self.count = len(rounds)

    def finished(self, chunk: Chunk, arrays: Arrays) -> None:
        """Hand over the rest of a chunk, and end its runs."""
        self.read(chunk, arrays)
        for run in self.runs.values():
            self._end(run, DONE)
        self.chunk = None

    def _call(self, now: Evaluation) -> None:
        self.begun[now.run] = None
        for function in self.functions:
            function(now)

    def _begin(self, chunk: Chunk) -> None:
        program, study = self.found.programs[chunk.program], self.found.study(chunk)
        self.chunk, self.count, self.runs, self.spent = chunk, 0, {}, {}
        for j, c in enumerate(chunk.cells):
            cell = program.cells[c]
            record = record_of(self.found, chunk, None, (0, j))
            self.spent[j] = Spent(record, looks(program, chunk))
            places = zip(self.found.grid.axes, (*study.place, *cell.place), strict=True)
            labels = {axis.name: axis.labels[i] for axis, i in places if i is not None}
            for i, seed in enumerate(chunk.seeds):
                self.runs[i, j] = RunInfo(
                    program.algorithm.name,
                    study.problem.name,
                    {} if self.alone else labels,
                    None if self.alone else self.found.grid.seeds[seed],
                    cell.rounds,
                    cell.values,
                    cell.sources,
                    record.settings,
                )


def _plain(value: Any) -> Any:
    return value if np.ndim(value) else value.item()
