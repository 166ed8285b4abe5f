"""Random subsets of ``range(size)`` at a cost that follows the subset, not the size.

* :func:`subset` -- exactly k positions, the first k values of a keyed pseudo-random permutation;
* :func:`coins` -- each position by a coin of its own, computed by jumping from success to success;
* :func:`uniform` -- independent positions, which may repeat.

Slot s depends on the key, the size and s alone, never on the number of slots: a run draws the same
subsets in a sweep that pads it.

The permutation is a Feistel network over pairs (L, R) in Z_a x Z_b with a b >= size and
a ~ b ~ sqrt(size); an image past the end is permuted again until it falls inside ("cycle walking").
Luby and Rackoff, SIAM J. Comput. 17 (1988); Black and Rogaway, Ciphers with arbitrary finite
domains, CT-RSA (2002).  It is statistically good, not cryptographically secure.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxfl.core.fusion import materialized, on_cpus
from jaxfl.core.types import Array, Key

__all__ = ["coin_slots", "coin_tail", "coins", "permuted", "subset", "uniform"]

# Double rounds.  With ideal round functions the chi-square divergence of ordered pairs and triples
# from uniform is below 2e-7 at 12 of them on the smallest domain, 2 x 3, and at 4 from 16 x 16 on.
_SMALL, _ROUNDS_SMALL, _ROUNDS = 256, 12, 4
_LARGE, _ROUNDS_LARGE = 1 << 14, 3  # for ordered pairs 5e-7 from 128 x 128 on, by the same count
_WEYL = np.uint32(0x9E3779B9)


def _mix(h: Array) -> Array:
    """A bijective integer hash, multipliers by T. Ettinger, in the manner of MurmurHash3."""
    h = (h ^ (h >> 16)) * np.uint32(0x21F0AAAD)
    h = (h ^ (h >> 15)) * np.uint32(0x735A2D97)
    return h ^ (h >> 15)


def _scale(h: Array, a: Array) -> Array:
    """``floor(h a / 2^32)`` for a < 2^16: a uniform word made uniform on Z_a, up to a / 2^32."""
    return ((h >> 16) * a + (((h & np.uint32(0xFFFF)) * a) >> 16)) >> 16


def _add(x: Array, y: Array, end: Array) -> Array:
    """``x + y`` modulo ``end``, for x below it and y not above."""
    x = x + y
    return jnp.where(x >= end, x - end, x)


def _word(i: Array | int, other: Array, key: Array, end: Array) -> Array:
    """A word of the i-th double round, uniform on Z_end."""
    return _scale(_mix(other ^ _mix(key + jnp.asarray(i, jnp.uint32) * _WEYL)), end)


@jax.jit  # traced once for all rounds
def _double_round(
    i: Array | int, left: Array, right: Array, keys: Array, a: Array, b: Array
) -> tuple[Array, Array]:
    left = _add(left, _word(i, right, keys[0], a), a)
    return left, _add(right, _word(i, left, keys[1], b), b)


@jax.jit
def _undone(
    i: Array | int, left: Array, right: Array, keys: Array, a: Array, b: Array
) -> tuple[Array, Array]:
    """The halves from which :func:`_double_round` made these: its inverse."""
    right = _add(right, b - _word(i, left, keys[1], b), b)
    return _add(left, a - _word(i, right, keys[0], a), a), right


def _product(x: Array, a: Array) -> tuple[Array, Array]:
    """The high and the low word of ``x a``."""
    x1, x0, a1, a0 = x >> 16, x & np.uint32(0xFFFF), a >> 16, a & np.uint32(0xFFFF)
    middle = x1 * a0 + (x0 * a0 >> 16)
    other = x0 * a1 + (middle & np.uint32(0xFFFF))
    return x1 * a1 + (middle >> 16) + (other >> 16), x * a


def uniform(key: Key, size: Array | int, slots: int) -> Array:
    """``floor(size U)`` for ``slots`` independent 64-bit fractions U.

    No position is favoured by more than size / 2^64; no division, which processors do one by one.
    """
    a = jnp.asarray(size, jnp.uint32)
    words = jax.random.bits(key, (slots, 2), jnp.uint32)
    high, low = _product(words[:, 0], a)
    carried, _ = _product(words[:, 1], a)
    total = low + carried
    return (high + (total < low)).astype(jnp.int32)


def subset(
    key: Key, size: Array | int, slots: int, start: Array | int = 0, most: int | None = None
) -> Array:
    """``slots`` distinct positions of ``range(size)``, uniform over ordered choices.

    They are the values at ``start, start + 1, ...`` of one permutation of ``range(size)`` that the
    key fixes: ranges that do not overlap give disjoint subsets.  Past the end of the permutation a
    slot holds ``size``.  ``size`` and ``start`` may be traced; ``size``, ``start + slots`` < 2^31.
    A bound on a traced size, ``most``, spares accelerators loops of unknown length.
    """
    places = jnp.asarray(start, jnp.uint32) + jnp.arange(slots, dtype=jnp.uint32)
    if not isinstance(size, int | np.integer) or not 0 < _past(int(size)) < slots:
        return permuted(key, size, places, most)
    network = _network(key, size)

    def few_walk(places: Array) -> Array:
        # Only the pairs past the end walk; their preimages are the slots that led to them.
        outside = network.outside()
        slot, ends = network.preimage(outside) - places[0], network.walk(outside)
        return network.image(places).at[slot].set(ends, mode="drop", unique_indices=True)

    x = on_cpus(few_walk, network.jump)(places)
    return jnp.where(places < network.n, x, network.n).astype(jnp.int32)


def permuted(key: Key, size: Array | int, places: Array, most: int | None = None) -> Array:
    """The values of :func:`subset`'s permutation at these places; ``size`` past its end."""
    network = _network(key, size, most)
    size, places = jnp.asarray(size, jnp.uint32), jnp.asarray(places, jnp.uint32)
    live, walk = places < size, network.walk
    walk = walk if network.past is None else on_cpus(walk, network.jump)
    return jnp.where(live, walk(jnp.where(live, places, 0)), size).astype(jnp.int32)


