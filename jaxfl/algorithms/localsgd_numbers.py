"""The numbers of local SGD, what its rounds release, and what the paper says of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxfl import local, theory
from jaxfl.algorithms.numbers import Numbers, reporting
from jaxfl.errors import InputError
from jaxfl.hyper import CALIBRATED
from jaxfl.rounds import Federated
from jaxfl.transcript import rounding, worst
from jaxfl.types import Facts, Resolved

__all__ = ["Promise"]


class Promise(NamedTuple):
    """The numbers of a run, what it releases, and what the paper says of it."""

    body: Federated
    once: bool  # one step a round, by the paper's baseline
    fresh: bool
    convex: bool
    plain: bool  # steps of SGD: another optimizer's are no sums, and hide nothing in a sum of them

    def resolve(self, given: Mapping[str, Any], facts: Facts) -> Resolved:
        """The user's numbers, then the paper's, then defaults that say so."""
        body, N = self.body, Numbers(given, facts)
        private, central = body.mechanism.std is not None, body.mechanism.central
        names = {
            param.name for owner in (body.local, body.server) if owner for param in owner.params
        }
        N.one_of("eps", "sigma")
        N.clip(private and not central)
        N.parts(body, facts)
        if body.estimator.sampler.params:
            N.default("batch", min(32, facts.m))
        if "local_steps" in names:
            N.default("local_steps", 5)
        L, tau = N.values.get("smoothness", facts.smoothness), N.values.get("local_steps", 1)
        if L:  # known, and not 0 on data without features
            N.default("lr", float(theory.local_step(L, tau)), "Theorem 2: the largest step")
        N.default("lr", 0.1, "default: L of this model is unknown")
        for name, value in (("server_lr", 1.0), ("prox", 0.1), ("update_clip", 1.0)):
            if name in names:
                N.default(name, value)
        if self.convex:
            self._one_pass(N.values, facts)
        if private:
            N.target(facts, "n" if central else "m")
            self._noise(N, facts)
        return N.resolved()

    def _one_pass(self, v: Mapping[str, Any], facts: Facts) -> None:
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

    def _noise(self, N: Numbers, facts: Facts) -> None:
        """sigma by the paper's formula for eps, or what the formula says of a given sigma."""
        v = N.values
        if self.body.mechanism.central:
            from jaxfl.privacy.gaussian import gdp_eps, gdp_mu

            r, T = reporting(self.body, v, facts.n), v["rounds"]
            shift = float(v["update_clip"]) * math.sqrt(T) / r
            N.noise(
                lambda eps: shift / float(gdp_mu(eps, v["delta"])),
                lambda sigma: float(gdp_eps(shift / sigma, v["delta"])),
                "Gaussian releases, no amplification",
            )
            return
        given = "sigma" in v
        claim = self.claim(v, facts, None if given else v["eps"])
        where = "the paper's formula" if self.once else "Theorem 1"
        if claim is None and given:
            N.set("eps", math.inf, "no formula for these parts")
        elif claim is None:
            N.set("sigma", 1.0, CALIBRATED)
        elif given:
            N.set("eps", claim.eps, f"{where}, from sigma")
        else:
            N.set("sigma", claim.sigma, where)

    def event(self, values: Mapping[str, Any], facts: Facts) -> Any:
        """All rounds of one client.

        With shuffled epochs, :class:`jaxfl.privacy.events.LocalSteps`.  With another sampler every
        local step is a release, of which the message is a function; one step under an aggregation
        is :meth:`jaxfl.rounds.Federated.event`.
        """
        from jaxfl.privacy import events

        body, mechanism = self.body, self.body.mechanism
        if mechanism.std is None:
            return events.NoClaim("nothing is noised")
        if mechanism.central:
            return self._of_a_client(values, facts)
        known = int(values.get("colluding", 0))
        if not self.plain:
            body = body._replace(aggregation=None)
        tau, r = int(values.get("local_steps", 1)), body.noises(values, facts)
        sampler = body.estimator.sampler
        if sampler.law != "shuffled":
            if known:
                body = body._replace(aggregation=None)
            if tau == 1:
                return body.event(values, facts)
            each = {**values, "turns": body.turns(values, facts) * tau}
            return body._replace(aggregation=None).event(each, facts)
        sigma, turns, b = float(values["sigma"]), body.turns(values, facts), float(values["batch"])
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

    def _contracts(self, values: Mapping[str, Any], facts: Facts) -> bool:
        """eta <= 2/L, as far as L is known, and clipped losses that are convex, as far as that is."""
        if facts.contracts is False:
            return False
        L = values.get("smoothness", facts.smoothness)
        return L is not None and L * local.largest(values["lr"], values["rounds"]) <= 2

    def _of_a_client(self, values: Mapping[str, Any], facts: Facts) -> Any:
        """One client's update has norm at most S, and is divided by r."""
        from jaxfl.privacy import events

        body, n = self.body, facts.n
        name = body.participation.name
        S = float(values["update_clip"]) + rounding(body, values, facts)
        r = reporting(body, values, n)
        scheme, m, b, bound, slots = "full", n, float(n), S * n / r, None
        adjacency: Any = (
            "zero_out"  # divided by a number of clients: one that is left out sends zero
        )
        if name == "uniform":
            scheme, b, bound, adjacency = "without_replacement", r, S, "replace_one"
        if name == "poisson":
            scheme, b, bound, adjacency = name, r, S, "add_remove"
            slots = body.participation.capacity(values, facts)["cohort"]
        return events.Event(
            events.Sampling(scheme, m, b, slots),
            events.Mean(bound),
            float(values["sigma"]),
            # whoever sees the models only does not know who took part, but in a fixed order
            body.turns(values, facts) if name == "balanced" else int(values["rounds"]),
            unit="client",
            adjacency=adjacency,
            trust="trusted_server",
        )

    def claim(self, values: Mapping[str, Any], facts: Facts, eps: float | None = None) -> Any:
        """Theorem 1, or the formula of the baseline; with ``eps``, of the noise that it asks for."""
        from jaxfl.privacy import formulas

        sigma = None if eps is not None else float(values["sigma"])
        if sigma == 0 or not self.plain or self.body.estimator.sampler.law != "shuffled":
            return None
        G, b, turns = values["clip"], int(values["batch"]), self.body.turns(values, facts)
        if self.once and self.body.aggregation is None:
            if sigma is None:  # eps depends on noise relative to sqrt(rho) alone
                unit = formulas.hu(G, b, b, 1, turns, values["delta"], devices=facts.n, eps=eps)
                sigma = unit.sigma
            return formulas.dp_sgd_baseline(G, facts.n, b, turns, values["delta"], sigma)
        return formulas.hu(
            G,
            facts.m,
            b,
            int(values.get("local_steps", 1)),
            turns,
            values["delta"],
            devices=self.body.noises(values, facts),
            convex=self.convex and self._contracts(values, facts) if self.convex else None,
            eps=eps,
            sigma=sigma,
        )
