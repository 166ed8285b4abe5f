"""What an ISRL-DP algorithm is given, and the phases that its theorem makes of it.

In the order levels and lambda_i, then R_i and K_i.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxfl import theory_isrl as theory
from jaxfl.algorithms.numbers import EPS, PRIVACY, Draft, reporting
from jaxfl.errors import InputError
from jaxfl.phases import Phase, share
from jaxfl.rounds import Federated
from jaxfl.types import LARGEST, Facts, Param

__all__ = ["Kind", "Setup"]

ONE_PASS_ROUNDS = 35  # of the experiments of Lowy and Razaviyayn
PARAMS = (
    *PRIVACY,
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


class Setup(NamedTuple):
    """One algorithm: its name, what tells it apart, and its rounds."""

    name: str
    kind: Kind
    body: Federated
    variant: str = "sound"  # of the stages of Algorithm 5, or "paper"

    @property
    def params(self) -> tuple[Param, ...]:
        kind, out = self.kind, list(PARAMS)
        out += [SMOOTHNESS] if kind.accelerated and not kind.smoothing else []
        out += [LAM] if kind.regularized else []
        out += [PHASES, POWER] if kind.localized else [MU] if kind.solver != "sgd" else []
        out += [STEP] if kind.solver == "sgd" else []
        return tuple(out)

    def check(self, given: Mapping[str, Any], facts: Facts) -> None:
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

    def setting(
        self, v: Mapping[str, Any], facts: Facts, beta: float, eps: float
    ) -> theory.IsrlSetting:
        everyone = self.body.participation.everyone
        silos = reporting(self.body, v, facts.n)
        return theory.IsrlSetting(
            N=facts.n,
            n=facts.m,
            d=facts.d,
            eps=eps if math.isfinite(eps) else EPS,
            delta=v["delta"],
            L=v["clip"] if math.isfinite(v["clip"]) else 1.0,
            D=v.get("diameter", math.inf),
            beta=beta,
            M=None if everyone else min(facts.n, silos),
        )

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
        return {"": "Theorem C.1", "moreau": "Theorem E.2", "convolution": "Theorem D.5"}[
            self.kind.smoothing
        ]

    def smooth(self, s: theory.IsrlSetting, N: Draft, facts: Facts) -> theory.IsrlSetting:
        """The setting with the smoothness beta that the solver meets."""
        kind, v = self.kind, N.values
        if kind.smoothing == "moreau":
            self.diameter(v, "moreau")
            N.theorem("moreau", float(theory.nesterov_smoothness(s)), "Theorem E.2")
            s = s._replace(beta=v["moreau"])
        elif kind.smoothing == "convolution":
            self.diameter(v, "spread")
            N.theorem("spread", float(theory.convolution_radius(s)), "Theorem D.5")
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
            N.theorem("smoothness", float(beta), "of the model")
            s = s._replace(beta=v["smoothness"])
        return s

    def phases(self, s: theory.IsrlSetting, N: Draft, facts: Facts) -> list[Phase]:
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
            N.theorem("batch", batch, "floor(n/R)")
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
        N.theorem("phases", most, "Algorithm 1: floor(log2 n)")
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
            first = 2.0**p / (float(theory.subgradient_eta(s)) * (s.n >> 1))
            N.theorem("lam", first, "Theorem G.1: 1/(eta_1 n_1)")
            n_1 = s.n >> 1
            return [v["lam"] * 2.0 ** ((i - 1) * p) * n_1 / (s.n >> i) for i in levels]
        N.theorem("lam", float(theory.localization_lam(s)), "(16)")
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
