"""Packing: rows of all clients one after the other, where clients draw a random number of them.

A client's Poisson batch has slots that hardly ever overflow, about twice as many as it fills.  The
batches of all clients together vary less: a round reads their rows in strips of about the mean
number, nearly always one strip, and as many as it takes for all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxfl.core.types import Array, Draw

__all__ = ["strip", "strips"]

SPARE = 4.0  # standard deviations above the mean


def strip(mean: float, slots: int) -> int:
    """The length of a strip, for ``slots`` that hold ``mean`` rows on average."""
    return min(slots, math.ceil(mean + SPARE * math.sqrt(mean)))


def strips(rows: Draw, length: int, f: Callable[[Array, Draw], Array], like: Array) -> Array:
    """The sum of ``f(who, rows)`` over strips of live rows; ``who`` (L,) are the rows' clients.

    The live slots of a client come before its dead ones.  Sums have the shape and dtype of ``like``.
    """
    count = jnp.sum(rows.weight > 0, axis=1, dtype=jnp.int32)
    end = jnp.cumsum(count)
    clients, slots = rows.weight.shape

    def add(k: Array, total: Array) -> Array:
        place = k * length + jnp.arange(length, dtype=jnp.int32)
        who = jnp.searchsorted(end, place, side="right").astype(jnp.int32)
        who = jnp.minimum(who, clients - 1)
        slot = jnp.clip(place - (end - count)[who], 0, slots - 1)
        weight = jnp.where(place < end[-1], rows.weight[who, slot], 0)
        assert rows.index is not None
        return total + f(who, Draw(rows.index[who, slot], weight))

    total: Array = jax.lax.fori_loop(0, (end[-1] + length - 1) // length, add, jnp.zeros_like(like))
    return total
