"""Events as a ``dp_accounting.DpEvent``, with which another tool can check what is proven.

::

    report = run.privacy()
    export = report.dp_event()
    accountant = dp_accounting.pld.PLDAccountant(export.relation)
    accountant.compose(export.event).get_epsilon(report.delta)

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
apart), ``RdpAccountant`` to the distance of two, which google/differential-privacy#464 may change: a
probe refuses it then.  Disjoint phases export the worst phase at this delta, and
an event of which nothing is proven a ``NonPrivateDpEvent``.  Where parts are the user's own, or the event
is, the export warns: another tool then proves what they describe, and not what they do.

The relation is part of what an event says: ``GaussianDpEvent(1.0)`` is eps = 4.38 (delta = 1e-5) under one,
and 10.0 under another.  :meth:`Export.compose` composes exports of one relation and accountant, and
refuses others.  How dp_accounting reads a multiplier is probed at the first export of each kind.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

from jaxfl.core.errors import InputError, JaxflWarning, require
from jaxfl.core.foreign import warn
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
    neighbours,
    wrappers,
)
from jaxfl.privacy.gaussian import gdp_eps
from jaxfl.privacy.pld import Part
from jaxfl.privacy.profiles import (
    Gaussian,
    Pair,
    WithoutReplacement,
    WithReplacement,
)
from jaxfl.privacy.releases import releases, whole

__all__ = ["Export", "accountant", "dp_event", "export", "neighboring_relation"]

LOOSE = 1.5  # a Renyi bound of one Gaussian is looser than exact by less


class Export(NamedTuple):
    """An event for dp_accounting, with what its numbers mean.

    Fields:
        event: the ``dp_accounting.DpEvent``.
        relation: the ``dp_accounting.NeighboringRelation`` for which it is made.
        accountant: the accountant that reads it so, "PLDAccountant" or "RdpAccountant"; "none" if
            dp_accounting has none.
        neighbours: how neighbouring data differ, in words.
    """

    event: Any
    relation: Any
    accountant: str
    neighbours: str

    def compose(self, *others: Export) -> Export:
        """These releases together; raise for exports that are made for another relation."""
        names = ("neighbours", "relation", "accountant")
        for name, other in itertools.product(names, others):
            mine, its = getattr(self, name), getattr(other, name)
            require(
                mine == its,
                lambda: (
                    f"These exports do not compose: the {name} of one is {mine}, of another {its}"
                ),
                "export a jaxfl.privacy.Sequence of their events",
            )
        return self._replace(event=_dp().ComposedDpEvent([self.event, *(o.event for o in others)]))

    def epsilon(self, delta: float) -> float:
        """The eps that the accountant of dp_accounting gives."""
        require(self.accountant != "none", "dp_accounting has no accountant of this event")
        made = _made(self.accountant, self.relation)
        return float(made.compose(self.event).get_epsilon(delta))


def export(event: AnyEvent, delta: float) -> Export:
    """The event with its relation and its accountant; raise where dp_accounting reads it differently."""
    relation, name = neighboring_relation(event, delta), accountant(event, delta).split("(")[0]
    name = name if name.endswith("Accountant") else "none"
    if name != "none":
        _probe(name, relation.name)
    return Export(dp_event(event, delta), relation, name, neighbours(event))


@functools.cache
def _probe(name: str, relation: str) -> None:
    """Raise unless an accountant reads multipliers as exports write them: here mu = 1."""
    dp, delta = _dp(), 1e-5
    scale = 2.0 if (name, relation) == ("PLDAccountant", "REPLACE_ONE") else 1.0
    one, exact = dp.GaussianDpEvent(scale), float(gdp_eps(1.0, delta))
    sampled = dp.PoissonSampledDpEvent(1.0, one)
    if (name, relation) == ("RdpAccountant", "REPLACE_ONE"):
        sampled = dp.SampledWithoutReplacementDpEvent(10, 10, one)
    for event in (one, sampled):
        eps = float(_made(name, dp.NeighboringRelation[relation]).compose(event).get_epsilon(delta))
        most = exact * (LOOSE if name == "RdpAccountant" else 1.001)
        require(
            0.999 * exact <= eps <= most,
            lambda: (
                f"The {name} of this dp_accounting gives eps = {eps:.4g} for {event} under "
                f"{relation}, where {exact:.4g} is right"
            ),
            "install the version that exports are written for: pip install 'dp-accounting>=0.6,<0.7'",
        )


def _made(name: str, relation: Any) -> Any:
    module = importlib.import_module(f"dp_accounting.{name[:3].lower()}")
    return getattr(module, name)(neighboring_relation=relation)


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
        warn(JaxflWarning(f"This DpEvent is a description: {why}"))
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
