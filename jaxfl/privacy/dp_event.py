"""Events as a ``dp_accounting.DpEvent``, so that another tool can check what is proven.

::

    report = run.privacy()
    accountant = dp_accounting.pld.PLDAccountant(report.neighboring_relation())
    accountant.compose(report.dp_event()).get_epsilon(report.delta)

gives ``report.proven``, up to the grids of both and the padding of Poisson batches:
:func:`jaxfl.privacy.epsilon` adds the chance that they overflow to delta.

==========================================  =======================================================
an event of                                 is checked by
==========================================  =======================================================
Gaussian releases, Poisson sampling under   ``PLDAccountant`` and ``RdpAccountant``, ADD_OR_REMOVE_ONE
add-remove
Poisson sampling under replace-one          ``PLDAccountant``, REPLACE_ONE
sampling without replacement                ``RdpAccountant``, REPLACE_ONE; its bound is larger
sampling with replacement                   no accountant of dp_accounting yet
==========================================  =======================================================

Under REPLACE_ONE the accountants of dp_accounting read a Gaussian's multiplier differently, and the
export follows each: ``PLDAccountant`` relates it to the norm of one record (two records are twice as far
apart), ``RdpAccountant`` to the distance of two.  Disjoint phases export the worst phase at this delta, and
an event of which nothing is proven a ``NonPrivateDpEvent``.  Where parts are the user's own, or the event
is, the export warns: another tool then proves what they describe, and not what they do.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable
from typing import Any

from jaxfl.core.errors import InputError, JaxflWarning, require
from jaxfl.privacy.accountants import STATUS, epsilon
from jaxfl.privacy.events import (
    AnyEvent,
    Event,
    Mean,
    NoClaim,
    Phases,
    Sequence,
    Unproven,
    described,
    wrappers,
)
from jaxfl.privacy.pld import Part
from jaxfl.privacy.profiles import (
    Gaussian,
    Pair,
    WithoutReplacement,
    WithReplacement,
)
from jaxfl.privacy.releases import releases, whole

__all__ = ["accountant", "dp_event", "neighboring_relation"]


def dp_event(event: AnyEvent, delta: float) -> Any:
    """The event as a ``dp_accounting.DpEvent``; raise where no such event describes it.

    >>> from jaxfl.privacy import Event, Mean, Sampling
    >>> dp_event(Event(Sampling("full", 10, 10), Mean(1.0), sigma=0.4, releases=7), 1e-5)
    SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=2.0), count=7)
    """
    dp = _dp()
    reasons = (
        one.why if isinstance(one, Unproven) else f"it is {STATUS[one.status]}"
        for one in wrappers(event)
    )
    for why in dict.fromkeys(reasons):
        warnings.warn(JaxflWarning(f"This DpEvent is a description: {why}"), stacklevel=2)
    event = described(event)
    if epsilon(event, delta).status == "":
        return dp.NonPrivateDpEvent()
    parts = _parts(event, delta)
    replaced = neighboring_relation(event, delta) is dp.NeighboringRelation.REPLACE_ONE
    # the multiplier of a Gaussian of shift mu is `scale` / mu
    scale = 2.0 if replaced and not _drawn(parts, WithoutReplacement) else 1.0
    out = [_exported(part, m, scale) for part, m in parts]
    return out[0] if len(out) == 1 else dp.ComposedDpEvent(out) if out else dp.NoOpDpEvent()


def neighboring_relation(event: AnyEvent, delta: float) -> Any:
    """The ``dp_accounting.NeighboringRelation`` for which :func:`dp_event` is made."""
    relation = _dp().NeighboringRelation
    parts = _parts(event, delta)
    pairs = any(isinstance(part.profile, Pair) and part.profile.symmetric for part, _ in parts)
    drawn = _drawn(parts, WithoutReplacement)
    require(
        not (pairs and drawn),
        "The event has Poisson batches and batches of a fixed size, and no accountant of dp_accounting "
        "takes both",
        "use one sampling",
    )
    fixed = drawn or _drawn(parts, WithReplacement)
    return relation.REPLACE_ONE if pairs or fixed else relation.ADD_OR_REMOVE_ONE


def accountant(event: AnyEvent, delta: float) -> str:
    """The accountant of dp_accounting that takes :func:`dp_event`, in words."""
    relation = neighboring_relation(event, delta).name
    parts = _parts(event, delta)
    if _drawn(parts, WithReplacement):
        return "none: dp_accounting has no accountant for sampling with replacement"
    name = "RdpAccountant" if _drawn(parts, WithoutReplacement) else "PLDAccountant"
    return f"{name}(neighboring_relation=NeighboringRelation.{relation})"


def _dp() -> Any:
    try:
        return importlib.import_module("dp_accounting")
    except ImportError:
        raise InputError(
            "Exporting events needs the package dp-accounting", "run pip install dp-accounting"
        ) from None


def _parts(event: AnyEvent, delta: float) -> list[tuple[Part, int]]:
    """The releases, each with the number of records that are drawn from."""
    event = described(event)
    if isinstance(event, Phases):
        return _parts(max(event.events, key=lambda part: epsilon(part, delta).eps), delta)
    if isinstance(event, Sequence):
        return [part for each in event.events for part in _parts(each, delta)]
    if isinstance(event, NoClaim) or not event.releases or not event.sigma:
        return []
    return [(part, event.sampling.m) for part in _each(event)]


def _each(event: Event) -> Iterable[Part]:
    """The parts of :func:`releases`, but equal Gaussian releases one by one."""
    parts, T = releases(event).parts, event.releases
    if isinstance(event.sensitivity, Mean) and whole(event):
        assert isinstance(parts[0].profile, Gaussian)
        return (Part(Gaussian(parts[0].profile.mu / T**0.5), T),)
    return parts


def _drawn(parts: Iterable[tuple[Part, int]], kind: type) -> bool:
    return any(isinstance(part.profile, kind) for part, _ in parts)


def _exported(part: Part, m: int, scale: float) -> Any:
    dp, profile = _dp(), part.profile
    if isinstance(profile, Gaussian):
        one = dp.GaussianDpEvent(scale / profile.mu)
    elif isinstance(profile, Pair) and min(profile.a) == 0 == max(profile.c):
        one = dp.PoissonSampledDpEvent(profile.w[-1], dp.GaussianDpEvent(1 / max(profile.a)))
    elif isinstance(profile, WithoutReplacement):
        gaussian = dp.GaussianDpEvent(1 / (2 * profile.g))
        one = dp.SampledWithoutReplacementDpEvent(m, round(profile.q * m), gaussian)
    elif isinstance(profile, WithReplacement):
        gaussian = dp.GaussianDpEvent(1 / (2 * profile.g))
        one = dp.SampledWithReplacementDpEvent(profile.m, profile.b, gaussian)
    else:
        raise InputError(
            "An estimator with snapshots (a record enters every release, drawn or not) has no DpEvent",
            "compare its eps with the bounds of jaxfl.privacy.accountants, or draw all records",
        )
    return one if part.count == 1 else dp.SelfComposedDpEvent(one, part.count)
