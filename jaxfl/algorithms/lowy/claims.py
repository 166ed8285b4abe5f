"""The noise formulas of Lowy et al., with their conditions."""

from __future__ import annotations

import math

from jaxfl.privacy.claims import Claim, Condition
from jaxfl.privacy.gaussian import check_delta

__all__ = ["lowy_spider", "lowy_svrg"]

SOURCE = "Lowy et al., AISTATS 2023"


def lowy_svrg(
    G: float, m: int, K: int, epochs: int, delta: float, eps: float
) -> tuple[Claim, Claim]:
    """FedProx-SVRG [Lowy et al., AISTATS 2023]: noise of snapshots and of steps, R = E floor(m/K).

    ``sigma1^2 = 256 G^2 S E ln(2/delta) ln(5E/delta)/(eps^2 m^2)``,
    ``sigma2^2 = 1024 G^2 S R ln(2/delta) ln(2.5R/delta)/(eps^2 m^2)``; S = 1, without restarts.
    """
    check_delta(delta)
    R, log = epochs * (m // K), math.log(2 / delta)
    least = eps * m / (4 * math.sqrt(2 * R * log))
    conditions = (
        Condition(
            f"eps <= min(2 ln(2/delta), 15) = {min(2 * log, 15.0):.4g}",
            eps <= min(2 * log, 15.0),
            here=f"eps = {eps:g}",
        ),
        Condition(
            f"K >= eps m/(4 sqrt(2 S R ln(2/delta))) = {least:.4g}", least <= K, here=f"K = {K}"
        ),
    )
    first = math.sqrt(256 * epochs * log * math.log(5 * epochs / delta)) * G / (eps * m)
    second = math.sqrt(1024 * R * log * math.log(2.5 * R / delta)) * G / (eps * m)
    formulas = (
        ("sigma1^2 = 256 G^2 S E ln(2/delta) ln(5E/delta)/(eps^2 m^2)", first),
        ("sigma2^2 = 1024 G^2 S R ln(2/delta) ln(2.5R/delta)/(eps^2 m^2)", second),
    )
    a, b = (Claim(SOURCE, text, sigma, eps, delta, conditions) for text, sigma in formulas)
    return a, b


def lowy_spider(
    G: float, L: float, m: int, rounds: int, period: int, delta: float, eps: float
) -> tuple[Claim, Claim, Claim]:
    """FedProx-SPIDER [Lowy et al., AISTATS 2023], full batches: sigma1, sigma2 per |dx|, sigma.

    ``sigma1^2 = 16 G^2 ln(1/delta)/(eps^2 m^2) max(R/q, 1)``,
    ``sigma2^2 = 16 L^2 R ln(1/delta)/(eps^2 m^2)``, ``sigma^2 = 64 G^2 R ln(1/delta)/(eps^2 m^2)``.
    """
    check_delta(delta)
    log = math.log(1 / delta)
    text = f"eps <= 2 ln(1/delta) = {2 * log:.4g}"
    conditions = (Condition(text, eps <= 2 * log, here=f"eps = {eps:g}"),)
    unit = math.sqrt(log) / (eps * m)
    passes = max(rounds / period, 1.0)
    formulas = (
        ("sigma1^2 = 16 G^2 ln(1/delta) max(R/q, 1)/(eps^2 m^2)", 4 * G * math.sqrt(passes)),
        ("sigma2^2 = 16 L^2 R ln(1/delta)/(eps^2 m^2)", 4 * L * math.sqrt(rounds)),
        ("sigma^2 = 64 G^2 R ln(1/delta)/(eps^2 m^2)", 8 * G * math.sqrt(rounds)),
    )
    a, b, c = (Claim(SOURCE, text, unit * top, eps, delta, conditions) for text, top in formulas)
    return a, b, c
