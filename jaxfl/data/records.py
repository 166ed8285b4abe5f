"""Records of examples, of one source and of n clients, and the conversion of user data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from jaxfl.core.checks import counts, finite, instance, labels_below, numeric, stacked
from jaxfl.core.errors import require
from jaxfl.core.params import whole

__all__ = [
    "ClientData",
    "Dataset",
    "client",
    "each_rows",
    "float_type",
    "from_clients",
    "gather",
    "pad",
    "rows",
]

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
    kind = None if dtype is None else float_type(dtype)
    instance("name", name, str, "name the data in words")
    require(isinstance(stacked, bool), "must be True or False", stacked=stacked)
    if isinstance(arrays, Iterator):
        arrays = list(arrays)
    if stacked or not isinstance(arrays, list | tuple) or hasattr(arrays, "_fields"):
        train, owned = _from_stacked(arrays, count, kind)
    else:
        stack = "describes stacked leaves (n, m, ...)"
        require(count is None, stack, "give stacked=True with it", count=count)
        train, owned = _from_list(arrays, kind)
    if test is not None:
        test = _convert(test, "The test set", kind)
        _alike(test, "The test set", train, "the clients have", trailing=2)
    classes = whole("classes", classes, 0)
    if classes and isinstance(train, tuple) and len(train) == 2:
        labels = train[1]
        if isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.dtype.kind in "iu":
            labels_below(f"The labels of {name!r}", labels, classes)
    return ClientData(train, owned, test, classes, name)


def gather(dataset: Dataset, parts: Sequence[npt.ArrayLike]) -> ClientData:
    """Clients with rows ``parts[i]`` of ``dataset.train``; a row may belong to several."""
    instance("dataset", dataset, Dataset, "make one with jaxfl.data.Dataset")
    tree = _convert(dataset.train, f"Data set {dataset.name!r}", None)
    leaves, treedef = _flatten(tree)
    total = len(leaves[0])
    indices = each_rows(parts)
    _some(indices)
    for i, index in enumerate(indices):
        usable = index.ndim == 1 and index.size and index.dtype.kind in "iu"
        require(
            usable and index.min() >= 0 and index.max() < total,
            f"The rows of client {i} must be a nonempty 1-d array of integers in 0..{total - 1}",
        )
    sizes = np.array([index.size for index in indices], np.int32)
    padded = [pad((leaf[index] for index in indices), sizes, leaf) for leaf in leaves]
    test = dataset.test
    if test is not None:
        test = _convert(test, f"The test set of {dataset.name!r}", None)
        _alike(test, "The test set", tree, "the clients have")
    return ClientData(treedef.unflatten(padded), sizes, test, dataset.classes, dataset.name)


def each_rows(parts: Any) -> list[Array]:
    """The row numbers of each client as arrays."""
    many = isinstance(parts, Iterable) and not isinstance(parts, str)
    require(many, "must hold the row numbers of each client", parts=parts)
    for i, part in enumerate(parts := list(parts)):
        numeric(f"The array of rows of client {i}", part)
    return [np.asarray(part) for part in parts]


def client(data: ClientData, i: int) -> PyTree:
    """The rows of client i alone, without padding."""
    leaves, treedef = _flatten(data.train)
    return treedef.unflatten([leaf[i, : data.count[i]] for leaf in leaves])


def rows(tree: PyTree) -> int:
    """The common leading length of a pytree of arrays."""
    leaves, _ = _flatten(tree)
    lengths = {np.shape(leaf)[0] if np.ndim(leaf) else 0 for leaf in leaves}
    one = "must have one length, with a row for each example"
    require(
        len(lengths) == 1, f"The arrays of a data set have lengths {sorted(lengths)}, and {one}"
    )
    return int(lengths.pop())


# --- checks --------------------------------------------------------------------------------------


def _flatten(tree: PyTree) -> tuple[list[Any], Any]:
    leaves, treedef = jax.tree.flatten(tree)
    require(leaves, "A pytree without arrays holds no data", "pass at least one array")
    return leaves, treedef


def _paths(tree: PyTree, who: str) -> list[str]:
    """The name of every leaf, as the subject of a sentence."""
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    return [f"{who}, leaf {jax.tree_util.keystr(path)}," if path else who for path, _ in pairs]


def float_type(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The float type of that name; raises for any other type."""
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(object)
    require(kind.kind == "f", "must be a float type such as 'float32'", dtype=dtype)
    return kind


