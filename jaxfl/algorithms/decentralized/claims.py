"""The noise formulas of Q-DPSGD-1 and DECOR, with their conditions."""

from __future__ import annotations

import math

from jaxfl.privacy.claims import Claim, Condition, solved
from jaxfl.privacy.gaussian import check_delta, zcdp_eps, zcdp_rho
from jaxfl.privacy.networks import Hidden

__all__ = ["decor", "q_dpsgd"]


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


def decor(share: float, rounds: int, found: Hidden, delta: float, **way: float) -> Claim:
    """``eps = e + 2 sqrt(e ln(1/delta))``, ``e = 2 T C^2 max_i [(sigma^2 I + sigma_c^2 L)^{-1}]_ii``.

    ``share`` is C, what data add to a message at most, and L is of the clients that do not collude
    [Allouah et al., ICML 2024].  All that is released without amplification: C/b of drawn batches.
    """
    spent = 2 * rounds * (share / found.noise) ** 2  # sigma^2 e

    def eps_of(sigma: float) -> float:
        return float(zcdp_eps(spent / sigma**2, delta))

    def sigma_of(eps: float) -> float:
        return math.sqrt(spent / float(zcdp_rho(eps, delta)))

    sigma, eps = solved(sigma_of, eps_of, delta, **way)
    what = "the clients that do not collude to be connected"
    here = "some of them may be cut off, which is accounted for"
    connected = Condition(what, found.connected, here=here * (found.connected is False))
    formula = "eps = e + 2 sqrt(e ln(1/delta)), e = 2 T C^2 max_i [(sigma^2 I + sigma_c^2 L)^-1]_ii"
    return Claim("DECOR, ICML 2024", formula, sigma, eps, delta, (connected,))
