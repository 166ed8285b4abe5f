"""An algorithm on the problem of a canary, with its numbers resolved, ready for an audit.

Where the server steps ``x <- x - eta v`` the increments are the messages:
``v_t = (x_t - x_{t+1}) / eta``.  Of parts that are not jaxfl's an audit computes the messages, and the
adversary sees those of the first client itself [:mod:`jaxfl.algorithms.probes.canary`].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.algorithms.composition import by_messages
from jaxfl.algorithms.probes.canary import canary_problem, plays, sign
from jaxfl.algorithms.resolution import build, resolve
from jaxfl.algorithms.standing import standing
from jaxfl.core.calls import blamed
from jaxfl.core.errors import require
from jaxfl.core.params import whole
from jaxfl.core.provenance import own_body, own_part
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Algorithm, Array, Hyper, Problem, ProblemFacts
from jaxfl.privacy.events import AnyEvent, NoClaim, Stated, Unproven, described, released
from jaxfl.problems.facts import facts_of

__all__ = ["EventLike", "Setup", "dense", "prepare", "takes", "unseen"]

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
        """Divisors of the observed values, one per round: a message of local steps is an increment, too."""
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
    with blamed(f"The event of {algorithm.name!r}"):
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


def dense(setup: Setup) -> tuple[str, ...]:
    """The coordinates that the canary leaves alone, where messages are codes of a user's own."""
    body = setup.algorithm.body
    if body is None or body.compressor.code is None or own_part(body.compressor):
        return ()
    name = body.compressor.name
    return (
        f"coordinates other than the canary's: where codes such as signs, here {name!r}, hide how long a "
        "gradient is, a record that moves all coordinates reveals more",
    )


def unseen(setup: Setup, turning: bool | int) -> tuple[str, ...]:
    """List what the attack on this algorithm does not examine, jaxfl's own parts left out."""
    body, n, d = setup.algorithm.body, setup.problem.n, setup.problem.model.dim
    out = ["gradients other than the planted record's: no model and no data of yours enter"]
    if body is None or not plays(setup.algorithm):
        return (*out, "what single clients send: of rounds that no parts describe it sees x alone")
    if not own_body(body):
        if turning is False:
            out.append(f"what rounds of {setup.algorithm.name!r} make of gradients that change")
        out.append("the noise of clients other than the first" + ": ask for clients = 3" * (n == 1))
    sampler, estimator, aggregation = body.estimator.sampler, body.estimator, body.aggregation
    if not own_part(sampler):
        out.append(f"how the sampler {sampler.name!r} draws records other than the first")
    if estimator.points != 1 and body.local is None and turning is False:
        what = f"what the estimator {estimator.name!r} makes of gradients that change"
        out.append(f"{what}: ask for turning = 2")
    if body.compressor.select and d == 1 and not own_part(body.compressor, later=False):
        what = f"which of several coordinates the compressor {body.compressor.name!r} selects"
        out.append(f"{what}: ask for dim = 8")
    if n == 1 and not own_part(body.participation):
        out.append(f"whom {body.participation.name!r} lets take part: ask for clients = 3")
    hides = aggregation is not None and aggregation.hides and not aggregation.plain
    if aggregation and hides and not own_part(aggregation):
        out.append(f"whether the aggregation {aggregation.name!r} hides the messages of a sum")
    if not body.sends_estimates:
        out.append("the messages of single nodes: it sees the points to which they lead")
    return tuple(out)
