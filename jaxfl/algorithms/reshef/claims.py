"""The noise formula of Reshef and Levy, with its conditions."""

from __future__ import annotations

import math

from jaxfl.algorithms.reshef.theory import AnytimeSetting, anytime_rho, anytime_sigma
from jaxfl.core.params import exactly_one, number
from jaxfl.privacy.claims import Claim, Condition
from jaxfl.privacy.gaussian import check_delta, zcdp_eps, zcdp_rho

__all__ = ["mu2"]


def mu2(
    S: float,
    rounds: int,
    delta: float,
    *,
    machines: int = 1,
    batch: int = 1,
    rho: float | None = None,
    eps: float | None = None,
    sigma: float | None = None,
) -> Claim:
    """``sigma^2 = 4 S^2 T/rho^2``, ``eps = rho^2/2 + rho sqrt(2 ln(1/delta))``  [Theorem 5.1].

    With a trusted server of M ``machines``, ``sigma^2 = 4 S^2 T/(rho^2 M^2)``  [Theorem 6.1]; the mean of
    ``batch`` samples divides sigma by b as well.  Their rho is the mu of GDP; as zCDP it is rho^2/2.
    S = G + 2LD bounds the increments only where G and L hold for the loss.
    """
    check_delta(delta)
    exactly_one(rho=rho, eps=eps, sigma=sigma)
    s = AnytimeSetting(S, 0.0, 0.0, 1, rounds, machines * batch, trusted=True)
    if sigma is not None:
        rho = float(anytime_rho(s, sigma)) if sigma > 0 else math.inf
    elif eps is not None:
        rho = math.sqrt(2 * float(zcdp_rho(eps, delta)))
    assert rho is not None
    number("rho", rho, above=0)
    square = "rho^2" + " M^2" * (machines > 1) + " b^2" * (batch > 1)
    square = f"({square})" if " " in square else square
    formula = f"sigma^2 = 4 S^2 T/{square}, eps = rho^2/2 + rho sqrt(2 ln(1/delta))"
    noise = float(anytime_sigma(s._replace(rho=rho))) if sigma is None else sigma
    condition = Condition("that every gradient is bounded by G and L-Lipschitz on the domain", None)
    proven = float(zcdp_eps(rho * rho / 2, delta))
    return Claim("Reshef, Levy", formula, noise, proven, delta, (condition,))
