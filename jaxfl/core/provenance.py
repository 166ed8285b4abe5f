"""The register of jaxfl's own parts and functions, on which proofs may rest.

A proof covers parts whose behaviour the tests pin: those that a constructor of jaxfl made of nothing
but plain data and other such parts.  Constructors register what they make (:func:`made`); afterwards
every field that a proof rests on must hold the very function that was registered.  A part that the user
changed (``_replace(scheme=...)``), wrapped or assembled is the user's, whatever its name.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

from jaxfl.core.identity import by_identity, identity, is_plain
from jaxfl.core.types import (
    Aggregation,
    Channel,
    Compressor,
    Estimator,
    Gradient,
    Kernel,
    Local,
    Mechanism,
    Memory,
    Model,
    Param,
    Participation,
    Recursion,
    Sampler,
    Server,
    unbounded,
)

__all__ = [
    "RESTS",
    "body",
    "kernel",
    "known_convexity",
    "made",
    "of_a_paper",
    "ours",
    "own_around",
    "own_bits",
    "own_body",
    "own_convexity",
    "own_function",
    "own_kernel",
    "own_part",
]

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound=type)


class Rests(NamedTuple):
    """The fields that proofs rest on."""

    always: tuple[str, ...]  # where each client adds its noise and every message is seen
    later: tuple[str, ...] = ()  # those that act on noised values there; elsewhere they count too


RESTS: dict[type, Rests] = {
    Sampler: Rests(("draw", "distinct", "capacity", "scheme", "strips", "params")),
    Participation: Rests(
        ("draw", "everyone", "capacity", "most", "least", "scheme", "fixed_size", "params")
    ),
    Estimator: Rests(("sampler", "gradient", "memory", "pace", "points", "sensitivity", "params")),
    Gradient: Rests(("terms", "public", "unit", "kernel", "jitter")),
    Memory: Rests(("init", "begin", "refresh", "table", "follow")),
    Mechanism: Rests(
        ("draw", "weights", "recursion", "event", "coupled", "multiples", "shows"),
        ("std", "central", "params"),
    ),  # its event reads ``std``
    Local: Rests(("init", "run", "message_bound", "close", "params")),
    Aggregation: Rests(
        ("protect", "recover", "settle", "bits", "hides", "plain", "draws", "params")
    ),
    Compressor: Rests(
        ("select",), ("code", "omega", "resolve", "capacity", "unbiased", "absolute", "fixed_size")
    ),
    Channel: Rests(
        ("before", "linear", "growth", "elementwise"),
        ("init", "after", "receive", "residual", "remembers"),
    ),
    Server: Rests((), ("init", "view", "step", "output")),
}
NO_CLAIM: dict[str, Any] = {"linear": False, "growth": unbounded}
NAMES = frozenset({"name", "params"})  # of other parts, all fields but these
_known: dict[Hashable, tuple[Any, bool]] = {}  # parts, and whether every event covers them
# estimators and local procedures that jaxfl made around a sampler of the user's own
_around: dict[Hashable, Any] = {}
_functions: dict[int, Any] = {}
_bodies: set[type] = set()
_convexity: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_kernels: weakref.WeakKeyDictionary[Any, tuple[Any, ...]] = weakref.WeakKeyDictionary()


def made(make: F) -> F:
    """Register what a constructor of jaxfl makes, and call it once for the same arguments.

    What it makes of a part or a function of the user's is not registered.
    """
    return _registering(make, alone=True)


def of_a_paper(make: F) -> F:
    """Return :func:`made` for parts that only the event of their paper covers."""
    return _registering(make, alone=False)


def _registering(make: F, alone: bool) -> F:
    signature = inspect.signature(make)

    @functools.wraps(make)
    def register(*args: Any, **options: Any) -> Any:
        part = make(*args, **options)
        given = [*signature.bind(*args, **options).arguments.values()]
        given = [v for v in given if not (type(v) is Mechanism and own_part(v, later=False))]
        if all(ours(v) or type(v) is Sampler or own_around(v) for v in given):
            _around[_key(part, True)] = part
        if all(map(ours, given)):  # events read what else a mechanism declares
            if type(part) is Compressor:
                own_function(part.bits)  # which no proof rests on
            _known[_key(part, True)] = _known[_key(part, False)] = part, alone
            if isinstance(part, Channel):  # a part made anew claims as little
                _known[_key(part._replace(**NO_CLAIM), False)] = part, alone
        return part

    return by_identity(register)  # type: ignore[return-value]


def body(kind: K) -> K:
    """Register a class of bodies of jaxfl."""
    _bodies.add(kind)
    return kind


def own_body(value: Any) -> bool:
    """Return whether the rounds of a body are those of a class of jaxfl, which nothing hides."""
    return type(value) in _bodies and not getattr(value, "__dict__", None)


def own_function(function: F) -> F:
    """Register a function of jaxfl that is passed to constructors."""
    _functions[id(function)] = function
    return function


def kernel(found: Kernel) -> Kernel:
    """Register a kernel that a constructor of jaxfl made, as long as it lives.

    Its loss may be the user's: a kernel clips the gradients of whatever loss.
    """
    first, *others = _of_kernel(found)
    _kernels[first] = id(first), *others
    return found


def known_convexity(model: Model) -> Model:
    """Register jaxfl's own L of a model, and whether losses and regularizer are convex."""
    factors = model.kernel.factors
    _convexity[factors] = id(factors), model.regularizer, model.convex, model.smoothness
    return model


