"""Records of examples, of one source and of n clients, and the conversion of user data."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from jaxfl.core.checks import (
    counts,
    finite,
    gathered,
    instance,
    kind_of,
    labels_below,
    numeric,
    sortable,
    spelt,
    stacked,
)
from jaxfl.core.errors import JaxflWarning, listed, require
from jaxfl.core.foreign import warn
from jaxfl.core.params import known, whole
from jaxfl.core.progress import plural
from jaxfl.data.frames import Tables, column_names, groups, is_frame, names_of, tables

__all__ = [
    "ClientData",
    "Dataset",
    "Heterogeneity",
    "class_numbers",
    "client",
    "each_rows",
    "float_type",
    "from_clients",
    "from_frame",
    "gather",
    "heterogeneity",
    "owners",
    "owners_of",
    "pad",
    "refuse_path",
    "refuse_tuple",
    "rows",
]

PyTree: TypeAlias = Any
Array: TypeAlias = npt.NDArray[Any]
ROUNDING = 1e-12  # of a sum of squares, in float64
SHOWN = 1 << 26  # numbers whose heterogeneity a summary measures: fractions of a second


class Dataset(NamedTuple):
    """Examples of one source.

    ``train`` and ``test`` are pytrees of arrays with a common leading axis, normally
    ``(features (N, p) float32, labels (N,))``.  ``classes`` counts the labels 0, 1, ...; it is 2
    for binary labels in {0, 1} and 0 for real targets.  Data read from tables hold the names of
    features and classes.
    """

    name: str
    train: PyTree
    test: PyTree | None = None
    classes: int = 0
    note: str = ""
    feature_names: tuple[str, ...] = ()
    label_name: str = ""
    class_names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return _described(f"Dataset {self.name!r}: {rows(self.train):,} rows", self)


class ClientData(NamedTuple):
    """Examples of n clients, stacked.

    Leaves of ``train`` have shape ``(n, m_max, ...)``; client i owns the first ``count[i]`` rows
    and the others are zero.  ``test`` is pooled over clients; ``test_owner`` holds the number of the
    client that each test example belongs to, where that is known, and -1 for those of no client.
    """

    train: PyTree
    count: npt.NDArray[np.int32]  # type: ignore[assignment]  # hides tuple.count
    test: PyTree | None = None
    classes: int = 0
    name: str = "data"
    feature_names: tuple[str, ...] = ()
    label_name: str = ""
    class_names: tuple[str, ...] = ()
    client_names: tuple[str, ...] = ()
    partition: str = ""  # how the rows were shared among clients, in words
    test_owner: npt.NDArray[np.int32] | None = None

    def __repr__(self) -> str:
        least, most = np.min(self.count), np.max(self.count)
        each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        samples = f"{np.sum(self.count, dtype=np.int64):,} samples, {each} each"
        return _described(f"ClientData {self.name!r}: {len(self.count):,} clients, {samples}", self)


@spelt("Function")
def from_clients(
    arrays: Any,
    test: PyTree | None = None,
    *,
    test_owner: npt.ArrayLike | None = None,
    client: Hashable | None = None,
    label: Hashable | None = None,
    features: Any = None,
    count: Iterable[int] | None = None,
    classes: int = 0,
    name: str = "data",
    dtype: npt.DTypeLike | None = None,
    stacked: bool = False,
) -> ClientData:
    """Return a user's own data as `ClientData`; raise unless they say which client has which rows.

    ``arrays`` is one of these; anything else raises an error:

    - a DataFrame of pandas or polars with one record per row, where the column ``client`` says whose
      it is, the column ``label`` is to be predicted, and ``features`` (default: all other columns) are
      numbers or booleans.  Clients are in the order of the values of their column, and rows in that
      of the table;
    - a list (tuple, generator) with one pytree of arrays per client, all of one structure, such as
      ``(features, labels)``, whose leaves share their leading axis; clients may differ in length;
    - a list with one DataFrame per client, with ``label``;
    - a dict of such pytrees or DataFrames by the name of the client, in its order;
    - with ``stacked=True`` one pytree of leaves ``(n, m, ...)``, where ``count`` may say how many of
      the m rows each client owns.

    ``test`` is a DataFrame with the same columns, one pytree of arrays, pooled over clients, or a list
    with one such pytree per client, or None for a client without test data (a dict if ``arrays`` is one).
    ``test_owner`` says which client each example of a pooled pytree belongs to, as its number, or -1; a
    table with the column ``client`` says so itself.

    Text, categories and booleans in ``label`` are names of classes, numbered in sorted order, and a
    test table must have no other; whole numbers must already be class numbers 0, 1, ... if the model
    classifies.  Floats stay floats: real targets, also 1.0 and 2.0, unless the model classifies, to which
    whole floats are class numbers, or ``classes`` counts the classes and makes them integers.  Missing
    values and columns of features that are not numbers raise an error.  The result shows what was
    understood:

    >>> import pandas
    >>> frame = pandas.DataFrame({
    ...     "hospital": ["oslo", "bern", "oslo"], "age": [61, 48, 55], "ill": ["yes", "no", "no"]
    ... })
    >>> from_clients(frame, client="hospital", label="ill")
    ClientData 'data': 2 clients, 3 samples, 1 to 2 each, no test set
      train[0]: float32 (2, 2, 1)
      train[1]: int32 (2, 2)
      features: age
      label: ill
      classes: 0 = no (2 records), 1 = yes (1 record)
      clients: bern, oslo
      heterogeneity: label divergence 0.25, feature divergence 0.787

    Rows of a table without clients are shared out by ``split(from_frame(frame, label="ill"), 10)``.

    Floats must be finite.  float64 becomes float32 unless ``dtype`` names another float type, and
    64-bit integers become int32: what JAX computes with by default.  A number that becomes 0 is an error
    where a row or a column holds no other; next to larger ones, which are rounded by more, it is harmless.
    """
    kind = None if dtype is None else float_type(dtype)
    instance("name", name, str, "name the data in words")
    require(isinstance(stacked, bool), "must be True or False", stacked=stacked)
    classes = whole("classes", classes, 0)
    stack = "describes stacked leaves (n, m, ...)"
    require(stacked or count is None, stack, "give stacked=True with it", count=count)
    read, each = Tables([], (), "", ()), None
    clients: tuple[str, ...] = ()
    columns = {"client": client, "label": label, "features": features}
    if is_frame(arrays) and not stacked:
        has = listed(column_names(arrays))
        way = (
            "name the one that says whose a row is, as in client='hospital', or share the rows out "
            "with jaxfl.data.split(jaxfl.data.from_frame(frame, label=...), clients=10)"
        )
        require(client is not None, lambda: f"The table has the columns {has}", way)
        parts, clients = groups(arrays, client)
        if test_owner is None and is_frame(test) and client in column_names(test):
            test_owner = owners_of(groups(test, client, "The test set"), clients)
        read, test = _read([arrays], test, ["The table"], kind, **columns)
        each = [jax.tree.map(lambda leaf, own=own: leaf[own], read.rows[0]) for own in parts]
    elif not stacked:
        each, clients = _each(arrays)
        if isinstance(test, Mapping):
            names_of(test)
        sortable(*each, test)
        gathered(*each, test)
        if each and all(map(is_frame, each)):
            several = "names a column of one table, and these are several, each one client"
            require(client is None, several, "leave it out", client=client)
            who = [f"Client {own}" for own in clients or range(len(each))]
            read, test = _read(each, test, who, kind, **columns)
            each = read.rows
        elif each and test_owner is None:
            test, test_owner = _pooled(test, each, clients, kind)
    if not read.rows:
        named = {role: column for role, column in columns.items() if column is not None}
        alone = "needs a DataFrame, or one for each client, and no stacked=True"
        require(not named, alone, **named)
    train, owned = _from_stacked(arrays, count, kind) if each is None else _from_list(each, kind)
    if test is not None:
        test = _convert(test, "The test set", kind)
        _alike(test, "The test set", train, "the clients have", trailing=2)
    classes = classes or len(read.class_names)
    none = ", or give {classes} if they are no class numbers"
    train = class_numbers(train, classes, f"The labels of {name!r}", none, axes=2)
    test = class_numbers(test, classes, f"The test labels of {name!r}", none)
    owner = owners(test_owner, test, len(owned))
    return ClientData(train, owned, test, classes, name, *read[1:], clients, test_owner=owner)


@spelt("Function")
def from_frame(
    frame: Any,
    test: PyTree | None = None,
    *,
    label: Hashable | None = None,
    features: Any = None,
    classes: int = 0,
    name: str = "data",
    dtype: npt.DTypeLike | None = None,
) -> Dataset:
    """The rows of a DataFrame of pandas or polars as a `Dataset`, to be shared out by `split`.

    The arguments are those of `from_clients`.
    """
    kind = None if dtype is None else float_type(dtype)
    instance("name", name, str, "name the data in words")
    require(
        is_frame(frame), "must be a DataFrame of pandas or polars", "read it as one", frame=frame
    )
    read, test = _read([frame], test, ["The table"], kind, label=label, features=features)
    train = _convert(read.rows[0], "The table", kind)
    if test is not None:
        test = _convert(test, "The test set", kind)
        _alike(test, "The test set", train, "the table has")
    classes = whole("classes", classes, 0) or len(read.class_names)
    train = class_numbers(train, classes, f"The labels of {name!r}")
    test = class_numbers(test, classes, f"The test labels of {name!r}")
    return Dataset(name, train, test, classes, "", *read[1:])


def class_numbers(tree: PyTree, classes: int, who: str, way: str = "", axes: int = 1) -> PyTree:
    """Examples (features, labels) with labels 0, ..., classes - 1 as integers; raise for other labels."""
    pair = classes and isinstance(tree, tuple) and len(tree) == 2
    if not pair or not isinstance(tree[1], np.ndarray) or tree[1].ndim != axes:
        return tree
    labels_below(who, tree[1], classes, way)
    return tree[0], tree[1].astype(np.int32) if tree[1].dtype.kind == "f" else tree[1]


def refuse_tuple(value: Any) -> None:
    """Raise for the result of `standardise`, a tuple of data and numbers, in place of data."""
    wrapped = isinstance(value, tuple) and isinstance(next(iter(value), None), Dataset | ClientData)
    way = "unpack it, as in data, mean, deviation = jaxfl.data.standardise(data)"
    require(not wrapped, "The data are the first item of a tuple", way)


def refuse_path(value: Any) -> None:
    """Raise for the path of a file in place of data: no name of a data set has a dot or a slash."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    no_name = not isinstance(value, str) or not {"/", "\\", "."}.isdisjoint(value)
    way = (
        "read a table by pandas, and take jaxfl.data.from_clients(frame, client=..., label=...), or "
        "jaxfl.data.from_frame(frame, label=...) and split; jaxfl.data.leaf(folder) reads LEAF's files"
    )
    require(not text or not no_name, lambda: f"{text!r} is a path, and no data", way)


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
        wrong = f"The rows of client {i} must be a nonempty 1-d array of integers in 0..{total - 1}"
        require(usable and index.min() >= 0 and index.max() < total, wrong)
    sizes = np.array([index.size for index in indices], np.int32)
    padded = [pad((leaf[index] for index in indices), sizes, leaf) for leaf in leaves]
    test = dataset.test
    if test is not None:
        test = _convert(test, f"The test set of {dataset.name!r}", None)
        _alike(test, "The test set", tree, "the clients have")
    named = dataset.name, dataset.feature_names, dataset.label_name, dataset.class_names
    return ClientData(treedef.unflatten(padded), sizes, test, dataset.classes, *named)


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
        len(lengths) == 1,
        lambda: f"The arrays of a data set have lengths {sorted(lengths)}, and {one}",
    )
    return int(lengths.pop())


