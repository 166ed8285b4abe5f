"""Rounds and metrics of one run, to be compiled alone or mapped over the cells of a sweep."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxfl.core.checks import kind_of
from jaxfl.core.errors import require, shown
from jaxfl.core.types import Algorithm, Array, Hyper, Info, Key, Problem, State
from jaxfl.problems.metrics import evaluate_metrics

__all__ = ["LONGEST", "Extra", "Metric", "advance", "check_name", "measure", "own_metrics"]

Metric = Callable[[Problem, Array], Array]
Extra = tuple[tuple[str, Metric], ...]  # the user's own metrics, by name
LONGEST = 1024  # rounds in one call of a compiled program
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OWN = ("round", "client", "coordinate", "utility", "messages", "coordinates", "gradients",
       "clamped", "eps_spent", "client_rounds", "client_eps", "client_eps_claimed", "uplink_bits",
       "downlink_bits", "x")  # fmt: skip


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
