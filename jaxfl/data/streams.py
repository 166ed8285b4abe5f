"""Samples that a round computes, or reads from disk, where it needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from jaxfl.core.checks import counts, spelt, stacked
from jaxfl.core.errors import require
from jaxfl.core.params import whole
from jaxfl.core.types import Array, GeneratedSamples
from jaxfl.data.records import ClientData

__all__ = ["generated", "mapped"]

PyTree: TypeAlias = Any


@spelt("Function")
def generated(
    make: Callable[[PyTree, Array, Array], PyTree],
    clients: int,
    samples: int,
    *,
    source: PyTree = (),
    count: Sequence[int] | npt.NDArray[Any] | None = None,
    test: PyTree | None = None,
    classes: int = 0,
    name: str = "generated",
) -> ClientData:
    """Clients whose sample j is ``make(source, i, j)``, for client i: one example, traced.

    Each client has ``samples`` samples, or the first ``count[i]`` of them; ``test`` is a pytree of
    examples.  Rounds and metrics compute a sample whenever they read it: a million clients take no more
    memory than one block of them.  Draw with ``jax.random.fold_in`` from a key in ``source``, which is an
    argument and not a constant of the program; the same i and j must give the same example.

    >>> import jax
    >>> def make(key, i, j):
    ...     a = jax.random.normal(jax.random.fold_in(jax.random.fold_in(key, i), j), (8,))
    ...     return a, (a[0] > 0).astype("int32")
    >>> int(generated(make, 1_000_000, 8, source=jax.random.key(0), classes=2).count.sum())
    8000000
    """
    n, m = whole("clients", clients, 1), whole("samples", samples, 1)
    require(callable(make), "must be a function of (source, i, j)", make=make)
    train = GeneratedSamples(source, _mapped_over(make), m)
    return ClientData(train, counts(count, n, m), test, whole("classes", classes, 0), name)


@spelt("Function")
def mapped(
    arrays: PyTree,
    *,
    count: Sequence[int] | npt.NDArray[Any] | None = None,
    test: PyTree | None = None,
    classes: int = 0,
    name: str = "mapped",
) -> ClientData:
    """Clients whose samples stay on disk: leaves (n, m, ...), as `numpy.load(file, mmap_mode="r")`.

    Client i has the first ``count[i]`` of its m rows of ``arrays``, by default all; ``test`` is a pytree of
    examples.  The host fetches only what a round or a metric reads; float64 becomes float32.

    >>> features, labels = np.zeros((3, 4, 2)), np.zeros((3, 4), int)
    >>> mapped((features, labels), classes=2).count
    array([4, 4, 4], dtype=int32)
    """
    leaves, treedef = jax.tree.flatten(arrays)
    n, m = stacked("The arrays on disk", leaves)
    kinds = [np.dtype(np.float32 if a.dtype.kind == "f" else np.int32) for a in leaves]

    def read(i: npt.NDArray[Any], j: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        i, j = np.minimum(i, n - 1), np.asarray(j)  # a slot without a client asks beyond the last
        return [np.asarray(a[i, j], kind) for a, kind in zip(leaves, kinds, strict=True)]

    def make(source: PyTree, i: Array, j: Array) -> PyTree:
        shapes = [
            jax.ShapeDtypeStruct((*i.shape, *a.shape[2:]), kind)
            for a, kind in zip(leaves, kinds, strict=True)
        ]
        rows = jax.pure_callback(read, shapes, i, j, vmap_method="broadcast_all")
        return jax.tree.unflatten(treedef, rows)

    return ClientData(
        GeneratedSamples((), make, int(m)),
        counts(count, n, m),
        test,
        whole("classes", classes, 0),
        name,
    )


@lru_cache(maxsize=64)
def _mapped_over(make: Callable[[PyTree, Array, Array], PyTree]) -> Callable[..., PyTree]:
    """``make`` over arrays of i and j; cached, because compiled programs are found by function."""
    return jax.vmap(make, (None, 0, 0))
