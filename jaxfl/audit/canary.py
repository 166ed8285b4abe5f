"""The canary, the worst record that an audit can plant, and the trajectory that an adversary sees.

Each client holds m records; the loss of record a is ``s(x) a . x``, so that its gradient is
``s(x) a``.  All records are zero, except for those that an audit plants.  A canary is so long that clipping
makes it exactly +-G along its direction.  The two worlds hold it with opposite signs.

``turning`` chooses s.  A changing s reveals what estimators that compare two points (SVRG, SAGA, SPIDER)
or that repeat their noise would otherwise cancel:

* False: ``s = 1``
* True: a sign read from the bits of x, which an adversary who sees x knows
* E, a whole number: -1 in the rounds 0, E, 2E, ..., and 1 in all others.  A public regularizer moves
  the second coordinate of x by one tick per round, so that s is a function of x.  With E the length of
  an epoch, the gradients at a snapshot and at later points have opposite signs.

The adversary sees the points at which gradients are evaluated, which are more than the output where
that is a random iterate or an average.  Where the server steps ``x <- x - eta v`` the increments are
the messages: ``v_t = (x_t - x_{t+1}) / eta``.  Of parts that are not jaxfl's an audit computes the
messages, and the adversary sees those of the first client itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.algorithms.composition import by_messages
from jaxfl.algorithms.resolution import build, resolve
from jaxfl.algorithms.standing import standing
from jaxfl.core.errors import require
from jaxfl.core.params import whole
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Algorithm, Array, Hyper, Key, Model, Problem, ProblemFacts, PyTree
from jaxfl.privacy.events import AnyEvent, NoClaim, Stated, Unproven, described, released
from jaxfl.problems.facts import facts_of
from jaxfl.problems.kernels import linear_kernel

__all__ = [
    "EventLike",
    "Setup",
    "canary_model",
    "canary_problem",
    "observed",
    "plays",
    "prepare",
    "sign",
    "takes",
    "trajectory",
]

TICK = 1e4  # steps by which a round moves the clock, far more than noise does
EventLike = AnyEvent | Callable[[Mapping[str, Any], ProblemFacts], AnyEvent]


class Setup(NamedTuple):
    """An algorithm with its hyper-parameters resolved on the canary's problem."""

    algorithm: Algorithm
    problem: Problem  # its records are all zero
    values: dict[str, Any]
    facts: ProblemFacts
    hp: Hyper
    event: AnyEvent | None  # that is described, whether it is proven or not
    sign: Callable[[Array], Array]  # s(x)
    step: npt.NDArray[np.float64]  # eta of each round, by which increments become messages
    clip: float
    released: AnyEvent | None  # the same event, with what says that nothing is proven
    listens: bool  # whether the adversary sees the first client's messages

    @property
    def unit(self) -> npt.NDArray[np.float64]:
        """What divides the observed in each round: a message of local steps is an increment, too."""
        body = self.algorithm.body
        whole = self.listens and body is not None and body.local is None
        return np.ones_like(self.step) if whole else self.step

    @property
    def proven(self) -> bool:
        """Whether a proof rests on the event."""
        return not (self.released is None or isinstance(self.released, NoClaim | Unproven | Stated))


def takes(algorithm: Algorithm, name: str) -> bool:
    """Whether the algorithm has a hyper-parameter of that name."""
    return name in algorithm.names


@functools.lru_cache(maxsize=64)
def sign(turning: bool | int, lr: float = 1.0) -> Callable[[Array], Array]:
    """s(x), a function of x alone."""

    def by_bits(x: Array) -> Array:
        h = jax.lax.bitcast_convert_type(x[0].astype(jnp.float32), jnp.uint32)
        h = (h ^ (h >> 16)) * np.uint32(0x21F0AAAD)
        h = (h ^ (h >> 15)) * np.uint32(0x735A2D97)
        return jnp.where((h ^ (h >> 15)) & 1, 1.0, -1.0).astype(x.dtype)

    def by_clock(x: Array) -> Array:
        now = jnp.round(x[-1] / (TICK * lr))
        return jnp.where(now % turning == 0, -1.0, 1.0).astype(x.dtype)

    if isinstance(turning, bool):
        return by_bits if turning else lambda x: jnp.ones((), x.dtype)
    return by_clock


@functools.lru_cache(maxsize=64)
def canary_model(dim: int, turning: bool | int, lr: float = 1.0) -> Model:
    """``f(x; a) = s(x) a . x``; s turns only for records that are marked."""

    def slope(x: Array, turns: Array) -> Array:
        s = sign(turning, lr)(jax.lax.stop_gradient(x))
        return jnp.where(turns > 0, s, 1.0).astype(x.dtype)

    clock = 0.0 if isinstance(turning, bool) else TICK

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


