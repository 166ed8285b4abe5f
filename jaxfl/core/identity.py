"""What tells parts apart: the very functions that they hold, never ``==``.

Parts are named tuples.  Tuples of different types compare equal, and the ``__eq__`` of a user's object
may say anything, so that neither caches nor proofs may go by equality.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

__all__ = ["PLAIN", "by_identity", "identity"]

F = TypeVar("F", bound=Callable[..., Any])
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)


def identity(value: Any) -> Hashable:
    """Return what only this value has: text for plain data, the address for functions and objects.

    It holds as long as the objects live, so whoever keeps it keeps the value too.  A bound method is
    made anew whenever it is read, and goes by its owner.
    """
    kind = type(value)
    if issubclass(kind, tuple):
        # A subclass of a named tuple may have attributes of its own, which hide its methods.
        extra = tuple(map(identity, getattr(value, "__dict__", {}).items()))
        return kind, *map(identity, tuple.__iter__(value)), *extra
    if kind is types.MethodType:
        return kind, identity(value.__self__), identity(value.__func__)
    if kind in PLAIN or issubclass(kind, np.generic):
        return kind, repr(value)
    return id(value)


def by_identity(make: F, most: int | None = None) -> F:
    """Return ``make``, called once for arguments that are the same by :func:`identity`.

    It keeps what it was given.  With ``most``, it forgets everything when it holds so many results.
    """
    known: dict[Hashable, tuple[Any, Any]] = {}
    signature = inspect.signature(make)

    @functools.wraps(make)
    def call(*args: Any, **options: Any) -> Any:
        try:
            given = signature.bind(*args, **options)
        except TypeError:
            return make(*args, **options)  # raises in Python's own words
        given.apply_defaults()
        options = given.kwargs
        held = given.args, tuple(sorted(options.items()))
        key = identity(held)
        if key not in known:
            if most is not None and len(known) >= most:
                known.clear()
            known[key] = make(*given.args, **options), held
        return known[key][0]

    return call  # type: ignore[return-value]
