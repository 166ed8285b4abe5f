"""Barriers against fusion by the compiler, and code that runs on CPUs only.

XLA fuses the computation of an array with the computations that read it.  On CPUs the fused loop can
compute the same entry many times, or stop being vectorized.  :func:`materialized` and
:func:`in_own_loop` prevent this: they rely on ``min(t, 0)`` being 0 in every round t, which the
compiler cannot know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxfl.core.derivatives import loop
from jaxfl.core.types import Array, PyTree

__all__ = [
    "LARGEST",
    "added",
    "in_own_loop",
    "materialized",
    "on_cpus",
    "on_gpus",
    "read_at",
    "summable",
]

LARGEST = 1 << 28  # entries of the arrays of a block of clients on accelerators, 1 GiB of float32
PARTS = 8  # the most parts of a vector that are added and not concatenated
LEAST = 1 << 10  # entries of the smallest array that repays a loop of its own


def on_cpus(here: Callable[..., Any], elsewhere: Callable[..., Any]) -> Callable[..., Any]:
    """A function that CPUs compute as ``here``, and accelerators as ``elsewhere``.

    The compiler of each platform sees one of them: an exported program runs on every platform.
    """
    return lambda *args: jax.lax.platform_dependent(*args, cpu=here, default=elsewhere)


def on_gpus(here: Callable[..., Any], elsewhere: Callable[..., Any]) -> Callable[..., Any]:
    """A function that GPUs compute as ``here``, and CPUs and TPUs as ``elsewhere``."""
    return lambda *args: jax.lax.platform_dependent(
        *args, cpu=elsewhere, tpu=elsewhere, default=here
    )


def materialized(a: Array, t: Array) -> Array:
    """Return ``a`` (numbers or keys) unchanged, computed once rather than for each reader.

    Without it every entry of a gathered sample would draw its row again, at 20 rounds of a hash.
    """
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        words = materialized(jax.random.key_data(a), t)
        keys: Array = jax.random.wrap_key_data(words, impl=jax.random.key_impl(a))
        return keys
    if jnp.issubdtype(a.dtype, jnp.floating):
        return _same(a, t)
    one = jnp.minimum(t, 0) + 1
    return jax.lax.div(a, jnp.broadcast_to(one.astype(a.dtype), a.shape))


@jax.custom_jvp
def _same(a: Array, t: Array) -> Array:
    """Bits that pass through integers have no derivative, and these numbers have that of the identity."""
    bits = jax.lax.bitcast_convert_type(a, jnp.dtype(f"uint{8 * a.dtype.itemsize}"))
    same: Array = jax.lax.bitcast_convert_type(materialized(bits, t), a.dtype)
    return same


_same.defjvps(lambda da, out, a, t: da, None)


def in_own_loop(f: Callable[[], Array], t: Array) -> Array:
    """Return ``f()``.  CPUs compute it in a loop of one iteration if it has :data:`LEAST` entries."""
    shape = jax.eval_shape(f)
    if shape.size < LEAST:
        return f()
    zero = jnp.zeros(shape.shape, shape.dtype)
    once = jnp.minimum(t, 0) + 1
    result: Array = on_cpus(lambda: loop(once, 1, lambda *_: f(), zero), f)()
    return result


def read_at(a: Array, index: Array, t: Array) -> Array:
    """Return some numbers of an array that no cache holds; CPUs wait for many of them at a time."""
    return in_own_loop(lambda: a.at[index].get(mode="clip"), t)


def summable(a: Array, split: Callable[[Array], PyTree]) -> Array:
    """Return ``a``, a concatenation whose few parts ``split`` returns.

    XLA fuses a sum over clients with additions, and with no concatenation.
    """
    if not 1 < len(jax.tree.leaves(jax.eval_shape(split, a))) <= PARTS:
        return a
    whole: Array = on_cpus(lambda a: a, lambda a: added(a, split))(a)
    return whole


def added(a: Array, split: Callable[[Array], PyTree]) -> Array:
    """Parts of a vector, each in its place in zeros of -0: adding these changes no number."""
    total, start = jnp.full_like(a, -0.0), 0
    for part in jax.tree.leaves(split(a)):
        around = start, a.size - start - part.size, 0
        total = total + jax.lax.pad(part.reshape(-1), jnp.asarray(-0.0, a.dtype), [around])
        start += part.size
    return total