def own_convexity(model: Model) -> bool:
    """Return whether convexity and smoothness of a model are jaxfl's statement, and not the user's."""
    factors = model.kernel.factors
    return _held(_convexity, factors, (model.regularizer, model.convex, model.smoothness))


def ours(value: Any) -> bool:
    """Return whether a value is plain data, or a part or a function that jaxfl registered."""
    kind = type(value)
    if kind in (tuple, Param, Recursion):  # other classes of tuples may have methods of their own
        return all(map(ours, value))
    return (
        is_plain(kind) or id(value) in _functions or (issubclass(kind, tuple) and own_part(value))
    )


def own_part(part: Any, later: bool = True, alone: bool = False) -> bool:
    """Return whether all that a proof rests on in a part is what one constructor of jaxfl put there.

    Without ``later``, only what acts before the noise counts.  With ``alone``, every event must cover
    the part.
    """
    if type(part) is Compressor and part.select is None and not later:
        return True  # it selects nothing, and its code acts on noised values
    found = _known.get(_key(part, later))
    return found is not None and (found[1] or not alone)


def own_bits(part: Compressor | Aggregation) -> bool:
    """Return whether the bits of messages are counted by what one constructor of jaxfl put in a part."""
    return own_part(part) and (type(part) is not Compressor or ours(part.bits))


def own_around(part: Any) -> bool:
    """Return whether a constructor of jaxfl made it around a sampler that may be the user's."""
    return type(part) in (Estimator, Local) and _key(part, True) in _around


def own_kernel(found: Kernel) -> bool:
    """Return whether a constructor of jaxfl made this kernel."""
    if type(found) is not Kernel:
        return False
    first, *others = _of_kernel(found)
    return _held(_kernels, first, tuple(others))


def _held(table: Any, function: Any, rest: tuple[Any, ...]) -> bool:
    """Return whether a table has this very function, whatever it is equal to, with the rest."""
    try:
        known = table.get(function)
    except TypeError:  # no function, and nothing that could be registered
        return False
    return identity(known) == identity((id(function), *rest))


def _of_kernel(found: Kernel) -> tuple[Any, ...]:
    return (
        *(found.factors, found.inner, found.scale, found.combine, found.contract),
        *(found.clip, found.link, found.layers, found.coordinates),
    )


def _key(part: Any, later: bool) -> Hashable:
    """Return the identity of what a proof rests on; a part inside counts with all that it rests on."""
    kind: Any = type(part)
    if kind in RESTS:
        rests = RESTS[kind]
        fields = rests.always + rests.later if later else rests.always
    else:
        fields = tuple(name for name in getattr(part, "_fields", ()) if name not in NAMES)
    values = (getattr(part, name) for name in fields)
    return kind, later, *(_key(v, True) if type(v) in RESTS else identity(v) for v in values)
