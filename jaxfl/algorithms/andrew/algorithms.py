"""DP-FedAvg and DP-SGD with a clip that adapts to a quantile of what it clips.

G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy: Differentially Private Learning with Adaptive
Clipping.  NeurIPS 2021.  The paper has the first algorithm; the others are the same for records, and for
clients that add their own noise.

=====================  ===============  ==================  ==========================
algorithm              protected        noise               what is clipped
=====================  ===============  ==================  ==========================
adaptive_fedavg        a client         at the server       the report of tau steps
local_adaptive_fedavg  a client         on the report       the report of tau steps
adaptive_sgd           a record         at the server       gradients of records
local_adaptive_sgd     a record         on the message      gradients of records
=====================  ===============  ==================  ==========================

The clip is made of released bits [:mod:`jaxfl.parts.adaptive`], and ``sigma`` is a multiple of it.  Step
sizes, the share of clients as noise of bits, and all defaults but the quantile are chosen by jaxfl.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Unpack

from jaxfl.algorithms.clients import of_a_server
from jaxfl.algorithms.composition import by_rules
from jaxfl.algorithms.numbers import PRIVACY, Draft, Parts, body_of, only, reporting
from jaxfl.algorithms.roles import cached
from jaxfl.core.types import Algorithm, Cost, Noise, Plan, ProblemFacts
from jaxfl.parts import adaptive, estimators, local, mechanisms, momentum, sampling, servers
from jaxfl.privacy import events
from jaxfl.privacy.events import worst
from jaxfl.rounds import transcript
from jaxfl.rounds.federated import Federated

__all__ = ["adaptive_fedavg", "adaptive_sgd", "local_adaptive_fedavg", "local_adaptive_sgd"]

PAPER = "Andrew et al., NeurIPS 2021"
OURS = "chosen by jaxfl"


def adaptive_fedavg(**parts: Unpack[Parts]) -> Algorithm:
    """DP-FedAvg with a clip that adapts [Andrew et al., Algorithm 1]::

        g_i = clip_C(x - theta_i) after tau local steps,  s_i = 1/2 where nothing was clipped, else -1/2
        x <- x - eta_g (sum_S g_i / r + z C xi),   b = 1/2 + sum_S s_i / r + (sigma_b/r) xi'
        C <- C exp(-eta_C (b - gamma))

    The server adds the noise.  All data of a client are protected.
    """
    return _algorithm("adaptive_fedavg", Kind(whole=True, central=True), **parts)


def local_adaptive_fedavg(**parts: Unpack[Parts]) -> Algorithm:
    """DP-FedAvg with a clip that adapts, of clients that trust no server: each adds its own noise::

        g_i = clip_C(x - theta_i) + z C xi_i,   s_i + sigma_b xi_i'
        x <- x - eta_g sum_S g_i / r,   C <- C exp(-eta_C (1/2 + mean of the noised s_i - gamma))

    All data of a client are protected, against who sees every message.
    """
    return _algorithm("local_adaptive_fedavg", Kind(whole=True, central=False), **parts)


def adaptive_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """DP-SGD with a clip that adapts::

        s_j = 1/2 where record j of a batch was not clipped, else -1/2
        x <- x - eta mean_i (mean_j clip_C grad f_ij(x)) - eta z C xi,   C <- C exp(-eta_C (b - gamma))

    with b = 1/2 plus the noised mean of the s_j.  The server adds the noise.
    """
    return _algorithm("adaptive_sgd", Kind(whole=False, central=True), **parts)


def local_adaptive_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """LDP-SGD with a clip that adapts: clients add their own noise to gradients and bits::

        g_i = mean_j clip_C grad f_ij(x) + z C xi_i,   s_i = mean_j s_ij + sigma_b xi_i'/b
        x <- x - eta mean_i g_i,   C <- C exp(-eta_C (1/2 + mean_i s_i - gamma))

    s_ij is 1/2 where record j was not clipped, else -1/2.
    """
    return _algorithm("local_adaptive_sgd", Kind(whole=False, central=False), **parts)


# --- what they share -----------------------------------------------------------------------------


class Kind(NamedTuple):
    """Choices in which the algorithms of this folder differ: the unit of privacy, and who adds noise."""

    whole: bool  # whether clients are protected, and not records
    central: bool  # whether the server adds the noise


@cached
def _algorithm(name: str, kind: Kind, **parts: Any) -> Algorithm:
    given = only(name, parts, "sampler", "mechanism", "participation", "server")
    usual = mechanisms.central() if kind.central else mechanisms.gaussian()
    mechanism = given.get("mechanism", usual)
    sampler = given.pop("sampler", sampling.shuffled() if kind.whole else sampling.poisson())
    rows = estimators.minibatch(sampler)
    if kind.whole:
        silent = mechanism if kind.central else mechanisms.noiseless()
        steps = adaptive.reports(local.steps(rows, silent, local.free()), mechanism)
    else:
        steps = adaptive.gradients(rows, mechanism)
    server = given.pop("server", servers.averaging() if kind.whole else servers.descent())
    body = body_of(
        given,
        estimator=adaptive.minibatch_in_units(sampler, kind.whole) if kind.central else rows,
        mechanism=usual,
        server=adaptive.of_values(server),
        local=steps,
        noise="per_client",
    )
    params = (momentum.SMOOTHNESS, *PRIVACY)
    made = by_rules(globals()[name], PAPER, Rules(body, kind), params, follows=("bit_noise",))

    def cost(values: Mapping[str, Any], facts: ProblemFacts) -> Cost:
        """The cost with one number more in both directions: the bits, and the clip."""
        return made.cost(values, facts._replace(d=facts.d + 1))

    return made._replace(cost=cost)


class Rules(NamedTuple):
    """The hyper-parameters of a run, and what its rounds release."""

    body: Federated
    kind: Kind

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then the paper's, then our choices."""
        body, N = self.body, Draft.of(given, facts)
        N.default("clip", 0.1, "as in the paper")
        N.default("quantile", 0.5, "as in the paper")
        N.default("clip_lr", 0.2, "as in the paper")
        N.parts(body, facts)
        N.batch(body, facts)
        if self.kind.whole:
            N.default("local_steps", 5)
            N.default("server_lr", 1.0)
        L = N.smoothness(facts)
        N.default("lr", 1 / L, f"1/L, {OURS}")
        N.target(facts, "n" if self.kind.whole else "m")
        return N.plan()

    def finish(self, N: Draft, noise: Noise, facts: ProblemFacts) -> None:
        """The noise of the bits: r/20 of r values as in the paper, or more where z_total is."""
        values, kind = N.values, self.kind
        each = 1.0 if kind.whole else float(values.get("batch", facts.m))
        r = each * (reporting(self.body, values, facts.n) if kind.central else 1.0)
        z = r * float(values.get("sigma", 0.0))  # of a value's share, 1/r
        least = 2.0 if kind.whole and kind.central else 1.0
        ratio = max(least, r / (20 * z)) if z > 0 else least
        N.theorem("bit_noise", ratio, f"max({least:g}, r/(20 z_total)) of r values, {OURS}")

    def event(self, values: Mapping[str, Any], facts: ProblemFacts) -> Any:
        """Messages in units of the clip: of norm 1, or means of shares of norm 1."""
        body, kind = self.body, self.kind
        if kind.whole and kind.central:
            return of_a_server(body, values, facts, 1.0)
        if kind.whole:
            return transcript.of_clients(body, values, facts, lambda now: 1.0)
        if not kind.central:
            return transcript.event(body, {**values, "clip": 1.0}, facts)
        r, sampler = reporting(body, values, facts.n), body.estimator.sampler
        trust: Any = "single_node" if facts.n == 1 else "trusted_server"

        def client(m: int) -> Any:
            def part(some: transcript.Rounds) -> events.Event:
                rows = transcript.drawn(sampler, some.values, facts, m)
                share = events.Mean(facts.weight(m) / r)
                return events.Event(rows, share, some.std, some.number, trust=trust)

            return transcript.in_turns(part, body, values, facts)

        return worst(facts, client)
