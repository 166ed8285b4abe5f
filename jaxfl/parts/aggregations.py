"""The sum of the messages, and nothing else of them: secure aggregation on the ring Z / 2^32.

Client i clamps its vector to [-R, R], rounds it to multiples of the precision p and adds masks that
cancel in the sum [Hu, Guo, Gong, section IV-B; Bonawitz et al., CCS 2017]::

    c_i = round(clip(v_i, -R, R) / p) + sum_{j in S, j != i} (r_ij - r_ji)   mod 2^32
    r_ij = PRF(seed_ij, t),   one seed for each ORDERED pair, or r_ij - r_ji would vanish
    sum_i v_i = p sum_i c_i,  each term up to p/2,   while r R / p < 2^31

Clamping and rounding act on what is noised already: each message stays as private as it was.  That
the *sum* carries the noise of all needs noises that are not clamped and a precision below the noise.
A range too small for that is refused; of a run in which a coordinate was ``clamped`` all the same no
more is proven than of its messages.  The little that rounding takes away from the sum of real
Gaussians is outside all claims here, like floating point.  Where the server adds the noise, what
rounding moves a message by, up to ``p sqrt(d)/2``, counts as sensitivity.

Masks make no difference to the sum, and cost r^2 d words: the simulation leaves them out unless it
is told otherwise.  All clients of a round are taken to report: that some do not is a matter of who takes
part (:mod:`jaxfl.parts.unreliable`), and :mod:`jaxfl.parts.dropouts` is the protocol that then recovers
the sum.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxfl.core.errors import InputError, require
from jaxfl.core.params import known
from jaxfl.core.types import Aggregation, Array, Draw, Hyper, Key, Param

__all__ = [
    "AGGREGATIONS",
    "aggregation",
    "decode",
    "encode",
    "masked_sum",
    "pair_masks",
    "plain_sum",
    "secure_sum",
    "settle",
    "unless_plain",
]

BITS = 32
HALF = 2.0 ** (BITS - 1)  # sums beyond it would wrap to the other sign
MASK_WORDS = 1 << 28  # r^2 d beyond which a round of real masks is refused
RARELY = 1e-12  # chance, times e^-eps, that any noise of a run is clamped

RANGE = Param(
    "range", "bound R to which a coordinate is clamped before it is encoded", open_low=True
)
PRECISION = Param("precision", "step p that an encoded coordinate is rounded to", open_low=True)


def encode(v: Array, bound: Array, precision: Array) -> tuple[Array, Array]:
    """round(clip(v, -R, R) / p) on the ring, and how many coordinates were clamped; a NaN is 0."""
    inside = jnp.nan_to_num(jnp.clip(v, -bound, bound), nan=0.0)
    whole = jnp.round(inside / precision).astype(jnp.int32)
    words = jax.lax.bitcast_convert_type(whole, jnp.uint32)
    return words, jnp.sum(~(jnp.abs(v) <= bound), dtype=jnp.int32)


def decode(words: Array, precision: Array) -> Array:
    """The number that a word stands for, in the precision's dtype."""
    signed = jax.lax.bitcast_convert_type(words, jnp.int32)
    return signed.astype(precision.dtype) * precision


def pair_masks(key: Key, t: Array, me: Array, cohort: Draw, d: int) -> Array:
    """sum_{j in S, j != i} (r_ij - r_ji) mod 2^32, r_ij = PRF(seed_ij, t)."""

    def words(i: Array, j: Array) -> Array:
        seed = jax.random.fold_in(jax.random.fold_in(key, i), j)
        return jax.random.bits(jax.random.fold_in(seed, t), (d,), jnp.uint32)

    members = jnp.arange(cohort.weight.size) if cohort.index is None else cohort.index

    def add(slot: Array, total: Array) -> Array:
        other = members[slot]
        pair = words(me, other) - words(other, me)
        return total + jnp.where((cohort.weight[slot] > 0) & (other != me), pair, 0)

    mask: Array = jax.lax.fori_loop(0, cohort.weight.size, add, jnp.zeros(d, jnp.uint32))
    return mask


