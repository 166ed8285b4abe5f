"""Threefry keys with unrolled rounds: the bits of JAX's own, in fewer and larger programs.

On CPUs JAX compiles the 20 rounds of Threefry-2x32 [Salmon et al., SC 2011] as a loop, for short
compilation, and each call of the loop costs more than the rounds of a small draw: in a round of a
linear model, most of its time.  Keys of :data:`THREEFRY` give the same bits from straight code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.random import define_prng_impl

__all__ = ["THREEFRY", "straight", "word_pairs", "words_at"]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


@jax.jit
def block(k0: Array, k1: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds of the words (x0, x1) under the key (k0, k1)."""
    k = (k0, k1, k0 ^ k1 ^ PARITY)
    x0, x1 = x0 + k[0], x1 + k[1]
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r)))
        x0, x1 = x0 + k[(i + 1) % 3], x1 + k[(i + 2) % 3] + np.uint32(i + 1)
    return x0, x1


def _counts(key: Array, shape: Sequence[int]) -> tuple[Array, Array]:
    size = int(np.prod(shape))
    low = jax.lax.iota(np.uint32, size).reshape(shape)
    words: tuple[Array, Array] = block(key[0], key[1], jnp.zeros_like(low), low)
    return words


def _seed(seed: Array) -> Array:
    low = seed.astype(np.uint32)
    high = (seed >> 32).astype(np.uint32) if seed.dtype.itemsize > 4 else jnp.zeros_like(low)
    return jnp.stack([high, low])


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return jnp.stack(_counts(key, shape), axis=-1)


def _bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    high, low = _counts(key, shape)
    if width == 64:
        return (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    return (high ^ low).astype(np.dtype(f"uint{width}"))


def _fold_in(key: Array, data: Any) -> Array:
    low = jnp.asarray(data, np.uint32)
    return jnp.stack(block(key[0], key[1], jnp.zeros_like(low), low))


THREEFRY = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_bits,
    fold_in=_fold_in,
    name="threefry_straight",
    tag="fry",
)


def straight(key: Array) -> Array:
    """The same key with :data:`THREEFRY`; keys of other generators are returned unchanged."""
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    counters = jax.config.jax_threefry_partitionable  # type: ignore[attr-defined]
    if jax.random.key_impl(key) != "threefry2x32" or not counters:
        return key
    same: Array = jax.random.wrap_key_data(jax.random.key_data(key), impl=THREEFRY)
    return same


def word_pairs(key: Array, shape: Sequence[int]) -> tuple[Array, Array]:
    """Two uint32 for each entry of ``shape``: both words of a counter, of which JAX's draws keep one."""
    key = straight(key)
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not typed or jax.random.key_impl(key) != THREEFRY:
        high, low = jax.random.bits(key, (2, *shape), jnp.uint32)
        return high, low
    return _counts(jax.random.key_data(key), shape)


def words_at(key: Array, index: Array, page: Array | None = None) -> tuple[Array, Array]:
    """The pairs at these places of the vector of :func:`word_pairs`, or of the vector ``page`` of many.

    Other generators than Threefry have the same law, and other numbers.
    """
    key = straight(key)
    index = index.astype(np.uint32)
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and jax.random.key_impl(key) == THREEFRY:
        high = jnp.zeros_like(index) if page is None else page.astype(np.uint32)
        k0, k1 = jax.random.key_data(key)
        words: tuple[Array, Array] = block(k0, k1, high, index)
        return words
    fold = jax.vmap(jax.random.fold_in, (None if page is None else 0, 0))
    of_page = key if page is None else jax.vmap(jax.random.fold_in, (None, 0))(key, page)
    high, low = jax.vmap(lambda one: jax.random.bits(one, (2,), jnp.uint32))(fold(of_page, index)).T
    return high, low
