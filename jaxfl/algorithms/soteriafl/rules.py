"""The hyper-parameters of SoteriaFL's algorithms: the paper's choices, and what it says of their noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxfl.algorithms.numbers import PRIVACY, Draft, reporting, usual_delta
from jaxfl.algorithms.soteriafl import theory
from jaxfl.algorithms.soteriafl import theory as shifted
from jaxfl.algorithms.soteriafl.claims import compressed_gd
from jaxfl.algorithms.soteriafl.theory import Estimator as Constants
from jaxfl.core.errors import InputError
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import LARGEST, Asked, Estimator, Param, Plan, ProblemFacts
from jaxfl.parts.momentum import SMOOTHNESS
from jaxfl.privacy.claims import Claim
from jaxfl.rounds.federated import Federated

__all__ = ["CDP", "NOISE", "NUMBERS", "SAGA", "SGD", "SVRG", "PaperRules", "Rule", "own"]

NUMBERS = (
    SMOOTHNESS,
    Param("gap", "f(x0) - f*, which CDP-SGD's step size asks for", open_low=True, high=LARGEST),
)
NOISE = (
    *PRIVACY,
    Param(
        "noise_constant",
        "c in sigma^2 = c G^2 T ln(1/delta) / (m eps)^2",
        open_low=True,
        high=LARGEST,
    ),
    Param(
        "gradient_bound",
        "with clip='batch': a bound on every example's gradient that holds whatever the data, for "
        "example the largest norm that features can have in logistic regression",
        open_low=True,
    ),
)


class Rule(NamedTuple):
    """The paper's choices for one family; None: it makes none."""

    where: str
    assume: Callable[[theory.Setting, Mapping[str, Any]], Constants] | None
    step: Callable[[theory.Setting, Mapping[str, Any]], Any] | None
    rounds: Callable[[theory.Setting, Mapping[str, Any]], Any] | None
    batch: Callable[[theory.Setting], Any] | None = None
    constant: float | None = None  # c of the noise formula; None: 48 (G_A^2/4 + G_B^2)/G^2


def _b(s: theory.Setting, v: Mapping[str, Any]) -> Any:
    return v.get("batch", s.m)


SGD = Rule(
    "Corollary 1",
    lambda s, v: shifted.sgd(s, _b(s, v)),
    lambda s, v: theory.sgd_step(s),
    lambda s, v: theory.sgd_rounds(s),
    theory.sgd_batch,
    shifted.CONSTANT / 4,
)
SVRG = Rule(
    "Corollary 2",
    lambda s, v: shifted.svrg(s, _b(s, v), v["refresh"]),
    lambda s, v: theory.svrg_step(s, v["batch"], v["refresh"]),
    lambda s, v: theory.svrg_rounds(s),
    theory.svrg_batch,
    shifted.CONSTANT * 2,
)
SAGA = Rule(
    "Corollary 3",
    lambda s, v: shifted.saga(s, _b(s, v)),
    lambda s, v: theory.saga_step(s),
    lambda s, v: theory.svrg_rounds(s),
    theory.saga_batch,
    shifted.CONSTANT * 2,
)
CDP = Rule(
    "Theorem 1",
    SGD.assume,
    lambda s, v: theory.cdp_step(s),
    lambda s, v: theory.cdp_rounds(s),
    theory.sgd_batch,
    theory.CDP_CONSTANT,
)


def own(estimator: Estimator) -> Rule:
    """Algorithm 2 with an estimator of one's own: Theorems 2 and 3, for the constants it declares."""
    assume = estimator.assume
    if assume is None:
        return Rule("nothing is known of this estimator", None, None, None)

    def step(s: theory.Setting, v: Mapping[str, Any]) -> float:
        return shifted.longest_step(s, assume(s, v))

    def rounds(s: theory.Setting, v: Mapping[str, Any]) -> Any:
        e = assume(s, v)
        return shifted.shifted_rounds(s, e, shifted.least_beta(s, e, shifted.longest_step(s, e)))

    return Rule("Theorem 3", assume, step, rounds)


