"""The noise of every mechanism: normal numbers with the tails of the normal law.

``jax.random.normal`` draws from 2^23 numbers in float32, the last of them 5.42: beyond it lie 6e-8 of the
law, where it has nothing.  Here both words of a counter give the chance p of a larger magnitude, from
2^-62 to 1, and the sign::

    |x| = sqrt(2) erfinv(1 - p) = (1 - p) G(w),   w = -log(p (2 - p)) = -log(1 - (1 - p)^2)

G is smooth, and a quotient of two polynomials gives it to 5e-8 for w < 44.5, hence up to 9.1.  What JAX
computes, log1p and two polynomials with a root between them [Giles, 2010], takes longer.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxfl.core.threefry import word_pairs, words_at

__all__ = ["LAST", "normal", "normal_at", "quantile"]

LAST = 9.081  # no draw is longer: 1.1e-19 of the normal law lies beyond
# minimax in the relative error, by powers of w
ABOVE = (
    1.25331409,
    0.460604149,
    0.0969942099,
    0.0138863496,
    0.001341086,
    8.31183212e-05,
    5.9066208e-07,
)
BELOW = (
    1.0,
    0.105708427,
    0.036688643,
    0.002723976,
    0.000308088414,
    6.75202738e-06,
    1.09028182e-08,
)


def normal(key: Array, shape: Sequence[int], dtype: Any = jnp.float32) -> Array:
    """Independent N(0, 1) of this shape and dtype, no longer than :data:`LAST`."""
    drawn: Array = _normal(key, tuple(shape), np.dtype(dtype))
    return drawn


@functools.partial(jax.jit, static_argnums=(1, 2))  # fused alike by itself and in a round
def _normal(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    return _of_words(*word_pairs(key, shape), dtype)


def normal_at(key: Array, index: Array, dtype: Any, page: Array | None = None) -> Array:
    """The draws of :func:`normal` for the vector of which these are coordinates, in the order of ``index``.

    ``page``: the number of the vector of each; None: 0, which alone :func:`normal` draws.
    """
    drawn: Array = _normal_at(key, index, page, np.dtype(dtype))
    return drawn


@functools.partial(jax.jit, static_argnums=3)
def _normal_at(key: Array, index: Array, page: Array | None, dtype: Any) -> Array:
    return _of_words(*words_at(key, index, page), dtype)


def _of_words(high: Array, low: Array, dtype: Any) -> Array:
    kind = np.dtype(np.float64 if dtype == np.float64 else np.float32).type

    def half(word: Array) -> Array:  # 31 bits, which convert faster with a sign
        return (word >> np.uint32(1)).astype(jnp.int32).astype(kind)

    p = half(high) * kind(2.0**-31) + (half(low) * kind(2.0**-62) + kind(2.0**-63))
    sign = 1 - 2 * (low & np.uint32(1)).astype(jnp.int32)
    return (sign.astype(kind) * quantile(p)).astype(dtype)


def quantile(p: Array) -> Array:
    """The magnitude that a normal number exceeds with chance p, of 2^-63 or more; in p's dtype."""
    if p.dtype == np.float64:
        return -jax.scipy.special.ndtri(p / 2)
    w = -jnp.log(p * (2 - p))
    return (1 - p) * (_horner(ABOVE, w) / _horner(BELOW, w))


def _horner(coefficients: Sequence[float], w: Array) -> Array:
    *rest, total = (np.float32(c) for c in coefficients)
    value = jnp.full_like(w, total)
    for c in reversed(rest):
        value = value * w + c
    return value