def canary_problem(n: int, m: int, dim: int, turning: bool | int, lr: float = 1.0) -> Problem:
    """n clients with m records of zeros each, x_0 = 0."""
    train: tuple[Any, ...] = (np.zeros((n, m, dim), np.float32),)
    if turning:
        train = (*train, np.zeros((n, m), np.float32))
    count, x0 = np.full(n, m, np.int32), np.zeros(dim, np.float32)
    train, count, x0 = jax.tree.map(jnp.asarray, (train, count, x0))
    return Problem(train, count, None, x0, canary_model(dim, turning, lr), "canary")


def prepare(
    algorithm: Algorithm,
    m: int,
    dim: int,
    rounds: int,
    turning: bool | int,
    event: EventLike | None,
    numbers: Mapping[str, Any],
    noise: str = "calibrated",
    clients: int = 1,
) -> Setup:
    """Resolve the hyper-parameters on the canary's problem; the step size defaults to 1."""
    m, dim, rounds = whole("m", m, 1), whole("dim", dim, 1), whole("rounds", rounds, 1)
    given, pace = dict(numbers), 1.0
    if takes(algorithm, "lr"):
        given.setdefault("lr", 1.0)
    if not isinstance(turning, bool):
        turning, dim, lr = whole("turning", turning, 2), max(dim, 2), given.get("lr")
        remedy = "give lr one number, or turning true or false"
        clock = isinstance(lr, int | float)
        require(clock, "needs a clock, which a constant lr drives", remedy, turning=turning)
        pace = float(given["lr"])
    if dim == 1 and takes(algorithm, "k") and "omega" not in given:
        given.setdefault("k", 1)  # the only one there is
    problem = canary_problem(whole("clients", clients, 1), m, dim, turning, pace)
    facts = facts_of(problem, rounds)
    values = resolve(algorithm, given, facts, noise).values
    hp = build(algorithm, values, facts, jnp.dtype(jnp.float32))
    found: AnyEvent | None = event(values, facts) if callable(event) else event
    if event is None and algorithm.event is not None:
        found = released(algorithm, values, facts, standing(algorithm))
    lr, clip = values.get("lr", 1.0), float(values.get("clip", 1.0))
    step = lr.over(rounds) if isinstance(lr, Schedule) else np.full(rounds, float(lr))
    require(step.min() > 0, "must be above 0", "with no step nothing is released", lr=lr)
    body, inner = algorithm.body, None if found is None else described(found)
    seen = sign(turning, pace)
    setup = Setup(
        algorithm, problem, dict(values), facts, hp, inner, seen, step, clip, found, False
    )
    if setup.proven or body is None or not body.sends_estimates or not plays(algorithm):
        return setup
    # one draw of noise for the mean is of the same law where channels are as they declare
    summed = body.aggregation and body.aggregation.hides and not body.aggregation.plain
    listens = not (summed or body.mechanism.central)
    return setup._replace(algorithm=by_messages(algorithm), listens=listens)


def plays(algorithm: Algorithm) -> bool:
    """Whether the rounds are those of the body."""
    body: Any = algorithm.body
    return body is not None and (algorithm.init, algorithm.round) == (body.init, body.round)


def trajectory(algorithm: Algorithm, rounds: int, key: Key, problem: Problem, hp: Hyper) -> Array:
    """What the adversary sees of one run: the points x_0, ..., x_T, (T + 1, nodes, d).  Traced.

    They are where gradients are evaluated: the server's point, or the point of each node.
    """
    return observed(algorithm, rounds, key, problem, hp, listens=False)[0]


def observed(
    algorithm: Algorithm, rounds: int, key: Key, problem: Problem, hp: Hyper, *, listens: bool
) -> tuple[Array, Any]:
    """The points, and what the first client sends, (T, 1, d) and 0 where it is absent."""
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
        first = (view.clients == 0) & (view.weight > 0)
        return jnp.sum(jnp.where(first[:, None], view.messages, 0), axis=0)[None]

    def step(state: PyTree, _: None) -> tuple[PyTree, Any]:
        message = sent(state)
        state, _info = algorithm.round(key, state, problem, hp)
        return state, (seen(state), message)

    state, _ = algorithm.init(key, problem, hp)
    _, (x, messages) = jax.lax.scan(step, state, length=rounds)
    return jnp.concatenate([seen(state)[None], x]), messages
