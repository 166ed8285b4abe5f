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
losses have to be convex.  Numbers that are not given come from the theorems
(:mod:`jaxfl.algorithms.gao.theory`, :mod:`jaxfl.algorithms.gao.rules`).
"""

from __future__ import annotations

import functools
from typing import Any, TypedDict, Unpack

from jaxfl.algorithms.composition import compose
from jaxfl.algorithms.gao.rules import Rules, Variant
from jaxfl.algorithms.numbers import summary_of
from jaxfl.core.errors import InputError
from jaxfl.core.types import Algorithm, Estimator, Participation, Sampler
from jaxfl.parts import channels, estimators, sampling
from jaxfl.parts.accelerated import acsa, averaged
from jaxfl.parts.compressors import identity
from jaxfl.parts.localization import localized, noised, phased, planned
from jaxfl.parts.smoothing import convolution, moreau
from jaxfl.rounds.federated import Federated

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

PAPER = "Gao, Lowy, Zhou, Wright, ICML 2024"
BASELINE = "Lowy, Razaviyayn, ICLR 2023"


class Parts(TypedDict, total=False):
    """What a user may exchange in any of these algorithms."""

    sampler: Sampler
    participation: Participation
    noise: str
    variant: str  # of the stages of Algorithm 5: "sound", or "paper" as printed


def localized_accelerated_mbsgd(**parts: Unpack[Parts]) -> Algorithm:
    """Localized accelerated MB-SGD [Algorithm 1]::

        for i = 1..tau, on n_i = floor(n/2^i) fresh records of each silo:
            minimise (1/(n_i N)) sum f(w; x) + lambda_i/2 |w - w_{i-1}|^2,  lambda_i = lambda 2^{(i-1)p}
            over {w in W : |w - w_{i-1}| <= 2L/lambda_i}
            by multistage_accelerated with mu = lambda_i for R_i rounds, from w_{i-1}

    A record belongs to one phase, so that privacy is that of the worst phase.
    """
    return _algorithm("localized_accelerated_mbsgd", Variant("multistage", True), PAPER, **parts)


def localized_nesterov(**parts: Unpack[Parts]) -> Algorithm:
    """Localized Nesterov smoothing: :func:`localized_accelerated_mbsgd` on the Moreau envelope of
    every record's loss [Theorem 3.1]::

        f_beta(w; x) = min_v f(v; x) + beta/2 |w - v|^2
    """
    return _algorithm("localized_nesterov", Variant("multistage", True, "moreau"), PAPER, **parts)


def localized_convolution(**parts: Unpack[Parts]) -> Algorithm:
    """Localized convolution smoothing: :func:`localized_accelerated_mbsgd` with gradients at w_md + v,
    fresh for every record and round, and Poisson batches [Algorithm 6, 7]::

        g_i = mean_{j in B} clip grad f(w_md + v_j; x_j) + xi_i,  v_j uniform in a ball
    """
    kind = Variant("multistage", True, "convolution")
    parts = {"sampler": sampling.poisson(), **parts}
    return _algorithm("localized_convolution", kind, PAPER, **parts)


def localized_subgradient(**parts: Unpack[Parts]) -> Algorithm:
    """Localized MB-subgradient method: :func:`localized_accelerated_mbsgd` with
    :func:`mb_subgradient` inside [Algorithm 4]::

        for i = 1..tau, on n_i = floor(n/2^i) fresh records of each silo:
            minimise (1/(n_i N)) sum f(w; x) + lambda_i/2 |w - w_{i-1}|^2
            by mb_subgradient, from w_{i-1},  lambda_i = 1/(eta_i n_i),  eta_i = eta/2^{ip}
    """
    return _algorithm("localized_subgradient", Variant("subgradient", True), PAPER, **parts)


def localized_mbsgd(**parts: Unpack[Parts]) -> Algorithm:
    """Localized MB-SGD: :func:`localized_accelerated_mbsgd` with projected minibatch SGD inside::

        w <- Pi(w - lr/(1 + lr lambda_i) (v + lambda_i (w - w_{i-1}))),  v the noisy gradient at w

    As the paper's experiments run it [section 4]; the regularizer's step is implicit, and stable for
    any lambda_i.
    """
    return _algorithm("localized_mbsgd", Variant("sgd", True), PAPER, **parts)


def multistage_accelerated(**parts: Unpack[Parts]) -> Algorithm:
    """Multi-stage accelerated MB-SGD [Algorithm 5]: :func:`accelerated_mbsgd` anew in every stage::

        for k = 1, 2, ...:  x_k = AC-SA with strong convexity mu for R_k rounds, from x_{k-1}

    For mu-strongly convex losses; without mu, ``lambda/2 |w - w_0|^2`` is added and mu = lambda.
    """
    return _algorithm("multistage_accelerated", Variant("multistage", False), PAPER, **parts)


def accelerated_mbsgd(**parts: Unpack[Parts]) -> Algorithm:
    """Accelerated MB-SGD [Algorithm 2]: :func:`jaxfl.parts.accelerated.acsa` with K records of each silo::

        w_md = w_ag + B_r (w - w_ag),  v = mean_i (mean_{j in K} clip grad f_ij(w_md) + xi_i)
        w <- Pi_W((((1-a_r) mu + h_r) w + a_r mu w_md - a_r v)/(mu + h_r)),  w_ag <- a_r w + (1-a_r) w_ag

    a_r and h_r are those of Theorem C.1.
    """
    return _algorithm("accelerated_mbsgd", Variant("acsa", False), PAPER, **parts)


def mb_subgradient(**parts: Unpack[Parts]) -> Algorithm:
    """MB-subgradient method [Algorithm 3]::

        w_{r+1} = Pi_W(w_r - gamma_r g_r),  gamma_r = 2/(mu (r+1));  output 2/(R(R+1)) sum_r r w_r

    For mu-strongly convex losses; without mu, ``lambda/2 |w - w_0|^2`` is added and mu = lambda.
    """
    return _algorithm("mb_subgradient", Variant("subgradient", False), PAPER, **parts)


def multi_pass_mbsgd(**parts: Unpack[Parts]) -> Algorithm:
    """Multi-pass MB-SGD: steps on all records, the weighted average of the points returned::

        w <- Pi_W(w - eta g),  g = mean_i (mean_{j in K} clip grad f_ij(w) + xi_i)

    Every round draws K records of each silo anew.
    """
    return _algorithm("multi_pass_mbsgd", Variant("sgd", False), BASELINE, **parts)


def one_pass_mbsgd(**parts: Unpack[Parts]) -> Algorithm:
    """One-pass MB-SGD: :func:`multi_pass_mbsgd` on disjoint batches of floor(n/R) records::

        w <- Pi_W(w - eta g),  g = mean_i (mean_{j in B_r} clip grad f_ij(w) + xi_i)

    Every record is used once, in one of B_1, B_2, ...
    """
    return _algorithm("one_pass_mbsgd", Variant("sgd", False, once=True), BASELINE, **parts)


def one_pass_accelerated(**parts: Unpack[Parts]) -> Algorithm:
    """One-pass accelerated MB-SGD: :func:`accelerated_mbsgd` on disjoint batches of floor(n/R)
    records::

        v = mean_i (mean_{j in B_r} clip grad f_ij(w_md) + xi_i),  B_1, B_2, ... disjoint, then as there
    """
    return _algorithm("one_pass_accelerated", Variant("acsa", False, once=True), BASELINE, **parts)


# --- what they share -----------------------------------------------------------------------------

SMOOTHERS = {"moreau": moreau, "convolution": convolution}


def _estimator(sampler: Sampler, smoothing: str) -> Estimator:
    plain = estimators.minibatch(sampler)
    return SMOOTHERS[smoothing](plain) if smoothing else plain


@functools.cache
def _algorithm(
    name: str,
    kind: Variant,
    paper: str,
    *,
    sampler: Sampler | None = None,
    participation: Participation | None = None,
    noise: str = "fused",
    variant: str = "sound",
    **others: Any,
) -> Algorithm:
    if others:
        raise InputError(
            f"{' and '.join(others)} does not apply to {name}, of which sampler, participation, noise "
            "and variant can be exchanged: leave it out."
        )
    if noise not in ("fused", "per_client"):
        raise InputError(f"noise = {noise!r} has to be 'fused' or 'per_client'.")
    if variant not in ("sound", "paper"):
        raise InputError(f"variant = {variant!r} has to be 'sound', or 'paper' as printed.")
    if not kind.once:
        rows = phased(sampler or sampling.with_replacement())
    elif sampler is None or sampler.single_pass:
        rows = planned(sampler or sampling.single_pass())
    else:
        raise InputError(
            f"sampler = {sampler.name!r} does not apply to {name}, which uses every record once: "
            "take multi_pass_mbsgd or accelerated_mbsgd."
        )
    server = acsa() if kind.accelerated else averaged()
    body = Federated(
        estimator=_estimator(rows, kind.smoothing),
        mechanism=noised(),
        compressor=identity(),
        channel=channels.direct(),
        server=localized(server) if kind.regularized else server,
        participation=participation or sampling.everyone(),
        noise=noise,
    )
    rules = Rules(name, kind, body, variant)
    return compose(
        name,
        summary_of(globals()[name]),
        paper,
        body,
        rules.plan,
        rules.params,
        rules.formula,
        rules.event,
        rules.finish,
    )
