"""The best test between two worlds, and the noise that its success rules out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.events import (
    AnyEvent,
    Event,
    NoClaim,
    OnRing,
    Phases,
    Sequence,
    Stated,
    Unproven,
    scaled,
)
from jaxfl.privacy.gaussian import Floats, gdp_delta, gdp_eps
from jaxfl.privacy.limits import limits, plain_eps, separation
from jaxfl.privacy.pld import Part, compose
from jaxfl.privacy.profiles import Gaussian
from jaxfl.privacy.releases import releases

__all__ = ["FPR", "Bound", "Family", "Rule", "certify", "choose", "family", "reached"]

FPR = (0.01, 0.001)

THRESHOLDS = 512  # candidates per statistic
LOSSES = np.concatenate([[0.0], np.geomspace(1e-3, 100.0, 500)])  # eps where curves are compared
WEAKEST, STRONGEST = 1e-2, 1e3  # noise factors that are tried


class Rule(NamedTuple):
    """A test that decides for world P where ``sign * statistic >= threshold``."""

    statistic: int
    sign: float
    threshold: float

    def counts(self, P: Floats, Q: Floats) -> tuple[int, int]:
        """The number of runs of each world for which the rule decides P; statistics in columns."""
        in_p, in_q = (self.sign * S[:, self.statistic] >= self.threshold for S in (P, Q))
        return int(np.sum(in_p)), int(np.sum(in_q))


def choose(P: Floats, Q: Floats, score: Callable[[Floats, Floats], Floats]) -> Rule:
    """The best of many rules on these runs; ``score`` takes counts in P and in Q."""
    best, rule = -math.inf, Rule(0, 1.0, 0.0)
    n = P.shape[0]
    for j in range(P.shape[1]):
        for sign in (1.0, -1.0):
            ordered = np.sort(sign * P[:, j]), np.sort(sign * Q[:, j])
            pooled = np.sort(np.concatenate(ordered))
            places = np.linspace(0, pooled.size - 1, min(THRESHOLDS, pooled.size)).astype(int)
            thresholds = np.unique(pooled[places])
            in_p, in_q = (n - np.searchsorted(a, thresholds, side="left") for a in ordered)
            scores = np.nan_to_num(score(in_p, in_q), nan=-np.inf)
            top = int(np.argmax(scores))
            if scores[top] > best:
                best, rule = float(scores[top]), Rule(j, sign, float(thresholds[top]))
    return rule


# --- through the mechanism's own curve -----------------------------------------------------------


class Family:
    """The mechanisms that an event describes, with all its noise multiplied by a factor c.

    Each allows a test with rates (p, f) only if, for all eps >= 0::

        p <= e^eps f + delta_c(eps)   and   1 - f <= e^eps (1 - p) + delta_c(eps)
    """

    def __init__(self, event: AnyEvent):
        self.event = event
        parts = (part for each in _parts(event) or () for part in each)
        self.gaussian = all(isinstance(part.profile, Gaussian) for part in parts)

    def ceiling(self, f: Any, factor: float = 1.0) -> Any:
        """The largest p that goes with f."""
        f = np.asarray(f, np.float64)[..., None]
        delta, growth = self._deltas(factor), np.exp(LOSSES)
        p = np.minimum(growth * f + delta, 1 - (1 - f - delta) / growth)
        return np.clip(p.min(axis=-1), 0.0, 1.0)[()]

    def score(self, p: Any, f: Any) -> Any:
        """The distance of a test beyond the event's own curve, in units of normal quantiles."""
        from scipy.special import ndtri

        if self.gaussian:
            return separation(p, f)
        with np.errstate(invalid="ignore"):
            return ndtri(p) - ndtri(self.ceiling(f))

    def eps(self, p: float, f: float, delta: float) -> float:
        """The eps at ``delta`` of the strongest noise that the test does not rule out.

        If it exceeds the proven eps, the whole proven curve is false.  For Gaussian releases
        the noise is that with ``mu = Phi^-1(p) - Phi^-1(f)``.
        """
        if p <= f:
            return 0.0
        if self.gaussian:
            return float(gdp_eps(float(separation(p, f)), delta))
        return self.strongest(lambda factor: bool(p > self.ceiling(f, factor)), delta)

    def one_run_eps(self, k: int, r: int, v: int, delta: float, alpha: float) -> float:
        """:meth:`eps` from v of r right guesses about k canaries of one run; it errs with chance alpha."""
        return self.strongest(lambda factor: self._too_many(k, r, v, alpha, factor), delta)

    def strongest(self, out: Callable[[float], bool], delta: float) -> float:
        """The eps of the most noise, as a factor, that ``out`` does not rule out."""
        first = out(1.0)
        low = high = 1.0
        while low > WEAKEST and high < STRONGEST:  # to where the answer changes
            low, high = (low / 1.5, low) if first else (high, high * 1.5)
            if out(low if first else high) != first:
                break
        else:
            return math.inf if first else 0.0
        while high / low > 1 + 1e-3:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if out(middle) else (middle, high)
        return epsilon(scaled(self.event, high), delta).eps

    def _too_many(self, k: int, r: int, v: int, alpha: float, factor: float) -> bool:
        """Whether v or more right guesses have a chance below alpha.

        Let p_i be the chance of i right guesses, ``H_i = sum_{j >= i} j p_j/k`` and
        ``R_i = sum_{j >= i} (r - j) p_j/k``.  Then ``H_{i+1} <= ceiling(R_i)`` [Mahloujifar, Melis,
        Chaudhuri, 2024], and ``H_0 + R_0 = r/k``.  If the chance were alpha, the least H_0
        and R_0 that follow from the first would be more than that.
        """
        H, R = alpha * v / k, alpha * (r - v) / k
        for i in range(v - 1, -1, -1):
            # curves are symmetric: their inverses are their reflections
            least = max(R, 1 - float(self.ceiling(1 - H, factor)))
            H += i / (r - i) * (least - R)
            R = least
            if r / k < H + R:
                return True
        return False

    def _deltas(self, factor: float) -> Floats:
        """delta_c at :data:`LOSSES`; of disjoint data those of the worst part."""
        event = scaled(self.event, factor)
        return np.asarray(
            np.max([self._delta(parts) for parts in _parts(event) or ()], axis=0) + _overflow(event)
        )

    def _delta(self, parts: tuple[Part, ...]) -> Floats:
        if self.gaussian:
            mu = math.sqrt(sum(part.count * part.profile.shift_bound**2 for part in parts))
            return np.asarray(gdp_delta(mu, LOSSES), np.float64)
        sides = (False,) if all(part.profile.symmetric for part in parts) else (False, True)
        return np.asarray(
            np.max([compose(parts, delta=1e-6, reverse=r).delta(LOSSES) for r in sides], axis=0)
        )


