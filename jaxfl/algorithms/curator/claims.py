"""The noise formulas of RRPSGD and DP-SRM, with their conditions."""

from __future__ import annotations

import math

from jaxfl.privacy.claims import Claim, Condition, either, solved
from jaxfl.privacy.gaussian import check_delta

__all__ = ["dp_srm", "rrpsgd"]

SPLIT = 0.5  # B, the share of eps that composition takes


def rrpsgd(G: float, m: int, delta: float, **way: float) -> Claim:
    """``sigma^2 = 32 G^2 ln(m/delta) ln(1/delta)/eps^2`` [Bassily et al., 2014, constant]."""
    top = 32 * G * G * math.log(m / delta) * math.log(1 / delta)
    s, e = either(math.sqrt(top), delta, **way)
    formula = "sigma^2 = 32 G^2 ln(m/delta) ln(1/delta)/eps^2"
    return Claim("RRPSGD", formula, s, e, delta, (), False, "RRPSGD's own constant is unverified")


def dp_srm(
    G: float,
    m: int,
    b: int,
    b0: int,
    rounds: int,
    gamma: float,
    step: float,
    delta: float,
    **way: float,
) -> tuple[Claim, Claim]:
    """Noise of the first and of every later estimate in DP-SRM [Wang et al., UAI 2023].

    ``step`` is zeta/n0, and their B is 1/2: ``sigma0^2 = 14 T G^2 a/(B m^2 eps)``,
    ``sigma^2 = 14 T [(1-gamma) zeta/n0 + gamma G]^2 a/(B m^2 eps)``,
    ``a = 1 + ln(1/delta)/((1-B) eps)``.  A given ``sigma`` is that of the later ones.
    """
    log, reach = math.log(1 / check_delta(delta)) / (1 - SPLIT), (1 - gamma) * step + gamma * G

    def unit(eps: float) -> float:
        return math.sqrt(14 * rounds * (1 + log / eps) / (SPLIT * eps)) / m

    def eps_of(sigma: float) -> float:
        k = (m * sigma / reach) ** 2 * SPLIT / (14 * rounds)  # k eps^2 = eps + log
        return (1 + math.sqrt(1 + 4 * k * log)) / (2 * k)

    later, eps = solved(lambda eps: unit(eps) * reach, eps_of, delta, **way)
    first, a = unit(eps) * G, 1 + log / eps
    s2 = min((b * later / reach) ** 2, (b0 * first / G) ** 2) / 4
    t = max(b, b0) / m
    inside = t * a * (1 + s2)
    most = 2 / 3 * s2 * math.log(1 / inside)
    text = f"a - 1 <= (2/3) s'^2 ln(1/(t a (1 + s'^2))) = {most:.4g}"
    conditions = (
        Condition("s'^2 >= 0.7", s2 >= 0.7, here=f"s'^2 = {s2:.4g}"),
        Condition(text, a - 1 <= most, here=f"a - 1 = {a - 1:.4g}"),
    )
    source, moved = "DP-SRM, UAI 2023", "[(1-gamma) zeta/n0 + gamma G]^2"
    return (
        Claim(source, "sigma0^2 = 14 T G^2 a/(B m^2 eps)", first, eps, delta, conditions),
        Claim(source, f"sigma^2 = 14 T {moved} a/(B m^2 eps)", later, eps, delta, conditions),
    )
