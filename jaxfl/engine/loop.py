"""Rounds and metrics of one run, to be compiled alone or mapped over the cells of a sweep."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.checks import kind_of
from jaxfl.core.errors import require, shown
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
from jaxfl.problems.metrics import evaluate_metrics

__all__ = [
    "CALL",
    "LONGEST",
    "MOST",
    "Extra",
    "Metric",
    "Work",
    "advance",
    "cadence",
    "check_name",
    "measure",
    "own_metrics",
    "rounds_of_call",
    "work",
]

Metric = Callable[[Problem, Array], Array]
Extra = tuple[tuple[str, Metric], ...]  # the user's own metrics, by name
LONGEST = 1024  # rounds in one call of a compiled program
CALL = 2e11  # multiplications of one call, about: a second or two of two cores, so that Ctrl-C is heard
SHARE = 0.2  # of the work that evaluations take by default, or
SMALL = 1 << 29  # multiplications of all evaluations, some hundredths of a second;
FEWEST, MOST = 3, 100  # evaluations by default
EXAMPLE = 6  # multiplications per parameter: gradient, norm and clipping of one drawn example
STEP = 200  # and of one round: noise, compression, the step
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

    total = float(np.sum(np.asarray(problem.count), dtype=np.int64))
    held = (problem.test, problem.validation)
    tests = [jax.tree.leaves(e)[0].shape[0] for e in held if e is not None]
    rows = value("batch", total / facts.n) * value("local_steps", 1.0)
    drawn = EXAMPLE * value("cohort", facts.n) * rows
    return Work(facts.d * (drawn + STEP), facts.d * (3.0 * total + sum(tests)))


def cadence(rounds: int, work: Work) -> int:
    """Rounds between evaluations, unless given: these take at most a fifth of the work.

    There are at least 3 evaluations all the same, and at most 100, which all of a small problem are.
    """
    ratio = SHARE / (1 - SHARE)
    evaluations = max(ratio * rounds * work.round, SMALL) / max(work.evaluation, 1.0)
    return math.ceil(rounds / int(min(MOST, max(FEWEST, evaluations))))


def rounds_of_call(work: float, most: int) -> int:
    """The rounds in one call, each of so much ``work``."""
    return max(1, min(most, int(CALL / max(work, 1.0))))


def advance(
    algorithm: Algorithm,
    length: int,
    key: Key,
    state: State,
    stop: Array,
    problem: Problem,
    hp: Hyper,
) -> tuple[State, Info]:
    """Rounds from ``state.t`` up to ``stop``, at most ``length``, and the counts of each."""
    first = state.t

    def body(t: Array, carry: tuple[State, Info]) -> tuple[State, Info]:
        state, counts = carry
        state, info = algorithm.round(key, state, problem, hp)
        return state, jax.tree.map(lambda a, v: a.at[t - first].set(v), counts, info)

    counts = Info(*(jnp.zeros(length, jnp.int32) for _ in Info._fields))
    end: tuple[State, Info] = jax.lax.fori_loop(first, stop, body, (state, counts))
    return end


def measure(algorithm: Algorithm, extra: Extra, state: State, problem: Problem) -> dict[str, Array]:
    """The common metrics of the model, and the user's own."""
    x = algorithm.output(state)
    measured = evaluate_metrics(problem, x)
    for name, f in extra:
        require(
            name not in measured, f"A metric {name!r} exists already", "give yours another name"
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
        f"A metric cannot be called {name!r}",
        f"use letters, digits and _, and none of {', '.join(OWN)}",
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
        f"The metric {name!r} returns {kind_of(value)}",
        "let it return one real number, or an array of them",
    )
    return numbers
