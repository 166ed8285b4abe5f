"""Aggregations: the server learns the sum of the messages; secure ones on the ring Z / 2^32.

Client i clamps its vector to [-R, R], rounds it to multiples of the precision p and adds masks that
cancel in the sum [Hu, Guo, Gong, section IV-B; Bonawitz et al., CCS 2017]::

    c_i = round(clip(v_i, -R, R) / p) + sum_{j in S, j != i} (r_ij - r_ji)   mod 2^32
    r_ij = PRF(seed_ij, t),   one seed for each ORDERED pair, or r_ij - r_ji would vanish
    sum_i v_i = p sum_i c_i,  each term up to p/2,   while r R / p < 2^31

Clamping and rounding act on noised values, so each message stays as private as it was.  The *sum*
carries the noise of all clients if no noise is clamped and the precision is below the noise: a range
too small for that raises, and a run in which a coordinate was ``clamped`` all the same proves no more
than its messages do.  The server can subtract what ``colluding`` clients reveal, noise included: the
proof counts the noises of the others alone.  Where the server adds the noise, rounding changes a message
by up to ``p sqrt(d)/2``, which counts as sensitivity.

Each message is rounded before the sum, which is no function of the sum of real numbers that a proof
counts.  Nearly it is.  In units of p, let y_i = a_i + N(0, s^2) for r clients, Y their sum, and
F_i = y_i - round(y_i).  Then ``sum_i round(y_i) = round(Y - F_2 - ... - F_r)``.  Given Y, the other y_i are
Gaussian, and by Poisson summation the density of (F_2, ..., F_r) is 1 but for at most::

    sum_{m != 0} exp(-2 pi^2 s^2 (|m|^2 - (sum_i m_i)^2/r))  <=  (1 + 2q/(1-q))^r - 1,  q = exp(-pi^2 s^2)

For shift m, with 0 for client 1, until 0 is the median: then the form, the sum of squared deviations from
the mean, is |m|^2/2 at least.  So with uniform F_i, which are independent of data, the sum were a
function of Y, and delta grows by ``(1 + e^eps)/2`` times this in each coordinate and round.  s is the
least of the senders.  Where p <= sigma/4 it is below 1e-68 r and counts as nothing: 1e-26 r of delta for
1e20 numbers at eps = 50.  Up to p = sigma, the largest, it grows to 1.1e-4 r, and nothing is proven of
the rounding; no exact sum of two or three clients that was computed shows more than is stated.

Masks do not change the sum and cost r^2 d words; the simulation leaves them out by default.  All
clients of a cohort report.  :func:`jaxfl.parts.sampling.unreliable` models clients that do not, and
:mod:`jaxfl.parts.dropouts` is the protocol that then recovers the sum.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxfl.core.checks import named_part
from jaxfl.core.derivatives import no_derivative
from jaxfl.core.errors import require
from jaxfl.core.provenance import made
from jaxfl.core.types import Aggregation, Array, Draw, Hyper, Key, MessageBound, Param, Values

__all__ = [
    "AGGREGATIONS",
    "COLLUDING",
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
MASK_WORDS = 1 << 28  # the largest r^2 d of a round with masks
CLAMPED = 1e-12  # chance, times e^-eps, that any noise of a run is clamped

RANGE = Param(
    "range", "bound R to which a coordinate is clamped before it is encoded", open_low=True
)
PRECISION = Param("precision", "step p that an encoded coordinate is rounded to", open_low=True)

COLLUDING = Param(
    "colluding",
    "clients of a sum whose messages the server knows, or whose seeds are known (default: 0)",
    integer=True,
)


def encode(v: Array, bound: Array, precision: Array) -> tuple[Array, Array]:
    """round(clip(v, -R, R) / p) on the ring, and 1 for each coordinate that is clamped; a NaN is 0."""
    v = no_derivative(
        v,
        "A secure sum adds up whole numbers, whose derivative is 0",
        "differentiate rounds with aggregation='plain_sum' and this sigma, equal but for rounding",
    )
    inside = jnp.nan_to_num(jnp.clip(v, -bound, bound), nan=0.0)
    whole = jnp.round(inside / precision).astype(jnp.int32)
    words = jax.lax.bitcast_convert_type(whole, jnp.uint32)
    return words, (~(jnp.abs(v) <= bound)).astype(jnp.int32)


def decode(words: Array, precision: Array) -> Array:
    """The values that words stand for, in the precision's dtype."""
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


