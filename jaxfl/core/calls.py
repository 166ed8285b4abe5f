"""Calls of a user's functions, whose errors become one sentence with the lines of the user's code.

:func:`asked` calls a function of a part on the host.  :func:`watched` is a part whose functions, traced or
not, are looked at in the same way; a round is traced with such parts once before it is compiled
[:mod:`jaxfl.algorithms.trial`], and runs with the parts as they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import math
import operator
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.checks import kind_of
from jaxfl.core.errors import InputError, one_line
from jaxfl.core.identity import INSTALLED
from jaxfl.core.types import (
    Aggregation,
    Channel,
    Compressor,
    Draw,
    Estimator,
    Gradient,
    Local,
    Mechanism,
    Memory,
    Participation,
    Remembered,
    Sampler,
    Server,
    Term,
)

__all__ = [
    "alike",
    "asked",
    "blamed",
    "described",
    "frames_of",
    "in_words",
    "is_jaxfls",
    "place",
    "watched",
]

FRAMES = 6  # of a user's own, at most
LONG = 200  # characters of what a function returned
TRACED = (
    "what a round computes with is traced: choose by jnp.where or jax.lax.cond, and apply neither "
    "float(), int(), bool() nor NumPy"
)
ABSENT = "give it, or let resolve compute it"
TRACER_ERRORS = jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError


class Wanted(NamedTuple):
    """A requirement on a function's result: a check of it, and its description in words."""

    fits: Callable[[tuple[Any, ...], Any], bool]  # (arguments, returned)
    words: str | Callable[[tuple[Any, ...]], str]


# --- errors --------------------------------------------------------------------------------------


@contextlib.contextmanager
def blamed(what: str, *functions: Any, absent: str = "", way: str = "") -> Iterator[None]:
    """Turn what a user's code raises into an :class:`InputError`, whose notes are the lines of that code.

    ``what`` is the subject of the sentence.  An error in which only jaxfl and installed packages have a
    part stays as it is, unless one of ``functions`` is the user's.  ``absent`` is the way out of
    a missing name, and ``way`` of a wrong type.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        frames = frames_of(error)
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in one_line(error):
            raise  # of JAX: the memory is too small
        if not frames and all(map(is_jaxfls, functions)):
            raise
        other = absent * isinstance(error, KeyError) or way * isinstance(error, TypeError)
        remedy = TRACED if isinstance(error, TRACER_ERRORS) else other
        raise InputError(f"{what} raises {one_line(error)}", remedy).at(frames) from error


def frames_of(error: BaseException | None) -> list[str]:
    """The lines of the user's own code that an error passed through, the innermost last."""
    found = traceback.extract_tb(None if error is None else error.__traceback__)
    lines = [
        f"{frame.filename}, line {frame.lineno}, in {frame.name}"
        + f": {frame.line}" * bool(frame.line)
        for frame in found
        if _is_own(frame.filename)
    ]
    return lines if len(lines) <= FRAMES else [lines[0], "...", *lines[2 - FRAMES :]]


def _is_own(file: str) -> bool:
    """Whether code is the user's: neither jaxfl's nor an installed package's."""
    return not file.startswith(("<frozen", *INSTALLED))


def is_jaxfls(function: Any) -> bool:
    """Whether jaxfl has this function."""
    inner = function.func if isinstance(function, functools.partial) else function
    return str(getattr(inner, "__module__", "")).startswith("jaxfl.")


def place(function: Any) -> tuple[str, ...]:
    """The line where a function of the user's begins; empty for others."""
    inner = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    code = getattr(inner, "__code__", None)
    if code is None or not _is_own(code.co_filename):
        return ()
    return (f"{code.co_filename}, line {code.co_firstlineno}, in {code.co_name}",)


# --- calls ---------------------------------------------------------------------------------------


def asked(part: Any, field: str, *args: Any) -> Any:
    """Return what a host function of a part returns; raise if it is not what the record says."""
    return _looked_at(part, field, in_words(part), getattr(part, field))(*args)


def watched(part: Any, x: Any, owner: str = "") -> Any:
    """Return the part with functions that raise a sentence for what goes wrong in them.

    ``x`` has the shape and dtype of the model.
    """
    owner, changed = owner or in_words(part), dict[str, Any]()
    for field, value in zip(part._fields, part, strict=True):
        if isinstance(value, Gradient | Memory | Sampler):
            changed[field] = watched(value, x, "" if isinstance(value, Sampler) else owner)
        elif callable(value) and value is not part._field_defaults.get(field):
            changed[field] = _looked_at(part, field, owner, None, x)
    return part._replace(**changed)


def in_words(part: Any) -> str:
    """A part by its kind and its name."""
    kind = next(kind for kind in type(part).__mro__ if kind.__module__.startswith("jaxfl"))
    return f"the {kind.__name__.lower()} {part.name!r}"


