"""The canary, the worst record that an audit can plant, and the trajectory that an adversary sees.

One client holds m records; the loss of record a is ``s(x) a . x``, so that its gradient is
``s(x) a``.  All records but the canaries are zero, and a canary is so long that clipping makes it
exactly +-G along its direction.  The two worlds hold it with opposite signs.

``s = 1``, or for a *turning* canary a sign read from the bits of x, which an adversary who sees x
knows.  It differs from point to point, and so shows what estimators that compare two points (SVRG,
SAGA, SPIDER) or that repeat their noise would otherwise cancel.

The adversary sees the trajectory.  Where the server steps ``x <- x - eta v`` the increments are the
messages: ``v_t = (x_t - x_{t+1}) / eta``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.algorithms.resolution import build, resolve
from jaxfl.core.errors import require
from jaxfl.core.params import whole
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Algorithm, Array, Hyper, Key, Model, Problem, ProblemFacts, PyTree
from jaxfl.privacy.events import AnyEvent
from jaxfl.problems.facts import facts_of
from jaxfl.problems.kernels import linear_kernel

__all__ = [
    "EventLike",
    "Setup",
    "canary_model",
    "canary_problem",
    "prepare",
    "sign",
    "takes",
    "trajectory",
]

EventLike = AnyEvent | Callable[[Mapping[str, Any], ProblemFacts], AnyEvent]


class Setup(NamedTuple):
    """An algorithm with its hyper-parameters resolved on the canary's problem."""

    algorithm: Algorithm
    problem: Problem  # its records are all zero
    values: dict[str, Any]
    facts: ProblemFacts
    hp: Hyper
    event: AnyEvent | None
    step: npt.NDArray[np.float64]  # eta of each round, by which increments become messages
    clip: float


def takes(algorithm: Algorithm, name: str) -> bool:
    """Whether the algorithm has a hyper-parameter of that name."""
    return name in algorithm.names


def sign(x: Array) -> Array:
    """+1 or -1 by a hash of the first coordinate of x: any change of x may change it."""
    h = jax.lax.bitcast_convert_type(x[0].astype(jnp.float32), jnp.uint32)
    h = (h ^ (h >> 16)) * np.uint32(0x21F0AAAD)
    h = (h ^ (h >> 15)) * np.uint32(0x735A2D97)
    return jnp.where((h ^ (h >> 15)) & 1, 1.0, -1.0).astype(x.dtype)


@functools.lru_cache(maxsize=64)
def canary_model(dim: int, turning: bool) -> Model:
    """``f(x; a) = s(x) a . x``; s turns only for records that are marked."""

    def slope(x: Array, turns: Array) -> Array:
        return jnp.where(turns > 0, sign(jax.lax.stop_gradient(x)), 1.0).astype(x.dtype)

    def loss(x: Array, example: PyTree) -> Array:
        product: Array = jnp.dot(example[0], x)
        return slope(x, example[1]) * product if turning else product

    def factors(x: Array, batch: PyTree) -> Array:
        if turning:
            return slope(x, batch[1])
        return jnp.ones(batch[0].shape[0], x.dtype)

    return Model(
        name="canary",
        dim=dim,
        init=lambda key: jnp.zeros(dim),
        unravel=lambda x: x,
        loss=loss,
        regularizer=lambda x: jnp.zeros((), x.dtype),
        kernel=linear_kernel(lambda z, example: z)._replace(factors=factors),
    )


def canary_problem(m: int, dim: int, turning: bool) -> Problem:
    """One client with m records of zeros, x_0 = 0."""
    train: tuple[Any, ...] = (np.zeros((1, m, dim), np.float32),)
    if turning:
        train = (*train, np.zeros((1, m), np.float32))
    count, x0 = np.full(1, m, np.int32), np.zeros(dim, np.float32)
    train, count, x0 = jax.tree.map(jnp.asarray, (train, count, x0))
    return Problem(train, count, None, x0, canary_model(dim, turning), "canary")


def prepare(
    algorithm: Algorithm,
    m: int,
    dim: int,
    rounds: int,
    turning: bool,
    event: EventLike | None,
    numbers: Mapping[str, Any],
    noise: str = "calibrated",
) -> Setup:
    """Resolve the hyper-parameters on the canary's problem; the step size defaults to 1."""
    m, dim, rounds = whole("m", m, 1), whole("dim", dim, 1), whole("rounds", rounds, 1)
    problem = canary_problem(m, dim, turning)
    given = dict(numbers)
    if takes(algorithm, "lr"):
        given.setdefault("lr", 1.0)
    facts = facts_of(problem, rounds)
    values = resolve(algorithm, given, facts, noise).values
    hp = build(algorithm, values, facts, jnp.dtype(jnp.float32))
    if event is None:
        event = algorithm.event
    described = event(values, facts) if callable(event) else event
    lr, clip = values.get("lr", 1.0), float(values.get("clip", 1.0))
    step = lr.over(rounds) if isinstance(lr, Schedule) else np.full(rounds, float(lr))
    require(step.min() > 0, "must be above 0", "with no step nothing is released", lr=lr)
    return Setup(algorithm, problem, dict(values), facts, hp, described, step, clip)


def trajectory(algorithm: Algorithm, rounds: int, key: Key, problem: Problem, hp: Hyper) -> Array:
    """x_0, ..., x_T of one run, (T + 1, d).  Traced."""

    def step(state: PyTree, _: None) -> tuple[PyTree, Array]:
        state, _info = algorithm.round(key, state, problem, hp)
        return state, algorithm.output(state)

    state, _ = algorithm.init(key, problem, hp)
    _, x = jax.lax.scan(step, state, length=rounds)
    return jnp.concatenate([algorithm.output(state)[None], x])
