"""Noise formulas of SoteriaFL, its relatives, and single-node algorithms."""

from __future__ import annotations

import math

from jaxfl.privacy.claims import Claim, Condition, either, solved
from jaxfl.privacy.gaussian import check_delta, rdp_eps
from jaxfl.theory_soteriafl import unit_sigma

__all__ = ["compressed_gd", "dp_srm", "q_dpsgd", "rrpsgd", "sdm"]


# --- SoteriaFL and its relatives -----------------------------------------------------------------


def compressed_gd(
    constant: float,
    G: float,
    m: int,
    b: float,
    rounds: int,
    delta: float,
    *,
    eps: float | None = None,
    sigma: float | None = None,
    snapshot: bool = False,
    bounds: tuple[float, float] | None = None,
) -> Claim:
    """``sigma^2 = c G^2 T ln(1/delta)/(m^2 eps^2)`` [SoteriaFL, Theorems 1, 2 and 4], and whether its
    conditions hold; the number is :func:`jaxfl.theory.unit_sigma`'s.

    The paper writes ``c (G_A^2/4 + G_B^2)`` and never gives c; its proof gives 48, so that
    G_A = G, G_B = 0 is c = 12 (SoteriaFL-SGD and -GD in the authors' code), G_A = 2G, G_B = G is
    c = 96 (SVRG and SAGA), and Theorem 4 has c = 8 (CDP-SGD, DP-GD).  c' is not given either; from
    the proof ``eps <= 4 q^2 T ln(G_A/(q b s))``, with 8 for 4 where there is a ``snapshot``, in
    general ``4 (1 + 4 G_B^2/G_A^2)``.  ``bounds`` are G_A and G_B of another estimator.

    Slips in the paper: Lemma 3 mixes add/remove and replace-one (a consistent version gives
    G_A^2 + G_B^2), its factor 1/(1-q) excludes q = 1, ``t = 0..T`` releases T + 1 messages.
    """
    s, e = either(float(unit_sigma(constant, G, m, rounds, delta)), eps, sigma, delta)
    usual = (2 * G, G) if snapshot else (G, 0.0)
    q, (G_A, G_B) = b / m, bounds or usual
    conditions: tuple[Condition, ...]
    if b == m:
        conditions = (
            Condition("q < 1, from the proof's factor 1/(1 - q): not met by full batches", False),
        )
    else:
        room = G_A / (q * b * s)
        share = 4 * (1 + 4 * (G_B / G_A) ** 2) if math.isfinite(G_A) else 4.0
        most = share * q * q * rounds * math.log(room) if room > 0 else 0.0
        conditions = (
            Condition(
                f"eps < c' b^2 T/m^2, by the proof eps = {e:.4g} <= {most:.4g} "
                f"(eps/(q^2 T) = {e / (q * q * rounds):.4g})",
                e <= most,
            ),
            Condition(
                f"q = {q:.4g} < G_A/(16 b sigma) = {G_A / (16 * b * s):.4g}",
                q < G_A / (16 * b * s),
            ),
            Condition(
                f"sqrt(2/3) b sigma/G_A = {math.sqrt(2 / 3) * b * s / G_A:.4g} >= 1",
                math.sqrt(2 / 3) * b * s >= G_A,
            ),
        )
    return Claim(
        "SoteriaFL, NeurIPS 2022",
        f"sigma^2 = {constant:g} G^2 T ln(1/delta)/(m^2 eps^2)",
        s,
        e,
        delta,
        conditions,
        note="full batches need no such condition: the Gaussian mechanism is accounted exactly"
        if b == m
        else "",
    )


