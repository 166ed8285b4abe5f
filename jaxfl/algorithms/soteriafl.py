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
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict, Unpack

from jaxfl import channels, compressors, estimators, mechanisms, sampling, servers, theory
from jaxfl.algorithms.compose import compose
from jaxfl.errors import InputError
from jaxfl.rounds import Federated
from jaxfl.types import (
    Aggregation,
    Algorithm,
    Channel,
    Compressor,
    Estimator,
    Facts,
    Mechanism,
    Param,
    Participation,
    Resolved,
    Sampler,
    Server,
)

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
NUMBERS = (
    Param(
        "smoothness", "smoothness L of every example's loss, instead of the model's", open_low=True
    ),
    Param("gap", "f(x0) - f*, which CDP-SGD's step size asks for", open_low=True),
)
PRIVACY = (
    Param("eps", "privacy that sigma is calibrated for", open_low=True),
    Param("delta", "privacy failure probability, below 1", open_low=True, high=1 - 1e-9),
    Param("noise_constant", "c in sigma^2 = c G^2 T ln(1/delta) / (m eps)^2", open_low=True),
    Param(
        "gradient_bound",
        "with clip='batch': a bound on every example's gradient that holds whatever the data, for "
        "example the largest norm that features can have in logistic regression",
        open_low=True,
    ),
)


class Parts(TypedDict, total=False):
    """What a user may exchange in any of these algorithms."""

    compressor: Compressor
    sampler: Sampler
    participation: Participation
    server: Server
    aggregation: Aggregation
    clip: str
    noise: str


class Rule(NamedTuple):
    """The paper's choices for one family."""

    where: str
    constant: float  # c of the noise formula
    batch: Callable[[theory.Setting], Any]
    step: Callable[[theory.Setting, dict[str, Any]], Any]  # of the setting and the numbers so far
    rounds: Callable[[theory.Setting], Any]


SGD = Rule("Corollary 1", 12, theory.sgd_batch, lambda s, v: theory.sgd_step(s), theory.sgd_rounds)
SVRG = Rule(
    "Corollary 2",
    96,
    theory.svrg_batch,
    lambda s, v: theory.svrg_step(s, v["batch"], v["refresh"]),
    theory.svrg_rounds,
)
SAGA = Rule(
    "Corollary 3", 96, theory.saga_batch, lambda s, v: theory.saga_step(s), theory.svrg_rounds
)
CDP = Rule("Theorem 1", 8, theory.sgd_batch, lambda s, v: theory.cdp_step(s), theory.cdp_rounds)


def soteriafl_gd(**parts: Unpack[Parts]) -> Algorithm:
    """SoteriaFL-GD: :func:`soteriafl_sgd` with every sample in every round [Corollary 1]::

        g_i = mean_j clip grad f_ij(x) + xi_i
        v_i = C_i(g_i - s_i),  s_i <- s_i + gamma v_i
        v = s + mean_i v_i,  x <- x - eta v,  s <- s + gamma mean_i v_i

    The shifts s_i learn the gradients, so that less and less is left to compress.
    """
    return _algorithm("soteriafl_gd", _minibatch, SGD, channel=_shifted(), **_whole(parts))


def soteriafl_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """SoteriaFL-SGD [Algorithm 3, option I]::

        g_i = mean_{j in I_b} clip grad f_ij(x) + xi_i,  xi_i ~ N(0, sigma^2 I)
        v_i = C_i(g_i - s_i),  s_i <- s_i + gamma v_i
        v = s + mean_i v_i,  x <- x - eta v,  s <- s + gamma mean_i v_i

    The shifts s_i learn the gradients, so that less and less is left to compress.
    """
    return _algorithm("soteriafl_sgd", _minibatch, SGD, channel=_shifted(), **parts)


def soteriafl_svrg(**parts: Unpack[Parts]) -> Algorithm:
    """SoteriaFL-SVRG [Algorithm 3, option II]: :func:`soteriafl_sgd` with the estimator
    :func:`jaxfl.estimators.svrg`::

        g_i = mean_{j in I_b} (clip grad f_ij(x) - clip grad f_ij(w)) + mean_j clip grad f_ij(w) + xi_i
        v_i = C_i(g_i - s_i),  s_i <- s_i + gamma v_i
        v = s + mean_i v_i,  x <- x - eta v,  s <- s + gamma mean_i v_i
        w <- x with probability p, one coin for all clients
    """
    return _algorithm("soteriafl_svrg", _svrg, SVRG, channel=_shifted(), **parts)


