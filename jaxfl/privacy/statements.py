"""Statements about a mechanism that a reader can use: mu, rates of an attack, and the profile itself.

The profile delta(eps), eps >= 0, is that of the worse direction: all curves here are symmetric.
The trade-off curve of a mechanism, the least false negative rate at a false positive rate alpha, is
``f(alpha) = max_eps max(0, 1 - delta - e^eps alpha, e^-eps (1 - delta - alpha))`` [Dong, Roth, Su, 2022].
Any set of eps gives a lower bound on f, and with it an upper bound on the power of every attack.

J. F. Gomez, B. Kulynych, G. Kaissis, J. Hayes, B. Balle, A. Honkela: (eps, delta) Considered Harmful.
2025.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from jaxfl.core.errors import require
from jaxfl.core.foreign import CALM
from jaxfl.privacy.accountants import (
    STATUS,
    Curve,
    at_hand,
    closed_form,
    epsilon,
    of_client,
    profile,
)
from jaxfl.privacy.claims import above, understates
from jaxfl.privacy.decisions import FPR
from jaxfl.privacy.events import (
    NEIGHBOURS,
    OBSERVED,
    AnyEvent,
    Status,
    Unproven,
    plain_events,
    wrappers,
)
from jaxfl.privacy.gaussian import Floats, bisect, check_delta, gdp_delta, gdp_power

__all__ = [
    "IN_SHORT",
    "Card",
    "basis",
    "card",
    "gaussian_above",
    "in_short",
    "power",
    "power_at",
    "regret",
    "trade_off",
]

IN_SHORT = ("mu", *(f"tpr_at_{fpr:g}" for fpr in FPR))
LOOSE = 0.01  # a regret above which mu says too little [Gomez et al., 2025]
SHARP = 1e-4  # relative: how far mu may be above the least one
ALIKE = 1e-2  # relative: how far the eps of an audited mechanism may be from that of a card
POINTS = 128  # of a profile that a card carries, besides eps = 0
MOST = 1 << 15  # places where a curve is looked at
TOLD = 1e-15  # the least regret of a curve that is not Gaussian, which floats may not tell from 0
DIFFERENCES = (  # of neighbouring data, in the order of their kinds
    "a record was changed",
    "a record is in the data",
    "a record took part",
    "a client's records were changed",
    "a client is in the data",
    "a client's update took part",
)
CHANGED = dict(zip(NEIGHBOURS.values(), DIFFERENCES, strict=True))
LEFT_OUT = (
    "other runs on the same data, tuning included: eps and deltas add up; metrics of the training data, "
    "which are exact; test and validation records; the rounding of floating-point numbers"
)


class Card(NamedTuple):
    """The proven privacy of a run in the forms that readers use: eps, mu, attack rates, profile.

    ``mu`` is the least for which ``delta(eps) <= gdp_delta(mu, eps)`` wherever delta(eps) is at least
    ``floor``: so ``delta(eps) <= max(gdp_delta(mu, eps), floor)`` for all eps.  ``regret`` is how far that
    Gaussian curve lies below the proven one, in both error rates [Gomez et al., 2025].  ``rates`` holds,
    for each false positive rate, the largest true positive rate of any attack.  Straight lines in e^eps
    between the points of the profile are an upper bound, too, and so is its last delta beyond them.
    """

    eps: float
    delta: float
    method: str
    status: str
    claimed: float | None
    unit: str
    neighbours: str
    seen: str
    mu: float
    floor: float
    regret: float
    rates: Mapping[float, float]
    profile: tuple[tuple[float, float], ...]  # pairs of eps and delta
    rests_on: tuple[str, ...]  # what the user states or declares; empty: on nothing of that kind
    assumes: str = ""
    audited: Mapping[str, Any] | None = None  # facts of an audit: lower, plain, confidence, power

    @property
    def quoted(self) -> float | None:
        """mu where it may be quoted, which is where its regret is at most 0.01; else None."""
        return quoted(self.mu, self.regret)

    def facts(self) -> dict[str, Any]:
        """The facts of the card, for JSON; mu is None where it is not quoted."""
        eps, delta = zip(*self.profile, strict=True) if self.profile else ((), ())
        rates = {f"{fpr:g}": rate for fpr, rate in self.rates.items()}
        profile = {"eps": eps, "delta": delta}
        return {**self._asdict(), "mu": self.quoted, "rates": rates, "profile": profile}

    def lines(self) -> list[tuple[str, str]]:
        """Pairs (name, text), one for each fact."""
        how = basis(self.status)
        if math.isinf(self.eps):
            return [(how, f"none at delta {_up(self.delta)}: {self.method}")]
        status = STATUS.get(self.status, "")
        narrow = "; not all records of a client" if self.unit == "record" else ""
        out = [
            (
                how,
                f"eps at most {_up(self.eps)} at delta {_up(self.delta)}, of all rounds together",
            ),
            ("by", f"{self.method} ({status})"),
            ("protects", f"{self.neighbours}{narrow}"),
            ("adversary", f"sees {self.seen}"),
            ("mu", self._mu()),
        ]
        out += [
            (
                f"at {100 * fpr:g} % FPR",
                f"detecting whether {CHANGED[self.neighbours]} has a true positive rate of at most "
                f"{_up(100 * rate)} %{self._reached(fpr)}",
            )
            for fpr, rate in self.rates.items()
        ]
        if self.claimed is not None:
            out.append(("claimed", self._claim()))
        if self.audited is not None:
            out.append(("audited", self.audit()))
        own = "no part of yours: the proof reads nothing that you declare"
        out.append(("rests on", "; ".join(self.rests_on) or own))
        out += [("assumes", self.assumes)] if self.assumes else []
        return [*out, ("leaves out", LEFT_OUT)]

    def _mu(self) -> str:
        """The mu of Gaussian differential privacy, and the regret of its curve, in words."""
        if self.regret == 0:
            return f"{_up(self.mu)}: exactly as private as a mu-Gaussian mechanism"
        if math.isinf(self.mu):
            return f"none: delta(eps) never falls to {_up(self.floor)}"
        if self.quoted is None:
            return f"not quoted: it loses {_up(self.regret)} of an attacker's error rates; take those below"
        floor, lost = _up(self.floor), _up(self.regret)
        return (
            f"{_up(self.mu)}, where delta is {floor} or more: there the mechanism is at least as private "
            f"as a mu-Gaussian one, and mu says nothing of smaller deltas; the bounds on an "
            f"attacker's error rates are those of the Gaussian if both rates move by at most {lost}"
        )

    def audit(self) -> str:
        """The eps of the audit, its confidence, its condition, and what it refutes, in words."""
        found = self.audited or {}
        sure = f"{100 * float(found['confidence']):g} % confidence"
        given = found["lower"] > found.get("plain", found["lower"])
        noise = ", if only the amount of noise differs" * given
        refuted = max(found["lower"], found.get("needed", 0.0)) > self.eps
        flag = f"; it REFUTES the eps that is {basis(self.status)}: do not rely on it" * refuted
        return f"eps at least {float(found['lower']):.4g}, at {sure}{noise}{flag}"

    def _claim(self) -> str:
        assert self.claimed is not None
        how = basis(self.status)
        if understates(self.claimed, self.eps):
            then = f"it promises MORE privacy than is {how}: do not rely on it"
        elif self.claimed > self.eps:
            then = f"a larger eps than is {how}, which holds too"
        else:
            then = f"as is {how}, up to rounding"
        return f"eps {self.claimed:.4g} at this delta, by the paper's formula: {then}"

    def _reached(self, fpr: float) -> str:
        power = (self.audited or {}).get("power") or {}
        return f"; an audit reached {100 * power[fpr]:.3g} %" if fpr in power else ""

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.lines())
        return "\n".join(f"{name:{width}}  {words}" for name, words in self.lines())


def card(
    event: AnyEvent,
    delta: float,
    *,
    floor: float | None = None,
    method: str | None = None,
    claimed: float | None = None,
    assumes: str = "",
    audited: Any = None,
) -> Card:
    """The card of an event; ``floor`` is by default delta, ``audited`` a result of :func:`jaxfl.audit`."""
    found, floor = (
        epsilon(event, delta, method),
        delta if floor is None else check_delta(floor, "floor"),
    )
    first = next(plain_events(event), None)
    mu, lost, rates, points = _numbers(event, floor, method)
    rests = [
        w.why if isinstance(w, Unproven) else w.why or STATUS[w.status] for w in wrappers(event)
    ]
    return Card(
        found.eps,
        delta,
        found.method + of_client(event, delta),
        found.status,
        claimed,
        "" if first is None else first.unit,
        "" if first is None else NEIGHBOURS[first.unit, first.adjacency],
        "" if first is None else OBSERVED[first.trust],
        mu,
        floor,
        lost,
        rates,
        points,
        tuple(dict.fromkeys(rests)),
        assumes,
        None if audited is None else _attack_on(event, delta, audited),
    )


def _attack_on(event: AnyEvent, delta: float, audited: Any) -> Mapping[str, Any]:
    """The facts of an audit, which attacked a mechanism with the same eps at the same delta."""
    facts = audited._asdict() if hasattr(audited, "_asdict") else {}
    require(
        {"lower", "proven", "delta"} <= facts.keys(),
        "is no result of jaxfl.audit",
        "pass what jaxfl.audit returned",
        audited=audited,
    )
    eps, other, at = epsilon(event, delta).eps, float(facts["proven"]), float(facts["delta"])
    require(
        at == delta and math.isclose(other, eps, rel_tol=ALIKE),
        lambda: (
            f"The audit attacked another mechanism: its proven eps is {other:.4g} at delta = {at:g}, and "
            f"that of this card {eps:.4g} at delta = {delta:g}"
        ),
        "audit with the numbers of the run: sampler, m (records of its smallest client), rounds, delta and "
        "all hyper-parameters",
    )
    return cast(Mapping[str, Any], facts)


def basis(status: str) -> str:
    """The word for an eps: proven, or stated."""
    return "stated" if status == Status.STATED else "proven"


def quoted(mu: float, regret: float) -> float | None:
    """mu, unless it is too loose to be quoted, or there is none."""
    return mu if regret <= LOOSE and math.isfinite(mu) else None


def _up(number: float) -> str:
    """Four digits, rounded up: what is stated holds."""
    return f"{above(number):.4g}"


@functools.lru_cache(maxsize=1024)
@CALM
def _numbers(
    event: AnyEvent, floor: float, method: str | None
) -> tuple[float, float, dict[float, float], tuple[tuple[float, float], ...]]:
    """mu, regret, rates and the profile."""
    top = epsilon(event, floor, method).eps
    if math.isinf(top):  # no Gaussian curve lies below
        return math.inf, math.nan, dict.fromkeys(FPR, 1.0), ()
    exact, curve = closed_form(event, method), profile(event, floor, method)
    mu = gaussian_above(curve, top) if exact is None else exact
    rates = {fpr: power(curve, top, fpr) if exact is None else gdp_power(mu, fpr) for fpr in FPR}
    lost = max(regret(curve, top, mu), TOLD) if exact is None else 0.0
    eps = np.linspace(0.0, top, POINTS + 1)
    points = zip(eps.tolist(), np.asarray(curve(eps)).tolist(), strict=True)
    return mu, lost, rates, tuple(points)


@functools.lru_cache(maxsize=8192)
@CALM
def in_short(event: AnyEvent, delta: float) -> Mapping[str, float]:
    """mu down to delta, and the power of attacks; empty where these take long, or nothing is proven.

    mu is NaN where a card does not quote it.
    """
    top = epsilon(event, delta).eps
    if math.isinf(top) or not at_hand(event):
        return {}
    exact, curve = closed_form(event), profile(event, delta)
    mu = gaussian_above(curve, top) if exact is None else exact
    rates = {fpr: power(curve, top, fpr) if exact is None else gdp_power(mu, fpr) for fpr in FPR}
    tight = quoted(mu, regret(curve, top, mu) if exact is None else 0.0)
    shown = math.nan if tight is None else tight
    return dict(zip(IN_SHORT, map(float, (shown, *rates.values())), strict=True))


def gaussian_above(curve: Curve, top: float) -> float:
    """A mu with ``gdp_delta(mu, eps) >= curve(eps)`` for all eps up to ``top``.

    It is :data:`SHARP` above what the places need at which the curve is read.  Between two places delta is
    at most that of the left one, and the Gaussian's at least that of the right one.  Intervals where this
    leaves room are halved.
    """
    eps, least = np.linspace(0.0, 1.0, 129) ** 2 * top, 0.0
    while True:
        delta = np.asarray(curve(eps))
        low = gdp_delta(least, eps) < delta
        least = max([least, *_mu(eps[low], delta[low])])
        mu = (1 + SHARP) * least
        wide = gdp_delta(mu, eps[1:]) < delta[:-1]
        if not wide.any() or math.isinf(mu):
            return float(mu)
        if eps.size > MOST:  # a curve with a cliff
            return float(max(mu, *_mu(eps[1:][wide], delta[:-1][wide])))
        eps = np.sort(np.append(eps, (eps[1:] + eps[:-1])[wide] / 2))


def _mu(eps: Floats, delta: Floats) -> Floats:
    """The least mu with ``gdp_delta(mu, eps) >= delta``, from above."""
    high = 2 * np.sqrt(eps) + 80.0
    found = bisect(lambda mu: gdp_delta(mu, eps) >= delta, np.zeros_like(eps), high)
    return np.asarray(np.where(gdp_delta(high, eps) < delta, np.inf, found))


def power(curve: Curve, top: float, fpr: float) -> float:
    """The largest true positive rate at this false positive rate: ``1 - f(fpr)``, from above."""
    require(0 < fpr < 1, "must be above 0 and below 1", fpr=fpr)
    low, high, best = 0.0, top, 1.0
    for _ in range(4):  # closer and closer to where it is least
        eps = np.linspace(low, high, 513)
        rates = _powers(eps, curve(eps), np.array([fpr]))[0]
        place, best = int(np.argmin(rates)), min(best, float(rates.min()))
        low, high = float(eps[max(place - 1, 0)]), float(eps[min(place + 1, 512)])
    return max(best, fpr)


def _powers(eps: Floats, delta: Floats, fpr: Floats) -> Floats:
    """The true positive rate that each (eps, delta), in columns, allows at each ``fpr``, in rows."""
    alpha = fpr[:, None]
    first = np.exp(np.minimum(eps, 700.0)) * alpha + delta
    return np.asarray(np.minimum(first, 1 - np.exp(-eps) * np.maximum(1 - delta - alpha, 0.0)))


def power_at(eps: Floats, delta: Floats, fpr: Floats) -> Floats:
    """The largest true positive rates that all of these (eps, delta) together allow."""
    return np.asarray(np.clip(_powers(eps, delta, fpr).min(axis=1), fpr, 1.0))


def trade_off(curve: Curve, top: float, fpr: Sequence[float] | Floats) -> Floats:
    """f at these false positive rates, from below."""
    eps = np.linspace(0.0, 1.0, 1025) ** 2 * top
    return 1 - power_at(eps, curve(eps), np.asarray(fpr, np.float64))


def regret(curve: Curve, top: float, mu: float) -> float:
    """The least k >= 0 with ``f(alpha + k) - k <= G_mu(alpha)`` for all alpha.

    f is joined by straight lines between many alpha, which are above it.
    """
    some = np.geomspace(1e-7, 0.5, 600)
    alpha = np.concatenate([[0.0], some, 1 - some[-2::-1], [1.0]])
    f, G = trade_off(curve, top, alpha), 1 - gdp_power(mu, alpha)

    def below(k: Floats) -> bool:
        moved = np.interp(np.minimum(alpha + k, 1.0), alpha, f) - k
        return bool((moved <= G + 1e-12).all())

    return float(bisect(below, np.zeros(()), np.ones(()), 40)) if not below(np.zeros(())) else 0.0
