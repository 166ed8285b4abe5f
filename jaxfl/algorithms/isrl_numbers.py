"""The hyper-parameters of ISRL-DP algorithms: phases from the theorems, then what each round reads.

In the order K_i, R_i, sigma_i, V, and then the stages, which depend on the noise that is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jaxfl import theory_isrl as theory
from jaxfl import transcript
from jaxfl.algorithms.isrl_phases import Setup
from jaxfl.algorithms.numbers import EPS, Draft
from jaxfl.errors import InputError
from jaxfl.phases import Phase, event, phases_of, shorter, spread
from jaxfl.privacy import formulas
from jaxfl.privacy.claims import Claim
from jaxfl.schedules import pieces
from jaxfl.types import Asked, Facts, Noise, Origin, Plan, Sigma, Source

__all__ = ["Rules"]


class Rules(Setup):
    """How one algorithm comes to its hyper-parameters, and what they are worth."""

    # --- from what is given to phases ------------------------------------------------------------

    def plan(self, given: Mapping[str, Any], facts: Facts) -> Plan:
        """The user's values, then the theorems', then defaults that say so."""
        kind = self.kind
        self.check(given, facts)
        N = Draft.of(given, facts, theory=True)
        N.clip(True)
        N.ask()
        N.theorem("delta", min(1e-3, 1 / facts.m_max**2), "the paper's experiments: 1/n^2")
        most = 2 * math.log(2 / N["delta"])
        if not kind.once and N.eps > most:
            raise InputError(
                f"eps = {N.eps:g} exceeds 2 ln(2/delta) = {most:.4g}, up to which the theorem holds: "
                "lower eps or delta."
            )
        if facts.diameter is not None:
            N.theorem("diameter", facts.diameter, "of the constraint set")
        N.taking_part(self.body.participation, facts.n, "all of them")
        s = self.smooth(self.setting(N.values, facts, 1.0, N.eps), N, facts)
        phases = self.phases(s, N, facts)
        N.theorem("rounds", sum(phase.rounds for phase in phases), self.where)
        self._spread(N, phases)
        return N.plan(tuple({"phase": i} for i in range(len(phases))))

    def _spread(self, N: Draft, phases: Iterable[Phase]) -> None:
        """What rounds read of the phases."""
        for name, series in spread(phases).items():
            N.set(name, series, Source(Origin.THEOREM, self.where))

    # --- what follows from the noise --------------------------------------------------------------

    def finish(self, N: Draft, noise: Noise, facts: Facts) -> None:
        """Each phase's own noise, then stages and step sizes."""
        v, first = N.values, noise.levels[0]
        phases = [
            phase._replace(noise=level / first if first else 1.0)
            for phase, level in zip(phases_of(v), noise.levels, strict=True)
        ]
        self._spread(N, phases)
        s = self.setting(v, facts, self._beta(v, facts), v["eps"])
        rounds: dict[str, list[float]] = {}

        def more(**series: Any) -> None:
            for name, each in series.items():
                rounds.setdefault(name, []).extend(np.asarray(each, np.float64).tolist())

        for phase in phases:
            mu, sigma = phase.lam or v.get("mu", 0.0), v["sigma"] * phase.noise
            V2 = float(theory.variance(s, phase.size(facts.m), phase.batch, sigma))
            if self.kind.accelerated:
                for R, scale in self._stages(s, phase, mu, V2):
                    more(**accelerated(R, mu, scale))
                continue
            r = np.arange(1, phase.rounds + 1)
            if self.kind.solver == "subgradient":
                more(step_t=2 / (mu * r))
            else:
                lr = self._lr(s, N, phase)
                more(step_t=np.full(phase.rounds, lr / (1 + lr * phase.lam)))
            more(average_t=2 / (r + 1))
        if self.kind.solver == "sgd":
            where = "D/sqrt(R (L^2 + d sigma^2/M)), of the first phase"
            N.theorem("lr", self._lr(s, N, phases[0]), where)
        if not self.kind.regularized:
            for name in ("lam_t", "radius_t", "ends_t"):
                del v[name], N.sources[name]
        for name, each in rounds.items():
            N.set(name, pieces(each), Source(Origin.THEOREM, self.where))

    def _beta(self, v: Mapping[str, Any], facts: Facts) -> float:
        if self.kind.smoothing == "convolution":
            return float(
                theory.convolution_smoothness(self.setting(v, facts, 1.0, EPS), v["spread"])
            )
        return float(v.get("moreau", v.get("smoothness", 1.0)))

    def _stages(
        self, s: theory.IsrlSetting, phase: Phase, mu: float, V2: float
    ) -> list[tuple[int, float]]:
        beta = float(s.beta) + phase.lam
        if self.kind.solver == "multistage":
            Delta = float(theory.gap(s, mu))
            return theory.stages(beta, mu, V2, Delta, phase.rounds, float(s.L), self.variant)
        self.diameter({"diameter": s.D}, "step size")
        return [(phase.rounds, theory.accelerated_step(beta, V2, float(s.D), phase.rounds))]

    def _lr(self, s: theory.IsrlSetting, N: Draft, phase: Phase) -> float:
        """``min(D, D_i) / sqrt(R_i (L^2 + d sigma_i^2/M))`` [Bubeck, 2015, Theorem 6.1]."""
        if "lr" in N:
            return float(N["lr"])
        self.diameter(N.values, "lr")
        second = s.L**2 + s.d * (N["sigma"] * phase.noise) ** 2 / s.silos
        return float(min(float(s.D), phase.radius) / math.sqrt(phase.rounds * second))

    # --- what is released, and what the paper says of it ------------------------------------------

    def event(self, values: Mapping[str, Any], facts: Facts) -> Any:
        """Parallel composition over the phases of the rounds that ran, by the arrays they read."""
        sampler, sensitivity = self.body.estimator.sampler, self.body.estimator.sensitivity
        assert sensitivity is not None
        phases = self._ran(values, facts)
        if self.kind.once:
            (phase,) = phases
            return transcript.event(self.body, {**values, "rounds": phase.rounds}, facts)
        slots = sampler.capacity(values, facts)["batch"] if sampler.padded else None
        sigma = float(values["sigma"])
        return event(sampler.scheme, sensitivity(values), phases, sigma, facts, slots)

    def _ran(self, values: Mapping[str, Any], facts: Facts) -> list[Phase]:
        """The phases of the rounds that ran, or the one that ``phase`` names."""
        ran = phases_of({"lam_t": ZERO, "radius_t": ZERO, **values})
        if "phase" in values:
            ran = [ran[values["phase"]]._replace(noise=1.0)]
        return shorter(ran, transcript.turns(self.body, values, facts))

    def formula(self, values: Mapping[str, Any], facts: Facts, asked: Asked) -> Claim | None:
        """The paper's noise, of the phase for which it says most."""
        L, delta = float(values["clip"]), values["delta"]
        if math.isinf(L):
            return None
        if self.kind.once:
            return formulas.one_pass(L, int(values["batch"]), delta, **asked._asdict())
        claims = [
            formulas.gao(L, p.size(facts.m), p.batch, p.rounds, delta, **self._of(p, asked))
            for p in self._ran(values, facts)
        ]
        worst = max(claims, key=lambda claim: claim.eps)
        failed = [c for claim in claims for c in claim.conditions if c.holds is False]
        return worst._replace(conditions=tuple(failed[:1]) or worst.conditions)

    def _of(self, phase: Phase, asked: Asked) -> dict[str, float]:
        if isinstance(asked, Sigma):
            return {"sigma": asked.sigma * phase.noise}
        return asked._asdict()


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