class Bound(NamedTuple):
    """Lower bounds on eps: without an assumption, through the event's curve, and the chosen one."""

    plain: float
    curve: float | None
    lower: float
    rule: Rule  # of ``lower``


def certify(
    chosen: tuple[Floats, Floats],
    bounding: tuple[Floats, Floats],
    curves: Family | None,
    delta: float,
    confidence: float,
) -> Bound:
    """Choose tests by some runs of worlds P and Q, and bound eps by others."""
    n = chosen[0].shape[0]
    # strict: the luckiest of many rules must not be taken for the best one
    strict = 1 - 1e-2 * (1 - confidence), 1 - 1e-4 * (1 - confidence)
    plain_rule = choose(*chosen, lambda a, b: plain_eps(*limits(a, b, n, strict[0]), delta))
    score = separation if curves is None else curves.score
    curve_rule = choose(*chosen, lambda a, b: score(*limits(a, b, n, strict[1])))

    def plain(P: Floats, Q: Floats) -> float:
        rates = limits(*plain_rule.counts(P, Q), P.shape[0], confidence)
        return float(plain_eps(*rates, delta))

    def curve(P: Floats, Q: Floats) -> float | None:
        p, f = limits(*curve_rule.counts(P, Q), P.shape[0], confidence)
        return None if curves is None else curves.eps(float(p), float(f), delta)

    guess, found = curve(*chosen), Bound(plain(*bounding), curve(*bounding), 0.0, plain_rule)
    if found.curve is not None and guess is not None and guess >= plain(*chosen):
        return found._replace(lower=found.curve, rule=curve_rule)
    return found._replace(lower=found.plain)


def reached(
    chosen: tuple[Floats, Floats],
    bounding: tuple[Floats, Floats],
    confidence: float,
    fpr: tuple[float, ...] = FPR,
) -> dict[float, float]:
    """Lower limits of the true positive rates of tests whose false positive rates are proven to be so low.

    A test is chosen by some runs, of which at most a third as many are false positives, and bounded by
    others.  A rate that these are too few for is left out, and one that is no higher than the false
    positive rate: a guess by a coin has it.
    """
    out: dict[float, float] = {}
    for most in fpr:
        allowed = most / 3 * chosen[0].shape[0]
        rule = choose(*chosen, lambda a, b, n=allowed: np.where(b <= n, a, -np.inf))  # type: ignore[misc]
        p, f = limits(*rule.counts(*bounding), bounding[0].shape[0], confidence)
        out |= {most: float(p)} if f <= most < p else {}
    return out


def family(event: AnyEvent | None) -> Family | None:
    """The :class:`Family` of an event; None where no curve is known: no event, no claim, no noise."""
    return None if event is None or not _parts(event) else Family(event)


def _parts(event: AnyEvent) -> tuple[tuple[Part, ...], ...] | None:
    """The releases that the event composes, one list for each set of records; None: not known."""
    if isinstance(event, Event):
        bounded = 0 < getattr(event.sensitivity, "clip", 1.0) < math.inf
        bounded = bounded and not isinstance(event.sensitivity, OnRing)  # which has no profile
        return (releases(event).parts,) if bounded and event.sigma > 0 else None
    if isinstance(event, NoClaim):
        return None
    if isinstance(event, Unproven | Stated):
        return _parts(event.event)
    every = [_parts(part) for part in event.events]
    known = [parts for parts in every if parts is not None]
    if len(known) < len(every):
        return None
    if isinstance(event, Phases):
        return tuple(parts for each in known for parts in each)
    return tuple(tuple(itertools.chain(*lists)) for lists in itertools.product(*known))


def _overflow(event: AnyEvent) -> float:
    """The delta that padded batches add."""
    if isinstance(event, Sequence | Phases):
        lost = [_overflow(part) for part in event.events]
        return sum(lost) if isinstance(event, Sequence) else max(lost)
    return event.sampling.overflow(event.releases) if isinstance(event, Event) else 0.0
