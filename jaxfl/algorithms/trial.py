"""A trial of the user's own parts before anything is compiled.

A round is traced once, on the shapes of the run, with parts whose functions are looked at
[:mod:`jaxfl.core.calls`]; samplers, compressors and participations then draw a few times.  What runs is the
composition as it is: the trial leaves nothing behind.  Compositions of jaxfl's own parts have none.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms.resolution import build
from jaxfl.core import provenance
from jaxfl.core.calls import alike, blamed, described, in_words, watched
from jaxfl.core.errors import InputError, require
from jaxfl.core.hosts import on_host
from jaxfl.core.identity import identity
from jaxfl.core.params import choice
from jaxfl.core.types import (
    SCHEMES,
    Algorithm,
    Compressor,
    Hyper,
    Mechanism,
    Participation,
    Problem,
    ProblemFacts,
    Sampler,
)
from jaxfl.problems.identity import dtype

__all__ = ["tried"]

DRAWS = 8
ROUNDING = 1e-5


def tried(
    algorithm: Algorithm, problem: Problem, values: Mapping[str, Any], facts: ProblemFacts
) -> None:
    """Raise for what a user's own parts return that a round with these values cannot read."""
    parts = _own(algorithm)
    if not parts and _composed(algorithm):
        return
    for part in parts.values():
        if isinstance(part, Sampler | Participation) and part.scheme is not None:
            choice(f"scheme of {in_words(part)}", part.scheme, SCHEMES)
    with blamed(f"The cost of {algorithm.name!r}"):
        algorithm.cost(values, facts)
    with blamed(f"The capacity of {algorithm.name!r}"):
        hp = build(algorithm, values, facts, dtype(problem))
    leaves, tree = jax.tree.flatten((problem, hp))
    _trace(algorithm, tree, tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in leaves))
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return
    for part in parts.values():
        _evaluate(part, problem, hp.at(jnp.int32(0)))


def _own(algorithm: Algorithm) -> dict[str, Any]:
    """The parts that jaxfl did not make, by their roles."""
    roles: Mapping[str, Any] = getattr(algorithm.body, "roles", {})
    return {
        role: part
        for role, part in roles.items()
        if part is not None and hasattr(part, "_fields") and not provenance.own_part(part)
    }


def _composed(algorithm: Algorithm) -> bool:
    """Whether rounds are those of a body of jaxfl's."""
    body = algorithm.body
    mine = identity((algorithm.init, algorithm.round, algorithm.output))
    return (
        body is not None
        and provenance.own_body(body)
        and mine == identity((body.init, body.round, body.output))
    )


@functools.lru_cache(maxsize=256)
def _trace(algorithm: Algorithm, tree: Any, shapes: tuple[jax.ShapeDtypeStruct, ...]) -> None:
    """Trace one round of parts that are looked at."""
    problem, hp = jax.tree.unflatten(tree, shapes)
    x = jax.ShapeDtypeStruct((problem.model.dim,), dtype(problem))
    rounds: Any = algorithm
    if _composed(algorithm):
        body: Any = algorithm.body
        own = {role: watched(part, x) for role, part in _own(algorithm).items()}
        rounds = body._replace(**{role: own[role] for role in own.keys() & {*body._fields}})
    key, name = jax.eval_shape(lambda: jax.random.key(0)), algorithm.name
    with blamed(f"The first state of {name!r}"):
        state, _ = jax.eval_shape(rounds.init, key, problem, hp)
    with blamed(f"A round of {name!r}"):
        after, _ = jax.eval_shape(rounds.round, key, state, problem, hp)
    require(
        alike(after, state),
        lambda: f"A round of {name!r} makes {described(after)} of the state {described(state)}",
        "let no shape or dtype change",
    )
    with blamed(f"The output of {name!r}"):
        out = jax.eval_shape(rounds.output, after)
    says = f"The output of {name!r} is {described(out)}"
    require(alike(out, x), says, lambda: f"return {described(x)}, as the model is")


# --- numbers -------------------------------------------------------------------------------------


def _evaluate(part: Any, problem: Problem, hp: Hyper) -> None:
    """Raise for draws that are out of range, and for noise that is not finite."""
    if isinstance(part, Sampler):
        least, most = (int(f(on_host(problem.count))) for f in (np.min, np.max))
        for count in {least, most}:
            _check_draws(
                part, "draw", _rows(part.draw, jnp.int32(count), problem.m_max, hp), count, 1.0
            )
    elif isinstance(part, Participation):
        _check_draws(part, "draw", _clients(part.draw, problem.n, hp), problem.n)
    elif isinstance(part, Compressor) and part.select is not None:
        _check_draws(
            part, "select", _coordinates(part.select, problem.model.dim, hp), problem.model.dim
        )
    elif isinstance(part, Mechanism) and part.std is not None:
        std = np.asarray(_number(part.std, hp))
        require(
            np.isfinite(std).all(),
            lambda: f"The std of the mechanism {part.name!r} is {std[~np.isfinite(std)][0]:g}",
            "return a finite number",
        )


def _keys() -> Any:
    return jax.random.split(jax.random.key(0), DRAWS)


@functools.partial(jax.jit, static_argnums=(0, 2))
def _rows(draw: Any, count: Any, m_max: int, hp: Hyper) -> Any:
    return jax.vmap(lambda key: draw(key, jnp.int32(0), count, m_max, hp))(_keys())


@functools.partial(jax.jit, static_argnums=(0, 1))
def _clients(draw: Any, n: int, hp: Hyper) -> Any:
    return jax.vmap(lambda key: draw(key, jnp.int32(0), n, hp))(_keys())


@functools.partial(jax.jit, static_argnums=(0, 1))
def _coordinates(select: Any, d: int, hp: Hyper) -> Any:
    return jax.vmap(lambda key: select(key, d, hp))(_keys())


@functools.partial(jax.jit, static_argnums=0)
def _number(f: Any, hp: Hyper) -> Any:
    return f(hp)


def _check_draws(part: Any, field: str, draws: Any, size: int, most: float | None = None) -> None:
    """Raise for a position beyond the collection, and for a weight that is negative or above ``most``."""
    weight = np.asarray(draws.weight, np.float64)
    said = f"The {field} of {in_words(part)} returns"
    wrong = weight[~(np.isfinite(weight) & (weight >= 0))]
    if most is not None:
        wrong = np.append(wrong, weight[weight > most + ROUNDING])
    if wrong.size:
        way = "return finite weights of at least 0" + ", and at most 1: 1/b of a draw of b" * bool(
            most
        )
        raise InputError(f"{said} the weight {wrong[0]:g}", way)
    if draws.index is None:
        return
    index = np.asarray(draws.index)
    beyond = index[(weight > 0) & ((index < 0) | (index >= size))]
    require(
        not beyond.size,
        lambda: f"{said} the position {beyond[0]}, and there are {size}",
        "return positions from 0 on, and the weight 0 in a slot that holds none",
    )
