"""Noisy losses that a stopping rule may read, as releases next to those of rounds."""

from __future__ import annotations

from collections.abc import Mapping

from jaxfl.core.errors import InputError
from jaxfl.core.types import ProblemFacts
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.calibration import level_for
from jaxfl.privacy.claims import above
from jaxfl.privacy.events import AnyEvent, Event, Mean, Sampling, plain_events, together

__all__ = ["SHARE", "central", "cheap", "checked"]

SHARE = 0.1  # of the eps of the rounds, for noisy losses that are cheap


def checked(
    event: AnyEvent, times: Mapping[tuple[float, float], int], facts: ProblemFacts
) -> AnyEvent:
    """``event``, and noisy losses as often as ``times`` says of each (bound, sigma).

    They are releases of means over all records, which move by B/m at most.  Clients show their losses, each
    with its own noise, also where the server sees only sums of their messages.  A trusted server computes
    the mean over clients.
    """
    first = next(iter(plain_events(event)), None)
    if first is None:
        return event
    m = facts.m
    if first.unit == "client":
        m = facts.n if central(first) else 1
    for (bound, sigma), count in times.items():
        # in [0, B]: replaced it moves by B, twice the radius; left out by B as well
        radius = bound / 2 if first.adjacency == "replace_one" else bound
        radius *= facts.weight() if central(first) else 1.0
        kind = first.unit, first.adjacency, first.trust
        loss = Event(Sampling("full", m, m), Mean(radius), sigma, count, *kind)
        event = together(event, loss)
    return event


def cheap(event: AnyEvent, count: int, facts: ProblemFacts, delta: float) -> str:
    """The least noise of ``count`` losses that take at most a tenth more eps, in words; "" if none does."""
    if not count:
        return ""

    def made(sigma: float) -> AnyEvent:
        return checked(event, {(1.0, sigma): count}, facts)

    eps = epsilon(event, delta).eps
    try:
        ratio = above(level_for(made, (1 + SHARE) * eps, delta, 1 / facts.m))
    except InputError:  # a proof of noise that is not Gaussian composes with no check
        return ""
    return f"sigma = {ratio:.4g} times bound takes at most a tenth more than eps = {eps:.4g}"


def central(event: Event) -> bool:
    """Whether the server is trusted with the noise of a whole client's loss."""
    return event.unit == "client" and event.trust == "trusted_server"
