"""Tables of pandas and polars, and rows of data sets, as columns; no library of these is imported."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxfl.core.checks import finite, kind_of
from jaxfl.core.errors import InputError, attempt, listed, require, shown
from jaxfl.core.params import closest, reads

__all__ = [
    "Tables",
    "column_names",
    "grouped",
    "groups",
    "is_frame",
    "labels_of",
    "names_of",
    "pixels",
    "rows_of",
    "tables",
]

Array = npt.NDArray[Any]
LISTS: tuple[type, ...] = (list, tuple, set, frozenset, Mapping, np.ndarray)
EXACT = 2.0**53  # above it, not every whole number is one of 64 bits
LABELS = ("label", "labels", "target", "outcome", "class", "y")  # names to suggest, no more


class Tables(NamedTuple):
    """The rows of several tables: features (N, p), and labels (N,) where there are any."""

    rows: list[Any]  # for each table (features, labels), or features alone
    feature_names: tuple[str, ...]
    label_name: str
    class_names: tuple[str, ...]  # of labels that are no numbers, in the order of their numbers


def is_frame(value: Any) -> bool:
    """Whether ``value`` is a DataFrame of pandas or of polars."""
    kinds = (getattr(sys.modules.get(name), "DataFrame", None) for name in ("pandas", "polars"))
    return any(kind is not None and isinstance(value, kind) for kind in kinds)


def column_names(frame: Any, who: str = "The table") -> list[Hashable]:
    """The columns of a table; raises where two have one name."""
    names = list(frame.columns)
    twice = [name for name in names if names.count(name) > 1] if len({*names}) < len(names) else []
    require(not twice, lambda: f"{who} has several columns {twice[:1]}", "rename all but one")
    return names


def tables(
    frames: Sequence[Any],
    who: Sequence[str],
    label: Hashable | None,
    features: Any,
    leave: Hashable | None,
    kind: npt.DTypeLike,
    training: int,
) -> Tables:
    """Features and labels of tables with the same columns.

    ``features`` are by default all columns but ``label`` and ``leave``, in the order of the first table.
    The first ``training`` tables have all classes.
    """
    columns = column_names(frames[0], who[0])
    several = isinstance(features, Iterable) and not isinstance(features, str)
    chosen = None if features is None else list(features) if several else [features]
    if chosen is None:
        likely = next((name for name in columns if str(name).lower() in LABELS), columns[-1])
        way = (
            f"name the one to predict, as in label={str(likely)!r}, or for data without labels the "
            "features=[...]"
        )
        require(label is not None, lambda: f"{who[0]} has the columns {listed(columns)}", way)
        chosen = [name for name in columns if name not in (label, leave)]
    require(chosen, lambda: f"{who[0]} has no column of features", "add one", features=features)
    used = [name for name in (*chosen, label) if name is not None]
    for frame, name in zip(frames, who, strict=True):
        there = column_names(frame, name)
        for column in used:
            _one_of(there, column, name)
        extra = [c for c in there if c not in used and c != leave] if features is None else []
        wrong = f"{name} has the columns {listed(extra)}, and {who[0]} has not"
        require(not extra, wrong, "make them alike, or choose with features=[...]")
    require(label not in chosen, "is the label too", "leave it out", features=label)
    require(
        label is None or label != leave, "is the column of clients", "name another", label=label
    )
    rows: list[Any] = [
        _features(frame, chosen, name, kind) for frame, name in zip(frames, who, strict=True)
    ]
    names = tuple(map(str, chosen))
    if label is None:
        return Tables(rows, names, "", ())
    each = [_column(frame, label, name) for frame, name in zip(frames, who, strict=True)]
    labels, classes = labels_of(each, f"The label {label!r}", training)
    return Tables(list(zip(rows, labels, strict=True)), names, str(label), classes)


def groups(
    frame: Any, client: Hashable, who: str = "The table"
) -> tuple[list[Array], tuple[str, ...]]:
    """The rows of each client and its name, in the order of the values in column ``client``."""
    _one_of(column_names(frame), client, who)
    return grouped(_column(frame, client, who)[0], client)


def grouped(values: Array, client: Hashable) -> tuple[list[Array], tuple[str, ...]]:
    """The rows of each client and its name, from the values of the column ``client``."""
    way = "name a column of names or of whole numbers"
    if values.dtype.kind == "f":
        wrong = "is a column of real numbers"
        whole = (values == np.rint(values)) & (np.abs(values) < EXACT)
        require(whole.all(), wrong, way, client=client)
        values = values.astype(np.int64)
    held = values.ravel().tolist() if values.dtype.kind == "O" else []
    kinds = {*map(type, held)}
    several = values.ndim > 1 or any(issubclass(kind, LISTS) for kind in kinds)
    require(not several, "is a column of lists", way, client=client)
    require(len(kinds) < 2, "is a column of several types", "convert it to text", client=client)
    clients, owner = np.unique(values, return_inverse=True)
    order = np.argsort(owner, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(owner))[:-1])
    return rows, names_of(clients)


def names_of(clients: Iterable[Any]) -> tuple[str, ...]:
    """The names of clients as text; raise where two are alike, or where one cannot be written."""
    names = tuple(map(str, clients))
    ((name, times),) = Counter(names).most_common(1) or (("", 0),)
    require(times < 2, lambda: f"{times} clients are named {shown(name)}", "rename all but one")
    way = "spell them alike, as with frame[client].str.strip(), or number the clients"
    _spelt_apart("There are", "clients", names, "spaces", way)
    with attempt("A client has a name that is no text", "rename it"):
        "".join(names).encode()
    return names


def rows_of(
    dataset: Any, columns: Sequence[str], who: str, optional: str | None = None
) -> dict[str, Array]:
    """Columns of a data set whose rows are dicts; the optional one where the first row has it."""
    keyed = isinstance(dataset, Mapping)
    several = f"{who} is a dict with the keys {listed([*dataset])}" if keyed else ""
    require(
        not keyed, several, "pass one of its data sets, as in from_examples(d['train'], d['test'])"
    )
    named = list(getattr(dataset, "column_names", None) or ())
    for name in columns if named else ():
        _one_of(named, name, who)
    if hasattr(dataset, "with_format"):  # of Hugging Face, with arrays in place of lists
        dataset = dataset.select_columns(
            [c for c in named if c in (*columns, optional)] or [*columns]
        )
        dataset = dataset.with_format("numpy")
    elif hasattr(dataset, "as_numpy_iterator"):  # of TensorFlow
        dataset = dataset.as_numpy_iterator()
    many = isinstance(dataset, Iterable) and not isinstance(dataset, str)
    require(many, lambda: f"{who} is {shown(dataset)}, and must be rows, each a dict", "pass those")
    out: dict[str, list[Array]] = {name: [] for name in columns}
    with attempt(f"{who} cannot be read"):
        for j, row in enumerate(dataset):
            if not isinstance(row, Mapping):
                raise InputError(f"{who}, row {j}, is {shown(row)}", "make it a dict")
            if j == 0 and optional is not None and optional in row:
                out.setdefault(optional, [])
            for name, values in out.items():
                if name not in row:
                    _one_of([*row], name, f"{who}, row {j},")
                values.append(value := np.asarray(row[name]))
                alike = value.shape == values[0].shape and _text(value) == _text(values[0])
                if value.dtype.kind == "O" or not alike:
                    first = "" if alike else f", and row 0 {kind_of(values[0])}"
                    raise InputError(
                        f"{who}, row {j}, has {kind_of(row[name])} as {name!r}{first}",
                        "fill it in, make it like the others, or leave that row out",
                    )
    require(out[columns[0]], lambda: f"{who} has no rows", "check it")
    stacked = {name: np.stack(values) for name, values in out.items()}
    return {
        name: np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values
        for name, values in stacked.items()
    }


def _text(value: Array) -> bool:
    return value.dtype.kind in "SU"


def pixels(columns: Mapping[str, Array], names: Sequence[str], who: str) -> Array:
    """One column as features, or several side by side; images of bytes in [0, 1], with a last axis."""
    for name in names:
        what = "" if columns[name].dtype.kind in "biufV" else _words(columns[name].ravel())
        wrong = f"{who}: {name!r} holds {what}, and features are numbers"
        require(not what, wrong, "encode it first")
    if len(names) > 1:
        parts = [columns[name].reshape(len(columns[name]), -1) for name in names]
        return np.concatenate(parts, axis=1, dtype=np.float64, casting="unsafe")
    values = columns[names[0]]
    if values.dtype != np.uint8 or values.ndim < 3:
        return values.reshape(len(values), -1) if values.ndim == 1 else values
    images: Array = np.divide(values, 255, dtype=np.float32)
    return images[..., None] if images.ndim == 3 else images


def _one_of(columns: Sequence[Hashable], name: Any, who: str) -> None:
    """Raise unless ``name`` is one of the columns."""
    if not isinstance(name, Hashable) or name not in columns:
        where = f"{who[:1].lower()}{who[1:]}"
        raise InputError(closest(f"column in {where} named", name, map(str, columns)))


def _features(frame: Any, names: Sequence[Hashable], who: str, kind: npt.DTypeLike) -> Array:
    """Columns of numbers side by side, (N, p)."""
    out = np.empty((len(frame), len(names)), kind)
    for j, name in enumerate(names):
        values, categorical = _column(frame, name, who)
        what = "categories" if categorical else _words(values)
        way = "encode it (pandas.get_dummies, or to_dummies of polars)"
        if not categorical and values.dtype.kind in "UO":
            others = [i for i, value in enumerate(values) if not reads(str(value))]
            if not others:
                what = "numbers as text"
            elif len(others) < len(values):
                what = f"{shown(str(values[others[0]]))} in row {others[0]} among numbers"
            if len(others) < len(values):
                way = "convert it (pandas.to_numeric, or cast of polars)"
        wrong = f"{who}: the column {str(name)!r} holds {what}, and features are numbers"
        way = f"{way}, or leave it out with features=[...]"
        require(not categorical and values.dtype.kind in "biuf", wrong, way)
        with np.errstate(over="ignore"):
            out[:, j] = values
        finite(f"{who}, column {str(name)!r},", out[:, j], values)
        _check_exact(f"{who}: the column {str(name)!r}", out[:, j], values)
    return out


def _check_exact(where: str, held: Array, values: Array) -> None:
    """Raise if a whole number has become another one."""
    if values.dtype.kind not in "iu":
        return
    with np.errstate(invalid="ignore"):
        lost = np.flatnonzero(held.astype(values.dtype) != values)
    require(
        not lost.size,
        lambda: f"{where} holds {values[lost[0]]} in row {lost[0]}, which {held.dtype} rounds",
        "subtract the least of the column, or leave it out with features=[...]",
    )


def labels_of(
    columns: Sequence[tuple[Array, bool]], who: str, training: int = 1
) -> tuple[list[Array], tuple[str, ...]]:
    """Labels as numbers, and the names of their classes where they are none.

    Names are those of the first ``training`` columns; raises for another in the test set.
    """
    values, categorical = [array for array, _ in columns], any(named for _, named in columns)
    kinds = {"n" if array.dtype.kind in "iuf" else array.dtype.kind for array in values}
    several = " and ".join(sorted({str(array.dtype) for array in values}))
    way = "convert it to one in every table"
    require(len(kinds) == 1, lambda: f"{who} has several types, {several}", way)
    (kind,) = kinds
    require(
        kind in "nbU",
        lambda: f"{who} holds {_words(values[0])}",
        "make it numbers or names of classes",
    )
    if kind == "n" and not categorical:
        for array in values:
            finite(who, array)
        return values, ()
    named = [np.array([False, True])] if kind == "b" else values[:training]
    classes = np.unique(np.concatenate(named))
    way = "spell them alike, as with frame[label].str.strip().str.lower()"
    _spelt_apart(f"{who} has", "classes", [*map(str, classes)], "case or spaces", way)
    new = np.setdiff1d(np.concatenate([classes[:0], *values[training:]]), classes)
    has, other = listed(classes.tolist()), listed(new.tolist())
    require(
        not new.size,
        lambda: f"{who} is {other} in the test set, and only {has} in training",
        "spell classes alike in both, or leave those rows out",
    )
    numbers = [np.searchsorted(classes, array).astype(np.int32) for array in values]
    return numbers, tuple(map(str, classes))


def _spelt_apart(has: str, what: str, names: Sequence[str], how: str, way: str) -> None:
    """Raise if two names differ in spaces alone, or in case too; single letters may differ in case."""
    of = dict[str, str]()
    for name in names:
        key = " ".join(name.split())
        first = of.setdefault(key.casefold() if how != "spaces" and len(key) > 1 else key, name)
        if first != name:
            both = f"{has} the {what} {first!r} and {name!r}"
            raise InputError(f"{both}, which differ in {how} alone", way)


def _column(frame: Any, name: Hashable, who: str) -> tuple[Array, bool]:
    """The values of a column, and whether they are categories; raises where some are missing."""
    series = frame[name]
    require(len(series), lambda: f"{who} has no rows", "leave out clients without data")
    missing = np.asarray(series.isna() if hasattr(series, "isna") else series.is_null())
    values = np.asarray(series.to_numpy())
    if values.dtype.kind == "f":
        missing = missing | np.isnan(values)
    require(
        not missing.any(),
        lambda: (
            f"{who}: the column {str(name)!r} misses {missing.sum()} of {len(missing)} values, the first "
            f"in row {np.argmax(missing)}"
        ),
        "fill them in, or drop those rows",
    )
    if values.dtype.kind == "O":
        values = _plain(values)
    return values, str(series.dtype).lower().startswith(("categor", "enum"))


def _plain(values: Array) -> Array:
    """An array of Python objects as one of numbers or of strings, where that is what they are."""
    kinds = {type(value) for value in values}
    if all(issubclass(kind, bool | np.bool_) for kind in kinds):
        return values.astype(bool)
    for base, make in ((str, np.str_), (Real, None), ((Real, Decimal), np.float64)):
        if all(issubclass(kind, base) for kind in kinds):
            return np.array(values.tolist(), make)
    return values


def _words(values: Array) -> str:
    """Name the kind of a column's values in words."""
    known = {"U": "text", "M": "dates", "m": "durations", "b": "booleans", "c": "complex numbers"}
    return known.get(values.dtype.kind, f"values such as {shown(values[0])}")
