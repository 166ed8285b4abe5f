"""Algorithms of a node that holds all data, or of one that clients trust with their sum.

==================  ===================  ==========================  =================================
algorithm           estimator            step                        source
==================  ===================  ==========================  =================================
dp_gd               full gradient        constant                    Wang, Ye, Xu, 2017: recalled
dp_sgd              Poisson minibatch    constant                    Abadi et al., 2016
rrpsgd              one sample           constant, stops at random   Zhang, Zheng, Mou, Wang, 2017:
                                                                     recalled, constant unverified
dp_srm              recursive momentum   at most zeta/(n0 L) long    Wang et al., UAI 2023: verified
distributed_dp_srm  the same             the same                    the same: recalled
==================  ===================  ==========================  =================================

The noise is one draw on the mean of all clients, so what is protected is a record of the pooled data,
against all who see the models ("global", or central, privacy) and not against the curator.  A single
node is a problem with one client; with n clients, the curator draws from the data of each, and what a
record can change is n times smaller.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Unpack

import jax.numpy as jnp

from jaxfl.algorithms.clients import of_a_server
from jaxfl.algorithms.composition import by_rules
from jaxfl.algorithms.curator import claims, theory
from jaxfl.algorithms.numbers import (
    DIFFERENCES,
    EPS,
    GAP,
    Draft,
    Parts,
    applies,
    body_of,
    only,
    refuse_epochs,
    reporting,
)
from jaxfl.algorithms.roles import cached
from jaxfl.algorithms.soteriafl.claims import compressed_gd
from jaxfl.algorithms.soteriafl.theory import CDP_CONSTANT, Setting, cdp_step
from jaxfl.core.errors import require
from jaxfl.core.provenance import own_function
from jaxfl.core.types import (
    Aggregation,
    Algorithm,
    Array,
    Asked,
    Hyper,
    Noise,
    Plan,
    ProblemFacts,
    Sampler,
    Server,
)
from jaxfl.parts import (
    aggregations,
    channels,
    estimators,
    iterates,
    mechanisms,
    momentum,
    sampling,
    servers,
)
from jaxfl.privacy import events
from jaxfl.privacy.claims import Claim, Condition
from jaxfl.privacy.events import worst
from jaxfl.rounds import transcript
from jaxfl.rounds.federated import Federated
from jaxfl.rounds.transcript import Rounds, drawn, equal_rounds, in_sequence, loudest, rounding

__all__ = ["distributed_dp_srm", "dp_gd", "dp_sgd", "dp_srm", "rrpsgd"]


def dp_gd(**parts: Unpack[Parts]) -> Algorithm:
    """DP-GD::

        x <- x - eta (mean_j clip grad f_j(x) + xi),  xi ~ N(0, sigma^2 I)
        output a random one of the points

    Written from the paper's description: eta = 1/L, sigma^2 = 8 G^2 T ln(1/delta)/(m eps)^2.
    """
    return _algorithm("dp_gd", GD, **parts)


def dp_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """DP-SGD [Abadi et al., 2016]::

        x <- x - eta/b (sum_{j in B} clip grad f_j(x) + N(0, (z G)^2 I))

    ``sigma`` is z G/b.  Poisson batches; output the last point.
    """
    return _algorithm("dp_sgd", SGD, **parts)


def rrpsgd(**parts: Unpack[Parts]) -> Algorithm:
    """RRPSGD::

        x <- x - eta (clip grad f_j(x) + xi), one j a round;  output x_R, R random

    Written from the paper's description.  ``P(R = k)`` is proportional to ``2 eta_k - L eta_k^2``,
    k = 1 ... T, and T at most m^2.  The accountant takes the worst case, all T rounds, and x_R alone is
    shown.
    """
    return _algorithm("rrpsgd", RRPSGD, **parts)


def dp_srm(**parts: Unpack[Parts]) -> Algorithm:
    """DP-SRM [Wang et al., UAI 2023, Algorithm 1]::

        v <- grad f_B0(x_0) + N(0, sigma0^2 I)                                   first, then
        v <- grad f_B(x) + (1-gamma)(v - grad f_B(x')) + N(0, sigma^2 I)
        x <- x - min(zeta/(n0 L |v|), 1/(2 n0 L)) v,  output a random one of the points

    As in practice, gradients are clipped to G and their differences to C = zeta/n0: a record moves
    an estimate by 2 ((1-gamma) C + gamma G)/b.  ``lr`` is 1/(2 n0 L), ``step_limit`` zeta/(n0 L).
    """
    return _algorithm("dp_srm", SRM, **parts)


def distributed_dp_srm(**parts: Unpack[Parts]) -> Algorithm:
    """Distributed DP-SRM: :func:`dp_srm` of clients whose messages are seen as a sum only::

        v <- mean_i ((1-gamma) (v - grad f_iB(x')) + grad f_iB(x)) + N(0, sigma^2 I)

    Written from the paper's description.  The noise is one draw on the mean: privacy of the pooled data
    against those who see the models, not local privacy.
    """
    return _algorithm("distributed_dp_srm", SUMMED, **parts)


# --- what they share -----------------------------------------------------------------------------


@own_function
def _weight(hp: Hyper) -> Array:
    """2 eta - L eta^2, kept positive: with a constant eta only that all are alike matters."""
    weight = 2 * hp["lr"] - hp["smoothness"] * hp["lr"] ** 2
    return jnp.maximum(weight, 1e-30)


class Variant(NamedTuple):
    """Parts and rules in which the algorithms of this folder differ."""

    paper: str
    server: Server
    sampler: Callable[[], Sampler]
    exchanged: tuple[str, ...]
    aggregation: Callable[[], Aggregation] = aggregations.plain_sum
    recursive: bool = False
    once: bool = False  # one sample a round


GD = Variant(
    "Wang, Ye, Xu, NeurIPS 2017",
    iterates.sampled(servers.descent()),
    sampling.full,
    ("mechanism", "participation", "server", "clip"),
)
SGD = Variant(
    "Abadi et al., CCS 2016",
    servers.descent(),
    sampling.poisson,
    ("mechanism", "participation", "server", "sampler", "clip"),
)
RRPSGD = Variant(
    "Zhang, Zheng, Mou, Wang, IJCAI 2017",
    iterates.sampled(servers.descent(), _weight, first=False),
    sampling.without_replacement,
    ("mechanism", "participation"),
    once=True,
)
SRM = Variant(
    "Wang et al., UAI 2023",
    iterates.sampled(iterates.limited()),
    sampling.without_replacement,
    ("mechanism", "participation", "sampler"),
    recursive=True,
)
SUMMED = SRM._replace(
    exchanged=(*SRM.exchanged, "aggregation"), aggregation=aggregations.secure_sum
)


@cached
def _algorithm(name: str, kind: Variant, **parts: Any) -> Algorithm:
    given = only(name, parts, *kind.exchanged, records=DIFFERENCES if kind.recursive else "")
    sampler, clip = given.pop("sampler", kind.sampler()), given.get("clip", "example")
    applies(clip != "batch", name, "which clips examples or clients", clip=clip)
    if kind.recursive:
        applies(not sampler.whole, name, "which draws batches", sampler=sampler)
        refuse_epochs(name, sampler)
    body = body_of(
        given,
        estimator=momentum.recursive(sampler, False)
        if kind.recursive
        else estimators.minibatch(sampler, clip == "example"),
        mechanism=mechanisms.central(),
        channel=channels.recursion() if kind.recursive else channels.direct(),
        server=kind.server,
        aggregation=kind.aggregation(),
    )
    once = {"follows": ("lr",), "reads": ("smoothness",)} if kind.once else {}
    params = (momentum.SMOOTHNESS, GAP)
    return by_rules(globals()[name], kind.paper, PaperRules(body, kind), params, **once)


class PaperRules(NamedTuple):
    """The hyper-parameters of a run, its privacy event, and the paper's noise formula."""

    body: Federated
    kind: Variant

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then the papers', then defaults, labelled as such."""
        body, N = self.body, Draft.of(given, facts, theory=True)
        N.private(body, facts)
        s = self._setting(N.values, facts, N.eps)
        records, of = s.m, N.for_eps
        if self.kind.recursive:
            self._srm(N, facts, s)
        elif self.kind.once:
            N.default("rounds", facts.m, "one pass")
            N.theorem("batch", 1, "one sample a round")
            applies(N["batch"] == 1, "rrpsgd", "which draws 1: leave it out", batch=N["batch"])
            most = f"exceeds m^2 = {records**2:g}, which RRPSGD never reaches"
            require(N["rounds"] <= records**2, most, "ask for fewer", rounds=N["rounds"])
        else:
            rounds = max(1, round(float(theory.gd_rounds(s))))
            N.theorem("rounds", rounds, f"the paper's order{of}")
            N.batch(body, facts)
            if N.unknown(facts):
                N.step()
            if body.estimator.sampler.whole:
                N.theorem("lr", 1 / s.L, "1/L")
            where = f"Theorem 1 of SoteriaFL with one client{of}"
            N.theorem("lr", float(cdp_step(s)), where)
        return N.plan()

    def finish(self, N: Draft, noise: Noise, facts: ProblemFacts) -> None:
        """RRPSGD's step follows from sigma, be it the paper's or calibrated."""
        if not self.kind.once:
            return
        s = self._setting(N.values, facts, EPS)
        sigma = max(N["sigma"], 1e-30) if N["sigma"] == N["sigma"] else 1e-30
        most = (s.gap / (s.L * s.m**2 * s.d * sigma**2)) ** 0.5
        N.theorem("lr", float(min(1 / s.L, most)), "min(1/L, sqrt(D_F/(L m^2 d sigma^2)))")

    def _setting(self, v: Mapping[str, Any], facts: ProblemFacts, eps: float) -> Setting:
        """The node that holds the records of all clients whose means are added up."""
        records = facts.m * reporting(self.body, v, facts.n)
        L, G = float(v["smoothness"]), float(v["clip"])
        return Setting(1, records, facts.d, 0.0, L, G, eps, v["delta"], v["gap"])

    def _srm(self, N: Draft, facts: ProblemFacts, s: Setting) -> None:
        where = f"Theorem 1 of DP-SRM, constants 1{N.for_eps}"
        best, r = theory.srm_numbers(s), s.m / facts.m
        N.theorem("rounds", max(1, round(float(theory.srm_rounds(s)))), where)
        b = min(facts.m, max(1, round(float(best.batch) / r)))
        N.theorem("batch", b, where)
        N.theorem("anchor_batch", b, where)
        N.theorem("momentum", float(best.gamma), where)
        N.theorem("step_limit", float(best.zeta / (best.n0 * s.L)), "zeta/(n0 L)")
        N.theorem("lr", float(1 / (2 * best.n0 * s.L)), "1/(2 n0 L)")
        N.theorem(
            "difference_clip", min(2 * s.G, s.L * N["step_limit"]), "L times the longest step"
        )
        ratio = s.G / N["anchor_batch"] / (_moved(N.values) / N["batch"])
        N.theorem("noise_ratio", ratio, "the ratio of their sensitivities")

    def formula(self, values: Mapping[str, Any], facts: ProblemFacts, asked: Asked) -> Claim | None:
        """The paper's noise, with m the records of all clients; of whole clients it says nothing."""
        if self.body.clip == "client":
            return None
        w = facts.weight()  # the largest share of a record in the mean is w/m
        G, delta, T = w * float(values["clip"]), values["delta"], int(values["rounds"])
        r, way = reporting(self.body, values, facts.n), asked.way
        m, b = round(facts.m * r), round(values.get("batch", facts.m) * r)
        if self.kind.once:
            return claims.rrpsgd(G, m, delta, **way)
        if not self.kind.recursive:
            return compressed_gd(CDP_CONSTANT, G, m, b, T, delta, **way)
        gamma, C = float(values["momentum"]), w * float(values["difference_clip"])
        b0 = round(values["anchor_batch"] * r)
        first, later = claims.dp_srm(G, m, b, b0, T, gamma, C, delta, **way)
        sigma0 = later.sigma * values["noise_ratio"]
        enough = Condition(
            f"sigma0 >= {first.sigma:.4g}",
            bool(sigma0 >= first.sigma * (1 - 1e-6)),
            here=f"sigma0 = {sigma0:.4g}",
        )
        return later._replace(conditions=(*later.conditions, enough))

    def event(self, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """The releases of the noised mean to which a client adds.

        Who takes part is public, and amplifies nothing.  No client keeps anything: a record that is
        replaced changes only the means of its client's turns.  The estimate that DP-SRM's server keeps
        follows from the noised means.  The first of these has its own batch and noise, and is one of a
        client's turns or is not: these are different clients, with disjoint records, and the worse counts.
        """
        if self.body.clip == "client":
            return of_a_server(self.body, values, facts, float(values["clip"]))
        restarts = (lambda t: t == 0) if self.kind.recursive else None
        rounds = equal_rounds(self.body, values, facts, restarts)
        first, rest = ([one for one in rounds if one.kind == kind] for kind in (1, 0))
        turns = functools.partial(transcript.turns, self.body, values, facts)
        times, later = turns(), turns(range(1, int(values["rounds"])))
        trust: Any = "single_node" if facts.n == 1 else "trusted_server"
        trust = trust if self.body.aggregation is None else "secure_sum"
        sampler, r = self.body.estimator.sampler, reporting(self.body, values, facts.n)
        rounded = rounding(self.body, values, facts)  # before the server's noise
        if sampler.padded:
            rounded *= 2  # with the record and without it: each world rounds something else

        def client(m: int) -> Any:
            def part(some: Rounds) -> events.Event:
                differs = self.kind.recursive and not some.kind
                moved = _moved(values) if differs else float(values["clip"])
                rows = drawn(sampler, some.values, facts, m)
                shares = facts.weight(m) * moved + facts.weight() * rows.b * rounded
                mean = events.Mean(shares / r)
                return events.Event(rows, mean, some.std, some.number, trust=trust)

            def some(number: int, restarts: int) -> Any:
                both = (*loudest(rest, number), *loudest(first, restarts))
                return in_sequence(self.body, values, part, both)

            if not self.kind.recursive:
                return some(times, 0)
            begins = some(max(times - 1, 0), min(times, 1))
            return events.Phases((begins, some(later, 0)), True) if later >= times > 0 else begins

        return worst(facts, client)


def _moved(values: Mapping[str, Any]) -> float:
    """The norm of a record's share in DP-SRM: (1-gamma) C + gamma G."""
    gamma = float(values["momentum"])
    return (1 - gamma) * float(values["difference_clip"]) + gamma * float(values["clip"])
