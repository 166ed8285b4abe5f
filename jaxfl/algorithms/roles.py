"""The roles of an algorithm, and the types and names of their parts."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from jaxfl.algorithms.standing import ours
from jaxfl.core.errors import InputError, shown
from jaxfl.core.identity import by_identity
from jaxfl.core.types import (
    Aggregation,
    Algorithm,
    Channel,
    Compressor,
    Estimator,
    Local,
    Mechanism,
    Param,
    Participation,
    Sampler,
    Server,
)
from jaxfl.parts import aggregations, compressors, graphs, sampling
from jaxfl.parts.graphs import Graph

__all__ = ["BY_NAME", "ROLES", "cached", "check_parts", "named", "names_of", "part"]

# role: (what stands in it, how such a part is made)
ROLES: dict[str, tuple[type, str]] = {
    "estimator": (Estimator, "jaxfl.parts.estimators.minibatch(jaxfl.parts.sampling.poisson())"),
    "sampler": (Sampler, "jaxfl.parts.sampling.poisson()"),
    "mechanism": (Mechanism, "jaxfl.parts.mechanisms.gaussian()"),
    "compressor": (Compressor, "jaxfl.parts.compressors.compressor('qsgd')"),
    "channel": (Channel, "jaxfl.parts.channels.direct()"),
    "server": (Server, "jaxfl.parts.servers.descent()"),
    "participation": (Participation, "jaxfl.parts.sampling.everyone()"),
    "local": (Local, "jaxfl.parts.local.steps(...)"),
    "aggregation": (Aggregation, "jaxfl.parts.aggregations.secure_sum()"),
    "graph": (Graph, "jaxfl.parts.graphs.ring()"),
}


BY_NAME: dict[str, Callable[[str], Any]] = {  # the roles whose parts have names
    "compressor": compressors.compressor,
    "sampler": sampling.sampler,
    "participation": sampling.participation,
    "aggregation": aggregations.aggregation,
    "graph": graphs.graph,
}


@functools.cache
def _made(role: str, name: str) -> Any:
    """The part of that name, made once, since compiled rounds are found by their parts."""
    return BY_NAME[role](name)


def part(role: str, value: Any) -> Any:
    """The part of that name, as in ``part("sampler", "poisson")``; anything but a name stays."""
    return _made(role, value) if role in BY_NAME and isinstance(value, str) else value


def named(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts, those that are given by name among them."""
    return {role: part(role, value) for role, value in parts.items()}


def cached(make: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    """``make``, of one of jaxfl's papers: with its parts made of names first, and called once for each."""

    @functools.wraps(make)
    def own(*args: Any, **parts: Any) -> Algorithm:
        return ours(make(*args, **parts), paper=True)

    once = by_identity(own)

    @functools.wraps(make)
    def call(*args: Any, **parts: Any) -> Algorithm:
        return once(*args, **named(parts))

    return call


def check_parts(owner: str, parts: Mapping[str, Any]) -> None:
    """Raise unless every part fits its role."""
    for role, part in parts.items():
        if role not in ROLES or part is None:
            continue
        kind, way = ROLES[role]
        if isinstance(part, kind):
            _check_fields(owner, role, part)
            try:
                hash(part)  # by which compiled rounds are found again
                continue
            except TypeError as error:
                raise InputError(
                    f"{role} of {owner} has no hash ({error}): give tuples for lists."
                ) from error
        name, article = "a name or " if role in BY_NAME else "", "an" if role[0] in "ae" else "a"
        what = f"must be {name}{article} {kind.__name__}: give one, as in {role}={way}"
        if type(part) in (other for other, _ in ROLES.values()):
            what = f"is a {type(part).__name__}, and must be {article} {kind.__name__}, as {way}"
        elif callable(part):
            what = f"is a function, and must be the {kind.__name__} that it makes: call it"
        raise InputError(f"{role} = {shown(getattr(part, 'name', part))} of {owner} {what}.")


def _check_fields(owner: str, role: str, part: Any) -> None:
    """Raise unless functions are functions, and ``params`` are a tuple of :class:`Param`."""
    for name, kind in type(part).__annotations__.items():
        value, said = getattr(part, name), getattr(kind, "__forward_arg__", str(kind))
        fits, wanted = True, "function"
        if name == "params":
            fits, wanted = isinstance(value, tuple), "tuple of Param, as (Param(...),)"
            fits = fits and all(isinstance(one, Param) for one in value)
        elif said.startswith("Callable"):
            fits = callable(value) or (value is None and said.endswith("| None"))
        if not fits:
            what = f"{name} = {shown(value)} of the {role} {part.name!r} of {owner}"
            raise InputError(f"{what} must be a {wanted}.")


def names_of(constructor: Callable[..., Algorithm]) -> set[str] | None:
    """The names that a constructor takes; None: any."""
    parameters = inspect.signature(constructor).parameters.values()
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    rest = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
    if rest is None:
        return names
    hint = typing.get_type_hints(constructor).get(rest)
    (table,) = typing.get_args(hint) or (None,)  # Unpack[Parts]
    return names | set(table.__annotations__) if typing.is_typeddict(table) else None
