"""Rounds and metrics of one run, ready to be compiled alone or mapped over the cells of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxfl.checks import kind_of
from jaxfl.errors import InputError
from jaxfl.metrics import evaluate_metrics
from jaxfl.types import Algorithm, Array, Hyper, Info, Key, Problem, State

__all__ = ["LONGEST", "Extra", "Metric", "advance", "measure"]

Metric = Callable[[Problem, Array], Array]
Extra = tuple[tuple[str, Metric], ...]  # the user's own metrics, by name
LONGEST = 1024  # rounds in one call of a compiled program


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
        if name in measured:
            raise InputError(f"A metric {name!r} exists already: give yours another name.")
        measured[name] = _numbers(name, f(problem, x))
    return measured


def _numbers(name: str, value: Any) -> Array:
    """What a metric returned, if it is real numbers."""
    try:
        numbers = jnp.asarray(value)
        real = any(
            jnp.issubdtype(numbers.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)
        )
    except (TypeError, ValueError):
        real = False
    if not real:
        raise InputError(
            f"The metric {name!r} returns {kind_of(value)}: let it return one real number, or "
            "an array of them."
        )
    return numbers
