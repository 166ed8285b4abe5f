"""What clients remember, in fewer bits than what a round computes with.

A number that is stored is rounded first, so that what a round goes on with is what the next one reads.
Three kinds of memory exist, and what may be rounded follows from what is claimed of them:

* a channel's shifts and errors are made of messages, which are noised already: rounding them takes
  no privacy, and the server's shift follows the rounded ones (:func:`jaxfl.channels.shifted`);
* a row of SAGA's table is a function of its own record: it is clipped again when it is read
  (:func:`recalled`), since rounding may have made it longer than G, and h_i is the mean of what is read;
* h_i, and whatever else is added to a client's estimates (``State.bases``), is a mean over records, and
  stays exact: another record moves it by 2G/m, rounding by up to 2^-8 of each coordinate, and where it
  tips differs between neighbours, so that no noise would be calibrated for it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.types import Array, Kernel, PyTree
from jaxfl.problems.clipping import clip_factor

__all__ = ["STORAGES", "Bits", "packed", "recalled", "rounded", "unpacked"]

STORAGES: dict[str, Any] = {"exact": None, "bfloat16": jnp.bfloat16, "float16": jnp.float16}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Bits:
    """Numbers in bfloat16 by their bits: moving them asks nothing of a compiler that computes in
    float32, as XLA's does on CPUs, where each write to one row would convert all rows and back."""

    bits: Array

    @property
    def numbers(self) -> Array:
        return jax.lax.bitcast_convert_type(self.bits, jnp.bfloat16)

    @property
    def dtype(self) -> Any:
        return jnp.dtype(jnp.bfloat16)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        held: np.ndarray = np.asarray(self.bits).view(jnp.bfloat16)
        return held if dtype is None else held.astype(dtype)


def rounded(tree: PyTree, storage: str) -> PyTree:
    """The nearest numbers that can be stored, as numbers of the same type; the largest for any beyond.

    Spelled out, and not converted there and back: compilers may drop a pair of conversions.
    """
    kind = STORAGES[storage]
    if kind is None:
        return tree
    info: Any = jnp.finfo(kind)  # type: ignore[no-untyped-call]

    def near(v: Array) -> Array:
        if not jnp.issubdtype(v.dtype, jnp.floating):
            return v
        v = jnp.clip(v, -float(info.max), float(info.max))
        out = jax.lax.reduce_precision(v, info.nexp, info.nmant)
        if kind is jnp.float16:  # whose subnormal numbers, below 6e-5, that flushes to zero
            tiny = float(info.smallest_subnormal)
            low = jnp.round(v / tiny) * tiny
            out = jnp.where(jnp.abs(v) < float(info.smallest_normal), low, out)
        return out

    return jax.tree.map(near, tree)


def packed(tree: PyTree, storage: str) -> PyTree:
    """As it is stored: rounded, in the type of that name, or the bits of it."""
    kind = STORAGES[storage]
    if kind is None:
        return tree

    def cast(v: Array) -> Any:
        if not jnp.issubdtype(v.dtype, jnp.floating):
            return v
        v = v.astype(kind)
        return Bits(jax.lax.bitcast_convert_type(v, jnp.uint16)) if kind is jnp.bfloat16 else v

    return jax.tree.map(cast, rounded(tree, storage))


def unpacked(tree: PyTree, dtype: Any) -> PyTree:
    """What was stored, in the type that rounds compute with."""

    def cast(v: Any) -> Array:
        held: Array = v.numbers if isinstance(v, Bits) else v
        return held.astype(dtype) if jnp.issubdtype(held.dtype, jnp.floating) else held

    return jax.tree.map(cast, tree, is_leaf=lambda v: isinstance(v, Bits))


def recalled(kernel: Kernel, G: Array, F: PyTree, batch: PyTree) -> PyTree:
    """Rows of a table as they are used: ``clip(g_j(F), G)`` of the rounded factors F."""
    if kernel.clip is not None:
        return kernel.clip(F, G, batch)
    return kernel.scale(clip_factor(kernel.inner(F, F, batch), G), F)
