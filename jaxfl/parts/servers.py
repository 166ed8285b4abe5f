"""Servers: steps with the estimate v of the gradient."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import optax

from jaxfl.core.provenance import made
from jaxfl.core.types import LARGEST, Array, Hyper, Key, Model, Param, Project, PyTree, Server
from jaxfl.problems.parameters import by_leaf, raveled

__all__ = ["LR", "averaging", "descent", "majority", "normalized", "optimizer"]


LR = Param("lr", "step size eta of the server", high=LARGEST, schedule=True)
TIE = 5e-6  # half the least majority of 100,000 votes; rounding leaves some 1e-8 of a tie
BETA = Param("beta", "weight beta of the average of earlier votes", high=1.0, open_high=True)
SERVER_LR = Param("server_lr", "server step size: 1 takes the mean of the models", high=LARGEST)


@made
def optimizer(
    make: Callable[[Hyper], optax.GradientTransformation],
    params: tuple[Param, ...] = (LR,),
    name: str = "optax",
    model: Model | None = None,
) -> Server:
    """An optax transform of v, then the projection onto the problem's constraint set, if any.

    ``make`` builds the transform, an ``optax.GradientTransformation``, from traced values, as
    ``lambda hp: optax.adam(hp["lr"])``.  ``params`` are all the hyper-parameters that it reads, and replace
    the default ``(LR,)``: to keep ``lr`` next to another, give both, as in
    ``params=(servers.LR, Param("beta", "decay of the momentum", high=1.0))``.  ``make`` sees flat vectors,
    or with the problem's ``model`` its pytree of parameters: layers may have rates, transforms and masks of
    their own, as with ``optax.multi_transform``.
    """

    def seen(a: Array) -> PyTree:
        return a if model is None else by_leaf(model, a)

    def init(x: Array, hp: Hyper) -> PyTree:
        return x, make(hp).init(seen(x))

    def step(key: Key, state: PyTree, v: Array, project: Project, hp: Hyper) -> PyTree:
        x, memory = state
        update, memory = make(hp).update(seen(v), memory, seen(x))
        x = jnp.asarray(optax.apply_updates(x, update if model is None else raveled(update)))
        return (x if project is None else project(x)), memory

    return Server(name, init, lambda state: state[0], step, lambda state: state[0], params)


@made
def descent() -> Server:
    """x <- Pi(x - eta v)."""
    return optimizer(lambda hp: optax.sgd(hp["lr"]), name="descent")


@made
def normalized(length: Param = LR) -> Server:
    """x <- Pi(x - eta v/|v|), with the hyper-parameter ``length`` for eta."""

    def unit(v: PyTree, _: PyTree) -> PyTree:
        return v / jnp.sqrt(jnp.sum(v * v) + 1e-37)  # a v of zeros stays

    def make(hp: Hyper) -> optax.GradientTransformation:
        return optax.chain(optax.stateless(unit), optax.sgd(hp[length.name]))

    return optimizer(make, (length,), "normalized")


@made
def majority(momentum: bool = False) -> Server:
    """x <- Pi(x - eta sign(v)) for the mean v of votes +-1; a tie moves nothing  [Bernstein et al., 2018].

    With r voters of equal weight v is a multiple of 1/r up to rounding, which must not decide ties:
    |v| < 5e-6 counts as one, which is exact for up to 100,000 voters.  With ``momentum`` the server
    takes the sign of an average, m <- beta m + (1 - beta) v with m = 0 at first and ties as v = 0, for the
    hyper-parameter ``beta``; beta = 0 is the server without.
    """

    def votes(v: PyTree, _: PyTree) -> PyTree:
        return jnp.where(jnp.abs(v) < TIE, 0, v)

    def sign(m: PyTree, _: PyTree) -> PyTree:
        return jnp.sign(m)

    def make(hp: Hyper) -> optax.GradientTransformation:
        average = optax.ema(hp["beta"], debias=False) if momentum else optax.identity()
        return optax.chain(
            optax.stateless(votes), average, optax.stateless(sign), optax.sgd(hp["lr"])
        )

    return optimizer(make, (LR, BETA) if momentum else (LR,), "majority")


@made
def averaging() -> Server:
    """x <- Pi(x - eta_g v): for v = mean_i (x - theta_i) and eta_g = 1 the mean of the models."""
    return optimizer(lambda hp: optax.sgd(hp["server_lr"]), (SERVER_LR,), "averaging")
