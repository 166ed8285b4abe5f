"""Unbiased compressors: E C(v) = v and E |C(v) - v|^2 <= omega |v|^2.

Each has up to two stages, see :class:`jaxfl.types.Compressor`: coordinates are chosen without
looking at v, then a code acts on the chosen values.  A sparsifier is set by ``k``, the coordinates
that it sends, or by ``omega``, from which k = max(1, round(d / (1 + omega))).

Bits count a float as 32.  Positions cost ceil(log2 d) bits each; with ``indices=False`` both ends
derive them from a shared seed instead, and they cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxfl.errors import InputError
from jaxfl.sampling import lookup
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

_FLOAT = 32.0
_K = Param("k", "coordinates that a message carries", low=1, integer=True)
_OMEGA = Param("omega", "variance of the compressor, instead of k = round(d / (1 + omega))")
_LEVELS = Param("levels", "quantization levels above zero", low=1, integer=True)


# --- use -----------------------------------------------------------------------------------------


def compress(compressor: Compressor, key: Key, v: Array, hp: Hyper) -> Message:
    """C(v) of one client, as it travels."""
    select_key, code_key = jax.random.split(key)
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


def identity() -> Compressor:
    """C(v) = v."""
    return Compressor(
        "identity",
        select=None,
        code=None,
        omega=lambda d, values: 0.0,
        bits=lambda d, values: (_FLOAT * d, 0.0),
        resolve=_refuse("identity"),
        capacity=_nothing,
    )


def random_k(indices: bool = True) -> Compressor:
    """C(v) = (d/k) v on k of d coordinates, every set of them equally likely.

    omega = d/k - 1, attained by every v.  Stich, Cordonnier and Jaggi, Sparsified SGD with memory
    (2018); SoteriaFL's random sparsification.
    """

    def select(key: Key, d: int, hp: Hyper) -> Draw:
        slots, k = hp.caps["k"], hp["k"]
        return _scaled(subset(key, d, slots), jnp.arange(slots) < k, d, k)

    return _sparsifier("random_k", select, _exactly, indices)


def stratified_k(indices: bool = True) -> Compressor:
    """C(v) = (d/k) v on one coordinate from each of k strata.

    The coordinates form a circle, cut at a uniform point into k arcs of length ceil(d/k) or
    floor(d/k); each arc gives one coordinate, uniformly.  Turning the circle makes all marginals
    equal, and k are chosen, so each is k/d even where k does not divide d: unbiased with
    omega = d/k - 1, attained by every v.  (Cochran, Sampling Techniques, sections 5.3 and 8.)
    """

    def select(key: Key, d: int, hp: Hyper) -> Draw:
        turn_key, row_key = jax.random.split(key)
        slots, k = hp.caps["k"], jnp.asarray(hp["k"]).astype(jnp.uint32)
        s = jnp.arange(slots, dtype=jnp.uint32)
        short, longer = (
            jnp.uint32(d) // k,
            jnp.uint32(d) % k,
        )  # the first `longer` arcs have one more
        start = s * short + jnp.minimum(s, longer)
        length = short + (s < longer).astype(jnp.uint32)
        turn = jax.random.randint(turn_key, (), 0, d, jnp.uint32)
        place = turn + start + jax.random.randint(row_key, (slots,), 0, length, jnp.uint32)
        place = jnp.where(place >= d, place - jnp.uint32(d), place)
        return _scaled(place.astype(jnp.int32), s < k, d, hp["k"])

    return _sparsifier("stratified_k", select, _exactly, indices)


def bernoulli(indices: bool = True) -> Compressor:
    """C(v)_j = v_j / p with probability p = k/d, each coordinate by its own coin; else 0.

    omega = 1/p - 1 = d/k - 1, attained by every v.  A message carries k coordinates on average; the
    slots are chosen so that in the whole run one is lost with chance below 1e-12 (it then counts as
    not chosen).  Konecny and Richtarik, Randomized distributed mean estimation (2018).
    """

    def select(key: Key, d: int, hp: Hyper) -> Draw:
        index = coins(key, d, hp["k"], hp.caps["k"])
        return _scaled(index, index < d, d, hp["k"])

    def capacity(values: Mapping[str, Any], facts: Facts) -> dict[str, int]:
        k = int(np.max(values["k"]))
        return {"k": coin_slots(k, facts.d, facts.n * facts.rounds)}

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


def qsgd() -> Compressor:
    """C(v)_j = |v|/s sign(v_j) (floor(y_j) + 1 with probability y_j - floor(y_j)), y = s |v_j|/|v|.

    s ``levels``.  omega = min(d/s^2, sqrt(d)/s); at a given v it is sum_j f_j (1 - f_j) / s^2, f the
    fractional parts of y.  A message is the norm and, per coordinate, a sign and a level.
    Alistarh, Grubic, Li, Tomioka and Vojnovic, QSGD (2017), Lemma 3.1.
    """

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        s = jnp.asarray(hp["levels"]).astype(v.dtype)
        top = jnp.max(jnp.abs(v), initial=0)
        top = jnp.where(top > 0, top, 1)
        norm = jnp.sqrt(jnp.sum((v / top) ** 2))  # in units of the largest: no overflow
        norm = jnp.where(norm > 0, norm, 1)
        y = jnp.minimum(s * (jnp.abs(v / top) / norm), s)
        low = jnp.floor(y)
        up = jax.random.uniform(key, v.shape, v.dtype) < y - low
        return jnp.sign(v) * (low + up) * (top * norm / s)

    def omega(d: int, values: Mapping[str, Any]) -> float:
        s = float(values["levels"])
        return float(min(d / s**2, d**0.5 / s))

    def bits(d: int, values: Mapping[str, Any]) -> tuple[float, float]:
        return _FLOAT + d * (1.0 + _log2(int(values["levels"]) + 1)), 0.0

    def resolve(given: Mapping[str, Any], d: int) -> dict[str, Any]:
        _refuse("qsgd", ("omega",), "set levels")(given, d)
        return {"levels": _whole("levels", given.get("levels", 16), 1, 2**20)}

    return Compressor("qsgd", None, code, omega, bits, resolve, _nothing, (_LEVELS,))


def natural() -> Compressor:
    """C(v)_j = one of the two powers of two around v_j; 2^(a+1) with probability |v_j|/2^a - 1.

    omega = 1/8, attained at (4/3) 2^a; powers of two and zero are kept.  Sign and exponent: 9 bits.
    Horvath, Ho, Horvath, Sahu, Canini and Richtarik, Natural compression (2019), Theorem 1.

    The mantissa of a float is |v|/2^a - 1 in units of its last place.  Adding a uniform integer
    below one carries into the exponent with exactly that probability.
    """

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        form = jnp.finfo(v.dtype)
        word = jnp.dtype(f"uint{form.bits}")
        mantissa = jnp.asarray((1 << form.nmant) - 1, word)
        noise = jax.random.bits(key, v.shape, word) & mantissa
        power = (lax.bitcast_convert_type(v, word) + noise) & ~mantissa
        return jnp.where(jnp.isfinite(v), lax.bitcast_convert_type(power, v.dtype), v)

    return Compressor(
        "natural",
        select=None,
        code=code,
        omega=lambda d, values: 1 / 8,
        bits=lambda d, values: (9.0 * d, 0.0),
        resolve=_refuse("natural"),
        capacity=_nothing,
    )


# --- composition ---------------------------------------------------------------------------------


def compose(outer: Compressor, inner: Compressor) -> Compressor:
    """``outer`` after ``inner``, independent: omega = (1 + w_outer)(1 + w_inner) - 1.

    ``outer`` is a code.  After a sparsifier it acts on the chosen values only, so its omega is that
    of dimension k (of 1 + (d-1)k/d after coins: their number is random, but omega is concave in
    it, and the coordinate at hand is among them).
    """
    if _plain(outer):
        return inner
    if _plain(inner):
        return outer
    name = f"{outer.name}+{inner.name}"
    outer_code, inner_code = outer.code, inner.code
    if outer.select is not None or outer_code is None:
        raise InputError(f"{name}: choose coordinates first, write {inner.name}+{outer.name}.")
    if inner.select is not None and inner_code is not None:
        raise InputError(f"{name}: compose the codes first, then the choice of coordinates.")
    clash = {p.name for p in outer.params} & {p.name for p in inner.params}
    if clash:
        raise InputError(f"{name}: both parts are set by {', '.join(sorted(clash))}.")

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        if inner_code is None:
            return outer_code(key, v, hp)
        outer_key, inner_key = jax.random.split(key)
        return outer_code(outer_key, inner_code(inner_key, v, hp), hp)

    def omega(d: int, values: Mapping[str, Any]) -> float:
        size: float = d
        if inner.select is not None:
            k = float(values["k"])
            size = 1 + (d - 1) * k / d if inner.name == "bernoulli" else k
        # omega of a code is defined for any real dimension
        return (1 + outer.omega(size, values)) * (1 + inner.omega(d, values)) - 1  # type: ignore[arg-type]

    def bits(d: int, values: Mapping[str, Any]) -> tuple[float, float]:
        if inner.select is None:
            return outer.bits(d, values)
        once, each = outer.bits(0, values)[0], outer.bits(1, values)[0]
        position = inner.bits(d, values)[1] - _FLOAT
        return once, each - once + position

    def resolve(given: Mapping[str, Any], d: int) -> dict[str, Any]:
        _refuse(name, ("omega",), "it follows from the parts, set those")(given, d)
        mine = {p.name for p in inner.params}
        given_inner = {key: x for key, x in given.items() if key in mine}
        given_outer = {key: x for key, x in given.items() if key not in mine}
        return inner.resolve(given_inner, d) | outer.resolve(given_outer, d)

    def capacity(values: Mapping[str, Any], facts: Facts) -> dict[str, int]:
        return inner.capacity(values, facts) | outer.capacity(values, facts)

    params = tuple(p for p in inner.params + outer.params if p.name != "omega")
    return Compressor(name, inner.select, code, omega, bits, resolve, capacity, params)


def _plain(compressor: Compressor) -> bool:
    return compressor.select is None and compressor.code is None


# --- on the host ---------------------------------------------------------------------------------


def _log2(count: int) -> float:
    """ceil(log2(count))."""
    return float((count - 1).bit_length())


def _nothing(values: Mapping[str, Any], facts: Facts) -> dict[str, int]:
    return {}


def _exactly(values: Mapping[str, Any], facts: Facts) -> dict[str, int]:
    return {"k": int(np.max(values["k"]))}


def _refuse(
    name: str, what: tuple[str, ...] = ("k", "omega"), instead: str = "leave it out"
) -> Callable[[Mapping[str, Any], int], dict[str, Any]]:
    def resolve(given: Mapping[str, Any], d: int) -> dict[str, Any]:
        for number in what:
            if number in given:
                raise InputError(f"{number} = {given[number]} does not apply to {name}: {instead}.")
        return {}

    return resolve


def _whole(name: str, asked: Any, low: int, high: int) -> Any:
    """An integer, or an array of them over cells, within its limits."""
    x = np.asarray(asked, dtype=np.float64)
    if not ((x >= low) & (x <= high) & (x % 1 == 0)).all():
        raise InputError(f"{name} = {asked}: ask for a whole number from {low} to {high}.")
    return int(x) if x.ndim == 0 else x.astype(np.int32)


def _resolve_k(given: Mapping[str, Any], d: int) -> dict[str, Any]:
    if "k" in given and "omega" in given:
        raise InputError(f"k = {given['k']} and omega = {given['omega']} say the same: set one.")
    if "omega" not in given:
        return {"k": _whole("k", given.get("k", max(1, d // 20)), 1, d)}
    omega = np.asarray(given["omega"], dtype=np.float64)
    if not (omega >= 0).all():
        raise InputError(f"omega = {given['omega']}: ask for a number from 0 up.")
    return {"k": _whole("k", np.maximum(1, np.rint(d / (1 + omega))), 1, d)}


COMPRESSORS: dict[str, Callable[[], Compressor]] = {
    "identity": identity,
    "random_k": random_k,
    "stratified_k": stratified_k,
    "bernoulli": bernoulli,
    "qsgd": qsgd,
    "natural": natural,
}


def compressor(name: str, indices: bool = True) -> Compressor:
    """The compressor of that name; ``qsgd+random_k`` is qsgd after random_k."""
    parts = [lookup("compressor", part.strip(), COMPRESSORS) for part in name.split("+")]
    made = [part(indices) if part in _SEEDED else part() for part in parts]
    return reduce(compose, made)


_SEEDED: tuple[Callable[..., Compressor], ...] = (random_k, stratified_k, bernoulli)
