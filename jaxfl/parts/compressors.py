"""Compressors: sparsifiers, codes, and their compositions.

Unless its docstring says otherwise, a compressor has E C(v) = v and
E |C(v) - v|^2 <= omega |v|^2.  It has up to two stages, see :class:`jaxfl.core.types.Compressor`: it
chooses coordinates without looking at v, then a code acts on the chosen values.  A sparsifier is set
by ``k``, the coordinates that it sends, or by ``omega``, from which k = max(1, round(d / (1 + omega))).
Whatever has a size, biased or not, is also set by ``share``, the bits of a message over the 32 d of a dense
vector, and then sends as many as it can of at most these.

A float counts as 32 bits.  A position costs ceil(log2 d) bits; with ``indices=False`` both ends
derive positions from a shared seed, and they cost nothing, nor do they where k = d.  Constructors are
cached: equal calls return the same compressor.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxfl.core.checks import instance, named_part
from jaxfl.core.derivatives import no_derivative
from jaxfl.core.errors import InputError, require
from jaxfl.core.fusion import on_cpus
from jaxfl.core.params import at_most_one, check, known
from jaxfl.core.provenance import made
from jaxfl.core.subsets import coin_slots, coins, subset
from jaxfl.core.types import (
    Array,
    Compressor,
    Draw,
    Hyper,
    Key,
    Message,
    Param,
    ProblemFacts,
    Values,
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

FLOAT = 32.0  # bits
FAR = (
    2.0**64
)  # squares of numbers 1/FAR or FAR times as large as others neither vanish nor overflow
LEVELS = Param("levels", "quantization levels above zero", low=1, high=2**16, integer=True)
KEPT = Param("k", "coordinates that a message carries", low=1, integer=True, default="d/20")
QUANTUM = Param(
    "quantum", "step of a quantizer whose error does not depend on what it codes", open_low=True
)
QUANTUM_BITS = 16  # of a coordinate in such steps
SKETCH_ROWS = Param("sketch_rows", "rows r of a count sketch", low=1, high=1024, integer=True)
SKETCH_COLUMNS = Param("sketch_columns", "columns c of a count sketch", low=1, integer=True)

Code = Callable[[Key, Array, Hyper], Array]
Resolve = Callable[[Values, int], dict[str, Any]]
SHARE = Param(
    "share",
    "bits of a client in a round over the 32 d of one uncompressed message; sets the size of messages",
    high=1.0,
    open_low=True,
)
_KEEP = Param("keep", "probability that a message is sent", high=1.0, open_low=True)
_OMEGA = Param(
    "omega",
    "variance omega of the compressor; sets k = round(d / (1 + omega)); give either k or omega",
)


def dense(message: Message, d: int) -> Array:
    """The vector that a message stands for."""
    if message.index is None:
        return message.value
    return jnp.zeros(d, message.value.dtype).at[message.index].add(message.value, mode="drop")


# --- sparsifiers --------------------------------------------------------------------------------


@made
def random_k(indices: bool = True) -> Compressor:
    """C(v) = (d/k) v on k of d coordinates, every set of them equally likely.

    omega = d/k - 1, attained by every v.  Stich, Cordonnier and Jaggi, Sparsified SGD with memory
    (2018), where it goes without the factor.
    """

    def select(key: Key, d: int, hp: Hyper) -> Draw:
        slots, k = hp.caps["k"], hp["k"]
        return _scaled(subset(key, d, slots), jnp.arange(slots) < k, d, k)

    return _sparsifier("random_k", select, indices)


@made
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

    return _sparsifier("stratified_k", select, indices)


@made
def bernoulli(indices: bool = True) -> Compressor:
    """C(v)_j = v_j / p with probability p = k/d, each coordinate independently; else 0.

    omega = 1/p - 1 = d/k - 1, attained by every v.  A message carries k coordinates on average; the
    slots are chosen so that one is lost in the whole run with chance below 1e-12.
    Konecny and Richtarik, Randomized distributed mean estimation (2018).
    """

    def select(key: Key, d: int, hp: Hyper) -> Draw:
        index = coins(key, d, hp["k"], hp.caps["k"])
        return _scaled(index, index < d, d, hp["k"])

    def capacity(values: Values, facts: ProblemFacts) -> dict[str, int]:
        mean, messages = slots_for_k(values, facts)["k"], facts.n * (facts.rounds or 10**6)
        return {"k": coin_slots(mean, facts.d, messages)}

    return _sparsifier("bernoulli", select, indices)._replace(capacity=capacity, fixed_size=False)


@made
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
        values = _one_of("lazy", given, _KEEP, _OMEGA, SHARE)
        if "omega" in values:
            return {"keep": 1 / (1 + np.asarray(values["omega"], np.float64))[()]}
        return {"keep": values.get("keep", values.get("share", 0.5))}

    return Compressor(
        "lazy",
        select=select,
        omega=lambda d, values: 1 / float(values["keep"]) - 1,
        bits=lambda d, values: (1.0, FLOAT),
        resolve=resolve,
        params=(
            _KEEP,
            _OMEGA._replace(doc="variance omega of the compressor; sets keep = 1 / (1 + omega)"),
            SHARE,
        ),
        distinct=True,
        unbiased=True,
    )


def _scaled(index: Array, live: Array, d: int, k: Any) -> Draw:
    return Draw(jnp.where(live, index, d), jnp.where(live, d / k, 0.0))


def _sparsifier(name: str, select: Callable[[Key, int, Hyper], Draw], indices: bool) -> Compressor:
    made = Compressor(
        name,
        select=select,
        omega=lambda d, values: d / float(values["k"]) - 1.0,
        bits=lambda d, values: (0.0, FLOAT + (position_bits(d, values) if indices else 0)),
        resolve=_resolve_k,
        capacity=slots_for_k,
        params=(KEPT, _OMEGA),
        fixed_size=True,
        scalars=True,
        distinct=True,
        unbiased=True,
    )
    return _sized(made, KEPT)


# --- codes of the chosen coordinates -------------------------------------------------------------


@made
def identity() -> Compressor:
    """C(v) = v."""
    return _code("identity", None, lambda d: 0.0, (0.0, FLOAT))


@made
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

    def omega(d: int, values: Values) -> float:
        s = float(values["levels"])
        return float(min(d / s**2, d**0.5 / s))

    return _quantizer("qsgd", code, omega, LEVELS, 16)


@made
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

    return _code("natural", code, lambda d: 1 / 8, (0.0, 9.0))._replace(scalars=False)


@made
def natural_dithering() -> Compressor:
    """C(v)_j = sign(v_j) |v| times one of the levels 0, 2^(1-s), ..., 1/2, 1 next to |v_j|/|v|.

    The choice between the two is random and makes C unbiased; s is ``levels``.
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

    def omega(d: int, values: Values) -> float:
        u = d**0.5 * 2.0 ** (1 - float(values["levels"]))
        return float(1 / 8 + u * min(1.0, u))

    return _quantizer("natural_dithering", code, omega, LEVELS._replace(high=64), 8)