@functools.cache
def plain_sum() -> Aggregation:
    """The server sees every message and adds them up."""

    def protect(
        key: Key, t: Array, me: Array, cohort: Draw, v: Array, hp: Hyper
    ) -> tuple[Array, Array]:
        return v, jnp.int32(0)

    return Aggregation(
        "plain_sum",
        protect,
        recover=lambda total, like, hp: total,
        settle=lambda *_: {},
        bits=BITS,
        hides=False,
        plain=True,
    )


@functools.cache
def secure_sum(masks: bool = False) -> Aggregation:
    """Secure aggregation: the server gets the exact sum on the ring and no message.

    ``masks`` also draws and adds the masks of every pair.
    """

    def protect(
        key: Key, t: Array, me: Array, cohort: Draw, v: Array, hp: Hyper
    ) -> tuple[Array, Array]:
        words, clamped = encode(v, hp["range"], hp["precision"])
        if masks:
            words = words + pair_masks(key, t, me, cohort, v.size)
        return words, clamped

    def recover(words: Array, like: Array, hp: Hyper) -> Array:
        return decode(words, hp["precision"].astype(like.dtype))

    name = "masked_sum" if masks else "secure_sum"
    rule = functools.partial(settle, masks=masks)
    return Aggregation(name, protect, recover, settle=rule, bits=BITS, params=(RANGE, PRECISION))


def settle(
    values: Mapping[str, Any],
    reach: tuple[float, float] | None,
    senders: int,
    d: int,
    masks: bool = False,
) -> dict[str, tuple[float, str]]:
    """Range and precision where they are not given, with their sources; refuses what cannot work.

    ``reach`` bounds a message: its part that clipping bounds, and the deviation of its noise; None
    where neither is known.  A range holds both but for tails that no run meets, so that the sum has
    the noise of all.
    """
    signal, noise = reach or (math.inf, 0.0)
    draws, eps = senders * d * float(values["rounds"]), min(float(values.get("eps", 0.0)), 300.0)
    tail = math.sqrt(2 * (math.log(draws / RARELY) + eps))  # P[|N(0, 1)| > t] <= exp(-t^2/2)
    found: dict[str, tuple[float, str]] = {}
    require(
        not masks or senders**2 * d <= MASK_WORDS,
        f"Masks of {senders} clients at d = {d} are {senders**2 * d:.3g} words in every "
        f"round, and the limit is {MASK_WORDS:.3g}",
        "leave masks out, which changes no sum",
    )
    require(
        "range" in values or math.isfinite(signal),
        "range is not given, and neither clip nor step bounds what a client sends",
        "give the range",
    )
    if "range" in values:
        R = float(values["range"])
    else:
        R = 2.0 ** math.ceil(math.log2(2 * signal + tail * noise or 1.0))
        found["range"] = R, "default: twice the clip's reach, and the noise of all rounds"
    if "precision" in values:
        p = float(values["precision"])
    else:
        p = 2.0 ** math.ceil(math.log2(2 * senders * R / HALF))
        found["precision"] = p, "default: the sum fills at most a quarter of the ring"
    least = signal + tail * noise
    require(
        not math.isfinite(least) or least <= R,
        f"is too small for clip and noise, which reach {least:.4g}",
        "give at least that",
        range=R,
    )
    if senders * R / p >= HALF:
        raise InputError(
            f"at precision = {p:g} lets the sum of {senders} messages wrap around the ring of "
            f"2^{BITS}",
            f"ask for a precision above {senders * R / HALF:.3g}",
            range=R,
        )
    coarsest = noise if noise > 0 else R / 16
    require(
        p <= coarsest,
        f"is too coarse for {'noise' if noise else 'a range'} of {noise or R:.3g}",
        f"ask for at most {coarsest:.3g}",
        precision=p,
    )
    return found


def masked_sum() -> Aggregation:
    """Secure aggregation with the masks of every pair drawn and added."""
    return secure_sum(masks=True)


AGGREGATIONS: dict[str, Callable[[], Aggregation]] = {
    "plain_sum": plain_sum,
    "secure_sum": secure_sum,
    "masked_sum": masked_sum,
}


def unless_plain(aggregation: Aggregation | None) -> Aggregation | None:
    """None where the round adds messages up by itself."""
    return None if aggregation is None or aggregation.plain else aggregation


def aggregation(name: str) -> Aggregation:
    """The aggregation of that name."""
    return known("aggregation", name, AGGREGATIONS)()