class PaperRules(NamedTuple):
    """The hyper-parameters of a run, and what the paper says of its noise."""

    rule: Rule
    body: Federated

    @property
    def known(self) -> bool:
        """Whether the paper has a formula for the noise."""
        return self.body.mechanism.std is not None and self.rule.assume is not None

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then the paper's, then defaults that say so."""
        rule, body = self.rule, self.body
        private = body.mechanism.std is not None
        if "gradient_bound" in given and body.clip == "example":
            raise InputError(
                f"gradient_bound = {given['gradient_bound']!r} belongs to clip='batch': every example is "
                "clipped here, so give clip, its bound G, instead."
            )
        N = Draft.of(given, facts, theory=rule.rounds is not None)
        N.clip(private)
        N.parts(body, facts)
        N.default("gap", 1.0)
        L, known = N.values.get("smoothness", facts.smoothness), True
        if not L:  # unknown, or 0 on data without features
            L, known = 1.0, False
        note = rule.where if known else f"{rule.where} with L = 1: L of this model is unknown"
        if private:
            N.target(facts)
        v, of, s = N.values, N.for_eps, self._setting(N.values, facts, L, N.eps)
        names = {param.name for param in body.estimator.params}
        if rule.batch is None and body.estimator.sampler.params:
            N.default("batch", min(32, facts.m))
        if rule.rounds is not None:
            N.theorem("rounds", max(1, round(float(rule.rounds(s, v)))), note + of)
        if rule.batch is not None and body.estimator.sampler.params:
            N.theorem("batch", int(rule.batch(s)), note + of)
        if rule.batch is not None and "refresh" in names:
            N.theorem("batch", facts.m, "full passes")
            N.theorem("refresh", min(1.0, N["batch"] / facts.m), f"{rule.where}: b/m")
        if body.channel.params:
            N.theorem("shift", float(theory.shift(N["omega"])), "Theorem 3")
        if self.known:
            c, why = rule.constant, "the authors' code"
            if c is None:
                assert rule.assume is not None
                c, why = shifted.CONSTANT * rule.assume(s, v).size / s.G**2, "Theorem 2"
            N.theorem("noise_constant", c, why)
        if not known or rule.step is None:
            N.default("lr", 0.1, rule.where if known else "L of this model is unknown")
        if "lr" not in N and isinstance(v.get("refresh"), Schedule):
            raise InputError(
                f"refresh = {v['refresh']} changes from round to round, and {rule.where} has a step size "
                "for one probability: give lr."
            )
        if "lr" not in N and rule.step is not None:
            N.theorem("lr", float(rule.step(s, v)), note + of * (rule is CDP))
        return N.plan()

    def _setting(
        self, v: Mapping[str, Any], facts: ProblemFacts, L: float, eps: float = 1.0
    ) -> theory.Setting:
        G = float(v["clip"]) if math.isfinite(v["clip"]) else 1.0  # of schedules alone
        r = reporting(self.body, v, facts.n)  # whose messages a mean is over
        delta = v.get("delta", usual_delta(facts.m_max))
        return theory.Setting(r, facts.m, facts.d, v["omega"], L, G, eps, delta, v["gap"])

    def formula(self, values: Mapping[str, Any], facts: ProblemFacts, asked: Asked) -> Claim | None:
        """The paper's noise, and whether its conditions hold."""
        assume = self.rule.assume
        assert assume is not None
        L = values.get("smoothness", facts.smoothness) or 1.0
        s = self._setting({"gap": 1.0, **values}, facts, L)._replace(G=float(values["clip"]))
        e = assume(s, values)
        claim = compressed_gd(
            values["noise_constant"],
            values["clip"],
            facts.m,
            values.get("batch", facts.m),
            values["rounds"],
            values["delta"],
            bounds=(float(e.G_A), float(e.G_B)),
            **asked._asdict(),
        )
        return claim._replace(where=self.rule.where)
