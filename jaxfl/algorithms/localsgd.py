"""Local SGD: several steps of each client between two rounds.

R. Hu, Y. Guo, Y. Gong: Concentrated Differentially Private and Utility Preserving Federated
Learning.  2020.  Beside it, its baseline and its non-private and user-level neighbours.

===================  ===========  ==================  ==================  ================
algorithm            local steps  pull                noise               the server sees
===================  ===========  ==================  ==================  ================
private_local_sgd    tau          none                in every step       the sum
local_dp_sgd         1            none                in every step       messages
dp_fedavg            tau          none                server, per client  messages
fedavg               tau          none                none                messages
fedprox              tau          to the server's x   none                messages
scaffold             tau          control variates    none                messages
===================  ===========  ==================  ==================  ================

Minibatches are shuffled epochs without replacement that go on from round to round.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict, Unpack

import optax

from jaxfl import (
    aggregations,
    channels,
    compressors,
    estimators,
    local,
    mechanisms,
    sampling,
    servers,
    theory,
)
from jaxfl.algorithms.compose import compose
from jaxfl.errors import InputError
from jaxfl.rounds import Federated
from jaxfl.types import (
    Aggregation,
    Algorithm,
    Compressor,
    Facts,
    Hyper,
    Mechanism,
    Param,
    Participation,
    Resolved,
    Sampler,
    Server,
)

__all__ = ["dp_fedavg", "fedavg", "fedprox", "local_dp_sgd", "private_local_sgd", "scaffold"]

PAPER = "Hu, Guo, Gong, 2020"
PRIVACY = (
    Param("eps", "privacy that sigma is calibrated for", open_low=True),
    Param("delta", "privacy failure probability, below 1", open_low=True, high=1 - 1e-9),
)
SMOOTHNESS = Param(
    "smoothness", "smoothness L of every example's loss, instead of the model's", open_low=True
)


class Parts(TypedDict, total=False):
    """What a user may exchange in any of these algorithms."""

    optimizer: Callable[[Hyper], optax.GradientTransformation]  # of the clients; default SGD
    sampler: Sampler
    participation: Participation
    compressor: Compressor
    server: Server
    aggregation: Aggregation
    fresh: bool  # a new epoch in every round
    convex: bool  # the user knows that every clipped loss is convex and smooth
    clip: str
    noise: str


class Kind(NamedTuple):
    """What tells these algorithms apart."""

    pull: Callable[[], local.Pull] = local.free
    mechanism: Callable[[], Mechanism] = mechanisms.noiseless
    aggregation: Callable[[], Aggregation] = aggregations.plain_sum
    bounded: bool = False
    once: bool = False


def private_local_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """Private local SGD with secure aggregation [Algorithm 1]::

        theta_i <- x;  tau times:
            theta_i <- theta_i - eta (mean_{j in B} clip grad f_ij(theta_i) + b),  b ~ N(0, sigma^2 I)
        x <- (1/r) sum_{i in S} theta_i

    ``convex=True`` states that every example's clipped loss is convex and smooth (that of a linear
    model with one output and a convex regularizer is, that of a softmax is not): then the sum hides
    more than a message where a round uses no record twice, and otherwise only for tau = 1
    [:class:`jaxfl.privacy.events.LocalSteps`].  Steps of another ``optimizer`` than SGD are no sums
    of gradients and noise: there the sum is proven to hide no more than a message.
    """
    kind = Kind(mechanism=_gaussian, aggregation=aggregations.secure_sum)
    return _algorithm("private_local_sgd", kind, PAPER, **parts)


def local_dp_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """The paper's DP-SGD baseline: one noisy step per round, and every model is seen::

        theta_i = x - eta (mean_{j in B} clip grad f_ij(x) + b),  b ~ N(0, sigma^2 I)
        x <- (1/r) sum_{i in S} theta_i

    There is no secure aggregation: what is proven holds against a server that sees every theta_i.
    """
    return _algorithm("local_dp_sgd", Kind(mechanism=_gaussian, once=True), PAPER, **parts)


def dp_fedavg(**parts: Unpack[Parts]) -> Algorithm:
    """DP-FedAvg, user-level privacy with a trusted server [McMahan et al., ICLR 2018]::

        g_i = clip_S(x - theta_i) after tau local steps;   x <- x - eta_g (sum_S g_i / r + xi)

    xi ~ N(0, sigma^2 I) is the server's.  What is protected is all of a client's data; clients drawn
    by Poisson participation are hidden among the others, since only the model is seen.
    """
    kind = Kind(mechanism=_central, bounded=True)
    return _algorithm("dp_fedavg", kind, "McMahan et al., ICLR 2018", **parts)


def fedavg(**parts: Unpack[Parts]) -> Algorithm:
    """FedAvg: :func:`private_local_sgd` without noise [McMahan et al., 2017]::

        theta_i <- x;  tau times:  theta_i <- theta_i - eta mean_{j in B} grad f_ij(theta_i)
        x <- (1/r) sum_{i in S} theta_i

    Not private.
    """
    return _algorithm("fedavg", Kind(), "McMahan et al., AISTATS 2017", **parts)


def fedprox(**parts: Unpack[Parts]) -> Algorithm:
    """FedProx: local steps on ``f_i + mu/2 |theta - x|^2`` [Li et al., 2020]::

        theta_i <- x;  tau times:
            theta_i <- theta_i - eta (mean_{j in B} grad f_ij(theta_i) + mu (theta_i - x))
        x <- (1/r) sum_{i in S} theta_i

    Not private.
    """
    return _algorithm("fedprox", Kind(local.proximal), "Li et al., MLSys 2020", **parts)


def scaffold(**parts: Unpack[Parts]) -> Algorithm:
    """SCAFFOLD: local steps along ``g - c_i + c`` [Karimireddy et al., 2020, option II]::

        theta_i <- x;  tau times:  theta_i <- theta_i - eta (mean_{j in B} grad f_ij(theta_i) - c_i + c)
        c_i' = c_i - c + (x - theta_i)/(tau eta),  c <- c + (1/n) sum_{i in S} (c_i' - c_i),  c_i <- c_i'
        x <- (1/r) sum_{i in S} theta_i

    Not private.
    """
    if "optimizer" in parts:
        raise InputError(
            "optimizer does not apply to scaffold, whose control variates are made of SGD steps: "
            "leave it out."
        )
    return _algorithm("scaffold", Kind(local.control), "Karimireddy et al., ICML 2020", **parts)


# --- what they share -----------------------------------------------------------------------------

# Parts are made once: equal calls give equal algorithms, and a compiled round is found again.
_minibatch = functools.cache(estimators.minibatch)
_gaussian = functools.cache(mechanisms.gaussian)
_central = functools.cache(mechanisms.central)
_direct = functools.cache(channels.direct)
_averaging = functools.cache(servers.averaging)


@functools.cache
def _algorithm(
    name: str,
    kind: Kind,
    paper: str,
    *,
    optimizer: Callable[[Hyper], optax.GradientTransformation] | None = None,
    sampler: Sampler | None = None,
    participation: Participation | None = None,
    compressor: Compressor | None = None,
    server: Server | None = None,
    aggregation: Aggregation | None = None,
    fresh: bool = False,
    convex: bool = False,
    clip: str = "example",
    noise: str = "per_client",
) -> Algorithm:
    if clip != "example":
        raise InputError(f"clip = {clip!r} does not apply to {name}, which clips every example.")
    if noise != "per_client":
        raise InputError(
            f"noise = {noise!r} does not apply to {name}, whose clients draw their own noise."
        )
    estimator, mechanism = _minibatch(sampler or sampling.shuffled()), kind.mechanism()
    chosen = aggregation or kind.aggregation()
    body = Federated(
        estimator=estimator,
        mechanism=mechanism,
        compressor=compressor or compressors.identity(),
        channel=_direct(),
        server=server or _averaging(),
        participation=participation or sampling.everyone(),
        noise=noise,
        local=local.steps(
            estimator, mechanism, kind.pull(), optimizer, fresh, kind.bounded, kind.once
        ),
        aggregation=None if chosen.name == "plain_sum" else chosen,
    )
    private = mechanism.std is not None
    promise = Promise(body, kind, fresh, convex, optimizer is None)
    summary = (globals()[name].__doc__ or "").split(":", 1)[0].split("[")[0].strip().rstrip(".")
    return compose(
        name,
        summary.split(",")[0],
        paper,
        body,
        functools.partial(_resolve, promise),
        (SMOOTHNESS, *PRIVACY) if private else (SMOOTHNESS,),
        promise.claim if private and not mechanism.central else None,
        promise.event,
    )


class Promise(NamedTuple):
    """What a run releases, and what the paper says of it."""

    body: Federated
    kind: Kind
    fresh: bool
    convex: bool
    plain: bool  # steps of SGD: another optimizer's are no sums, and hide nothing in a sum of them

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
        if not self.plain:
            body = body._replace(aggregation=None)
        tau, r = int(values.get("local_steps", 1)), body.noises(values, facts)
        sampler = body.estimator.sampler
        if sampler.name != "shuffled":
            if tau == 1:
                return body.event(values, facts)
            each = {**values, "turns": body.turns(values, facts) * tau}
            return body._replace(aggregation=None).event(each, facts)
        sigma, turns, b = float(values["sigma"]), body.turns(values, facts), float(values["batch"])
        hidden = self.body.aggregation is not None
        convex = self.convex and self.plain and self._contracts(values, facts)
        steps = events.LocalSteps(values["clip"], tau, r, convex=convex, fresh=self.fresh)

        def client(m: int) -> Any:
            return events.Event(
                events.Sampling("shuffled", m, b),
                steps,
                sigma,
                turns,
                trust="secure_sum" if hidden else "local_transcript",
            )

        if len(facts.sizes) == 1:
            return client(facts.m)
        return events.Phases(tuple(client(m) for m in facts.sizes), together=True)

    def _contracts(self, values: Mapping[str, Any], facts: Facts) -> bool:
        """eta <= 2/L, as far as L is known, and clipped losses that are convex, as far as that is."""
        if facts.contracts is False:
            return False
        L = values.get("smoothness", facts.smoothness)
        return L is not None and local.largest(values["lr"], values["rounds"]) <= 2 / L

    def _of_a_client(self, values: Mapping[str, Any], facts: Facts) -> Any:
        """One client's update has norm at most S, and is divided by r."""
        from jaxfl.privacy import events

        body, n = self.body, facts.n
        name, S = body.participation.name, float(values["update_clip"])
        r = self.heard(values, n)
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

    def heard(self, values: Mapping[str, Any], n: int) -> float:
        """Clients among whom a mean is taken, at least."""
        participation = self.body.participation
        if participation.least is not None:
            return participation.least(n, values)
        return n if participation.everyone else float(values["cohort"])

    def claim(self, values: Mapping[str, Any], facts: Facts, eps: float | None = None) -> Any:
        """Theorem 1, or the formula of the baseline; with ``eps``, of the noise that it asks for."""
        from jaxfl.privacy import formulas

        sigma = None if eps is not None else float(values["sigma"])
        if sigma == 0 or not self.plain or self.body.estimator.sampler.name != "shuffled":
            return None
        G, b, turns = values["clip"], int(values["batch"]), self.body.turns(values, facts)
        if self.kind.once and self.body.aggregation is None:
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