def _looked_at(part: Any, field: str, owner: str, whose: Any, x: Any = None) -> Callable[..., Any]:
    """A function of a part, looked at; an error in it counts if ``whose`` is not jaxfl's."""
    f: Any = getattr(part, field)
    kinds = (kind for kind in type(part).__mro__ if (kind, field) in WANTED)
    wanted = next((WANTED[kind, field] for kind in kinds), None)
    what = f"The {field} of {owner}"

    def call(*args: Any) -> Any:
        with blamed(what, whose, absent=ABSENT * hasattr(part, "resolve")):
            found = f(*args)
        if wanted is not None:
            _check(what, f, wanted, (*args, x), found)
        return found

    return call


def _check(what: str, f: Any, wanted: Wanted, args: tuple[Any, ...], found: Any) -> None:
    try:
        if wanted.fits(args, found):
            return
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError):
        pass  # it has none of what is looked at
    words = wanted.words if isinstance(wanted.words, str) else wanted.words(args)
    error = InputError(f"{what} returns {described(found)}", f"return {words}")
    raise error.at(place(f))


def described(value: Any) -> str:
    """Describe a function's result in one line: arrays by their dtypes and shapes."""
    text = _described(value)
    return text if len(text) <= LONG else f"{text[:LONG]}..."


