"""Calibration: the noise, batch size or rounds whose proven eps is at most a given one.

Searches stop when the proven eps lies within :data:`SLACK` below the given one.  Answers are cached,
since events are frozen.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

from jaxfl.core.errors import InputError, require
from jaxfl.core.foreign import CALM
from jaxfl.core.params import number
from jaxfl.privacy.accountants import Guarantee, check_event, closed_form, epsilon
from jaxfl.privacy.events import (
    AnyEvent,
    Event,
    Mean,
    NoClaim,
    OnRing,
    Phases,
    Sequence,
    changed,
    scaled,
    sigmas,
)
from jaxfl.privacy.gaussian import check_delta, gdp_mu

__all__ = [
    "MOST_ROUNDS",
    "SLACK",
    "Calibration",
    "batch_for",
    "level_for",
    "rounds_for",
    "sigma_for",
]

MOST_ROUNDS = 2**31  # the end of a search for rounds
SLACK = 4e-4  # relative, of eps
BROKEN = 50.0  # ln(answer/eps) beyond which an answer cannot be interpolated


NEEDLESS = (
    "is proven without noise, since delta exceeds the chance that a record is drawn",
    "lower delta",
)


class NoNoise(InputError):
    """Any noise is enough."""


class Calibration(NamedTuple):
    """The noise, the event with it, and the eps that it proves."""

    sigma: float  # of the first plain event; the others keep their proportion to it
    event: AnyEvent
    proven: Guarantee


@CALM
def sigma_for(event: AnyEvent, eps: float, delta: float, method: str | None = None) -> Calibration:
    """The least noise with proven eps <= ``eps``: all sigmas of ``event`` scaled together.

    Only the ratios of the event's sigmas matter.  ``method`` is that of :func:`jaxfl.privacy.epsilon`.

    >>> from jaxfl.privacy import Mean, Sampling
    >>> event = Event(Sampling("full", 1000, 1000), Mean(1.0), sigma=1.0, releases=100)
    >>> found = sigma_for(event, eps=5.0, delta=1e-5)
    >>> round(found.sigma, 5), round(found.proven.eps, 4)
    (0.01784, 5.0)
    """
    check_event(event)
    check_delta(delta)
    number("eps", eps, above=0, below=math.inf)
    return _sigma_for(_unit(event), float(eps), float(delta), method)


def level_for(made: Callable[[float], AnyEvent], eps: float, delta: float, guess: float) -> float:
    """The least level with proven eps <= ``eps`` of the event ``made(level)``, near ``guess``."""

    def eps_at(x: float) -> float:
        return epsilon(made(math.exp(x)), delta).eps

    return math.exp(_search(eps_at, eps, math.log(guess)))


def _unit(event: AnyEvent) -> AnyEvent:
    """The event with its first sigma set to 1, by which equal questions share a cache entry."""
    values = sigmas(event)
    if isinstance(event, NoClaim) or not values:
        why = event.reason if isinstance(event, NoClaim) else "it has no releases"
        raise InputError("No noise can be calibrated for this event", why)
    if min(values) > 0:
        return scaled(event, 1 / values[0])
    require(max(values) <= 0, "sigma = 0 in some parts of the event only", "give all of them noise")
    return changed(event, lambda part: dataclasses.replace(part, sigma=1.0))


@functools.lru_cache(maxsize=8192)
def _sigma_for(event: AnyEvent, eps: float, delta: float, method: str | None) -> Calibration:
    if isinstance(event, Phases):  # the part that needs most decides for all
        factors = [_factor(part, eps, delta, method) for part in event.events]
        if not any(factors):
            raise NoNoise(*NEEDLESS, eps=eps)
        factor = max(factors)
    else:
        factor = math.exp(_log_sigma(event, eps, delta, method))
    calibrated = scaled(event, factor)
    return Calibration(sigmas(calibrated)[0], calibrated, epsilon(calibrated, delta, method))


def _factor(part: AnyEvent, eps: float, delta: float, method: str | None) -> float:
    """The noise of one of several phases, in units of its own; 0 if it needs none."""
    try:
        return _sigma_for(_unit(part), eps, delta, method).sigma / sigmas(part)[0]
    except NoNoise:
        return 0.0


def _log_sigma(event: AnyEvent, eps: float, delta: float, method: str | None) -> float:
    def answer(log_s: float) -> Guarantee:
        return epsilon(scaled(event, math.exp(log_s)), delta, method)

    mu = closed_form(event, method)
    if mu is not None:  # to rounding error; 0 where nothing is released
        x, step = math.log(max(mu, 1e-40) / gdp_mu(eps, delta)), 1e-13
        while answer(x).eps > eps:
            x, step = x + step, 2 * step
        return x
    guess = _guess(event, eps, delta)
    if not answer(guess).status:
        raise InputError("No noise can be calibrated for this event", f"{answer(guess).method}")
    return _search(lambda x: answer(x).eps, eps, guess)


def _guess(event: AnyEvent, eps: float, delta: float) -> float:
    """ln sigma: the central limit of many small shares, or one large one that is rarely drawn."""
    parts = event.events if isinstance(event, Sequence | Phases) else (event,)
    total = single = 0.0
    for part in parts:
        if isinstance(part, Event) and isinstance(part.sensitivity, Mean):
            X, q = part.sensitivity.X(part.sampling) / part.sigma, min(part.sampling.q, 1.0)
            total += part.releases * (2 * X * q) ** 2
            drawn = min(1.0, q * part.releases)
            single = max(single, X / gdp_mu(eps, min(0.4, delta / drawn)) if drawn else 0.0)
        elif isinstance(part, Event) and isinstance(part.sensitivity, OnRing):
            total += part.releases * (part.sensitivity.clip / part.sigma) ** 2
    if not 0 < total < math.inf:
        return 0.0
    return math.log(max(math.sqrt(total) / gdp_mu(eps, delta), single))


def _search(eps_at: Callable[[float], float], eps: float, guess: float) -> float:
    """ln sigma with ``eps_at`` in ``[eps (1 - SLACK), eps]``, for a decreasing function.

    Secant steps on ln eps inside a bracket, aimed at the middle of the interval.
    """
    aim = math.log(eps * (1 - SLACK / 2))

    def gap(x: float) -> float:
        return math.log(min(max(eps_at(x), eps * 1e-6), 1e300)) - aim

    x, low, high = guess, -math.inf, math.inf
    f, f_low, f_high = gap(x), math.nan, math.nan
    slope = -1.8
    for _ in range(100):
        if x < guess - 12 and f < 0:
            raise NoNoise(*NEEDLESS, eps=eps)
        if -SLACK / 2 <= f <= SLACK / 2 and eps_at(x) <= eps:
            return x
        if f > 0:
            low, f_low = x, f
        else:
            high, f_high = x, f
        if math.isinf(low) or math.isinf(high):
            step = -f / slope
            new = x + max(-3.0, min(3.0, step * 1.02))
        elif f_low > BROKEN:  # too little noise for a useful eps: bisect
            new = (low + high) / 2
            if high - low < 1e-12:
                return high
        else:
            new = low - f_low * (high - low) / (f_high - f_low)
            inner = 0.02 * (high - low)
            new = min(max(new, low + inner), high - inner)
            if high - low < 1e-12:
                return high
            near, f_near = (low, f_low) if abs(f_low) < abs(f_high) else (high, f_high)
            if abs(f_near) < 0.3 and slope < -0.5:  # near the root the last secant is more accurate
                tangent = near - f_near / slope
                new = tangent if low < tangent < high else new
        f_new = gap(new)
        if new != x and abs(new - x) > 1e-12 and f_new != f:
            slope = min(-0.1, max(-20.0, (f_new - f) / (new - x)))
        x, f = new, f_new
    raise InputError(
        f"No noise was found that proves eps = {eps:g}", "check that its delta can be reached"
    )


# --- whole numbers -------------------------------------------------------------------------------


def rounds_for(event: Event, eps: float, delta: float, method: str | None = None) -> int:
    """The most releases with proven eps <= ``eps`` at the event's noise, up to MOST_ROUNDS.

    A single pass has at most m/b of them.
    """

    def fits(T: int) -> bool:
        return epsilon(dataclasses.replace(event, releases=T), delta, method).eps <= eps

    top = MOST_ROUNDS
    if event.sampling.scheme == "single_pass":
        top = int(event.sampling.m // event.sampling.b)
    require(
        fits(1),
        lambda: f"does not allow one round at eps = {eps:g}",
        "add noise",
        sigma=event.sigma,
    )
    low = 1
    while low < top and fits(min(2 * low, top)):
        low = min(2 * low, top)
    return low + bisect.bisect(range(low + 1, min(2 * low, top)), False, key=lambda T: not fits(T))


def batch_for(event: Event, eps: float, delta: float, method: str | None = None) -> int:
    """The least whole batch with proven eps <= ``eps`` at the event's noise.

    With replacement, and under correlated noise, the bound need not fall as b grows; the batch then
    suffices while one less does not.  In a single pass the batches of all releases together have at
    most m records.
    """
    m = event.sampling.m

    def fits(b: int) -> bool:
        sampling = dataclasses.replace(event.sampling, b=b, slots=None)
        return epsilon(dataclasses.replace(event, sampling=sampling), delta, method).eps <= eps

    require(
        event.sampling.scheme != "full", "sampler = 'full' has no batch to choose", "use 'poisson'"
    )
    high = most = max(1, m // event.releases) if event.sampling.scheme == "single_pass" else m
    falls = event.sampling.scheme != "with_replacement" and not event.correlation
    while not falls and not fits(high) and high > 1:
        high //= 2
    require(
        fits(high),
        lambda: (
            f"does not reach eps = {eps:g}, even with {f'all {m}' if most == m else most} "
            "records in every batch"
        ),
        "add noise or take fewer rounds",
        sigma=event.sigma,
    )
    return 1 + bisect.bisect_left(range(1, high), True, key=fits)
