"""The noise formulas of Hu, Guo and Gong and of their baseline, with their conditions."""

from __future__ import annotations

import math

from jaxfl.privacy.claims import Claim, Condition, solved
from jaxfl.privacy.gaussian import gdp_eps, gdp_mu, zcdp_eps, zcdp_rho

__all__ = ["dp_sgd_baseline", "hu", "trusted_server"]


def hu(
    G: float,
    m: int,
    gamma: int,
    tau: int,
    rounds: int,
    delta: float,
    *,
    devices: float = 1,
    convex: bool | None = None,
    **way: float,
) -> Claim:
    """``eps = a + 2 sqrt(a ln(1/delta))``, ``a = 2 C tau G^2/(r m gamma sigma^2)`` [Theorem 1].

    C rounds in which the device took part, r devices under secure aggregation (1: without it).  It
    counts whole passes: gamma has to divide m, and m/gamma the C tau steps.
    """
    sigma, eps = _zcdp(2 * rounds * tau * G * G / (devices * m * gamma), delta, **way)
    passes, per_round = rounds * tau * gamma / m, tau * gamma / m
    whole = m % gamma == 0 and (rounds * tau) % (m // gamma) == 0
    text = "whole passes over the data, gamma dividing m and m/gamma dividing C tau"
    here = f"C tau gamma/m = {passes:.6g} at gamma = {gamma}, m = {m}"
    conditions = [Condition(text, whole, needed=True, here=here)]
    note = ""
    if devices > 1 and tau > 1:
        note = "false without convexity for several local steps"
        text = "at most one pass per round, tau gamma/m <= 1 (not in the paper)"
        conditions += [
            Condition("a convex, beta-smooth loss and eta <= 2/beta (not in the paper)", convex),
            Condition(text, per_round <= 1, here=f"it is {per_round:.6g}"),
        ]
    formula, where = (
        "eps = a + 2 sqrt(a ln(1/delta)), a = 2 C tau G^2/(r m gamma sigma^2)",
        "Theorem 1",
    )
    found = tuple(conditions)
    return Claim("Hu, Guo, Gong", formula, sigma, eps, delta, found, note=note, where=where)


def dp_sgd_baseline(G: float, n: int, gamma: int, rounds: int, delta: float, **way: float) -> Claim:
    """The DP-SGD baseline of Hu et al.: ``a = 2 C G^2/(n gamma^2 sigma^2)``, one step per round."""
    sigma, eps = _zcdp(2 * rounds * G * G / (n * gamma * gamma), delta, **way)
    text = "all n devices to report in every round (the paper prints n although r of them do)"
    formula = "eps = a + 2 sqrt(a ln(1/delta)), a = 2 C G^2/(n gamma^2 sigma^2)"
    return Claim("Hu, Guo, Gong", formula, sigma, eps, delta, (Condition(text, None),))


def trusted_server(S: float, r: float, rounds: int, delta: float, **way: float) -> Claim:
    """``sigma = S sqrt(T)/(r mu)``: T Gaussian releases of the mean of r updates of norm at most S."""
    shift = S * math.sqrt(rounds) / r
    sigma, eps = solved(
        lambda eps: shift / float(gdp_mu(eps, delta)),
        lambda sigma: float(gdp_eps(shift / sigma, delta)),
        delta,
        **way,
    )
    where = "Gaussian releases, no amplification"
    return Claim("", "sigma = S sqrt(T)/(r mu)", sigma, eps, delta, where=where)


def _zcdp(share: float, delta: float, **way: float) -> tuple[float, float]:
    """sigma and eps of a formula ``eps = a + 2 sqrt(a ln(1/delta))``, ``a = share/sigma^2``."""
    return solved(
        lambda eps: math.sqrt(share / float(zcdp_rho(eps, delta))),
        lambda sigma: float(zcdp_eps(share / sigma**2, delta)),
        delta,
        **way,
    )