def _past(n: int) -> int:
    """How many pairs a b there are beyond n."""
    return -n % (math.isqrt(n - 1) + 1) if n else 0


class _Network(NamedTuple):
    """A keyed permutation of Z_a x Z_b, of which n pairs are wanted; L b + R stands for a pair."""

    n: Array
    a: Array
    b: Array
    keys: Array
    rounds: Array | int
    past: int | None  # a bound on a b - n, where one is known

    def image(self, x: Array) -> Array:
        return self.over(x, _double_round)

    def preimage(self, x: Array) -> Array:
        def undo(i: Array | int, *rest: Any) -> tuple[Array, Array]:
            halves: tuple[Array, Array] = _undone(self.rounds - 1 - i, *rest)
            return halves

        return self.over(x, undo)

    def over(self, x: Array, double_round: Any) -> Array:
        def turn(i: Array | int, halves: tuple[Array, Array]) -> tuple[Array, Array]:
            new: tuple[Array, Array] = double_round(i, *halves, self.keys, self.a, self.b)
            return new

        def looped(*halves: Array) -> tuple[Array, Array]:
            ends: tuple[Array, Array] = lax.fori_loop(0, self.rounds, turn, halves)
            return ends

        def unrolled(*halves: Array) -> tuple[Array, Array]:
            left, right = halves
            if isinstance(self.rounds, int):
                for i in range(self.rounds):
                    left, right = turn(i, (left, right))
                return left, right
            for i in range(_ROUNDS_SMALL):
                new = turn(i, (left, right))
                left, right = (
                    jnp.where(i < self.rounds, *pair)
                    for pair in zip(new, (left, right), strict=True)
                )
            return left, right

        left, right = on_cpus(looped, unrolled)(x // self.b, x % self.b)
        return jnp.asarray(left * self.b + right)

    def outside(self) -> Array:
        """The pairs past the end, and more if ``past`` is more."""
        assert self.past is not None
        return self.n + jnp.arange(self.past, dtype=jnp.uint32)

    def jump(self, start: Array) -> Array:
        """:meth:`walk` from inside, without a loop of unknown length.

        All chains of pairs past the end are followed at once, by 1, 2, 4, ... images.
        """
        x = self.image(start)
        if not self.past:
            return x

        def followed(x: Array, ends: Array) -> Array:
            return jnp.where(x < self.n, x, ends.at[x - self.n].get(mode="clip"))

        ends = self.image(self.outside())
        for _ in range((self.past - 1).bit_length()):
            ends = followed(ends, ends)
        return followed(x, ends)

    def walk(self, start: Array) -> Array:
        """The first image, of one or more, that lies inside; an orbit without one ends at its start."""

        # The condition is read off x: a carried flag would be recomputed, with all rounds.
        def onward(first: Array, x: Array) -> Array:
            return first | (x >= self.n) & (x != start)

        def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
            return jnp.array(False), jnp.where(onward(*state), self.image(state[1]), state[1])

        begin = jnp.array(True), start
        _, end = lax.while_loop(lambda state: onward(*state).any(), step, begin)
        return jnp.asarray(end)


def _network(key: Key, size: Array | int, most: int | None = None) -> _Network:
    """The network of a size; of one that is known, everything but the keys is known."""
    keys = jax.random.bits(key, (2,), jnp.uint32)
    if isinstance(size, int | np.integer):
        known = max(int(size), 1)
        side = math.isqrt(known - 1) + 1
        times = _ROUNDS if known <= _LARGE else _ROUNDS_LARGE
        times = _ROUNDS_SMALL if known <= _SMALL else times
        sides = jnp.uint32(-(-known // side)), jnp.uint32(side)
        return _Network(jnp.uint32(known), *sides, keys, times, _past(known))
    n = jnp.maximum(jnp.asarray(size, jnp.uint32), 1)
    b = jnp.sqrt(n.astype(jnp.float32)).astype(jnp.uint32)
    b -= (b * b > n).astype(jnp.uint32)  # the float may be off by one either way
    b += (b * b < n).astype(jnp.uint32)
    a = (n + b - 1) // b
    rounds = jnp.where(n <= _LARGE, _ROUNDS, _ROUNDS_LARGE)
    rounds = jnp.where(n <= _SMALL, _ROUNDS_SMALL, rounds)
    past = None if most is None else math.isqrt(max(most, 1) - 1)  # less than b
    return _Network(n, a, b, keys, rounds, past)


def coins(
    key: Key, size: Array | int, expected: Array | float, slots: int, t: Array | int = 0
) -> Array:
    """The positions of ``range(size)`` whose coins of probability q = expected/size came up.

    In increasing order.  Unused slots hold ``size``; positions that find no slot are lost, with the
    probability :func:`coin_tail`.  The gap to the next success is geometric,
    ``floor(E / -log(1 - q))`` with E exponential (Fan, Muller and Rezucha, JASA 57, 1962).
    ``t`` is for :func:`jaxfl.core.fusion.materialized` alone.
    """
    n = jnp.asarray(size, jnp.uint32)
    whole = n.astype(jnp.float32)
    mean = jnp.clip(jnp.asarray(expected, jnp.float32), 0.0, whole)
    whole = jnp.maximum(whole, 1.0)
    # 1 - q loses its digits near q = 1, size - expected does not
    rate = jnp.where(2 * mean < whole, -jnp.log1p(-mean / whole), -jnp.log((whole - mean) / whole))

    # -log(U) with all 32 bits at both ends, U in (0, 1): E > 0, which avoids 0/0 at q = 0
    word = jax.random.bits(key, (slots,), jnp.uint32)
    U = (word.astype(jnp.float32) + 0.5) * 2.0**-32
    V = ((~word).astype(jnp.float32) + 0.5) * 2.0**-32  # 1 - U
    E = jnp.where(U < 0.5, -jnp.log(U), -jnp.log1p(-jnp.minimum(V, 0.5)))

    gap = jnp.minimum(jnp.floor(E / rate), 2.0**31).astype(jnp.uint32)
    past = n + 1
    step = materialized(jnp.minimum(gap, n) + 1, jnp.asarray(t))
    # p + r stopping at `past`, in a form that never exceeds it
    end: Array = lax.associative_scan(lambda p, r: p + jnp.minimum(r, past - p), step)
    return (end - 1).astype(jnp.int32)


def coin_tail(expected: Any, size: int, slots: int) -> float:
    """Host: P[Bin(size, expected/size) > slots], the chance that one draw does not fit."""
    from scipy.special import bdtrc

    if slots >= size:
        return 0.0
    return float(bdtrc(slots, size, min(float(expected) / size, 1.0)))


def coin_slots(expected: Any, size: int, draws: int, tolerance: float = 1e-12) -> int:
    """Host: the least number of slots that any of ``draws`` overflows with chance < tolerance."""
    low, high = -1, size  # high always fits
    while high - low > 1:
        middle = (low + high) // 2
        fits = max(draws, 1) * coin_tail(expected, size, middle) < tolerance
        low, high = (low, middle) if fits else (middle, high)
    return max(high, 1)
