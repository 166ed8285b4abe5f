"""The releases of an event, which an accountant composes."""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import InputError, require
from jaxfl.privacy.events import Event, Increments, LocalSteps, Mean, OnRing, Status
from jaxfl.privacy.pld import Part
from jaxfl.privacy.profiles import (
    Gaussian,
    Profile,
    Shown,
    WithoutReplacement,
    WithReplacement,
    poisson,
    poisson_add_remove,
)

__all__ = [
    "METHODS",
    "Release",
    "correlates",
    "counted",
    "increments_shift",
    "releases",
    "separation",
    "shown_norm",
    "snapshot",
    "strategy_norm",
    "whole",
]

METHODS: tuple[str, ...] = (
    "chain",
    "chain_fixed",
    "reveal",
    "theorem_k",
    "pair_or_chain",
    "best",
    "ceil",
)


class Release(NamedTuple):
    """Parts to compose, the method that bounds them, and its status."""

    parts: tuple[Part, ...]
    method: str
    status: Status


def snapshot(event: Event) -> bool:
    """Whether a record enters releases for which it was not drawn."""
    estimator = event.sensitivity
    drawn_only = not isinstance(estimator, Mean) or estimator.undrawn == estimator.over_m == 0
    if drawn_only or whole(event):
        return False
    require(
        event.adjacency == "replace_one",
        "has no accountant for estimators with snapshots",
        "use 'replace_one'",
        adjacency=event.adjacency,
    )
    return True


def whole(event: Event) -> bool:
    """Whether every release reads all records."""
    sampling = event.sampling
    return sampling.scheme == "full" or (
        sampling.b == sampling.m
        and sampling.scheme in ("poisson", "without_replacement", "shuffled", "cyclic")
    )


def separation(event: Event) -> int:
    """The rounds from one use of a record to the next, at least; 0: rounds of any distance use it."""
    sampling = event.sampling
    if whole(event):
        return 1
    if sampling.scheme == "cyclic":
        return math.ceil(sampling.m / sampling.b)
    return max(event.releases, 1) if sampling.scheme == "single_pass" else 0


def releases(event: Event, method: str | None = None) -> Release:
    """The releases of one event."""
    if isinstance(event.sensitivity, Increments):
        return _increments(event, event.sensitivity)
    if isinstance(event.sensitivity, LocalSteps):
        return _local_steps(event, event.sensitivity, method)
    if isinstance(event.sensitivity, OnRing):
        raise InputError("Noise on a ring has no profile", "ask jaxfl.privacy.epsilon or delta")
    if event.correlation:
        return _correlated(event)
    if snapshot(event):
        return _revealed(event, event.sensitivity)
    return _drawn(event, event.sensitivity, method)


def counted(event: Event) -> Hashable:
    """The properties of an event that its proof reads: equal for events that differ in others only."""
    return event.sensitivity if isinstance(event.sensitivity, OnRing) else releases(event).parts


def correlates(event: Event) -> str:
    """Why nothing is known of releases with correlated noise, as a clause; empty where their law is."""
    if not isinstance(event.sensitivity, Mean) or snapshot(event):
        return "noise is correlated over rounds, and a record moves releases for which it was not drawn"
    if event.sensitivity.averaged:
        return "noise is correlated over rounds, and what a record moves is bounded on average over them"
    if not separation(event):
        scheme = event.sampling.scheme
        return f"noise is correlated over rounds, and {scheme} draws a record in rounds of any distance"
    return ""


def strategy_norm(weights: tuple[float, ...], T: int, apart: int) -> float:
    """The norm of C times a record's indicator, for a record in every ``apart``-th of T releases.

    The noise of all releases is ``C^{-1} z`` with C^{-1} the lower-triangular Toeplitz matrix of w.
    C times the releases so far is a function of them, and the other way round, and it has independent
    noise z.  T releases are therefore one Gaussian mechanism, also of estimates that depend on earlier
    releases [Denisov et al., NeurIPS 2022].  Neighbours' estimates differ by d_t, |d_t| <= 1, in a set P
    of rounds at least ``apart`` apart: ``|C d|^2 = sum_{s,t in P} (C^T C)_st <d_s, d_t>``.  Where the
    column c of C is non-negative, this is largest with equal d_t, as ``|sum_{t in P} C_t|^2``; where c
    does not increase either, with P = {0, apart, 2 apart, ...} [Kalinin, Lampert, 2024].
    """
    from scipy.signal import lfilter

    column = _column(weights, T)
    every = np.zeros(min(apart, T) + 1)
    every[0], every[-1] = 1.0, -1.0 if apart <= T else 0.0
    return float(np.linalg.norm(lfilter([1.0], every, column)))


