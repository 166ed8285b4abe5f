"""Preparation of features and labels before the first round: scaling, test sets, intercepts.

Statistics taken from private rows (means, norms) are outside of every privacy guarantee, here as in
the published experiments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from jaxfl.core.checks import spelt, stream
from jaxfl.core.errors import InputError, JaxflWarning, listed, require
from jaxfl.core.foreign import warn
from jaxfl.core.params import fraction, positive, whole
from jaxfl.data.records import Array, ClientData, Dataset, refuse_tuple, rows
from jaxfl.data.sizes import enough

__all__ = [
    "append_ones",
    "carve_test",
    "drop_trailing",
    "map_features",
    "map_labels",
    "moments",
    "scale_spectral",
    "spectral_scale",
    "standardise",
]

BLOCK = 4096
ROUNDED = 0.01  # of a deviation: a larger step between two floats is a warning
Data = TypeVar("Data", Dataset, ClientData)


def append_ones(features: Array) -> Array:
    """``[X, 1]``: the intercept as a last feature."""
    ones = np.ones((*features.shape[:-1], 1), features.dtype)
    return np.concatenate([features, ones], axis=-1)


@spelt("Function")
def map_features(dataset: Data, function: Callable[[Array], Array]) -> Data:
    """Apply a function to the features of the training and the test set."""
    given: Any = dataset
    train: tuple[Array, ...] = _pair(given)
    test: Any = given.test
    made: Data = given._replace(
        train=(function(train[0]), *train[1:]),
        test=None if test is None else (function(test[0]), *test[1:]),
        feature_names=(),
    )
    return made


def map_labels(dataset: Dataset, function: Callable[[Array], Array], classes: int) -> Dataset:
    """New labels from the old, such as ``lambda y: y % 2 == 0`` for even against odd digits."""
    kind = np.int32 if whole("classes", classes, 0) else np.float32

    def change(pair: Any) -> Any:
        return None if pair is None else (pair[0], np.asarray(function(pair[1])).astype(kind))

    _pair(dataset)
    return dataset._replace(
        train=change(dataset.train), test=change(dataset.test), classes=classes, class_names=()
    )


def drop_trailing(dataset: Dataset, clients: int) -> Dataset:
    """Drop the last training rows that would keep ``clients`` clients from having equally many."""
    total, clients = rows(dataset.train), whole("clients", clients, 1)
    enough(total, clients)
    kept = total - total % clients
    return dataset._replace(train=tuple(leaf[:kept] for leaf in _pair(dataset)))


def carve_test(dataset: Dataset, share: float = 0.2, seed: int = 0) -> Dataset:
    """Move a random ``share`` of every class from the training to the test set, in file order."""
    share = fraction("share", share)
    features, labels = _pair(dataset)
    groups = labels if dataset.classes else np.zeros(len(labels), np.int32)
    shuffled = stream(seed, "carve_test").permutation(len(labels))
    held = np.zeros(len(labels), bool)
    for group in np.unique(groups):
        members = shuffled[groups[shuffled] == group]
        held[members[: round(share * len(members))]] = True
    both = held.any() and not held.all()
    wrong = f"of {len(labels)} rows leaves one side empty"
    require(both, wrong, "take another share", share=share)
    return dataset._replace(
        train=(features[~held], labels[~held]), test=(features[held], labels[held])
    )


def spectral_scale(features: Array) -> float:
    """``c = ||X||_2 / (2 sqrt N)``, in float64.

    The mean logistic loss of X/c has smoothness at most 1: its Hessian is at most X^T X / (4 N).
    """
    gram = np.zeros((features.shape[1], features.shape[1]))
    for block in _blocks(features):
        gram += block.T @ block
    return math.sqrt(float(np.linalg.eigvalsh(gram)[-1]) / len(features)) / 2


def scale_spectral(dataset: Dataset) -> tuple[Dataset, float]:
    """Divide all features by the `spectral_scale` c of the training features; also returns c."""
    c = spectral_scale(_pair(dataset)[0])
    positive(f"spectral norm of {dataset.name}", c)
    return map_features(dataset, lambda x: np.asarray(x / x.dtype.type(c))), c


def moments(features: Array, *, per_feature: bool = False) -> tuple[Array, Array]:
    """Mean and deviation (over N, not N - 1) in float64: of all entries, or of each column.

    A deviation of 0 in 32 bits is returned as 1: dividing by it is harmless.
    """
    axis = 0 if per_feature else None
    size = len(features) if per_feature else features.size
    mean = np.sum([block.sum(axis) for block in _blocks(features)], axis=0) / size
    squares = np.sum([((block - mean) ** 2).sum(axis) for block in _blocks(features)], axis=0)
    deviation = np.sqrt(squares / size)
    return mean, np.where(deviation < np.finfo(np.float32).tiny, 1.0, deviation)


@spelt("Function")
def standardise(data: Data, *, per_feature: bool = False) -> tuple[Data, Array, Array]:
    """Subtract the training set's mean and divide by its standard deviation, see `moments`.

    Returns the data, the mean and the deviation: one number of each, or with ``per_feature`` one for
    each feature.

    >>> from jaxfl.data import from_clients
    >>> clients = [(np.array([[0.0], [2.0], [0.0]]), np.ones(3)), (np.array([[2.0]]), np.ones(1))]
    >>> standardise(from_clients(clients))[0].train[0].tolist()  # the second client has one row
    [[[-1.0], [1.0], [-1.0]], [[1.0], [0.0], [0.0]]]
    """
    features, owned = _pair(data)[0], None
    if isinstance(data, ClientData):
        owned = np.arange(features.shape[1]) < data.count[:, None]
    mean, deviation = moments(
        features if owned is None else features[owned], per_feature=per_feature
    )

    _warn_of_rounding(data, features, mean, deviation)

    def change(x: Array) -> Array:
        out = np.empty(x.shape, x.dtype if x.dtype.kind == "f" else np.float32)
        given, into = x.reshape(-1, *mean.shape), out.reshape(-1, *mean.shape)
        for i, block in enumerate(_blocks(given)):
            into[i * BLOCK : (i + 1) * BLOCK] = (block - mean) / deviation
        return out

    given: Any = map_features(data, change)
    if owned is not None:
        given.train[0][~owned] = 0  # padding
    return given._replace(feature_names=data.feature_names), mean, deviation


def _warn_of_rounding(data: Any, features: Array, mean: Array, deviation: Array) -> None:
    """Warn of features whose differences were rounded away before they came here."""
    kind = features.dtype
    lost = (
        np.spacing(np.abs(mean).astype(kind)) > ROUNDED * deviation if kind.kind == "f" else False
    )
    if not np.any(lost):
        return
    names = [(data.feature_names or range(mean.size))[i] for i in np.flatnonzero(lost)]
    what = f"feature {listed(names)}" if np.ndim(lost) else "all features"
    words = f"The values of {what} are equal, or differ by little more than {kind} rounds them"
    way = f"subtract a typical value before they become {kind}, or read them with dtype='float64'"
    warn(JaxflWarning(words, way))


def _pair(dataset: Dataset | ClientData) -> tuple[Array, ...]:
    refuse_tuple(dataset)
    known = isinstance(dataset, Dataset | ClientData)
    require(known, "must be a Dataset or ClientData", dataset=dataset)
    train: tuple[Array, ...] = dataset.train
    if isinstance(train, tuple) and len(train) > 1 and isinstance(train[0], np.ndarray):
        return train
    raise InputError(
        f"Data set {dataset.name!r} is not a tuple (features, labels)", "transform it itself"
    )


def _blocks(features: Array) -> Iterator[Array]:
    """float64 pieces of a float32 array, for precise sums without a second copy of all of it."""
    for start in range(0, len(features), BLOCK):
        yield features[start : start + BLOCK].astype(np.float64)
