"""Codes: what travels in place of numbers that are all sent.

Each acts on a vector, or on the coordinates that a sparsifier has chosen; see
:mod:`jaxfl.compressors`, which knows them by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxfl.core.errors import InputError
from jaxfl.core.params import check
from jaxfl.core.types import Array, Compressor, Hyper, Key, Param

__all__ = [
    "FLOAT",
    "identity",
    "log2",
    "natural",
    "natural_dithering",
    "qsgd",
    "refuse",
    "sto_sign",
    "terngrad",
    "whole",
]

FLOAT = 32.0  # bits
LEVELS = Param("levels", "quantization levels above zero", low=1, high=2**16, integer=True)


@functools.cache
def identity() -> Compressor:
    """C(v) = v."""
    return _code("identity", None, 0.0, FLOAT, scalars=True)


@functools.cache
def qsgd() -> Compressor:
    """C(v)_j = sign(v_j) |v|/s (l + 1 with probability y - l, else l), where y = s |v_j|/|v|.

    l = floor(y), and s is ``levels``.  omega = min(d/s^2, sqrt(d)/s); at a given v it is
    sum_j f_j (1 - f_j) / s^2 with f = y - l, so at most d/(4 s^2) too.  A message is the norm and d
    signs and levels.  Alistarh, Grubic, Li, Tomioka and Vojnovic, QSGD (2017), Lemma 3.1.
    """

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        s = jnp.asarray(hp["levels"]).astype(v.dtype)
        top, norm, u = _normed(v)
        y = jnp.minimum(s * jnp.abs(u) / norm, s)
        l = jnp.floor(y)
        up = jax.random.uniform(key, v.shape, v.dtype) < y - l
        return jnp.sign(v) * (l + up) * (top * norm / s)

    def omega(d: int, values: Mapping[str, Any]) -> float:
        s = float(values["levels"])
        return float(min(d / s**2, d**0.5 / s))

    def bits(d: int, values: Mapping[str, Any]) -> tuple[float, float]:
        return FLOAT + d * (1.0 + log2(int(values["levels"]) + 1)), 0.0

    def resolve(given: Mapping[str, Any], d: int) -> dict[str, Any]:
        refuse("qsgd", "omega")(given, d)
        levels = given.get("levels", 16)
        check((LEVELS,), {"levels": levels}, "qsgd")
        return {"levels": whole(levels)}

    return Compressor(
        "qsgd", code=code, omega=omega, bits=bits, resolve=resolve, params=(LEVELS,), scalars=True
    )


@functools.cache
def natural() -> Compressor:
    """C(v)_j = sign(v_j) (2^(a+1) with probability |v_j|/2^a - 1, else 2^a).

    2^a <= |v_j| < 2^(a+1).  omega = 1/8, attained at |v_j| = (4/3) 2^a; powers of two and zero are
    kept.  Sign and exponent are 9 bits.  Horvath, Ho, Horvath, Sahu, Canini and Richtarik, Natural
    compression for distributed deep learning (2019), Theorem 1.
    """

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        # A mantissa is |v|/2^a - 1 in units of its last place: adding a uniform integer of as many
        # bits carries into the exponent with exactly that probability.
        word = jnp.dtype(f"uint{8 * v.dtype.itemsize}")
        keep = lax.bitcast_convert_type(jnp.asarray(-jnp.inf, v.dtype), word)  # sign, exponent
        noise = jax.random.bits(key, v.shape, word) & ~keep
        power = (lax.bitcast_convert_type(v, word) + noise) & keep
        return jnp.where(jnp.isfinite(v), lax.bitcast_convert_type(power, v.dtype), v)

    return _code("natural", code, 1 / 8, 9.0)


@functools.cache
def natural_dithering() -> Compressor:
    """C(v)_j = sign(v_j) |v| times one of the levels 0, 2^(1-s), ..., 1/2, 1 next to |v_j|/|v|.

    Which of the two is random, so that it is right in the mean; s is ``levels``.
    ``omega = 1/8 + u min(1, u)``, ``u = sqrt(d) 2^(1-s)``.  Horvath et al., Natural compression (2019),
    Theorem 7; the formula as FL_PyTorch has it.
    """

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        least = jnp.exp2(1 - jnp.asarray(hp["levels"]).astype(v.dtype))
        top, norm, u = _normed(v)
        y = jnp.minimum(jnp.abs(u) / norm, 1)
        # 2^a <= y < 2^(a+1), or 0 <= y < least
        low = jnp.exp2(jnp.floor(jnp.log2(jnp.maximum(y, least))))
        low = jnp.where(low > y, low / 2, low)
        low = jnp.where(y < least, 0, jnp.maximum(low, least))
        gap = jnp.where(y < least, least, low)
        up = jax.random.uniform(key, v.shape, v.dtype) * gap < y - low
        return jnp.sign(v) * (low + gap * up) * (top * norm)

    def omega(d: int, values: Mapping[str, Any]) -> float:
        u = d**0.5 * 2.0 ** (1 - float(values["levels"]))
        return float(1 / 8 + u * min(1.0, u))

    def bits(d: int, values: Mapping[str, Any]) -> tuple[float, float]:
        return FLOAT + d * (1.0 + log2(int(values["levels"]) + 1)), 0.0

    few = LEVELS._replace(high=64)

    def resolve(given: Mapping[str, Any], d: int) -> dict[str, Any]:
        refuse("natural_dithering", "k", "omega")(given, d)
        levels = given.get("levels", 8)
        check((few,), {"levels": levels}, "natural_dithering")
        return {"levels": whole(levels)}

    return Compressor(
        "natural_dithering",
        code=code,
        omega=omega,
        bits=bits,
        resolve=resolve,
        params=(few,),
        scalars=True,
    )


@functools.cache
def terngrad() -> Compressor:
    """C(v)_j = |v|_inf sign(v_j) with probability |v_j|/|v|_inf, else 0.

    omega = (sqrt(d) - 1)/2 at worst; at a given v it is ``|v|_inf |v|_1/|v|^2 - 1``.  Wen et al.,
    TernGrad (2017), without its clipping.
    """

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        top = jnp.max(jnp.abs(v), initial=0)
        kept = jax.random.uniform(key, v.shape, v.dtype) * top < jnp.abs(v)
        return jnp.where(kept, jnp.sign(v) * top, 0 * v)

    return Compressor(
        "terngrad",
        code=code,
        omega=lambda d, values: (d**0.5 - 1) / 2,
        bits=lambda d, values: (FLOAT + 2.0 * d, 0.0),
        resolve=refuse("terngrad", "k", "omega"),
        scalars=True,
    )


@functools.cache
def sto_sign() -> Compressor:
    """C(v)_j = |v| or -|v|, the first with probability 1/2 + v_j/(2 |v|).

    omega = d - 1, attained by every v.  Stochastic sign, Safaryan and Richtarik (2021), scaled to be
    unbiased.
    """

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        top, norm, u = _normed(v)
        plus = jax.random.uniform(key, v.shape, v.dtype) < 0.5 + u / (2 * norm)
        return jnp.where(plus, 1, -1) * (top * norm) + 0 * v

    return Compressor(
        "sto_sign",
        code=code,
        omega=lambda d, values: d - 1.0,
        bits=lambda d, values: (FLOAT + d, 0.0),
        resolve=refuse("sto_sign", "k", "omega"),
        scalars=True,
    )


def _normed(v: Array) -> tuple[Array, Array, Array]:
    """``max |v_j|``, the norm of v over it (1 for 0), and v over it: no square overflows or vanishes."""
    top = jnp.max(jnp.abs(v), initial=0)
    u = v / jnp.where(top > 0, top, 1)
    return top, jnp.where(top > 0, jnp.sqrt(jnp.sum(u**2)), 1), u


def _code(
    name: str,
    code: Callable[[Key, Array, Hyper], Array] | None,
    omega: float,
    bits: float,
    scalars: bool = False,
) -> Compressor:
    """A code without numbers, of ``bits`` per coordinate."""
    return Compressor(
        name,
        code=code,
        omega=lambda d, values: omega,
        bits=lambda d, values: (bits * d, 0.0),
        resolve=refuse(name, "k", "omega"),
        scalars=scalars,
    )


# --- on the host ---------------------------------------------------------------------------------


def log2(count: int) -> float:
    """ceil(log2(count))."""
    return float((count - 1).bit_length())


def refuse(owner: str, *names: str) -> Callable[[Mapping[str, Any], int], dict[str, Any]]:
    def resolve(given: Mapping[str, Any], d: int) -> dict[str, Any]:
        for name in names:
            if name in given:
                raise InputError(
                    f"does not apply to {owner}", "leave it out", **{name: given[name]}
                )
        return {}

    return resolve


def whole(x: Any) -> Any:
    """An int, or an array of them over the cells of a sweep."""
    return int(x) if np.ndim(x) == 0 else np.asarray(x, dtype=np.int32)
