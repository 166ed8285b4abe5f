"""Splits of a data set among clients, and rows held out for testing."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jaxfl.core.checks import instance, numeric, stream
from jaxfl.core.errors import require
from jaxfl.core.params import fraction, known
from jaxfl.data.loaders import load
from jaxfl.data.partition import PARTITIONS, Parts, partition
from jaxfl.data.records import Array, ClientData, Dataset, each_rows, gather, refuse_tuple, rows

__all__ = ["holdout", "split"]


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

    ``how`` names the partition (`PARTITIONS`), and ``options`` are its options.  ``labels`` are other
    labels to share rows by, as digits where a model learns their parity.  ``test_share`` holds
    out that part of every client's rows; pooled in client order, they replace the test set, and
    ``test_owner`` says whose they are.

    >>> split("digits", clients=3).count.tolist()
    [480, 480, 480]
    >>> split("digits", clients=3, how="dirichlet", alpha=0.5).count.sum().item()
    1442
    """
    if isinstance(dataset, str):
        dataset = load(dataset)
    example = "give for instance Dataset('mine', (features, labels), classes=2)"
    refuse_tuple(dataset)
    dataset = instance("dataset", dataset, Dataset, example)
    total = rows(dataset.train)
    if labels is None and isinstance(dataset.train, tuple) and len(dataset.train) == 2:
        labels = dataset.train[1]
    given = total if labels is None else len(numeric("The array of labels", labels))
    require(given == total, f"There are {given} labels for {total} training rows", "give each one")
    words = _words(how, options)
    parts = partition(how, total if labels is None else labels, clients, seed, **options)
    if test_share is None:
        return gather(dataset, parts)._replace(partition=words)
    parts, held = holdout(parts, fraction("test_share", test_share), seed)
    index = np.concatenate(held)
    test = jax.tree.map(lambda leaf: np.asarray(leaf)[index], dataset.train)
    owner = np.repeat(np.arange(len(held), dtype=np.int32), [len(own) for own in held])
    made = gather(dataset._replace(test=test), parts)
    return made._replace(partition=words, test_owner=owner)


def _words(how: str, options: Mapping[str, Any]) -> str:
    """The partition with its options, and with alpha where that is a default."""
    entry = known("partition", how, PARTITIONS)
    default = inspect.signature(entry).parameters.get("alpha")
    values = ({} if default is None else {"alpha": default.default}) | dict(options)
    said = [f"{name}={v}" for name, v in values.items() if isinstance(v, int | float | str)]
    return how + f"({', '.join(said)})" * bool(said)
