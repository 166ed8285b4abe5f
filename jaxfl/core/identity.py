"""The identity of parts: two are the same if they hold the same function objects, whatever ``==`` returns.

Parts are named tuples.  Tuples of different types compare equal, and the ``__eq__`` of a user's object
may return anything: neither caches nor proofs may rely on equality.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

__all__ = [
    "INSTALLED",
    "arrays_of",
    "by_identity",
    "code_of",
    "compared_by_identity",
    "identity",
    "is_plain",
]

PACKAGE = str(Path(__file__).parents[1])
PATHS = ("stdlib", "platstdlib", "purelib", "platlib")
# where code is that is not the user's
INSTALLED = (*(sysconfig.get_paths()[name] for name in PATHS), f"{PACKAGE}{os.sep}")
C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
BUILT_IN = frozenset({bool, int, float, complex, str, bytes, type(None)})
NUMPYS = frozenset(np.sctypeDict.values()) - {np.void, np.object_}  # which hold anything


def is_plain(kind: type) -> bool:
    """Return whether values of exactly this type are plain data; a subclass may do anything."""
    return kind in BUILT_IN or kind in NUMPYS


def identity(value: Any) -> Hashable:
    """Return the identity of a value: text for plain data, the address for functions and objects.

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
    """Return a digest of a function's code and of what it reads, equal in another process.

    Of functions of jaxfl and of installed packages the name counts, and what they close over.
    """
    out = hashlib.sha256()
    for value in _reached(function):
        out.update(type(value).__qualname__.encode())
        if is_plain(type(value)):
            out.update(repr(value).encode())
    return out.hexdigest()[:24]


def arrays_of(function: Any) -> Iterator[np.ndarray | jax.Array]:
    """Yield the arrays that a function reads and that are no arguments."""
    return (value for value in _reached(function) if isinstance(value, np.ndarray | jax.Array))


def _reached(function: Any) -> Iterator[Any]:
    """Yield all that the behaviour of a function rests on, each object followed by its content once."""
    seen: dict[int, Any] = {}  # held: an address may be reused

    def reach(value: Any) -> Iterator[Any]:
        yield value
        if not is_plain(type(value)) and id(value) not in seen:
            seen[id(value)] = value
            for part in _read_by(value):
                yield from reach(part)

    return reach(function)


def _read_by(value: Any) -> Iterable[Any]:
    """The values on which the behaviour of a value depends."""
    if isinstance(value, types.ModuleType):
        return (value.__name__,)
    if isinstance(value, np.ndarray | jax.Array):
        return str(value.dtype), value.shape, np.asarray(value).tobytes()
    if isinstance(value, types.CodeType):
        return value.co_code, value.co_names, *value.co_consts
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, dict | set | frozenset):
        return sorted(map(repr, value)), *(value.values() if isinstance(value, dict) else ())
    if isinstance(value, tuple | list):
        return value
    name = getattr(value, "__qualname__", None)
    cells = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    if isinstance(value, types.BuiltinFunctionType) or (name and _of_a_package(value)):
        return value.__module__, name, getattr(value, "__self__", None), *cells
    if isinstance(value, types.FunctionType):
        names, read = value.__code__.co_names, value.__globals__
        mine = [read[name] for name in names if name in read]
        modules = [one for one in mine if isinstance(one, types.ModuleType)]
        theirs = [getattr(m, name) for m in modules for name in names if hasattr(m, name)]
        return value.__code__, value.__defaults__, value.__kwdefaults__, *cells, *mine, *theirs
    if isinstance(value, type):
        return name, *(f for f in vars(value).values() if callable(f))
    return type(value), getattr(value, "__dict__", None)


def _of_a_package(value: Any) -> bool:
    """Whether a function or a class is jaxfl's, of the standard library, or of an installed package."""
    module = sys.modules.get(str(getattr(value, "__module__", "")))
    if module is None or module.__name__ == "__main__":
        return False
    builtin = module.__name__ in sys.builtin_module_names
    return builtin or str(getattr(module, "__file__", "")).startswith(INSTALLED)


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