class Heterogeneity(NamedTuple):
    """The divergence of clients' data, from 0 (alike) to 1; None where there is no such measure."""

    labels: float | None
    features: float | None

    def __str__(self) -> str:
        named = {"label divergence": self.labels, "feature divergence": self.features}
        return ", ".join(f"{name} {v:.3g}" for name, v in named.items() if v is not None)


def heterogeneity(data: ClientData) -> Heterogeneity:
    """The measured divergence of clients' labels and features::

        labels   = 1/n sum_i 1/2 sum_c |p_i(c) - p(c)|
        features = sum_i m_i |mu_i - mu|^2 / sum_ij |a_ij - mu|^2

    p_i are the shares of the classes among the m_i labels of client i, and mu_i is the mean of its
    features; p and mu are those of all records.  Labels are the total variation to p, for classes;
    features the share of the variance that lies between clients, for real numbers.  With few records
    per client, neither is 0 even if all are drawn from one law.

    >>> from jaxfl.data import split
    >>> print(heterogeneity(split("digits", 10)))
    label divergence 0.097, feature divergence 0.00669
    >>> print(heterogeneity(split("digits", 10, "dirichlet", alpha=0.1)))
    label divergence 0.695, feature divergence 0.191
    """
    instance("data", data, ClientData, "make it with jaxfl.data.split or from_clients")
    pair = isinstance(data.train, tuple) and len(data.train) == 2
    known = pair and all(isinstance(leaf, np.ndarray) for leaf in data.train)
    wrong = f"Data {data.name!r} are no arrays (features, labels)"
    require(known, wrong, "measure those of some")
    return Heterogeneity(_label_divergence(data), _feature_divergence(data))


