"""Clip21-SGD2M: clients clip what their gradients changed by, so that clipping has no bias in the end.

R. Islamov, S. Horvath, A. Lucchi, P. Richtarik, E. Gorbunov: Double Momentum and Error Feedback for
Clipping with Fast Rates and Differential Privacy.  2025.  It adds momentum to Clip21 [S. Khirirat,
E. Gorbunov, S. Horvath, R. Islamov, F. Karray, P. Richtarik, 2023].  Written from the description of
the method, without its authors' code.

A client's v_i and g_i are private, since they are moved by what the client computed before the noise:
no record's influence on a message is bounded by a share of 1/m.  What is proven is what clipping
alone gives: whatever a client's records are, its message without noise is in a ball of radius tau, so
that two data sets move it by at most 2 tau, given all messages before.  That holds for all records of
a client at once, and no sampling amplifies it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Unpack

import jax.numpy as jnp

from jaxfl.algorithms.composition import by_rules
from jaxfl.algorithms.numbers import GAP, PRIVACY, Draft, Parts, body_of, only
from jaxfl.algorithms.roles import cached
from jaxfl.core.provenance import made
from jaxfl.core.types import (
    Algorithm,
    Array,
    Channel,
    Client,
    Estimator,
    Hyper,
    Local,
    Mechanism,
    Noise,
    Param,
    Plan,
    Problem,
    ProblemFacts,
    PyTree,
)
from jaxfl.parts import channels, estimators, mechanisms, momentum, sampling
from jaxfl.parts.gradients import at_point, evaluated
from jaxfl.parts.mechanisms import normal
from jaxfl.privacy import events
from jaxfl.problems.clipping import clip
from jaxfl.rounds import transcript
from jaxfl.rounds.federated import Federated

__all__ = ["clip21_sgd2m"]

TAU = Param("clip", "bound tau on the norm of what a client sends, noise left out", open_low=True)
BETA = Param(
    "momentum", "weight beta of today's gradient in a client's average v_i", open_low=True, high=1.0
)
GAMMA = Param("shift", "step gamma of g_i and g towards the gradients", open_low=True, high=1.0)
OURS = "chosen by jaxfl, since the paper gives no constants"


def clip21_sgd2m(**parts: Unpack[Parts]) -> Algorithm:
    """Clip21-SGD2M: clipped changes of averaged gradients, with noise::

        v_i <- (1 - beta) v_i + beta mean_{j in I_b} grad f_ij(x)
        c_i = clip_tau(v_i - g_i),  send c_i + xi_i,  g_i <- g_i + gamma c_i
        g <- g + (gamma/n) sum_i (c_i + xi_i),  x <- x - eta g

    With beta = gamma = 1 and ``sampler=full()`` it is Clip21 with noise.  The server's g is not the mean
    of the g_i: the noise of all rounds adds up in it.  Two data sets of a client move its message by up
    to 2 tau, which is what the accountant counts in every round.
    """
    return _algorithm(**parts)


@cached
def _algorithm(**parts: Any) -> Algorithm:
    given = only("clip21_sgd2m", parts, "sampler", "mechanism", "participation", "server")
    sampler = given.pop("sampler", sampling.poisson())
    estimator = estimators.minibatch(sampler, clip_examples=False)
    mechanism = given.get("mechanism", mechanisms.gaussian())
    body = body_of(
        given,
        estimator=estimator,
        mechanism=mechanisms.gaussian(),
        channel=_learned(),
        noise="per_client",
        local=_clipped_change(estimator, mechanism),
    )
    params = (momentum.SMOOTHNESS, GAP, *PRIVACY)
    rules = PaperRules(body)
    return by_rules(clip21_sgd2m, "Islamov et al., 2025", rules, params, follows=("lr",))


@made
def _clipped_change(estimator: Estimator, mechanism: Mechanism) -> Local:
    """c_i + xi_i, where v_i and g_i, which the client alone knows, are moved without the noise."""

    def init(problem: Problem, x: Array) -> tuple[PyTree, PyTree]:
        zero = jnp.zeros((problem.n, x.size), x.dtype)
        return (), (jnp.zeros(problem.n, jnp.int32), zero, zero)

    def run(
        client: Client, x: Array, shared: PyTree, memory: PyTree, problem: Problem, hp: Hyper
    ) -> tuple[Array, PyTree, Array]:
        rounds, v, g = memory
        beta = hp["momentum"]
        rows = estimator.sampler.draw(client.rows, rounds, client.count, problem.m_max, hp)
        weight = rows.weight.astype(x.dtype)
        point = at_point(estimator.gradient, problem.model, (), x, hp)
        slope, _ = evaluated(point, weight, client.take(rows), client.points)
        v = (1 - beta) * v + beta * (slope + point.public)
        c = clip(v - g, hp["clip"], point.kernel.smooth)
        sent = c + normal(client.noise, mechanism, c, hp)
        return sent, (rounds + 1, v, g + hp["shift"] * c), jnp.sum(weight > 0, dtype=jnp.int32)

    def message_bound(values: Mapping[str, Any]) -> tuple[float, float]:
        return float(values["clip"]), float(values["sigma"])

    return Local("clipped change", init, run, message_bound, params=(TAU, BETA, GAMMA))


@made
def _learned() -> Channel:
    """The server's end of g: ``g <- g + gamma (1/n) sum_S message_i``."""

    def init(n: int, x: Array, fused: bool) -> tuple[PyTree, PyTree]:
        return (), jnp.zeros_like(x)

    def receive(
        g: Array, mean: Array, rate: Array, hp: Hyper, moved: PyTree
    ) -> tuple[Array, PyTree]:
        g = g + hp["shift"] * rate * mean
        return g, g

    return channels.direct()._replace(name="added up", init=init, receive=receive, remembers=True)


class PaperRules(NamedTuple):
    """The hyper-parameters of a run, and what its rounds release."""

    body: Federated

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then our choices."""
        N = Draft.of(given, facts)
        N.private(self.body, facts)
        N.default("momentum", 0.5, OURS)
        N.default("shift", 0.5, OURS)
        N.batch(self.body, facts)
        return N.plan()

    def finish(self, N: Draft, noise: Noise, facts: ProblemFacts) -> None:
        """The step size: half of what keeps the three averages stable, less where noise adds up."""
        L, T, sigma = float(N["smoothness"]), N["rounds"], float(N.values.get("sigma", 0.0))
        gamma = float(N["shift"])
        eta = (float(N["momentum"]) + gamma) / (2 * L)
        if sigma > 0:
            moved = gamma * sigma * math.sqrt(facts.d * T**3 / (3 * facts.n))
            eta = min(eta, math.sqrt(2 * N["gap"] / L) / moved)
        why = "min((beta + gamma)/(2L), sqrt(6 n gap/(L d T^3))/(gamma sigma))"
        N.theorem("lr", eta, f"{why}, {OURS}")

    def event(self, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """T releases that all of a client's data move by at most 2 tau each, whatever was drawn."""
        tau = float(values["clip"])
        whole = events.Sampling("full", 1, 1)  # of one client, which counts as one record
        moves = events.Mean(tau, over_b=2.0, mean=2.0, whole=tau)

        def part(some: transcript.Rounds) -> events.Event:
            return events.Event(whole, moves, some.std, some.number, unit="client")

        return transcript.in_turns(part, self.body, values, facts)
