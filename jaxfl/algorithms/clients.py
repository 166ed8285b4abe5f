"""The privacy event, about all records of one client, of rounds with a trusted server."""

from __future__ import annotations

from typing import Any

from jaxfl.algorithms.numbers import reporting
from jaxfl.core.types import ProblemFacts, Values
from jaxfl.privacy import events
from jaxfl.rounds import transcript
from jaxfl.rounds.federated import Federated

__all__ = ["of_a_server"]


def of_a_server(
    body: Federated, values: Values, facts: ProblemFacts, bound: float, fresh: bool = False
) -> Any:
    """A client's message has norm at most ``bound``, and enters the mean with weight w/r.

    ``fresh``: no round shows what earlier ones drew of a client's records.
    """
    n, clients = facts.n, body.participation
    S = bound + transcript.rounding(body, values, facts)
    S *= facts.weight()
    r = reporting(body, values, n)
    rows, share = events.Sampling("full", n, float(n)), S * n / r
    # divided by a number of clients: one that is left out sends zero
    adjacency: Any = "zero_out"
    if clients.scheme == "without_replacement":
        adjacency = "replace_one"
        # An epoch that goes on from turn to turn remembers earlier cohorts.  In those of a fixed size
        # who takes part depends on who else does: hidden memories depend on the client.
        sampler = body.estimator.sampler
        if fresh or sampler.fresh or sampler.whole:
            rows, share = events.Sampling("without_replacement", n, r), S
    if clients.scheme == "poisson":
        slots = clients.capacity(values, facts)["cohort"]
        rows, share = events.Sampling("poisson", n, r, slots), S
        adjacency = "add_remove"
    turns = int(values["rounds"])
    if clients.most is not None:  # a fixed order: the models reveal who took part
        turns = transcript.turns(body, values, facts)

    def part(some: transcript.Rounds) -> events.Event:
        return events.Event(
            rows,
            events.Mean(share),
            some.std,
            some.number,
            unit="client",
            adjacency=adjacency,
            trust="trusted_server",
        )

    return transcript.in_turns(part, body, values, facts, turns)
