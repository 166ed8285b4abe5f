"""The numbers of SoteriaFL's algorithms: the paper's choices, and what it says of their noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxfl import theory
from jaxfl.algorithms.numbers import EPS, PRIVACY, Numbers, of_eps, reporting
from jaxfl.errors import InputError
from jaxfl.hyper import usual_delta
from jaxfl.momentum import SMOOTHNESS
from jaxfl.rounds import Federated
from jaxfl.schedules import Schedule
from jaxfl.types import LARGEST, Facts, Param, Resolved

__all__ = ["CDP", "NOISE", "NUMBERS", "SAGA", "SGD", "SVRG", "Promise", "Rule"]

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
    """The paper's choices for one family."""

    where: str
    constant: float  # c of the noise formula
    batch: Callable[[theory.Setting], Any]
    step: Callable[[theory.Setting, dict[str, Any]], Any]  # of the setting and the numbers so far
    rounds: Callable[[theory.Setting], Any]


SGD = Rule("Corollary 1", 12, theory.sgd_batch, lambda s, v: theory.sgd_step(s), theory.sgd_rounds)
SVRG = Rule(
    "Corollary 2",
    96,
    theory.svrg_batch,
    lambda s, v: theory.svrg_step(s, v["batch"], v["refresh"]),
    theory.svrg_rounds,
)
SAGA = Rule(
    "Corollary 3", 96, theory.saga_batch, lambda s, v: theory.saga_step(s), theory.svrg_rounds
)
CDP = Rule("Theorem 1", 8, theory.sgd_batch, lambda s, v: theory.cdp_step(s), theory.cdp_rounds)


class Promise(NamedTuple):
    """The numbers of a run, and what the paper says of them."""

    rule: Rule
    body: Federated

    def resolve(self, given: Mapping[str, Any], facts: Facts) -> Resolved:
        """The user's numbers, then the paper's, then defaults that say so."""
        rule, body = self.rule, self.body
        private = body.mechanism.std is not None
        if "gradient_bound" in given and body.clip == "example":
            raise InputError(
                f"gradient_bound = {given['gradient_bound']!r} belongs to clip='batch': every example is "
                "clipped here, so give clip, its bound G, instead."
            )
        N = Numbers(given, facts, rounds="theory")
        N.one_of("eps", "sigma")
        G = N.clip(private)
        N.parts(body, facts)
        N.default("gap", 1.0)
        L, known = N.values.get("smoothness", facts.smoothness), True
        if not L:  # unknown, or 0 on data without features
            L, known = 1.0, False
        note = rule.where if known else f"{rule.where} with L = 1: L of this model is unknown"
        if private:
            N.target(facts)
        v = N.values
        bound = G if math.isfinite(G) else 1.0  # of schedules; no noise is enough for any eps then
        eps, delta = v.get("eps", EPS), v.get("delta", usual_delta(facts.m_max))
        r = reporting(body, v, facts.n)  # whose messages a mean is over
        s = theory.Setting(r, facts.m, facts.d, N["omega"], L, bound, eps, delta, N["gap"])
        of = of_eps(v)
        N.default("rounds", max(1, round(float(rule.rounds(s)))), note + of)
        if body.estimator.sampler.params:
            N.default("batch", int(rule.batch(s)), note + of)
        if "refresh" in {param.name for param in body.estimator.params}:
            N.default("batch", facts.m, "full passes")
            N.default("refresh", min(1.0, N["batch"] / facts.m), f"{rule.where}: b/m")
        if body.channel.params:
            N.default("shift", float(theory.shift(N["omega"])), "Theorem 3")
        if private:
            N.default("noise_constant", rule.constant, "the authors' code")
            c, T = N["noise_constant"], N["rounds"]
            N.noise(
                lambda eps: theory.paper_sigma(c, s._replace(eps=eps), T),
                lambda sigma: theory.paper_eps(c, s._replace(G=G), T, sigma),
                rule.where,
            )
        if not known:
            N.default("lr", 0.1, "default: L of this model is unknown")
        if "lr" not in N and isinstance(v.get("refresh"), Schedule):
            raise InputError(
                f"refresh = {v['refresh']} changes from round to round, and {rule.where} has a step size "
                "for one probability: give lr."
            )
        if "lr" not in N:
            N.default("lr", float(rule.step(s, v)), note + of * (rule is CDP))
        return N.resolved()

    def claim(self, values: Mapping[str, Any], facts: Facts) -> Any:
        """What the paper's formula says of this noise, and whether its conditions hold."""
        from jaxfl.privacy import formulas

        if values["sigma"] == 0:
            return None
        return formulas.compressed_gd(
            values["noise_constant"],
            values["clip"],
            facts.m,
            values.get("batch", facts.m),
            values["rounds"],
            values["delta"],
            sigma=values["sigma"],
            snapshot=self.body.estimator.points != 1,
        )
