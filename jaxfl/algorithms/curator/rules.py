"""The hyper-parameters of a curator's algorithms, what its rounds release, and what papers say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxfl.algorithms.curator import theory as theory_recursive
from jaxfl.algorithms.curator.claims import dp_srm, rrpsgd
from jaxfl.algorithms.numbers import EPS, Draft, curator, reporting
from jaxfl.algorithms.soteriafl import theory
from jaxfl.algorithms.soteriafl.claims import compressed_gd
from jaxfl.core.errors import InputError
from jaxfl.core.types import Asked, Noise, Param, Plan, ProblemFacts
from jaxfl.privacy import events
from jaxfl.privacy.claims import Claim, Condition
from jaxfl.rounds.federated import Federated
from jaxfl.rounds.transcript import rounding

__all__ = ["GAP", "PaperRules"]

GAP = Param("gap", "f(x0) - f*, which step sizes ask for", open_low=True)


class PaperRules(NamedTuple):
    """The hyper-parameters of a run, what it releases, and what the paper says of it."""

    body: Federated
    recursive: bool
    once: bool  # one sample a round

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then the papers', then defaults that say so."""
        body, N = self.body, Draft.of(given, facts, theory=True)
        N.private(body, facts)
        s = self._setting(N.values, facts, N.eps)
        records, of = s.m, N.for_eps
        if self.recursive:
            self._srm(N, facts, s)
        elif self.once:
            N.default("rounds", facts.m, "one pass")
            N.theorem("batch", 1, "one sample a round")
            if N["batch"] != 1:
                raise InputError(
                    f"batch = {N['batch']} does not apply to rrpsgd, which draws 1: leave it out."
                )
            if N["rounds"] > records**2:
                raise InputError(
                    f"rounds = {N['rounds']} exceeds m^2 = {records**2:g}, which RRPSGD never reaches: ask "
                    "for fewer."
                )
        else:
            rounds = max(1, round(float(theory_recursive.gd_rounds(s))))
            N.theorem("rounds", rounds, f"the paper's order{of}")
            if body.estimator.sampler.params:
                N.default("batch", min(32, facts.m))
            if body.estimator.sampler.whole:
                N.theorem("lr", 1 / s.L, "1/L")
            where = f"Theorem 1 of SoteriaFL with one client{of}"
            N.theorem("lr", float(theory.cdp_step(s)), where)
        return N.plan()

    def finish(self, N: Draft, noise: Noise, facts: ProblemFacts) -> None:
        """RRPSGD's step follows from sigma, be it the paper's or calibrated."""
        if not self.once:
            return
        s = self._setting(N.values, facts, EPS)
        sigma = max(N["sigma"], 1e-30) if N["sigma"] == N["sigma"] else 1e-30
        most = (s.gap / (s.L * s.m**2 * s.d * sigma**2)) ** 0.5
        N.theorem("lr", float(min(1 / s.L, most)), "min(1/L, sqrt(D_F/(L m^2 d sigma^2)))")

    def _setting(self, v: Mapping[str, Any], facts: ProblemFacts, eps: float) -> theory.Setting:
        """The node that holds the records of all clients whose means are added up."""
        records = facts.m * reporting(self.body, v, facts.n)
        L, G = float(v["smoothness"]), float(v["clip"])
        return theory.Setting(1, records, facts.d, 0.0, L, G, eps, v["delta"], v["gap"])

    def _srm(self, N: Draft, facts: ProblemFacts, s: theory.Setting) -> None:
        where = f"Theorem 1 of DP-SRM, constants 1{N.for_eps}"
        best, r = theory_recursive.srm_numbers(s), s.m / facts.m
        N.theorem("rounds", max(1, round(float(theory_recursive.srm_rounds(s)))), where)
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
        N.theorem("noise_ratio", ratio, "of what a record moves")

    def formula(self, values: Mapping[str, Any], facts: ProblemFacts, asked: Asked) -> Claim:
        """The paper's noise, with m the records of all clients."""
        G, delta, T = float(values["clip"]), values["delta"], int(values["rounds"])
        r, way = reporting(self.body, values, facts.n), asked._asdict()
        m, b = round(facts.m * r), round(values.get("batch", facts.m) * r)
        if self.once:
            return rrpsgd(G, m, delta, **way)
        if not self.recursive:
            return compressed_gd(theory.CDP_CONSTANT, G, m, b, T, delta, **way)
        gamma, C = float(values["momentum"]), float(values["difference_clip"])
        b0 = round(values["anchor_batch"] * r)
        first, later = dp_srm(G, m, b, b0, T, gamma, C, delta, **way)
        sigma0 = later.sigma * values["noise_ratio"]
        enough = Condition(
            f"sigma0 = {sigma0:.4g} >= {first.sigma:.4g}",
            bool(sigma0 >= first.sigma * (1 - 1e-6)),
        )
        return later._replace(conditions=(*later.conditions, enough))

    def event(self, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """Every release of the noised mean; DP-SRM's first has its own batch and noise."""
        G, T, sigma = float(values["clip"]), int(values["rounds"]), float(values["sigma"])
        trust: Any = "single_node" if facts.n == 1 else "trusted_server"
        trust = trust if self.body.aggregation is None else "secure_sum"

        rounded = rounding(self.body, values, facts)  # before the server's noise
        if self.body.estimator.sampler.padded:
            rounded *= 2  # with the record and without it: each world rounds something else

        def release(draw: Callable[[str], events.Sampling], r: float) -> Any:
            def plain(batch: str, moved: float, sigma: float, times: int) -> Any:
                sampling = draw(batch)
                mean = events.Mean((moved + sampling.b * rounded) / r)
                return events.Event(sampling, mean, sigma, times, trust=trust)

            if not self.recursive:
                return plain("batch", G, sigma, T)
            first = plain("anchor_batch", G, sigma * float(values["noise_ratio"]), 1)
            return events.Sequence((plain("batch", _moved(values), sigma, T - 1), first))

        return curator(self.body, values, facts, release)


def _moved(values: Mapping[str, Any]) -> float:
    """The norm of a record's share in DP-SRM: (1-gamma) C + gamma G."""
    gamma = float(values["momentum"])
    return (1 - gamma) * float(values["difference_clip"]) + gamma * float(values["clip"])
