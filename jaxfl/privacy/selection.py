"""The privacy cost of choosing the best of several runs by a score of the private data.

The choice reads all runs: a proof for one run does not cover the chosen one.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, NamedTuple

from jaxfl.core.params import choice, number
from jaxfl.privacy import accountants
from jaxfl.privacy.claims import rounded
from jaxfl.privacy.events import (
    AnyEvent,
    Event,
    Mean,
    OnRing,
    Sequence,
    Status,
    inside,
    weakest,
)
from jaxfl.privacy.gaussian import check_delta

__all__ = ["Selected", "best_of", "selection_note"]

STEPS = 30  # of a search whose every point gives a valid bound
CLOSE = 1e-4  # relative, of its two values
FAR = 700.0  # e^-e is a number up to here


class Selected(NamedTuple):
    """(eps, delta)-differential privacy of the chosen run, how it was proven, and on what terms."""

    eps: float
    delta: float
    method: str
    status: Status  # that of a Guarantee: of the winner's at best D
    runs: float
    seen: str
    note: str

    def __repr__(self) -> str:
        number = {
            "all": f"{self.runs:g} runs",
            "winner": f"{self.runs:g} runs on average, a secret number",
        }
        best = f"the best of {number[self.seen]}, {self.seen} seen"
        said = self.method + accountants.reserved(self.status)
        return f"Selected({best}: {rounded(self.eps, self.delta)}: {said})"


def best_of(
    event: AnyEvent,
    runs: float,
    delta: float,
    *,
    seen: Literal["all", "winner"] = "all",
    method: str | None = None,
) -> Selected:
    """eps of the best of ``runs`` runs, each of which releases at most what ``event`` does.

    Each run draws its noise, and all else, independently of the others.  Runs that share their noise,
    as the cells of a seed do in a paired sweep, are not covered: in the difference of two messages it
    cancels, and no finite eps holds for both.

    ``seen="all"``: everything that any run releases is seen, as by a server that receives every
    message; the runs compose.

    ``seen="winner"``: a trusted party repeats the run K times and publishes the best alone, K being
    geometric with mean ``runs`` and unknown to others; each run draws its configuration at random,
    whatever the data, and its score is part of what it privately releases, or of public data.
    With ``g = 1/runs`` and ``f(x) = E x^K = g x/(1 - (1-g) x)`` the winner's density at y is
    ``Q(y) f'(q)``, where ``q = Q(score <= that of y)``, ties broken at random.  Let Q and Q' be
    (e, d)-close both ways: then ``1 - q >= e^-e (u - d)+`` with ``u = 1 - q'``, and by
    ``f'(x) = g/(1 - (1-g) x)^2``::

        f'(q)/f'(q') = ((g + (1-g) u)/(g + (1-g) (1-q)))^2 <= R^2,
        R = max over u of (g + (1-g) u)/(g + (1-g) e^-e (u - d)+),  reached at u = d or u = 1

    and the excess of Q(y) f'(q) over e^a Q'(y) f'(q') is at most ``f'(q) (Q - e^(a - 2 ln R) Q')``
    with ``f' <= f'(1) = runs``, hence ``delta_winner(a) <= runs delta_Q(a - 2 ln R)``.  The best e
    makes both values of R equal.  For pure eps this is 3 eps [Liu and Talwar, STOC 2019; Papernot
    and Steinke, ICLR 2022; in terms of delta(eps) Koskela, Redberg and Wang, 2024].  A number of
    runs that is fixed, or known, is not covered: take ``"all"``.

    >>> from jaxfl.privacy import Sampling
    >>> event = Event(Sampling("full", 1000, 1000), Mean(1.0), sigma=0.02, releases=100)
    >>> [round(best_of(event, runs, 1e-5).eps, 2) for runs in (1, 10)]
    [4.38, 17.86]
    >>> round(best_of(event, 10, 1e-5, seen="winner").eps, 2)
    6.62
    """
    accountants.check_event(event)
    check_delta(delta)
    choice("seen", seen, ("all", "winner"))
    number("runs", runs, least=1, below=math.inf, integer=seen == "all")
    if seen == "all":
        proven = accountants.epsilon(_repeated(event, int(runs)), delta, method)
        note = (
            f"all that is released is seen, {runs:g} times that of one run, each with its own noise"
        )
        return Selected(*proven, float(runs), seen, note)
    one = accountants.epsilon(event, delta / runs, method)
    note = (
        f"only the best of K runs is published, K geometric with mean {runs:g} and each with its own "
        "noise, by a party that is trusted with all of them"
    )
    if runs == 1 or math.isinf(one.eps):
        return Selected(*one._replace(delta=delta), float(runs), seen, note)
    eps = one.eps + 2 * _log_ratio(event, float(runs), method)
    name = f"private selection, {one.method}"
    status = weakest(one.status, Status.DERIVED)
    return Selected(eps, delta, name, status, float(runs), seen, note)


def selection_note(event: AnyEvent, runs: int, delta: float) -> str:
    """One sentence about a run that was chosen among ``runs`` of them, each with noise of its own."""
    shown = best_of(event, runs, delta)
    if math.isinf(shown.eps):
        return f"the best of {runs} runs was chosen, and no eps is proven of any: {shown.method}"
    if runs == 1:
        return f"one run, which was not chosen among others, proves eps = {shown.eps:.4g}"
    winner = best_of(event, runs, delta, seen="winner")
    return (
        f"the best of {runs} runs, each with its own noise, was chosen on the private data: showing all "
        f"of them proves eps = {shown.eps:.4g}, and publishing only the winner of a random number of runs "
        f"({runs} on average) would prove eps = {winner.eps:.4g}, at delta = {delta:.3g}"
    )


def _repeated(event: AnyEvent, times: int) -> AnyEvent:
    """The event, ``times`` times on the same data."""
    if not isinstance(event, Event | Sequence):
        return inside(event, lambda part: _repeated(part, times))
    # whether all rounds have the same law, whatever came before, as is not so within an epoch
    alike = isinstance(event, Event) and isinstance(event.sensitivity, Mean | OnRing)
    if (
        isinstance(event, Event)
        and alike
        and event.sampling.scheme not in ("shuffled", "cyclic", "single_pass")
        and not event.correlation
    ):
        return dataclasses.replace(event, releases=event.releases * times)
    return Sequence((event,) * times)


def _log_ratio(event: AnyEvent, runs: float, method: str | None) -> float:
    """The least ln R over e: one value falls with e and the other rises."""
    g = 1 / runs

    def values(e: float) -> tuple[float, float]:
        d = accountants.delta(event, e, method).delta
        return 1 + (1 - g) * d * runs, 1 / (g + (1 - g) * math.exp(-e) * (1 - d))

    low, high, ends = 0.0, 1.0, runs  # with e -> infinity; f' lies between g and 1/g
    doubling = True
    for _ in range(STEPS):
        e = high if doubling else (low + high) / 2
        falls, rises = values(e)
        ends = min(ends, max(falls, rises))
        if abs(falls - rises) < CLOSE * rises:
            break
        if falls <= rises:
            high, doubling = e, False
        else:
            low = e
            high = min(2 * e, FAR) if doubling else high
    return math.log(ends)
