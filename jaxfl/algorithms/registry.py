"""The registry: algorithms, models, data sets and parts by name, and ``register`` for one's own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

from jaxfl.algorithms import (
    andrew,
    clip21,
    compressed,
    curator,
    decentralized,
    dicesgd,
    gao,
    hu,
    lowy,
    porter,
    reshef,
    soteriafl,
)
from jaxfl.algorithms.composition import clipping_as, stored
from jaxfl.algorithms.numbers import WAYS
from jaxfl.algorithms.paper import Paper
from jaxfl.algorithms.roles import ROLES, check_parts, named, names_of
from jaxfl.core.equations import EQUATIONS, equation_of
from jaxfl.core.errors import InputError, require, shown
from jaxfl.core.identity import by_identity
from jaxfl.core.params import closest, known
from jaxfl.core.types import Algorithm
from jaxfl.data.loaders import LOADERS, loader
from jaxfl.parts.aggregations import AGGREGATIONS
from jaxfl.parts.compressors import COMPRESSORS
from jaxfl.parts.sampling import PARTICIPATIONS, SAMPLERS
from jaxfl.problems.models import MODELS

__all__ = ["ALGORITHMS", "PAPERS", "PARTS", "algorithm", "of_a_file", "one_algorithm", "register"]

F = TypeVar("F", bound=Callable[..., Any])

PAPERS: tuple[Paper, ...] = tuple(
    folder.PAPER
    for folder in (
        soteriafl,
        hu,
        gao,
        reshef,
        curator,
        lowy,
        compressed,
        decentralized,
        porter,
        clip21,
        dicesgd,
        andrew,
    )
)
PARTS = frozenset({*ROLES, "storage", "clipping"})  # exchanged by name, among hyper-parameters
ALGORITHMS: dict[str, Callable[..., Algorithm]] = {}
TABLES: dict[str, dict[str, Callable[..., Any]]] = {  # of what has a name, by its kind
    "algorithm": ALGORITHMS,
    "model": MODELS,
    "data": LOADERS,
    "compressor": COMPRESSORS,
    "sampler": SAMPLERS,
    "participation": PARTICIPATIONS,
    "aggregation": AGGREGATIONS,
}
OWN_PARTS = {kind: frozenset(table) for kind, table in TABLES.items() if kind != "algorithm"}
OWN: frozenset[str] = frozenset()  # those that are not the user's


@overload
def register(constructor: str) -> Callable[[F], F]: ...
@overload
def register(constructor: F) -> F: ...
def register(constructor: Any) -> Any:
    """Make an algorithm known by its function's name, to ``simulate`` and to the command line.

    ``constructor`` is a function of parts, by keyword, that returns an :class:`Algorithm`; or it names
    another kind.  ``@register("model")`` is for a function that returns a :class:`Model`.  It takes
    (features, classes), two whole numbers, or (shape, classes) for examples that are no vectors:
    ``shape`` is a tuple.  ``@register("data")`` is for a function of a data set's options that returns a
    :class:`Dataset` to share among clients, or :class:`ClientData`.  Other kinds are ``"compressor"``,
    ``"sampler"``, ``"participation"`` and ``"aggregation"``.
    """
    if isinstance(constructor, str):
        known("kind to register", constructor, TABLES)
        return functools.partial(_register, constructor)
    return _register("algorithm", constructor)


def _register(kind: str, constructor: F) -> F:
    name, what = getattr(constructor, "__name__", ""), kind.replace("data", "data set")
    article = "an" if kind.startswith("a") else "a"
    if not callable(constructor) or not name.isidentifier():
        raise InputError(
            f"register takes the function that makes {article} {what}, under its name, not "
            f"{shown(constructor)}: write one with def."
        )
    if name in OWN_PARTS.get(kind, OWN):
        raise InputError(
            f"There is {article} {what} {name!r} already, one of jaxfl's: give your function another name."
        )
    needed = [
        each.name
        for each in inspect.signature(constructor).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    require(
        kind != "algorithm" or not needed,
        lambda: f"{name} needs {' and '.join(needed)}, and an algorithm is made by its name alone",
        "give defaults",
    )
    TABLES[kind][name] = loader(constructor) if kind == "data" else constructor
    if kind == "algorithm":
        EQUATIONS[name] = equation_of(inspect.getdoc(constructor) or "")
    return constructor


for _paper in PAPERS:
    for _constructor in _paper.algorithms:
        register(_constructor)
OWN = frozenset(ALGORITHMS)


def of_a_file() -> str:
    """What else an unknown algorithm of a command may be: one of the user's own."""
    mine = ", ".join(sorted(ALGORITHMS.keys() - OWN))
    named = f"of those that your code registers: {mine}"
    return f", or one {named if mine else 'of your own, which @register names in an --import FILE'}"