def _number(leaf: Any, where: str, kind: np.dtype[Any] | None) -> Array:
    """One leaf as an array of a type that JAX computes with."""
    array = numeric(where, leaf)
    if array.dtype.kind != "f":
        return array
    narrow = np.dtype(np.float32) if array.dtype.itemsize > 4 else array.dtype
    with np.errstate(over="ignore"):
        return array.astype(kind or narrow, copy=False)


def _convert(tree: PyTree, who: str, kind: np.dtype[Any] | None) -> PyTree:
    """Checked leaves of one client or test set, with a common nonzero length."""
    leaves, treedef = _flatten(tree)
    paths = _paths(tree, who)
    done = [_number(leaf, path, kind) for leaf, path in zip(leaves, paths, strict=True)]
    for leaf, given, path in zip(done, leaves, paths, strict=True):
        require(
            len(leaf) == len(done[0]),
            f"{path} has {len(leaf)} rows but its first leaf has {len(done[0])}",
            "the leaves of one client must have equally many",
        )
        require(len(leaf), f"{path} has no rows", "leave out clients without data")
        finite(path, leaf, given)
    return treedef.unflatten(done)


def _alike(
    tree: PyTree, who: str, wanted: PyTree, whose: str, trailing: int = 1, hint: str = ""
) -> list[Any]:
    """The leaves of ``tree``; raises unless its rows have the structure and types of ``wanted``'s."""
    leaves, structure = _flatten(tree)
    like, treedef = _flatten(wanted)
    remedy = f"make them alike{hint}"
    require(structure == treedef, f"{who} has structure {structure} but {whose} {treedef}", remedy)
    for a, b, path in zip(like, leaves, _paths(tree, who), strict=True):
        require(
            a.shape[trailing:] == b.shape[1:] and a.dtype == b.dtype,
            f"{path} has rows of shape {b.shape[1:]} and type {b.dtype}, but {whose} "
            f"{a.shape[trailing:]} and {a.dtype}",
            remedy,
        )
    return leaves


def _some(clients: Sequence[Any]) -> None:
    require(clients, "There are 0 clients", "give at least one")


# --- stacking ------------------------------------------------------------------------------------


def pad(blocks: Iterable[Array], counts: npt.NDArray[Any], like: Array) -> Array:
    """Blocks of rows as one zero-padded array, with the type and row shape of ``like``."""
    out = np.zeros((len(counts), int(counts.max()), *like.shape[1:]), like.dtype)
    for row, block in zip(out, blocks, strict=True):
        row[: len(block)] = block
    return out


def _from_list(arrays: Sequence[PyTree], kind: np.dtype[Any] | None) -> tuple[PyTree, Any]:
    _some(arrays)
    trees = [_convert(tree, f"Client {i}", kind) for i, tree in enumerate(arrays)]
    first, treedef = _flatten(trees[0])
    hint = "; pass stacked=True if the leaves are already stacked over clients"
    columns = [
        _alike(tree, f"Client {i}", trees[0], "client 0 has", hint=hint)
        for i, tree in enumerate(trees)
    ]
    sizes = np.array([len(leaves[0]) for leaves in columns], np.int32)
    padded = [pad((c[j] for c in columns), sizes, leaf) for j, leaf in enumerate(first)]
    return treedef.unflatten(padded), sizes


def _from_stacked(
    tree: PyTree, count: Iterable[int] | None, kind: np.dtype[Any] | None
) -> tuple[PyTree, Any]:
    given, treedef = _flatten(tree)
    paths = _paths(tree, "The stacked data")
    leaves = [_number(leaf, path, kind) for leaf, path in zip(given, paths, strict=True)]
    n, m = stacked("The stacked data", given)
    owned = counts(None if count is None else list(count), n, m)
    padding = np.arange(m) >= owned[:, None]
    done = []
    for leaf, own, path in zip(leaves, given, paths, strict=True):
        if padding.any():
            leaf = leaf.copy()
            leaf[padding] = 0
        finite(path, leaf, own, axes=2)
        done.append(leaf)
    return treedef.unflatten(done), owned
