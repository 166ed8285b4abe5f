"""Clip21-SGD2M, alpha-NormEC and Fed-alpha-NormEC: clients shorten the changes of their gradients.

R. Islamov, S. Horvath, A. Lucchi, P. Richtarik, E. Gorbunov: Double Momentum and Error Feedback for
Clipping with Fast Rates and Differential Privacy.  2025.  It adds momentum to Clip21 [S. Khirirat,
E. Gorbunov, S. Horvath, R. Islamov, F. Karray, P. Richtarik, 2023].  Written from the description of
the method, without its authors' code.

A client's v_i and g_i are private, since they are moved by what the client computed before the noise:
no record's influence on a message is bounded by a share of 1/m.  What is proven is what clipping
alone gives: whatever a client's records are, its message without noise is in a ball of radius tau, so
that two data sets move it by at most 2 tau, given all messages before.  That holds for all records of
a client at once, and no sampling amplifies it.

E. Shulgin, S. Khirirat, P. Richtarik: Smoothed Normalization for Efficient Distributed Private
Optimization.  2025.  The same of messages shorter than 1 holds for alpha-NormEC; for one record more can
be said [:func:`alpha_normec`].

E. Shulgin, G. Malinovsky, S. Khirirat, P. Richtarik: First Provable Guarantees for Practical Private FL:
Beyond Restrictive Assumptions.  2025.  Fed-alpha-NormEC takes local steps, and some of the clients.
Written from the description of the method, without the paper's text.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Unpack

import jax
import jax.numpy as jnp

from jaxfl.algorithms.composition import by_rules
from jaxfl.algorithms.numbers import GAP, PRIVACY, Draft, Parts, applies, local_body
from jaxfl.algorithms.roles import cached
from jaxfl.core.derivatives import loop
from jaxfl.core.params import choice
from jaxfl.core.provenance import made
from jaxfl.core.types import (
    LARGEST,
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
from jaxfl.parts import channels, estimators, momentum, sampling, servers
from jaxfl.parts.gradients import at_point, evaluated
from jaxfl.parts.local import LOCAL_LR, LOCAL_STEPS
from jaxfl.parts.mechanisms import normal
from jaxfl.privacy import events
from jaxfl.privacy.events import worst
from jaxfl.problems.clipping import clip
from jaxfl.rounds import transcript
from jaxfl.rounds.federated import Federated

__all__ = ["alpha_normec", "clip21_sgd2m", "fed_alpha_normec"]

TAU = Param("clip", "bound tau on the norm of what a client sends, noise left out", open_low=True)
BETA = Param(
    "momentum", "weight beta of today's gradient in a client's average v_i", open_low=True, high=1.0
)
GAMMA = Param("shift", "step gamma of g_i and g towards the gradients", open_low=True, high=1.0)
ALPHA = Param(
    "smoothing", "length alpha at which normalization begins", open_low=True, high=LARGEST
)
RATE = Param("shift", "step beta of h_i and v along what is sent", open_low=True, high=LARGEST)
LENGTH = Param("server_lr", "length eta of a step of the server", high=LARGEST, schedule=True)
UNITS = ("client", "record")
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
    unclipped = functools.partial(estimators.minibatch, clip_examples=False)
    body = local_body(
        "clip21_sgd2m", parts, _shortened_change, sampling.poisson(), unclipped, channel=_learned()
    )
    params = (momentum.SMOOTHNESS, GAP, *PRIVACY)
    rules = PaperRules(body)
    return by_rules(clip21_sgd2m, "Islamov et al., 2025", rules, params, follows=("lr",))


def alpha_normec(
    *, unit: Literal["client", "record"] = "client", **parts: Unpack[Parts]
) -> Algorithm:
    """alpha-NormEC: smoothly normalized changes of gradients, with noise, and normalized steps::

        u_i = N(grad f_i(x) - h_i),  N(v) = v/(alpha + |v|),  send u_i + xi_i,  h_i <- h_i + beta u_i
        v <- v + (beta/n) sum_i (u_i + xi_i),  x <- x - eta v/|v|

    A message without its noise is shorter than 1, whatever the client's records are.  So two data sets of a
    client move it by less than 2, which is what the accountant counts in every round.

    With ``unit="record"`` one record is protected: batches are full, and examples are clipped to G.  In
    round t a record changes grad f_i by e_t, ``|e_t| <= D = 2G/m``, and h_i by w_t, w_0 = 0.  N is the
    gradient of a convex function, and Lipschitz with 1/alpha: u_i changes by ``y_t = J_t (e_t - w_t)``
    for a symmetric J_t between 0 and 1/alpha.  Hence ``<y_t, e_t - w_t> >= alpha |y_t|^2``, and
    w_{t+1} is w_t + beta y_t.  Its square is at most ``|w_t|^2 + 2 beta D |y_t| - beta (2 alpha - beta)
    |y_t|^2``.  For beta < 2 alpha these add up to ``sqrt(sum_t |y_t|^2) <= 2 D sqrt(T)/(2 alpha -
    beta)`` over T rounds, whatever the points x are, and gradients that turn around in every round
    reach that.  Gaussian releases whose squared shifts add up to at most S, along every transcript, are
    no easier to distinguish than one with shift sqrt(S) [Smith, Thakurta, 2022]: with one more release,
    of the rest of S, their loss has that law.
    """
    return _normalized(unit, **parts)


def fed_alpha_normec(**parts: Unpack[Parts]) -> Algorithm:
    """Fed-alpha-NormEC: alpha-NormEC of local steps, with the clients that take part::

        theta_i <- x;  tau times:  theta_i <- theta_i - gamma grad f_i(theta_i)
        u_i = N((x - theta_i)/(tau gamma) - h_i),  N(v) = v/(alpha + |v|)
        send u_i + xi_i,  h_i <- h_i + beta u_i     (client, if it takes part)
        v <- v + (beta/n) sum_S (u_i + xi_i),  x <- x - eta v/|v|

    ``lr`` is gamma, the length of one local step, and ``server_lr`` eta.  Clients that do not take part
    keep their h_i: without noise v is the mean of all h_i.  With ``server=servers.averaging()``
    x moves by -eta v.  For tau = 1 and all clients it is :func:`alpha_normec`, whose statement for whole
    clients holds here, too: it rests on the length of a message alone.  Drawing clients does not amplify
    it, since an adversary sees who sends.
    """
    return _normalized("client", True, **parts)


@cached
def _normalized(unit: str, several: bool = False, **parts: Any) -> Algorithm:
    choice("unit", unit, UNITS)
    make = fed_alpha_normec if several else alpha_normec
    local = functools.partial(_shortened_change, normalized=True, several=several)
    roles = {"channel": _learned(), "server": servers.normalized(*[LENGTH] * several)}
    body = local_body(make.__name__, parts, local, sampling.full(), estimators.minibatch, **roles)
    why = "whose statement for records covers full batches alone: leave the sampler or unit='record' out"
    sampler = body.estimator.sampler
    applies(unit == "client" or sampler.whole, "alpha_normec", why, sampler=sampler)
    params = (momentum.SMOOTHNESS, GAP, *PRIVACY)
    return by_rules(make, "Shulgin et al., 2025", NormRules(body, unit, several), params)


@made
def _shortened_change(
    estimator: Estimator, mechanism: Mechanism, normalized: bool = False, several: bool = False
) -> Local:
    """c_i + xi_i, where v_i and g_i, which the client alone knows, are moved without the noise.

    ``normalized`` takes N for clipping, and gradients for their averages v_i; ``several`` takes the mean
    gradient of local steps.
    """

    def init(problem: Problem, x: Array) -> tuple[PyTree, PyTree]:
        zero = jnp.zeros((problem.n, x.size), x.dtype)
        return (), (jnp.zeros(problem.n, jnp.int32), () if normalized else zero, zero)

    def run(
        client: Client, x: Array, shared: PyTree, memory: PyTree, problem: Problem, hp: Hyper
    ) -> tuple[Array, PyTree, Array]:
        rounds, v, g = memory
        tau = hp["local_steps"] if several else jnp.int32(1)

        def step(s: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            theta, total, gradients = carry
            first = rounds * tau + s
            rows = estimator.sampler.draw(client.rows, first, client.count, problem.m_max, hp)
            weight = rows.weight.astype(x.dtype)
            point = at_point(estimator.gradient, problem.model, (), theta, hp)
            key = jax.random.fold_in(client.points, s) if several else client.points
            slope = evaluated(point, weight, client.take(rows), key)[0] + point.public
            theta = theta - hp["lr"] * slope if several else theta
            return theta, total + slope, gradients + jnp.sum(weight > 0, dtype=jnp.int32)

        start = x, jnp.zeros_like(x), jnp.int32(0)
        most = hp.caps.get("local_steps")
        _, slope, gradients = loop(tau, most, step, start) if several else step(jnp.int32(0), start)
        if normalized:
            alpha = hp["smoothing"]
            c = clip(slope / tau.astype(x.dtype) - g, alpha, smooth=True) / alpha
        else:
            beta = hp["momentum"]
            v = (1 - beta) * v + beta * slope
            c = clip(v - g, hp["clip"], problem.model.kernel.smooth)
        sent = c + normal(client.noise, mechanism, c, hp)
        return sent, (rounds + 1, v, g + hp["shift"] * c), gradients

    def message_bound(values: Mapping[str, Any]) -> tuple[float, float]:
        return 1.0 if normalized else float(values["clip"]), float(values["sigma"])

    name = f"{'normalized' if normalized else 'clipped'} change"
    params: tuple[Param, ...] = (ALPHA, RATE) if normalized else (TAU, BETA, GAMMA)
    params += (LOCAL_LR, LOCAL_STEPS) if several else ()
    return Local(name, init, run, message_bound, params=params)


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
        N.target(facts, "n")
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
        return transcript.of_clients(self.body, values, facts, lambda now: float(now["clip"]))


class NormRules(NamedTuple):
    """The hyper-parameters of alpha-NormEC, and what its rounds release."""

    body: Federated
    unit: str
    several: bool = False  # local steps

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then our choices."""
        N = Draft.of(given, facts)
        N.clip(self.unit == "record")
        N.parts(self.body, facts)
        N.batch(self.body, facts)
        N.target(facts, "n" if self.unit == "client" else "m")
        N.default("smoothing", 1.0, OURS)
        N.default("shift", 0.1, OURS)
        N.default("gap", 1.0)
        eta = math.sqrt(2 * float(N["gap"]) / (N.smoothness(facts) * N["rounds"]))
        if self.several:
            N.default("local_steps", 5)
            N.theorem(
                "lr", 1 / (2 * N.smoothness(facts) * N["local_steps"]), f"1/(2 tau L), {OURS}"
            )
        N.theorem("server_lr" if self.several else "lr", eta, f"sqrt(2 gap/(L T)), {OURS}")
        return N.plan()

    def event(self, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """T releases, which a client moves by less than 2, and a record by the bound of the docstring."""
        body = self.body
        if self.unit == "client":
            return transcript.of_clients(body, values, facts, lambda now: 1.0)
        # a record may move most where the noise is least
        sigma = transcript.least_noise(body, values, facts)
        turns = transcript.turns(body, values, facts)
        alpha, beta, G = (float(values[name]) for name in ("smoothing", "shift", "clip"))
        if beta >= 2 * alpha:
            return events.NoClaim(
                f"shift = {beta:g} is not below 2 smoothing = {2 * alpha:g}, and nothing bounds what "
                "a record moves: lower shift, or protect clients"
            )

        def client(m: int) -> events.Event:
            mean = events.Mean(2 * G / (2 * alpha - beta), whole=1.0, averaged=True)
            return events.Event(events.Sampling("full", m, m), mean, sigma, turns)

        return worst(facts, client)
