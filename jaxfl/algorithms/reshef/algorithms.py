"""mu^2-SGD, private and federated, and its neighbours.

R. Reshef, K. Y. Levy: Private and Federated Stochastic Convex Optimization: Efficient Strategies for
Centralized Systems.  2024.

==============  =====================  ===============  ==========================================
algorithm       estimator              server           noise
==============  =====================  ===============  ==========================================
mu2_untrusted   corrected momentum     anytime average  Gaussian, at each machine
mu2_trusted     corrected momentum     anytime average  Gaussian, at a server that machines trust
noisy_mu2       corrected momentum     anytime average  Gaussian, a single machine
mu2             corrected momentum     anytime average  none
noisy_sgd       gradient               average          Gaussian, at each machine
==============  =====================  ===============  ==========================================

All of them use a sample once: round t takes row t of every machine, in the order of its data, and
more rounds than samples raise an error.  ``weight_power`` and ``momentum_power`` are p and r of the
general weights of Section 3.1, alpha_t = Gamma(t+p)/(Gamma(t) Gamma(1+p)) and beta_t = t^-r.  Algorithms
1 and 2 and their theorems have p = r = 1; with others the accountant proves what it can, and no theorem
claims anything.  The model stays in the problem's constraint set; where there is
none, in the ball of diameter D around the start.  ``noisy_sgd`` is not in the paper, which reports no
baseline: its noise and step follow from the same reasoning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Unpack

from jaxfl.algorithms.composition import by_rules
from jaxfl.algorithms.numbers import PRIVACY, Draft, Parts, body_of, only
from jaxfl.algorithms.reshef import claims, theory
from jaxfl.algorithms.resolution import GIVEN
from jaxfl.algorithms.roles import cached
from jaxfl.core.errors import InputError
from jaxfl.core.types import (
    Algorithm,
    Asked,
    Eps,
    Mechanism,
    Noise,
    Origin,
    Param,
    Plan,
    ProblemFacts,
    Rho,
    Source,
)
from jaxfl.parts import estimators, iterates, mechanisms, momentum, sampling
from jaxfl.privacy import events
from jaxfl.privacy.claims import Claim, Condition
from jaxfl.privacy.gaussian import zcdp_rho
from jaxfl.rounds import transcript
from jaxfl.rounds.federated import Federated

__all__ = ["mu2", "mu2_trusted", "mu2_untrusted", "noisy_mu2", "noisy_sgd"]

PAPER = "Reshef, Levy, ICML 2024"
RHO = Param("rho", "noise by (alpha, alpha rho^2/2)-Renyi privacy, instead of eps", open_low=True)


class Variant(NamedTuple):
    """Parts and rules in which the algorithms of this folder differ."""

    mechanism: Callable[[], Mechanism]
    exchanged: tuple[str, ...] = ("compressor", "mechanism", "noise")
    corrected: bool = True
    alone: bool = False  # a single machine


def mu2_untrusted(**parts: Unpack[Parts]) -> Algorithm:
    """DP-mu^2-FL for an untrusted server [Algorithm 1]::

        q_i = t d_i,  d_i <- g + (1 - 1/t)(d_i - g~)       one fresh sample, see momentum.corrected
        w <- Pi_K(w - eta mean_i (q_i + Y_i)),  Y_i ~ N(0, sigma^2 I)
        x_{t+1} = (1 - 2/(t+2)) x_t + 2/(t+2) w,            output x_T

    Every sample is used once.
    """
    return _algorithm("mu2_untrusted", Variant(mechanisms.gaussian), **parts)


def mu2_trusted(**parts: Unpack[Parts]) -> Algorithm:
    """DP-mu^2-FL for a trusted server [Algorithm 2]: one draw of noise, on the mean of the q_i::

        q_i = t d_i,  d_i <- g + (1 - 1/t)(d_i - g~)       one fresh sample, see momentum.corrected
        w <- Pi_K(w - eta (mean_i q_i + Y)),  Y ~ N(0, sigma^2 I)
        x_{t+1} = (1 - 2/(t+2)) x_t + 2/(t+2) w,            output x_T

    Every sample is used once.
    """
    return _algorithm("mu2_trusted", Variant(mechanisms.central, ("mechanism", "noise")), **parts)


def noisy_mu2(**parts: Unpack[Parts]) -> Algorithm:
    """Noisy mu^2-SGD of a single machine: :func:`mu2_untrusted` with one client::

        q = t d,  d <- g + (1 - 1/t)(d - g~)                one fresh sample, see momentum.corrected
        w <- Pi_K(w - eta (q + Y)),  Y ~ N(0, sigma^2 I)
        x_{t+1} = (1 - 2/(t+2)) x_t + 2/(t+2) w,            output x_T

    Every sample is used once.
    """
    kind = Variant(mechanisms.gaussian, ("mechanism", "noise"), alone=True)
    return _algorithm("noisy_mu2", kind, **parts)


def mu2(**parts: Unpack[Parts]) -> Algorithm:
    """mu^2-SGD: :func:`mu2_untrusted` without noise [Levy, 2023]::

        q_i = t d_i,  d_i <- g + (1 - 1/t)(d_i - g~)       one fresh sample, see momentum.corrected
        w <- Pi_K(w - eta mean_i q_i)
        x_{t+1} = (1 - 2/(t+2)) x_t + 2/(t+2) w,            output x_T

    Not private.
    """
    return _algorithm("mu2", Variant(mechanisms.noiseless, ("compressor",)), **parts)


def noisy_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """Noisy one-pass SGD::

        x <- Pi_K(x - eta mean_i (clip grad f(x; z_i) + xi_i)),  output the mean x

    Written from the paper's description: sigma = 2G/rho, eta = D/sqrt(T (G^2 + d sigma^2/M)).
    """
    return _algorithm("noisy_sgd", Variant(mechanisms.gaussian, corrected=False), **parts)


# --- what they share -----------------------------------------------------------------------------


@cached
def _algorithm(name: str, kind: Variant, **parts: Any) -> Algorithm:
    estimator = momentum.corrected if kind.corrected else estimators.minibatch
    once = "whose noise counts that a record is used once, and a client is in every round"
    body = body_of(
        only(name, parts, *kind.exchanged, records=once),
        estimator=estimator(sampling.in_order()),
        mechanism=kind.mechanism(),
        server=iterates.anytime() if kind.corrected else iterates.averaged(),
    )
    own = () if body.mechanism.std is None else (RHO, *PRIVACY)
    return by_rules(
        globals()[name],
        PAPER if kind.corrected else "baseline of Reshef and Levy",
        PaperRules(body, kind),
        (*own, momentum.DIAMETER),
        cited=kind.corrected,
        follows=("lr",),
        reads=("diameter",),
    )


class PaperRules(NamedTuple):
    """The hyper-parameters of a run, its privacy event, and the paper's noise formula."""

    body: Federated
    kind: Variant

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then the theorems', then defaults, labelled as such."""
        body, kind = self
        if kind.alone and facts.n > 1:
            raise InputError(
                f"noisy_mu2 is a single machine's algorithm, and there are {facts.n} clients: take "
                "mu2_trusted, or one client."
            )
        N = Draft.of(given, facts, theory=True)
        N.theorem("rounds", facts.m, "one pass over the smallest client's samples")
        N.default("batch", 1)
        N.clip(body.mechanism.std is not None)
        N.parts(body, facts)
        if kind.corrected:
            N.smoothness(facts)
            N.default("weight_power", 1.0, "alpha_t = t")
            N.default("momentum_power", 1.0, "beta_t = 1/t")
        if facts.diameter:
            N.theorem("diameter", facts.diameter, "the constraint set's")
        N.default("diameter", 1.0, "there is no constraint set")
        if body.mechanism.std is not None:
            N.target(facts)
        return N.plan()

    def finish(self, N: Draft, noise: Noise, facts: ProblemFacts) -> None:
        """rho and the step size of the noise, which calibrated is less than the theorem's for eps."""
        if isinstance(N.asked, Rho):
            N.set("rho", N.asked.rho, GIVEN)
        elif isinstance(N.asked, Eps) and noise.source.origin is Origin.FORMULA:
            rho = math.sqrt(2 * float(zcdp_rho(N["eps"], N["delta"])))
            N.set("rho", rho, Source(Origin.FORMULA, "from eps"))
        elif N.asked is not None:
            unit = self.formula({"delta": 0.5, **N.values}, facts, Rho(1.0)).sigma
            rho = float(unit) / N["sigma"] if N["sigma"] else math.inf
            N.set("rho", rho, Source(Origin.FORMULA, "from sigma"))
        N.theorem("lr", *self._step(N.values, facts))

    def _step(self, v: Mapping[str, Any], facts: ProblemFacts) -> tuple[float, str]:
        s, b = self._setting(v, facts), v["batch"]
        if not self.kind.corrected:
            step = theory.minibatch_step(s, v.get("sigma", 0.0))
            return float(step), "regret bound of projected SGD"
        where = "Theorem 6.2" if self.body.mechanism.central else "Theorem 5.2"
        # b samples of a machine shrink what one of them moves, as a rho b times as large would
        step = float(theory.anytime_step(s._replace(rho=s.rho * b)))
        if not _of_theorems(v):
            last = float(theory.importance(s.T, v["weight_power"]))
            return step * s.T / last, f"{where} times T/alpha_T, chosen by jaxfl"
        return step, where if b == 1 else f"{where}, for batch times rho"

    def _setting(self, v: Mapping[str, Any], facts: ProblemFacts) -> theory.AnytimeSetting:
        G = v["clip"] if math.isfinite(v["clip"]) else 1.0  # only steps of non-private runs read it
        L, rho, trusted = (
            v.get("smoothness", 1.0),
            v.get("rho", math.inf),
            self.body.mechanism.central,
        )
        return theory.AnytimeSetting(
            G, L, v["diameter"], facts.d, v["rounds"], facts.n, rho, trusted
        )

    def event(self, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """A record adds one increment to all later q: the shift is that of Theorems 5.1 and 6.1."""
        if not self.kind.corrected or self.body.mechanism.std is None:
            return transcript.event(self.body, values, facts)
        central, b, T = self.body.mechanism.central, int(values["batch"]), int(values["rounds"])
        G, L, D = (float(values[name]) for name in ("clip", "smoothness", "diameter"))
        w = facts.weight() if central else 1.0
        return events.Event(
            events.Sampling("single_pass", T * b, b),
            events.Increments(
                w * G,
                w * L,
                D,
                (facts.n if central else 1) * b,
                weight_power=float(values["weight_power"]),
                momentum_power=float(values["momentum_power"]),
            ),
            transcript.least_noise(self.body, values, facts),
            T,
            trust="trusted_server" if central else "local_transcript",
        )

    def formula(self, values: Mapping[str, Any], facts: ProblemFacts, asked: Asked) -> Claim:
        """Theorem 5.1 or 6.1; of the baseline the same with S = G and each sample released once."""
        T, b, central = values["rounds"], int(values["batch"]), self.body.mechanism.central
        S, where = values["clip"], "each sample once"
        if self.kind.corrected:
            S = self._setting(values, facts)._replace(G=S).S
            where = "Theorem 6.1" if central else "Theorem 5.1"
        S *= facts.weight() if central else 1.0
        machines, T = facts.n if central else 1, T if self.kind.corrected else 1
        claim = claims.mu2(S, T, values["delta"], machines=machines, batch=b, **asked.way)
        if self.kind.corrected and not _of_theorems(values):
            here = f"p = {values['weight_power']:g} and r = {values['momentum_power']:g}"
            weights = Condition("alpha_t = t and beta_t = 1/t, p = r = 1", False, True, here)
            claim = claim._replace(conditions=(*claim.conditions, weights))
        return claim._replace(where=where)


def _of_theorems(values: Mapping[str, Any]) -> bool:
    """Whether the weights are those of the theorems."""
    return bool(values["weight_power"] == values["momentum_power"] == 1)
