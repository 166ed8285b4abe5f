"""Published algorithms, each a composition of parts: one function, one row in the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxfl.algorithms import (
    anytime,
    compressed,
    curator,
    decentralized,
    isrl,
    localsgd,
    lowy,
    soteriafl,
)
from jaxfl.algorithms.compose import compose, stored
from jaxfl.errors import InputError
from jaxfl.hyper import closest
from jaxfl.types import Algorithm

__all__ = ["ALGORITHMS", "algorithm", "compose", "register", "stored"]

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {}


def register(constructor: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    """Make an algorithm known by its function's name, to ``simulate`` and to the command line."""
    ALGORITHMS[constructor.__name__] = constructor
    return constructor


for _family in (soteriafl, localsgd, isrl, anytime, curator, lowy, compressed, decentralized):
    for _name in _family.__all__:
        register(getattr(_family, _name))


def algorithm(name: str, **parts: Any) -> Algorithm:
    """The algorithm of that name, with some of its parts exchanged.

    >>> from jaxfl import compressors
    >>> dict(algorithm("cdp_sgd", compressor=compressors.qsgd()).parts)["compressor"]
    'qsgd'
    >>> algorithm("soteriafl_sgb")
    Traceback (most recent call last):
        ...
    jaxfl.errors.InputError: There is no algorithm 'soteriafl_sgb': did you mean 'soteriafl_sgd'?

    ``storage`` is how what clients remember is kept: exact, or rounded to bfloat16 or float16.
    """
    storage = parts.pop("storage", "exact")
    if name not in ALGORITHMS:
        raise InputError(closest("algorithm", name, ALGORITHMS))
    return stored(ALGORITHMS[name](**parts), storage)
