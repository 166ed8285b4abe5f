"""Servers whose output is not the last iterate: averages, and iterates drawn at random."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxfl.core.provenance import made
from jaxfl.core.types import Array, Hyper, Key, Param, Project, PyTree, Server
from jaxfl.parts.servers import LR, descent
from jaxfl.problems.clipping import clip

__all__ = ["WEIGHT_POWER", "anytime", "averaged", "limited", "sampled"]

STEP_LIMIT = Param("step_limit", "length that no step exceeds", open_low=True)
WEIGHT_POWER = Param(
    "weight_power", "power p of the weights alpha_t, which grow as t^p, in the average", high=4.0
)


def within(project: Project, start: Array, hp: Hyper) -> Callable[[Array], Array]:
    """The projection onto the problem's set, or onto the ball of diameter D around the start."""
    if project is not None:
        return project
    return lambda w: start + clip(w - start, hp["diameter"] / 2)


@made
def anytime() -> Server:
    """Anytime averaging [Cutkosky, 2019; Reshef, Levy, Section 3.1]::

        w <- Pi_K(w - eta q)
        x_{t+1} = (1 - alpha_{t+1}/alpha_{1:t+1}) x_t + alpha_{t+1}/alpha_{1:t+1} w,   output x_T

    With alpha_t = Gamma(t+p)/(Gamma(t) Gamma(1+p)), which is t for p = 1 [Algorithms 1 and 2] and grows
    as t^p, ``alpha_{t+1}/alpha_{1:t+1} = (p+1)/(t+1+p)``.  Clients evaluate at the average x_t.
    """

    def init(x: Array, hp: Hyper) -> PyTree:
        return jnp.int32(1), x, x, x, x  # t, the start, w, x_t, x_{t-1}

    def step(key: Key, state: PyTree, v: Array, project: Project, hp: Hyper) -> PyTree:
        t, start, w, x, _ = state
        w = within(project, start, hp)(w - hp["lr"] * v)
        p = hp["weight_power"]
        weight = (p + 1) / (t.astype(x.dtype) + 1 + p)
        return t + 1, start, w, (1 - weight) * x + weight * w, x

    return Server("anytime", init, lambda s: s[3], step, lambda s: s[4], (LR, WEIGHT_POWER))


@made
def averaged() -> Server:
    """x <- Pi_K(x - eta v); the output is the mean of the points x_1 ... x_T that clients saw."""

    def init(x: Array, hp: Hyper) -> PyTree:
        return jnp.int32(0), x, x, x  # t, the start, x, their mean

    def step(key: Key, state: PyTree, v: Array, project: Project, hp: Hyper) -> PyTree:
        t, start, x, mean = state
        mean = mean + (x - mean) / (t + 1).astype(x.dtype)
        return t + 1, start, within(project, start, hp)(x - hp["lr"] * v), mean

    return Server("averaged", init, lambda s: s[2], step, lambda s: s[3], (LR,))


@made
def limited() -> Server:
    """x <- Pi(x - min(eta, l/|v|) v): no step is longer than l.

    DP-SRM's step [Algorithm 1] has eta = 1/(2 n0 L) and l = zeta/(n0 L).
    """
    plain = descent()

    def step(key: Key, state: PyTree, v: Array, project: Project, hp: Hyper) -> PyTree:
        # eta min(1, (l/eta)/|v|)
        short = clip(v, hp["step_limit"] / hp["lr"])
        return plain.step(key, state, short, project, hp)

    return plain._replace(name="limited", step=step, params=(LR, STEP_LIMIT))


@made
def sampled(
    server: Server, weight: Callable[[Hyper], Array] | None = None, first: bool = True
) -> Server:
    """``server`` with a random iterate as its output.

    Whenever the run stops, x_k is the output with probability in proportion to its ``weight``
    (None: equal weights): each new point replaces the stored one with probability
    ``weight_k / (weight_0 + ... + weight_k)``.  The points are those that clients saw,
    x_0 ... x_{T-1}, or with ``first=False`` those after each step, x_1 ... x_T.
    """

    def init(x: Array, hp: Hyper) -> PyTree:
        return server.init(x, hp), jnp.zeros((), x.dtype), x  # the server, sum of weights, kept

    def step(key: Key, state: PyTree, v: Array, project: Project, hp: Hyper) -> PyTree:
        inner, total, kept = state
        walk, pick = jax.random.split(key)
        after = server.step(walk, inner, v, project, hp)
        w = jnp.ones_like(total) if weight is None else weight(hp).astype(total.dtype)
        total = total + w
        taken = jax.random.uniform(pick, (), total.dtype) * total < w
        return after, total, jnp.where(taken, server.view(inner if first else after), kept)

    return Server(
        f"{server.name}, a random iterate",
        init,
        lambda s: server.view(s[0]),
        step,
        lambda s: s[2],
        server.params,
    )
