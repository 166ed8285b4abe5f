"""The numbers of a curator's algorithms, what its rounds release, and what papers say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxfl import theory, theory_recursive
from jaxfl.algorithms.numbers import EPS, Numbers, curator, of_eps, reporting
from jaxfl.errors import InputError
from jaxfl.rounds import Federated
from jaxfl.transcript import rounding
from jaxfl.types import Facts, Param, Resolved

__all__ = ["GAP", "Promise"]

GAP = Param("gap", "f(x0) - f*, which step sizes ask for", open_low=True)


class Promise(NamedTuple):
    """The numbers of a run, what it releases, and what the paper says of it."""

    body: Federated
    recursive: bool
    once: bool  # one sample a round

    def resolve(self, given: Mapping[str, Any], facts: Facts) -> Resolved:
        """The user's numbers, then the papers', then defaults that say so."""
        body, N = self.body, Numbers(given, facts, rounds="theory")
        N.private(body, facts)
        s = self._setting(N.values, facts)
        records, of = s.m, of_eps(N.values)
        if self.recursive:
            self._srm(N, facts, s)
        elif self.once:
            N.default("rounds", facts.m, "default: one pass")
            N.default("batch", 1, "one sample a round")
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
            N.default(
                "rounds",
                max(1, round(float(theory_recursive.gd_rounds(s)))),
                f"the paper's order{of}",
            )
            if body.estimator.sampler.params:
                N.default("batch", min(32, facts.m))
        eps_of, sigma_of = self._formula(N.values, facts)
        N.noise(sigma_of, eps_of, "the paper's formula")
        lr, where = self._step(N.values, s)
        N.default("lr", lr, where if self.once else where + of * (where != "1/L"))
        return N.resolved()

    def settle(self, found: Resolved, facts: Facts) -> Resolved:
        """RRPSGD's step follows from sigma, be it the paper's or calibrated."""
        if not self.once or found.sources["lr"] == "given":
            return found
        v = found.values
        lr, where = self._step(v, self._setting(v, facts))
        return Resolved({**v, "lr": lr}, {**found.sources, "lr": where})

    def _setting(self, v: Mapping[str, Any], facts: Facts) -> theory.Setting:
        """The node that holds the records of all clients whose means are added up."""
        records, eps = facts.m * reporting(self.body, v, facts.n), v.get("eps", EPS)
        L, G = float(v["smoothness"]), float(v["clip"])
        return theory.Setting(1, records, facts.d, 0.0, L, G, eps, v["delta"], v["gap"])

    def _srm(self, N: Numbers, facts: Facts, s: theory.Setting) -> None:
        where = f"Theorem 1 of DP-SRM, constants 1{of_eps(N.values)}"
        best, r = theory_recursive.srm_numbers(s), s.m / facts.m
        N.default("rounds", max(1, round(float(theory_recursive.srm_rounds(s)))), where)
        b = min(facts.m, max(1, round(float(best.batch) / r)))
        N.default("batch", b, where)
        N.default("anchor_batch", b, where)
        N.default("momentum", float(best.gamma), where)
        N.default("step_limit", float(best.zeta / (best.n0 * s.L)), "zeta/(n0 L)")
        N.default("lr", float(1 / (2 * best.n0 * s.L)), "1/(2 n0 L)")
        N.default(
            "difference_clip", min(2 * s.G, s.L * N["step_limit"]), "L times the longest step"
        )
        ratio = s.G / N["anchor_batch"] / (_moved(N.values) / N["batch"])
        N.default("noise_ratio", ratio, "of what a record moves")

    def _step(self, v: Mapping[str, Any], s: theory.Setting) -> tuple[float, str]:
        if self.once:
            sigma = max(v["sigma"], 1e-30) if v["sigma"] == v["sigma"] else 1e-30
            most = (s.gap / (s.L * s.m**2 * s.d * sigma**2)) ** 0.5
            return float(min(1 / s.L, most)), "min(1/L, sqrt(D_F/(L m^2 d sigma^2)))"
        if self.body.estimator.sampler.whole:
            return 1 / s.L, "1/L"
        return float(theory.cdp_step(s)), "Theorem 1 of SoteriaFL with one client"

    def _formula(
        self, v: Mapping[str, Any], facts: Facts
    ) -> tuple[Callable[[float], float], Callable[[float], float]]:
        """eps of a sigma, and sigma of an eps, by the paper."""

        def eps_of(sigma: float) -> float:
            claim = self.claim({**v, "sigma": sigma}, facts)
            return float(claim.eps)

        def sigma_of(eps: float) -> float:
            low, high = 1e-30, 1e30  # formulas fall with sigma
            for _ in range(200):
                middle = (low * high) ** 0.5
                low, high = (middle, high) if eps_of(middle) > eps else (low, middle)
            return high

        return eps_of, sigma_of

    def claim(self, values: Mapping[str, Any], facts: Facts) -> Any:
        """What the paper's formula says of this noise, with m the records of all clients."""
        from jaxfl.privacy import formulas

        sigma = float(values["sigma"])
        if sigma == 0:
            return None
        G, delta, T = float(values["clip"]), values["delta"], int(values["rounds"])
        r = reporting(self.body, values, facts.n)
        m, b = round(facts.m * r), round(values.get("batch", facts.m) * r)
        if self.once:
            return formulas.rrpsgd(G, m, delta, sigma=sigma)
        if not self.recursive:
            return formulas.compressed_gd(8, G, m, b, T, delta, sigma=sigma)
        gamma, C = float(values["momentum"]), float(values["difference_clip"])
        eps = float(theory_recursive.srm_sigma_eps(T, _moved(values), m, delta, sigma))
        b0 = round(values["anchor_batch"] * r)
        first, later = formulas.dp_srm(G, m, b, b0, T, gamma, C, delta, eps)
        enough = formulas.Condition(
            f"sigma0 = {sigma * values['noise_ratio']:.4g} >= {first.sigma:.4g}",
            bool(sigma * values["noise_ratio"] >= first.sigma * (1 - 1e-6)),
        )
        return later._replace(conditions=(*later.conditions, enough))

    def event(self, values: Mapping[str, Any], facts: Facts) -> Any:
        """Every release of the noised mean; DP-SRM's first has its own batch and noise."""
        from jaxfl.privacy import events

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