def shown_norm(weights: tuple[float, ...], T: int, apart: int) -> float:
    """:func:`strategy_norm` where noise is correlated over the rounds that show a coordinate.

    Coordinate j is shown in N_j of T rounds, chosen without the data, n_j(t) times before round t.  With
    P_j the rounds of the record that show it, ``sens^2 = sum_j sum_{s,t in P_j} X_j[n_j(s), n_j(t)] d_sj
    d_tj``, where ``X_j[a, b] = sum_{i < N_j - max(a, b)} c_i c_{i+|a-b|}``.  A record may move its energy
    between coordinates: this is not the norm of the coordinate that is shown most often.

    As ``2 d_sj d_tj <= d_sj^2 + d_tj^2``, sens^2 is at most ``sum_j sum_{s in P_j} d_sj^2 sum_{t in P_j}
    X_j[n_j(s), n_j(t)]``.  Let s be the r-th round of the record, r = 0, 1, ..., which r ``apart`` rounds
    precede, or more.  The counts of the u-th round of P_j after s, and of the u-th before, differ from
    n_j(s) by u or more.  What rounds are left bounds ``N_j - n_j(s) <= T - apart r``, and at the u-th after
    s ``N_j - n_j(t) <= T - apart (r + u)``.  As c does not increase, the inner sum is at most row r of
    ``Y[r, q] = sum_{i < T - apart max(r, q)} c_i c_{i+|r-q|}``, and ``sum_j d_sj^2 <= 1``.  Therefore
    ``sens^2 <= sum_{r,q} Y[r, q]`` for all masks.  One use costs as much as by rounds, and several as if
    they followed one another.  It is attained with one use, and with uses in all rounds.
    """
    column = np.append(_column(weights, T), np.zeros(2))
    i = np.arange(T)
    k = -(-(T - i) // max(apart, 1))  # uses that have i more rounds after them
    once = np.append(0.0, column.cumsum())  # once[j] = sum_{l < j} c_l
    twice = np.append(0.0, once.cumsum())
    later = twice[np.minimum(i + k + 1, T + 2)] - twice[i + 2] - (k - 1) * once[i + 1]
    c = column[:T]
    return math.sqrt(float(np.sum(c * (k * c + 2 * later))))


def _column(weights: tuple[float, ...], T: int) -> npt.NDArray[np.float64]:
    """The first T coefficients of 1/w, if they are such as norms are known of."""
    from scipy.signal import lfilter

    impulse = np.zeros(T)
    impulse[:1] = 1.0
    column: npt.NDArray[np.float64] = lfilter([1.0], weights, impulse)
    slack = 1e-12 * abs(column[:1])
    require(
        (column >= -slack).all() and (np.diff(column) <= slack).all(),
        "has an inverse whose coefficients are negative or increase, of which no sensitivity is known",
        "take those of jaxfl.parts.mechanisms.banded",
        weights=weights,
    )
    return column


def _correlated(event: Event) -> Release:
    """All releases as one: a Gaussian shift by what a record moves once, times :func:`strategy_norm`.

    Or times :func:`shown_norm`.
    """
    why, T = correlates(event), event.releases
    require(not why, why, "take noise that is independent", sampler=event.sampling.scheme)
    assert isinstance(event.sensitivity, Mean)
    plain = dataclasses.replace(event, correlation=())
    _drawn(plain, event.sensitivity, None)  # raises for more than one pass
    (part,) = _drawn(dataclasses.replace(plain, releases=1), event.sensitivity, None).parts
    assert isinstance(part.profile, Gaussian)
    if event.shows:
        mu = part.profile.mu * shown_norm(event.correlation, T, separation(event))
        return _alike(Gaussian(mu), 1, "noise correlated over shows", Status.DERIVED)
    norm = strategy_norm(event.correlation, T, separation(event))
    return _alike(Gaussian(part.profile.mu * norm), 1, "noise correlated over rounds")


def _alike(
    profile: Profile, times: int, method: str, status: Status = Status.ESTABLISHED
) -> Release:
    return Release((Part(profile, times),), method, status)


def _drawn(event: Event, estimator: Mean, method: str | None) -> Release:
    """A record that enters only the releases for which it was drawn."""
    sampling, T = event.sampling, event.releases
    scheme, q, m = sampling.scheme, sampling.q, sampling.m
    g = estimator.X(sampling) / event.sigma
    both = 2.0 if event.adjacency == "replace_one" else 1.0
    if scheme == "poisson" and not whole(event):
        profile: Profile = poisson(q, g) if both == 2 else poisson_add_remove(q, g)
        return _alike(profile, T, "Poisson sampling")
    if both == 2:  # from here on both records are drawn together: their distance counts
        g = min(g, estimator.whole / event.sigma)
    if whole(event):
        status = Status.DERIVED if estimator.averaged else Status.ESTABLISHED
        return _alike(Gaussian(both * g * math.sqrt(T)), 1, "Gaussian releases", status)
    if scheme == "single_pass":
        require(
            T * sampling.b <= m,
            lambda: f"of {sampling.b:g} records each are more than one pass over {m}",
            lambda: f"ask for at most {int(m // sampling.b)}, or for sampler = 'shuffled'",
            rounds=T,
        )
        return _alike(Gaussian(both * g), 1, "every record released once")
    require(
        both != 1,
        "draws a fixed number of records, which adding one changes",
        "use adjacency = 'replace_one'",
        sampler=scheme,
    )
    if scheme == "cyclic":
        uses = math.ceil(T / separation(event))
        return _alike(Gaussian(both * g * math.sqrt(uses)), 1, "cyclic batches")
    if scheme == "without_replacement":
        return _alike(WithoutReplacement(q, g), T, "sampling without replacement", Status.DERIVED)
    if scheme == "with_replacement":
        profile = WithReplacement(int(sampling.b), m, g)
        return _alike(profile, T, "sampling with replacement", Status.DERIVED)
    return _epochs(m, int(sampling.b), T, 1, g, method)


def _epochs(m: int, b: int, rounds: int, times: int, g: float, method: str | None) -> Release:
    """``times`` runs of ``rounds`` releases over shuffled epochs.

    An epoch of floor(m/b) releases uses a record at most once [parallel composition]; part of an
    epoch, or one that leaves m mod b records out, uses it with a probability p that does not depend
    on data: sampling without replacement at rate p, since the record's place may be revealed.
    ``method="ceil"`` counts that as a whole pass.
    """
    length = m // b
    whole, rest = divmod(rounds, length)
    cover, p = length * b / m, rest * b / m
    once = cover == 1 or method == "ceil"
    if method == "ceil":
        whole, rest = whole + (rest > 0), 0
    parts = []
    if whole:
        if once:
            parts.append(Part(Gaussian(2 * g * math.sqrt(whole * times)), 1))
        else:
            parts.append(Part(WithoutReplacement(cover, g), whole * times))
    if rest:
        parts.append(Part(WithoutReplacement(p, g), times))
    exact = once and not rest
    name = "shuffled epochs" if exact else "shuffled epochs, partial passes as random subsets"
    return Release(tuple(parts), name, Status.ESTABLISHED if exact else Status.DERIVED)


def _revealed(event: Event, estimator: Mean) -> Release:
    """The record's coins revealed: a Gaussian shift of 2X where it is drawn, of 2Y where not.

    With replacement, k draws move the estimate by at most ``2G (over_b k/b + over_m/m)``.
    """
    sampling, T, s = event.sampling, event.releases, event.sigma
    scheme, q = sampling.scheme, sampling.q
    most = 2 * estimator.whole / s
    X, Y = (min(2 * share(sampling) / s, most) for share in (estimator.X, estimator.Y))
    if scheme in ("poisson", "without_replacement"):
        parts = (Part(Shown((1 - q, q), (Y, X)), T),)
    elif scheme == "with_replacement":
        b, m = int(sampling.b), sampling.m
        k, pi, lost = WithReplacement(b, m, 1.0).counts
        k = np.append(k, b)  # a larger number of draws counts as b
        over = estimator.over_m / m
        shifts = np.minimum(2 * estimator.clip * (estimator.over_b * k / b + over) / s, most)
        shifts = np.maximum(shifts, Y)  # a record that is drawn rarely counts as one that is not
        weights = (float(1 - pi.sum() - lost), *pi.tolist(), lost)
        parts = (Part(Shown(weights, (Y, *shifts.tolist())), T),)
    elif scheme in ("shuffled", "cyclic"):
        length = sampling.m // int(sampling.b) if scheme == "shuffled" else separation(event)
        K = min(T, math.ceil(T / length))
        parts = (Part(Gaussian(math.sqrt(K * X * X + (T - K) * Y * Y)), 1),)
    else:
        raise InputError(
            "does not fit an estimator that reads all records in every round",
            "use 'poisson'",
            sampler=scheme,
        )
    return Release(parts, f"coins revealed, {scheme}", Status.DERIVED)


# --- one family each -----------------------------------------------------------------------------


def increments_shift(estimator: Increments, steps: int) -> float:
    """The L2 norm over all releases of what one record can shift.

    ``max_t 2 (G + 2LD (t-1)/(t+1)) sqrt(T - t + 1)``, or ``2 S sqrt(T)``; over ``machines``.
    The logarithm is concave in t: bisection finds the largest, also for the millions of steps that a
    search for rounds asks for.
    """
    if (estimator.weight_power, estimator.momentum_power) != (1.0, 1.0):
        return _weighted_shift(estimator, steps)
    G, LD = estimator.clip, estimator.smoothness * estimator.diameter
    if not estimator.exact:
        return 2 * estimator.S * math.sqrt(steps) / estimator.machines

    def squared(t: int) -> float:
        return (G + 2 * LD * (t - 1) / (t + 1)) ** 2 * (steps - t + 1)

    falls = range(1, steps)  # where the next one is no larger, from the largest on
    low = 1 + bisect.bisect_left(falls, True, key=lambda t: squared(t) >= squared(t + 1))
    return 2 * math.sqrt(squared(low)) / estimator.machines


def _weighted_shift(estimator: Increments, steps: int) -> float:
    """``max_t 2 alpha_t (beta_t G + (1-beta_t) L D (p+1)/(t+p)) sqrt(E_t)``, over ``machines``.

    A record of step t moves release u by ``kappa_{t+1} ... kappa_u`` times what it moves release t:
    ``E_t = 1 + kappa_{t+1}^2 E_{t+1}``, E_T = 1, ``kappa_t = (1-beta_t) alpha_t/alpha_{t-1}``.
    """
    from scipy.special import binom

    p, r = estimator.weight_power, estimator.momentum_power
    alphas = binom(np.arange(steps) + p, p)
    LD = estimator.smoothness * estimator.diameter
    squared, later = 0.0, 0.0  # later: kappa_{t+1}^2 E_{t+1}
    for t in range(steps, 0, -1):
        alpha, beta = float(alphas[t - 1]), float(t) ** -r
        moved = alpha * (beta * estimator.clip + (1 - beta) * LD * (p + 1) / (t + p))
        squared = max(squared, moved**2 * (1 + later))
        if t > 1:
            later = ((1 - beta) * (t - 1 + p) / (t - 1)) ** 2 * (1 + later)
    return 2 * math.sqrt(squared) / estimator.machines


def _increments(event: Event, estimator: Increments) -> Release:
    mu = increments_shift(estimator, event.releases) / event.sigma
    name = "weighted increments, each record once" + (", exact shift" if estimator.exact else "")
    return _alike(Gaussian(mu), 1, name, Status.DERIVED if estimator.exact else Status.ESTABLISHED)


def _local_steps(event: Event, steps: LocalSteps, method: str | None) -> Release:
    """Hu et al.: a sum of r noisy models, if it is proven to hide more than one of them does.

    One step: the sum carries r noises.  Several steps of a convex smooth loss, at most one use of a
    record per round: amplification by iteration, a record used at step s of tau is
    ``2G^2/(gamma^2 sigma^2 (tau - s + r - 1))``-zCDP, worst at the last [Feldman, Mironov, Talwar,
    Thakurta, 2018; Gaussian by shifted interpolation, Bok, Su, Altschuler, 2024].  Otherwise the
    separate messages, of which the sum is a function.
    """
    sampling, tau, rounds = event.sampling, steps.tau, event.releases
    require(
        sampling.scheme == "shuffled",
        "does not describe local steps",
        "use 'shuffled'",
        sampler=sampling.scheme,
    )
    m, b = sampling.m, int(sampling.b)
    g = steps.clip / b / event.sigma
    r = steps.devices - steps.colluding
    times, length = (rounds, tau) if steps.fresh else (1, rounds * tau)
    if r > 1 and tau == 1:
        release = _epochs(m, b, length, times, g / math.sqrt(r), method)
        return release._replace(method=f"secure sum of {r} noises, {release.method}")
    once = tau <= m // b and (steps.fresh or (m // b) % tau == 0)
    if r > 1 and steps.convex and once:
        release = _epochs(m, b, length, times, g / math.sqrt(r), "ceil")
        name = f"secure sum of {r}, amplification by iteration, {release.method}"
        return release._replace(method=name, status=Status.DERIVED)
    release = _epochs(m, b, length, times, g, method)
    why = "" if r == 1 else "secure sum unproved here, messages by themselves, "
    return release._replace(method=why + release.method)
