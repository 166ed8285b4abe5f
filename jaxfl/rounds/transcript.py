"""What the rounds of a body release, as accountants read it.  Host side.

``body`` is a :class:`jaxfl.rounds.Federated` or a :class:`jaxfl.rounds.Gossip`, whose clients all
take part, and whose messages are seen one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxfl.core.errors import InputError
from jaxfl.core.types import AnyBody, ProblemFacts, Sampler
from jaxfl.privacy import events
from jaxfl.privacy.events import Sampling, worst
from jaxfl.rounds.body import Body

__all__ = ["drawn", "event", "noises", "reach", "rounding", "turns"]


def event(body: AnyBody, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
    """What all rounds release about one record of one client.

    Messages are seen one by one, or under an aggregation where :func:`noises` says so only as a
    sum of r of them, whose noise is sqrt(r) times as large.  Compression, shifts and the server's
    steps act on what is already noised.  Who takes part is public, so client sampling amplifies
    nothing, but nobody releases more often than it takes part.  Clients' data are disjoint, and
    of clients of different sizes the worst counts, which may be one in the middle.
    """

    sampler, sensitivity = body.estimator.sampler, body.estimator.sensitivity
    if body.mechanism.std is None:
        return events.NoClaim("nothing is noised")
    if sampler.scheme is None:
        return events.NoClaim(f"the scheme of {sampler.name} is not declared")
    if sensitivity is None:
        return events.NoClaim(f"the sensitivity of {body.estimator.name} is not declared")
    hidden = body.aggregation is not None and body.aggregation.hides
    r = noises(body, values, facts)
    if r > 1:  # the same ratio, beside one client's sigma
        bounds = ("clip", "gradient_bound")
        values = {**values, **{name: values[name] / r**0.5 for name in bounds if name in values}}

    moves = sensitivity(values)
    if isinstance(moves, events.Mean) and math.isfinite(moves.clip):
        if math.isfinite(moves.whole) and body.clip != "batch":
            return events.NoClaim("the estimator leaves clipping to clip='batch', and nobody clips")
        if body.clip == "batch" and not moves.hidden:
            return events.NoClaim("clip='batch' needs an estimator that leaves clipping to it")

    def client(m: int) -> Any:
        return events.Event(
            drawn(sampler, values, facts, m),
            moves,
            float(values["sigma"]),
            turns(body, values, facts),
            trust="secure_sum" if hidden else "local_transcript",
        )

    return worst(facts, client)


def drawn(
    sampler: Sampler, values: Mapping[str, Any], facts: ProblemFacts, m: int, batch: str = "batch"
) -> Sampling:
    """What a client with m records draws in a round; ``batch`` names the number of them."""

    if sampler.scheme is None:
        raise InputError(
            f"The sampler {sampler.name!r} declares no scheme, so that nothing is known of its draws: "
            "make it with scheme=, as in Sampler(..., scheme='poisson')."
        )
    slots = sampler.capacity(values, facts).get("batch") if sampler.padded else None
    b = m if sampler.whole else float(values[batch])
    return Sampling(sampler.scheme, m, b, slots)


def turns(body: AnyBody, values: Mapping[str, Any], facts: ProblemFacts) -> int:
    """The rounds in which a client takes part: its own number if known, else the most of any.

    Epochs that follow the rounds, not the client's turns, use a record once in every epoch.
    """
    T, most = int(values["rounds"]), body.participation.most
    if body.local is None and body.estimator.sampler.epochs:
        return T
    return int(values.get("turns", T if most is None else most(T, facts.n, values)))


def noises(body: AnyBody, values: Mapping[str, Any], facts: ProblemFacts) -> int:
    """How many clients' noises the server sees added up, at least: 1 where it sees messages.

    A cohort of random size may be a single client.  The masks of a sparsifier are public, and
    some coordinate may come from one client.  A shift that does not cancel is made of earlier
    messages, which were never seen.  Noise that was ``clamped`` is not in the sum, nor known to be
    where nothing bounds what a message reaches: what is left is that each message was noised.
    """
    if not isinstance(body, Body) or body.aggregation is None or not body.linear:
        return 1
    bounded = reach(body, {"sigma": 0.0, **values}, facts) is not None
    if not body.aggregation.hides or values.get("clamped") or not bounded:
        return 1
    clients = body.participation
    if clients.least is not None:
        return clients.least(facts.n, values)
    if clients.everyone:
        return facts.n
    return int(values["cohort"]) if clients.fixed_size else 1


def reach(body: Body, values: Mapping[str, Any], facts: ProblemFacts) -> tuple[float, float] | None:
    """How far clipping lets a message go, and the deviation of its noise; None: not bounded.

    A Poisson batch is divided by b and may be larger; an estimator may make several gradients of one,
    and a channel more of an estimate; a sparsifier scales what it keeps by 1 + omega.  The public
    regularizer is not in it, but for that of local steps, which is taken to be small.
    """
    if body.local is not None:
        return body.local.reach(values)
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


def rounding(body: Body, values: Mapping[str, Any], facts: ProblemFacts) -> float:
    """How far an aggregation's rounding moves a message, ``p sqrt(d)/2``."""
    if body.aggregation is None or not body.aggregation.params:
        return 0.0
    senders = body.participation.capacity(values, facts).get("cohort", facts.n)
    found = body.aggregation.settle(values, reach(body, values, facts), senders, facts.d)
    p = values["precision"] if "precision" in values else found["precision"][0]
    return float(p * np.sqrt(facts.d) / 2)
