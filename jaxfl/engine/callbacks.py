"""Callbacks: what they receive of each evaluation, of runs and of the runs of a sweep."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np

from jaxfl.core.errors import require
from jaxfl.core.types import Source, State
from jaxfl.engine.log import Entry, Log
from jaxfl.engine.record import Record, totals
from jaxfl.engine.results import accounted, labelled

__all__ = ["DONE", "LOST", "Callback", "Callbacks", "Evaluation", "Follower", "RunInfo", "Spent"]

# how runs end
DONE = "finished"
LOST = "diverged: the loss is not finite from round {} on"


@dataclasses.dataclass(frozen=True, eq=False)
class RunInfo:
    """The run of an evaluation.  All evaluations of a run have the same object, equal to no other."""

    algorithm: str
    problem: str
    labels: dict[str, Any]  # the value on each axis of a sweep that applies; of a single run empty
    seed: int | None  # of a run of a sweep
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
    """The eps of the first rounds of a run, or of the runs of a cell, to be evaluated at ``rounds``."""

    def __init__(self, record: Record, rounds: Sequence[int]) -> None:
        end: Any = np.int32(rounds[-1])  # events read no other field of a state
        state = State(*[end] * len(State._fields))
        self.record = dataclasses.replace(record, state=state, log=Log())
        self.rounds = np.asarray(rounds)[accounted(len(rounds))]
        self.known: dict[tuple[int, bool], float] = {}
        self.claimed = functools.cache(self._claimed)

    def proven(self, t: int, spent: Mapping[str, float]) -> float:
        at = int(self.rounds[np.searchsorted(self.rounds, t)])
        clamped = spent["clamped"] > 0
        if (at, clamped) not in self.known:
            log = Log([at], [{}], [{"clamped": int(clamped)}])
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


class Callbacks:
    """Functions of an :class:`Evaluation`; their ``end(run, ended)``, if any, is called once per run."""

    def __init__(self, functions: Sequence[Callback]) -> None:
        listed = isinstance(functions, list | tuple) and all(map(callable, functions))
        require(listed, "must be a list of functions of an Evaluation", callbacks=functions)
        self.functions = tuple(functions)
        self.begun: dict[RunInfo, None] = {}  # and not ended

    def __bool__(self) -> bool:
        return bool(self.functions)

    def __enter__(self) -> Callbacks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the runs that an error has interrupted; an error of their ends would hide it."""
        for run in list(self.begun):
            with contextlib.suppress(Exception):
                self.end(run, "interrupted")

    def call(self, now: Evaluation) -> None:
        self.begun[now.run] = None
        for function in self.functions:
            function(now)

    def end(self, run: RunInfo, ended: str) -> None:
        del self.begun[run]
        for function in self.functions:
            if callable(end := getattr(function, "end", None)):
                end(run, ended)


class Follower:
    """Hands the evaluations of one run to callbacks, those of earlier calls first."""

    def __init__(self, callbacks: Callbacks, record: Record, later: Sequence[int]) -> None:
        self.callbacks, self.log, self.cost = callbacks, record.log, record.cost
        self.count = 0  # evaluations that were handed over
        rounds = [*record.log.rounds, *later]
        self.spent = Spent(record, rounds)
        self.run = RunInfo(
            record.algorithm.name,
            record.problem.name,
            {},
            None,
            rounds[-1],
            record.values,
            record.sources,
            dict(record.settings),
        )

    def read(self, until: float = math.inf) -> None:
        """Hand over the evaluations up to round ``until``, which the device has computed."""
        for entry in self.log.read(until)[self.count :]:
            self.count += 1
            self.callbacks.call(self._evaluation(entry))

    def _evaluation(self, entry: Entry) -> Evaluation:
        spent = labelled(totals(self.cost, entry.counts))
        metrics = {n: a if np.ndim(a) else a.item() for n, a in entry.metrics.items()}
        return Evaluation(self.run, entry.round, metrics, spent, self.spent)