def q_dpsgd(
    m: int, rounds: int, delta: float, *, eps: float | None = None, sigma: float | None = None
) -> Claim:
    """``sigma^2 = 16 T (2 ln(1/delta)/eps + 1)/(m^2 eps)``, no G in it [SoteriaFL's notebook]."""
    log = math.log(1 / check_delta(delta))

    def eps_of(sigma: float) -> float:
        k = m * m * sigma * sigma / (16 * rounds)  # k eps^2 = 2 log + eps
        return (1 + math.sqrt(1 + 8 * log * k)) / (2 * k)

    def sigma_of(eps: float) -> float:
        return math.sqrt(16 * rounds * (2 * log / eps + 1) / eps) / m

    sigma, eps = solved(eps, sigma, delta, sigma_of, eps_of)
    formula = "sigma^2 = 16 T (2 ln(1/delta)/eps + 1)/(m^2 eps)"
    note = "the formula has no G: the authors' clip is not in it"
    return Claim("SoteriaFL authors' code", formula, sigma, eps, delta, (), False, note)


def sdm(p: float, mu: float, rounds: int, delta: float) -> Claim:
    """SDM-DSGD's claim that a mask which keeps a share p of coordinates scales the RDP by p.

    False: a canary in one coordinate realises more.  ``eps`` is by the usual conversion.
    """
    eps = rdp_eps(lambda a: p * rounds * a * mu * mu / 2, delta)[0]
    return Claim(
        "SDM-DSGD",
        "RDP(a) = p T a mu^2/2",
        math.nan,
        eps,
        delta,
        (Condition("one coordinate carries no more than a share p of the sensitivity", False),),
        False,
    )


# --- single node ---------------------------------------------------------------------------------


def rrpsgd(
    G: float, m: int, delta: float, *, eps: float | None = None, sigma: float | None = None
) -> Claim:
    """``sigma^2 = 32 G^2 ln(m/delta) ln(1/delta)/eps^2`` [Bassily et al., 2014, constant]."""
    top = 32 * G * G * math.log(m / delta) * math.log(1 / delta)
    s, e = either(math.sqrt(top), eps, sigma, delta)
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
    eps: float | None = None,
    split: float = 0.5,
    *,
    sigma: float | None = None,
) -> tuple[Claim, Claim]:
    """Noise of the first and of every later estimate in DP-SRM [Wang et al., UAI 2023].

    ``step`` is zeta/n0, ``split`` their B: ``sigma0^2 = 14 T G^2 a/(B m^2 eps)``,
    ``sigma^2 = 14 T [(1-gamma) zeta/n0 + gamma G]^2 a/(B m^2 eps)``,
    ``a = 1 + ln(1/delta)/((1-B) eps)``.  A given ``sigma`` is that of the later ones.
    """
    log, reach = math.log(1 / check_delta(delta)) / (1 - split), (1 - gamma) * step + gamma * G

    def unit(eps: float) -> float:
        return math.sqrt(14 * rounds * (1 + log / eps) / (split * eps)) / m

    def eps_of(sigma: float) -> float:
        k = (m * sigma / reach) ** 2 * split / (14 * rounds)  # k eps^2 = eps + log
        return (1 + math.sqrt(1 + 4 * k * log)) / (2 * k)

    later, eps = solved(eps, sigma, delta, lambda eps: unit(eps) * reach, eps_of)
    first, a = unit(eps) * G, 1 + log / eps
    s2 = min((b * later / reach) ** 2, (b0 * first / G) ** 2) / 4
    t = max(b, b0) / m
    inside = t * a * (1 + s2)
    most = 2 / 3 * s2 * math.log(1 / inside)
    conditions = (
        Condition(f"s'^2 = {s2:.4g} >= 0.7", s2 >= 0.7),
        Condition(
            f"a - 1 = {a - 1:.4g} <= (2/3) s'^2 ln(1/(t a (1 + s'^2))) = {most:.4g}", a - 1 <= most
        ),
    )
    source = "DP-SRM, UAI 2023"
    return (
        Claim(source, "sigma0^2 = 14 T G^2 a/(B m^2 eps)", first, eps, delta, conditions),
        Claim(
            source,
            "sigma^2 = 14 T [(1-gamma) zeta/n0 + gamma G]^2 a/(B m^2 eps)",
            later,
            eps,
            delta,
            conditions,
        ),
    )
