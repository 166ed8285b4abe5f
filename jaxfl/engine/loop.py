"""The loop over the rounds of a chunk, and what it compiles: rounds, metrics."""

from __future__ import annotations

import inspect
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.checks import kind_of
from jaxfl.core.errors import require, shown
from jaxfl.core.hosts import on_host
from jaxfl.core.interrupts import interrupts_deferred
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import (
    Algorithm,
    Array,
    Hyper,
    Info,
    Key,
    Problem,
    ProblemFacts,
    State,
)
from jaxfl.engine.log import Log
from jaxfl.problems.facts import example_of, multiplications
from jaxfl.problems.metrics import evaluate_metrics

__all__ = [
    "CALL",
    "LONGEST",
    "MOST",
    "MOST_OF_CALL",
    "Extra",
    "Loop",
    "Metric",
    "Ready",
    "Runs",
    "Work",
    "advance",
    "cadence",
    "check_name",
    "initial",
    "measure",
    "own_metrics",
    "rounds_of_call",
    "work",
]

Metric = Callable[[Problem, Array], Array]
Extra = tuple[tuple[str, Metric], ...]  # the user's own metrics, by name
LONGEST = 1024  # rounds in one call of a compiled program, by default
MOST_OF_CALL = 1 << 15  # rounds of which the sums of the lower sixteen bits fit in 32
SECONDS = 0.2  # between reports of the progress
OFTEN = 8  # most calls between waits for the device
CALL = 2e11  # multiplications of one call, about: a second or two of two cores, so that Ctrl-C is heard
SHARE = 0.1  # of the work that evaluations take by default, or
SMALL = 1 << 29  # multiplications of all evaluations, some hundredths of a second;
FEWEST, MOST = 3, 100  # evaluations by default
EXAMPLE = 6  # times the multiplications of a loss: gradient, norm and clipping of one drawn example
STEP = 200  # multiplications per parameter of one round: noise, compression, the step
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OWN = ("round", "client", "coordinate", "utility", "messages", "coordinates", "gradients",
       "clamped", "eps_spent", "client_rounds", "client_eps", "client_eps_claimed", "uplink_bits",
       "downlink_bits", "x")  # fmt: skip


class Work(NamedTuple):
    """An estimate of the work of one run, in multiplications."""

    round: float
    evaluation: float


def work(problem: Problem, values: Mapping[str, Any], facts: ProblemFacts) -> Work:
    """Count the work from shapes and hyper-parameters, so that all machines count the same."""

    def value(name: str, default: float) -> float:
        found = values.get(name, default)
        return float(np.mean(found.over(1)) if isinstance(found, Schedule) else found)

    count = on_host(problem.count)
    total = float(np.sum(count, dtype=np.int64))
    seen = float(np.sum(np.minimum(count, problem.evaluated or problem.m_max), dtype=np.int64))
    held = (problem.test, problem.validation)
    tests = [jax.tree.leaves(e)[0].shape[0] for e in held if e is not None]
    rows = value("batch", total / facts.n) * value("local_steps", 1.0)
    each = multiplications(problem.model, example_of(problem.train))
    drawn = EXAMPLE * value("cohort", facts.n) * rows
    return Work(each * drawn + facts.d * STEP, each * (3.0 * seen + sum(tests)))


def cadence(rounds: int, work: Work) -> int:
    """Rounds between evaluations, unless given: these take at most a tenth of the work.

    There are at least 3 evaluations all the same, and at most 100, which all of a small problem are.
    """
    ratio = SHARE / (1 - SHARE)
    evaluations = max(ratio * rounds * work.round, SMALL) / max(work.evaluation, 1.0)
    return math.ceil(rounds / int(min(MOST, max(FEWEST, evaluations))))


class Runs(Protocol):
    """The runs of a chunk: what rounds change."""

    state: State
    log: Log


class Step(Protocol):
    """Compute rounds from ``start`` to ``stop``, and the metrics of round ``stop`` if it is ``seen``.

    The ``first`` call initializes the state.  The given state is donated.
    """

    def __call__(
        self, state: State, first: bool, start: int, stop: int, seen: bool
    ) -> tuple[State, Info, dict[str, Array] | None]: ...


class Ready(NamedTuple):
    """A call that the device has finished."""

    round: int
    loss: Any  # at the last evaluation up to that round, of each run
    work: float  # since the last such call
    late: bool  # whether a report of the progress is due