@made
def terngrad() -> Compressor:
    """C(v)_j = |v|_inf sign(v_j) with probability |v_j|/|v|_inf, else 0.

    omega = (sqrt(d) - 1)/2 at worst; at a given v it is ``|v|_inf |v|_1/|v|^2 - 1``.  Wen et al.,
    TernGrad (2017), without its clipping.
    """

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        top = jnp.max(jnp.abs(v), initial=0)
        kept = jax.random.uniform(key, v.shape, v.dtype) * top < jnp.abs(v)
        return jnp.where(kept, jnp.sign(v) * top, 0 * v)

    return _code("terngrad", code, lambda d: (d**0.5 - 1) / 2, (FLOAT, 2.0))


@made
def sto_sign() -> Compressor:
    """C(v)_j = |v| or -|v|, the first with probability 1/2 + v_j/(2 |v|).

    omega = d - 1, attained by every v.  Stochastic sign, Safaryan and Richtarik (2021), scaled to be
    unbiased.
    """

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        top, norm, u = _normed(v)
        plus = jax.random.uniform(key, v.shape, v.dtype) < 0.5 + u / (2 * norm)
        return jnp.where(plus, 1, -1) * (top * norm) + 0 * v

    return _code("sto_sign", code, lambda d: d - 1.0, (FLOAT, 1.0))


def _normed(v: Array) -> tuple[Array, Array, Array]:
    """A scale of v, its norm in that scale (1 for 0), and v in it: no square overflows or vanishes."""
    wide = np.finfo(v.dtype).maxexp >= np.finfo(np.float32).maxexp
    found: tuple[Array, Array, Array] = on_cpus(_by_top, _in_one_pass if wide else _by_top)(v)
    return found


