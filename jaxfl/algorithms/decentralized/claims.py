"""What Q-DPSGD-1 claims of its noise."""

from __future__ import annotations

import math

from jaxfl.privacy.claims import Claim, solved
from jaxfl.privacy.gaussian import check_delta

__all__ = ["q_dpsgd"]


def q_dpsgd(m: int, rounds: int, delta: float, **way: float) -> Claim:
    """``sigma^2 = 16 T (2 ln(1/delta)/eps + 1)/(m^2 eps)``, no G in it [SoteriaFL's notebook]."""
    log = math.log(1 / check_delta(delta))

    def eps_of(sigma: float) -> float:
        k = m * m * sigma * sigma / (16 * rounds)  # k eps^2 = 2 log + eps
        return (1 + math.sqrt(1 + 8 * log * k)) / (2 * k)

    def sigma_of(eps: float) -> float:
        return math.sqrt(16 * rounds * (2 * log / eps + 1) / eps) / m

    sigma, eps = solved(sigma_of, eps_of, delta, **way)
    formula = "sigma^2 = 16 T (2 ln(1/delta)/eps + 1)/(m^2 eps)"
    note = "the formula has no G: the authors' clip is not in it"
    return Claim("SoteriaFL authors' code", formula, sigma, eps, delta, (), False, note)
