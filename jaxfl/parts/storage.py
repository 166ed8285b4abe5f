"""Storage of clients' memory in fewer bits than rounds compute with.

A value is rounded before it is stored, and this round and the next use the same rounded value.
Claims decide which of three kinds of memory may be rounded:

* a channel's shifts and errors consist of messages, which are noised already: rounding them costs no
  privacy, and the server's shift follows the rounded ones (:func:`jaxfl.parts.channels.shifted`);
* a row of SAGA's table is a function of its own record: it is clipped again when it is read
  (:func:`recalled`), since rounding may have made it longer than G, and h_i is the mean of these rows;
* h_i, and any other addition to a client's estimates (``State.bases``), is a mean over records and
  stays exact: another record changes it by 2G/m, rounding by up to 2^-8 of each coordinate, and
  neighbouring data round differently, for which no noise is calibrated.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.derivatives import no_derivative
from jaxfl.core.types import Array, Kernel, PyTree
from jaxfl.problems.clipping import factor

__all__ = ["STORAGES", "Bits", "packed", "recalled", "rounded", "unpacked"]

STORAGES: dict[str, Any] = {"exact": None, "bfloat16": jnp.bfloat16, "float16": jnp.float16}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Bits:
    """bfloat16 numbers as their bits.

    XLA computes bfloat16 in float32 on CPUs, where each write to one row would convert all rows.
    """

    bits: Array

    @property
    def numbers(self) -> Array:
        return jax.lax.bitcast_convert_type(self.bits, jnp.bfloat16)

    @property
    def dtype(self) -> Any:
        return jnp.dtype(jnp.bfloat16)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        numbers: np.ndarray = np.asarray(self.bits).view(jnp.bfloat16)
        return numbers if dtype is None else numbers.astype(dtype)


def rounded(tree: PyTree, storage: str) -> PyTree:
    """The nearest numbers that can be stored, in their old dtype; the largest for any beyond.

    It does not convert there and back, since compilers may drop a pair of conversions.
    """
    kind = STORAGES[storage]
    if kind is None:
        return tree
    info: Any = jnp.finfo(kind)  # type: ignore[no-untyped-call]

    def near(v: Array) -> Array:
        if not jnp.issubdtype(v.dtype, jnp.floating):
            return v
        problem = f"Memory in {storage} is rounded, and the derivative of what is rounded is 0"
        v = no_derivative(v, problem, "differentiate rounds with storage='exact'")
        v = jnp.clip(v, -float(info.max), float(info.max))
        out = jax.lax.reduce_precision(v, info.nexp, info.nmant)
        if kind is jnp.float16:  # reduce_precision flushes its subnormal numbers to zero
            tiny = float(info.smallest_subnormal)
            low = jnp.round(v / tiny) * tiny
            out = jnp.where(jnp.abs(v) < float(info.smallest_normal), low, out)
        return out

    return jax.tree.map(near, tree)


def packed(tree: PyTree, storage: str) -> PyTree:
    """The tree as stored: rounded, in the dtype of that name, or its bits."""
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
    """A stored tree in the dtype that rounds compute with."""

    def cast(v: Any) -> Array:
        numbers: Array = v.numbers if isinstance(v, Bits) else v
        return numbers.astype(dtype) if jnp.issubdtype(numbers.dtype, jnp.floating) else numbers

    return jax.tree.map(cast, tree, is_leaf=lambda v: isinstance(v, Bits))


def recalled(kernel: Kernel, G: Array, F: PyTree, batch: PyTree) -> PyTree:
    """Rows of a table as rounds use them: ``clip(g_j(F), G)`` of the rounded factors F."""
    if kernel.clip is not None:
        return kernel.clip(F, G, batch)
    return kernel.scale(factor(kernel, F, batch, G), F)
