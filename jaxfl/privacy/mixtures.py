"""Bounds for estimators in which a record enters every release, drawn or not: SVRG and SAGA.

The estimate is ``mean + (B - q) v`` with B the record's coin, ``|v| <= V``, while the record's
share of the mean is at most M.  Three bounds:

* :class:`Chain` [D]: P -> its mean -> the neighbour's mean -> Q.  The outer steps compare a scalar
  mixture with N(0), the middle one is a Gaussian mechanism, and the three (eps, delta) are chained.
  Needs v to be known from the transcript (SVRG); not for SAGA.
* :class:`jaxfl.privacy.profiles.Shown` [D]: show the adversary the record's own coins, which do
  not depend on data; what remains is Gaussian, and by joint convexity
  ``delta <= E_K delta_GDP(sqrt(K (2X)^2 + (T-K) (2Y)^2))`` with K ~ Bin(T, q).
* :func:`jaxfl.privacy.profiles.theorem_k` [N].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxfl.privacy.gaussian import Floats, bisect, gdp_delta, gdp_eps
from jaxfl.privacy.pld import TINY, Curve, Part, compose
from jaxfl.privacy.profiles import Split

__all__ = ["Chain", "coins_delta", "coins_eps", "root"]


# Shares of delta for steps 1 and 3: good choices for small and for large batches.
FIXED = ((0.15, 0.085), (0.01, 0.01))


class Chain(NamedTuple):
    """``eps = e1 + e2 + e3``, ``delta = d1 + e^{e1} d2 + e^{e1+e2} d3``.

    Steps 1 and 3 compose ``{-qV with 1-q, (1-q)V with q}`` against N(0) and back T times, step 2 is
    mu-GDP with ``mu = 2 M sqrt(T)``; V and M in units of the noise.
    """

    q: float
    V: float
    M: float
    rounds: int
    fixed: bool = False  # only the shares in FIXED

    @property
    def mu(self) -> float:
        return 2 * self.M * math.sqrt(self.rounds)

    def eps(self, delta: float) -> float:
        """The least eps over the shares of delta for the three steps."""
        part = [Part(Split(self.q, self.V), self.rounds)]
        middle = float(gdp_eps(self.mu, delta / 3))
        there = compose(part, delta=delta / 3, scale=middle)
        eps = middle + float(there.eps(delta / 3))
        left = max(delta / 3 * math.exp(-min(eps, 500.0)), 1e-290)
        back = compose(part, delta=left, reverse=True, scale=eps)
        return _shared(there, back, self.mu, delta, self.fixed)

    def delta(self, eps: float) -> float:
        """The least delta at which :meth:`eps` falls to eps."""
        return root(self.eps, eps)


def _shared(there: Curve, back: Curve, mu: float, delta: float, fixed: bool) -> float:
    """The least ``e1 + e2 + e3`` over shares of delta for steps 1, 2 and 3, by zooming in."""
    if fixed:
        first, last = np.array(FIXED).T
        e1 = there.eps(first * delta)
        e2 = gdp_eps(mu, (1 - first - last) * delta * np.exp(-e1))
        e3 = back.eps(last * delta * np.exp(-np.minimum(e1 + e2, 690.0)))
        return float(np.min(np.where(np.isnan(e1 + e2 + e3), np.inf, e1 + e2 + e3)))
    table = np.linspace(0.0, float(gdp_eps(mu, delta * 1e-12)), 4001)
    log_delta = -np.log(np.maximum(gdp_delta(mu, table), 1e-300))

    def quick(log_share: Floats) -> Floats:
        return np.interp(-log_share, log_delta, table)

    def exact(log_share: Floats) -> Floats:
        return np.asarray(gdp_eps(mu, np.exp(log_share)))

    def total(u: Floats, w: Floats, middle_eps: Callable[[Floats], Floats]) -> Floats:
        middle = 1 / (1 + np.exp(u) + np.exp(w))  # the shares are positive and sum to 1
        e1 = there.eps(np.exp(u) * middle * delta)
        e2 = middle_eps(np.log(middle * delta) - e1)
        e3 = back.eps(np.exp(w - np.minimum(e1 + e2, 690.0)) * middle * delta)
        value: Floats = np.asarray(e1 + e2 + e3)
        return np.where(np.isnan(value), np.inf, value)

    # few and large losses make curves with steps, and their sum has many minima: search closely
    best, at, width, points = math.inf, (-2.0, -2.0), 11.0, (67, 23)
    for _ in range(6):
        u, w = (
            v.ravel()
            for v in np.meshgrid(
                *(c + np.linspace(-width, width, k) for c, k in zip(at, points, strict=True))
            )
        )
        values = total(u, w, quick)
        k = int(np.argmin(values))
        if values[k] <= best:
            best, at = float(values[k]), (float(u[k]), float(w[k]))
        width, points = width * (0.1 if points[0] > 9 else 0.35), (9, 9)
    return float(total(np.array(at[0]), np.array(at[1]), exact))


def coins_delta(q: float, drawn: float, undrawn: float, rounds: int, eps: float) -> float:
    """``E_K delta_GDP(eps; sqrt(K drawn^2 + (T - K) undrawn^2))``, K ~ Bin(T, q)."""
    from scipy.stats import binom

    middle, spread = rounds * q, math.sqrt(rounds * q * (1 - q))
    low = max(0, math.floor(middle - 12 * spread - 40))
    high = min(rounds, math.ceil(middle + 12 * spread + 40))
    K = np.arange(low, high + 1)
    mu = np.sqrt(K * drawn**2 + (rounds - K) * undrawn**2)
    outside = float(binom.cdf(low - 1, rounds, q) + binom.sf(high, rounds, q))
    return min(1.0, float(np.sum(binom.pmf(K, rounds, q) * gdp_delta(mu, eps))) + outside)


def coins_eps(q: float, drawn: float, undrawn: float, rounds: int, delta: float) -> float:
    """The inverse of :func:`coins_delta`, from above."""
    top = np.asarray(gdp_eps(max(drawn, undrawn) * math.sqrt(rounds), delta))
    if coins_delta(q, drawn, undrawn, rounds, 0.0) <= delta:
        return 0.0
    if not top < math.inf:
        return math.inf
    return float(
        bisect(
            lambda e: coins_delta(q, drawn, undrawn, rounds, float(e)) <= delta,
            np.zeros(()),
            top * (1 + 1e-9) + 1e-12,
            50,
        )
    )


def root(eps_of: Callable[[float], float], eps: float) -> float:
    """The delta at which a decreasing ``eps_of(delta)`` meets eps, from above, to 1e-3 relative."""
    from scipy.optimize import brentq

    def gap(log_delta: float) -> float:
        return min(eps_of(math.exp(log_delta)) - eps, 1e3)

    low, high, step, least = -7.0, -1e-9, 7.0, math.log(TINY)
    if gap(high) > 0:
        return 1.0
    while gap(low) <= 0:
        if low <= least:
            return math.exp(low)
        high, low, step = low, max(low - step, least), 2 * step
    at = float(brentq(gap, low, high, xtol=2e-4))
    while gap(at) > 0:
        at += 2e-4
    return math.exp(min(at, 0.0))