def _label_divergence(data: ClientData) -> float | None:
    labels = data.train[1]
    if labels.dtype.kind not in "iu" or labels.ndim != 2:
        return None
    owned = np.arange(labels.shape[1]) < data.count[:, None]
    classes, numbers = np.unique(labels[owned], return_inverse=True)
    at = np.nonzero(owned)[0] * len(classes) + numbers
    table = np.bincount(at, minlength=len(labels) * len(classes)).reshape(-1, len(classes))
    shares = table / data.count[:, None]
    return float(np.abs(shares - table.sum(axis=0) / table.sum()).sum(axis=1).mean() / 2)


def _feature_divergence(data: ClientData) -> float | None:
    features, count = data.train[0], data.count[:, None].astype(np.float64)
    if features.dtype.kind != "f":
        return None
    n, m = features.shape[:2]
    features = features.reshape(n, m, -1)
    sums = features.sum(axis=1, dtype=np.float64)  # padding is zero
    mean = sums.sum(axis=0) / count.sum()
    between = (np.square(sums - count * mean) / count).sum()
    squares = np.einsum("nmp,nmp->p", features, features, dtype=np.float64)
    total = (squares - count.sum() * mean**2).sum()
    return float(between / total) if total > ROUNDING * squares.sum() else 0.0


