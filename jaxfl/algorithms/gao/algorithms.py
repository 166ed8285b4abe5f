"""ISRL-DP: localized, accelerated and nonsmooth algorithms for convex losses, and their baselines.

C. Gao, A. Lowy, X. Zhou, S. Wright: Private Heterogeneous Federated Learning Without a Trusted
Server Revisited: Error-Optimal and Communication-Efficient Algorithms for Convex Losses.  ICML 2024.
A. Lowy, M. Razaviyayn: Private Federated Learning Without a Trusted Server: Optimal Algorithms for
Convex Losses.  ICLR 2023.

===========================  ===================  ======================  ======================
algorithm                    solver               records                 loss
===========================  ===================  ======================  ======================
localized_accelerated_mbsgd  multi-stage AC-SA    halved in every phase   smooth
localized_nesterov           multi-stage AC-SA    halved in every phase   its Moreau envelope
localized_convolution        multi-stage AC-SA    halved, Poisson         its convolution
localized_subgradient        subgradient          halved in every phase   any
localized_mbsgd              minibatch SGD        halved in every phase   any
multistage_accelerated       multi-stage AC-SA    all                     smooth
accelerated_mbsgd            AC-SA                all                     smooth
mb_subgradient               subgradient          all                     any
multi_pass_mbsgd             minibatch SGD        all                     any
one_pass_mbsgd               minibatch SGD        each once               any
one_pass_accelerated         AC-SA                each once               smooth
===========================  ===================  ======================  ======================

Participation "uniform" with cohort M is the paper's M of N silos.  The clip is the paper's L.  All
losses must be convex.  Hyper-parameters that are not given come from the theorems
(:mod:`jaxfl.algorithms.gao.theory`, :mod:`jaxfl.algorithms.gao.rules`).
"""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from jaxfl.algorithms.composition import by_rules
from jaxfl.algorithms.gao.rules import PaperRules, Variant
from jaxfl.algorithms.numbers import applies, body_of, only
from jaxfl.algorithms.roles import cached
from jaxfl.core.params import choice
from jaxfl.core.types import Algorithm, Mechanism, Participation, Sampler
from jaxfl.parts import estimators, sampling
from jaxfl.parts.accelerated import acsa, averaged
from jaxfl.parts.localization import localized, noised, phased, planned
from jaxfl.parts.mechanisms import gaussian
from jaxfl.parts.smoothing import convolution, moreau

__all__ = [
    "accelerated_mbsgd",
    "localized_accelerated_mbsgd",
    "localized_convolution",
    "localized_mbsgd",
    "localized_nesterov",
    "localized_subgradient",
    "mb_subgradient",
    "multi_pass_mbsgd",
    "multistage_accelerated",
    "one_pass_accelerated",
    "one_pass_mbsgd",
]

BASELINE = "Lowy, Razaviyayn, ICLR 2023"


class Parts(TypedDict, total=False):
    """Parts that a user may exchange in any of these algorithms."""

    sampler: Sampler | str
    mechanism: Mechanism
    participation: Participation | str
    noise: str
    clip: str  # "client" is refused, with the reason
    variant: str  # of the stages of Algorithm 5: "sound", or "paper" as printed


def localized_accelerated_mbsgd(**parts: Unpack[Parts]) -> Algorithm:
    """Localized accelerated MB-SGD [Algorithm 1]::

        for i = 1..tau, on n_i = floor(n/2^i) fresh records of each silo:
            minimise (1/(n_i N)) sum f(w; x) + lambda_i/2 |w - w_{i-1}|^2,  lambda_i = lambda 2^{(i-1)p}
            over {w in W : |w - w_{i-1}| <= 2L/lambda_i}
            by multistage_accelerated with mu = lambda_i for R_i rounds, from w_{i-1}

    A record belongs to one phase: privacy is that of the worst phase.
    """
    return _algorithm("localized_accelerated_mbsgd", Variant("multistage", True), **parts)


def localized_nesterov(**parts: Unpack[Parts]) -> Algorithm:
    """Localized Nesterov smoothing: :func:`localized_accelerated_mbsgd` on the Moreau envelope of
    every record's loss [Theorem 3.1]::

        f_beta(w; x) = min_v f(v; x) + beta/2 |w - v|^2
    """
    return _algorithm("localized_nesterov", Variant("multistage", True, "moreau"), **parts)


def localized_convolution(**parts: Unpack[Parts]) -> Algorithm:
    """Localized convolution smoothing: :func:`localized_accelerated_mbsgd` with gradients at w_md + v,
    fresh for every record and round, and Poisson batches [Algorithm 6, 7]::

        g_i = mean_{j in B} clip grad f(w_md + v_j; x_j) + xi_i,  v_j uniform in a ball
    """
    kind = Variant("multistage", True, "convolution", sampling.poisson)
    return _algorithm("localized_convolution", kind, **parts)


def localized_subgradient(**parts: Unpack[Parts]) -> Algorithm:
    """Localized MB-subgradient method: :func:`localized_accelerated_mbsgd` with
    :func:`mb_subgradient` inside [Algorithm 4]::

        for i = 1..tau, on n_i = floor(n/2^i) fresh records of each silo:
            minimise (1/(n_i N)) sum f(w; x) + lambda_i/2 |w - w_{i-1}|^2
            by mb_subgradient, from w_{i-1},  lambda_i = 1/(eta_i n_i),  eta_i = eta/2^{i p}
    """
    return _algorithm("localized_subgradient", Variant("subgradient", True), **parts)


