"""SoteriaFL and the algorithms it is compared with.

Z. Li, H. Zhao, B. Li, Y. Chi: SoteriaFL: A Unified Framework for Private Federated Learning with
Communication Compression.  NeurIPS 2022.

===================  ================  ==========  =======  =====
algorithm            estimator         compressor  channel  noise
===================  ================  ==========  =======  =====
soteriafl_gd, _sgd   full, minibatch   random-k    shifted  yes
soteriafl_svrg       loopless SVRG     random-k    shifted  yes
soteriafl_saga       SAGA              random-k    shifted  yes
cdp_gd, cdp_sgd      full, minibatch   random-k    direct   yes
ldp_gd, ldp_sgd      full, minibatch   none        direct   yes
ldp_svrg             loopless SVRG     none        direct   yes
fedgd, fedsgd        full, minibatch   none        direct   no
===================  ================  ==========  =======  =====
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Unpack

from jaxfl.algorithms.composition import compose
from jaxfl.algorithms.numbers import Parts, summary_of
from jaxfl.algorithms.soteriafl.rules import (
    CDP,
    NOISE,
    NUMBERS,
    SAGA,
    SGD,
    SVRG,
    PaperRules,
    Rule,
    own,
)
from jaxfl.core.errors import InputError
from jaxfl.core.types import (
    Aggregation,
    Algorithm,
    Channel,
    Compressor,
    Estimator,
    Mechanism,
    Participation,
    Sampler,
    Server,
)
from jaxfl.parts import channels, compressors, estimators, mechanisms, sampling, servers
from jaxfl.parts.aggregations import unless_plain
from jaxfl.parts.compressors import identity
from jaxfl.rounds.federated import Federated

__all__ = [
    "cdp_gd",
    "cdp_sgd",
    "fedgd",
    "fedsgd",
    "ldp_gd",
    "ldp_sgd",
    "ldp_svrg",
    "soteriafl_gd",
    "soteriafl_saga",
    "soteriafl_sgd",
    "soteriafl_svrg",
]

PAPER = "SoteriaFL, NeurIPS 2022"
FEDAVG = "McMahan et al., AISTATS 2017"


def soteriafl_gd(**parts: Unpack[Parts]) -> Algorithm:
    """SoteriaFL-GD: :func:`soteriafl_sgd` with every sample in every round [Corollary 1]::

        g_i = mean_j clip grad f_ij(x) + xi_i
        v_i = C_i(g_i - s_i),  s_i <- s_i + gamma v_i
        v = s + mean_i v_i,  x <- x - eta v,  s <- s + gamma mean_i v_i

    The shifts s_i learn the gradients, so that less and less is left to compress.
    """
    return _algorithm(
        "soteriafl_gd", estimators.minibatch, SGD, channel=channels.shifted(), **_whole(parts)
    )


class Framework(Parts, total=False):
    """What a user may exchange in the paper's Algorithm 2, which is for any estimator."""

    estimator: Estimator


def soteriafl_sgd(**parts: Unpack[Framework]) -> Algorithm:
    """SoteriaFL-SGD [Algorithm 3, option I]::

        g_i = mean_{j in I_b} clip grad f_ij(x) + xi_i,  xi_i ~ N(0, sigma^2 I)
        v_i = C_i(g_i - s_i),  s_i <- s_i + gamma v_i
        v = s + mean_i v_i,  x <- x - eta v,  s <- s + gamma mean_i v_i

    The shifts s_i learn the gradients, so that less and less is left to compress.

    With another ``estimator`` it is the paper's Algorithm 2.  Where that declares the constants of
    Assumption 3 (``Estimator.assume``), step size and noise are those of Theorems 2 and 3.
    """
    mine = parts.pop("estimator", None)
    if mine is None:
        return _algorithm(
            "soteriafl_sgd", estimators.minibatch, SGD, channel=channels.shifted(), **parts
        )
    if "sampler" in parts:
        raise InputError(
            f"sampler = {parts['sampler'].name!r} and estimator = {mine.name!r} are both given: make "
            "the estimator with that sampler."
        )
    return _algorithm("soteriafl_sgd", mine, own(mine), channel=channels.shifted(), **parts)


def soteriafl_svrg(**parts: Unpack[Parts]) -> Algorithm:
    """SoteriaFL-SVRG [Algorithm 3, option II]: :func:`soteriafl_sgd` with the estimator
    :func:`jaxfl.estimators.svrg`::

        g_i = mean_{j in I_b} (clip grad f_ij(x) - clip grad f_ij(w)) + mean_j clip grad f_ij(w) + xi_i
        v_i = C_i(g_i - s_i),  s_i <- s_i + gamma v_i
        v = s + mean_i v_i,  x <- x - eta v,  s <- s + gamma mean_i v_i
        w <- x with probability p, one coin for all clients
    """
    return _algorithm("soteriafl_svrg", estimators.svrg, SVRG, channel=channels.shifted(), **parts)


def soteriafl_saga(**parts: Unpack[Parts]) -> Algorithm:
    """SoteriaFL-SAGA [Algorithm 3, option III]: :func:`soteriafl_sgd` with the estimator
    :func:`jaxfl.estimators.saga`::

        g_i = mean_{j in I_b} (clip grad f_ij(x) - c_ij) + mean_j c_ij + xi_i
        c_ij <- clip grad f_ij(x) for j in I_b
        v_i = C_i(g_i - s_i),  s_i <- s_i + gamma v_i
        v = s + mean_i v_i,  x <- x - eta v,  s <- s + gamma mean_i v_i
    """
    return _algorithm("soteriafl_saga", estimators.saga, SAGA, channel=channels.shifted(), **parts)


