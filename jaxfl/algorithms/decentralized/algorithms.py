"""Private optimization over a network without a server.

===========  ==========================================  ==========  =================================
algorithm    what neighbours see                         compressor  source
===========  ==========================================  ==========  =================================
q_dpsgd_1    quantized models                            fixed step  Ding et al., 2021: the step as in
                                                                     SoteriaFL's code, schedules recalled
sdm_dsgd     sparse differences of models                Bernoulli   Zhang et al., 2020: recalled
dp_dsgd      models after a step                         none        Lian et al., 2017, with noise
decor        models after a step                         none        Allouah et al., ICML 2024
===========  ==========================================  ==========  =================================

The first three are written from their papers' descriptions.  ``graph=`` is the network, complete by
default: see :mod:`jaxfl.parts.graphs`.  With ``clip="client"`` all records of a
client are protected together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Unpack

from jaxfl.algorithms.composition import by_rules
from jaxfl.algorithms.decentralized import claims
from jaxfl.algorithms.numbers import GAP, Draft, Network, applies, network_of, only
from jaxfl.algorithms.roles import cached
from jaxfl.algorithms.soteriafl import theory
from jaxfl.algorithms.soteriafl.claims import compressed_gd
from jaxfl.core.types import Algorithm, Asked, Compressor, Mechanism, Noise, Plan, ProblemFacts
from jaxfl.parts import compressors, estimators, mechanisms, momentum, sampling
from jaxfl.parts.compressors import identity
from jaxfl.parts.graphs import links
from jaxfl.privacy.claims import Claim
from jaxfl.privacy.networks import balanced
from jaxfl.rounds import gossip, transcript

__all__ = ["decor", "dp_dsgd", "q_dpsgd_1", "sdm_dsgd"]


def q_dpsgd_1(**parts: Unpack[Network]) -> Algorithm:
    """Q-DPSGD-1: quantized models and a consensus step::

        z_i = C(x_i),  x_i <- (1-k+k W_ii) x_i + k sum_{j != i} W_ij z_j - eta k (g_i + xi_i)

    C has an absolute error.  On a complete graph with k = 0.9 it is what SoteriaFL's code runs.
    """
    return _algorithm("q_dpsgd_1", Q_DPSGD, **parts)


def sdm_dsgd(**parts: Unpack[Network]) -> Algorithm:
    """SDM-DSGD: sparse differences of models::

        y_i = (1-theta) x_i + theta (sum_j W_ij x_j - eta (g_i + xi_i)),  x_i <- x_i + S(y_i - x_i)

    S keeps each coordinate with probability p and scales it by 1/p.  The mask is not counted on for
    privacy: that it scales a Renyi divergence by p, as the paper has it, is false.
    """
    return _algorithm("sdm_dsgd", SDM, **parts)


def dp_dsgd(**parts: Unpack[Network]) -> Algorithm:
    """Noisy decentralized SGD: each client has a point of its own::

        x_i <- sum_j W_ij (x_j - eta (g_j + xi_j))

    On a complete graph it is ``ldp_sgd``, round by round.
    """
    return _algorithm("dp_dsgd", DSGD, **parts)


def decor(**parts: Unpack[Network]) -> Algorithm:
    """DECOR: noise that cancels between neighbours::

        g~_i = g_i + w_i + sum_{j ~ i} v_ij,   w_i ~ N(0, sigma^2 I),  v_ij = -v_ji ~ N(0, sigma_c^2 I)
        x_i <- sum_j W_ij (x_j - eta g~_j)

    v_ij comes from a seed that only i and j know; ``coupling`` is sigma_c/sigma.  What is proven holds
    against who sees every message and no seed of others [:mod:`jaxfl.privacy.networks`]: ``colluding``
    clients, whoever they are, may show theirs.  With ``clip="client"`` g_i is clipped as a whole, as in the
    paper, and all records of a client are protected.  Step size and coupling are chosen by jaxfl.
    """
    return _algorithm("decor", DECOR, **parts)


# --- what they share -----------------------------------------------------------------------------


class Variant(NamedTuple):
    """Parts in which the algorithms of this folder differ."""

    paper: str
    rule: Callable[[], gossip.Rule]
    compressor: Callable[[], Compressor]
    mechanism: Callable[[], Mechanism] = mechanisms.gaussian


Q_DPSGD = Variant("Ding et al., AAAI 2021", gossip.quantized, compressors.fixed_step)
SDM = Variant("Zhang et al., MobiHoc 2020", gossip.differences, compressors.bernoulli)
DSGD = Variant("Lian et al., NeurIPS 2017", gossip.averaging, identity)
DECOR = Variant("Allouah et al., ICML 2024", gossip.averaging, identity, mechanisms.cancelling)


@cached
def _algorithm(name: str, kind: Variant, **parts: Any) -> Algorithm:
    given = only(name, parts, "compressor", "sampler", "mechanism", "graph", "clip")
    clip = given.get("clip", "example")
    applies(clip != "batch", name, "which clips examples or clients", clip=clip)
    sampler = given.pop("sampler", sampling.poisson())
    body = network_of(
        given,
        estimator=estimators.minibatch(sampler, clip_examples=clip == "example"),
        mechanism=kind.mechanism(),
        compressor=kind.compressor(),
        rule=kind.rule(),
    )
    params = (momentum.SMOOTHNESS, GAP)
    options = {"cited": kind is not SDM, "follows": ("lr",)}
    return by_rules(globals()[name], kind.paper, PaperRules(body, kind), params, **options)


class PaperRules(NamedTuple):
    """The hyper-parameters of a run, and what a formula says of its noise."""

    body: gossip.Gossip
    kind: Variant

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then recalled ones, then defaults, labelled as such."""
        body, kind = self
        N = Draft.of(given, facts)
        N.private(body, facts)
        N.batch(body, facts)
        if body.mechanism.coupled:
            why = "exposure at most twice the least, chosen by jaxfl"
            N.default("coupling", balanced(links(body.graph, facts.n)), why)
        if kind is SDM:
            N.default("theta", 0.5)
        if kind is Q_DPSGD:
            most = min(0.9, 15 / N["rounds"] ** 0.5)
            N.theorem("consensus", most, "recalled: 15/sqrt(T), at most 0.9")
        return N.plan()

    def finish(self, N: Draft, noise: Noise, facts: ProblemFacts) -> None:
        """The step size, which follows from eps, be it asked for or what the formula says of sigma."""
        L, T = float(N["smoothness"]), N["rounds"]
        if self.kind is Q_DPSGD:
            N.theorem("lr", min(1 / L, 0.3 / T ** (1 / 6)), "recalled: 0.3/T^(1/6), at most 1/L")
        if N.unknown(facts):
            N.step()
        if self.kind is DECOR:
            eta, sigma = 1 / (2 * L), float(N.values.get("sigma", 0.0))
            if sigma > 0:
                eta = min(eta, math.sqrt(2 * facts.n * N["gap"] / (L * T * facts.d)) / sigma)
            N.theorem("lr", eta, "min(1/(2L), sqrt(2 n gap/(L T d))/sigma), chosen by jaxfl")
        omega, eps = N.values.get("omega", 0.0), min(N["eps"], 1e6)
        s = theory.Setting(
            facts.n, facts.m, facts.d, omega, L, float(N["clip"]), eps, N["delta"], N["gap"]
        )
        N.theorem("lr", float(theory.cdp_step(s)), "Theorem 1 of SoteriaFL")

    def formula(self, values: Mapping[str, Any], facts: ProblemFacts, asked: Asked) -> Claim | None:
        """The formula of SoteriaFL's code, of CDP-SGD, or of DECOR; of clients only DECOR's."""
        T, delta, way = int(values["rounds"]), values["delta"], asked.way
        if self.kind is DECOR:
            found = transcript.between_neighbours(self.body, values, facts)
            weight = 1 if self.body.clip == "client" else values.get("batch", facts.m)
            claim = claims.decor(float(values["clip"]) / weight, T, found, delta, **way)
            return claim._replace(where="the paper's formula")
        if self.body.clip == "client":
            return None
        if self.kind is Q_DPSGD:
            return claims.q_dpsgd(facts.m, T, delta, **way)._replace(where="SoteriaFL's code")
        G, b, c = values["clip"], values.get("batch", facts.m), theory.CDP_CONSTANT
        claim = compressed_gd(c, G, facts.m, b, T, delta, **way)
        return claim._replace(where="the formula of CDP-SGD")