def _in_one_pass(v: Array) -> tuple[Array, Array, Array]:
    """:func:`_normed`, for which accelerators read v once."""
    small, medium, large = (jnp.sum((v * scale) ** 2) for scale in (FAR, 1.0, 1 / FAR))
    norm = jnp.where(medium > FAR, jnp.sqrt(large) * FAR, jnp.sqrt(medium))
    norm = jnp.where(medium < 1 / FAR, jnp.sqrt(small) / FAR, norm)
    norm = jnp.where(norm == 0, 1, norm)
    return norm, jnp.ones_like(norm), v / norm


def _by_top(v: Array) -> tuple[Array, Array, Array]:
    """:func:`_normed` in units of ``max |v_j|``."""
    top = jnp.max(jnp.abs(v), initial=0)
    u = v / jnp.where(top > 0, top, 1)
    return top, jnp.where(top > 0, jnp.sqrt(jnp.sum(u**2)), 1), u


def _jumps(name: str, code: Code) -> Code:
    """A code to random levels, whose derivative at fixed draws says nothing of the loss."""

    def coded(key: Key, v: Array, hp: Hyper) -> Array:
        problem = f"{name} rounds messages to levels, and the derivative of levels is 0"
        way = "take a compressor without levels, such as random_k, or difference quotients"
        return code(key, no_derivative(v, problem, way), hp)

    return coded


def _code(
    name: str, code: Code | None, omega: Callable[[int], float], bits: tuple[float, float]
) -> Compressor:
    """A code without hyper-parameters; ``bits`` are those of a message and of each coordinate."""
    return Compressor(
        name,
        code=None if code is None else _jumps(name, code),
        omega=lambda d, values: omega(d),
        bits=lambda d, values: (bits[0] + bits[1] * d, 0.0),
        scalars=True,
        unbiased=True,
    )


def _quantizer(
    name: str, code: Code, omega: Callable[[int, Values], float], levels: Param, default: int
) -> Compressor:
    """A code of the norm, and of a sign and a level for each coordinate."""
    made = Compressor(
        name,
        code=_jumps(name, code),
        omega=omega,
        bits=lambda d, values: (FLOAT + d * (1.0 + log2(int(values["levels"]) + 1)), 0.0),
        resolve=_filled(name, {levels: lambda d: default}),
        params=(levels,),
        scalars=True,
        unbiased=True,
    )
    return _sized(made, levels)


# --- codes of the whole vector -------------------------------------------------------------------


@made
def fixed_step() -> Compressor:
    """C(v)_j = one of the two multiples of q next to v_j, unbiased; q is ``quantum``.

    ``E |C(v) - v|^2 <= d q^2/4`` whatever v: the error is absolute, and no omega exists.  16 bits a
    coordinate, which end at +- 2^15 q.  A quantizer as Q-DPSGD-1 requires it.
    """

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        q: Array = hp["quantum"]
        most = 2.0 ** (QUANTUM_BITS - 1)
        y = v / q
        low = jnp.floor(y)
        up = jax.random.uniform(key, v.shape, v.dtype) < y - low
        return q * jnp.clip(low + up, -most, most - 1)

    def omega(d: int, values: Values) -> float:
        raise InputError(
            f"fixed_step has an absolute error, quantum = {values.get('quantum')!r}, and no "
            "omega, which this algorithm asks for",
            "use it with q_dpsgd_1",
        )

    return Compressor(
        "fixed_step",
        code=_jumps("fixed_step", code),
        omega=omega,
        bits=lambda d, values: (float(QUANTUM_BITS * d), 0.0),
        resolve=_filled("fixed_step", {QUANTUM: lambda d: 1e-3}),
        params=(QUANTUM,),
        absolute=True,
        scalars=True,
        unbiased=True,
    )