# --- checks --------------------------------------------------------------------------------------


def owners(given: Any, test: PyTree | None, n: int) -> npt.NDArray[np.int32] | None:
    """The client of each test example; raise unless there is one of the n for each, or -1."""
    if given is None:
        return None
    require(test is not None, "needs test examples, and there are none", test_owner=given)
    owner = numeric("The array of owners of test examples", given)
    total = rows(test)
    wrong = f"must hold one client number for each of the {total:,} test examples"
    require(owner.shape == (total,) and owner.dtype.kind in "iu", wrong, test_owner=given)
    known = owner.min() >= -1 and owner.max() < n
    wrong = f"must lie in 0..{n - 1}, or be -1 for examples of no client"
    require(known, wrong, test_owner=given)
    return owner.astype(np.int32)


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
        wrong = f"{path} has {len(leaf)} rows but its first leaf has {len(done[0])}"
        require(len(leaf) == len(done[0]), wrong, "the leaves of one client must have equally many")
        require(len(leaf), lambda: f"{path} has no rows", "leave out clients without data")
        finite(path, leaf, given)
    return treedef.unflatten(done)


def _alike(
    tree: PyTree, who: str, wanted: PyTree, whose: str, trailing: int = 1, hint: str = ""
) -> list[Any]:
    """The leaves of ``tree``; raises unless its rows have the structure and types of ``wanted``'s."""
    leaves, structure = _flatten(tree)
    like, treedef = _flatten(wanted)
    remedy = f"make them alike{hint}"
    require(
        structure == treedef,
        lambda: f"{who} has structure {structure} but {whose} {treedef}",
        remedy,
    )
    for a, b, path in zip(like, leaves, _paths(tree, who), strict=True):
        wrong = (
            f"{path} has rows of shape {b.shape[1:]} and type {b.dtype}, but {whose} "
            f"{a.shape[trailing:]} and {a.dtype}"
        )
        require(a.shape[trailing:] == b.shape[1:] and a.dtype == b.dtype, wrong, remedy)
    return leaves


def _some(clients: Sequence[Any]) -> None:
    require(clients, "There are 0 clients", "give at least one")