def algorithm(name: str, **parts: Any) -> Algorithm:
    """The algorithm of that name, with some of its parts exchanged.

    >>> from jaxfl.parts import compressors
    >>> dict(algorithm("cdp_sgd", compressor=compressors.qsgd()).parts)["compressor"]
    'qsgd'
    >>> dict(algorithm("cdp_sgd", compressor="qsgd+random_k").parts)["compressor"]
    'qsgd+random_k'
    >>> algorithm("soteriafl_sgb")
    Traceback (most recent call last):
        ...
    jaxfl.core.errors.InputError: There is no algorithm 'soteriafl_sgb': did you mean 'soteriafl_sgd'?

    ``storage`` is how what clients remember is kept: exact, or rounded to bfloat16 or float16.
    ``clipping`` is how all that the algorithm clips is clipped: hard, ``g min(1, G/|g|)``, or smooth,
    ``g G/(G + |g|)``; by default as in its paper.
    """
    storage, clipping = parts.pop("storage", "exact"), parts.pop("clipping", None)
    if not isinstance(name, str):
        raise InputError(
            f"name = {shown(name)} has to be the name of an algorithm, as in algorithm('cdp_sgd')."
        )
    if name not in ALGORITHMS:
        raise InputError(closest("algorithm", name, ALGORITHMS))
    make = ALGORITHMS[name]
    roles = names_of(make)
    for role in parts:
        if roles is not None and role not in roles:
            what = (
                f"needs a parameter: the function that makes {name} has no parameter named {role!r}"
            )
            usual = f'"{WAYS[role][0]}"' if role in WAYS else "..."
            way = f"let it take this part of its body, as in def {name}({role}={usual})"
            require(name in OWN, what, way, **{role: getattr(parts[role], "name", parts[role])})
            raise InputError(
                closest(f"part of {name} named", role, {*roles, "storage", "clipping"})
            )
    parts = named(parts)
    check_parts(name, parts)
    made = make(**parts) if name in OWN else _once(make, tuple(sorted(parts.items())))
    if not isinstance(made, Algorithm):
        raise InputError(f"{name} has to return an Algorithm, and returned {shown(made)}.")
    return stored(made if clipping is None else clipping_as(made, clipping), storage)


def _made(make: Callable[..., Algorithm], parts: tuple[tuple[str, Any], ...]) -> Algorithm:
    """Make an algorithm; equal calls give the same one, by which compiled programs are found again.

    It has the name of the function, also where that only changes a part of another algorithm.
    """
    made = make(**dict(parts))
    return made._replace(name=make.__name__) if isinstance(made, Algorithm) else made


_once = by_identity(_made, most=1024)


def one_algorithm(value: Algorithm | str, given: dict[str, Any] | None = None) -> Algorithm:
    """``value`` itself, or the algorithm of that name with the parts in ``given``, which it loses."""
    parts = {name: given.pop(name) for name in [*given] if name in PARTS} if given else {}
    mode = (given or {}).get("clip")
    name = value.name if isinstance(value, Algorithm) else value
    way = f"choose what is clipped by jaxfl.algorithm({name!r}, clip={mode!r})"
    require(not isinstance(mode, str), "must be a number, the bound G", way, clip=mode)
    if isinstance(value, Algorithm):
        way = f"make the algorithm with it, as in jaxfl.algorithm({value.name!r}, ...)"
        require(not parts, "comes too late for an algorithm that is made", way, **parts)
        return value
    if not isinstance(value, str):
        call = ": call it" if callable(value) else ", as in 'cdp_sgd'"
        raise InputError(
            f"algorithm = {shown(value)} has to be an Algorithm or the name of one{call}."
        )
    return algorithm(value, **parts)