def soteriafl_saga(**parts: Unpack[Parts]) -> Algorithm:
    """SoteriaFL-SAGA [Algorithm 3, option III]: :func:`soteriafl_sgd` with the estimator
    :func:`jaxfl.estimators.saga`::

        g_i = mean_{j in I_b} (clip grad f_ij(x) - c_ij) + mean_j c_ij + xi_i
        c_ij <- clip grad f_ij(x) for j in I_b
        v_i = C_i(g_i - s_i),  s_i <- s_i + gamma v_i
        v = s + mean_i v_i,  x <- x - eta v,  s <- s + gamma mean_i v_i
    """
    return _algorithm("soteriafl_saga", _saga, SAGA, channel=_shifted(), **parts)


def cdp_gd(**parts: Unpack[Parts]) -> Algorithm:
    """CDP-GD: :func:`cdp_sgd` with every sample in every round::

        g_i = mean_j clip grad f_ij(x);  v_i = C_i(g_i + xi_i);  x <- x - eta mean_i v_i

    xi_i ~ N(0, sigma^2 I), and C_i is random-k unless another compressor is given.
    """
    return _algorithm("cdp_gd", _minibatch, CDP, **_whole(parts))


def cdp_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """CDP-SGD [Algorithm 1]::

        g_i = mean_{j in I_b} clip grad f_ij(x);  v_i = C_i(g_i + xi_i);  x <- x - eta mean_i v_i

    xi_i ~ N(0, sigma^2 I), and C_i is random-k unless another compressor is given.
    """
    return _algorithm("cdp_sgd", _minibatch, CDP, **parts)


def ldp_gd(**parts: Unpack[Parts]) -> Algorithm:
    """LDP-GD: :func:`cdp_gd` without compression::

        x <- x - eta mean_i (mean_j clip grad f_ij(x) + xi_i),  xi_i ~ N(0, sigma^2 I)

    Every client adds its own noise before it sends.
    """
    return _algorithm("ldp_gd", _minibatch, CDP, **_plain(_whole(parts)))


def ldp_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """LDP-SGD: :func:`cdp_sgd` without compression::

        x <- x - eta mean_i (mean_{j in I_b} clip grad f_ij(x) + xi_i),  xi_i ~ N(0, sigma^2 I)

    Every client adds its own noise before it sends.
    """
    return _algorithm("ldp_sgd", _minibatch, CDP, **_plain(parts))


def ldp_svrg(**parts: Unpack[Parts]) -> Algorithm:
    """LDP-SVRG: :func:`soteriafl_svrg` without compression and shift, as the SoteriaFL experiments
    run it; loopless, one noise on the whole estimate::

        g_i = mean_{j in I_b} (clip grad f_ij(x) - clip grad f_ij(w)) + mean_j clip grad f_ij(w) + xi_i
        x <- x - eta mean_i g_i;  w <- x with probability p, one coin for all clients
    """
    return _algorithm("ldp_svrg", _svrg, SVRG, **_plain(parts))


def fedgd(**parts: Unpack[Parts]) -> Algorithm:
    """Federated gradient descent: every sample in every round::

        x <- x - eta mean_i grad f_i(x)

    Not private.
    """
    return _algorithm("fedgd", _minibatch, SGD, _noiseless(), paper=FEDAVG, **_plain(_whole(parts)))


def fedsgd(**parts: Unpack[Parts]) -> Algorithm:
    """FedSGD: one minibatch gradient per client and round [McMahan et al., 2017]::

        x <- x - eta mean_i mean_{j in I_b} grad f_ij(x)

    Not private.
    """
    return _algorithm("fedsgd", _minibatch, SGD, _noiseless(), paper=FEDAVG, **_plain(parts))


# --- what they share -----------------------------------------------------------------------------

# Parts are made once: equal calls give equal algorithms, and a compiled round is found again.
_minibatch = functools.cache(estimators.minibatch)
_svrg = functools.cache(estimators.svrg)
_saga = functools.cache(estimators.saga)
_shifted = functools.cache(channels.shifted)
_direct = functools.cache(channels.direct)
_gaussian = functools.cache(mechanisms.gaussian)
_noiseless = functools.cache(mechanisms.noiseless)
_descent = functools.cache(servers.descent)
_identity = functools.cache(compressors.identity)
_random_k = functools.cache(compressors.random_k)
_poisson = functools.cache(sampling.poisson)
_full = functools.cache(sampling.full)
_everyone = functools.cache(sampling.everyone)


def _whole(parts: Parts) -> Parts:
    sampler = parts.get("sampler", _full())
    if sampler.name != "full":
        raise InputError(
            f"sampler = {sampler.name!r} does not apply to a full-gradient algorithm: take its _sgd "
            "variant."
        )
    return {**parts, "sampler": sampler}


def _plain(parts: Parts) -> Parts:
    return {"compressor": _identity(), **parts}