# --- what the user gives -------------------------------------------------------------------------


def owners_of(
    groups: tuple[Sequence[Array], Sequence[str]], clients: Sequence[str]
) -> npt.NDArray[np.int32]:
    """The number of the client of each row of a test table, -1 for those without training rows."""
    number = {name: i for i, name in enumerate(clients)}
    owner = np.empty(sum(map(len, groups[0])), np.int32)
    for own, name in zip(*groups, strict=True):
        owner[own] = number.get(name, -1)
    require(
        owner.max(initial=-1) >= 0,
        lambda: f"The test set has the clients {listed(groups[1])}, and training {listed(clients)}",
        "spell them alike in both, or leave their column out of the test set",
    )
    lost = [name for name in groups[1] if name not in number]
    if lost:
        words = f"The test set has the clients {listed(lost)}, which training lacks: they count for none"
        warn(JaxflWarning(words, "spell them alike in both"))
    return owner


def _read(
    frames: Sequence[Any],
    test: PyTree | None,
    who: Sequence[str],
    kind: np.dtype[Any] | None,
    *,
    label: Hashable | None,
    features: Any,
    client: Hashable | None = None,
) -> tuple[Tables, PyTree | None]:
    """The rows of tables, and the test set, which may be one more table."""
    held = [test] if is_frame(test) else []
    who = [*who, "The test set"][: len(frames) + len(held)]
    read = tables([*frames, *held], who, label, features, client, kind or np.float32, len(frames))
    return read, read.rows.pop() if held else test


def _pooled(
    test: PyTree | None, each: Sequence[PyTree], clients: Sequence[str], kind: np.dtype[Any] | None
) -> tuple[PyTree | None, npt.NDArray[np.int32] | None]:
    """A test set with one part per client as one, and the client of each example; any other as it is."""
    like: Any = jax.tree.structure(each[0])
    if not isinstance(test, Mapping | list | tuple) or like == jax.tree.structure(test):
        return test, None
    named = isinstance(test, Mapping)
    parts = test.items() if isinstance(test, Mapping) else enumerate(test)
    held = {i: part for i, part in parts if part is not None}
    if not held or any(like != jax.tree.structure(part) for part in held.values()):
        return test, None
    who = "The test set"
    require(
        named == bool(clients),
        lambda: f"{who} must be a {'dict' if clients else 'list'}, as the clients are",
    )
    many = f"{who} has {len(test)} parts, and there are {len(each)} clients"
    require(named or len(test) == len(each), many, "give one for each, or None")
    number = {str(name): i for i, name in enumerate(clients or range(len(each)))}
    own = [known("client", str(i), number) if named else i for i in held]
    trees = [_convert(part, f"{who} of client {i}", kind) for i, part in held.items()]
    columns = [
        _alike(tree, f"{who} of client {i}", trees[0], "another has")
        for i, tree in zip(held, trees, strict=True)
    ]
    leaves = [np.concatenate(column) for column in zip(*columns, strict=True)]
    owner = np.repeat(own, [len(column[0]) for column in columns])
    return jax.tree.unflatten(like, leaves), owner.astype(np.int32)


def _each(arrays: Any) -> tuple[list[PyTree], tuple[str, ...]]:
    """The data of each client, and the names of the clients where they have any."""
    remedy = (
        "pass a list with one pytree of arrays per client, or with stacked=True one pytree of arrays "
        "(clients, samples, ...)"
    )
    if isinstance(arrays, Mapping):
        named = all(is_frame(own) for own in arrays.values())
        if not named and not any(jax.tree_util.all_leaves([own]) for own in arrays.values()):
            shapes = {np.shape(leaf)[:2] for leaf in jax.tree.leaves([*arrays.values()])}
            named = len(shapes) > 1 or any(len(shape) < 2 for shape in shapes)  # not stacked
        names = names_of(arrays)
        wrong = (
            f"A dict with the keys {listed(list(arrays))} may hold one client under each, or arrays of "
            "all clients"
        )
        require(named, wrong, remedy)
        return list(arrays.values()), names
    refuse_path(arrays)
    plain = isinstance(arrays, list | tuple | Iterator) and not hasattr(arrays, "_fields")
    require(plain, lambda: f"The data are {kind_of(arrays)}, which is no list of clients", remedy)
    return list(arrays), ()


