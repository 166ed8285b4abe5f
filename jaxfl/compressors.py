"""Unbiased compressors: E C(v) = v and E |C(v) - v|^2 <= omega |v|^2.

Each has up to two stages, see :class:`jaxfl.types.Compressor`: coordinates are chosen without
looking at v, then a code acts on the chosen values.  A sparsifier is set by ``k``, the coordinates
that it sends, or by ``omega``, from which k = max(1, round(d / (1 + omega))).

Bits count a float as 32.  Positions cost ceil(log2 d) bits each; with ``indices=False`` both ends
derive them from a shared seed instead, and they cost nothing.  Constructors are cached: equal calls
give one and the same compressor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxfl.errors import InputError
from jaxfl.hyper import check, closest
from jaxfl.subsets import coin_slots, coins, subset
from jaxfl.types import Array, Compressor, Draw, Facts, Hyper, Key, Message, Param

__all__ = [
    "COMPRESSORS",
    "bernoulli",
    "compose",
    "compress",
    "compressor",
    "dense",
    "identity",
    "natural",
    "qsgd",
    "random_k",
    "stratified_k",
]

_FLOAT = 32.0  # bits
_K = Param("k", "coordinates that a message carries", low=1, integer=True)
_OMEGA = Param("omega", "variance of the compressor, instead of k = round(d / (1 + omega))")
_LEVELS = Param("levels", "quantization levels above zero", low=1, high=2**16, integer=True)


def compress(compressor: Compressor, key: Key, v: Array, hp: Hyper) -> Message:
    """C(v) of one client, as it travels."""
    select_key, code_key = jax.random.split(key)
    v = jnp.asarray(v)
    index, value = None, v
    if compressor.select is not None:
        index, weight = compressor.select(select_key, v.shape[0], hp)
        value = weight.astype(v.dtype) * v.at[index].get(mode="fill", fill_value=0)
    if compressor.code is not None:
        value = compressor.code(code_key, value, hp)
    return Message(value, index)


def dense(message: Message, d: int) -> Array:
    """The vector that a message stands for."""
    if message.index is None:
        return message.value
    return jnp.zeros(d, message.value.dtype).at[message.index].add(message.value, mode="drop")


# --- everything, or some coordinates -------------------------------------------------------------


@functools.cache
def identity() -> Compressor:
    """C(v) = v."""
    return _code("identity", None, 0.0, _FLOAT)


@functools.cache
def random_k(indices: bool = True) -> Compressor:
    """C(v) = (d/k) v on k of d coordinates, every set of them equally likely.

    omega = d/k - 1, attained by every v.  Stich, Cordonnier and Jaggi, Sparsified SGD with memory
    (2018), where it goes without the factor.
    """

    def select(key: Key, d: int, hp: Hyper) -> Draw:
        slots, k = hp.caps["k"], hp["k"]
        return _scaled(subset(key, d, slots), jnp.arange(slots) < k, d, k)

    return _sparsifier("random_k", select, _exactly, indices)


@functools.cache
def stratified_k(indices: bool = True) -> Compressor:
    """C(v) = (d/k) v on one coordinate from each of k strata.

    The coordinates form a circle, cut at a uniform point into k arcs of length ceil(d/k) or
    floor(d/k); each arc gives one coordinate, uniformly.  Turning the circle makes all marginals
    equal, and k are chosen, so each is k/d even where k does not divide d: unbiased with
    omega = d/k - 1, attained by every v.  (Cochran, Sampling Techniques, 1977, chapters 5 and 8.)
    """

    def select(key: Key, d: int, hp: Hyper) -> Draw:
        turn_key, row_key = jax.random.split(key)
        slots, k, d_ = hp.caps["k"], jnp.asarray(hp["k"]).astype(jnp.uint32), jnp.uint32(d)
        s = jnp.arange(slots, dtype=jnp.uint32)
        short, extra = d_ // k, d_ % k  # the first `extra` arcs are one longer
        start = s * short + jnp.minimum(s, extra)
        length = short + (s < extra).astype(jnp.uint32)
        turn = jax.random.randint(turn_key, (), 0, d_, jnp.uint32)
        place = turn + start + jax.random.randint(row_key, (slots,), 0, length, jnp.uint32)
        place = jnp.where(place >= d_, place - d_, place)
        return _scaled(place.astype(jnp.int32), s < k, d, hp["k"])

    return _sparsifier("stratified_k", select, _exactly, indices)


@functools.cache
def bernoulli(indices: bool = True) -> Compressor:
    """C(v)_j = v_j / p with probability p = k/d, each coordinate by its own coin; else 0.

    omega = 1/p - 1 = d/k - 1, attained by every v.  A message carries k coordinates on average; the
    slots are chosen so that one is lost in the whole run with chance below 1e-12.
    Konecny and Richtarik, Randomized distributed mean estimation (2018).
    """

    def select(key: Key, d: int, hp: Hyper) -> Draw:
        index = coins(key, d, hp["k"], hp.caps["k"])
        return _scaled(index, index < d, d, hp["k"])

    def capacity(values: Mapping[str, Any], facts: Facts) -> dict[str, int]:
        messages = facts.n * (facts.rounds or 10**6)
        return {"k": coin_slots(np.max(values["k"]), facts.d, messages)}

    return _sparsifier("bernoulli", select, capacity, indices)


def _scaled(index: Array, live: Array, d: int, k: Any) -> Draw:
    return Draw(jnp.where(live, index, d), jnp.where(live, d / k, 0.0))


def _sparsifier(
    name: str,
    select: Callable[[Key, int, Hyper], Draw],
    capacity: Callable[[Mapping[str, Any], Facts], dict[str, int]],
    indices: bool,
) -> Compressor:
    def omega(d: int, values: Mapping[str, Any]) -> float:
        return d / float(values["k"]) - 1.0

    def bits(d: int, values: Mapping[str, Any]) -> tuple[float, float]:
        return 0.0, _FLOAT + (_log2(d) if indices else 0)

    return Compressor(name, select, None, omega, bits, _resolve_k, capacity, (_K, _OMEGA))


# --- codes ---------------------------------------------------------------------------------------


@functools.cache
def qsgd() -> Compressor:
    """C(v)_j = sign(v_j) |v|/s (l + 1 with probability y - l, else l), where y = s |v_j|/|v|.

    l = floor(y), and s is ``levels``.  omega = min(d/s^2, sqrt(d)/s); at a given v it is
    sum_j f_j (1 - f_j) / s^2 with f = y - l, so at most d/(4 s^2) too.  A message is the norm and d
    signs and levels.  Alistarh, Grubic, Li, Tomioka and Vojnovic, QSGD (2017), Lemma 3.1.
    """

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        s = jnp.asarray(hp["levels"]).astype(v.dtype)
        top = jnp.max(jnp.abs(v), initial=0)
        u = v / jnp.where(top > 0, top, 1)  # squares neither overflow nor vanish
        norm = jnp.sqrt(jnp.sum(u**2))
        y = jnp.minimum(s * jnp.abs(u) / jnp.where(top > 0, norm, 1), s)
        l = jnp.floor(y)
        up = jax.random.uniform(key, v.shape, v.dtype) < y - l
        return jnp.sign(v) * (l + up) * (top * norm / s)

    def omega(d: int, values: Mapping[str, Any]) -> float:
        s = float(values["levels"])
        return float(min(d / s**2, d**0.5 / s))

    def bits(d: int, values: Mapping[str, Any]) -> tuple[float, float]:
        return _FLOAT + d * (1.0 + _log2(int(values["levels"]) + 1)), 0.0

    def resolve(given: Mapping[str, Any], d: int) -> dict[str, Any]:
        _refuse("qsgd", "omega")(given, d)
        levels = given.get("levels", 16)
        check((_LEVELS,), {"levels": levels}, "qsgd")
        return {"levels": _whole(levels)}

    return Compressor("qsgd", None, code, omega, bits, resolve, _nothing, (_LEVELS,))


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


def _code(
    name: str, code: Callable[[Key, Array, Hyper], Array] | None, omega: float, bits: float
) -> Compressor:
    """A code without numbers, of ``bits`` per coordinate."""
    return Compressor(
        name,
        select=None,
        code=code,
        omega=lambda d, values: omega,
        bits=lambda d, values: (bits * d, 0.0),
        resolve=_refuse(name, "k", "omega"),
        capacity=_nothing,
    )


# --- composition ---------------------------------------------------------------------------------


@functools.cache
def compose(outer: Compressor, inner: Compressor) -> Compressor:
    """``outer`` after ``inner``, independent: omega = (1 + w_outer)(1 + w_inner) - 1.

    ``outer`` is a code.  After a sparsifier it acts on the k chosen values only, and its omega is
    that of dimension k.  After ``bernoulli`` it is that of min(k + 1, d): a chosen coordinate has
    fewer than k others beside it on average, and omega is concave in their number.
    """
    if inner.select is None and inner.code is None:
        return outer
    if outer.select is None and outer.code is None:
        return inner
    name = f"{outer.name}+{inner.name}"
    encode, first = outer.code, inner.code
    if outer.select is not None or encode is None:
        raise InputError(f"{name} chooses coordinates last: write {inner.name}+{outer.name}.")
    if inner.select is not None and first is not None:
        raise InputError(f"{name}: compose the codes first, and choose coordinates before them.")
    clash = {p.name for p in outer.params} & {p.name for p in inner.params}
    if clash:
        raise InputError(f"{name}: both parts would be set by {', '.join(sorted(clash))}.")

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        if first is None:
            return encode(key, v, hp)
        first_key, key = jax.random.split(key)
        return encode(key, first(first_key, v, hp), hp)

    def omega(d: int, values: Mapping[str, Any]) -> float:
        size = d
        if inner.select is not None:
            size = min(int(values["k"]) + (inner.name == "bernoulli"), d)
        return (1 + outer.omega(size, values)) * (1 + inner.omega(d, values)) - 1

    def bits(d: int, values: Mapping[str, Any]) -> tuple[float, float]:
        if inner.select is None:
            return outer.bits(d, values)
        once = outer.bits(0, values)[0]
        position = inner.bits(d, values)[1] - _FLOAT
        return once, outer.bits(1, values)[0] - once + position

    def resolve(given: Mapping[str, Any], d: int) -> dict[str, Any]:
        _refuse(name, "omega")(given, d)
        parts = [
            part.resolve({p.name: given[p.name] for p in part.params if p.name in given}, d)
            for part in (inner, outer)
        ]
        return parts[0] | parts[1]

    def capacity(values: Mapping[str, Any], facts: Facts) -> dict[str, int]:
        return inner.capacity(values, facts) | outer.capacity(values, facts)

    params = tuple(p for p in inner.params + outer.params if p.name != "omega")
    return Compressor(name, inner.select, code, omega, bits, resolve, capacity, params)


# --- on the host ---------------------------------------------------------------------------------


def _log2(count: int) -> float:
    """ceil(log2(count))."""
    return float((count - 1).bit_length())


def _nothing(values: Mapping[str, Any], facts: Facts) -> dict[str, int]:
    return {}


def _exactly(values: Mapping[str, Any], facts: Facts) -> dict[str, int]:
    return {"k": int(np.max(values["k"]))}


def _refuse(owner: str, *names: str) -> Callable[[Mapping[str, Any], int], dict[str, Any]]:
    def resolve(given: Mapping[str, Any], d: int) -> dict[str, Any]:
        for name in names:
            if name in given:
                raise InputError(f"{name} = {given[name]} does not apply to {owner}: leave it out.")
        return {}

    return resolve


def _resolve_k(given: Mapping[str, Any], d: int) -> dict[str, Any]:
    asked = {name: given[name] for name in ("k", "omega") if name in given}
    check((_K._replace(high=d), _OMEGA), asked, "a sparsifier")
    if len(asked) == 2:
        raise InputError(f"k = {asked['k']} and omega = {asked['omega']} are both given: set one.")
    k = asked.get("k", max(1, d // 20))
    if "omega" in asked:
        k = np.maximum(1, np.rint(d / (1 + np.asarray(asked["omega"], dtype=np.float64))))
    return {"k": _whole(k)}


def _whole(x: Any) -> Any:
    """An int, or an array of them over the cells of a sweep."""
    return int(x) if np.ndim(x) == 0 else np.asarray(x, dtype=np.int32)


COMPRESSORS: dict[str, Callable[..., Compressor]] = {
    "identity": identity,
    "random_k": random_k,
    "stratified_k": stratified_k,
    "bernoulli": bernoulli,
    "qsgd": qsgd,
    "natural": natural,
}


def compressor(name: str, indices: bool = True) -> Compressor:
    """The compressor of that name; ``qsgd+random_k`` is qsgd after random_k."""
    made = []
    for part in name.split("+"):
        if part not in COMPRESSORS:
            raise InputError(closest("compressor", part, COMPRESSORS))
        make = COMPRESSORS[part]
        made.append(make(False) if not indices and make in _SPARSIFIERS else make())
    return functools.reduce(compose, made)


_SPARSIFIERS = (random_k, stratified_k, bernoulli)
