"""The hyper-parameters of local SGD, what its rounds release, and what the paper says of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxfl.algorithms.hu import theory
from jaxfl.algorithms.hu.claims import dp_sgd_baseline, hu
from jaxfl.algorithms.numbers import Draft, reporting
from jaxfl.core.errors import InputError
from jaxfl.core.types import Asked, Plan, ProblemFacts, Sigma
from jaxfl.parts import local
from jaxfl.privacy import events
from jaxfl.privacy.claims import Claim
from jaxfl.privacy.events import worst
from jaxfl.privacy.gaussian import gdp_eps, gdp_mu
from jaxfl.rounds import transcript
from jaxfl.rounds.federated import Federated

__all__ = ["PaperRules"]


class PaperRules(NamedTuple):
    """The hyper-parameters of a run, what it releases, and what the paper says of it."""

    body: Federated
    once: bool  # one step a round, by the paper's baseline
    fresh: bool
    convex: bool
    plain: bool  # steps of SGD: another optimizer's are no sums, and hide nothing in a sum of them

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then the paper's, then defaults that say so."""
        body, N = self.body, Draft.of(given, facts)
        private, central = body.mechanism.std is not None, body.mechanism.central
        names = {
            param.name for owner in (body.local, body.server) if owner for param in owner.params
        }
        N.clip(private and not central)
        N.parts(body, facts)
        if body.estimator.sampler.params:
            N.default("batch", min(32, facts.m))
        if "local_steps" in names:
            N.default("local_steps", 5)
        L, tau = N.values.get("smoothness", facts.smoothness), N.values.get("local_steps", 1)
        if L:  # known, and not 0 on data without features
            N.theorem("lr", float(theory.local_step(L, tau)), "Theorem 2: the largest step")
        N.default("lr", 0.1, "L of this model is unknown")
        for name, value in (("server_lr", 1.0), ("prox", 0.1), ("update_clip", 1.0)):
            if name in names:
                N.default(name, value)
        if self.convex:
            self._one_pass(N.values, facts)
        if private:
            N.target(facts, "n" if central else "m")
        return N.plan()

    def _one_pass(self, v: Mapping[str, Any], facts: ProblemFacts) -> None:
        """What amplification by iteration needs, convexity where it is known."""
        tau = int(v.get("local_steps", 1))
        for m in {facts.m, facts.m_max}:
            length = m // int(v["batch"]) if "batch" in v else 1
            if tau > 1 and (tau > length or (not self.fresh and length % tau)):
                raise InputError(
                    f"local_steps = {tau} does not divide the epoch of {length} batches, so that a round "
                    "may use a record twice, and convex=True proves nothing: change batch or local_steps, "
                    "or leave convex out."
                )
        if facts.contracts is False:
            raise InputError(
                "convex=True does not hold for this model, whose clipped losses are not convex: take a "
                "linear model with one output and an l2 regularizer or none, or leave convex out."
            )
        if not self.plain:
            raise InputError(
                "convex=True proves something of SGD's steps alone: leave it or the optimizer out."
            )

    def event(self, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """All rounds of one client.

        With shuffled epochs, :class:`jaxfl.privacy.events.LocalSteps`.  With another sampler every
        local step is a release, of which the message is a function; one step under an aggregation
        is :func:`jaxfl.rounds.transcript.event`.
        """
        body, mechanism = self.body, self.body.mechanism
        if mechanism.std is None:
            return events.NoClaim("nothing is noised")
        if mechanism.central:
            return self._of_a_client(values, facts)
        known = int(values.get("colluding", 0))
        if not self.plain:
            body = body._replace(aggregation=None)
        tau, r = int(values.get("local_steps", 1)), transcript.noises(body, values, facts)
        sampler = body.estimator.sampler
        if not sampler.epochs:
            if known:
                body = body._replace(aggregation=None)
            if tau == 1:
                return transcript.event(body, values, facts)
            each = {**values, "turns": transcript.turns(body, values, facts) * tau}
            return transcript.event(body._replace(aggregation=None), each, facts)
        sigma, b = float(values["sigma"]), float(values["batch"])
        turns = transcript.turns(body, values, facts)
        hidden = self.body.aggregation is not None
        convex = self.convex and self.plain and self._contracts(values, facts)
        known = known if r > 1 else 0  # where messages are seen, other devices hide nothing
        steps = events.LocalSteps(values["clip"], tau, r, known, convex, self.fresh)

        def client(m: int) -> Any:
            return events.Event(
                events.Sampling("shuffled", m, b),
                steps,
                sigma,
                turns,
                trust="secure_sum" if hidden else "local_transcript",
            )

        return worst(facts, client)

    def _contracts(self, values: Mapping[str, Any], facts: ProblemFacts) -> bool:
        """eta <= 2/L, as far as L is known, and clipped losses that are convex, as far as that is."""
        if facts.contracts is False:
            return False
        L = values.get("smoothness", facts.smoothness)
        return L is not None and L * local.largest(values["lr"], values["rounds"]) <= 2

    def _of_a_client(self, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """One client's update has norm at most S, and is divided by r."""
        body, n = self.body, facts.n
        clients = body.participation
        S = float(values["update_clip"]) + transcript.rounding(body, values, facts)
        r = reporting(body, values, n)
        scheme, m, b, bound, slots = "full", n, float(n), S * n / r, None
        adjacency: Any = (
            "zero_out"  # divided by a number of clients: one that is left out sends zero
        )
        if clients.scheme == "without_replacement":
            scheme, b, bound, adjacency = "without_replacement", r, S, "replace_one"
        if clients.scheme == "poisson":
            scheme, b, bound, adjacency = "poisson", r, S, "add_remove"
            slots = clients.capacity(values, facts)["cohort"]
        return events.Event(
            events.Sampling(scheme, m, b, slots),
            events.Mean(bound),
            float(values["sigma"]),
            # whoever sees the models only does not know who took part, but in a fixed order
            transcript.turns(body, values, facts)
            if clients.most is not None
            else int(values["rounds"]),
            unit="client",
            adjacency=adjacency,
            trust="trusted_server",
        )

    def formula(self, values: Mapping[str, Any], facts: ProblemFacts, asked: Asked) -> Claim | None:
        """Theorem 1, or the formula of the baseline, or of the noise of a trusted server."""
        body, delta = self.body, values["delta"]
        if body.mechanism.central:
            return self._server(values, facts, asked)
        if not self.plain or not body.estimator.sampler.epochs:
            return None
        G, b, turns = values["clip"], int(values["batch"]), transcript.turns(body, values, facts)
        way = asked._asdict()
        if self.once and body.aggregation is None:
            return dp_sgd_baseline(G, facts.n, b, turns, delta, **way)
        claim = hu(
            G,
            facts.m,
            b,
            int(values.get("local_steps", 1)),
            turns,
            delta,
            devices=transcript.noises(body, values, facts),
            convex=self._contracts(values, facts) if self.convex else None,
            **way,
        )
        return claim._replace(where="the paper's formula") if self.once else claim

    def _server(self, values: Mapping[str, Any], facts: ProblemFacts, asked: Asked) -> Claim:
        """Updates of norm at most S, divided by r, with one noise on their mean: T Gaussian releases."""
        T, r, delta = values["rounds"], reporting(self.body, values, facts.n), values["delta"]
        shift = float(values["update_clip"]) * math.sqrt(T) / r
        if isinstance(asked, Sigma):
            sigma, eps = asked.sigma, float(gdp_eps(shift / asked.sigma, delta))
        else:
            eps = asked[0]
            sigma = shift / float(gdp_mu(eps, delta))
        where = "Gaussian releases, no amplification"
        return Claim("", "sigma = S sqrt(T)/(r mu)", sigma, eps, delta, where=where)