class Loop:
    """The rounds of the runs of a chunk together, in calls of bounded work.

    A call ends at the next evaluation, if its work allows.  Its results are read one call later, while
    the device is busy.
    """

    def __init__(
        self,
        step: Step,
        runs: Runs,
        rounds: int,
        every: int,
        work: Work,
        most: int,
    ) -> None:
        self.step, self.runs = step, runs
        self.rounds, self.every, self.most = rounds, every or rounds, most
        self.work = work  # of a round and of an evaluation, of all runs
        self.t = int(np.max(runs.state.t)) if runs.log.rounds else 0
        self.seen = False  # whether the last call has evaluated
        self.unread = 0.0  # work of the calls that nobody has waited for
        self.counts: Any = None  # of the last call
        self.loss: Any = None  # at the last evaluation

    @property
    def intact(self) -> bool:
        """Whether there is a state: an interrupted call may have taken it."""
        return not any(leaf.is_deleted() for leaf in jax.tree.leaves(self.runs.state))

    def due(self, t: int) -> bool:
        """Whether metrics are computed at round t."""
        return t in (0, self.rounds) or t % self.every == 0

    def begin(self) -> None:
        """Call the compiled programs without a round; evaluate a new run, or align a resumed one."""
        log = self.runs.log
        if log.rounds:
            self.loss = log.last.metrics["loss"]
            if log.last.round == self.t and not self.due(self.t):
                log.forget_last()  # the end of a run that is extended
        seen = self.due(self.t) and self.t not in log.rounds[-1:]
        self._call(self.t, seen, first=not log.rounds)

    def calls(self) -> Iterator[Ready | None]:
        """Compute the remaining rounds; after each call, yield the one before if it was waited for."""
        count, reported = 0, time.perf_counter()
        while self.t < self.rounds:
            counts, t, loss, work = self.counts, self.t, self.loss, self.unread
            end = min(self.rounds, t + self.most, t - t % self.every + self.every)
            with interrupts_deferred():  # an interrupt between its lines would lose the state
                self._call(end, self.due(end))
            late, count = time.perf_counter() - reported >= SECONDS, count + 1
            ready = None
            if late or count >= OFTEN or work >= CALL / 4:
                jax.block_until_ready(counts)
                ready, count = Ready(t, loss, work, late), 0
                self.unread -= work
                reported = time.perf_counter() if late else reported
            yield ready

    def _call(self, end: int, seen: bool, first: bool = False) -> None:
        state, counts, metrics = self.step(self.runs.state, first, self.t, end, seen)
        self.runs.log.add(end, counts, metrics)
        self.unread += (end - self.t) * self.work.round + seen * self.work.evaluation
        self.counts, self.seen = counts, seen
        self.loss = self.loss if metrics is None else metrics["loss"]
        self.t = end
        # Last: until here the old state is donated, and nothing can be saved.
        self.runs.state = state


def rounds_of_call(work: float, most: int = LONGEST) -> int:
    """The rounds in one call, each of so much ``work``."""
    return max(1, min(most, MOST_OF_CALL, int(CALL / max(work, 1.0))))


def initial(algorithm: Algorithm, key: Key, problem: Problem, hp: Hyper) -> tuple[State, Info]:
    """The state before the first round, and the counts of computing it, as in :func:`advance`."""
    state, info = algorithm.init(key, problem, hp)
    return state, _halves(info)


def advance(
    algorithm: Algorithm, key: Key, state: State, stop: Array, problem: Problem, hp: Hyper
) -> tuple[State, Info]:
    """Rounds from ``state.t`` up to ``stop``, at most :data:`MOST_OF_CALL`, and their counts.

    Counts are sums of their upper and of their lower sixteen bits, (2,), which cannot overflow.
    """

    def body(t: Array, carry: tuple[State, Array]) -> tuple[State, Array]:
        state, counts = carry
        state, info = algorithm.round(key, state, problem, hp)
        return state, counts + jnp.stack(_halves(info))

    counts = jnp.zeros((len(Info._fields), 2), jnp.int32)
    state, counts = jax.lax.fori_loop(state.t, stop, body, (state, counts))
    return state, Info(*counts)


def _halves(info: Info) -> Info:
    def halves(a: Array) -> Array:
        return jnp.stack([a >> 16, a & 0xFFFF]).astype(jnp.int32)

    halved: Info = jax.tree.map(halves, info)
    return halved


def measure(algorithm: Algorithm, extra: Extra, state: State, problem: Problem) -> dict[str, Array]:
    """The common metrics of the model, and the user's own."""
    x = algorithm.output(state)
    measured = evaluate_metrics(problem, x)
    for name, f in extra:
        require(
            name not in measured,
            lambda: f"A metric {name!r} exists already",
            "give yours another name",
        )
        measured[name] = _numbers(name, f(problem, x))
    return measured


def own_metrics(metrics: Any) -> Extra:
    """The user's metrics in one order: functions of (problem, x) by name."""
    by_name = isinstance(metrics, Mapping)
    require(
        by_name, "must hold functions of (problem, x) by name, as in {'norm': f}", metrics=metrics
    )
    for name, f in metrics.items():
        check_name(name)
        wanted = f"The metric {name!r} must be a function of (problem, x), not {shown(f)}"
        require(callable(f) and _takes_two(f), wanted)
    return tuple(sorted(metrics.items()))


def check_name(name: str) -> None:
    """Raise for a name that a result file cannot use for a metric."""
    require(
        isinstance(name, str) and name not in OWN and NAME.fullmatch(name),
        lambda: f"A metric cannot be called {name!r}",
        lambda: f"use letters, digits and _, and none of {', '.join(OWN)}",
    )


def _takes_two(f: Any) -> bool:
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):
        return True  # it has no signature
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return True


def _numbers(name: str, value: Any) -> Array:
    """The value of a metric; raise unless it is real."""
    try:
        numbers = jnp.asarray(value)
        real = any(
            jnp.issubdtype(numbers.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)
        )
    except (TypeError, ValueError):
        real = False
    require(
        real,
        lambda: f"The metric {name!r} returns {kind_of(value)}",
        "let it return one real number, or an array of them",
    )
    return numbers
