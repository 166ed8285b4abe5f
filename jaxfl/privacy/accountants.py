"""Accountants: ``epsilon(event, delta)`` and ``delta(event, eps)``.

Each answer states its method, and the status of the proof:

====  ==========================================================================================
E     established: published accountants
D     an elementary derivation, given in the docstrings
N     new, proof sketched and checked numerically, not reviewed: only where asked for by name
U     stated by the user: right if the user's event is, which nobody checked
P     declared and probed: right if the user's parts are what they declare, which a probe did not refute
====  ==========================================================================================

Methods for SVRG and SAGA are ``"chain"`` and ``"reveal"`` (the default is the better of the two),
``"theorem_k"``, ``"best"`` (the best of the three), ``"chain_fixed"`` (the chain with two fixed splits of
delta instead of the best one) and ``"pair_or_chain"`` (the better of that and Theorem K).  For shuffled
epochs, ``"ceil"`` counts a partial pass as a whole one.  No answer covers floating-point and
pseudo-random effects.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from jaxfl.core.errors import InputError, require
from jaxfl.core.foreign import CALM
from jaxfl.core.params import choice
from jaxfl.privacy.claims import above, rounded
from jaxfl.privacy.events import (
    AnyEvent,
    Described,
    Event,
    Mean,
    NoClaim,
    OnRing,
    Phases,
    Sampling,
    Sequence,
    Stated,
    Status,
    Unproven,
    changed,
    described,
    weakest,
    wrappers,
)
from jaxfl.privacy.gaussian import Floats, check_delta, check_eps, gdp_delta, gdp_eps
from jaxfl.privacy.mixtures import Chain, coins_delta, coins_eps
from jaxfl.privacy.pld import Part, compose
from jaxfl.privacy.profiles import Gaussian, Shown, theorem_k
from jaxfl.privacy.releases import METHODS, Release, releases, snapshot
from jaxfl.privacy.rings import ring_delta, ring_eps

__all__ = [
    "METHODS",
    "STATUS",
    "Curve",
    "Guarantee",
    "at_hand",
    "check_event",
    "closed_form",
    "delta",
    "epsilon",
    "joined",
    "of_client",
    "profile",
    "reserved",
]

Curve: TypeAlias = Callable[[Floats], Floats]  # an upper bound on delta at any eps >= 0

STATUS: dict[str, str] = {
    Status.ESTABLISHED: "established: by published accountants",
    Status.DERIVED: "derived: by an elementary derivation in jaxfl's documentation",
    Status.NEW: "new: its proof is sketched and checked numerically, not reviewed",
    Status.STATED: "stated by the user: not proven",
    Status.PROBED: "declared and probed: right if the parts are what the user declares",
}
WORST = ", for the records with the largest eps"
MEAN = "a record may move all of a batch's clipped mean: clip='client' states an eps for that"


class Guarantee(NamedTuple):
    """(eps, delta)-differential privacy, how it was proven, and its status: a key of :data:`STATUS`."""

    eps: float
    delta: float
    method: str
    status: Status

    def __repr__(self) -> str:
        return f"Guarantee({rounded(self.eps, self.delta)}: {self.method}{reserved(self.status)})"


def reserved(status: Status) -> str:
    """Words on a status below a proof that anybody may check, in brackets; else nothing."""
    safe = (Status.ESTABLISHED, Status.DERIVED, Status.NONE)
    return "" if status in safe else f" ({STATUS[status]})"


class Bound(NamedTuple):
    """A privacy curve."""

    eps: Callable[[float], float]
    delta: Callable[[float], float]
    method: str
    status: Status
    mu: float | None = None  # of GDP, where it is all of it; inversely proportional to the noise
    curve: Callable[[float], Curve] | None = None  # by the least delta that matters; None: by eps


@CALM
def epsilon(event: AnyEvent, delta: float, method: str | None = None) -> Guarantee:
    """The proven eps of an ``event`` at this delta.

    ``method`` asks for one proof, such as ``"chain"`` or ``"reveal"`` for SVRG and SAGA; by default the
    least eps of all proofs that apply counts.
    """
    check_event(event, method)
    return _guarantee(event, method, delta=check_delta(delta))


def of_client(event: AnyEvent, delta: float) -> str:
    """The eps of all records of a client whose estimates are clipped as wholes, as a clause; else "".

    An estimate is in a ball of radius C, whatever the client's records are, and moves by 2C at most.  Data
    that differ in one record are data that differ in one client, so that this eps covers a record, too.
    """
    if not epsilon(event, delta).method.endswith(MEAN):
        return ""

    def ball(one: Event) -> Event:
        whole = getattr(one.sensitivity, "whole", math.inf)
        every, most = Sampling("full", 1, 1), Mean(whole, over_b=2.0, mean=2.0, whole=whole)
        return dataclasses.replace(one, sampling=every, sensitivity=most)

    eps = epsilon(changed(event, ball), delta).eps
    return f", {above(eps):.4g} at this delta, which covers one record" * math.isfinite(eps)


@CALM
def profile(event: AnyEvent, floor: float, method: str | None = None) -> Curve:
    """An upper bound on delta at any eps >= 0, precise where delta is above ``floor``."""
    check_event(event, method)
    event = described(event)
    if isinstance(event, Phases):
        parts = [profile(part, floor, method) for part in event.events]
        return lambda eps: np.max([part(eps) for part in parts], axis=0)
    curves = [
        bound.curve(floor) if bound.curve else _joined(bound, floor)
        for bound in _bounds(event, method)
    ]
    return lambda eps: np.min([curve(eps) for curve in curves], axis=0)


def at_hand(event: AnyEvent, method: str | None = None) -> bool:
    """Whether :func:`profile` takes no longer than an eps does."""
    event = described(event)
    if isinstance(event, Phases):
        return all(at_hand(part, method) for part in event.events)
    return all(bound.curve for bound in _bounds(event, method))


@CALM
def delta(event: AnyEvent, eps: float, method: str | None = None) -> Guarantee:
    """The proven delta of an ``event`` at this eps; ``method`` is that of :func:`epsilon`."""
    check_event(event, method)
    return _guarantee(event, method, eps=check_eps(eps))


def check_event(event: AnyEvent, method: str | None = None) -> None:
    """Raise unless these are an event and the name of a method, if any."""
    way = "make one with jaxfl.privacy.Event, or take an algorithm's"
    require(isinstance(event, AnyEvent), "must be a privacy event", way, event=event)
    if method is not None:
        choice("method", method, METHODS)


def closed_form(event: AnyEvent, method: str | None = None) -> float | None:
    """The mu of an event whose only bound is mu-GDP, inversely proportional to the noise; else None."""
    event = described(event)
    bounds = [] if isinstance(event, Phases) else _bounds(event, method)
    return bounds[0].mu if len(bounds) == 1 else None


@functools.lru_cache(maxsize=8192)
def _guarantee(
    event: AnyEvent, method: str | None, *, eps: float | None = None, delta: float | None = None
) -> Guarantee:
    """The least bound at this delta or this eps; for phases, that of the worst phase."""
    size = operator.attrgetter("eps" if eps is None else "delta")
    unchecked = tuple(wrappers(event))
    for one in unchecked:
        if isinstance(one, Unproven):
            nothing = (eps, 1.0) if delta is None else (math.inf, delta)
            return Guarantee(*nothing, one.why, Status.NONE)  # type: ignore[arg-type]
    if unchecked:
        found = _guarantee(described(event), method, eps=eps, delta=delta)
        stated = [one for one in unchecked if isinstance(one, Stated)]
        why = "".join(dict.fromkeys(f", {one.why}" for one in stated if one.why))
        status = weakest(*(one.status for one in stated))
        return found._replace(method=found.method + why, status=status) if found.status else found
    if isinstance(event, Phases):
        parts = [_guarantee(part, method, eps=eps, delta=delta) for part in event.events]
        worst: Guarantee = max(parts, key=size)
        named = math.isinf(worst.eps) or worst.method.endswith(WORST)
        return worst._replace(
            method=worst.method + WORST * (not named),
            status=weakest(*(part.status for part in parts)),
        )
    answers = []
    for bound in _bounds(event, method):
        if delta is not None:
            pair = bound.eps(delta), delta
        elif eps is not None:
            pair = eps, bound.delta(eps)
        answers.append(Guarantee(*pair, bound.method, bound.status))
    return min(answers, key=size)


# --- bounds of one event -------------------------------------------------------------------------


def _bounds(event: AnyEvent, method: str | None) -> list[Bound]:
    """All bounds that the method allows; the least answer counts."""
    events = _flat(described(event))
    for part in events:
        if isinstance(part, NoClaim):
            return [_nothing(f"no privacy claim: {part.reason}")]
    plain = [part for part in events if isinstance(part, Event) and part.releases > 0]
    for part in plain:
        if math.isinf(getattr(part.sensitivity, "clip", 0.0)):
            whole = isinstance(part.sensitivity, Mean) and math.isfinite(part.sensitivity.whole)
            return [_nothing(MEAN if whole else "clip = inf bounds no record's influence")]
        if part.sigma == 0:
            return [_nothing("no noise")]
    if any(isinstance(part.sensitivity, OnRing) for part in plain):
        return [_on_rings(plain)]
    eta = sum(part.sampling.overflow(part.releases) for part in plain)
    bounds = []
    alone = plain[0] if len(plain) == 1 else None
    estimator = alone is not None and snapshot(alone)
    if not (estimator and method in ("chain", "chain_fixed", "theorem_k", "pair_or_chain")):
        bounds.append(_composed([releases(part, method) for part in plain]))
    if alone is not None and estimator and method != "reveal":
        bounds.extend(_chained(alone, method))
    require(
        not estimator or bounds,
        lambda: (
            f"does not cover this estimator with sampler = {alone.sampling.scheme if alone else ''!r}"
        ),
        "leave the method out",
        method=method,
    )
    return [_bounded_batches(bound, eta) for bound in bounds] if eta > 0 else bounds


def _joined(bound: Bound, floor: float) -> Curve:
    return joined(bound.eps, np.append(np.geomspace(floor, 0.5, 17), (0.7, 0.9, 0.97)))


def joined(eps_at: Callable[[float], float], deltas: Floats) -> Curve:
    """The eps at some deltas, joined by straight lines in e^eps, in which delta(eps) is convex.

    At 0 it is at most ``delta + (1 - delta) tanh(eps/2)`` of any other point: an (eps, delta)-private
    release is no easier to distinguish than one that reveals all with probability delta, and is randomized
    response of eps otherwise [Kairouz, Oh, Viswanath, 2015].
    """
    found = np.array([eps_at(float(delta)) for delta in deltas])
    eps, last = np.unique(found[np.isfinite(found)], return_index=True)
    least = np.minimum.accumulate(deltas[np.isfinite(found)][last])
    if not eps.size or eps[0] > 0:
        none = np.min(least + (1 - least) * np.tanh(eps / 2), initial=1.0)
        eps, least = np.append(0.0, eps), np.append(none, least)

    def curve(at: Floats) -> Floats:
        k = np.clip(np.searchsorted(eps, at, side="right") - 1, 0, max(eps.size - 2, 0))
        k, after = np.minimum(k, eps.size - 1), np.minimum(k + 1, eps.size - 1)
        wide, gone = np.minimum(eps[after] - eps[k], 700.0), np.minimum(at - eps[k], 700.0)
        share = np.expm1(gone) / np.where(wide > 0, np.expm1(wide), 1.0)
        inside = least[k] + np.clip(share, 0.0, 1.0) * (least[after] - least[k])
        return np.asarray(np.where(at >= eps[-1], least[-1], inside))

    return curve


def _flat(event: Described) -> list[Event | NoClaim]:
    if isinstance(event, Phases):
        raise InputError(
            "Phases, such as the event of clients of different sizes, have no accountant inside a Sequence",
            "add up the eps of the parts of the Sequence, and their deltas",
        )
    if isinstance(event, Sequence):
        return [flat for part in event.events for flat in _flat(described(part))]
    return [event]


def _nothing(why: str) -> Bound:
    return Bound(
        lambda delta: math.inf,
        lambda eps: 1.0,
        why,
        Status.NONE,
        curve=lambda floor: lambda eps: np.ones_like(eps),
    )


def _on_rings(plain: list[Event]) -> Bound:
    """Sums of integers with integer noise: Renyi divergences add, or the squares of mu."""
    whole = all(isinstance(part.sensitivity, OnRing) for part in plain)
    if not whole or any(part.sampling.scheme != "full" for part in plain):
        return _nothing("noise on a ring composes with releases of its own kind alone")
    laws = sorted({part.sensitivity.noise for part in plain})  # type: ignore[union-attr]
    names = " and ".join(laws).replace("_", " ")
    way = "GDP" if laws == ["rounded_gaussian"] else "Renyi divergences"
    return Bound(
        lambda delta: ring_eps(plain, delta),
        lambda eps: ring_delta(plain, eps),
        f"{names} noise on a ring: {way}",
        Status.DERIVED,
    )


def _composed(all_releases: list[Release]) -> Bound:
    """All releases as one privacy loss distribution, or in closed form if all are Gaussian."""
    parts = [part for release in all_releases for part in release.parts]
    status = weakest(Status.ESTABLISHED, *(release.status for release in all_releases))
    names = " + ".join(dict.fromkeys(release.method for release in all_releases))
    names = names or "nothing released"
    if all(isinstance(part.profile, Gaussian) for part in parts):
        mu = math.sqrt(sum(part.count * part.profile.shift_bound**2 for part in parts))
        return Bound(
            lambda delta: float(gdp_eps(mu, delta)),
            lambda eps: float(gdp_delta(mu, eps)),
            f"{names}: GDP, closed form",
            status,
            mu,
            lambda floor: lambda eps: np.asarray(gdp_delta(mu, eps)),
        )
    first = parts[0].profile
    if len(parts) == 1 and isinstance(first, Shown) and len(first.w) == 2:
        (undrawn, drawn), T = first.mu, parts[0].count
        coins = first.w[1], drawn, undrawn, T
        return Bound(
            lambda delta: coins_eps(*coins, delta),
            lambda eps: coins_delta(*coins, eps),
            f"{names}: mean of GDP over coins",
            status,
        )
    return _pld(parts, names, status)


def _pld(parts: list[Part], name: str, status: Status) -> Bound:
    sides = (False,) if all(part.profile.symmetric for part in parts) else (False, True)

    def eps(delta: float) -> float:
        return max(float(compose(parts, delta=delta, reverse=r).eps(delta)) for r in sides)

    def delta(eps: float) -> float:
        return max(float(compose(parts, eps=eps, reverse=r).delta(eps)) for r in sides)

    def curve(floor: float) -> Curve:
        both = [compose(parts, delta=floor, reverse=r).delta for r in sides]
        return lambda eps: np.max([one(eps) for one in both], axis=0)

    return Bound(eps, delta, f"{name}: PLD", status, curve=curve)


def _chained(event: Event, method: str | None) -> list[Bound]:
    """The chain bound, and Theorem K where it was asked for."""
    estimator, sampling, sigma = event.sensitivity, event.sampling, event.sigma
    assert isinstance(estimator, Mean)
    scheme, q, T = sampling.scheme, sampling.q, event.releases
    out: list[Bound] = []
    visible = not estimator.hidden and scheme in ("poisson", "without_replacement")
    if visible and method not in ("reveal", "theorem_k"):
        # without replacement the record's place is taken by another one, which doubles v
        V = estimator.V(sampling) * (1 if scheme == "poisson" else 2) / sigma
        fixed = method in ("chain_fixed", "pair_or_chain")
        chain = Chain(q, V, estimator.M(sampling) / sigma, T, fixed)
        out.append(
            Bound(chain.eps, chain.delta, f"chain bound, {scheme}: PLD and GDP", Status.DERIVED)
        )
    if scheme == "poisson" and method in ("theorem_k", "pair_or_chain", "best"):
        X, Y = estimator.X(sampling) / sigma, estimator.Y(sampling) / sigma
        out.append(_pld([Part(theorem_k(q, X, Y), T)], "Theorem K (new, not reviewed)", Status.NEW))
    return out


def _bounded_batches(bound: Bound, eta: float) -> Bound:
    """``delta + eta``: draws beyond the padded capacity lose records [:meth:`Sampling.overflow`]."""

    def delta(eps: float) -> float:
        return min(1.0, bound.delta(eps) + eta)

    def eps(delta: float) -> float:
        return bound.eps(delta - eta) if delta > eta else math.inf

    def curve(floor: float) -> Curve:
        rest = max(floor - eta, 0.1 * floor)
        one = bound.curve(rest) if bound.curve else _joined(bound, rest)
        return lambda eps: np.minimum(1.0, one(eps) + eta)

    return Bound(
        eps,
        delta,
        f"{bound.method}, batches of bounded size (delta includes {eta:.2g} for them)",
        bound.status,
        curve=curve,
    )
