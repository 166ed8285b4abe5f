"""Local procedures: tau optimizer steps of a client on its own samples, instead of one estimate.

::

    theta <- x;  tau times:  theta <- step(theta, g + xi + pull),  xi ~ N(0, sigma^2 I)
    g = mean_{j in B} clip grad f_ij(theta) + grad regularizer(theta),   xi and B fresh in each step

The client reports ``x - theta``; a server step of 1 then takes the mean of the models.  A
:class:`Pull` keeps theta near x, or the clients near each other.  The client's optimizer restarts
in each round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxfl.core.checks import instance
from jaxfl.core.derivatives import loop
from jaxfl.core.provenance import made
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import (
    LARGEST,
    Array,
    Client,
    Draw,
    Estimator,
    Hyper,
    Local,
    Mechanism,
    MessageBound,
    Param,
    Problem,
    PyTree,
    Values,
)
from jaxfl.parts.gradients import at_point, evaluated
from jaxfl.parts.mechanisms import normal
from jaxfl.problems.clipping import clip
from jaxfl.problems.parameters import by_leaf, raveled

__all__ = ["LOCAL_LR", "LOCAL_STEPS", "Pull", "control", "free", "largest", "proximal", "steps"]

LOCAL_LR = Param("lr", "step size eta of a local step", high=LARGEST, schedule=True)
LOCAL_STEPS = Param("local_steps", "local steps tau of a client in a round", low=1, integer=True)
PROX = Param("prox", "weight mu of the pull back to the server's model")
UPDATE_CLIP = Param("update_clip", "bound S on the norm of what a client reports", open_low=True)


class Pull(NamedTuple):
    """A term of the local gradients, and its memory."""

    name: str
    init: Callable[[Problem, Array], tuple[PyTree, PyTree]]  # shared, and of each client
    at: Callable[[Array, Array, PyTree, PyTree, Hyper], Array] | None  # (x, theta, shared, own, hp)
    after: Callable[[Array, PyTree, PyTree, Hyper], PyTree]  # (x - theta, shared, own, hp) -> own
    close: Callable[[PyTree, Array, Array, Array, Hyper], PyTree] | None = None  # see Local
    params: tuple[Param, ...] = ()
    broadcasts: int = 1


@made
def free() -> Pull:
    """No term."""
    return Pull("free", _no_memory, None, lambda *_: ())


@made
def proximal() -> Pull:
    """mu (theta - x): clients minimise ``f_i + mu/2 |theta - x|^2``  [FedProx, Li et al., 2020]."""

    def at(x: Array, theta: Array, shared: PyTree, own: PyTree, hp: Hyper) -> Array:
        pull: Array = hp["prox"] * (theta - x)
        return pull

    return Pull("proximal", _no_memory, at, lambda *_: (), params=(PROX,))


@made
def control() -> Pull:
    """c - c_i  [SCAFFOLD, option II; Karimireddy et al., 2020]::

        c_i+ = c_i - c + (x - theta_i)/(tau eta)   (client, if it takes part),   c_i = 0 at first
        c <- c + (1/n) sum_S (c_i+ - c_i) = c + (r/n) (sum_S (x - theta_i)/(r tau eta) - |S| c/r)

    The second form needs only the sum of the messages; in the paper clients send c_i+ too.
    """

    def init(problem: Problem, x: Array) -> tuple[PyTree, PyTree]:
        return jnp.zeros_like(x), jnp.zeros((problem.n, x.size), x.dtype)

    def slope(g: Array, hp: Hyper) -> Array:
        mean: Array = g / (hp["local_steps"].astype(g.dtype) * hp["lr"])
        return mean

    def after(g: Array, c: Array, c_i: Array, hp: Hyper) -> Array:
        return c_i - c + slope(g, hp)

    def close(c: Array, mean: Array, rate: Array, total: Array, hp: Hyper) -> Array:
        return c + rate * (slope(mean, hp) - total * c)

    return Pull("control", init, lambda x, theta, c, c_i, hp: c - c_i, after, close, broadcasts=2)


@made
def steps(
    estimator: Estimator,
    mechanism: Mechanism,
    pull: Pull,
    optimizer: Callable[[Hyper], optax.GradientTransformation] | None = None,
    fresh: bool = False,
    bounded: bool = False,
    once: bool = False,
    last: bool = False,
) -> Local:
    """tau steps of ``optimizer(hp)`` (None: SGD) with the gradients of a memoryless estimator.

    The optimizer sees the model's pytree of parameters.
    Step s of a client's C-th turn draws batch ``C tau + s`` of its sampler's stream.  With shuffled
    samples, an epoch that a round leaves unfinished continues in the client's next turn: a client
    uses a record once per epoch, whatever its rounds are.  ``fresh`` starts a new epoch in every
    round instead.  ``bounded`` clips the report to ``update_clip``, ``once`` fixes
    tau = 1, and ``last`` adds the noise to the report, and not in every step.
    """
    instance("estimator", estimator, Estimator, "take estimators.minibatch(sampling.shuffled())")
    instance("mechanism", mechanism, Mechanism, "take mechanisms.noiseless() for no noise")
    instance("pull", pull, Pull, "take local.free() for no pull")
    sgd, make = optimizer is None, optimizer or (lambda hp: optax.sgd(hp["lr"]))
    # XLA copies weights out of a flat point in each step, and flat noise into the parts of another
    noisy = not (mechanism.std is None or mechanism.central or last)

    def init(problem: Problem, x: Array) -> tuple[PyTree, PyTree]:
        shared, own = pull.init(problem, x)
        return shared, (jnp.zeros(problem.n, jnp.int32), own)

    def run(
        client: Client, x: Array, shared: PyTree, memory: PyTree, problem: Problem, hp: Hyper
    ) -> tuple[Array, PyTree, Array]:
        turns, own = memory
        model, tau = problem.model, jnp.int32(1) if once else hp["local_steps"]
        most = 1 if once else hp.caps.get("local_steps")
        stream = jax.random.fold_in(client.rows, turns) if fresh else client.rows
        first = 0 if fresh else turns * tau

        def seen(a: Array) -> PyTree:
            return a if sgd and (pull.at is not None or noisy) else by_leaf(model, a)

        def draw(s: Array) -> Draw:
            rows = estimator.sampler.draw(stream, first + s, client.count, problem.m_max, hp)
            return Draw(rows.index, rows.weight.astype(x.dtype))

        def step(s: Array, carry: tuple[PyTree, PyTree, Array]) -> tuple[PyTree, PyTree, Array]:
            leaves, memory, used = carry
            theta = raveled(leaves)
            rows = draw(s)
            point = at_point(estimator.gradient, model, (), theta, hp)
            key = jax.random.fold_in(client.points, s)
            g, _ = evaluated(point, rows.weight, client.take(rows), key)
            term = 0 if pull.at is None else pull.at(x, theta, shared, own, hp)
            g = g + point.public + term
            if noisy:
                g = g + normal(jax.random.fold_in(client.noise, s), mechanism, g, hp)
            update, memory = make(hp).update(seen(g), memory, leaves)
            return optax.apply_updates(leaves, update), memory, used + (rows.weight > 0)

        used = jnp.zeros(jax.eval_shape(draw, tau).weight.shape, jnp.int32)  # of each slot
        leaves, _, used = loop(tau, most, step, (seen(x), make(hp).init(seen(x)), used))
        g = x - raveled(leaves)
        own = pull.after(g, shared, own, hp)
        g = clip(g, hp["update_clip"], model.kernel.smooth) if bounded else g
        g = g + normal(client.noise, mechanism, g, hp) if last else g
        return g, (turns + 1, own), jnp.sum(used, dtype=jnp.int32)

    def message_bound(values: Values) -> MessageBound:
        if bounded:
            return float(values["update_clip"]), float(values["sigma"]) if last else 0.0
        if not sgd:
            return None
        eta, tau = largest(values["lr"], values["rounds"]), float(values.get("local_steps", 1))
        sigma = 0.0 if mechanism.std is None or mechanism.central else float(values["sigma"])
        longest = values["clip"] * values.get("slots", 1) / values.get("batch", 1)
        clip = longest if estimator.sampler.padded else values["clip"]
        return eta * tau * float(clip), eta * np.sqrt(tau) * sigma

    more = [LOCAL_STEPS] * (not once) + [UPDATE_CLIP] * bounded
    return Local(
        f"{'sgd' if sgd else 'optax'}, {pull.name}{', fresh epochs' if fresh else ''}",
        init,
        run,
        message_bound,
        close=pull.close,
        params=(*estimator.params, LOCAL_LR, *pull.params, *more),
        broadcasts=pull.broadcasts,
    )


def largest(value: Any, rounds: int) -> float:
    """The value, or the largest value of a schedule over the rounds."""
    return float(value.over(int(rounds)).max() if isinstance(value, Schedule) else value)


def _no_memory(problem: Problem, x: Array) -> tuple[PyTree, PyTree]:
    return (), ()
