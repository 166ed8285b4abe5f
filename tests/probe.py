"""What clients send when the model follows a path of one's choice, whatever they send."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.core.types import Problem, Server
from jaxfl.problems.facts import facts_of


def following(path: np.ndarray) -> Server:
    """A server that shows ``path[t]`` in round t, and keeps the mean messages."""
    points = jnp.asarray(path)

    def init(x: jax.Array, hp: Any) -> Any:
        return jnp.int32(0), jnp.zeros_like(points)

    def step(key: Any, state: Any, v: jax.Array, project: Any, hp: Any) -> Any:
        t, seen = state
        return t + 1, seen.at[t].set(v)

    return Server("probe", init, lambda s: points[s[0]], step, lambda s: points[s[0]])


def sent(
    algorithm: jaxfl.parts.Algorithm, problems: Sequence[Problem], path: np.ndarray, **numbers: Any
) -> np.ndarray:
    """The mean message of every round on every problem: what the channel makes of it is left out.

    All problems are of one shape.
    """
    body = algorithm.body
    body = body._replace(
        server=following(path), channel=jaxfl.parts.channels.direct(), aggregation=None
    )
    facts = facts_of(problems[0], len(path))
    values = jaxfl.algorithms.resolution.resolve(algorithm, numbers, facts).values
    hp = build(algorithm, values, facts, jnp.float32)
    key = jax.random.key(0)

    @jax.jit
    def run(problem: Problem) -> jax.Array:
        state, _ = body.init(key, problem, hp)
        step = lambda _, state: body.round(key, state, problem, hp)[0]  # noqa: E731
        return jax.lax.fori_loop(0, len(path), step, state).server[1]

    return np.asarray([run(problem) for problem in problems], float)


def steep(signs: np.ndarray, d: int = 3) -> Problem:
    """Clients whose gradients are (sign * 1000, 0, ...), wherever the model is: signs (n, m)."""
    n, m = signs.shape
    a = np.zeros((n, m, d), np.float32)
    a[..., 0] = 1000 * signs
    data = jaxfl.data.from_clients((a, np.full((n, m), -1e6, np.float32)), stacked=True)
    return jaxfl.Problem(jaxfl.models.absolute(d), data, x0=np.zeros(d, np.float32))


def kinked(sign: float, n: int = 3, m: int = 6) -> Problem:
    """All gradients are zero but those of client 0's first record, 1000 sign sgn(x)."""
    a = np.zeros((n, m, 1), np.float32)
    a[0, 0] = 1000 * sign
    data = jaxfl.data.from_clients((a, np.zeros((n, m), np.float32)), stacked=True)
    return jaxfl.Problem(jaxfl.models.absolute(1), data, x0=np.ones(1, np.float32))


def steps(
    algorithm: jaxfl.parts.Algorithm, problem: jaxfl.Problem, keys: jax.Array, **numbers: float
):
    """x_1 - x_0 over many seeds."""
    facts = facts_of(problem, 10)
    values = jaxfl.algorithms.resolution.resolve(algorithm, numbers, facts).values
    hp = build(algorithm, values, facts, jnp.float32)
    state, _ = algorithm.init(keys[0], problem, hp)

    def step(key: jax.Array) -> jax.Array:
        return algorithm.output(algorithm.round(key, state, problem, hp)[0]) - problem.x0

    return np.asarray(jax.jit(jax.vmap(step))(keys), float)


def scale_is(draws: np.ndarray, std: float) -> bool:
    """Whether independent N(0, std^2) explains the draws: sum of squares within 5 deviations."""
    z = draws / std
    return abs((z**2).sum() - z.size) < 5 * np.sqrt(2 * z.size)
