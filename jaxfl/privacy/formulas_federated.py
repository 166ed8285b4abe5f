"""Noise formulas of Hu et al., Gao et al., Lowy et al., Reshef and Levy."""

from __future__ import annotations

import math

from jaxfl.errors import InputError
from jaxfl.privacy.claims import Claim, Condition, either, solved
from jaxfl.privacy.gaussian import check_delta, zcdp_eps, zcdp_rho
from jaxfl.theory_anytime import AnytimeSetting, anytime_rho, anytime_sigma
from jaxfl.theory_isrl import IsrlSetting, isrl_sigma, least_batch

__all__ = ["dp_sgd_baseline", "gao", "hu", "lowy_spider", "lowy_svrg", "mu2", "one_pass"]


# --- Hu, Guo, Gong -------------------------------------------------------------------------------


def hu(
    G: float,
    m: int,
    gamma: int,
    tau: int,
    rounds: int,
    delta: float,
    *,
    devices: int = 1,
    convex: bool | None = None,
    eps: float | None = None,
    sigma: float | None = None,
) -> Claim:
    """``eps = a + 2 sqrt(a ln(1/delta))``, ``a = 2 C tau G^2/(r m gamma sigma^2)`` [Theorem 1].

    C rounds in which the device took part, r devices under secure aggregation (1: without it).  It
    counts whole passes, so that gamma has to divide m, and m/gamma the C tau steps.
    """
    sigma, eps = _zcdp(2 * rounds * tau * G * G / (devices * m * gamma), eps, sigma, delta)
    passes = rounds * tau * gamma / m
    per_round = tau * gamma / m
    conditions = [
        Condition(
            f"whole passes over the data, gamma dividing m and m/gamma dividing C tau: C tau gamma/m = "
            f"{passes:.6g} at gamma = {gamma}, m = {m}",
            m % gamma == 0 and (rounds * tau) % (m // gamma) == 0,
            needed=True,
        )
    ]
    if devices > 1 and tau > 1:
        conditions += [
            Condition("convex, beta-smooth loss and eta <= 2/beta (not in the paper)", convex),
            Condition(
                f"at most one pass per round: tau gamma/m = {per_round:.6g} (not in the paper)",
                per_round <= 1,
            ),
        ]
    return Claim(
        "Hu, Guo, Gong",
        "eps = a + 2 sqrt(a ln(1/delta)), a = 2 C tau G^2/(r m gamma sigma^2)",
        sigma,
        eps,
        delta,
        tuple(conditions),
        note="false without convexity for several local steps" if devices > 1 and tau > 1 else "",
        where="Theorem 1",
    )


def dp_sgd_baseline(
    G: float,
    n: int,
    gamma: int,
    rounds: int,
    delta: float,
    sigma: float | None = None,
    *,
    eps: float | None = None,
) -> Claim:
    """The DP-SGD baseline of Hu et al.: ``a = 2 C G^2/(n gamma^2 sigma^2)``, one step per round."""
    sigma, eps = _zcdp(2 * rounds * G * G / (n * gamma * gamma), eps, sigma, delta)
    text = "all n devices report in every round (the paper prints n although r of them do)"
    return Claim(
        "Hu, Guo, Gong",
        "eps = a + 2 sqrt(a ln(1/delta)), a = 2 C G^2/(n gamma^2 sigma^2)",
        sigma,
        eps,
        delta,
        (Condition(text, None),),
    )


def _zcdp(
    share: float, eps: float | None, sigma: float | None, delta: float
) -> tuple[float, float]:
    """sigma and eps of a formula ``eps = a + 2 sqrt(a ln(1/delta))``, ``a = share/sigma^2``."""
    return solved(
        eps,
        sigma,
        delta,
        lambda eps: math.sqrt(share / float(zcdp_rho(eps, delta))),
        lambda sigma: float(zcdp_eps(share / sigma**2, delta)),
    )


# --- ISRL-DP -------------------------------------------------------------------------------------


def gao(
    L: float,
    n: int,
    K: float,
    rounds: int,
    delta: float,
    *,
    eps: float | None = None,
    sigma: float | None = None,
) -> Claim:
    """``sigma^2 = 256 L^2 R ln(2.5R/delta) ln(2/delta)/(n^2 eps^2)`` per phase.

    [Gao, Lowy, Zhou, Wright; also the multi-pass algorithm of Lowy and Razaviyayn, 2023.]  Advanced
    composition with amplification by subsampling: safe, and several times more noise than needed.
    """
    unit = IsrlSetting(1, n, 1, 1.0, delta, L)
    s, e = either(float(isrl_sigma(unit, n, rounds)), eps, sigma, delta)
    least = float(least_batch(unit._replace(eps=e), n, rounds))
    conditions = (
        Condition(
            f"eps = {e:.4g} <= 2 ln(2/delta) = {2 * math.log(2 / delta):.4g}",
            e <= 2 * math.log(2 / delta),
        ),
        Condition(f"K = {K:g} >= eps n/(4 sqrt(2 R ln(2/delta))) = {least:.4g}", least <= K),
    )
    formula = "sigma^2 = 256 L^2 R ln(2.5R/delta) ln(2/delta)/(n^2 eps^2)"
    return Claim("Gao, Lowy, Zhou, Wright", formula, s, e, delta, conditions)


def one_pass(
    L: float,
    K: int,
    delta: float,
    *,
    classical: bool = False,
    eps: float | None = None,
    sigma: float | None = None,
) -> Claim:
    """``sigma^2 = 8 L^2 ln(1/delta)/(K^2 eps^2)`` for disjoint batches [Lowy et al., AISTATS 2023].

    ``classical`` has ln(1.25/delta), proven for eps <= 1 only; its attribution is unverified.  The
    other fails from about eps = 7.0 at delta = 1e-3 on, 8.0 at 1e-5.
    """
    log = math.log((1.25 if classical else 1.0) / delta)
    s, e = either(math.sqrt(8 * L * L * log) / K, eps, sigma, delta)
    most = 1.0 if classical else 8 * math.log(1 / delta)
    return Claim(
        "Lowy et al., AISTATS 2023" if not classical else "classical Gaussian mechanism",
        f"sigma^2 = 8 L^2 ln({'1.25' if classical else '1'}/delta)/(K^2 eps^2)",
        s,
        e,
        delta,
        (Condition(f"eps = {e:.4g} <= {most:.4g}", e <= most),),
        not classical,
    )


def lowy_svrg(
    G: float, m: int, K: int, epochs: int, delta: float, eps: float, restarts: int = 1
) -> tuple[Claim, Claim]:
    """FedProx-SVRG [Lowy et al., AISTATS 2023]: noise of snapshots and of steps, R = E floor(m/K).

    ``sigma1^2 = 256 G^2 S E ln(2/delta) ln(5E/delta)/(eps^2 m^2)``,
    ``sigma2^2 = 1024 G^2 S R ln(2/delta) ln(2.5R/delta)/(eps^2 m^2)``.
    """
    check_delta(delta)
    R, log = epochs * (m // K), math.log(2 / delta)
    least = eps * m / (4 * math.sqrt(2 * restarts * R * log))
    conditions = (
        Condition(f"eps = {eps:g} <= min(2 ln(2/delta), 15)", eps <= min(2 * log, 15.0)),
        Condition(f"K = {K} >= eps m/(4 sqrt(2 S R ln(2/delta))) = {least:.4g}", least <= K),
    )
    first = math.sqrt(256 * restarts * epochs * log * math.log(5 * epochs / delta)) * G / (eps * m)
    second = math.sqrt(1024 * restarts * R * log * math.log(2.5 * R / delta)) * G / (eps * m)
    source = "Lowy et al., AISTATS 2023"
    return (
        Claim(
            source,
            "sigma1^2 = 256 G^2 S E ln(2/delta) ln(5E/delta)/(eps^2 m^2)",
            first,
            eps,
            delta,
            conditions,
        ),
        Claim(
            source,
            "sigma2^2 = 1024 G^2 S R ln(2/delta) ln(2.5R/delta)/(eps^2 m^2)",
            second,
            eps,
            delta,
            conditions,
        ),
    )


def lowy_spider(
    G: float, L: float, m: int, rounds: int, period: int, delta: float, eps: float
) -> tuple[Claim, Claim, Claim]:
    """FedProx-SPIDER [Lowy et al., AISTATS 2023], full batches: sigma1, sigma2 per |dx|, shat.

    ``sigma1^2 = 16 G^2 ln(1/delta)/(eps^2 m^2) max(R/q, 1)``,
    ``sigma2^2 = 16 L^2 R ln(1/delta)/(eps^2 m^2)``, ``shat^2 = 64 G^2 R ln(1/delta)/(eps^2 m^2)``.
    """
    check_delta(delta)
    log = math.log(1 / delta)
    conditions = (Condition(f"eps = {eps:g} <= 2 ln(1/delta) = {2 * log:.4g}", eps <= 2 * log),)
    unit = math.sqrt(log) / (eps * m)
    values = (
        (
            "sigma1^2 = 16 G^2 ln(1/delta) max(R/q, 1)/(eps^2 m^2)",
            4 * G * math.sqrt(max(rounds / period, 1.0)),
        ),
        ("sigma2^2 = 16 L^2 R ln(1/delta)/(eps^2 m^2)", 4 * L * math.sqrt(rounds)),
        ("shat^2 = 64 G^2 R ln(1/delta)/(eps^2 m^2)", 8 * G * math.sqrt(rounds)),
    )
    first, second, third = (
        Claim("Lowy et al., AISTATS 2023", formula, unit * value, eps, delta, conditions)
        for formula, value in values
    )
    return first, second, third


# --- mu^2-SGD ------------------------------------------------------------------------------------


def mu2(
    S: float,
    rounds: int,
    delta: float,
    *,
    machines: int = 1,
    rho: float | None = None,
    eps: float | None = None,
    sigma: float | None = None,
) -> Claim:
    """``sigma^2 = 4 S^2 T/(rho^2 M^2)``, ``eps = rho^2/2 + rho sqrt(2 ln(1/delta))``.

    [Reshef, Levy.]  ``machines``: M with a trusted server, else 1.  Their rho is the mu of GDP; as
    zCDP it is rho^2/2.  S = G + 2LD bounds the increments only where G and L hold for the loss.
    """
    check_delta(delta)
    if sum(x is not None for x in (rho, eps, sigma)) != 1:
        raise InputError(
            f"rho = {rho!r}, eps = {eps!r} and sigma = {sigma!r}: give exactly one of them."
        )
    s = AnytimeSetting(S, 0.0, 0.0, 1, rounds, machines, trusted=True)
    if sigma is not None:
        rho = float(anytime_rho(s, sigma)) if sigma > 0 else math.inf
    elif eps is not None:
        rho = math.sqrt(2 * float(zcdp_rho(eps, delta)))
    assert rho is not None
    if not rho > 0:
        raise InputError(f"rho = {rho!r} has to be positive.")
    return Claim(
        "Reshef, Levy",
        "sigma^2 = 4 S^2 T/(rho^2 M^2), eps = rho^2/2 + rho sqrt(2 ln(1/delta))",
        float(anytime_sigma(s._replace(rho=rho))) if sigma is None else sigma,
        float(zcdp_eps(rho * rho / 2, delta)),
        delta,
        (Condition("every gradient is bounded by G and L-Lipschitz on the domain", None),),
    )
