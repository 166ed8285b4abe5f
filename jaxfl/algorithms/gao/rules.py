"""The hyper-parameters of ISRL-DP algorithms, and the phases that their theorems choose.

They follow in this order: levels and lambda_i, then R_i and K_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxfl.algorithms.gao import theory
from jaxfl.algorithms.gao.claims import gao, one_pass
from jaxfl.algorithms.numbers import EPS, PRIVACY, Draft, reporting
from jaxfl.core.errors import InputError
from jaxfl.core.schedules import pieces
from jaxfl.core.types import (
    LARGEST,
    Asked,
    Noise,
    Origin,
    Param,
    Plan,
    ProblemFacts,
    Sampler,
    Sigma,
    Source,
)
from jaxfl.parts import sampling
from jaxfl.parts.localization import Phase, phases_of, share, spread
from jaxfl.privacy import events
from jaxfl.privacy.claims import Claim
from jaxfl.rounds import transcript
from jaxfl.rounds.federated import Federated

__all__ = ["PaperRules", "Variant"]

PAPER = "Gao, Lowy, Zhou, Wright, ICML 2024"
ONE_PASS_ROUNDS = 35  # of the experiments of Lowy and Razaviyayn
PARAMS = (
    *PRIVACY,
    Param("diameter", "diameter D of the constraint set (default: the model's)", open_low=True),
)
SMOOTHNESS = Param(
    "smoothness", "smoothness beta of every example's loss (default: the model's)", open_low=True
)
LAM = Param("lam", "weight lambda of the first phase's pull to where it starts", open_low=True)
PHASES = Param("phases", "phases tau, each on half of the records left", low=1, integer=True)
POWER = Param("power", "p in lambda_i = lambda 2^{(i-1)p}")
MU = Param("mu", "strong convexity of the losses (default: 0)")
STEP = Param("lr", "step size of minibatch SGD", open_low=True, high=LARGEST)


class Variant(NamedTuple):
    """Solvers and parts in which the algorithms of this folder differ."""

    solver: str  # "multistage", "acsa", "subgradient" or "sgd"
    localized: bool
    smoothing: str = ""  # or "moreau", "convolution"
    sampler: Callable[[], Sampler] = sampling.with_replacement
    paper: str = PAPER

    @property
    def once(self) -> bool:
        """Whether batches are disjoint."""
        return self.sampler is sampling.single_pass

    @property
    def accelerated(self) -> bool:
        return self.solver in ("multistage", "acsa")

    @property
    def regularized(self) -> bool:
        """Whether the server adds a pull, or restarts."""
        return self.localized or self.solver in ("multistage", "subgradient")


class PaperRules(NamedTuple):
    """The hyper-parameters of a run, its privacy event, and the paper's noise formula."""

    body: Federated
    kind: Variant
    name: str
    variant: str = "sound"  # of the stages of Algorithm 5, or "paper"

    @property
    def params(self) -> tuple[Param, ...]:
        kind, out = self.kind, list(PARAMS)
        out += [SMOOTHNESS] if kind.accelerated and not kind.smoothing else []
        out += [LAM] if kind.regularized else []
        out += [PHASES, POWER] if kind.localized else [MU] if kind.solver != "sgd" else []
        out += [STEP] if kind.solver == "sgd" else []
        return tuple(out)

    def setting(self, v: Mapping[str, Any], facts: ProblemFacts, eps: float) -> theory.IsrlSetting:
        """The quantities of the theorems; beta is the smoothness for the solver, where it is a value."""
        everyone, silos = self.body.participation.everyone, reporting(self.body, v, facts.n)
        s = theory.IsrlSetting(
            N=facts.n,
            n=facts.m,
            d=facts.d,
            eps=eps if math.isfinite(eps) else EPS,
            delta=v["delta"],
            L=v["clip"] if math.isfinite(v["clip"]) else 1.0,
            D=v.get("diameter", math.inf),
            beta=float(v.get("moreau", v.get("smoothness", 1.0))),
            M=None if everyone else min(facts.n, silos),
        )
        if "spread" in v:
            s = s._replace(beta=float(theory.convolution_smoothness(s, v["spread"])))
        return s

    def diameter(self, v: Mapping[str, Any], what: str) -> None:
        if not math.isfinite(v.get("diameter", math.inf)):
            raise InputError(
                f"{self.name} needs the diameter of the constraint set for its {what}, and the model's set "
                f"has none: constrain it (ball:RADIUS), give diameter, or give {what}."
            )

    @property
    def where(self) -> str:
        if self.kind.once:
            return "Lowy and Razaviyayn"
        if self.kind.solver in ("subgradient", "sgd"):
            return "Theorem G.1"
        where = {"": "Theorem C.1", "moreau": "Theorem E.2", "convolution": "Theorem D.5"}
        return where[self.kind.smoothing]

    @property
    def steps(self) -> str:
        """The theorem that gives alpha_r and h_r, or the step sizes of the other solvers."""
        if self.kind.solver == "multistage":
            return "Appendix B"
        alone = "Appendix B, with v of Ghadimi and Lan, 2012"
        return alone if self.kind.solver == "acsa" else self.where

    def smooth(self, N: Draft, facts: ProblemFacts) -> None:
        """The smoothness that the solver meets, of the loss or by smoothing it."""
        kind, s = self.kind, self.setting(N.values, facts, N.eps)
        if kind.smoothing == "moreau":
            self.diameter(N.values, "moreau")
            N.theorem("moreau", float(theory.nesterov_smoothness(s)), "Theorem E.2")
        elif kind.smoothing == "convolution":
            self.diameter(N.values, "spread")
            N.theorem("spread", float(theory.convolution_radius(s)), "Theorem D.5")
        elif kind.accelerated:
            if not N.values.get("smoothness", facts.smoothness):
                raise InputError(
                    f"{self.name} needs a smooth loss, and the smoothness of this one is not known: give "
                    "smoothness, or take localized_nesterov, localized_convolution or "
                    "localized_subgradient."
                )
            N.theorem("smoothness", facts.smoothness, "of the model")

    def phases(self, s: theory.IsrlSetting, N: Draft, facts: ProblemFacts) -> list[Phase]:
        """Levels, lambda_i, D_i, then K_i and R_i."""
        kind, v, n, T = self.kind, N.values, facts.m, facts.rounds
        if kind.once:
            rounds = T or min(ONE_PASS_ROUNDS, n)
            batch = int(v.get("batch", n // rounds))
            if batch * rounds > n or not batch:
                raise InputError(
                    f"rounds = {rounds} of {max(batch, 1)} records each are more than one pass over "
                    f"{n}: give fewer rounds or a smaller batch."
                )
            N.theorem("batch", batch, "floor(m/T)")
            return [Phase(0, batch, rounds)]
        levels = self._levels(N, n, s) if kind.localized else [0]
        lams = self._lams(s, N, levels)
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
        N.theorem("batch", max(batches), self.where)
        rows = zip(levels, batches, rounds_i, lams, radii, strict=True)
        return [Phase(*row) for row in rows]

    def _levels(self, N: Draft, n: int, s: theory.IsrlSetting) -> list[int]:
        most = n.bit_length() - 1  # floor(log2 n)
        if most < 1:
            raise InputError(
                f"{self.name} halves the records from phase to phase, and the smallest client has "
                f"{n}: give it at least 2."
            )
        N.theorem("phases", most, "Algorithm 1: floor(log2 m)")
        N.theorem("power", float(theory.localization_power(s)), "Algorithm 1")
        if N["phases"] > most:
            raise InputError(
                f"phases = {N['phases']:g} leave phase {most + 1} without a record, since the smallest "
                f"client has {n}: ask for at most {most}."
            )
        return list(range(1, int(N["phases"]) + 1))

    def _lams(self, s: theory.IsrlSetting, N: Draft, levels: list[int]) -> list[float]:
        """lambda_i; of a single phase on all records only where mu is not known."""
        kind, v = self.kind, N.values
        if not kind.regularized:
            if kind.solver != "sgd":
                N.default("mu", 0.0)
            return [0.0]
        if not kind.localized and v.get("mu", 0.0) > 0:
            return [0.0]
        if "lam" not in v:
            self.diameter(v, "lam")
        p = v.get("power", 0.0)
        if kind.localized and kind.solver == "subgradient":
            n_1 = s.n >> 1
            first = 2.0**p / (float(theory.subgradient_eta(s)) * n_1)
            N.theorem("lam", first, "Theorem G.1: 1/(eta_1 n_1)")
            return [v["lam"] * 2.0 ** ((i - 1) * p) * n_1 / (s.n >> i) for i in levels]
        N.theorem("lam", float(theory.localization_lam(s)), "equation (16)")
        return [v["lam"] * 2.0 ** (max(i - 1, 0) * p) for i in levels]

    def _rounds(self, s: theory.IsrlSetting, size: int, mu: float, batch: Any = None) -> int:
        """R_i; with ``batch`` the second term too."""
        if not self.kind.accelerated:
            return int(theory.subgradient_rounds(s, size))
        if mu == 0:  # what the first phase of Algorithm 1 would take
            self.diameter({"diameter": s.D}, "number of rounds")
            mu = float(theory.localization_lam(s))
        poisson = self.kind.smoothing == "convolution"
        return int(theory.accelerated_rounds(s, size, mu, batch, poisson))

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then the theorems', then defaults, labelled as such."""
        kind = self.kind
        if facts.convex is False:
            raise InputError(
                f"{self.name} needs convex losses, and this model's are not: take a linear model with "
                "an l2 regularizer or none, or an algorithm such as ldp_sgd."
            )
        if "mu" in given and "lam" in given and given["mu"] > 0:
            raise InputError(
                f"mu = {given['mu']!r} and lam = {given['lam']!r} are both given: the pull is added where "
                "losses are not known to be strongly convex, so give one of them."
            )
        N = Draft.of(given, facts, theory=True)
        N.clip(True)
        N.ask()
        N.theorem("delta", min(1e-3, 1 / facts.m_max**2), "the paper's experiments: 1/m^2")
        most = 2 * math.log(2 / N["delta"])
        if not kind.once and N.eps > most:
            raise InputError(
                f"eps = {N.eps:g} exceeds 2 ln(2/delta) = {most:.4g}, up to which the theorem holds: "
                "lower eps or delta."
            )
        if facts.diameter is not None:
            N.theorem("diameter", facts.diameter, "of the constraint set")
        N.taking_part(self.body.participation, facts.n, "all of them")
        self.smooth(N, facts)
        phases = self.phases(self.setting(N.values, facts, N.eps), N, facts)
        N.theorem("rounds", sum(phase.rounds for phase in phases), self.where)
        self._spread(N, phases)
        return N.plan(tuple({"phase": i} for i in range(len(phases))))

    def _spread(self, N: Draft, phases: Iterable[Phase]) -> None:
        """Set the schedules by which rounds read the phases."""
        for name, series in spread(phases).items():
            N.set(name, series, Source(Origin.THEOREM, self.where))

    # --- what follows from the noise --------------------------------------------------------------

    def finish(self, N: Draft, noise: Noise, facts: ProblemFacts) -> None:
        """Each phase's own noise, then stages and step sizes."""
        v, first = N.values, noise.levels[0]
        phases = [
            phase._replace(noise=level / first if first else 1.0)
            for phase, level in zip(phases_of(v), noise.levels, strict=True)
        ]
        self._spread(N, phases)
        s = self.setting(v, facts, v["eps"])
        series: list[dict[str, Any]] = []  # what rounds read, stage by stage
        for phase in phases:
            mu, sigma = phase.lam or v.get("mu", 0.0), v["sigma"] * phase.noise
            r = np.arange(1, phase.rounds + 1)
            if self.kind.accelerated:
                V2 = float(theory.variance(s, phase.size(facts.m), phase.batch, sigma))
                stages = self._stages(s, phase, mu, V2)
                series += [accelerated(R, mu, scale) for R, scale in stages]
            elif self.kind.solver == "subgradient":
                series.append({"step_t": 2 / (mu * r), "average_t": 2 / (r + 1)})
            else:
                lr = self._lr(s, N, phase)
                steps = np.full(phase.rounds, lr / (1 + lr * phase.lam))
                series.append({"step_t": steps, "average_t": 2 / (r + 1)})
        if self.kind.solver == "sgd":
            where = "D/sqrt(R (L^2 + d sigma^2/M)), of the first phase"
            N.theorem("lr", self._lr(s, N, phases[0]), where)
        if not self.kind.regularized:
            for name in ("lam_t", "radius_t", "ends_t"):
                del v[name], N.sources[name]
        for name in series[0]:
            each = np.concatenate([stage[name] for stage in series]).astype(np.float64)
            N.set(name, pieces(each.tolist()), Source(Origin.THEOREM, self.steps))

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

    def event(self, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """Parallel composition over the phases of the rounds that ran, by the arrays they read.

        Every record is in one phase, and the worst phase counts.  A client of m records has
        floor(m/2^i) in phase i; a batch of that many or more is all of them.
        """
        sampler, sensitivity = self.body.estimator.sampler, self.body.estimator.sensitivity
        assert sensitivity is not None
        phases = self._ran(values, facts)
        if self.kind.once:
            ((_, phase),) = phases.items()
            return transcript.event(self.body, {**values, "rounds": phase.rounds}, facts)
        slots = sampler.capacity(values, facts)["batch"] if sampler.padded else None
        numbers = np.repeat(*np.transpose([(i, p.rounds) for i, p in enumerate(_phases(values))]))
        rounds = transcript.equal_rounds(self.body, values, facts, lambda t: numbers[t])
        scheme: Any = sampler.scheme  # phased() raises for a sampler without
        moves = sensitivity(values)

        def part(i: int, phase: Phase, m: int) -> Any:
            size = phase.size(m)
            rows = events.Sampling("full", size, size)
            if phase.batch < size:
                rows = events.Sampling(scheme, size, phase.batch, slots)
            mine = transcript.loudest([some for some in rounds if some.kind == i], phase.rounds)

            def each(some: transcript.Rounds) -> events.Event:
                return events.Event(rows, moves, some.std, some.number)

            return transcript.in_sequence(self.body, values, each, mine)

        def client(m: int) -> Any:
            parts = tuple(part(i, phase, m) for i, phase in phases.items())
            return parts[0] if len(parts) == 1 else events.Phases(parts)

        return events.worst(facts, client)

    def _ran(self, values: Mapping[str, Any], facts: ProblemFacts) -> dict[int, Phase]:
        """The phases of the rounds that ran, or the one that ``phase`` names, by their numbers.

        Each has the most turns of a client among its rounds.  No client needs to have as many in every
        phase, and the worst phase alone counts.
        """
        ran, end = dict[int, Phase](), 0
        for i, phase in enumerate(_phases(values)):
            first, end = end, end + phase.rounds
            turns = transcript.turns(self.body, values, facts, range(first, end))
            ran[i] = phase._replace(rounds=turns)
        return {values["phase"]: ran[values["phase"]]} if "phase" in values else ran

    def formula(self, values: Mapping[str, Any], facts: ProblemFacts, asked: Asked) -> Claim | None:
        """The paper's noise, of the phase for which it says most."""
        L, delta = float(values["clip"]), values["delta"]
        if math.isinf(L):
            return None
        if self.kind.once:
            return one_pass(L, int(values["batch"]), delta, **asked.way)
        claims = []
        for p in self._ran(values, facts).values():
            way = Sigma(asked.sigma * p.noise) if isinstance(asked, Sigma) else asked
            claims.append(gao(L, p.size(facts.m), p.batch, p.rounds, delta, **way.way))
        worst = max(claims, key=lambda claim: claim.eps)
        failed = [c for claim in claims for c in claim.conditions if c.holds is False]
        return worst._replace(conditions=tuple(failed[:1]) or worst.conditions)


ZERO = pieces([0.0])


def _phases(values: Mapping[str, Any]) -> list[Phase]:
    return phases_of({"lam_t": ZERO, "radius_t": ZERO, **values})


def accelerated(rounds: int, mu: float, step: float) -> dict[str, Any]:
    """The schedules that :func:`jaxfl.parts.accelerated.acsa` reads in the rounds of one stage::

    a_r = 2/(r+1),  h_r = 4 v/(r(r+1)),  B_{r+1};  mu
    """
    r = np.arange(1, rounds + 1, dtype=np.float64)
    a, h = 2 / (r + 2), 4 * step / ((r + 1) * (r + 2))  # of the next round
    return {
        "alpha_t": 2 / (r + 1),
        "h_t": 4 * step / (r * (r + 1)),
        "mu_t": np.full(rounds, mu),
        "next_mix_t": a * ((1 - a) * mu + h) / (h + (1 - a**2) * mu),
        "stage_t": r == rounds,
    }
