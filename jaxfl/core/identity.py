"""What tells parts apart: the very functions that they hold, never ``==``.

Parts are named tuples.  Tuples of different types compare equal, and the ``__eq__`` of a user's object
may say anything, so that neither caches nor proofs may go by equality.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import numpy as np

__all__ = ["by_identity", "code_of", "compared_by_identity", "identity", "is_plain"]

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
BUILT_IN = frozenset({bool, int, float, complex, str, bytes, type(None)})
NUMPYS = frozenset(np.sctypeDict.values()) - {np.void, np.object_}  # which hold anything


def is_plain(kind: type) -> bool:
    """Return whether values of exactly this type are plain data; a subclass may do anything."""
    return kind in BUILT_IN or kind in NUMPYS


def identity(value: Any) -> Hashable:
    """Return what only this value has: text for plain data, the address for functions and objects.

    An address may be reused once its object is gone: whoever stores an identity stores the value, too.
    A bound method is made anew whenever it is read; its identity is that of its owner and its function.
    """
    kind = type(value)
    if issubclass(kind, tuple):
        # A subclass of a named tuple may have attributes of its own, which hide its methods.
        extra = tuple(map(identity, getattr(value, "__dict__", {}).items()))
        return kind, *map(identity, tuple.__iter__(value)), *extra
    if kind is types.MethodType:
        return kind, identity(value.__self__), identity(value.__func__)
    if is_plain(kind):
        return kind, repr(value)
    return id(value)


def code_of(function: Any) -> str:
    """Return a digest of a function's code and of what it reads, equal in another process."""
    out, seen = hashlib.sha256(), set[int]()

    def put(value: Any) -> None:
        out.update(type(value).__qualname__.encode())
        if is_plain(type(value)):
            out.update(repr(value).encode())
        elif hasattr(value, "dtype") and hasattr(value, "shape"):
            put((str(value.dtype), tuple(value.shape), np.asarray(value).tobytes()))
        elif isinstance(value, types.ModuleType | type | types.BuiltinFunctionType):
            out.update(f"{getattr(value, '__module__', '')}.{value.__name__}".encode())
        elif id(value) not in seen:
            seen.add(id(value))
            deque(map(put, _read_by(value)), maxlen=0)

    put(function)
    return out.hexdigest()[:24]


def _read_by(value: Any) -> Iterable[Any]:
    """What the behaviour of a value rests on."""
    if isinstance(value, types.CodeType):
        return value.co_code, value.co_names, *value.co_consts
    if isinstance(value, types.FunctionType):
        read = (
            value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__
        )
        cells = (cell.cell_contents for cell in value.__closure__ or ())
        return value.__code__, value.__defaults__, value.__kwdefaults__, *cells, *read
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, dict):
        return (pair for pair in value.items())
    if isinstance(value, tuple | list):
        return value
    call = getattr(type(value), "__call__", None)  # noqa: B004
    return type(value), call, getattr(value, "__dict__", None)


def by_identity(make: F, most: int | None = None) -> F:
    """Return ``make``, called once for arguments that are the same by :func:`identity`.

    Arguments and results are stored; with ``most``, all are dropped once there are that many results.
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


def compared_by_identity(kind: C) -> C:
    """Compare named tuples of a class by :func:`identity`, by which compiled programs are found."""

    def same(self: Any, other: object) -> bool:
        return self is other or identity(self) == identity(other)

    def different(self: Any, other: object) -> bool:
        return not same(self, other)

    kind.__eq__, kind.__ne__ = same, different  # type: ignore[method-assign, assignment]
    kind.__hash__ = tuple.__hash__  # type: ignore[method-assign, assignment]
    return kind