@made
def top_k() -> Compressor:
    """C(v) = v on the k coordinates of largest |v_j|, else 0.

    Biased: ``|C(v) - v|^2 <= (1 - k/d) |v|^2``, which is what ``omega`` says of it here; it needs
    memory of what was left out (error feedback, EF21).  Ties go to the first.
    """

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        slots = hp.caps["k"]
        _, index = lax.top_k(jnp.where(jnp.isnan(v), jnp.inf, jnp.abs(v)), slots)
        place = jnp.where(jnp.arange(slots) < hp["k"], index, v.size)
        return jnp.zeros_like(v).at[place].set(v[index], mode="drop")

    made = Compressor(
        "top_k",
        code=code,
        omega=lambda d, values: 1 - float(values["k"]) / d,
        bits=lambda d, values: (float(values["k"]) * (FLOAT + position_bits(d, values)), 0.0),
        resolve=_filled("top_k", {KEPT: lambda d: max(1, d // 20)}),
        capacity=slots_for_k,
        params=(KEPT,),
        unbiased=False,
        scalars=True,
    )
    return _sized(made, KEPT)


@made
def count_sketch() -> Compressor:
    """C(v)_j = mean over r rows of s_l(j) S_l[h_l(j)], ``S_l[c] = sum_{j: h_l(j) = c} s_l(j) v_j``.

    Hashes h and signs s from a key that both ends share; r x c numbers travel, linear in v.
    omega = (d-1)/(r c), attained by every v.  Charikar, Chen and Farach-Colton (2002), with the mean
    in place of the median, which is biased.
    """

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        slots = hp.caps["sketch_columns"]
        rows = jnp.asarray(hp["sketch_rows"])

        def row(l: Array, total: Array) -> Array:
            place_key, sign_key = jax.random.split(jax.random.fold_in(key, l))
            place = jax.random.randint(place_key, v.shape, 0, hp["sketch_columns"], jnp.int32)
            sign = jax.random.rademacher(sign_key, v.shape, v.dtype)
            table = jnp.zeros(slots, v.dtype).at[place].add(sign * v)
            return total + sign * table[place]

        total: Array = lax.fori_loop(0, rows, row, jnp.zeros_like(v))
        return total / rows.astype(v.dtype)

    def omega(d: int, values: Values) -> float:
        return (d - 1) / (float(values["sketch_rows"]) * float(values["sketch_columns"]))

    def bits(d: int, values: Values) -> tuple[float, float]:
        return FLOAT * float(values["sketch_rows"]) * float(values["sketch_columns"]), 0.0

    defaults = {SKETCH_ROWS: lambda d: 1, SKETCH_COLUMNS: lambda d: max(1, d // 20)}
    made = Compressor(
        "count_sketch",
        code=code,
        omega=omega,
        bits=bits,
        resolve=_filled("count_sketch", defaults),
        capacity=lambda values, _: {"sketch_columns": int(np.max(values["sketch_columns"]))},
        params=(SKETCH_ROWS, SKETCH_COLUMNS),
        scalars=True,
        unbiased=True,
    )
    return _sized(made, SKETCH_COLUMNS)


# --- composition ---------------------------------------------------------------------------------


@made
def compose(outer: Compressor, inner: Compressor) -> Compressor:
    """``outer`` after ``inner``, independent: omega = (1 + w_outer)(1 + w_inner) - 1.

    ``outer`` is a code.  After a sparsifier it acts on the k chosen values only, and its omega is
    that of dimension k.  Where the number of coordinates is random, as after ``bernoulli``, its omega
    is that of dimension min(k + 1, d): fewer than k others are chosen with a coordinate on average, and
    omega is concave in their number.
    """
    if inner.exact:
        return outer
    if outer.exact:
        return inner
    name = f"{outer.name}+{inner.name}"
    encode, first = outer.code, inner.code
    if outer.select is not None or encode is None:
        several = inner.select is not None or inner.code is None
        way = "take one of them" if several else f"write {inner.name}+{outer.name}"
        raise InputError(f"{name} chooses coordinates last", way)
    require(
        inner.select is None or first is None,
        lambda: f"{name} chooses coordinates before its codes",
        "compose the codes first",
    )
    unbiased = outer.unbiased and inner.unbiased
    require(
        unbiased, lambda: f"{name}: a biased compressor is composed with no other", "take it alone"
    )
    clash = {p.name for p in outer.params} & {p.name for p in inner.params} - {"share"}
    require(
        not clash,
        lambda: f"{name} has two parts with {', '.join(sorted(clash))}",
        "compose parts whose numbers differ",
    )

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        if first is None:
            return encode(key, v, hp)
        first_key, key = jax.random.split(key)
        return encode(key, first(first_key, v, hp), hp)

    lost, before = outer.omega, inner.omega

    def omega(d: int, values: Values) -> float:
        assert lost is not None
        assert before is not None
        size = d
        if inner.select is not None and "k" in values:
            size = min(int(values["k"]) + (not inner.fixed_size), d)
        return (1 + lost(size, values)) * (1 + before(d, values)) - 1

    def bits(d: int, values: Values) -> tuple[float, float]:
        if inner.select is None:
            return outer.bits(d, values)
        header = outer.bits(0, values)[0]
        per_message, per_coordinate = inner.bits(d, values)
        position = per_coordinate - FLOAT
        return per_message + header, outer.bits(1, values)[0] - header + position

    def resolve(given: Values, d: int) -> dict[str, Any]:
        return inner.resolve(given, d) | outer.resolve(given, d)

    def capacity(values: Values, facts: ProblemFacts) -> dict[str, int]:
        return inner.capacity(values, facts) | outer.capacity(values, facts)

    params = tuple(p for p in inner.params + outer.params if p.name not in ("omega", "share"))
    made = Compressor(
        name,
        select=inner.select,
        code=code,
        omega=None if lost is None or before is None else omega,
        bits=bits,
        resolve=resolve,
        capacity=capacity,
        params=params,
        fixed_size=inner.fixed_size,
        scalars=inner.scalars and outer.scalars,
        distinct=inner.distinct,
        unbiased=True,
    )
    sizes = [p for p in params if p.name in ("k", "levels", "sketch_columns")]
    return _sized(made, sizes[0]) if sizes else made


# --- on the host ---------------------------------------------------------------------------------


def _sized(made: Compressor, size: Param) -> Compressor:
    """A compressor that also takes a ``share``: the largest ``size`` whose messages have no more bits."""

    def resolve(given: Values, d: int) -> dict[str, Any]:
        rest = {name: value for name, value in given.items() if name != "share"}
        if "share" not in given:
            return made.resolve(rest, d)
        check((SHARE,), {"share": given["share"]}, made.name)
        other = {n: given[n] for n in (size.name, "omega") if n in given}
        at_most_one(share=given["share"], **dict([*other.items()][:1]))
        values = made.resolve(rest, d)
        most = int(min(size.high, 2**16 if size.name == "levels" else d))

        def bits(count: int) -> float:
            message, coordinate = made.bits(d, {**values, size.name: count})
            return message + coordinate * count * (made.select is not None)

        def fitted(share: float) -> int:
            room = share * FLOAT * d * (1 + 1e-9)
            low, high = 1, most + 1  # positions cost nothing where all coordinates are sent
            why = f"is less than {bits(1) / (FLOAT * d):.4g}, the least of {made.name} with d = {d}"
            require(bits(1) <= room, why, "ask for more", share=share)
            if bits(most) <= room:
                return most
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (
                    (middle, high) if middle < most and bits(middle) <= room else (low, middle)
                )
            return low

        return {**values, size.name: whole(np.vectorize(fitted, [int])(given["share"]))}

    return made._replace(resolve=resolve, params=(*made.params, SHARE))


def position_bits(d: int, values: Values) -> float:
    """The bits of the position of one of k coordinates; a message of all d is a dense vector."""
    return 0.0 if float(values["k"]) >= d else log2(d)


def log2(count: int) -> float:
    """ceil(log2(count))."""
    return float((count - 1).bit_length())


def _filled(owner: str, defaults: dict[Param, Callable[[int], float]]) -> Resolve:
    """A ``resolve`` with these defaults for d coordinates; k is at most d."""

    def resolve(given: Values, d: int) -> dict[str, Any]:
        values = {
            param.name: given.get(param.name, default(d)) for param, default in defaults.items()
        }
        check((p._replace(high=d) if p is KEPT else p for p in defaults), values, owner)
        return {p.name: whole(values[p.name]) if p.integer else values[p.name] for p in defaults}

    return resolve


def slots_for_k(values: Values, facts: ProblemFacts) -> dict[str, int]:
    """The number of slots: the most coordinates that any cell sends."""
    check((KEPT._replace(high=facts.d),), {"k": values["k"]}, "a sparsifier")
    return {"k": int(np.max(values["k"]))}


def whole(x: Any) -> Any:
    """An int, or an array of them over the cells of a sweep."""
    return int(x) if np.ndim(x) == 0 else np.asarray(x, dtype=np.int32)


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


def compressor(name: str, indices: bool = True, **options: Any) -> Compressor:
    """The compressor of that name, with its options; ``qsgd+random_k`` is qsgd after random_k.

    >>> part = compressor("random_k")
    >>> values = part.resolve({"omega": 9}, 1000)
    >>> values, part.omega(1000, values), part.bits(1000, values)
    ({'k': 100}, 9.0, (0.0, 42.0))
    """
    stages = []
    for stage in instance("compressor", name, str, "name one, as 'random_k'").split("+"):
        make = known("compressor", stage, COMPRESSORS)
        shares = "indices" in inspect.signature(make).parameters  # a seed for positions
        own = {"indices": False} if shares and not indices else {}
        stages.append(named_part("compressor", stage, COMPRESSORS, **own, **options))
    return functools.reduce(compose, stages)
