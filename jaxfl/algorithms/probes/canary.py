"""The canary, the worst record that an attack can plant, and what an adversary sees.

Each client holds m records; the loss of record a is ``s(x) a . x``, and its gradient is
``s(x) a``.  All records are zero, except for those that an attack plants.  A canary is so long that
clipping makes it exactly +-G along its direction.  The two worlds hold it with opposite signs.

``turning`` chooses s.  A changing s reveals what estimators that compare two points (SVRG, SAGA, SPIDER)
or that repeat their noise would otherwise cancel:

* False: ``s = 1``
* True: a sign read from the bits of x, which an adversary who sees x knows
* "once": -1 at the initial point 0, and 1 at all others
* E, a whole number: -1 in the rounds 0, E, 2E, ..., and 1 in all others.  A public regularizer moves
  the second coordinate of x by one tick per round: s is a function of x.  With E the length of
  an epoch, the gradients at a snapshot and at later points have opposite signs.

The adversary sees the points at which gradients are evaluated, which are more than the output where
that is a random iterate or an average, and the messages of the first client, or the sum that hides them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.types import Algorithm, Array, Hyper, Key, Model, Problem, PyTree
from jaxfl.problems.kernels import linear_kernel

__all__ = ["canary_model", "canary_problem", "observed", "plays", "sign", "trajectory"]

TICK = 1e4  # steps by which a round moves the clock, far more than noise does
Turning: TypeAlias = bool | int | Literal["once"]


@functools.lru_cache(maxsize=64)
def sign(turning: Turning, lr: float = 1.0) -> Callable[[Array], Array]:
    """s(x), a function of x alone."""

    def by_bits(x: Array) -> Array:
        h = jax.lax.bitcast_convert_type(x[0].astype(jnp.float32), jnp.uint32)
        h = (h ^ (h >> 16)) * np.uint32(0x21F0AAAD)
        h = (h ^ (h >> 15)) * np.uint32(0x735A2D97)
        return jnp.where((h ^ (h >> 15)) & 1, 1.0, -1.0).astype(x.dtype)

    def by_clock(x: Array) -> Array:
        now = jnp.round(x[-1] / (TICK * lr))
        return jnp.where(now % int(turning) == 0, -1.0, 1.0).astype(x.dtype)

    def once(x: Array) -> Array:
        return jnp.where(jnp.any(x != 0), 1.0, -1.0).astype(x.dtype)

    if turning == "once":
        return once
    if isinstance(turning, bool):
        return by_bits if turning else lambda x: jnp.ones((), x.dtype)
    return by_clock


@functools.lru_cache(maxsize=64)
def canary_model(dim: int, turning: Turning, lr: float = 1.0) -> Model:
    """``f(x; a) = s(x) a . x``; s turns only for records that are marked."""

    def slope(x: Array, turns: Array) -> Array:
        s = sign(turning, lr)(jax.lax.stop_gradient(x))
        return jnp.where(turns > 0, s, 1.0).astype(x.dtype)

    clock = 0.0 if isinstance(turning, bool | str) else TICK

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
        regularizer=lambda x: -clock * x[-1],
        kernel=linear_kernel(lambda z, example: z)._replace(factors=factors),
    )


def canary_problem(n: int, m: int, dim: int, turning: Turning, lr: float = 1.0) -> Problem:
    """n clients with m records of zeros each, x_0 = 0."""
    train: tuple[Any, ...] = (np.zeros((n, m, dim), np.float32),)
    if turning:
        train = (*train, np.zeros((n, m), np.float32))
    count, x0 = np.full(n, m, np.int32), np.zeros(dim, np.float32)
    train, count, x0 = jax.tree.map(jnp.asarray, (train, count, x0))
    return Problem(train, count, None, x0, canary_model(dim, turning, lr), "canary")


def plays(algorithm: Algorithm) -> bool:
    """Whether the rounds are those of the body."""
    body: Any = algorithm.body
    return body is not None and (algorithm.init, algorithm.round) == (body.init, body.round)


def trajectory(algorithm: Algorithm, rounds: int, key: Key, problem: Problem, hp: Hyper) -> Array:
    """The points x_0, ..., x_T of one run that the adversary sees, (T + 1, nodes, d).  Traced.

    They are where gradients are evaluated: the server's point, or the point of each node.
    """
    return observed(algorithm, rounds, key, problem, hp, listens=False)[0]


def observed(
    algorithm: Algorithm,
    rounds: int,
    key: Key,
    problem: Problem,
    hp: Hyper,
    *,
    listens: bool,
    summed: bool = False,
    client: Array | int = 0,
) -> tuple[Array, Any]:
    """The points, and what one client sends, (T, 1, d) and 0 where it is absent.

    If messages are ``summed``, it is their mean.
    """
    body: Any = algorithm.body

    def seen(state: PyTree) -> Array:
        if body is None:
            return algorithm.output(state)[None]
        points: Array = body.points(state)
        return points

    def sent(state: PyTree) -> Any:
        if not listens:
            return ()
        view = body.view(key, state, problem, hp)
        if summed:
            return view.mean[None]
        its = (view.clients == client) & (view.weight > 0)
        return jnp.sum(jnp.where(its[:, None], view.messages, 0), axis=0)[None]

    def step(state: PyTree, _: None) -> tuple[PyTree, Any]:
        message = sent(state)
        state, _info = algorithm.round(key, state, problem, hp)
        return state, (seen(state), message)

    state, _ = algorithm.init(key, problem, hp)
    _, (x, messages) = jax.lax.scan(step, state, length=rounds)
    return jnp.concatenate([seen(state)[None], x]), messages