def _resolve(promise: Promise, given: Mapping[str, Any], facts: Facts) -> Resolved:
    """The user's numbers, then the paper's, then defaults that say so."""
    body, v, why = promise.body, dict(given), dict.fromkeys(given, "given")

    def default(name: str, value: Any, source: str) -> None:
        if name not in v:
            v[name], why[name] = value, source

    if facts.rounds is None:
        raise InputError("rounds is not given, and this algorithm has no theory to choose it.")
    private, central = body.mechanism.std is not None, body.mechanism.central
    names = {param.name for owner in (body.local, body.server) if owner for param in owner.params}
    if private and "sigma" in given and "eps" in given:
        raise InputError(
            f"eps = {given['eps']!r} and sigma = {given['sigma']!r} are both given: eps is turned "
            "into sigma, so give one of them."
        )
    if private and not central and math.isinf(given.get("clip", 1.0)) and "sigma" not in given:
        raise InputError(
            "clip = inf bounds no example, so that no noise is enough for any eps: give a finite clip."
        )
    default("rounds", facts.rounds, "given")
    default("clip", 1.0 if private and not central else math.inf, "default")
    for name, value in body.compressor.resolve(given, facts.d).items():
        default(name, value, "from omega" if "omega" in given else "default")
    v["omega"], why["omega"] = body.compressor.omega(facts.d, v), "achieved"
    if any(param.name == "cohort" for param in body.participation.params):
        default("cohort", max(1, facts.n // 10), "default: a tenth of the clients")
    if body.estimator.sampler.params:
        default("batch", min(32, facts.m), "default")
    if "local_steps" in names:
        default("local_steps", 5, "default")
    L, tau = v.get("smoothness", facts.smoothness), v.get("local_steps", 1)
    if L is not None:
        default("lr", float(theory.local_step(L, tau)), "Theorem 2: the largest step")
    default("lr", 0.1, "default: L of this model is unknown")
    for name, value in (("server_lr", 1.0), ("prox", 0.1), ("update_clip", 1.0)):
        if name in names:
            default(name, value, "default")
    if promise.convex:
        _one_pass(promise, v, facts)
    if private:
        default("eps", 5.0, "default")
        default("delta", min(1e-3, 0.1 / (facts.n if central else facts.m_max)), "default")
        _noise(promise, v, why, facts)
    return Resolved(v, why)


def _one_pass(promise: Promise, v: Mapping[str, Any], facts: Facts) -> None:
    """What amplification by iteration needs, convexity where it is known."""
    tau = int(v.get("local_steps", 1))
    for m in {facts.m, facts.m_max}:
        length = m // int(v["batch"]) if "batch" in v else 1
        if tau > 1 and (tau > length or (not promise.fresh and length % tau)):
            raise InputError(
                f"local_steps = {tau} does not divide the epoch of {length} batches, so that a round may "
                "use a record twice, and convex=True proves nothing: change batch or local_steps, or "
                "leave convex out."
            )
    if facts.contracts is False:
        raise InputError(
            "convex=True does not hold for this model, whose clipped losses are not convex: take a linear "
            "model with one output and an l2 regularizer or none, or leave convex out."
        )
    if not promise.plain:
        raise InputError(
            "convex=True proves something of SGD's steps alone: leave it or the optimizer out."
        )


def _noise(promise: Promise, v: dict[str, Any], why: dict[str, str], facts: Facts) -> None:
    """sigma by the paper's formula for eps, or what the formula says of a given sigma."""
    if promise.body.mechanism.central:
        from jaxfl.privacy.gaussian import gdp_eps, gdp_mu

        r, T = promise.heard(v, facts.n), v["rounds"]
        shift = float(v["update_clip"]) * math.sqrt(T) / r
        where = "Gaussian releases, no amplification"
        if "sigma" in v:
            eps = float(gdp_eps(shift / v["sigma"], v["delta"])) if v["sigma"] else math.inf
            v["eps"], why["eps"] = eps, f"{where}, from sigma"
        else:
            v["sigma"], why["sigma"] = shift / float(gdp_mu(v["eps"], v["delta"])), where
        return
    where = "Theorem 1" if not promise.kind.once else "the paper's formula"
    if "sigma" in v:
        claim = promise.claim(v, facts)
        v["eps"] = claim.eps if claim else math.inf
        why["eps"] = f"{where}, from sigma" if claim else "no formula for these parts"
        return
    claim = promise.claim(v, facts, eps=v["eps"])
    v["sigma"] = claim.sigma if claim else math.nan
    why["sigma"] = where if claim else "no formula for these parts"
