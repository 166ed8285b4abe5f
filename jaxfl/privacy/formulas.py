"""The papers' own noise formulas, with their constants and the conditions they are stated under.

Each returns a :class:`Claim`: the noise that the paper says is enough for (eps, delta), or the eps
that it says a given noise buys.  A claim is what a paper states, not what holds: for that see
:mod:`jaxfl.privacy.accountants`.  Give either ``eps`` or ``sigma``; sigma is the standard deviation
added to the released mean.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from jaxfl.errors import InputError
from jaxfl.privacy.gaussian import check_delta, zcdp_eps, zcdp_rho

__all__ = [
    "Claim",
    "Condition",
    "compressed_gd",
    "dp_sgd_baseline",
    "dp_srm",
    "gao",
    "hu",
    "lowy_spider",
    "lowy_svrg",
    "mu2",
    "one_pass",
    "q_dpsgd",
    "rrpsgd",
    "sdm",
]


class Condition(NamedTuple):
    """A condition of the theorem, in words, and whether it holds; None: nobody can tell."""

    text: str
    holds: bool | None


class Claim(NamedTuple):
    """What a paper states."""

    source: str
    formula: str
    sigma: float
    eps: float
    delta: float
    conditions: tuple[Condition, ...] = ()
    verified: bool = True  # False: the source of the constant could not be checked
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether no condition is known to fail."""
        return all(condition.holds is not False for condition in self.conditions)


def _inverse(
    numerator: float, eps: float | None, sigma: float | None, delta: float
) -> tuple[float, float]:
    """sigma and eps of a formula ``sigma = numerator / eps``."""
    check_delta(delta)
    if (eps is None) == (sigma is None):
        raise InputError(f"eps = {eps!r} and sigma = {sigma!r}: give exactly one of them.")
    if eps is None:
        assert sigma is not None
        return sigma, numerator / sigma if sigma > 0 else math.inf
    if not eps > 0:
        raise InputError(f"eps = {eps!r} has to be positive: no noise is enough for 0.")
    return numerator / eps, eps


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
) -> Claim:
    """``sigma^2 = c G^2 T ln(1/delta)/(m^2 eps^2)`` [SoteriaFL, Theorems 1, 2 and 4].

    The paper writes ``c (G_A^2/4 + G_B^2)`` and never gives c; its proof gives 48, so that G_A = G,
    G_B = 0 is c = 12 (SoteriaFL-SGD and -GD in the authors' code), G_A = 2G, G_B = G is c = 96 (SVRG
    and SAGA), and Theorem 4 has c = 8 (CDP-SGD, DP-GD).  c' is not given either; from the proof
    ``eps <= 4 q^2 T ln(G_A/(q b s))``, with 8 for 4 where there is a ``snapshot``.

    Slips in the paper: Lemma 3 mixes add/remove and replace-one (a consistent version gives
    G_A^2 + G_B^2), its factor 1/(1-q) excludes q = 1, ``t = 0..T`` releases T + 1 messages.
    """
    s, e = _inverse(
        math.sqrt(constant * G * G * rounds * math.log(1 / delta)) / m, eps, sigma, delta
    )
    q, G_A = b / m, 2 * G if snapshot else G
    conditions: tuple[Condition, ...]
    if b == m:
        conditions = (
            Condition("q < 1, from the proof's factor 1/(1 - q): not met by full batches", False),
        )
    else:
        room = G_A / (q * b * s)
        most = (8 if snapshot else 4) * q * q * rounds * math.log(room) if room > 0 else 0.0
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
    check_delta(delta)
    log = math.log(1 / delta)
    if eps is not None and sigma is None:
        if not eps > 0:
            raise InputError(f"eps = {eps!r} has to be positive: no noise is enough for 0.")
        sigma = math.sqrt(16 * rounds * (2 * log / eps + 1) / eps) / m
    elif sigma is not None and eps is None:
        k = m * m * sigma * sigma / (16 * rounds)  # k eps^2 = 2 log + eps
        eps = (1 + math.sqrt(1 + 8 * log * k)) / (2 * k) if k > 0 else math.inf
    else:
        raise InputError(f"eps = {eps!r} and sigma = {sigma!r}: give exactly one of them.")
    formula = "sigma^2 = 16 T (2 ln(1/delta)/eps + 1)/(m^2 eps)"
    note = "the formula has no G: the authors' clip is not in it"
    return Claim("SoteriaFL authors' code", formula, sigma, eps, delta, (), False, note)


