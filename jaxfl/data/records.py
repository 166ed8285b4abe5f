"""Two records, examples of one source and examples of n clients, and the way in for user data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl.data._checks import integer
from jaxfl.errors import InputError

__all__ = ["ClientData", "Dataset", "client", "from_clients", "gather", "pad", "rows"]

PyTree: TypeAlias = Any
Array: TypeAlias = npt.NDArray[Any]


class Dataset(NamedTuple):
    """Examples of one source.

    ``train`` and ``test`` are pytrees of arrays with a common leading axis, normally
    ``(features (N, p) float32, labels (N,))``.  ``classes`` counts the labels 0, 1, ...; it is 2
    for binary labels in {0, 1} and 0 for real targets.
    """

    name: str
    train: PyTree
    test: PyTree | None = None
    classes: int = 0
    note: str = ""


class ClientData(NamedTuple):
    """Examples of n clients, stacked.

    Leaves of ``train`` have shape ``(n, m_max, ...)``; client i owns the first ``count[i]`` rows
    and the others are zero.  ``test`` is pooled over clients.
    """

    train: PyTree
    count: npt.NDArray[np.int32]  # type: ignore[assignment]  # hides tuple.count
    test: PyTree | None = None
    classes: int = 0
    name: str = "data"


def from_clients(
    arrays: Any,
    test: PyTree | None = None,
    *,
    count: Iterable[int] | None = None,
    classes: int = 0,
    name: str = "data",
    dtype: npt.DTypeLike | None = None,
    stacked: bool = False,
) -> ClientData:
    """A user's own arrays as `ClientData`.

    ``arrays`` is a list or tuple with one pytree per client, all of one structure, whose leaves
    share their leading axis; clients may differ in length.  Anything else (a dict, an array, a
    named tuple), or anything with ``stacked=True``, is one pytree of leaves ``(n, m, ...)``, where
    ``count`` may say how many of the m rows each client owns.

    Floats must be finite.  float64 becomes float32 unless ``dtype`` names another float type, and
    64-bit integers become int32: what JAX computes with by default.
    """
    kind = _float_type(dtype)
    if isinstance(arrays, Iterator):
        arrays = list(arrays)
    if stacked or not isinstance(arrays, list | tuple) or hasattr(arrays, "_fields"):
        train, counts = _from_stacked(arrays, count, kind)
    elif count is not None:
        raise InputError("count describes stacked leaves (n, m, ...): pass stacked=True with it.")
    else:
        train, counts = _from_list(arrays, kind)
    if test is not None:
        test = _like(train, _convert(test, "The test set", kind))
    classes = integer("classes", classes, 0)
    _check_labels(train, classes, name)
    return ClientData(train, counts, test, classes, name)


def gather(dataset: Dataset, parts: Sequence[npt.ArrayLike]) -> ClientData:
    """The clients whose rows of ``dataset.train`` are ``parts[i]`` (a row may serve several)."""
    tree = _convert(dataset.train, f"Data set {dataset.name!r}", None)
    leaves, treedef = _flatten(tree)
    total = len(leaves[0])
    indices = [np.asarray(part) for part in parts]
    if not indices:
        raise InputError("There are 0 clients: give at least one array of row indices.")
    for i, index in enumerate(indices):
        if index.ndim != 1 or index.size == 0 or index.dtype.kind not in "iu":
            raise InputError(f"The rows of client {i} must be a nonempty 1-d array of integers.")
        if index.min() < 0 or index.max() >= total:
            raise InputError(f"The rows of client {i} must lie in 0..{total - 1}.")
    counts = np.array([index.size for index in indices], np.int32)
    stacked = [pad((leaf[index] for index in indices), counts, leaf) for leaf in leaves]
    test = dataset.test
    if test is not None:
        test = _like(tree, _convert(test, f"The test set of {dataset.name!r}", None), trailing=1)
    return ClientData(treedef.unflatten(stacked), counts, test, dataset.classes, dataset.name)


def client(data: ClientData, i: int) -> PyTree:
    """The rows of client i alone, without padding."""
    leaves, treedef = _flatten(data.train)
    return treedef.unflatten([leaf[i, : data.count[i]] for leaf in leaves])


def rows(tree: PyTree) -> int:
    """The common leading length of a pytree of arrays."""
    leaves, _ = _flatten(tree)
    lengths = {np.shape(leaf)[0] if np.ndim(leaf) else 0 for leaf in leaves}
    if len(lengths) != 1:
        raise InputError(f"The arrays of a data set differ in length ({sorted(lengths)}).")
    return int(lengths.pop())


# --- trees: jax is imported where used, so that this package needs only NumPy at import ----------


def _flatten(tree: PyTree) -> tuple[list[Any], Any]:
    from jax import tree_util

    leaves, treedef = tree_util.tree_flatten(tree)
    if not leaves:
        raise InputError("A pytree without arrays holds no data: pass at least one array.")
    return leaves, treedef


def _paths(tree: PyTree, who: str) -> list[str]:
    """The name of every leaf, as the subject of a sentence."""
    from jax import tree_util

    pairs, _ = tree_util.tree_flatten_with_path(tree)
    return [f"{who}, leaf {tree_util.keystr(path)}," if path else who for path, _ in pairs]


# --- checks --------------------------------------------------------------------------------------


def _float_type(dtype: npt.DTypeLike | None) -> np.dtype[Any] | None:
    if dtype is None:
        return None
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(object)
    if kind.kind != "f":
        raise InputError(f"dtype must be a float type such as 'float32', not {dtype!r}.")
    return kind


def _number(leaf: Any, where: str, kind: np.dtype[Any] | None) -> Array:
    """One leaf as an array of a type that JAX computes with."""
    try:
        array = np.asarray(leaf)
    except (TypeError, ValueError):
        raise InputError(
            f"{where} is no rectangular array of numbers: pass NumPy arrays."
        ) from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{where} has dtype {array.dtype}: pass booleans, integers or floats.")
    if array.ndim == 0:
        raise InputError(f"{where} is a single number: pass arrays, not nested lists.")
    if array.dtype.kind == "f":
        narrow = np.dtype(np.float32) if array.dtype.itemsize > 4 else array.dtype
        with np.errstate(over="ignore"):
            return array.astype(kind or narrow, copy=False)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        limits = np.iinfo(np.int32)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise InputError(f"{where} has integers beyond 32 bits: rescale them or use floats.")
        return array.astype(np.int32)
    return array


def _check_finite(array: Array, given: Any, where: str) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        bad = int(np.argmin(np.isfinite(array).reshape(len(array), -1).all(axis=1)))
        raise InputError(_not_finite(array, np.asarray(given)[bad], where, f"in row {bad}"))


def _not_finite(array: Array, given: Array, where: str, place: str) -> str:
    """The sentence about ``given``, a row that is not finite in the type of ``array``."""
    if np.isfinite(given).all():
        limit = np.finfo(array.dtype)
        return f"{where} exceeds {limit.dtype} ({limit.max:.2g}) {place}: scale it first."
    return f"{where} is not finite {place}: replace or drop NaN and infinity."


def _convert(tree: PyTree, who: str, kind: np.dtype[Any] | None) -> PyTree:
    """Checked leaves of one client or test set, with a common nonzero length."""
    leaves, treedef = _flatten(tree)
    paths = _paths(tree, who)
    done = [_number(leaf, path, kind) for leaf, path in zip(leaves, paths, strict=True)]
    for leaf, given, path in zip(done, leaves, paths, strict=True):
        if len(leaf) != len(done[0]):
            raise InputError(
                f"{path} has {len(leaf)} rows but its first leaf has {len(done[0])}: "
                "the leaves of one client must have equally many."
            )
        if not len(leaf):
            raise InputError(f"{path} has no rows: leave out clients without data.")
        _check_finite(leaf, given, path)
    return treedef.unflatten(done)


def _like(train: PyTree, test: PyTree, trailing: int = 2) -> PyTree:
    """``test``, if it has the structure, types and trailing shapes of stacked ``train``."""
    wanted, treedef = _flatten(train)
    leaves, found = _flatten(test)
    if found != treedef:
        raise InputError(f"The test set has structure {found} but the clients have {treedef}.")
    for a, b, path in zip(wanted, leaves, _paths(test, "The test set"), strict=True):
        if a.shape[trailing:] != b.shape[1:] or a.dtype != b.dtype:
            raise InputError(
                f"{path} has rows of shape {b.shape[1:]} and type {b.dtype}, but "
                f"the clients have {a.shape[trailing:]} and {a.dtype}."
            )
    return test


def _check_labels(train: PyTree, classes: int, name: str) -> None:
    if classes == 0 or not isinstance(train, tuple) or len(train) != 2:
        return
    labels = train[1]
    if isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.dtype.kind in "iu":
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= classes:
            raise InputError(
                f"The labels of {name!r} run from {low} to {high}, which is not 0..{classes - 1}: "
                "renumber them, or pass classes=0 if they are no class numbers."
            )


# --- stacking ------------------------------------------------------------------------------------


def pad(blocks: Iterable[Array], counts: npt.NDArray[Any], like: Array) -> Array:
    """Blocks of rows as one zero-padded array, with the type and row shape of ``like``."""
    out = np.zeros((len(counts), int(counts.max()), *like.shape[1:]), like.dtype)
    for row, block in zip(out, blocks, strict=True):
        row[: len(block)] = block
    return out


def _from_list(arrays: Sequence[PyTree], kind: np.dtype[Any] | None) -> tuple[PyTree, Any]:
    if not arrays:
        raise InputError("There are 0 clients: pass at least one.")
    trees = [_convert(tree, f"Client {i}", kind) for i, tree in enumerate(arrays)]
    first, treedef = _flatten(trees[0])
    columns: list[list[Array]] = []
    hint = "; pass stacked=True if the leaves are already stacked over clients"
    for i, tree in enumerate(trees):
        leaves, found = _flatten(tree)
        if found != treedef:
            raise InputError(
                f"Client {i} has structure {found} but client 0 has {treedef}: give all clients "
                f"one structure{hint}."
            )
        for a, b, path in zip(first, leaves, _paths(tree, f"Client {i}"), strict=True):
            if a.shape[1:] != b.shape[1:] or a.dtype != b.dtype:
                raise InputError(
                    f"{path} has rows of shape {b.shape[1:]} and type {b.dtype}, but "
                    f"client 0 has {a.shape[1:]} and {a.dtype}: make them alike{hint}."
                )
        columns.append(leaves)
    counts = np.array([len(leaves[0]) for leaves in columns], np.int32)
    stacked = [pad((c[j] for c in columns), counts, leaf) for j, leaf in enumerate(first)]
    return treedef.unflatten(stacked), counts


def _from_stacked(
    tree: PyTree, count: Iterable[int] | None, kind: np.dtype[Any] | None
) -> tuple[PyTree, Any]:
    leaves, treedef = _flatten(tree)
    paths = _paths(tree, "The stacked data")
    given = leaves
    leaves = [_number(leaf, path, kind) for leaf, path in zip(given, paths, strict=True)]
    shape = leaves[0].shape[:2]
    for leaf, path in zip(leaves, paths, strict=True):
        if leaf.ndim < 2 or leaf.shape[:2] != shape or 0 in shape:
            raise InputError(
                f"{path} has shape {leaf.shape}: stacked leaves need common leading axes (n, m), "
                "both nonzero; pass a list with one pytree per client otherwise."
            )
    n, m = shape
    counts = np.full(n, m, np.int32) if count is None else np.asarray(list(count))
    if counts.shape != (n,) or counts.dtype.kind not in "iu":
        raise InputError(f"count must hold {n} integers, one per client, not {count!r}.")
    if counts.min() < 1 or counts.max() > m:
        raise InputError(f"count must lie in 1..{m}, the number of stacked rows.")
    padding = np.arange(m) >= counts[:, None]
    done = []
    for leaf, own, path in zip(leaves, given, paths, strict=True):
        if padding.any():
            leaf = leaf.copy()
            leaf[padding] = 0
        if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
            i, j = np.argwhere(~np.isfinite(leaf))[0][:2]
            row = np.asarray(own)[i, j]
            raise InputError(_not_finite(leaf, row, path, f"at client {i}, row {j}"))
        done.append(leaf)
    return treedef.unflatten(done), counts.astype(np.int32)
