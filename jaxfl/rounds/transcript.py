"""Build the privacy event of a round body.  Host side.

``body`` is a :class:`jaxfl.rounds.Federated` or a :class:`jaxfl.rounds.Gossip`; in the latter all
clients take part, and each message is seen.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxfl.core.errors import InputError, require
from jaxfl.core.types import AnyBody, MessageBound, ProblemFacts, Sampler, Values
from jaxfl.privacy import events
from jaxfl.privacy.events import Sampling, worst
from jaxfl.rounds.body import Body

__all__ = ["drawn", "event", "message_bound", "noises", "rounding", "turns"]

BOUNDS = ("clip", "gradient_bound")


def event(body: AnyBody, values: Values, facts: ProblemFacts) -> Any:
    """What all rounds release about one record of one client.

    An observer sees each message, or, under an aggregation and where :func:`noises` says so, sums of
    r messages whose noise is sqrt(r) times as large, with :meth:`ProblemFacts.noises` in place of r
    where clients differ in weight.  Compression, shifts and the server's steps act on noised values.
    Who takes part is public, so client sampling amplifies nothing, but a client releases only in its
    turns.  Clients' data are disjoint, and the worst client size counts, which may be neither the
    smallest nor the largest.
    """
    sampler, sensitivity = body.estimator.sampler, body.estimator.sensitivity
    if body.mechanism.std is None:
        return events.NoClaim("nothing is noised")
    if "sigma" not in values:
        return events.NoClaim(f"the noise of {body.mechanism.name} is not a hyper-parameter sigma")
    if sampler.scheme is None:
        return events.NoClaim(f"the scheme of {sampler.name} is not declared")
    if sensitivity is None:
        return events.NoClaim(f"the sensitivity of {body.estimator.name} is not declared")
    hidden = body.aggregation is not None and body.aggregation.hides
    senders = noises(body, values, facts)
    moves = sensitivity(values)
    if isinstance(moves, events.Mean) and math.isfinite(moves.clip):
        if math.isfinite(moves.whole) and body.clip != "batch":
            return events.NoClaim("the estimator leaves clipping to clip='batch', which is not set")
        if body.clip == "batch" and not moves.hidden:
            return events.NoClaim("clip='batch' needs an estimator that leaves clipping to it")

    def client(m: int) -> Any:
        r = facts.noises(senders, m)  # the ratio of clip to noise in a sum, at one client's sigma
        bounds = {name: values[name] / r**0.5 for name in BOUNDS if name in values}
        return events.Event(
            drawn(sampler, values, facts, m),
            moves if r == 1 else sensitivity({**values, **bounds}),
            float(values["sigma"]),
            turns(body, values, facts),
            trust="secure_sum" if hidden else "local_transcript",
        )

    return worst(facts, client)


def drawn(
    sampler: Sampler, values: Values, facts: ProblemFacts, m: int, batch: str = "batch"
) -> Sampling:
    """How a client with m records draws in a round; ``batch`` names the hyper-parameter."""
    if sampler.scheme is None:
        raise InputError(
            f"The sampler {sampler.name!r} declares no scheme, so that no accountant knows its draws: "
            "pass one, as in Sampler(..., scheme='poisson')."
        )
    slots = sampler.capacity(values, facts).get("batch") if sampler.padded else None
    b = m if sampler.whole else float(values[batch])
    return Sampling(sampler.scheme, m, b, slots)


def turns(body: AnyBody, values: Values, facts: ProblemFacts) -> int:
    """The rounds in which a client takes part: ``values["turns"]``, else the most of any client.

    Where epochs follow the rounds and not the client's turns, a record is used once in every epoch.
    """
    T, most = int(values["rounds"]), body.participation.most
    if body.local is None and body.estimator.sampler.epochs:
        return T
    return int(values.get("turns", T if most is None else most(T, facts.n, values)))


def noises(body: AnyBody, values: Values, facts: ProblemFacts) -> int:
    """The least number of clients whose noises the server sees as one sum; 1 if it sees messages.

    The noises of ``colluding`` clients do not count, since the server knows them.  The number is 1 as well

    * for cohorts of random size, which may have one client;
    * with a sparsifier: its masks are public, and one client alone may send some coordinate;
    * with a shift that does not cancel, since it depends on earlier messages that stayed hidden;
    * where noise was ``clamped``, or may be, since nothing bounds the messages.
    """
    if not isinstance(body, Body) or body.aggregation is None or not body.linear:
        return 1
    bounded = message_bound(body, {"sigma": 0.0, **values}, facts) is not None
    if not body.aggregation.hides or values.get("clamped") or not bounded:
        return 1
    clients, colluding = body.participation, int(values.get("colluding", 0))
    if clients.least is not None:
        senders = clients.least(facts.n, values)
    elif clients.everyone:
        senders = facts.n
    else:
        senders = int(values["cohort"]) if clients.fixed_size else 1
    require(
        0 <= colluding < max(2, senders),
        lambda: f"must be less than the {senders} clients of a sum",
        lambda: f"ask for at most {senders - 1}",
        colluding=colluding,
    )
    return max(1, senders - colluding)


def message_bound(body: Body, values: Values, facts: ProblemFacts) -> MessageBound:
    """A bound on the norm of a clipped message, and the deviation of its noise; None: no bound.

    A Poisson batch is divided by b and may be larger.  Estimators may add up several gradients of a
    row, channels lengthen an estimate, and sparsifiers scale what they keep by 1 + omega.  The bound
    leaves out the public regularizer, except for that of local steps, which it takes to be small.
    """
    if body.local is not None:
        return body.local.message_bound(values)
    omega = values.get("omega", 0.0)
    growth, points = body.channel.growth(omega), body.estimator.points
    if body.compressor.code is not None or growth is None or points is None:
        return None
    b = values.get("batch", 1)
    slots = body.estimator.sampler.capacity(values, facts).get("batch", b)
    scale = 1.0 + omega
    signal = scale * points * slots / b * values["clip"]
    noise = 0.0 if body.own.std is None else scale * values["sigma"]
    return float(growth[0] * signal), float(growth[1] * noise)


def rounding(body: Body, values: Values, facts: ProblemFacts) -> float:
    """The most by which an aggregation's rounding changes a message, ``p sqrt(d)/2``."""
    if body.aggregation is None or not body.aggregation.params:
        return 0.0
    senders = body.participation.capacity(values, facts).get("cohort", facts.n)
    bound = message_bound(body, values, facts)
    defaults = body.aggregation.settle(values, bound, senders, facts.d)
    p = values["precision"] if "precision" in values else defaults["precision"][0]
    return float(p * np.sqrt(facts.d) / 2)
