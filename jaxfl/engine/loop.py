"""The computation of a program: rounds and metrics, and an estimate of their work."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.calls import blamed
from jaxfl.core.checks import kind_of
from jaxfl.core.errors import require, shown
from jaxfl.core.hosts import on_host
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
from jaxfl.data.samples import example
from jaxfl.problems.facts import multiplications
from jaxfl.problems.metrics import evaluate_metrics

__all__ = [
    "CALL",
    "LONGEST",
    "MOST",
    "MOST_OF_CALL",
    "Extra",
    "Metric",
    "Work",
    "advance",
    "cadence",
    "initial",
    "measure",
    "own_metrics",
    "rounds_of_call",
    "work",
]

Metric = Callable[[Problem, Array], Array]
Extra = tuple[tuple[str, Metric], ...]  # the user's own metrics, by name
LONGEST = 1024  # rounds in one call of a compiled program
MOST_OF_CALL = 1 << 15  # rounds of which the sums of the lower sixteen bits fit in 32
CALL = 2e11  # multiplications of one call, about: Ctrl-C waits a second or two on two cores
SHARE = 0.1  # of the work that evaluations take by default, or
SMALL = 1 << 29  # multiplications of all evaluations, some hundredths of a second;
FEWEST, ENOUGH, MOST = 3, 20, 100  # evaluations by default; a curve has enough points,
SHORT = 1 << 36  # if these take as many multiplications, about a second
EXAMPLE = 6  # times the multiplications of a loss: gradient, norm and clipping of one drawn example
STEP = 200  # multiplications per parameter of one round: noise, compression, the step


class Work(NamedTuple):
    """An estimate of the work of one run, in multiplications."""

    round: float
    evaluation: float


def work(problem: Problem, values: Mapping[str, Any], facts: ProblemFacts) -> Work:
    """Count the work from shapes and hyper-parameters: all machines count the same."""

    def value(name: str, default: float) -> float:
        found = values.get(name, default)
        return float(np.mean(found.over(1)) if isinstance(found, Schedule) else found)

    count = on_host(problem.count)
    total = float(np.sum(count, dtype=np.int64))
    seen = float(np.sum(np.minimum(count, problem.evaluated or problem.m_max), dtype=np.int64))
    held = (problem.test, problem.validation)
    tests = [jax.tree.leaves(e)[0].shape[0] for e in held if e is not None]
    rows = value("batch", total / facts.n) * value("local_steps", 1.0)
    each = multiplications(problem.model, example(problem.train))
    drawn = EXAMPLE * value("cohort", facts.n) * rows
    return Work(each * drawn + facts.d * STEP, each * (3.0 * seen + sum(tests)))


def cadence(rounds: int, work: Work) -> int:
    """Rounds between evaluations, unless given: these take at most a tenth of the work.

    There are 20 evaluations all the same where they take about a second, else at least 3, and at most 100,
    which all of a small problem are.
    """
    ratio = SHARE / (1 - SHARE)
    evaluations = max(ratio * rounds * work.round, SMALL) / max(work.evaluation, 1.0)
    every = math.ceil(rounds / int(min(MOST, max(FEWEST, evaluations))))
    enough = max(1, rounds // ENOUGH)
    return min(every, enough) if rounds / enough * work.evaluation <= SHORT else every


def rounds_of_call(work: float) -> int:
    """The rounds in one call, each of so much ``work``."""
    return max(1, min(LONGEST, int(CALL / max(work, 1.0))))


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
        with blamed(f"The metric {name!r}", f):
            found = f(problem, x)
        measured = {**measured, name: _numbers(name, found)}
    return measured


def own_metrics(metrics: Any) -> Extra:
    """The user's metrics in one order: functions of (problem, x) by name."""
    way = "must hold functions of (problem, x) by name, as in {'norm': f}"
    require(isinstance(metrics, Mapping), way, metrics=metrics)
    for name, f in metrics.items():
        usable = isinstance(name, str) and re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
        require(usable, lambda: f"A metric cannot be called {name!r}", "use letters, digits and _")
        wanted = f"The metric {name!r} must be a function of (problem, x), not {shown(f)}"
        require(callable(f) and _takes_two(f), wanted)
    return tuple(sorted(metrics.items()))


def _takes_two(f: Any) -> bool:
    try:
        inspect.signature(f).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        pass
    return True


def _numbers(name: str, value: Any) -> Array:
    """The value of a metric; raise unless it is real."""
    kinds = (jnp.floating, jnp.integer, jnp.bool_)
    try:
        numbers = jnp.asarray(value)
        real = any(jnp.issubdtype(numbers.dtype, kind) for kind in kinds)
    except (TypeError, ValueError):
        real = False
    way = "let it return one real number, or an array of them"
    require(real, lambda: f"The metric {name!r} returns {kind_of(value)}", way)
    return numbers
