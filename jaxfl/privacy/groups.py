"""Group privacy: the eps of several records, from the proof for one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxfl.core.errors import require
from jaxfl.core.foreign import CALM
from jaxfl.core.params import whole
from jaxfl.privacy.accountants import (
    Curve,
    Guarantee,
    at_hand,
    check_event,
    closed_form,
    delta,
    epsilon,
    joined,
    profile,
)
from jaxfl.privacy.events import AnyEvent, Phases, Status, described, plain_events
from jaxfl.privacy.gaussian import Floats, bisect, check_delta, gdp_eps
from jaxfl.privacy.pld import TINY

__all__ = ["of_group"]

FAR = 690.0  # e^FAR and e^-FAR are numbers
POINTS = 1 << 14  # of a profile
SHARP = 1e-9  # a delta: curves that are read no further have less numerical noise at small eps
MORE = 17  # deltas at which a curve that is not at hand is read again


@CALM
def of_group(event: AnyEvent, size: int, delta: float) -> Guarantee:
    """The eps of ``size`` records together, from the proof for one.

    The records may be those of one client or of several: they change one after the other, and each change
    is one of a single record.  Where that is mu-GDP, a group is ``size mu``-GDP [Dong, Roth, Su, 2022].
    Elsewhere let T(a) be the most that an event of probability a on one data set has on a neighbour, the
    least of ``delta(eps) + exp(eps) a`` over all eps: for a group it is ``T(T(...T(a)))``, size times
    [Theorem 2.14 there].  Each T is one of its lines, and k lines that follow one another are::

        eps = eps_1 + ... + eps_k,    D_j = delta(eps_j) + exp(eps_j) D_{j-1},    D_0 = 0

    Any eps_1, ..., eps_k prove (eps, D_k), and those of the a with the least eps count.  Noise for whole
    clients proves more of all records of a client: take ``clip="client"`` where an algorithm has it.

    >>> from jaxfl.privacy import Event, Mean, Sampling, epsilon, of_group
    >>> one = Event(Sampling("full", 100, 100), Mean(1.0), sigma=0.05, releases=9)
    >>> round(epsilon(one, 1e-5).eps, 2), round(of_group(one, 3, 1e-5).eps, 2)
    (5.41, 21.18)
    """
    check_event(event)
    check_delta(delta)
    size = int(whole("size", size, 1))
    units = {one.unit for one in plain_events(event)}
    require(units <= {"record"}, "The event protects whole clients already", "read its own eps")
    alone = epsilon(event, delta)
    most = max((one.sampling.m for one in plain_events(event)), default=0)
    few = f", more than the {most} that the event draws from" * (size > most > 1)
    label = f"group privacy of {size} records{few}: "
    if size == 1 or not alone.status:
        return alone._replace(method=label + alone.method)
    mu = _gaussian(event)
    if mu is not None:
        eps = float(gdp_eps(size * mu, delta))
        return Guarantee(eps, delta, f"{label}{size} mu, {alone.method}", alone.status)
    floors = _floors(event)
    curves, top = [profile(event, one) for one in floors], min(epsilon(event, floors[0]).eps, FAR)
    lines = _lines(curves, top)
    eps = _in_steps(lines, size, delta)
    if math.isinf(eps):
        end = f"{lines.delta[-1]:.2g}, where eps is {lines.eps[-1]:.4g}"
        why = f"none, as the bounds on the delta of one record end at {end}"
        way = 'take noise for whole clients (clip="client"), a smaller eps or a larger delta'
        return Guarantee(eps, delta, f"{label}{why}: {way}", Status.NONE)
    if not at_hand(event):  # more points where the deltas of these lines are
        least = max(float(lines.delta[-1]), delta * math.exp(-min(eps, FAR)))
        more = joined(lambda some: epsilon(event, some).eps, np.geomspace(least, delta, MORE))
        eps = min(eps, _in_steps(_lines([*curves, more], top), size, delta))
    return Guarantee(eps, delta, f"{label}one after the other, {alone.method}", alone.status)


class _Lines(NamedTuple):
    """Lines ``delta + exp(eps) a`` by rising eps, and the a below which the next one is lower."""

    eps: Floats
    delta: Floats
    turns: Floats


def _gaussian(event: AnyEvent) -> float | None:
    """The mu of an event that is mu-GDP by a closed form, in each of its phases; else None."""
    inner = described(event)
    if not isinstance(inner, Phases):
        return closed_form(inner)
    each = [_gaussian(part) for part in inner.events]
    return None if None in each else max(mu for mu in each if mu is not None)


def _floors(event: AnyEvent) -> list[float]:
    """How far down delta(eps) is read; curves at hand are read a second time, where they are sharper."""
    floor = min(max(TINY, 1.01 * delta(event, FAR).delta), 0.999)
    return [floor, *({max(floor, SHARP)} - {floor} if at_hand(event) else ())]


def _lines(curves: Sequence[Curve], top: float) -> _Lines:
    """Lines above T: ``delta(eps) + exp(eps) a`` for 0 <= eps <= top, and their mirror images below 0.

    ``Q(S) <= exp(eps) P(S) + delta`` of a set's complement is
    ``P(S) <= 1 - exp(-eps) (1 - delta) + exp(-eps) Q(S)``.
    """
    e = np.unique(np.linspace(0.0, top, POINTS))
    d = np.min([curve(e) for curve in curves], axis=0)
    mirrored = 1 - np.exp(-e) * (1 - d)
    e, d = np.append(-e[:0:-1], e), np.append(mirrored[:0:-1], d)
    turns = (d[:-1] - d[1:]) / np.diff(np.exp(e))
    return _Lines(e, d, np.maximum.accumulate(turns[::-1])[::-1])


def _in_steps(lines: _Lines, size: int, most: float) -> float:
    """The least eps of ``size`` lines one after the other whose delta is at most ``most``."""

    def follow(a: float) -> tuple[float, float]:
        eps = D = 0.0
        for _ in range(size):
            j = int(np.searchsorted(-lines.turns, -a))
            eps_j, delta_j, slope = lines.eps[j], lines.delta[j], math.exp(lines.eps[j])
            eps, D = eps + float(eps_j), float(delta_j) + slope * D
            a = min(1.0, float(delta_j) + slope * a)
        return max(eps, 0.0), D

    def fits(x: Floats) -> bool:
        return follow(math.exp(-x))[1] <= most

    if not fits(np.array(FAR)):
        return math.inf
    return follow(math.exp(-bisect(fits, np.zeros(()), np.array(FAR), steps=60)))[0]
