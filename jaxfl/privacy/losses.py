"""Noisy losses that a stopping rule may read, as releases next to those of rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from jaxfl.core.errors import InputError
from jaxfl.core.types import ProblemFacts
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.calibration import level_for
from jaxfl.privacy.claims import above
from jaxfl.privacy.events import AnyEvent, Event, Mean, Sampling, plain_events, together

__all__ = ["SHARE", "central", "cheap", "checked", "deviation", "drowned"]

SHARE = 0.1  # of the eps of the rounds, for noisy losses that are cheap
LIKELY = 0.05  # a warning names noise that ends a run with this probability


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
    mean = deviation(event, facts, ratio)
    return (
        f"sigma = {ratio:.4g} times bound takes at most a tenth more than eps = {eps:.4g}, and the mean "
        f"over clients then has noise of deviation {mean:.2g} times bound"
    )


def deviation(event: AnyEvent, facts: ProblemFacts, sigma: float) -> float:
    """The standard deviation of the noise of a mean over clients, to each of which ``sigma`` is added.

    A trusted server adds it once, to the mean.
    """
    if any(map(central, plain_events(event))):
        return sigma
    squares = sum(number * w**2 for _, w, number in facts.groups) or facts.n
    return sigma * math.sqrt(squares) / facts.n


def drowned(rule: Mapping[str, Any], count: int, event: AnyEvent, facts: ProblemFacts) -> str:
    """That the noise of checks alone may end a run far above its limit, in words; "" if it is unlikely."""
    if "sigma" not in rule:
        return ""
    std, limit = deviation(event, facts, rule["sigma"]), float(rule["loss"])
    gap = abs(limit)  # a loss is at least 0
    chance = 1 - NormalDist().cdf(gap / std) ** count
    if chance < LIKELY:
        return ""
    return (
        f"The loss that ends a run at {limit:g} has noise of deviation {std:.2g}: a run whose loss stays "
        f"at {limit + gap:g} ends with probability {chance:.2g}"
    )


def central(event: Event) -> bool:
    """Whether the server is trusted with the noise of a whole client's loss."""
    return event.unit == "client" and event.trust == "trusted_server"
