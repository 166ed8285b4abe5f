"""The numbers of ISRL-DP algorithms: phases and noise from the theorems, then what each round reads.

In the order K_i, R_i, sigma_i, V, and then the stages, which depend on the noise that is used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxfl import theory_isrl as theory
from jaxfl import transcript
from jaxfl.algorithms.isrl_phases import Kind, Setup
from jaxfl.algorithms.numbers import EPS, taking_part
from jaxfl.errors import InputError
from jaxfl.phases import Phase, event, phases_of, shorter, spread
from jaxfl.rounds import Federated
from jaxfl.schedules import Schedule, pieces
from jaxfl.types import Facts, Resolved

__all__ = ["Numbers"]


class Numbers(NamedTuple):
    """How one algorithm comes to its numbers, and what they are worth."""

    setup: Setup
    variant: str

    @property
    def kind(self) -> Kind:
        return self.setup.kind

    @property
    def body(self) -> Federated:
        return self.setup.body

    # --- from what is given to phases and the paper's noise --------------------------------------

    def resolve(self, given: Mapping[str, Any], facts: Facts) -> Resolved:
        """The user's numbers, then the theorems', then defaults that say so."""
        kind, v, why = self.kind, dict(given), dict.fromkeys(given, "given")
        self.setup.check(given, facts)

        def default(name: str, value: Any, source: str) -> None:
            if name not in v:
                v[name], why[name] = value, source

        default("clip", 1.0, "default")
        default("eps", EPS, "default")
        default("delta", min(1e-3, 1 / facts.m_max**2), "the paper's experiments: 1/n^2")
        most = 2 * math.log(2 / v["delta"])
        if not kind.once and v["eps"] > most:
            raise InputError(
                f"eps = {v['eps']:g} exceeds 2 ln(2/delta) = {most:.4g}, up to which the theorem holds: "
                "lower eps or delta."
            )
        if facts.diameter is not None:
            default("diameter", facts.diameter, "of the constraint set")
        taking_part(self.body.participation, v, default, facts.n, "default: all of them")
        s = self.setup.smooth(self.setup.setting(v, facts, 1.0), v, default, facts)
        phases = self.setup.phases(s, v, default, facts)
        default("rounds", sum(phase.rounds for phase in phases), self.setup.where)
        if kind.once:
            (phase,) = phases
            sigma = math.sqrt(8 * s.log) * s.L / (phase.batch * s.eps)
        else:
            scales = [float(theory.isrl_sigma(s, p.size(facts.m), p.rounds)) for p in phases]
            sigma = scales[0]
            if "sigma" not in given:
                phases = [p._replace(noise=x / sigma) for p, x in zip(phases, scales, strict=True)]
        default("sigma", sigma, "the paper's formula")
        v |= spread(phases)
        if "sigma" in given:
            claim = self.claim(v, facts)
            v["eps"], why["eps"] = claim.eps if claim else math.inf, "the formula, from sigma"
        return self._told(v, why)

    def _told(self, v: dict[str, Any], why: dict[str, str]) -> Resolved:
        """Schedules of the rounds follow from the rest."""
        for name in v:
            if isinstance(v[name], Schedule):
                why[name] = self.setup.where
        return Resolved(v, why)

    # --- what follows from the noise --------------------------------------------------------------

    def settle(self, found: Resolved, facts: Facts) -> Resolved:
        """Each phase's own calibrated noise, then stages and step sizes."""
        v, why = dict(found.values), dict(found.sources)
        phases = phases_of(v)
        if why["sigma"].startswith("calibrated") and len(phases) > 1:
            from jaxfl.privacy import sigma_for

            alone = [
                sigma_for(self._event([p._replace(noise=1.0)], v, 1.0, facts), v["eps"], v["delta"])
                for p in phases
            ]
            v["sigma"] = alone[0].sigma
            phases = [
                p._replace(noise=one.sigma / alone[0].sigma)
                for p, one in zip(phases, alone, strict=True)
            ]
            v |= spread(phases)
        s = self.setup.setting(v, facts, self._beta(v, facts))
        rounds: dict[str, list[float]] = {}

        def more(**numbers: Any) -> None:
            for name, series in numbers.items():
                rounds.setdefault(name, []).extend(np.asarray(series, np.float64).tolist())

        for phase in phases:
            mu = phase.lam or v.get("mu", 0.0)
            V2 = float(
                theory.variance(s, phase.size(facts.m), phase.batch, v["sigma"] * phase.noise)
            )
            if self.kind.accelerated:
                for R, scale in self._stages(s, phase, mu, V2):
                    more(**accelerated(R, mu, scale))
                continue
            r = np.arange(1, phase.rounds + 1)
            if self.kind.solver == "subgradient":
                more(step_t=2 / (mu * r))
            else:
                lr = self._lr(s, v, why, phase, phases)
                more(step_t=np.full(phase.rounds, lr / (1 + lr * phase.lam)))
            more(average_t=2 / (r + 1))
        if not self.kind.regularized:
            for name in ("lam_t", "radius_t", "ends_t"):
                del v[name], why[name]
        v |= {name: pieces(series) for name, series in rounds.items()}
        return self._told(v, why)

    def _beta(self, v: Mapping[str, Any], facts: Facts) -> float:
        if self.kind.smoothing == "convolution":
            return float(
                theory.convolution_smoothness(self.setup.setting(v, facts, 1.0), v["spread"])
            )
        return float(v.get("moreau", v.get("smoothness", 1.0)))

    def _stages(
        self, s: theory.IsrlSetting, phase: Phase, mu: float, V2: float
    ) -> list[tuple[int, float]]:
        beta = float(s.beta) + phase.lam
        if self.kind.solver == "multistage":
            Delta = float(theory.gap(s, mu))
            return theory.stages(beta, mu, V2, Delta, phase.rounds, float(s.L), self.variant)
        self.setup.diameter({"diameter": s.D}, "step size")
        return [(phase.rounds, theory.accelerated_step(beta, V2, float(s.D), phase.rounds))]

    def _lr(
        self,
        s: theory.IsrlSetting,
        v: dict[str, Any],
        why: dict[str, str],
        phase: Phase,
        phases: list[Phase],
    ) -> float:
        """``min(D, D_i) / sqrt(R_i (L^2 + d sigma_i^2/M))`` [Bubeck, 2015, Theorem 6.1]."""
        if why.get("lr") == "given":
            return float(v["lr"])
        self.setup.diameter(v, "lr")
        second = s.L**2 + s.d * (v["sigma"] * phase.noise) ** 2 / s.silos
        lr = min(float(s.D), phase.radius) / math.sqrt(phase.rounds * second)
        if phase is phases[0]:
            v["lr"], why["lr"] = lr, "D/sqrt(R (L^2 + d sigma^2/M)), of the first phase"
        return float(lr)

    # --- what is released, and what the paper says of it ------------------------------------------

    def event(self, values: Mapping[str, Any], facts: Facts) -> Any:
        """Parallel composition over the phases of the rounds that ran, by the arrays they read."""
        return self._event(self._ran(values, facts), values, float(values["sigma"]), facts)

    def _ran(self, values: Mapping[str, Any], facts: Facts) -> list[Phase]:
        full = {"lam_t": ZERO, "radius_t": ZERO, **values}
        ran = phases_of(full)
        return shorter(ran, transcript.turns(self.body, values, facts))

    def _event(
        self, phases: list[Phase], values: Mapping[str, Any], sigma: float, facts: Facts
    ) -> Any:
        sampler, sensitivity = self.body.estimator.sampler, self.body.estimator.sensitivity
        assert sensitivity is not None
        if self.kind.once:
            (phase,) = phases
            fixed = {**values, "sigma": sigma, "rounds": phase.rounds}
            return transcript.event(self.body, fixed, facts)
        slots = sampler.capacity(values, facts)["batch"] if sampler.padded else None
        return event(sampler.scheme, sensitivity(values), phases, sigma, facts, slots)

    def claim(self, values: Mapping[str, Any], facts: Facts) -> Any:
        """The paper's formula, of the phase for which it says most."""
        from jaxfl.privacy import formulas

        sigma, L, delta = float(values["sigma"]), float(values["clip"]), values["delta"]
        if sigma == 0 or math.isinf(L):
            return None
        if self.kind.once:
            return formulas.one_pass(L, int(values["batch"]), delta, sigma=sigma)
        claims = [
            formulas.gao(L, p.size(facts.m), p.batch, p.rounds, delta, sigma=sigma * p.noise)
            for p in self._ran(values, facts)
        ]
        worst = max(claims, key=lambda claim: claim.eps)
        failed = [c for claim in claims for c in claim.conditions if c.holds is False]
        return worst._replace(conditions=tuple(failed[:1]) or worst.conditions)


ZERO = pieces([0.0])


def accelerated(rounds: int, mu: float, step: float) -> dict[str, Any]:
    """What :func:`jaxfl.accelerated.acsa` reads in the rounds of one stage::

    a_r = 2/(r+1),  h_r = 4 v/(r(r+1)),  B_{r+1};  mu
    """
    r = np.arange(1, rounds + 1, dtype=np.float64)

    def mix(r: Any) -> Any:
        a, h = 2 / (r + 1), 4 * step / (r * (r + 1))
        return a * ((1 - a) * mu + h) / (h + (1 - a**2) * mu)

    return {
        "alpha_t": 2 / (r + 1),
        "h_t": 4 * step / (r * (r + 1)),
        "mu_t": np.full(rounds, mu),
        "next_mix_t": mix(r + 1),
        "stage_t": r == rounds,
    }