def sdm(p: float, mu: float, rounds: int, delta: float) -> Claim:
    """SDM-DSGD's claim that a mask which keeps a share p of coordinates scales the RDP by p.

    False: a canary in one coordinate realises more.  ``eps`` is by the usual conversion.
    """
    from jaxfl.privacy.gaussian import rdp_eps

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

    C rounds in which the device took part, r devices under secure aggregation (1: without it).
    """
    check_delta(delta)
    share = 2 * rounds * tau * G * G / (devices * m * gamma)  # a sigma^2
    if (eps is None) == (sigma is None):
        raise InputError(f"eps = {eps!r} and sigma = {sigma!r}: give exactly one of them.")
    if sigma is None:
        assert eps is not None
        sigma = math.sqrt(share / float(zcdp_rho(eps, delta)))
    else:
        eps = float(zcdp_eps(share / sigma**2, delta)) if sigma > 0 else math.inf
    passes = rounds * tau * gamma / m
    per_round = tau * gamma / m
    conditions = [
        Condition(
            f"whole passes over the data: C tau gamma/m = {passes:.6g}", passes == int(passes)
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
    )


def dp_sgd_baseline(G: float, n: int, gamma: int, rounds: int, delta: float, sigma: float) -> Claim:
    """The DP-SGD baseline of Hu et al.: ``a = 2 C G^2/(n gamma^2 sigma^2)``, one step per round."""
    eps = float(zcdp_eps(2 * rounds * G * G / (n * gamma * gamma * sigma * sigma), delta))
    text = "all n devices report in every round (the paper prints n although r of them do)"
    return Claim(
        "Hu, Guo, Gong",
        "eps = a + 2 sqrt(a ln(1/delta)), a = 2 C G^2/(n gamma^2 sigma^2)",
        sigma,
        eps,
        delta,
        (Condition(text, None),),
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
    top = 256 * L * L * rounds * math.log(2.5 * rounds / delta) * math.log(2 / delta)
    s, e = _inverse(math.sqrt(top) / n, eps, sigma, delta)
    least = e * n / (4 * math.sqrt(2 * rounds * math.log(2 / delta)))
    conditions = (
        Condition(
            f"eps = {e:.4g} <= 2 ln(2/delta) = {2 * math.log(2 / delta):.4g}",
            e <= 2 * math.log(2 / delta),
        ),
        Condition(f"K = {K:g} >= eps n/(4 sqrt(2 R ln(2/delta))) = {least:.4g}", K >= least),
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
    s, e = _inverse(math.sqrt(8 * L * L * log) / K, eps, sigma, delta)
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
        Condition(f"K = {K} >= eps m/(4 sqrt(2 S R ln(2/delta))) = {least:.4g}", K >= least),
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
    """FedProx-SPIDER [Lowy et al., AISTATS 2023], full batches: sigma1, sigma2 per unit of |dx|, shat.

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
    """``sigma^2 = 4 S^2 T/(rho^2 M^2)``, ``eps = rho^2/2 + rho sqrt(2 ln(1/delta))`` [Reshef, Levy].

    ``machines``: M with a trusted server, else 1.  Their rho is the mu of GDP; as zCDP it is
    rho^2/2.  S = G + 2LD bounds the increments only where G and L hold for the loss.
    """
    check_delta(delta)
    if sum(x is not None for x in (rho, eps, sigma)) != 1:
        raise InputError(
            f"rho = {rho!r}, eps = {eps!r} and sigma = {sigma!r}: give exactly one of them."
        )
    shift = 2 * S * math.sqrt(rounds) / machines
    if sigma is not None:
        rho = shift / sigma if sigma > 0 else math.inf
    elif eps is not None:
        rho = math.sqrt(2 * float(zcdp_rho(eps, delta)))
    assert rho is not None
    if not rho > 0:
        raise InputError(f"rho = {rho!r} has to be positive.")
    return Claim(
        "Reshef, Levy",
        "sigma^2 = 4 S^2 T/(rho^2 M^2), eps = rho^2/2 + rho sqrt(2 ln(1/delta))",
        shift / rho,
        float(zcdp_eps(rho * rho / 2, delta)),
        delta,
        (Condition("every gradient is bounded by G and L-Lipschitz on the domain", None),),
    )


# --- single node ---------------------------------------------------------------------------------


def rrpsgd(
    G: float, m: int, delta: float, *, eps: float | None = None, sigma: float | None = None
) -> Claim:
    """``sigma^2 = 32 G^2 ln(m/delta) ln(1/delta)/eps^2`` [Bassily et al., 2014, constant]."""
    top = 32 * G * G * math.log(m / delta) * math.log(1 / delta)
    s, e = _inverse(math.sqrt(top), eps, sigma, delta)
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
    eps: float,
    split: float = 0.5,
) -> tuple[Claim, Claim]:
    """Noise of the first and of every later estimate in DP-SRM [Wang et al., UAI 2023].

    ``step`` is zeta/n0, ``split`` their B: ``sigma0^2 = 14 T G^2 a/(B m^2 eps)``,
    ``sigma^2 = 14 T [(1-gamma) zeta/n0 + gamma G]^2 a/(B m^2 eps)``, ``a = 1 + ln(1/delta)/((1-B) eps)``.
    """
    check_delta(delta)
    a = 1 + math.log(1 / delta) / ((1 - split) * eps)
    reach = (1 - gamma) * step + gamma * G
    unit = math.sqrt(14 * rounds * a / (split * eps)) / m
    first, later = unit * G, unit * reach
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
