"""Private optimization over a network without a server.

===========  ==========================================  ==========  =================================
algorithm    what neighbours see                         compressor  source
===========  ==========================================  ==========  =================================
q_dpsgd_1    quantized models                            fixed step  Ding et al., 2021: the step as in
                                                                     SoteriaFL's code, schedules recalled
sdm_dsgd     sparse differences of models                Bernoulli   Zhang et al., 2020: recalled
dp_dsgd      models after a step                         none        Lian et al., 2017, with noise
===========  ==========================================  ==========  =================================

All three are reimplemented from description.  The graph is ``graph=``, by default complete: see
:mod:`jaxfl.graphs`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Unpack

from jaxfl import (
    compressors,
    estimators,
    gossip,
    graphs,
    mechanisms,
    momentum,
    sampling,
    sketches,
    theory,
)
from jaxfl.algorithms.compose import compose
from jaxfl.algorithms.numbers import PRIVACY, Numbers, Parts, only, summary_of
from jaxfl.errors import InputError
from jaxfl.types import Algorithm, Compressor, Facts, Param, Resolved, Sampler

__all__ = ["dp_dsgd", "q_dpsgd_1", "sdm_dsgd"]

EXCHANGED = ("compressor", "sampler", "graph")
GAP = Param("gap", "f(x0) - f*, which step sizes ask for", open_low=True)


class Network(Parts, total=False):
    """What a user may exchange."""

    graph: graphs.Graph | str


def q_dpsgd_1(**parts: Unpack[Network]) -> Algorithm:
    """Q-DPSGD-1: quantized models and a consensus step::

        z_i = C(x_i),  x_i <- (1-k+k W_ii) x_i + k sum_{j != i} W_ij z_j - eta k (g_i + xi_i)

    C has an absolute error.  On a complete graph with k = 0.9 it is what SoteriaFL's code runs.
    """
    return _algorithm("q_dpsgd_1", Q_DPSGD, **_known("q_dpsgd_1", parts))


def sdm_dsgd(**parts: Unpack[Network]) -> Algorithm:
    """SDM-DSGD: sparse differences of models::

        y_i = (1-theta) x_i + theta (sum_j W_ij x_j - eta (g_i + xi_i)),  x_i <- x_i + S(y_i - x_i)

    S keeps each coordinate with probability p and scales it by 1/p.  The mask is not counted on for
    privacy: that it scales a Renyi divergence by p, as the paper has it, is false.
    """
    return _algorithm("sdm_dsgd", SDM, **_known("sdm_dsgd", parts))


def dp_dsgd(**parts: Unpack[Network]) -> Algorithm:
    """Noisy decentralized SGD: each client has a point of its own::

        x_i <- sum_j W_ij (x_j - eta (g_j + xi_j))

    On a complete graph it is ``ldp_sgd``, round by round.
    """
    return _algorithm("dp_dsgd", DSGD, **_known("dp_dsgd", parts))


# --- what they share -----------------------------------------------------------------------------


class Kind(NamedTuple):
    """What tells these algorithms apart."""

    paper: str
    rule: Callable[[], gossip.Rule]
    compressor: Callable[[], Compressor]


Q_DPSGD = Kind("Ding et al., AAAI 2021", gossip.quantized, sketches.fixed_step)
SDM = Kind("Zhang et al., MobiHoc 2020", gossip.differences, compressors.bernoulli)
DSGD = Kind("Lian et al., NeurIPS 2017", gossip.averaging, compressors.identity)


def _known(name: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    found = only(name, parts, *EXCHANGED)
    if isinstance(found.get("graph"), str):
        found["graph"] = graphs.graph(found["graph"])
    return found


@functools.cache
def _algorithm(
    name: str,
    kind: Kind,
    *,
    compressor: Compressor | None = None,
    sampler: Sampler | None = None,
    graph: graphs.Graph | None = None,
) -> Algorithm:
    chosen = compressor or kind.compressor()
    if not chosen.unbiased:
        raise InputError(
            f"compressor = {chosen.name!r} is biased, and {name} needs one that is right in the mean."
        )
    body = gossip.Gossip(
        estimator=estimators.minibatch(sampler or sampling.poisson()),
        mechanism=mechanisms.gaussian(),
        compressor=chosen,
        rule=kind.rule(),
        graph=graph or graphs.complete(),
    )
    return compose(
        name,
        summary_of(globals()[name]),
        kind.paper,
        body,
        functools.partial(_resolve, kind, body),
        (momentum.SMOOTHNESS, GAP, *PRIVACY),
        functools.partial(_claim, kind) if kind is not SDM else None,
    )


def _resolve(kind: Kind, body: gossip.Gossip, given: Mapping[str, Any], facts: Facts) -> Resolved:
    N = Numbers(given, facts)
    N.one_of("eps", "sigma")
    G = N.clip(True)
    if body.compressor.absolute:
        for name, value in body.compressor.resolve(given, facts.d).items():
            N.default(name, value)
    else:
        N.parts(body, facts)
    L, T = N.smoothness(facts), N["rounds"]
    N.target(facts)
    N.default("gap", 1.0)
    if body.estimator.sampler.params:
        N.default("batch", min(32, facts.m))
    if kind is SDM:
        N.default("theta", 0.5)
    if kind is Q_DPSGD:
        N.default("consensus", min(0.9, 15 / T**0.5), "recalled: 15/sqrt(T), at most 0.9")
    v = N.values

    def claim(sigma: float) -> Any:
        return _claim(Q_DPSGD if kind is Q_DPSGD else DSGD, {**v, "sigma": sigma}, facts)

    def sigma_of(eps: float) -> float:
        if kind is Q_DPSGD:
            from jaxfl.privacy import formulas

            return formulas.q_dpsgd(facts.m, T, v["delta"], eps=eps).sigma
        unit: float = claim(1.0).eps  # eps falls as 1/sigma
        return unit / eps

    where = "SoteriaFL's code" if kind is Q_DPSGD else "the formula of CDP-SGD"
    N.noise(sigma_of, lambda sigma: float(claim(sigma).eps), where)
    omega = v.get("omega", 0.0)
    s = theory.Setting(
        facts.n, facts.m, facts.d, omega, L, G, min(v["eps"], 1e6), v["delta"], v["gap"]
    )
    if kind is Q_DPSGD:
        N.default("lr", min(1 / L, 0.3 / T ** (1 / 6)), "recalled: 0.3/T^(1/6), at most 1/L")
    N.default("lr", float(theory.cdp_step(s)), "Theorem 1 of SoteriaFL")
    return N.resolved()


def _claim(kind: Kind, values: Mapping[str, Any], facts: Facts) -> Any:
    """What the formula says of this noise."""
    from jaxfl.privacy import formulas

    sigma = float(values["sigma"])
    if sigma == 0:
        return None
    T, delta = int(values["rounds"]), values["delta"]
    if kind is Q_DPSGD:
        return formulas.q_dpsgd(facts.m, T, delta, sigma=sigma)
    b = values.get("batch", facts.m)
    return formulas.compressed_gd(8, values["clip"], facts.m, b, T, delta, sigma=sigma)
