"""Lower bounds on eps from how often a test succeeds.

A test says "world P" on a set S.  With n runs per world, p is a lower confidence limit of P(S) and
f an upper one of Q(S) [Clopper and Pearson, Biometrika 26, 1934], each at half of what the
confidence leaves.  S must be chosen on other runs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxfl.privacy.gaussian import Floats

__all__ = [
    "clopper_pearson",
    "limits",
    "one_run_eps",
    "plain_eps",
    "separation",
]


def clopper_pearson(k: Any, n: int, alpha: float) -> tuple[Floats, Floats]:
    """Limits of a probability that k of n trials showed, each missing it with chance <= alpha."""
    from scipy.special import betaincinv

    k = np.asarray(k, np.float64)
    low = np.where(k == 0, 0.0, betaincinv(np.maximum(k, 1), n - k + 1, alpha))
    high = np.where(k == n, 1.0, betaincinv(k + 1, np.maximum(n - k, 1), 1 - alpha))
    return low, high


def limits(in_p: Any, in_q: Any, n: int, confidence: float) -> tuple[Floats, Floats]:
    """p and f, which both hold with this confidence."""
    alpha = (1 - confidence) / 2
    return clopper_pearson(in_p, n, alpha)[0], clopper_pearson(in_q, n, alpha)[1]


def plain_eps(p: Any, f: Any, delta: float) -> Any:
    """``max(0, ln (p - delta)/f, ln (1 - f - delta)/(1 - p))``: no assumption at all."""
    with np.errstate(divide="ignore", invalid="ignore"):
        here = np.log(np.maximum(p - delta, 0) / f)
        there = np.log(np.maximum(1 - f - delta, 0) / (1 - p))
    return np.maximum(np.maximum(here, there), 0.0)[()]


def separation(p: Any, f: Any) -> Any:
    """``mu = Phi^-1(p) - Phi^-1(f)``: no mechanism that is less than mu-GDP allows this test."""
    from scipy.special import ndtri

    return (ndtri(p) - ndtri(f))[()]


def one_run_eps(k: int, r: int, v: int, delta: float, alpha: float) -> float:
    """The least eps at which v of r guesses about k canaries being right has chance >= alpha.

    With ``W ~ Bin(r, e^eps/(1 + e^eps))`` the chance is at most
    ``P[W >= v] + 2 k delta max_i P[v > W >= v - i]/i`` [Theorem 5.2].
    """

    def chance(eps: float) -> float:
        from scipy.stats import binom

        rate = 1 / (1 + math.exp(-eps))
        near = np.cumsum(binom.pmf(v - np.arange(1, v + 1), r, rate)) / np.arange(1, v + 1)
        return float(binom.sf(v - 1, r, rate) + 2 * k * delta * np.max(near, initial=0.0))

    if chance(0.0) >= alpha:
        return 0.0
    low, high = 0.0, 1.0
    while chance(high) < alpha and high < 50:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) < alpha else (low, middle)
    return low
