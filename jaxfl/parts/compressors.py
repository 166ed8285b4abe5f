"""Compressors: sparsifiers and compositions; codes are in :mod:`jaxfl.parts.codes`.

Unless its docstring says otherwise, a compressor has E C(v) = v and
E |C(v) - v|^2 <= omega |v|^2.  It has up to two stages, see :class:`jaxfl.core.types.Compressor`: it
chooses coordinates without looking at v, then a code acts on the chosen values.  A sparsifier is set
by ``k``, the coordinates that it sends, or by ``omega``, from which k = max(1, round(d / (1 + omega))).

A float counts as 32 bits.  A position costs ceil(log2 d) bits; with ``indices=False`` both ends
derive positions from a shared seed, and they cost nothing.  Constructors are cached: equal calls
return the same compressor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.errors import InputError, require
from jaxfl.core.params import at_most_one, check, known
from jaxfl.core.subsets import coin_slots, coins, subset
from jaxfl.core.types import (
    Array,
    Capacity,
    Compressor,
    Draw,
    Hyper,
    Key,
    Message,
    Param,
    ProblemFacts,
    Values,
)
from jaxfl.parts.codes import (
    FLOAT,
    KEPT,
    count_sketch,
    fixed_step,
    identity,
    log2,
    natural,
    natural_dithering,
    qsgd,
    refuse,
    slots_for_k,
    sto_sign,
    terngrad,
    top_k,
    whole,
)

__all__ = [
    "COMPRESSORS",
    "bernoulli",
    "compose",
    "compressor",
    "count_sketch",
    "dense",
    "fixed_step",
    "identity",
    "lazy",
    "natural",
    "natural_dithering",
    "qsgd",
    "random_k",
    "sto_sign",
    "stratified_k",
    "terngrad",
    "top_k",
]

_KEEP = Param("keep", "probability that a message is sent", high=1.0, open_low=True)
_OMEGA = Param("omega", "variance of the compressor, instead of k = round(d / (1 + omega))")


def dense(message: Message, d: int) -> Array:
    """The vector that a message stands for."""
    if message.index is None:
        return message.value
    return jnp.zeros(d, message.value.dtype).at[message.index].add(message.value, mode="drop")


# --- everything, or some coordinates -------------------------------------------------------------


@functools.cache
def random_k(indices: bool = True) -> Compressor:
    """C(v) = (d/k) v on k of d coordinates, every set of them equally likely.

    omega = d/k - 1, attained by every v.  Stich, Cordonnier and Jaggi, Sparsified SGD with memory
    (2018), where it goes without the factor.
    """

    def select(key: Key, d: int, hp: Hyper) -> Draw:
        slots, k = hp.caps["k"], hp["k"]
        return _scaled(subset(key, d, slots), jnp.arange(slots) < k, d, k)

    return _sparsifier("random_k", select, slots_for_k("a sparsifier"), indices)


@functools.cache
def stratified_k(indices: bool = True) -> Compressor:
    """C(v) = (d/k) v on one coordinate from each of k strata.

    The coordinates form a circle, cut at a uniform point into k arcs of length ceil(d/k) or
    floor(d/k); each arc gives one coordinate, uniformly.  The rotation makes all marginals equal, and
    k are chosen, so each is k/d even where k does not divide d: unbiased with
    omega = d/k - 1, attained by every v.  (Cochran, Sampling Techniques, 1977, chapters 5 and 8.)
    """

    def select(key: Key, d: int, hp: Hyper) -> Draw:
        rotation_key, row_key = jax.random.split(key)
        slots, k, d_ = hp.caps["k"], jnp.asarray(hp["k"]).astype(jnp.uint32), jnp.uint32(d)
        s = jnp.arange(slots, dtype=jnp.uint32)
        short, extra = d_ // k, d_ % k  # the first `extra` arcs are one longer
        start = s * short + jnp.minimum(s, extra)
        length = short + (s < extra).astype(jnp.uint32)
        rotation = jax.random.randint(rotation_key, (), 0, d_, jnp.uint32)
        place = rotation + start + jax.random.randint(row_key, (slots,), 0, length, jnp.uint32)
        place = jnp.where(place >= d_, place - d_, place)
        return _scaled(place.astype(jnp.int32), s < k, d, hp["k"])

    return _sparsifier("stratified_k", select, slots_for_k("a sparsifier"), indices)


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

    def capacity(values: Values, facts: ProblemFacts) -> dict[str, int]:
        messages = facts.n * (facts.rounds or 10**6)
        check((KEPT._replace(high=facts.d),), {"k": values["k"]}, "a sparsifier")
        return {"k": coin_slots(np.max(values["k"]), facts.d, messages)}

    return _sparsifier("bernoulli", select, capacity, indices, fixed_size=False)


@functools.cache
def lazy() -> Compressor:
    """C(v) = v/p with probability p, else nothing; p is ``keep``, or 1/(1 + omega).

    omega = 1/p - 1, attained by every v.  One bit says whether a message comes.
    """

    def select(key: Key, d: int, hp: Hyper) -> Draw:
        p = hp["keep"]
        sent = jax.random.uniform(key, (), jnp.asarray(p).dtype) < p
        index = jnp.where(sent, jnp.arange(d, dtype=jnp.int32), d)
        return Draw(index, jnp.where(sent, jnp.ones(d) / p, 0))

    def resolve(given: Values, d: int) -> dict[str, Any]:
        refuse("lazy", "k")(given, d)
        values = _one_of("lazy", given, _KEEP, _OMEGA)
        if "omega" in values:
            return {"keep": 1 / (1 + np.asarray(values["omega"], np.float64))[()]}
        return {"keep": values.get("keep", 0.5)}

    return Compressor(
        "lazy",
        select=select,
        omega=lambda d, values: 1 / float(values["keep"]) - 1,
        bits=lambda d, values: (1.0, FLOAT),
        resolve=resolve,
        params=(_KEEP, _OMEGA),
    )


def _scaled(index: Array, live: Array, d: int, k: Any) -> Draw:
    return Draw(jnp.where(live, index, d), jnp.where(live, d / k, 0.0))


def _sparsifier(
    name: str,
    select: Callable[[Key, int, Hyper], Draw],
    capacity: Capacity,
    indices: bool,
    fixed_size: bool = True,
) -> Compressor:
    return Compressor(
        name,
        select=select,
        omega=lambda d, values: d / float(values["k"]) - 1.0,
        bits=lambda d, values: (0.0, FLOAT + (log2(d) if indices else 0)),
        resolve=_resolve_k,
        capacity=capacity,
        params=(KEPT, _OMEGA),
        fixed_size=fixed_size,
        scalars=True,
    )


# --- composition ---------------------------------------------------------------------------------


@functools.cache
def compose(outer: Compressor, inner: Compressor) -> Compressor:
    """``outer`` after ``inner``, independent: omega = (1 + w_outer)(1 + w_inner) - 1.

    ``outer`` is a code.  After a sparsifier it acts on the k chosen values only, and its omega is
    that of dimension k.  Where the number of coordinates is random, as after ``bernoulli``, its omega
    is that of dimension min(k + 1, d): a chosen coordinate has fewer than k others beside it on
    average, and omega is concave in their number.
    """
    if inner.exact:
        return outer
    if outer.exact:
        return inner
    name = f"{outer.name}+{inner.name}"
    encode, first = outer.code, inner.code
    if outer.select is not None or encode is None:
        raise InputError(f"{name} chooses coordinates last", f"write {inner.name}+{outer.name}")
    require(
        inner.select is None or first is None,
        f"{name} chooses coordinates before its codes",
        "compose the codes first",
    )
    unbiased = outer.unbiased and inner.unbiased
    require(unbiased, f"{name}: a biased compressor is composed with no other", "take it alone")
    clash = {p.name for p in outer.params} & {p.name for p in inner.params}
    require(
        not clash,
        f"{name} has two parts with {', '.join(sorted(clash))}",
        "compose parts whose numbers differ",
    )

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        if first is None:
            return encode(key, v, hp)
        first_key, key = jax.random.split(key)
        return encode(key, first(first_key, v, hp), hp)

    def omega(d: int, values: Values) -> float:
        size = d
        if inner.select is not None and "k" in values:
            size = min(int(values["k"]) + (not inner.fixed_size), d)
        return (1 + outer.omega(size, values)) * (1 + inner.omega(d, values)) - 1

    def bits(d: int, values: Values) -> tuple[float, float]:
        if inner.select is None:
            return outer.bits(d, values)
        header = outer.bits(0, values)[0]
        per_message, per_coordinate = inner.bits(d, values)
        position = per_coordinate - FLOAT
        return per_message + header, outer.bits(1, values)[0] - header + position

    def resolve(given: Values, d: int) -> dict[str, Any]:
        refuse(name, "omega")(given, d)
        parts = [
            part.resolve({p.name: given[p.name] for p in part.params if p.name in given}, d)
            for part in (inner, outer)
        ]
        return parts[0] | parts[1]

    def capacity(values: Values, facts: ProblemFacts) -> dict[str, int]:
        return inner.capacity(values, facts) | outer.capacity(values, facts)

    params = tuple(p for p in inner.params + outer.params if p.name != "omega")
    return Compressor(
        name,
        select=inner.select,
        code=code,
        omega=omega,
        bits=bits,
        resolve=resolve,
        capacity=capacity,
        params=params,
        fixed_size=inner.fixed_size,
        scalars=inner.scalars and outer.scalars,
    )


# --- on the host ---------------------------------------------------------------------------------


def _resolve_k(given: Values, d: int) -> dict[str, Any]:
    limits = KEPT._replace(high=d), _OMEGA._replace(high=d - 1)
    values = _one_of("a sparsifier", given, *limits)
    k = values.get("k", max(1, d // 20))
    if "omega" in values:
        k = np.maximum(1, np.rint(d / (1 + np.asarray(values["omega"], dtype=np.float64))))
    return {"k": whole(k)}


def _one_of(owner: str, given: Values, *params: Param) -> dict[str, Any]:
    """The value of one of ``params``, if any is given, in its range."""
    values = {param.name: given[param.name] for param in params if param.name in given}
    check(params, values, owner)
    at_most_one(**values)
    return values


COMPRESSORS: dict[str, Callable[..., Compressor]] = {
    "identity": identity,
    "random_k": random_k,
    "stratified_k": stratified_k,
    "bernoulli": bernoulli,
    "lazy": lazy,
    "qsgd": qsgd,
    "natural": natural,
    "natural_dithering": natural_dithering,
    "terngrad": terngrad,
    "sto_sign": sto_sign,
    "count_sketch": count_sketch,
    "fixed_step": fixed_step,
    "top_k": top_k,
}


def compressor(name: str, indices: bool = True) -> Compressor:
    """The compressor of that name; ``qsgd+random_k`` is qsgd after random_k.

    >>> part = compressor("random_k")
    >>> values = part.resolve({"omega": 9}, 1000)
    >>> values, part.omega(1000, values), part.bits(1000, values)
    ({'k': 100}, 9.0, (0.0, 42.0))
    """
    stages = []
    for stage in name.split("+"):
        make = known("compressor", stage, COMPRESSORS)
        stages.append(make(False) if not indices and make in _SPARSIFIERS else make())
    return functools.reduce(compose, stages)


_SPARSIFIERS = (random_k, stratified_k, bernoulli)
