"""What choosing the best of several private runs costs.

Whoever sees all K runs sees their composition, whatever is chosen later: under the trust model of
most algorithms here, where each message of a client is seen, this is the price.  A trusted party
that repeats a run in private and publishes only the best pays less, if the number of repetitions is
random [J. Liu and K. Talwar, Private selection from private candidates, 2019; N. Papernot and
T. Steinke, Hyperparameter tuning with Renyi differential privacy, 2022; in terms of privacy curves
A. Koskela, R. Redberg and Y.-X. Wang, Privacy profiles for private selection, 2024].

Runs are compared by a score.  It has to be something that a run's own output determines, or public
data do; the exact loss on the private data is neither, and pays extra.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, NamedTuple

from jaxfl.errors import InputError
from jaxfl.privacy.accountants import delta as delta_of
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.events import AnyEvent, Event, Mean, NoClaim, Phases, Sequence
from jaxfl.privacy.gaussian import check_delta

__all__ = ["Selected", "best_of", "selection_note"]

REPEATABLE = ("full", "poisson", "with_replacement", "without_replacement")
STEPS = 40  # of a bisection whose every point is a valid bound


class Selected(NamedTuple):
    """(eps, delta)-differential privacy of choosing among runs."""

    eps: float
    delta: float
    runs: int
    seen: str
    method: str
    status: str


def best_of(
    event: AnyEvent,
    runs: int,
    delta: float,
    *,
    seen: Literal["all", "winner"] = "all",
    method: str | None = None,
) -> Selected:
    """The eps of releasing all of K = ``runs`` runs, or only the best of about that many.

    ``seen="all"``: the composition of K runs.  ``seen="winner"``: K is drawn from a geometric law
    with mean ``runs``, so with g = 1/runs its generating function is f(x) = g x / (1 - (1-g) x), and
    with Q the law of one run and q(y) = Q(score <= y's) the winner's density is Q(y) f'(q(y)), ties
    being broken at random.  Let Q and Q' be (e, d)-close both ways.  Then
    1 - q >= (1 - q' - d)_+ / exp(e), and

        f'(q) / f'(q') = ((g + (1-g) (1-q')) / (g + (1-g) (1-q)))^2 <= R^2,
        R = max_{u in {d, 1}} (g + (1-g) u) / (g + (1-g) exp(-e) (u - d)_+),

    a quotient of linear functions being monotone between u = d and u = 1.  So, as f' <= f'(1) = runs,

        delta_winner(eps) <= int f'(q) (Q - exp(eps) R^-2 Q')_+ <= runs delta_Q(eps - 2 ln R),

    that is eps_winner(delta) <= eps_Q(delta / runs) + 2 ln R, for any e with d = delta_Q(e).  As
    delta falls this tends to three times the eps of one run.
    """
    check_delta(delta)
    if not (runs >= 1 and runs == int(runs)):
        raise InputError(f"runs = {runs!r} has to be a whole number of at least 1.")
    if seen not in ("all", "winner"):
        raise InputError(f"seen = {seen!r} has to be 'all' or 'winner'.")
    runs = int(runs)
    if runs == 1 or isinstance(event, NoClaim):
        one = epsilon(event, delta, method)
        return Selected(one.eps, delta, runs, seen, one.method, one.status)
    if seen == "all":
        every = epsilon(repeated(event, runs), delta, method)
        return Selected(
            every.eps, delta, runs, seen, f"{runs} runs in sequence: {every.method}", every.status
        )
    one = epsilon(event, delta / runs, method)
    eps = one.eps + 2 * _log_ratio(event, 1 / runs, one.eps, method)
    words = f"the best of {runs} runs on average, their number geometric: {one.method}"
    return Selected(eps, delta, runs, seen, words, "D" if one.status == "E" else one.status)


def repeated(event: AnyEvent, runs: int) -> AnyEvent:
    """``runs`` runs of the same event, one after the other on the same data."""
    if isinstance(event, Phases):
        parts = tuple(repeated(part, runs) for part in event.events)
        return dataclasses.replace(event, events=parts)
    if isinstance(event, Sequence):
        return Sequence(event.events * runs)
    simple = isinstance(event, Event) and isinstance(event.sensitivity, Mean)
    if isinstance(event, Event) and simple and event.sampling.scheme in REPEATABLE:
        return dataclasses.replace(event, releases=event.releases * runs)
    return Sequence((event,) * runs)


def _log_ratio(event: AnyEvent, g: float, most: float, method: str | None) -> float:
    """The least ln R that a bisection finds; where e is too small d counts, where too large e."""
    if math.isinf(most):
        return math.inf

    def pair(e: float) -> tuple[float, float]:
        d = delta_of(event, e, method).delta
        at_d = math.log1p((1 / g - 1) * d)
        at_1 = -math.log(g + (1 - g) * math.exp(-e) * (1 - d))
        return at_d, at_1

    low, high = 0.0, 2 * most
    best = max(pair(high))
    for _ in range(STEPS):
        e = (low + high) / 2
        at_d, at_1 = pair(e)
        best = min(best, max(at_d, at_1))
        low, high = (e, high) if at_d > at_1 else (low, e)
        if high - low < 1e-6 * most:
            break
    return best


def selection_note(event: AnyEvent, runs: int, delta: float) -> str:
    """One sentence about what choosing among so many runs costs."""
    every = best_of(event, runs, delta)
    if math.isinf(every.eps):
        return f"{runs} runs were compared, and none of them proves any eps."
    winner = best_of(event, runs, delta, seen="winner")
    return (
        f"showing all {runs} runs proves eps = {every.eps:.3g}; a trusted party that shows only the "
        f"best of a geometric number of runs, {runs} on average, by a score that each run itself "
        f"releases, proves {winner.eps:.3g}."
    )