def cdp_gd(**parts: Unpack[Parts]) -> Algorithm:
    """CDP-GD: :func:`cdp_sgd` with every sample in every round::

        g_i = mean_j clip grad f_ij(x);  v_i = C_i(g_i + xi_i);  x <- x - eta mean_i v_i

    xi_i ~ N(0, sigma^2 I), and C_i is random-k unless another compressor is given.
    """
    return _algorithm("cdp_gd", estimators.minibatch, CDP, **_whole(parts))


def cdp_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """CDP-SGD [Algorithm 1]::

        g_i = mean_{j in I_b} clip grad f_ij(x);  v_i = C_i(g_i + xi_i);  x <- x - eta mean_i v_i

    xi_i ~ N(0, sigma^2 I), and C_i is random-k unless another compressor is given.
    """
    return _algorithm("cdp_sgd", estimators.minibatch, CDP, **parts)


def ldp_gd(**parts: Unpack[Parts]) -> Algorithm:
    """LDP-GD: :func:`cdp_gd` without compression::

        x <- x - eta mean_i (mean_j clip grad f_ij(x) + xi_i),  xi_i ~ N(0, sigma^2 I)

    Every client adds its own noise before it sends.
    """
    return _algorithm("ldp_gd", estimators.minibatch, CDP, **_plain(_whole(parts)))


def ldp_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """LDP-SGD: :func:`cdp_sgd` without compression::

        x <- x - eta mean_i (mean_{j in I_b} clip grad f_ij(x) + xi_i),  xi_i ~ N(0, sigma^2 I)

    Every client adds its own noise before it sends.
    """
    return _algorithm("ldp_sgd", estimators.minibatch, CDP, **_plain(parts))


def ldp_svrg(**parts: Unpack[Parts]) -> Algorithm:
    """LDP-SVRG: :func:`soteriafl_svrg` without compression and shift, as the SoteriaFL experiments
    run it; loopless, one noise on the whole estimate::

        g_i = mean_{j in I_b} (clip grad f_ij(x) - clip grad f_ij(w)) + mean_j clip grad f_ij(w) + xi_i
        x <- x - eta mean_i g_i;  w <- x with probability p, one coin for all clients
    """
    return _algorithm("ldp_svrg", estimators.svrg, SVRG, **_plain(parts))


def fedgd(**parts: Unpack[Parts]) -> Algorithm:
    """Federated gradient descent: every sample in every round::

        x <- x - eta mean_i grad f_i(x)

    Not private.
    """
    return _algorithm(
        "fedgd",
        estimators.minibatch,
        SGD,
        mechanisms.noiseless(),
        paper=FEDAVG,
        **_plain(_whole(parts)),
    )


def fedsgd(**parts: Unpack[Parts]) -> Algorithm:
    """FedSGD: one minibatch gradient per client and round [McMahan et al., 2017]::

        x <- x - eta mean_i mean_{j in I_b} grad f_ij(x)

    Not private.
    """
    return _algorithm(
        "fedsgd", estimators.minibatch, SGD, mechanisms.noiseless(), paper=FEDAVG, **_plain(parts)
    )


# --- what they share -----------------------------------------------------------------------------


def _whole(parts: Parts) -> Parts:
    sampler = parts.get("sampler", sampling.full())
    if not sampler.whole:
        raise InputError(
            f"sampler = {sampler.name!r} does not apply to a full-gradient algorithm: take its _sgd "
            "variant."
        )
    return {**parts, "sampler": sampler}


def _plain(parts: Parts) -> Parts:
    return {"compressor": identity(), **parts}


@functools.cache
def _algorithm(
    name: str,
    estimator: Callable[[Sampler, bool], Estimator] | Estimator,
    rule: Rule,
    mechanism: Mechanism | None = None,
    *,
    channel: Channel | None = None,
    compressor: Compressor | None = None,
    sampler: Sampler | None = None,
    participation: Participation | None = None,
    server: Server | None = None,
    aggregation: Aggregation | None = None,
    clip: str = "example",
    noise: str = "fused",
    paper: str = PAPER,
) -> Algorithm:
    if clip not in ("example", "batch"):
        raise InputError(f"clip = {clip!r} has to be 'example' or 'batch'.")
    if noise not in ("fused", "per_client"):
        raise InputError(f"noise = {noise!r} has to be 'fused' or 'per_client'.")
    if not isinstance(estimator, Estimator):
        estimator = estimator(sampler or sampling.poisson(), clip == "example")
    body = Federated(
        estimator=estimator,
        mechanism=mechanism or mechanisms.gaussian(),
        compressor=compressor or compressors.random_k(),
        channel=channel or channels.direct(),
        server=server or servers.descent(),
        participation=participation or sampling.everyone(),
        clip=clip,
        noise=noise,
        aggregation=unless_plain(aggregation),
    )
    private = body.mechanism.std is not None
    promise = PaperRules(rule, body)
    return compose(
        name,
        summary_of(globals()[name]),
        paper,
        body,
        promise.plan,
        NUMBERS + (NOISE if private else ()),
        promise.formula if promise.known else None,
        reads=("gradient_bound",),
    )