def localized_mbsgd(**parts: Unpack[Parts]) -> Algorithm:
    """Localized MB-SGD: :func:`localized_accelerated_mbsgd` with projected minibatch SGD inside::

        w <- Pi(w - eta/(1 + eta lambda_i) (v + lambda_i (w - w_{i-1}))),  v the noisy gradient at w

    As the paper's experiments run it [section 4]; the regularizer's step is implicit, and stable for
    any lambda_i.
    """
    return _algorithm("localized_mbsgd", Variant("sgd", True), **parts)


def multistage_accelerated(**parts: Unpack[Parts]) -> Algorithm:
    """Multi-stage accelerated MB-SGD [Algorithm 5]: :func:`accelerated_mbsgd`, restarted in every stage::

        for k = 1, 2, ...:  x_k = AC-SA with strong convexity mu for R_k rounds, from x_{k-1}

    For mu-strongly convex losses; without mu, ``lambda/2 |w - w_0|^2`` is added and mu = lambda.
    """
    return _algorithm("multistage_accelerated", Variant("multistage", False), **parts)


def accelerated_mbsgd(**parts: Unpack[Parts]) -> Algorithm:
    """Accelerated MB-SGD [Algorithm 2]: :func:`jaxfl.parts.accelerated.acsa` with K records of each silo::

        w_md = w_ag + B_r (w - w_ag),  v = mean_i (mean_{j in K} clip grad f_ij(w_md) + xi_i)
        w <- Pi_W((((1-a_r) mu + h_r) w + a_r mu w_md - a_r v)/(mu + h_r)),  w_ag <- a_r w + (1-a_r) w_ag

    a_r and h_r are those of Appendix B, with the v of Ghadimi and Lan, 2012, where it runs alone.
    """
    return _algorithm("accelerated_mbsgd", Variant("acsa", False), **parts)


def mb_subgradient(**parts: Unpack[Parts]) -> Algorithm:
    """MB-subgradient method [Algorithm 3]::

        w_{r+1} = Pi_W(w_r - gamma_r g_r),  gamma_r = 2/(mu (r+1));  output 2/(R(R+1)) sum_r r w_r

    For mu-strongly convex losses; without mu, ``lambda/2 |w - w_0|^2`` is added and mu = lambda.
    """
    return _algorithm("mb_subgradient", Variant("subgradient", False), **parts)


def multi_pass_mbsgd(**parts: Unpack[Parts]) -> Algorithm:
    """Multi-pass MB-SGD: steps on all records, the weighted average of the points returned::

        w <- Pi_W(w - eta g),  g = mean_i (mean_{j in K} clip grad f_ij(w) + xi_i)

    Every round draws K fresh records of each silo.
    """
    return _algorithm("multi_pass_mbsgd", Variant("sgd", False, paper=BASELINE), **parts)


def one_pass_mbsgd(**parts: Unpack[Parts]) -> Algorithm:
    """One-pass MB-SGD: :func:`multi_pass_mbsgd` on disjoint batches of floor(n/R) records::

        w <- Pi_W(w - eta g),  g = mean_i (mean_{j in B_r} clip grad f_ij(w) + xi_i)

    Every record is used once, in one of B_1, B_2, ...
    """
    return _algorithm(
        "one_pass_mbsgd",
        Variant("sgd", False, sampler=sampling.single_pass, paper=BASELINE),
        **parts,
    )


def one_pass_accelerated(**parts: Unpack[Parts]) -> Algorithm:
    """One-pass accelerated MB-SGD: :func:`accelerated_mbsgd` on disjoint batches of floor(n/R)
    records::

        v = mean_i (mean_{j in B_r} clip grad f_ij(w_md) + xi_i),  B_1, B_2, ... disjoint, then as there
    """
    return _algorithm(
        "one_pass_accelerated",
        Variant("acsa", False, sampler=sampling.single_pass, paper=BASELINE),
        **parts,
    )


# --- what they share -----------------------------------------------------------------------------

SMOOTHERS = {"moreau": moreau, "convolution": convolution}


@cached
def _algorithm(name: str, kind: Variant, *, variant: str = "sound", **parts: Any) -> Algorithm:
    phases = "whose noise is that of phases on disjoint records, and a client is in all of them"
    given = only(name, parts, "sampler", "mechanism", "participation", "noise", records=phases)
    choice("variant", variant, ("sound", "paper"))
    sampler = given.pop("sampler", kind.sampler())
    why = "which uses every record once: take multi_pass_mbsgd or accelerated_mbsgd"
    applies(sampler.single_pass or not kind.once, name, why, sampler=sampler)
    estimator = estimators.minibatch((planned if kind.once else phased)(sampler))
    server = acsa() if kind.accelerated else averaged()
    if "mechanism" in given:
        given["mechanism"] = noised(given["mechanism"])
    body = body_of(
        given,
        estimator=SMOOTHERS[kind.smoothing](estimator) if kind.smoothing else estimator,
        mechanism=noised(gaussian()),
        server=localized(server) if kind.regularized else server,
    )
    rules = PaperRules(body, kind, name, variant)
    return by_rules(globals()[name], kind.paper, rules, rules.params)
