"""Checks that the modules of this package share; every failure is one sentence."""

from __future__ import annotations

import difflib
import inspect
import math
import operator
import zlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from jaxfl.errors import InputError

__all__ = ["bind", "fraction", "integer", "lookup", "real", "stream"]

T = TypeVar("T")


def integer(name: str, value: Any, low: int) -> int:
    """``value`` as an int of at least ``low``."""
    try:
        whole = operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be an integer of at least {low}, not {value!r}.") from None
    if isinstance(value, bool | np.bool_) or whole < low:
        raise InputError(f"{name} must be an integer of at least {low}, not {value!r}.")
    return whole


def real(name: str, value: Any, *, positive: bool = False) -> float:
    """``value`` as a finite float, nonnegative or positive."""
    kind = "positive" if positive else "nonnegative"
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0 or (positive and number == 0):
        raise InputError(f"{name} must be a finite {kind} number, not {value!r}.")
    return number


def fraction(name: str, value: Any) -> float:
    """``value`` as a float strictly between 0 and 1."""
    number = real(name, value)
    if not 0 < number < 1:
        raise InputError(f"{name} must lie strictly between 0 and 1, not {value!r}.")
    return number


def stream(seed: Any, purpose: str) -> np.random.Generator:
    """Random numbers of one purpose, so that equal seeds never mean equal draws elsewhere."""
    return np.random.default_rng([integer("seed", seed, 0), zlib.crc32(purpose.encode())])


def lookup(kind: str, name: str, registry: Mapping[str, T]) -> T:
    """The entry of that name, or the sentence that lists all of them."""
    if isinstance(name, str) and name in registry:
        return registry[name]
    near = difflib.get_close_matches(str(name), registry, n=1)
    hint = f"did you mean {near[0]!r}? known: " if near else "choose one of "
    raise InputError(f"Unknown {kind} {name!r}: {hint}{', '.join(registry)}.")


def bind(kind: str, name: str, entry: Callable[..., T], *args: Any, **options: Any) -> T:
    """``entry(*args, **options)``, with misspelled options refused by name."""
    parameters = inspect.signature(entry).parameters
    known = list(parameters)[len(args) :]
    forwards = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for option in options:
        if option not in known and not forwards:
            offer = f"its options are {', '.join(known)}" if known else "it takes no options"
            raise InputError(f"{kind} {name!r} has no option {option!r}: {offer}.")
    return entry(*args, **options)
