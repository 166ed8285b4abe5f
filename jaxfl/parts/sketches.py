"""Codes of the whole vector: an absolute error, a biased choice, a linear sketch."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxfl.core.errors import InputError
from jaxfl.core.params import check
from jaxfl.core.types import Array, Compressor, Hyper, Key, Param, ProblemFacts
from jaxfl.parts.codes import FLOAT, log2, refuse, whole

__all__ = ["count_sketch", "fixed_step", "top_k"]

KEPT = Param("k", "coordinates that a message carries", low=1, integer=True)
QUANTUM = Param(
    "quantum", "step of a quantizer whose error does not depend on what it codes", open_low=True
)
QUANTUM_BITS = 16  # of a coordinate in such steps
SKETCH_ROWS = Param("sketch_rows", "rows r of a count sketch", low=1, high=1024, integer=True)
SKETCH_COLUMNS = Param("sketch_columns", "columns c of a count sketch", low=1, integer=True)


@functools.cache
def fixed_step() -> Compressor:
    """C(v)_j = one of the two multiples of q next to v_j, right in the mean; q is ``quantum``.

    ``E |C(v) - v|^2 <= d q^2/4`` whatever v: an absolute error, so that no omega exists.  16 bits a
    coordinate, which end at +- 2^15 q.  What Q-DPSGD-1 asks of its quantizer.
    """

    def code(key: Key, v: Array, hp: Hyper) -> Array:
        q: Array = hp["quantum"]
        most = 2.0 ** (QUANTUM_BITS - 1)
        y = v / q
        low = jnp.floor(y)
        up = jax.random.uniform(key, v.shape, v.dtype) < y - low
        return q * jnp.clip(low + up, -most, most - 1)

    def omega(d: int, values: Mapping[str, Any]) -> float:
        raise InputError(
            f"fixed_step has an absolute error, quantum = {values.get('quantum')!r}, and no "
            "omega, which this algorithm asks for",
            "use it with q_dpsgd_1",
        )

    def resolve(given: Mapping[str, Any], d: int) -> dict[str, Any]:
        refuse("fixed_step", "k", "omega")(given, d)
        return {"quantum": given.get("quantum", 1e-3)}

    def bits(d: int, values: Mapping[str, Any]) -> tuple[float, float]:
        return float(QUANTUM_BITS * d), 0.0

    return Compressor(
        "fixed_step",
        code=code,
        omega=omega,
        bits=bits,
        resolve=resolve,
        params=(QUANTUM,),
        absolute=True,
        scalars=True,
    )


@functools.cache
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

    def bits(d: int, values: Mapping[str, Any]) -> tuple[float, float]:
        return float(values["k"]) * (FLOAT + log2(d)), 0.0

    def resolve(given: Mapping[str, Any], d: int) -> dict[str, Any]:
        refuse("top_k", "omega")(given, d)
        k = given.get("k", max(1, d // 20))
        check((KEPT._replace(high=d),), {"k": k}, "top_k")
        return {"k": whole(k)}

    def capacity(values: Mapping[str, Any], facts: ProblemFacts) -> dict[str, int]:
        check((KEPT._replace(high=facts.d),), {"k": values["k"]}, "top_k")
        return {"k": int(np.max(values["k"]))}

    return Compressor(
        "top_k",
        code=code,
        omega=lambda d, values: 1 - float(values["k"]) / d,
        bits=bits,
        resolve=resolve,
        capacity=capacity,
        params=(KEPT,),
        unbiased=False,
        scalars=True,
    )


@functools.cache
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

    def omega(d: int, values: Mapping[str, Any]) -> float:
        return (d - 1) / (float(values["sketch_rows"]) * float(values["sketch_columns"]))

    def bits(d: int, values: Mapping[str, Any]) -> tuple[float, float]:
        return FLOAT * float(values["sketch_rows"]) * float(values["sketch_columns"]), 0.0

    def resolve(given: Mapping[str, Any], d: int) -> dict[str, Any]:
        refuse("count_sketch", "k", "omega")(given, d)
        asked = {
            "sketch_rows": given.get("sketch_rows", 1),
            "sketch_columns": given.get("sketch_columns", max(1, d // 20)),
        }
        check((SKETCH_ROWS, SKETCH_COLUMNS), asked, "count_sketch")
        return {name: whole(value) for name, value in asked.items()}

    return Compressor(
        "count_sketch",
        code=code,
        omega=omega,
        bits=bits,
        resolve=resolve,
        capacity=lambda values, _: {"sketch_columns": int(np.max(values["sketch_columns"]))},
        params=(SKETCH_ROWS, SKETCH_COLUMNS),
        scalars=True,
    )
