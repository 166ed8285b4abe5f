"""Partitions of rows among clients: functions of labels (or a number of rows) and a seed.

Every partitioner returns one array of row indices per client, and uses no row twice (except
`class_pairs` with ``reuse=True``, which says so).  ``drop_remainder=True`` gives all clients
equally many rows by leaving out the last few; otherwise the first clients have one more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxfl.core.checks import bind, finite, numeric, stream
from jaxfl.core.errors import InputError, require
from jaxfl.core.memory import check_fits
from jaxfl.core.params import known, positive, whole
from jaxfl.data.records import Array
from jaxfl.data.sizes import enough, sizes

__all__ = [
    "PARTITIONS",
    "by_label",
    "by_size",
    "class_pairs",
    "contiguous",
    "dirichlet",
    "iid",
    "partition",
    "round_robin",
    "shards",
]

Parts = list[npt.NDArray[np.intp]]
Rows = int | npt.ArrayLike  # a number of rows, or the labels of the rows


def iid(rows: Rows, clients: int, seed: int = 0, *, drop_remainder: bool = True) -> Parts:
    """A random permutation cut into equal pieces; what is dropped is random too."""
    total, clients = _total(rows, clients)
    return _cut(stream(seed, "iid").permutation(total), clients, drop_remainder)


def contiguous(rows: Rows, clients: int, seed: int = 0, *, drop_remainder: bool = True) -> Parts:
    """Rows in file order, cut into equal pieces."""
    total, clients = _total(rows, clients)
    return _cut(np.arange(total), clients, drop_remainder)


def round_robin(rows: Rows, clients: int, seed: int = 0, *, drop_remainder: bool = True) -> Parts:
    """Row j to client j mod n, in file order."""
    total, clients = _total(rows, clients)
    stop = total - total % clients if drop_remainder else total
    return [np.arange(i, stop, clients) for i in range(clients)]


def by_label(labels: Rows, clients: int, seed: int = 0, *, drop_remainder: bool = True) -> Parts:
    """Rows in a stable sort by label, cut into equal pieces: the extreme of label heterogeneity.

    The remainder is dropped in file order, before sorting, as in the SoteriaFL experiments.
    """
    return _sorted_pieces("by_label", labels, clients, 1, drop_remainder)


def shards(
    labels: Rows, clients: int, seed: int = 0, *, per_client: int = 2, drop_remainder: bool = True
) -> Parts:
    """``per_client`` random pieces of the rows sorted by label for each client.

    McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017, section 3.
    """
    cut = _sorted_pieces("shards", labels, clients, per_client, drop_remainder)
    deal = stream(seed, "shards").permutation(len(cut)).reshape(-1, per_client)
    return [np.concatenate([cut[j] for j in own]) for own in deal]


def dirichlet(
    labels: Rows,
    clients: int,
    seed: int = 0,
    *,
    alpha: float = 0.5,
    min_size: int = 1,
    tries: int = 100,
) -> Parts:
    """Every class divided over the clients in proportions ~ Dirichlet(alpha, ..., alpha).

    Small alpha: few classes per client, and unequal sizes.  All rows are used.  Proportions are
    redrawn until every client has ``min_size`` rows, at most ``tries`` times.

    Yurochkin et al., Bayesian Nonparametric Federated Learning, ICML 2019; Hsu, Qi and Brown 2019.
    """
    names, classes = np.unique(_labels(labels, "dirichlet"), return_inverse=True)
    total, clients = _total(classes, clients)
    alpha, tries = positive("alpha", alpha), whole("tries", tries, 1)
    enough(total, clients, whole("min_size", min_size, 1))
    rng = stream(seed, "dirichlet")
    order = rng.permutation(total)
    members = [order[classes[order] == c] for c in range(len(names))]
    counts = np.array([len(rows) for rows in members])
    best = 0
    for _ in range(tries):
        share = rng.dirichlet(np.full(clients, alpha), size=len(names))
        cuts = np.floor(np.cumsum(share, axis=1)[:, :-1] * counts[:, None] + 1e-9).astype(np.intp)
        edges = np.concatenate([0 * counts[:, None], cuts, counts[:, None]], axis=1)
        size = np.diff(np.minimum(edges, counts[:, None]), axis=1)
        best = max(best, int(size.sum(axis=0).min()))
        if best >= min_size:
            owner = np.empty(total, np.intp)
            for rows, given in zip(members, size, strict=True):
                owner[rows] = np.repeat(np.arange(clients), given)
            order = np.argsort(owner, kind="stable")
            return np.split(order, np.cumsum(size.sum(axis=0))[:-1])
    raise InputError(
        f"gave no client fewer than {best} rows in the best of {tries} draws, and min_size is "
        f"{min_size}",
        f"raise alpha or tries, or lower min_size or the {clients} clients",
        alpha=alpha,
    )


def class_pairs(
    labels: Rows,
    clients: int,
    seed: int = 0,
    *,
    pairs: Sequence[tuple[int, int]] | None = None,
    per_class: int | None = None,
    reuse: bool = False,
) -> Parts:
    """Client i holds rows of the two classes ``pairs[i]``; default: all (even, odd) pairs.

    The rows of a class are shuffled and shared out among the clients that hold it: ``per_class`` to
    each, or all of them as equally as possible.  With ``reuse=True`` every holder gets the same
    first ``per_class`` rows of the class in file order (default: all), so a row serves several
    clients: the pipeline of Lowy and Razaviyayn, ICLR 2023, before its 80/20 split.
    """
    labels = _labels(labels, "class_pairs")
    present = np.unique(labels)
    if pairs is None:
        even, odd = present[present % 2 == 0], present[present % 2 == 1]
        pairs = [(int(a), int(b)) for a in even for b in odd]
    require(isinstance(pairs, Iterable), "must hold pairs of classes", pairs=pairs)
    for pair in pairs:
        two = np.shape(pair) == (2,) and np.isin(pair, present).all() and pair[0] != pair[1]
        require(two, "must hold two different classes among the labels", pairs=pair)
    clients = whole("clients", clients, 1)
    wrong = "must be one for each pair"
    require(clients == len(pairs), wrong, lambda: f"ask for {len(pairs)}", clients=clients)
    if per_class is not None:
        per_class = whole("per_class", per_class, 1)
    rng = stream(seed, "class_pairs")
    holdings: list[list[Array]] = [[] for _ in pairs]
    for c in present:
        holders = [i for i, pair in enumerate(pairs) if c in pair]
        members = np.flatnonzero(labels == c)
        needed = (per_class or 1) * (1 if reuse else len(holders))
        few = f"has {len(members)} rows of class {c}, whose clients need {needed}"
        require(needed <= len(members), lambda: f"The data set {few}", "lower per_class")
        if reuse:
            given = [members[:per_class]] * len(holders)
        elif per_class is not None:
            given = np.split(rng.permutation(members)[:needed], max(len(holders), 1))
        else:
            given = np.array_split(rng.permutation(members), max(len(holders), 1))
        for i, part in zip(holders, given, strict=False):
            holdings[i].append(part)
    return [np.sort(np.concatenate(own)) for own in holdings]


def by_size(
    rows: Rows,
    clients: int,
    seed: int = 0,
    *,
    law: str = "lognormal",
    spread: float = 1.0,
    min_size: int = 1,
) -> Parts:
    """Random rows in unequal numbers, see `sizes`; every row is used."""
    total, clients = _total(rows, clients)
    min_size = whole("min_size", min_size, 1)
    counts = sizes(law, total, clients, seed, spread=spread, min_size=min_size)
    order = stream(seed, "by_size").permutation(total)
    return np.split(order, np.cumsum(counts)[:-1])


PARTITIONS: dict[str, Callable[..., Parts]] = {
    "iid": iid,
    "contiguous": contiguous,
    "round_robin": round_robin,
    "by_label": by_label,
    "shards": shards,
    "dirichlet": dirichlet,
    "class_pairs": class_pairs,
    "by_size": by_size,
}


def partition(name: str, rows: Rows, clients: int, seed: int = 0, **options: Any) -> Parts:
    """The partition of that name, of labels or, where they do not matter, of a number of rows."""
    entry = known("partition", name, PARTITIONS)
    return bind("Partition", name, entry, rows, clients, seed, **options)


# --- shared --------------------------------------------------------------------------------------


def _total(rows: Rows, clients: int) -> tuple[int, int]:
    try:
        shape = np.shape(rows)
    except ValueError:
        raise InputError(
            "rows are lists of different lengths", "give a number of rows, or one label for each"
        ) from None
    total = shape[0] if shape else whole("rows", rows, 1)
    clients = whole("clients", clients, 1)
    enough(total, clients)
    check_fits(f"A partition of {total:,} rows", 16 * total, "take fewer")
    return total, clients


def _labels(labels: Rows, name: str) -> Array:
    one = isinstance(labels, int | np.integer)
    array = np.asarray(None) if one else numeric(f"The array of labels for {name!r}", labels)
    require(
        array.ndim == 1, lambda: f"Partition {name!r} needs one label per row, not {array.shape}"
    )
    finite(f"The array of labels for partition {name!r}", array)
    return array


def _sorted_pieces(name: str, labels: Rows, clients: int, each: int, drop: bool) -> Parts:
    """``each`` equal pieces per client of the rows in a stable sort by label."""
    labels = _labels(labels, name)
    total, clients = _total(labels, clients)
    pieces = clients * whole("per_client", each, 1)
    enough(total, clients, each)
    kept = total - total % pieces if drop else total
    return _cut(np.argsort(labels[:kept], kind="stable"), pieces, drop)


def _cut(order: Array, pieces: int, drop_remainder: bool) -> Parts:
    if drop_remainder:
        order = order[: len(order) - len(order) % pieces]
    return np.array_split(order, pieces)
