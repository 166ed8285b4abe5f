"""Splits of a data set among clients, and rows held out for testing."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jaxfl.core.checks import instance, numeric, spelt, stream
from jaxfl.core.errors import require
from jaxfl.core.params import exactly_one, fraction, known, whole
from jaxfl.data.frames import column_names, grouped, groups, is_frame, labels_of, pixels, rows_of
from jaxfl.data.loaders import load
from jaxfl.data.partition import PARTITIONS, Parts, partition
from jaxfl.data.records import (
    Array,
    ClientData,
    Dataset,
    class_numbers,
    each_rows,
    from_frame,
    gather,
    owners_of,
    refuse_path,
    refuse_tuple,
    rows,
)

__all__ = ["from_examples", "holdout", "split"]


def holdout(parts: Sequence[Array], share: float, seed: int = 0) -> tuple[Parts, Parts]:
    """Hold out ``ceil(share * size)`` random rows of every client; returns (kept, held).

    Call it twice for train, validation and test.
    """
    share, rng = fraction("share", share), stream(seed, "holdout")
    kept, held = [], []
    for i, part in enumerate(each_rows(parts)):
        number = int(np.ceil(share * len(part) - 1e-9))
        few = f"holds out all {len(part)} rows of client {i}"
        require(number < len(part), few, "lower it, or give that client more rows", share=share)
        out = np.zeros(len(part), bool)
        out[rng.permutation(len(part))[:number]] = True
        kept.append(part[~out])
        held.append(part[out])
    return kept, held


@spelt("Function")
def split(
    dataset: Dataset | str,
    clients: int,
    how: str = "iid",
    seed: int = 0,
    *,
    labels: npt.ArrayLike | None = None,
    test_share: float | None = None,
    **options: Any,
) -> ClientData:
    """Share the training rows of a data set, or of the one of that name, among clients.

    ``how`` names the partition (`PARTITIONS`), ``seed`` fixes its draws, and ``options`` are its options.
    ``labels`` are other
    labels to share rows by, as digits where a model learns their parity.  ``test_share`` holds
    out that part of every client's rows; pooled in client order, they replace the test set, and
    ``test_owner`` says whose they are.

    >>> split("digits", clients=3).count.tolist()
    [480, 480, 480]
    >>> split("digits", clients=3, how="dirichlet", alpha=0.5).count.sum().item()
    1442
    """
    way = "read some of them by dataset = jaxfl.data.load(name, records=...), and split that"
    require("records" not in options, "split has no option 'records'", way)
    refuse_path(dataset)
    if isinstance(dataset, str):
        dataset = load(dataset)
    example = "give for instance Dataset('mine', (features, labels), classes=2)"
    refuse_tuple(dataset)
    dataset = instance("dataset", dataset, Dataset, example)
    total = rows(dataset.train)
    if labels is None and isinstance(dataset.train, tuple) and len(dataset.train) == 2:
        labels = dataset.train[1]
    given = total if labels is None else len(numeric("The array of labels", labels))
    wrong = f"There are {given} labels for {total} training rows"
    require(given == total, wrong, "give each one")
    words = _words(how, options)
    parts = partition(how, total if labels is None else labels, clients, seed, **options)
    return _gather(dataset, parts, test_share, seed)._replace(partition=words)


@spelt("Function")
def from_examples(
    dataset: Any,
    test: Any = None,
    *,
    features: str | Sequence[str] = "image",
    label: str = "label",
    client: str | None = None,
    clients: int | None = None,
    how: str | None = None,
    seed: int = 0,
    test_share: float | None = None,
    classes: int = 0,
    name: str = "examples",
    **options: Any,
) -> ClientData:
    """The clients of a data set of Hugging Face, of TensorFlow, or of any rows that are dicts.

    ``dataset`` has the training rows, and ``test`` those of the test set.  The column ``client`` names the
    client of each row, in ``test`` too where that has it; or ``clients`` share the rows by the partition
    ``how`` (default: "iid") with its ``seed`` and ``options``, see `split`.  ``test_share``
    holds out that part of every client's rows, in place of ``test``.

    ``features`` is one column, or several that are put side by side.  Images of bytes are divided by
    255, and get a last axis where they have no colours.  Text and booleans in ``label`` are names of
    classes, as are those of a `datasets.ClassLabel`.  A DataFrame is read as by `from_clients`.

    >>> rows = [{"image": np.zeros((8, 8), np.uint8), "label": j % 2, "writer": j // 3} for j in range(9)]
    >>> from_examples(rows, client="writer").train[0].shape
    (3, 3, 8, 8, 1)
    """
    exactly_one(
        "name the column client=, or give clients= to share the rows",
        client=client,
        clients=clients,
    )
    several = options | ({} if how is None else {"how": how})
    require(client is None or not several, "goes with clients=", "leave it out", **several)
    whole("classes", classes, 0)
    if is_frame(dataset):
        made = from_frame(dataset, test, label=label, features=features, classes=classes, name=name)
        tables = [table for table in (dataset, test) if is_frame(table)]
        owners = [groups(table, client) for table in tables if client in column_names(table)]
    else:
        made, owners = _examples(dataset, test, features, label, client, classes, name)
    if client is None:
        assert clients is not None
        return split(
            made, clients, "iid" if how is None else how, seed, test_share=test_share, **options
        )
    parts, names = owners[0]
    natural = _gather(made, parts, test_share, seed)
    if test_share is None and len(owners) == 2:
        natural = natural._replace(test_owner=owners_of(owners[1], names))
    return natural._replace(partition="natural", client_names=names)


def _examples(
    dataset: Any,
    test: Any,
    features: str | Sequence[str],
    label: str,
    client: str | None,
    classes: int,
    name: str,
) -> tuple[Dataset, list[tuple[list[Array], tuple[str, ...]]]]:
    """The examples of rows that are dicts, and the rows of each client, in the training and test set."""
    many = isinstance(features, Iterable) and not isinstance(features, str)
    chosen: list[Any] = list(features) if many else [features]
    require(chosen and label not in chosen, "must be columns but the label", features=features)
    used = [*chosen, label]
    known_as = getattr(getattr(dataset, "features", None) or {}, "get", lambda name: None)(label)
    read = [rows_of(dataset, [*used, client] if client else used, "The data set")]
    if test is not None:
        read.append(rows_of(test, used, "The test set", client))
    labels, named = labels_of([(columns[label], False) for columns in read], f"The label {label!r}")
    named = named or tuple(getattr(known_as, "names", None) or ())
    classes = classes or len(named)
    sets = [
        (pixels(columns, chosen, who), values)
        for columns, values, who in zip(
            read, labels, ("The data set", "The test set"), strict=False
        )
    ]
    sets = [class_numbers(pair, classes, f"The labels of {name!r}") for pair in sets]
    held = sets[1] if test is not None else None
    made = Dataset(name, sets[0], held, classes, label_name=label, class_names=named)
    return made, [grouped(columns[client], client) for columns in read if client in columns]


def _gather(
    dataset: Dataset, parts: Sequence[Array], test_share: float | None, seed: int
) -> ClientData:
    """Clients with these rows, or with what is left of them where a share is held out."""
    if test_share is None:
        return gather(dataset, parts)
    parts, held = holdout(parts, fraction("test_share", test_share), seed)
    index = np.concatenate(held)
    test = jax.tree.map(lambda leaf: np.asarray(leaf)[index], dataset.train)
    owner = np.repeat(np.arange(len(held), dtype=np.int32), [len(own) for own in held])
    return gather(dataset._replace(test=test), parts)._replace(test_owner=owner)


def _words(how: str, options: Mapping[str, Any]) -> str:
    """The partition with its options, and with alpha where that is a default."""
    entry = known("partition", how, PARTITIONS)
    default = inspect.signature(entry).parameters.get("alpha")
    values = ({} if default is None else {"alpha": default.default}) | dict(options)
    said = [f"{name}={v}" for name, v in values.items() if isinstance(v, int | float | str)]
    return how + f"({', '.join(said)})" * bool(said)
