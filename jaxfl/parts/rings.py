"""Integer noise inside a secure sum: rotate, round within a norm, add integers, wrap around the ring.

For a client's message v of norm at most S, a step p, and H the cosine transform after public signs D::

    y = H D v / p,  z = y rounded at random, up or down, again until |z|^2 <= L^2
    c = z + Z  mod 2^bits,  Z the client's integer noise;   the server sees  sum_i c_i  mod 2^bits

[Kairouz, Liu, Steinke, ICML 2021; Agarwal, Kairouz, Liu, NeurIPS 2021], with a cosine transform in place
of their Hadamard's: it needs no padding.  |z| is computed in integers.  After :data:`TRIES` tries, z is y
rounded towards zero; if even that is too long, as rounding errors could make it, or not finite, z is 0.
So two data sets of a client change the sum by integers of the norm that :func:`jaxfl.privacy.rings.renyi`
counts, and the noise is that of a table: nothing rests on real numbers.  The step follows from sigma,
``p = sigma/s``: all noises of a sweep read one table.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.derivatives import no_derivative
from jaxfl.core.errors import require
from jaxfl.core.params import whole
from jaxfl.core.provenance import made
from jaxfl.core.types import (
    Aggregation,
    Array,
    Draw,
    Hyper,
    Key,
    Mechanism,
    MessageBound,
    Values,
    in_a_sum,
)
from jaxfl.parts.mechanisms import SIGMA, sigma
from jaxfl.privacy.events import Event, NoClaim, OnRing, RingNoise
from jaxfl.privacy.rings import Table, table

__all__ = ["integers", "on_ring", "ring_sum", "rotated", "turned_back", "within"]

TRIES = 8  # roundings of a message; each is short enough with chance 0.39 at least
LONGEST = 46340  # of a rounded message: its square is a number of 31 bits
SPREAD = 4.0  # standard deviations of a coordinate of the sum that the ring holds


def integers(key: Key, law: Table, shape: tuple[int, ...]) -> Array:
    """Independent draws from a table, int32: a uniform number of 64 bits, and its place by bisection."""
    high, low = jax.random.bits(key, (2, *shape), jnp.uint32)
    above, size = jnp.asarray(law.above), law.above.shape[1]
    place = jnp.zeros(shape, jnp.int32)
    for bit in reversed(range(size.bit_length())):
        further = place + (1 << bit)
        first, second = above[:, jnp.minimum(further, size) - 1]
        reached = (first < high) | ((first == high) & (second <= low))
        place = jnp.where((further <= size) & reached, further, place)
    return place - law.last


def _signs(d: int) -> Array:
    return jax.random.rademacher(jax.random.key(0), (d,), jnp.float32)


def rotated(v: Array) -> Array:
    """H D v: coordinates of nearly equal size, whatever v is, at the same norm."""
    turned: Array = jax.scipy.fft.dct(_signs(v.size).astype(v.dtype) * v, norm="ortho")
    return turned


def turned_back(y: Array) -> Array:
    """The inverse of :func:`rotated`."""
    back: Array = jax.scipy.fft.idct(y, norm="ortho")
    return _signs(y.size).astype(y.dtype) * back


def within(key: Key, y: Array, square: Array) -> Array:
    """y rounded at random to integers whose squares add up to at most ``square``, int32."""
    y = jnp.where(jnp.isfinite(y).all(), y, 0)
    y = jnp.clip(y, 1 - LONGEST, LONGEST - 1)

    def once(i: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
        z, found = best
        coin = jax.random.uniform(jax.random.fold_in(key, i), y.shape, y.dtype)
        new = jnp.floor(y + coin).astype(jnp.int32)
        return jnp.where(found, z, new), found | (_square(new) <= square)

    z, found = jax.lax.fori_loop(0, TRIES, once, (jnp.zeros(y.shape, jnp.int32), jnp.bool_(False)))
    shorter = jnp.trunc(y).astype(jnp.int32)
    shorter = jnp.where(_square(shorter) <= square, shorter, 0)
    return jnp.where(found, z, shorter)


def _square(z: Array) -> Array:
    """The squared norm of integers, at most 2^31 - 1."""
    short = jnp.minimum(jnp.abs(z), LONGEST).astype(jnp.uint32)
    total: Array = jax.lax.reduce(short * short, np.uint32(0), _saturating, (0,))
    return total


def _saturating(a: Array, b: Array) -> Array:
    return jnp.minimum(a + b, np.uint32(2**31 - 1))


def _longest(clip: Array, step: Array, d: int) -> Array:
    """:func:`jaxfl.privacy.rings.longest`, as rounds compute it."""
    c, root = clip / step, math.sqrt(d)
    square = jnp.minimum((c + root) ** 2, c * c + d / 4 + c + root / 2)
    return jnp.minimum(square, 2.0**31 - 128).astype(jnp.uint32)


@made
def on_ring(noise: RingNoise, std: float) -> Mechanism:
    """Integer noise that :func:`ring_sum` adds; ``sigma`` is its deviation in units of the estimate."""
    name = f"{noise.replace('_', ' ')}, std {std:g}"
    return Mechanism(name, sigma, params=(SIGMA,), draw=in_a_sum, event=_summed)


def _summed(one: Event, T: int) -> Event | NoClaim:
    if isinstance(one.sensitivity, OnRing):
        return one
    return NoClaim("noise on a ring counts in algorithms whose messages are bounded as a whole")


@made
def ring_sum(noise: RingNoise, std: float, bits: int = 32) -> Aggregation:
    """A secure sum of words of that many bits, each client's with integer noise of deviation ``std``."""
    law = table(noise, float(std))
    mask = np.uint32(2 ** int(whole("bits", bits, 2, 32)) - 1)

    def protect(
        key: Key, t: Array, me: Array, cohort: Draw, v: Array, hp: Hyper
    ) -> tuple[Array, Array]:
        why = "A secure sum adds up whole numbers, whose derivative is 0"
        v = no_derivative(v, why, "differentiate dp_fedavg with this sigma")
        step = hp["sigma"] / std
        mine = jax.random.fold_in(jax.random.fold_in(key, t), me)
        coin, noisy = jax.random.split(mine)
        z = within(coin, rotated(v) / step, _longest(hp["update_clip"], step, v.size))
        words = z + integers(noisy, law, v.shape)
        return jax.lax.bitcast_convert_type(words, jnp.uint32) & mask, jnp.int32(0)

    def recover(words: Array, like: Array, hp: Hyper) -> Array:
        signed = jax.lax.bitcast_convert_type(words << (32 - bits), jnp.int32) >> (32 - bits)
        step = (hp["sigma"] / std).astype(like.dtype)
        return turned_back(signed.astype(like.dtype) * step)

    settle = functools.partial(_settle, std=std, bits=bits)
    name = f"{noise.replace('_', ' ')} on {bits} bits"
    return Aggregation(name, protect, recover, settle, bits=bits, draws=True)


def _settle(
    values: Values, message_bound: MessageBound, senders: int, d: int, std: float, bits: int
) -> dict[str, tuple[float, str]]:
    """Nothing; raise where the norm of a message or the sum is too large for its integers."""
    clip, step = float(values["update_clip"]), float(np.min(values["sigma"])) / std
    c = clip / step
    require(
        c + math.sqrt(d) < LONGEST,
        lambda: f"makes integers of norm {c:.3g} of a message, and the largest norm is {LONGEST}",
        lambda: f"take noise_std below {std * LONGEST / (c + math.sqrt(d)):.3g}",
        noise_std=std,
    )
    coordinate = math.sqrt((senders * c) ** 2 / d + senders * std**2)
    wanted = math.ceil(math.log2(2 * SPREAD * coordinate + 1))
    require(
        wanted <= bits,
        lambda: f"let the sum of {senders} messages wrap around, which needs {wanted}",
        "ask for that many, for a smaller noise_std, or for more noise",
        bits=bits,
    )
    return {}
