"""Group privacy: the eps of several records of one client, from the proof for one."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import require
from jaxfl.core.foreign import CALM
from jaxfl.core.params import whole
from jaxfl.privacy.accountants import Guarantee, check_event, closed_form, delta, epsilon
from jaxfl.privacy.events import AnyEvent, Phases, described, plain_events
from jaxfl.privacy.gaussian import bisect, check_delta, gdp_eps

__all__ = ["of_group"]

LARGEST, TRIED = 700.0, 40  # of the eps of a group, and of values for one record


@CALM
def of_group(event: AnyEvent, size: int, delta: float) -> Guarantee:
    """The eps of ``size`` records of one client together, from the proof for one.

    Where that is mu-GDP, a group is ``size mu``-GDP [Dong, Roth, Su, 2022].  Elsewhere, what is
    (e, d)-private for one record is ``(size e, d (exp(size e) - 1)/(exp(e) - 1))``-private for a group
    [Dwork, Roth, 2014], and the best e counts.  Noise for whole clients proves more: take
    ``clip="client"`` where an algorithm has it.

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
    label = f"group privacy of {size} records: "
    if size == 1 or not alone.status:
        return alone._replace(method=label + alone.method)
    inner = described(event)
    if isinstance(inner, Phases):  # of disjoint records: a group is in one of them
        worst = max((of_group(part, size, delta) for part in inner.events), key=lambda one: one.eps)
        return worst._replace(status=alone.status)
    mu = closed_form(event)
    if mu is not None:
        eps, how = float(gdp_eps(size * mu, delta)), f"{size} mu"
    else:
        eps, how = size * _of_one(event, size, delta), "the best eps of one"
    return Guarantee(eps, delta, f"{label}{how}, {alone.method}", alone.status)


def _of_one(event: AnyEvent, size: int, most: float) -> float:
    """The least e with ``delta(e) (exp(size e) - 1)/(exp(e) - 1) <= most``; infinity if there is none."""

    def fits(e: npt.NDArray[np.float64]) -> bool:
        grows = math.expm1(size * float(e)) / math.expm1(float(e))
        return delta(event, float(e)).delta * grows <= most

    some = np.geomspace(1e-3, LARGEST / size, TRIED)
    last = next((i for i, e in enumerate(some) if fits(e)), None)
    if last is None:
        return math.inf
    return float(bisect(fits, some[max(last - 1, 0)], some[last], steps=20))
