"""Variance-reduced algorithms with local privacy: SVRG and SPIDER of Lowy et al.

A. Lowy, A. Ghafelebashi, M. Razaviyayn: Private Non-Convex Federated Learning Without a Trusted
Server.  AISTATS 2023.  Both are verified in the final version; the rates that SoteriaFL's Table 1
quotes are those of an earlier one.  Their proximal step is the projection onto the problem's set, and
the regularizer a part of the gradient.

===========  ===========================  ================================================
algorithm    estimator                    noise
===========  ===========================  ================================================
isrl_svrg    SVRG with epochs             on each full gradient once, and on each message
ldp_spider   SPIDER, kept by the server   on each message, in proportion to how far x moved
===========  ===========================  ================================================

SoteriaFL's experiments run another LDP-SVRG, loopless and with one noise: ``ldp_svrg``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Unpack

from jaxfl.algorithms.composition import by_rules
from jaxfl.algorithms.lowy.claims import lowy_spider, lowy_svrg
from jaxfl.algorithms.lowy.theory import spider_rounds
from jaxfl.algorithms.numbers import (
    DIFFERENCES,
    GAP,
    Draft,
    Parts,
    body_of,
    only,
    refuse_epochs,
    reporting,
)
from jaxfl.algorithms.roles import cached
from jaxfl.algorithms.soteriafl import theory
from jaxfl.core.types import Algorithm, Asked, Plan, ProblemFacts, Sigma
from jaxfl.parts import channels, iterates, mechanisms, momentum, sampling, servers
from jaxfl.privacy import events
from jaxfl.privacy.claims import Claim
from jaxfl.privacy.events import worst
from jaxfl.rounds.federated import Federated
from jaxfl.rounds.transcript import Rounds, drawn, equal_rounds, in_sequence, loudest, turns

__all__ = ["isrl_svrg", "ldp_spider"]

PAPER = "Lowy et al., AISTATS 2023"


def ldp_spider(**parts: Unpack[Parts]) -> Algorithm:
    """ISRL-DP FedProx-SPIDER [Lowy et al., 2023]::

        h <- mean_i (grad f_i(x) + N(0, sigma1^2 I))                             every q rounds, else
        h <- h + mean_i (grad f_i(x) - grad f_i(x') + N(0, min(sigma2 |x - x'|, sigma)^2 I))
        x <- Pi(x - eta h),  output a random one of the points

    sigma2 = sigma L/(2G), and differences are clipped to min(2G, L |x - x'|), which
    is no clipping where G and L hold.  All samples in every round, or batches by another sampler.
    """
    return _algorithm("ldp_spider", True, **parts)


def isrl_svrg(**parts: Unpack[Parts]) -> Algorithm:
    """ISRL-DP FedProx-SVRG [Lowy et al., 2023], without restarts::

        every Q rounds:  w <- x,  h_i = grad f_i(w) + N(0, sigma1^2 I), which stays with the client
        v_i = mean_{j in I} (grad f_ij(x) - grad f_ij(w)) + h_i + N(0, sigma2^2 I)
        x <- Pi(x - eta mean_i v_i),  output a random one of the points

    ``sigma`` is sigma2.  Batches are drawn with replacement.
    """
    return _algorithm("isrl_svrg", False, **parts)


# --- what they share -----------------------------------------------------------------------------


@cached
def _algorithm(name: str, spider: bool, **parts: Any) -> Algorithm:
    given = only(name, parts, "sampler", "mechanism", "participation", "noise", records=DIFFERENCES)
    usual = sampling.full() if spider else sampling.with_replacement()
    sampler = given.pop("sampler", usual)
    refuse_epochs(name, sampler)
    noise = given.get("mechanism", mechanisms.gaussian())
    body = body_of(
        given,
        estimator=momentum.recursive(sampler, True)
        if spider
        else momentum.anchored(sampler, noise),
        mechanism=mechanisms.gaussian(),
        channel=channels.recursion() if spider else channels.direct(),
        server=iterates.sampled(servers.descent()),
    )
    params = (GAP,) if spider else (momentum.SMOOTHNESS, GAP)
    return by_rules(globals()[name], PAPER, PaperRules(body, spider), params)


class PaperRules(NamedTuple):
    """The hyper-parameters of a run, its privacy event, and the paper's noise formula."""

    body: Federated
    spider: bool

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then the paper's, then defaults, labelled as such."""
        body, spider = self.body, self.spider
        N = Draft.of(given, facts, theory=True)
        G, L = N.private(body, facts)
        eps, of = N.eps, N.for_eps
        silos = reporting(body, N.values, facts.n)
        s = theory.Setting(silos, facts.m, facts.d, 0.0, L, G, eps, N["delta"], N["gap"])
        if spider:
            guess = facts.rounds or max(1, round(float(spider_rounds(s, 1))))
            N.default("period", max(1, math.isqrt(int(guess))), "root of the rounds")
        rounds = spider_rounds(s, N["period"] if spider else 1)
        N.theorem("rounds", max(1, round(float(rounds))), f"the paper's order, of SPIDER{of}")
        T = int(N["rounds"])
        if body.estimator.sampler.params:
            log = math.log(2 / N["delta"])
            least = math.ceil(eps * facts.m / (4 * math.sqrt(2 * T * log)))
            where = f"the least that the theorem allows{of}"
            N.theorem("batch", min(facts.m, max(1, least)), where)
            if spider:
                N.default("anchor_batch", facts.m, "all samples")
        if not spider:
            N.theorem("epoch", max(1, facts.m // int(N.values.get("batch", facts.m))), "one pass")
        first, later = self._claims(N.values, facts, eps)
        N.theorem("noise_ratio", first.sigma / later.sigma, "the paper's formulas")
        N.theorem("lr", 1 / (2 * L), "1/(2L)")
        return N.plan()

    def formula(self, values: Mapping[str, Any], facts: ProblemFacts, asked: Asked) -> Claim:
        """The paper's noise of the differences, which falls as 1/eps."""
        if not isinstance(asked, Sigma):
            (eps,) = asked.way.values()
            return self._claims(values, facts, eps)[1]
        unit = self._claims(values, facts, 1.0)[1].sigma
        return self._claims(values, facts, unit / asked.sigma)[1]._replace(sigma=asked.sigma)

    def _claims(self, v: Mapping[str, Any], facts: ProblemFacts, eps: float) -> tuple[Claim, Claim]:
        """Noise of full gradients and of differences."""
        G, T, delta = float(v["clip"]), int(v["rounds"]), v["delta"]
        if self.spider:
            made = lowy_spider(G, float(v["smoothness"]), facts.m, T, int(v["period"]), delta, eps)
            return made[0], made[2]
        E, K = math.ceil(T / int(v["epoch"])), int(v.get("batch", facts.m))
        first, later = lowy_svrg(G, facts.m, K, E, delta, eps)
        R = E * (facts.m // K)  # of the formula; with another Q there are T
        scale = math.sqrt(T * math.log(2.5 * T / delta) / (R * math.log(2.5 * R / delta)))
        return first, later._replace(sigma=later.sigma * scale)

    def event(self, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """Full gradients and differences, noised apart; two gradients of a record differ by 2G.

        An epoch's first difference of SVRG is zero, and no release.  SPIDER's differences shrink with
        their noise.  A client has k turns at most, A in rounds that restart, or begin one of E epochs,
        and B in others.

        SVRG: h_i, noised once an epoch, leaves its client only within messages, that is in an epoch in
        which the client has a turn, and serves all of them.  A turn shows h_i and, if it does not begin
        an epoch, a difference with noise of its own: min(k, E) full gradients and B differences at most.
        One client may have both, with one turn in each epoch.

        SPIDER: clients keep nothing, and a turn shows a full gradient or a difference: a <= A of these and
        b <= B of those, a + b <= k.  Where both read all records and have one noise each, they are
        Gaussian, mu^2 is linear in (a, b), and the worse of (A, k - A) and (k - B, B) counts.  Other
        schedules and batches that are drawn have no such sum, and (A, B) counts.
        """
        sampler = self.body.estimator.sampler
        every, G = int(values["period" if self.spider else "epoch"]), float(values["clip"])
        T, k = int(values["rounds"]), turns(self.body, values, facts)
        rounds = equal_rounds(self.body, values, facts, lambda t: t % every == 0)
        restarts, others = ([one for one in rounds if one.kind == kind] for kind in (1, 0))
        fulls, differences = min(k, math.ceil(T / every)), sum(one.number for one in others)
        if k < T:
            differences = turns(self.body, values, facts, [t for t in range(T) if t % every])
        if k < T and self.spider:
            fulls = turns(self.body, values, facts, range(0, T, every))
        linear = self.spider and sampler.whole and len(restarts) == len(others) == 1

        def client(m: int) -> Any:
            def part(some: Rounds) -> events.Event:
                rows, std = drawn(sampler, some.values, facts, m), some.std
                if not some.kind:
                    return events.Event(rows, events.Mean(G, over_b=2.0), std, some.number)
                if not self.spider:  # whose pace does not change the noise of a full gradient
                    rows, std = events.Sampling("full", m, m), std * float(values["noise_ratio"])
                return events.Event(rows, events.Mean(G), std, some.number)

            def some(b: int, a: int) -> Any:
                both = (*loudest(others, b), *loudest(restarts, a))
                return in_sequence(self.body, values, part, both)

            if not linear or fulls + differences == k:
                return some(differences, fulls)
            return events.Phases((some(k - fulls, fulls), some(differences, k - differences)), True)

        return worst(facts, client)