def _described(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return kind_of(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        pairs = zip(value._fields, value, strict=True)
        return f"{type(value).__name__}({', '.join(f'{n}={_described(v)}' for n, v in pairs)})"
    if type(value) in (tuple, list):
        inner = ", ".join(map(_described, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if type(value) is dict:
        return f"{{{', '.join(f'{k!r}: {_described(v)}' for k, v in value.items())}}}"
    return kind_of(value)


# --- what functions return -----------------------------------------------------------------------


def alike(found: Any, other: Any) -> bool:
    """Whether two pytrees have the same structure, and their leaves the same shapes and dtypes."""
    pairs = [
        (jax.tree.structure(tree), *map(_kind, jax.tree.leaves(tree))) for tree in (found, other)
    ]
    return pairs[0] == pairs[1]


def _kind(leaf: Any) -> tuple[Any, ...]:
    dtype = leaf.dtype if hasattr(leaf, "dtype") else jnp.result_type(leaf)
    is_key = jnp.issubdtype(dtype, jax.dtypes.prng_key)
    return np.shape(leaf), dtype if is_key else jax.dtypes.canonicalize_dtype(dtype)


def _is_number(value: Any, least: float = -math.inf) -> bool:
    """Whether a value is one finite real number, of at least ``least``."""
    array = np.asarray(value)
    return array.ndim == 0 and array.dtype.kind in "iuf" and least <= float(array) < math.inf


def _whole(value: Any, least: int) -> bool:
    return not isinstance(value, bool) and operator.index(value) >= least


def _real(leaf: Any, shape: tuple[int, ...]) -> bool:
    """Whether an array of this shape holds real numbers, traced or not."""
    kinds = jnp.floating, jnp.integer, jnp.bool_
    if leaf is None or np.shape(leaf) != shape:
        return False
    dtype = jnp.result_type(leaf)
    return any(jnp.issubdtype(dtype, kind) for kind in kinds)


def _draw(found: Any, everything: int | None) -> bool:
    if not isinstance(found, Draw):
        return False
    if found.index is None:
        return everything is not None and _real(found.weight, (everything,))
    slots = np.shape(found.index)
    integers = jnp.issubdtype(found.index.dtype, jnp.integer)
    return len(slots) == 1 and integers and _real(found.weight, slots)


def _arrays(tree: Any) -> bool:
    return all(map(_kind, jax.tree.leaves(tree)))


def _rows_of(tree: Any, n: int) -> bool:
    return all(np.shape(leaf)[:1] == (n,) for leaf in jax.tree.leaves(tree))


def _like(at: int, of: str) -> Wanted:
    """The same shape and dtype as an argument, which may be the model behind all others."""
    return Wanted(
        lambda args, found: alike(found, args[at]),
        lambda args: f"{described(args[at])}, {of}",
    )


def _pair(found: Any, size: int = 2) -> bool:
    return isinstance(found, tuple) and len(found) == size


SLOTS = Wanted(
    lambda args, found: all(isinstance(k, str) and _whole(v, 1) for k, v in found.items()),
    "whole numbers by name, the slots of arrays",
)
BOUND = Wanted(
    lambda args, found: found is None or (_pair(found) and all(float(v) >= 0 for v in found)),
    "two numbers of at least 0, or None",
)
UPDATES = Wanted(
    lambda args, found: _pair(found, 3) and alike(found[:2], args[1:3]) and _real(found[2], ()),
    lambda args: f"({described(args[1])}, {described(args[2])}, a number of gradients)",
)
LIKE_X = _like(-1, "as the model is")
WANTED: dict[tuple[type, str], Wanted] = {
    (Sampler, "draw"): Wanted(
        lambda args, found: _draw(found, args[3]),
        "a Draw of the rows, as integers, and as many real weights",
    ),
    (Sampler, "capacity"): SLOTS,
    (Participation, "draw"): Wanted(
        lambda args, found: _draw(found, args[2]),
        "a Draw of the clients, as integers, and as many real weights",
    ),
    (Participation, "capacity"): SLOTS,
    (Participation, "most"): Wanted(
        lambda args, found: _whole(found, 0), "a whole number of rounds"
    ),
    (Participation, "least"): Wanted(
        lambda args, found: _whole(found, 0), "a whole number of clients"
    ),
    (Compressor, "omega"): Wanted(
        lambda args, found: _is_number(found, 0),
        "a finite number of at least 0, with E|C(v) - v|^2 <= omega |v|^2",
    ),
    (Compressor, "bits"): Wanted(
        lambda args, found: len(found) == 2 and all(_is_number(v, 0) for v in found),
        "two finite numbers of at least 0, the bits of a message and those of each coordinate",
    ),
    (Compressor, "resolve"): Wanted(
        lambda args, found: all(isinstance(k, str) and _is_number(v) for k, v in found.items()),
        "finite numbers by name",
    ),
    (Compressor, "capacity"): SLOTS,
    (Compressor, "select"): Wanted(
        lambda args, found: _draw(found, None),
        "a Draw of the coordinates, as integers, and as many weights",
    ),
    (Compressor, "code"): _like(1, "as many values as it is given, of the same dtype"),
    (Mechanism, "std"): Wanted(
        lambda args, found: _real(found, ()) or args[-1] is None or _real(found, args[-1].shape),
        "one real number, or one for each coordinate",
    ),
    (Mechanism, "event"): Wanted(
        lambda args, found: dataclasses.is_dataclass(found), "an event of jaxfl.privacy"
    ),
    (Mechanism, "draw"): _like(2, "the shape and dtype of what is noised"),
    (Channel, "init"): Wanted(
        lambda args, found: (
            _pair(found) and (args[2] or _rows_of(found[0], args[0])) and _arrays(found)
        ),
        lambda args: f"(the clients' ends, arrays of {args[0]} rows, and the server's end)",
    ),
    (Channel, "before"): _like(1, "as many values as the estimate has, of the same dtype"),
    (Channel, "after"): _like(0, "as the link before is"),
    (Channel, "receive"): Wanted(
        lambda args, found: _pair(found) and alike(found, (args[1], args[0])),
        lambda args: f"({described(args[1])}, {described(args[0])}), an estimate and the new link",
    ),
    (Channel, "residual"): _like(0, "as the link before is"),
    (Channel, "growth"): BOUND,
    (Server, "init"): Wanted(
        lambda args, found: found is not None and _arrays(found), "a pytree of arrays"
    ),
    (Server, "view"): LIKE_X,
    (Server, "step"): _like(1, "as the state before is"),
    (Server, "output"): LIKE_X,
    (Gradient, "terms"): Wanted(
        lambda args, found: bool(found) and all(isinstance(term, Term) for term in found),
        "a tuple of Terms",
    ),
    (Gradient, "public"): LIKE_X,
    (Gradient, "unit"): Wanted(lambda args, found: _real(found, ()), "one real number"),
    (Memory, "init"): Wanted(lambda args, found: isinstance(found, Remembered), "a Remembered"),
    (Memory, "begin"): UPDATES,
    (Memory, "refresh"): UPDATES,
    (Estimator, "pace"): Wanted(
        lambda args, found: all(isinstance(k, str) and _real(v, ()) for k, v in found.items()),
        "real numbers by name",
    ),
    (Local, "init"): Wanted(
        lambda args, found: _pair(found) and _rows_of(found[1], args[0].n) and _arrays(found),
        "(shared, memory), the memory with a row for each client",
    ),
    (Local, "run"): Wanted(
        lambda args, found: (
            _pair(found, 3) and alike(found[:2], (args[1], args[3])) and _real(found[2], ())
        ),
        lambda args: f"({described(args[1])}, {described(args[3])}, a number of gradients)",
    ),
    (Local, "close"): _like(0, "as shared is before"),
    (Local, "message_bound"): BOUND,
    (Aggregation, "protect"): Wanted(
        lambda args, found: (
            _pair(found)
            and found[0].shape == args[4].shape
            and _real(found[0], args[4].shape)
            and (_real(found[1], ()) or _real(found[1], args[4].shape))
        ),
        "(as many words as the message has values, the clamped ones or their number)",
    ),
    (Aggregation, "recover"): _like(1, "as the model is"),
    (Aggregation, "settle"): Wanted(
        lambda args, found: all(
            _is_number(v) and isinstance(why, str) for v, why in found.values()
        ),
        "pairs of a finite number and its source, by name",
    ),
}
