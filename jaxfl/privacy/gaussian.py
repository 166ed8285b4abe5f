"""Gaussian differential privacy in closed form, and conversions from zCDP.

A mechanism is mu-GDP if its outputs on neighbouring data are no easier to distinguish than N(0, 1)
from N(mu, 1) [Dong, Roth, Su, 2022].  T releases of Gaussian noise sigma on a statistic of L2
sensitivity Delta are mu-GDP with ``mu = Delta sqrt(T) / sigma``, also when each release depends on
the earlier ones.  Everything broadcasts over NumPy arrays, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl.core.params import number

__all__ = [
    "bisect",
    "check_delta",
    "check_eps",
    "gdp_delta",
    "gdp_eps",
    "gdp_mu",
    "gdp_power",
    "zcdp_eps",
    "zcdp_rho",
]

Floats: TypeAlias = npt.NDArray[np.float64]
Numbers: TypeAlias = float | Floats


def check_delta(delta: float, name: str = "delta") -> float:
    """delta as a float; raises unless it is above 0 and below 1."""
    return number(name, delta, above=0, below=1)


def check_eps(eps: float) -> float:
    """eps as a float; raises unless it is at least 0."""
    return number("eps", eps, least=0)


def gdp_delta(mu: Numbers, eps: Numbers) -> Any:
    """``delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2)`` for eps >= 0.

    Balle and Wang (2018), Theorem 8.  With the Mills ratio R of the normal law the second term is
    ``phi(a) R(-b)``, which never overflows; below a = 1 the first is ``phi(a) R(-a)``.
    """
    from scipy.special import erfcx, ndtr

    mu, eps = np.asarray(mu, np.float64), np.asarray(eps, np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        a, b = -eps / mu + mu / 2, -eps / mu - mu / 2
        second = erfcx(-b / math.sqrt(2))
        low = np.minimum(a, 1.0)
        close = np.exp(-low * low / 2) / 2 * (erfcx(-low / math.sqrt(2)) - second)
        far = ndtr(a) - np.exp(-a * a / 2) / 2 * second
        delta = np.where(a < 1, close, far)
    delta = np.where(mu == 0, 0.0, np.where(np.isinf(mu), 1.0, delta))
    return np.maximum(delta, 0.0)[()]


def gdp_eps(mu: Numbers, delta: Numbers) -> Any:
    """The least eps >= 0 with ``gdp_delta(mu, eps) <= delta``, from above."""
    mu, delta = np.broadcast_arrays(np.asarray(mu, np.float64), np.asarray(delta, np.float64))
    safe = np.where(np.isinf(mu), 1.0, mu)
    with np.errstate(divide="ignore"):
        top = safe**2 / 2 + safe * np.sqrt(-2 * np.log(np.minimum(delta, 1.0))) + 1e-300
    top = np.where(np.isfinite(top), top, 1e300)
    eps = bisect(lambda e: gdp_delta(safe, e) <= delta, np.zeros_like(safe), top)
    eps = np.where(gdp_delta(safe, 0.0) <= delta, 0.0, eps)
    return np.where((delta <= 0) & (mu > 0) | np.isinf(mu), np.inf, eps)[()]


def gdp_power(mu: Numbers, fpr: Numbers) -> Any:
    """``Phi(Phi^-1(fpr) + mu)``: the true positive rate of the best test between N(0, 1) and N(mu, 1)."""
    from scipy.special import ndtr, ndtri

    return ndtr(ndtri(fpr) + mu)[()]


def gdp_mu(eps: float, delta: float) -> float:
    """The largest mu with ``gdp_delta(mu, eps) <= delta``: what a calibrated Gaussian may spend."""
    check_eps(eps)
    check_delta(delta)
    high = 1.0
    while gdp_delta(high, eps) <= delta:
        high *= 2
    return high - float(
        bisect(lambda x: gdp_delta(high - x, eps) <= delta, np.zeros(()), np.asarray(high))
    )


def bisect(true_above: Callable[[Floats], Any], low: Floats, high: Floats, steps: int = 90) -> Any:
    """Elementwise the least x in [low, high] for which a monotone condition holds, from above."""
    low, high = np.array(low, np.float64), np.array(high, np.float64)
    for _ in range(steps):
        middle = low + (high - low) / 2
        if np.all((middle == low) | (middle == high)):
            break
        holds = true_above(middle)
        low, high = np.where(holds, low, middle), np.where(holds, middle, high)
    return high


def zcdp_eps(rho: Numbers, delta: Numbers) -> Any:
    """``eps = rho + 2 sqrt(rho ln(1/delta))`` [Bun and Steinke, 2016, Proposition 1.3]."""
    rho = np.asarray(rho, np.float64)
    return (rho + 2 * np.sqrt(rho * np.log(1 / np.asarray(delta, np.float64))))[()]


def zcdp_rho(eps: Numbers, delta: Numbers) -> Any:
    """The rho of :func:`zcdp_eps`: ``(sqrt(ln(1/delta) + eps) - sqrt(ln(1/delta)))^2``."""
    log = np.log(1 / np.asarray(delta, np.float64))
    return ((np.asarray(eps) / (np.sqrt(log + eps) + np.sqrt(log))) ** 2)[()]