def _described(head: str, data: Dataset | ClientData) -> str:
    """Describe a data set in a few lines: its size, arrays and names."""
    lines = [f"{head}, {_tested(data)}"]
    for path, leaf in jax.tree_util.tree_leaves_with_path(data.train):
        lines.append(f"train{jax.tree_util.keystr(path)}: {leaf.dtype} {np.shape(leaf)}")
    label = (data.label_name,) if data.label_name else ()
    names = {"features": data.feature_names, "label": label}
    found = np.unique(_labels(data), return_counts=True)
    times: dict[int, int] = dict(zip(*(each.tolist() for each in found), strict=True))
    names["classes"] = tuple(
        f"{k} = {name}" + f" ({plural(times.get(k, 0), 'record')})" * bool(times)
        for k, name in enumerate(data.class_names)
    )
    names["clients"] = getattr(data, "client_names", ())
    lines += [f"{what}: {listed(some)}" for what, some in names.items() if some]
    if isinstance(data, ClientData):
        facts = {
            "partition": data.partition,
            "labels": f"all are {min(times)}" if len(times) == 1 else "",
        }
        facts["heterogeneity"] = _measured(data)
        lines += [f"{what}: {text}" for what, text in facts.items() if text]
    return "\n  ".join(lines)


def _labels(data: Dataset | ClientData) -> Array:
    """The labels of all records, whole numbers; none where they are others, or to look takes time."""
    pair = isinstance(data.train, tuple) and len(data.train) == 2
    labels: Any = data.train[1] if pair else None
    small = isinstance(labels, np.ndarray) and labels.size <= SHOWN
    axes = 1 + isinstance(data, ClientData)
    if not small or labels.ndim != axes or labels.dtype.kind not in "iu":
        return np.zeros(0, int)
    if isinstance(data, ClientData):
        labels = labels[np.arange(labels.shape[1]) < np.asarray(data.count)[:, None]]
    return np.asarray(labels)


def _measured(data: ClientData) -> str:
    """The heterogeneity in words, where there are several clients and it takes no time."""
    pair = isinstance(data.train, tuple) and len(data.train) == 2 and len(data.count) > 1
    small = pair and all(isinstance(a, np.ndarray) and a.size <= SHOWN for a in data.train)
    return str(heterogeneity(data)) if small else ""


def _tested(data: Dataset | ClientData) -> str:
    if data.test is None:
        return "no test set"
    owner = data.test_owner if isinstance(data, ClientData) else None
    whose = "" if owner is None else f" of {len(np.unique(owner[owner >= 0])):,} clients"
    return f"{rows(data.test):,} for testing{whose}"


# --- stacking ------------------------------------------------------------------------------------


def pad(blocks: Iterable[Array], counts: npt.NDArray[Any], like: Array) -> Array:
    """Blocks of rows as one zero-padded array, with the type and row shape of ``like``."""
    out = np.zeros((len(counts), int(counts.max()), *like.shape[1:]), like.dtype)
    for row, block in zip(out, blocks, strict=True):
        row[: len(block)] = block
    return out


def _from_list(arrays: Sequence[PyTree], kind: np.dtype[Any] | None) -> tuple[PyTree, Any]:
    _some(arrays)
    tables = [[list(c.columns) for c in jax.tree.leaves(tree) if is_frame(c)] for tree in arrays]
    for i, own in enumerate(tables):
        other = f"Client {i} has the columns {own}, and client 0 {tables[0]}"
        alike = all(a == b for a, b in zip(own, tables[0], strict=False))
        require(alike, other, "give all clients the same columns in the same order")
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
    sortable(tree)
    gathered(tree)
    given, treedef = _flatten(tree)
    paths = _paths(tree, "The stacked data")
    leaves = [_number(leaf, path, kind) for leaf, path in zip(given, paths, strict=True)]
    n, m = stacked("The stacked data", given)
    owned = counts(None if count is None else list(count), n, m)
    padding = np.arange(m) >= owned[:, None]
    done = []
    for leaf, own, path in zip(leaves, given, paths, strict=True):
        if padding.any():
            leaf, own = leaf.copy(), np.array(own)
            leaf[padding] = own[padding] = 0
        finite(path, leaf, own, axes=2)
        done.append(leaf)
    return treedef.unflatten(done), owned
