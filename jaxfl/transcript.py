"""What the rounds of a body release, as accountants read it.  Host side.

``body`` is a :class:`jaxfl.rounds.Federated` or a :class:`jaxfl.gossip.Gossip`; what they say of themselves
(:meth:`turns`, :meth:`noises`) goes before what is said here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxfl.types import Facts

__all__ = ["event", "noises", "turns"]


def event(body: Any, values: Mapping[str, Any], facts: Facts) -> Any:
    """What all rounds release about one record of one client.

    Messages are seen one by one, or under an aggregation where :func:`noises` says so only as a
    sum of r of them, whose noise is sqrt(r) times as large.  Compression, shifts and the server's
    steps act on what is already noised.  Who takes part is public, so client sampling amplifies
    nothing, but nobody releases more often than it takes part.  Clients' data are disjoint, and
    of clients of different sizes the worst counts, which may be one in the middle.
    """
    from jaxfl.privacy import events

    sampler, sensitivity = body.estimator.sampler, body.estimator.sensitivity
    if body.mechanism.std is None:
        return events.NoClaim("nothing is noised")
    if sensitivity is None:
        return events.NoClaim(f"the sensitivity of {body.estimator.name} is not declared")
    slots = sampler.capacity(values, facts).get("batch") if sampler.name == "poisson" else None
    r = body.noises(values, facts)
    if r > 1:  # the same ratio, beside one client's sigma
        values = {**values, "clip": values["clip"] / r**0.5}

    def client(m: int) -> Any:
        b = m if sampler.name == "full" else float(values["batch"])
        return events.Event(
            events.Sampling(sampler.scheme or sampler.name, m, b, slots),
            sensitivity(values),
            float(values["sigma"]),
            body.turns(values, facts),
            trust="local_transcript" if body.aggregation is None else "secure_sum",
        )

    if len(facts.sizes) == 1:
        return client(facts.m)
    return events.Phases(tuple(client(m) for m in facts.sizes), together=True)


def turns(body: Any, values: Mapping[str, Any], facts: Facts) -> int:
    """The rounds in which a client takes part: its own number if known, else the most of any.

    Epochs that follow the rounds, not the client's turns, use a record once in every epoch.
    """
    T, most = int(values["rounds"]), body.participation.most
    if body.local is None and body.estimator.sampler.name == "shuffled":
        return T
    return int(values.get("turns", T if most is None else most(T, facts.n, values)))


def noises(body: Any, values: Mapping[str, Any], facts: Facts) -> int:
    """How many clients' noises the server sees added up, at least: 1 where it sees messages.

    A cohort of random size may be a single client.  The masks of a sparsifier are public, and
    some coordinate may come from one client.  A shift that does not cancel is made of earlier
    messages, which were never seen.
    """
    if body.aggregation is None or body.participation.name == "poisson" or not body.linear:
        return 1
    if body.participation.least is not None:
        least: int = body.participation.least(facts.n, values)
        return least
    return facts.n if body.participation.everyone else int(values["cohort"])