@made
def plain_sum() -> Aggregation:
    """The server sees every message and adds them up."""
    return Aggregation(
        "plain_sum",
        protect=lambda key, t, me, cohort, v, hp: (v, jnp.int32(0)),
        recover=lambda total, like, hp: total,
        settle=lambda *_: {},
        bits=BITS,
        hides=False,
        plain=True,
    )


@made
def secure_sum(masks: bool = False) -> Aggregation:
    """Secure aggregation: the server learns only the exact sum, of integers modulo 2^32.

    With ``masks``, rounds draw and add the masks of every pair.
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

    return Aggregation(
        "masked_sum" if masks else "secure_sum",
        protect,
        recover,
        settle=functools.partial(settle, masks=masks),
        bits=BITS,
        params=(RANGE, PRECISION),
    )


def settle(
    values: Values, message_bound: MessageBound, senders: int, d: int, masks: bool = False
) -> dict[str, tuple[float, str]]:
    """Defaults of range and precision, with their sources; raises where the sum cannot be right.

    A range holds the message bound and the noise, except for tails that no run meets: the sum then has
    the noise of all clients.
    """
    signal, noise = message_bound or (math.inf, 0.0)
    draws, eps = senders * d * float(values["rounds"]), min(float(values.get("eps", 0.0)), 300.0)
    tail = math.sqrt(2 * (math.log(draws / CLAMPED) + eps))  # P[|N(0, 1)| > t] <= exp(-t^2/2)
    require(
        not masks or senders**2 * d <= MASK_WORDS,
        lambda: (
            f"Masks of {senders} clients at d = {d} are {senders**2 * d:.3g} words in every "
            f"round, and the limit is {MASK_WORDS:.3g}"
        ),
        "leave masks out, which changes no sum",
    )
    require(
        "range" in values or math.isfinite(signal),
        "range is not given, and neither clip nor step bounds what a client sends",
        "give the range",
    )
    R = float(values["range"]) if "range" in values else above(2 * signal + tail * noise or 1.0)
    p = float(values["precision"]) if "precision" in values else above(2 * senders * R / HALF)
    defaults = {
        "range": (R, "default: twice the message bound, and the noise of all rounds"),
        "precision": (p, "default: the sum fills at most a quarter of the ring"),
    }
    least = signal + tail * noise
    require(
        not math.isfinite(least) or least <= R,
        lambda: f"is too small for clip and noise, which need {least:.4g}",
        "give at least that",
        range=R,
    )
    require(
        senders * R / p < HALF,
        lambda: (
            f"at precision = {p:g} lets the sum of {senders} messages wrap around the ring of 2^{BITS}"
        ),
        lambda: f"ask for a precision above {senders * R / HALF:.3g}",
        range=R,
    )
    coarsest = noise if noise > 0 else R / 16
    require(
        p <= coarsest,
        lambda: f"is too coarse for {'noise' if noise else 'a range'} of {noise or R:.3g}",
        lambda: f"ask for at most {coarsest:.3g}",
        precision=p,
    )
    return {name: found for name, found in defaults.items() if name not in values}


def above(x: float) -> float:
    """The least power of 2 that is no less."""
    return 2.0 ** math.ceil(math.log2(x))


def masked_sum() -> Aggregation:
    """Secure aggregation with the masks of every pair drawn and added."""
    return secure_sum(masks=True)


AGGREGATIONS: dict[str, Callable[[], Aggregation]] = {
    "plain_sum": plain_sum,
    "secure_sum": secure_sum,
    "masked_sum": masked_sum,
}


def unless_plain(aggregation: Aggregation | None) -> Aggregation | None:
    """The aggregation, or None where the round adds messages up itself."""
    return None if aggregation is None or aggregation.plain else aggregation


def aggregation(name: str, **options: Any) -> Aggregation:
    """The aggregation of that name, with its options."""
    return named_part("aggregation", name, AGGREGATIONS, **options)