@functools.cache
def _algorithm(
    name: str,
    estimator: Callable[[Sampler, bool], Estimator],
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
    body = Federated(
        estimator=estimator(sampler or _poisson(), clip == "example"),
        mechanism=mechanism or _gaussian(),
        compressor=compressor or _random_k(),
        channel=channel or _direct(),
        server=server or _descent(),
        participation=participation or _everyone(),
        clip=clip,
        noise=noise,
        aggregation=aggregation if aggregation and aggregation.name != "plain_sum" else None,
    )
    resolve = functools.partial(_resolve, rule, body)
    private = body.mechanism.std is not None
    summary = (globals()[name].__doc__ or "").split(":", 1)[0].split("[")[0].strip().rstrip(".")
    params = NUMBERS + (PRIVACY if private else ())
    claim = functools.partial(_claim, body) if private else None
    return compose(name, summary, paper, body, resolve, params, claim)


def _resolve(rule: Rule, body: Federated, given: Mapping[str, Any], facts: Facts) -> Resolved:
    """The user's numbers, then the paper's, then defaults that say so."""
    v, why = dict(given), dict.fromkeys(given, "given")

    def default(name: str, value: Any, source: str) -> None:
        if name not in v:
            v[name], why[name] = value, source

    private = body.mechanism.std is not None
    if "gradient_bound" in given and body.clip == "example":
        raise InputError(
            f"gradient_bound = {given['gradient_bound']!r} belongs to clip='batch': every example is "
            "clipped here, so give clip, its bound G, instead."
        )
    if private and "sigma" in given and "eps" in given:
        raise InputError(
            f"eps = {given['eps']!r} and sigma = {given['sigma']!r} are both given: eps is turned "
            "into sigma, so give one of them."
        )
    if private and math.isinf(given.get("clip", 1.0)) and "sigma" not in given:
        raise InputError(
            "clip = inf bounds no example, so that no noise is enough for any eps: give a finite clip."
        )
    default("clip", 1.0 if private else math.inf, "default")
    for name, value in body.compressor.resolve(given, facts.d).items():
        default(name, value, "from omega" if "omega" in given else "default")
    if any(param.name == "cohort" for param in body.participation.params):
        default("cohort", max(1, facts.n // 10), "default: a tenth of the clients")
    v["omega"] = body.compressor.omega(facts.d, v)
    why["omega"] = "achieved"
    default("eps", 5.0, "default")
    default("delta", min(1e-3, 0.1 / facts.m_max), "default: min(0.001, 0.1/m)")
    default("gap", 1.0, "default")
    L, known = v.get("smoothness", facts.smoothness), True
    if not L:  # unknown, or 0 on data without features
        L, known = 1.0, False
    note = rule.where if known else f"{rule.where} with L = 1: L of this model is unknown"
    G = v["clip"] if math.isfinite(v["clip"]) else 1.0  # only schedules of non-private runs read it
    setting = theory.Setting(
        facts.n, facts.m, facts.d, v["omega"], L, G, v["eps"], v["delta"], v["gap"]
    )
    rounds = facts.rounds or max(1, round(float(rule.rounds(setting))))
    default("rounds", rounds, "given" if facts.rounds else note)
    if body.estimator.sampler.params:
        default("batch", int(rule.batch(setting)), note)
    if "refresh" in {param.name for param in body.estimator.params}:
        default("batch", facts.m, "full passes")
        default("refresh", min(1.0, v["batch"] / facts.m), f"{rule.where}: b/m")
    if body.channel.params:
        default("shift", float(theory.shift(v["omega"])), "Theorem 3")
    if private:
        default("noise_constant", rule.constant, "the authors' code")
        c, T = v["noise_constant"], v["rounds"]
        if "sigma" in v:
            eps = theory.paper_eps(c, setting, T, v["sigma"]) if v["sigma"] else math.inf
            v["eps"], why["eps"] = float(eps), f"{rule.where}, from sigma"
        default("sigma", float(theory.paper_sigma(c, setting, T)), rule.where)
    if not known:
        default("lr", 0.1, "default: L of this model is unknown")
    default("lr", float(rule.step(setting, v)), note)
    if not private:
        for name in ("eps", "delta"):
            del v[name], why[name]
    return Resolved(v, why)


def _claim(body: Federated, v: Mapping[str, Any], facts: Facts) -> Any:
    """What the paper's formula says of this noise, and whether its conditions hold."""
    from jaxfl.privacy import formulas

    if v["sigma"] == 0:
        return None
    return formulas.compressed_gd(
        v["noise_constant"],
        v["clip"],
        facts.m,
        v.get("batch", facts.m),
        v["rounds"],
        v["delta"],
        sigma=v["sigma"],
        snapshot=body.estimator.name in ("svrg", "saga"),
    )
