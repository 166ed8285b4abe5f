"""A canary audited in NumPy: one coordinate, Poisson sampling, other gradients zero.

The reference for audits of whole algorithms, and the attack on the published runs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxfl.privacy.gaussian import Floats
from jaxfl.privacy.limits import clopper_pearson_eps, gdp_audit_eps, limits, plain_eps

__all__ = ["Audit", "audit_poisson"]


class Audit(NamedTuple):
    """A lower bound on eps, with its counts on the held-out half."""

    eps: float
    tp: int
    npos: int
    fp: int
    nneg: int
    through_gdp: float


def audit_poisson(
    m: int,
    b: float,
    rounds: int,
    G: float,
    sigma: float,
    delta: float,
    runs: int,
    *,
    clip: str = "example",
    alpha: float = 0.05,
    seed: int = 0,
) -> Audit:
    """``runs`` per world of a record with gradient +G, or -G in the other world.

    It shows as ``G/(b sigma)`` where drawn; under ``clip="batch"``, an outlier dominates the
    clipped mean and shows as ``G/sigma``.  The statistic is the summed log-likelihood ratio, its threshold
    the best one on the first half of the runs, the bound from the second half.
    """
    q, shift = b / m, G / sigma / (1.0 if clip == "batch" else b)
    rng = np.random.default_rng(seed)
    up, down = (_ratios(rng, sign, q, shift, rounds, runs) for sign in (1.0, -1.0))
    half = runs // 2
    threshold = _threshold(up[:half], down[:half], delta, alpha)
    tp, fp = int((up[half:] > threshold).sum()), int((down[half:] > threshold).sum())
    n = runs - half
    lower = clopper_pearson_eps(tp, n, fp, n, delta, alpha)
    return Audit(lower, tp, n, fp, n, gdp_audit_eps(tp, n, fp, n, delta, alpha))


def _ratios(
    rng: np.random.Generator, sign: float, q: float, shift: float, rounds: int, runs: int
) -> Floats:
    """``sum_t ln((1-q) + q e^{s o - s^2/2}) - ln((1-q) + q e^{-s o - s^2/2})`` per run."""
    total = np.zeros(runs)
    log_q, log_p = math.log(q), math.log1p(-q) if q < 1 else -math.inf
    for _ in range(rounds):
        seen = rng.standard_normal(runs) + sign * shift * (rng.random(runs) < q)
        total += np.logaddexp(log_p, log_q + shift * seen - shift * shift / 2)
        total -= np.logaddexp(log_p, log_q - shift * seen - shift * shift / 2)
    return total


def _threshold(up: Floats, down: Floats, delta: float, alpha: float) -> float:
    """The threshold of the largest bound among 50 quantiles; more of them would overfit."""
    up, down = np.sort(up), np.sort(down)
    candidates = np.quantile(np.concatenate([up, down]), np.linspace(0, 1, 52)[1:-1])
    in_p = up.size - np.searchsorted(up, candidates, side="right")
    in_q = down.size - np.searchsorted(down, candidates, side="right")
    p, f = limits(in_p, in_q, up.size, 1 - alpha)
    return float(candidates[int(np.argmax(plain_eps(p, f, delta)))])
