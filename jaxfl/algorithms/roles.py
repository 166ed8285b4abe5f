"""What may stand in each role of an algorithm."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from jaxfl.core.errors import InputError, shown
from jaxfl.core.types import (
    Aggregation,
    Algorithm,
    Channel,
    Compressor,
    Estimator,
    Local,
    Mechanism,
    Participation,
    Sampler,
    Server,
)
from jaxfl.parts.graphs import Graph

__all__ = ["ROLES", "check_parts", "names_of"]

# role: (what stands in it, how such a part is made)
ROLES: dict[str, tuple[type, str]] = {
    "estimator": (Estimator, "jaxfl.estimators.minibatch(jaxfl.sampling.poisson())"),
    "sampler": (Sampler, "jaxfl.sampling.poisson()"),
    "mechanism": (Mechanism, "jaxfl.mechanisms.gaussian()"),
    "compressor": (Compressor, "jaxfl.compressors.compressor('qsgd')"),
    "channel": (Channel, "jaxfl.channels.direct()"),
    "server": (Server, "jaxfl.servers.descent()"),
    "participation": (Participation, "jaxfl.sampling.everyone()"),
    "local": (Local, "jaxfl.local.steps(...)"),
    "aggregation": (Aggregation, "jaxfl.aggregations.secure_sum()"),
    "graph": (Graph, "jaxfl.graphs.ring()"),
}


def check_parts(owner: str, parts: Mapping[str, Any]) -> None:
    """Raise unless every part fits its role."""
    for role, part in parts.items():
        if role not in ROLES or part is None or (role == "graph" and isinstance(part, str)):
            continue  # graphs have names
        kind, way = ROLES[role]
        if isinstance(part, kind):
            try:
                hash(part)  # by which compiled rounds are found again
                continue
            except TypeError as error:
                raise InputError(
                    f"{role} of {owner} has no hash ({error}): give tuples for lists."
                ) from error
        what = f"must be a {kind.__name__}: give one, as in {role}={way}"
        if type(part) in (other for other, _ in ROLES.values()):
            what = f"is a {type(part).__name__}, and must be a {kind.__name__}, as {way}"
        elif callable(part):
            what = f"is a function, and must be the {kind.__name__} that it makes: call it"
        raise InputError(f"{role} = {shown(getattr(part, 'name', part))} of {owner} {what}.")


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
