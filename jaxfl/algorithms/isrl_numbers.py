"""The numbers of ISRL-DP algorithms: phases and noise from the theorems, then what each round reads.

In the order K_i, R_i, sigma_i, V, and then the stages, which depend on the noise that is used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxfl import theory_isrl as theory
from jaxfl.errors import InputError
from jaxfl.phases import Phase, event, phases_of, share, shorter, spread
from jaxfl.rounds import Federated
from jaxfl.schedules import Schedule, pieces
from jaxfl.servers import LARGEST
from jaxfl.types import Facts, Param, Resolved

__all__ = ["Kind", "Numbers"]

ONE_PASS_ROUNDS = 35  # of the experiments of Lowy and Razaviyayn
PARAMS = (
    Param("eps", "privacy that sigma is calibrated for", open_low=True),
    Param("delta", "privacy failure probability, below 1", open_low=True, high=1 - 1e-9),
    Param("diameter", "diameter D of the constraint set, instead of the model's", open_low=True),
)
SMOOTHNESS = Param(
    "smoothness", "smoothness beta of every example's loss, instead of the model's", open_low=True
)
LAM = Param("lam", "weight lambda of the first phase's pull to where it starts", open_low=True)
PHASES = Param("phases", "phases tau, each on half of the records left", low=1, integer=True)
POWER = Param("power", "p in lambda_i = lambda 2^{(i-1)p}")
MU = Param("mu", "strong convexity of the losses")
STEP = Param("lr", "step size of minibatch SGD", open_low=True, high=LARGEST)


class Kind(NamedTuple):
    """What tells these algorithms apart."""

    solver: str  # "multistage", "acsa", "subgradient" or "sgd"
    localized: bool
    smoothing: str = ""  # or "moreau", "convolution"
    once: bool = False  # disjoint batches

    @property
    def accelerated(self) -> bool:
        return self.solver in ("multistage", "acsa")

    @property
    def regularized(self) -> bool:
        """Whether the server adds a pull, or starts anew."""
        return self.localized or self.solver in ("multistage", "subgradient")


class Numbers(NamedTuple):
    """How one algorithm comes to its numbers, and what they are worth."""

    name: str
    kind: Kind
    body: Federated
    variant: str

    @property
    def params(self) -> tuple[Param, ...]:
        kind, out = self.kind, list(PARAMS)
        out += [SMOOTHNESS] if kind.accelerated and not kind.smoothing else []
        out += [LAM] if kind.regularized else []
        out += [PHASES, POWER] if kind.localized else [MU] if kind.solver != "sgd" else []
        out += [STEP] if kind.solver == "sgd" else []
        return tuple(out)

    # --- from what is given to phases and the paper's noise --------------------------------------

    def resolve(self, given: Mapping[str, Any], facts: Facts) -> Resolved:
        """The user's numbers, then the theorems', then defaults that say so."""
        kind, v, why = self.kind, dict(given), dict.fromkeys(given, "given")
        self._check(given, facts)

        def default(name: str, value: Any, source: str) -> None:
            if name not in v:
                v[name], why[name] = value, source

        default("clip", 1.0, "default")
        default("eps", 5.0, "default")
        default("delta", min(1e-3, 1 / facts.m_max**2), "the paper's experiments: 1/n^2")
        most = 2 * math.log(2 / v["delta"])
        if not kind.once and v["eps"] > most:
            raise InputError(
                f"eps = {v['eps']:g} exceeds 2 ln(2/delta) = {most:.4g}, up to which the theorem holds: "
                "lower eps or delta."
            )
        if facts.diameter is not None:
            default("diameter", facts.diameter, "of the constraint set")
        for param in self.body.participation.params:
            default(param.name, facts.n, "default: all of them")
        s = self._setting(v, facts, 1.0)
        if kind.smoothing == "moreau":
            self._diameter(v, "moreau")
            default("moreau", float(theory.nesterov_smoothness(s)), "Theorem E.2")
            s = s._replace(beta=v["moreau"])
        elif kind.smoothing == "convolution":
            self._diameter(v, "spread")
            default("spread", float(theory.convolution_radius(s)), "Theorem D.5")
            if not v["spread"] > 0:
                raise InputError(f"spread = {v['spread']!r} has to be above 0 to smooth anything.")
            s = s._replace(beta=float(theory.convolution_smoothness(s, v["spread"])))
        elif kind.accelerated:
            beta = v.get("smoothness", facts.smoothness)
            if not beta:
                raise InputError(
                    f"{self.name} needs a smooth loss, and the smoothness of this one is not known: give "
                    "smoothness, or take localized_nesterov, localized_convolution or "
                    "localized_subgradient."
                )
            default("smoothness", float(beta), "of the model")
            s = s._replace(beta=v["smoothness"])
        phases = self._phases(s, v, why, default, facts)
        default("rounds", sum(phase.rounds for phase in phases), self._where)
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
                why[name] = self._where
        return Resolved(v, why)

    def _check(self, given: Mapping[str, Any], facts: Facts) -> None:
        if facts.convex is False:
            raise InputError(
                f"{self.name} needs convex losses, and this model's are not: take a linear model with "
                "an l2 regularizer or none, or an algorithm such as ldp_sgd."
            )
        if "sigma" in given and "eps" in given:
            raise InputError(
                f"eps = {given['eps']!r} and sigma = {given['sigma']!r} are both given: eps is turned "
                "into sigma, so give one of them."
            )
        if math.isinf(given.get("clip", 1.0)) and "sigma" not in given:
            raise InputError(
                "clip = inf bounds no example, so that no noise is enough for any eps: give a finite "
                "clip."
            )
        if "mu" in given and "lam" in given and given["mu"] > 0:
            raise InputError(
                f"mu = {given['mu']!r} and lam = {given['lam']!r} are both given: the pull is added where "
                "losses are not known to be strongly convex, so give one of them."
            )

    def _setting(self, v: Mapping[str, Any], facts: Facts, beta: float) -> theory.IsrlSetting:
        everyone = self.body.participation.everyone
        return theory.IsrlSetting(
            N=facts.n,
            n=facts.m,
            d=facts.d,
            eps=v["eps"] if math.isfinite(v["eps"]) else 5.0,
            delta=v["delta"],
            L=v["clip"] if math.isfinite(v["clip"]) else 1.0,
            D=v.get("diameter", math.inf),
            beta=beta,
            M=None if everyone else min(facts.n, v["cohort"]),
        )

    def _diameter(self, v: Mapping[str, Any], what: str) -> None:
        if not math.isfinite(v.get("diameter", math.inf)):
            raise InputError(
                f"{self.name} needs the diameter of the constraint set for its {what}, and the model's set "
                f"has none: constrain it (ball:RADIUS), give diameter, or give {what}."
            )

    @property
    def _where(self) -> str:
        if self.kind.once:
            return "Lowy and Razaviyayn"
        if self.kind.solver in ("subgradient", "sgd"):
            return "Theorem G.1"
        return {"": "Theorem C.1", "moreau": "Theorem E.2", "convolution": "Theorem D.5"}[
            self.kind.smoothing
        ]

    def _phases(
        self,
        s: theory.IsrlSetting,
        v: dict[str, Any],
        why: dict[str, str],
        default: Any,
        facts: Facts,
    ) -> list[Phase]:
        """Levels, lambda_i, D_i, then K_i and R_i."""
        kind, n, T = self.kind, facts.m, facts.rounds
        if kind.once:
            rounds = T or min(ONE_PASS_ROUNDS, n)
            batch = int(v.get("batch", n // rounds))
            if batch * rounds > n or not batch:
                raise InputError(
                    f"rounds = {rounds} of {max(batch, 1)} records each are more than one pass over "
                    f"{n}: give fewer rounds or a smaller batch."
                )
            default("batch", batch, "floor(n/R)")
            return [Phase(0, batch, rounds)]
        levels = self._levels(v, default, n, s) if kind.localized else [0]
        lams = self._lams(s, v, default, levels)
        radii = [2 * s.L / lam if lam else math.inf for lam in lams]
        sizes = [n >> level for level in levels]
        mus = [lam or v.get("mu", 0.0) for lam in lams]
        first = [self._rounds(s, size, mu) for size, mu in zip(sizes, mus, strict=True)]
        if T is not None:  # minibatch SGD's are unpublished: halved as the records are
            first = share(T, sizes if kind.solver == "sgd" else first)
        if "batch" in v:
            if v["batch"] > sizes[0]:
                raise InputError(
                    f"batch = {v['batch']:g} exceeds the {sizes[0]} records of a phase: ask for at most "
                    f"{sizes[0]}."
                )
            batches = [max(1, int(v["batch"] * size / sizes[0])) for size in sizes]
        else:
            least = [theory.least_batch(s, n_i, R) for n_i, R in zip(sizes, first, strict=True)]
            batches = [min(n_i, max(1, math.ceil(K))) for n_i, K in zip(sizes, least, strict=True)]
        rounds_i = [
            R if T is not None else self._rounds(s, n_i, mu, K)
            for R, n_i, mu, K in zip(first, sizes, mus, batches, strict=True)
        ]
        default("batch", max(batches), self._where)
        rows = zip(levels, batches, rounds_i, lams, radii, strict=True)
        return [Phase(*row) for row in rows]

    def _levels(self, v: dict[str, Any], default: Any, n: int, s: theory.IsrlSetting) -> list[int]:
        most = n.bit_length() - 1  # floor(log2 n)
        if most < 1:
            raise InputError(
                f"{self.name} halves the records from phase to phase, and the smallest client has "
                f"{n}: give it at least 2."
            )
        default("phases", most, "Algorithm 1: floor(log2 n)")
        default("power", float(theory.localization_power(s)), "Algorithm 1")
        if v["phases"] > most:
            raise InputError(
                f"phases = {v['phases']:g} leave phase {most + 1} without a record, since the smallest "
                f"client has {n}: ask for at most {most}."
            )
        return list(range(1, int(v["phases"]) + 1))

    def _lams(
        self, s: theory.IsrlSetting, v: dict[str, Any], default: Any, levels: list[int]
    ) -> list[float]:
        """lambda_i; of a single phase on all records only where mu is not known."""
        kind = self.kind
        if not kind.regularized:
            default("mu", 0.0, "default") if kind.solver != "sgd" else None
            return [0.0]
        if not kind.localized and v.get("mu", 0.0) > 0:
            return [0.0]
        if "lam" not in v:
            self._diameter(v, "lam")
        p = v.get("power", 0.0)
        if kind.localized and kind.solver == "subgradient":
            first = 2.0**p / (float(theory.subgradient_eta(s)) * (s.n >> 1))
            default("lam", first, "Theorem G.1: 1/(eta_1 n_1)")
            n_1 = s.n >> 1
            return [v["lam"] * 2.0 ** ((i - 1) * p) * n_1 / (s.n >> i) for i in levels]
        default("lam", float(theory.localization_lam(s)), "(16)")
        return [v["lam"] * 2.0 ** (max(i - 1, 0) * p) for i in levels]

    def _rounds(self, s: theory.IsrlSetting, size: int, mu: float, batch: Any = None) -> int:
        """R_i; with ``batch`` the second term too."""
        if not self.kind.accelerated:
            return int(theory.subgradient_rounds(s, size))
        if mu == 0:  # what the first phase of Algorithm 1 would take
            self._diameter({"diameter": s.D}, "number of rounds")
            mu = float(theory.localization_lam(s))
        poisson = self.kind.smoothing == "convolution"
        return int(theory.accelerated_rounds(s, size, mu, batch, poisson))

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
        s = self._setting(v, facts, self._beta(v, facts))
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
            return float(theory.convolution_smoothness(self._setting(v, facts, 1.0), v["spread"]))
        return float(v.get("moreau", v.get("smoothness", 1.0)))

    def _stages(
        self, s: theory.IsrlSetting, phase: Phase, mu: float, V2: float
    ) -> list[tuple[int, float]]:
        beta = float(s.beta) + phase.lam
        if self.kind.solver == "multistage":
            Delta = float(theory.gap(s, mu))
            return theory.stages(beta, mu, V2, Delta, phase.rounds, float(s.L), self.variant)
        self._diameter({"diameter": s.D}, "step size")
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
        self._diameter(v, "lr")
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
        return shorter(ran, self.body.turns(values, facts))

    def _event(
        self, phases: list[Phase], values: Mapping[str, Any], sigma: float, facts: Facts
    ) -> Any:
        sampler, sensitivity = self.body.estimator.sampler, self.body.estimator.sensitivity
        assert sensitivity is not None
        if self.kind.once:
            (phase,) = phases
            fixed = {**values, "sigma": sigma, "rounds": phase.rounds}
            return self.body.event(fixed, facts)
        slots = sampler.capacity(values, facts)["batch"] if sampler.name == "poisson" else None
        return event(sampler.name, sensitivity(values), phases, sigma, facts, slots)

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
