"""Local SGD: several steps of each client between two rounds.

R. Hu, Y. Guo, Y. Gong: Concentrated Differentially Private and Utility Preserving Federated
Learning.  2020.  Besides it, its baseline and its non-private and user-level neighbours.

===================  ===========  ==================  ==================  ================
algorithm            local steps  pull                noise               the server sees
===================  ===========  ==================  ==================  ================
private_local_sgd    tau          none                in every step       the sum
local_dp_sgd         1            none                in every step       messages
dp_fedavg            tau          none                server, per client  messages
local_dp_fedavg      tau          none                on the report       messages
skellam_fedavg       tau          none                on integers         the sum
discrete_fedavg      tau          none                on integers         the sum
fedavg               tau          none                none                messages
fedprox              tau          to the server's x   none                messages
scaffold             tau          control variates    none                messages
dp_scaffold          tau          control variates    in every step       messages
shifted_local_sgd    tau          none                in every step       messages
===================  ===========  ==================  ==================  ================

Minibatches are shuffled epochs without replacement that continue from round to round, and of dp_scaffold
Poisson draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Unpack

import optax

from jaxfl.algorithms import numbers
from jaxfl.algorithms.clients import of_a_server
from jaxfl.algorithms.composition import by_rules
from jaxfl.algorithms.hu import claims, theory
from jaxfl.algorithms.numbers import PRIVACY, Draft, applies, body_of, only, reporting
from jaxfl.algorithms.roles import cached, part
from jaxfl.core.errors import InputError, require
from jaxfl.core.params import number
from jaxfl.core.types import (
    Aggregation,
    Algorithm,
    Asked,
    Channel,
    Compressor,
    Eps,
    Hyper,
    Mechanism,
    Plan,
    ProblemFacts,
    Sampler,
)
from jaxfl.parts import (
    aggregations,
    channels,
    estimators,
    local,
    mechanisms,
    rings,
    sampling,
    servers,
)
from jaxfl.parts.compressors import identity, random_k
from jaxfl.parts.momentum import SMOOTHNESS
from jaxfl.privacy import events
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.claims import Claim
from jaxfl.privacy.events import RingNoise, worst
from jaxfl.rounds import transcript
from jaxfl.rounds.federated import Federated

__all__ = [
    "discrete_fedavg",
    "dp_fedavg",
    "dp_scaffold",
    "fedavg",
    "fedprox",
    "local_dp_fedavg",
    "local_dp_sgd",
    "private_local_sgd",
    "scaffold",
    "shifted_local_sgd",
    "skellam_fedavg",
]

PAPER = "Hu, Guo, Gong, 2020"


class Parts(numbers.Parts, total=False):
    """Parts and options that a user may exchange in any of these algorithms."""

    optimizer: Callable[[Hyper], optax.GradientTransformation]  # of the clients; default SGD
    fresh: bool  # a new epoch in every round
    convex: bool  # the user knows that every clipped loss is convex and smooth


class Variant(NamedTuple):
    """Parts and rules in which the algorithms of this folder differ."""

    paper: str = PAPER
    pull: Callable[[], local.Pull] = local.free
    mechanism: Callable[[], Mechanism] = mechanisms.noiseless
    aggregation: Callable[[], Aggregation] = aggregations.plain_sum
    bounded: bool = False  # whether updates are clipped
    last: bool = False  # whether their noise is added then, and not in every step
    once: bool = False  # one step a round, by the paper's baseline
    claims: bool = True  # whether a formula of the paper's applies to its noise
    sampler: Callable[[], Sampler] = sampling.shuffled
    compressor: Callable[[], Compressor] = identity
    channel: Callable[[], Channel] = channels.direct
    ring: tuple[RingNoise, float, int] | None = (
        None  # noise in the sum, its deviation, bits of words
    )


def private_local_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """Private local SGD with secure aggregation [Algorithm 1]::

        theta_i <- x;  tau times:
            theta_i <- theta_i - eta (mean_{j in B} clip grad f_ij(theta_i) + b),  b ~ N(0, sigma^2 I)
        x <- (1/r) sum_{i in S} theta_i

    Each step draws its noise b in :mod:`jaxfl.parts.local`.
    ``convex=True`` states that every example's clipped loss is convex and smooth (that of a linear
    model with one output and a convex regularizer is, that of a softmax is not): then the sum hides
    more than a message where a round uses no record twice, and otherwise only for tau = 1
    [:class:`jaxfl.privacy.events.LocalSteps`].  Steps of another ``optimizer`` than SGD are no sums
    of gradients and noise: there the sum is proven to hide no more than a message.
    """
    kind = Variant(mechanism=mechanisms.gaussian, aggregation=aggregations.secure_sum)
    return _algorithm("private_local_sgd", kind, **parts)


def local_dp_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """The DP-SGD baseline of Hu et al.: one noisy step per round, and every model is seen::

        theta_i = x - eta (mean_{j in B} clip grad f_ij(x) + b),  b ~ N(0, sigma^2 I)
        x <- (1/r) sum_{i in S} theta_i

    There is no secure aggregation: what is proven holds against a server that sees every theta_i.
    """
    kind = Variant(mechanism=mechanisms.gaussian, once=True)
    return _algorithm("local_dp_sgd", kind, **parts)


def dp_fedavg(**parts: Unpack[Parts]) -> Algorithm:
    """DP-FedAvg: user-level privacy with a trusted server [McMahan et al., ICLR 2018]::

        g_i = clip_S(x - theta_i) after tau local steps;   x <- x - eta_g (sum_S g_i / r + xi)

    The server adds xi ~ N(0, sigma^2 I).  All data of a client are protected.  Since only the model is
    seen, drawing clients at random amplifies privacy: by Poisson participation, and by uniform
    participation where a client's turn does not depend on its earlier turns (``fresh=True``, or batches
    drawn anew).  Epochs that continue from turn to turn count as taking part in every round.
    """
    kind = Variant("McMahan et al., ICLR 2018", mechanism=mechanisms.central, bounded=True)
    return _algorithm("dp_fedavg", kind, **parts)


def local_dp_fedavg(**parts: Unpack[Parts]) -> Algorithm:
    """DP-FedAvg of clients that trust no server: each adds its own noise to its clipped report::

        g_i = clip_S(x - theta_i) + xi_i after tau local steps,  xi_i ~ N(0, sigma^2 I)
        x <- x - eta_g sum_S g_i / r

    All data of a client are protected, against who sees every report, or with
    ``aggregation="secure_sum"`` the sums of them.
    """
    kind = Variant(
        "McMahan et al., ICLR 2018", mechanism=mechanisms.gaussian, bounded=True, last=True
    )
    return _algorithm("local_dp_fedavg", kind, **parts)


def skellam_fedavg(noise_std: float = 1024.0, bits: int = 32, **parts: Unpack[Parts]) -> Algorithm:
    """FedAvg with Skellam noise in a secure sum of integers [Agarwal, Kairouz, Liu, NeurIPS 2021]::

        g_i = clip_S(x - theta_i) after tau local steps
        c_i = round(H D g_i/p) + Z_i  mod 2^bits,  Z_i Skellam noise of deviation noise_std = sigma/p
        x <- x - (eta_g/r) p D H^T sum_{i in S} c_i

    :mod:`jaxfl.parts.rings` rotates, rounds and adds the noise.  The server sees the sum of the c_i alone.
    All data of a client are protected: its update is replaced by zero.  The proof counts integers, norms of
    rounded messages, and the table that draws the noise.  ``sigma`` is the deviation of one client's noise.
    Noise counts of as many clients as send at least, less those that collude.
    """
    return _ringed(
        "skellam_fedavg", "Agarwal, Kairouz, Liu, NeurIPS 2021", "skellam", noise_std, bits, **parts
    )


def discrete_fedavg(
    noise_std: float = 1024.0, bits: int = 32, rounded: bool = False, **parts: Unpack[Parts]
) -> Algorithm:
    """FedAvg with discrete Gaussian noise in a secure sum of integers [Kairouz, Liu, Steinke, ICML 2021]::

        c_i = round(H D g_i/p) + Z_i  mod 2^bits,  s = noise_std = sigma/p
        P[Z_i = k] proportional to exp(-k^2/(2 s^2))
        x <- x - (eta_g/r) p D H^T sum_{i in S} c_i

    All else is as in :func:`skellam_fedavg`.  Sums of such noise are nearly of the same kind, and the proof
    counts the difference.  With ``rounded``, Z_i are normal numbers, rounded.  Sums of these are nearly a
    rounded normal number, and no more noise is needed than without rounding.
    """
    law: RingNoise = "rounded_gaussian" if rounded else "discrete_gaussian"
    paper = "Kairouz, Liu, Steinke, ICML 2021"
    return _ringed("discrete_fedavg", paper, law, noise_std, bits, **parts)


def fedavg(**parts: Unpack[Parts]) -> Algorithm:
    """FedAvg: :func:`private_local_sgd` without noise [McMahan et al., 2017]::

        theta_i <- x;  tau times:  theta_i <- theta_i - eta mean_{j in B} grad f_ij(theta_i)
        x <- (1/r) sum_{i in S} theta_i

    Not private.
    """
    return _algorithm("fedavg", Variant("McMahan et al., AISTATS 2017"), **parts)


def fedprox(**parts: Unpack[Parts]) -> Algorithm:
    """FedProx: local steps on ``f_i + mu/2 |theta - x|^2`` [Li et al., 2020]::

        theta_i <- x;  tau times:
            theta_i <- theta_i - eta (mean_{j in B} grad f_ij(theta_i) + mu (theta_i - x))
        x <- (1/r) sum_{i in S} theta_i

    Not private.
    """
    return _algorithm("fedprox", Variant("Li et al., MLSys 2020", local.proximal), **parts)


def scaffold(**parts: Unpack[Parts]) -> Algorithm:
    """SCAFFOLD: local steps along ``g - c_i + c`` [Karimireddy et al., 2020, option II]::

        theta_i <- x;  tau times:  theta_i <- theta_i - eta (mean_{j in B} grad f_ij(theta_i) - c_i + c)
        c_i' = c_i - c + (x - theta_i)/(tau eta),  c <- c + (1/n) sum_{i in S} (c_i' - c_i),  c_i <- c_i'
        x <- (1/r) sum_{i in S} theta_i

    Not private.
    """
    return _controlled("scaffold", Variant("Karimireddy et al., ICML 2020", local.control), parts)


def dp_scaffold(**parts: Unpack[Parts]) -> Algorithm:
    """DP-SCAFFOLD: local steps along ``g~ - c_i + c`` of noised gradients g~::

        theta_i <- x;  tau times:  theta_i <- theta_i - eta (g~_i - c_i + c)
            g~_i = (1/b) sum_{j in B} clip grad f_ij(theta_i) + xi,  xi ~ N(0, sigma^2 I)
        c_i' = mean of the tau g~_i,  c <- c + (1/n) sum_{i in S} (c_i' - c_i),  c_i <- c_i'
        x <- x + eta_g (1/r) sum_{i in S} (theta_i - x)

    Control variates are made of noised gradients, and cost no privacy: what is proven counts tau releases
    of a Poisson batch in each of a client's rounds, and one record that is replaced, 2G/b where the
    authors' code has G/b.  Their theorem leaves out a constant: nothing is claimed.  A client sends
    theta_i - x, from which the server computes the sum of the c_i'; in the paper it sends both.
    """
    for role in ("aggregation", "convex"):
        why = "whose messages hold control variates, and no proof covers a sum of these"
        applies(not parts.get(role), "dp_scaffold", why, **{role: parts.get(role)})
    kind = Variant(
        "Noble, Bellet, Dieuleveut, AISTATS 2022",
        local.control,
        mechanisms.gaussian,
        claims=False,
        sampler=sampling.poisson,
    )
    return _controlled("dp_scaffold", kind, parts)


def shifted_local_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """Noised local steps under shifted compression: parts of two papers, published by none::

        theta_i <- x;  tau times:
            theta_i <- theta_i - eta (mean_{j in B} clip grad f_ij(theta_i) + b),  b ~ N(0, sigma^2 I)
        v_i = C_i(x - theta_i - s_i),  s_i <- s_i + gamma v_i
        v = s + (1/r) sum_{i in S} v_i,  x <- x - eta_g v,  s <- s + (gamma/n) sum_{i in S} v_i

    The local steps are those of Hu et al., and x - theta_i is compressed as SoteriaFL compresses a
    gradient.  Compression and shifts act on noised values alone, and cost no privacy.
    """
    for role in ("aggregation", "convex"):
        why = "whose messages are sparse, where a sum hides nothing: leave it out"
        applies(not parts.get(role), "shifted_local_sgd", why, **{role: parts.get(role)})
    kind = Variant(
        "Hu et al., 2020; Li et al., NeurIPS 2022",
        mechanism=mechanisms.gaussian,
        claims=False,
        compressor=random_k,
        channel=channels.shifted,
    )
    return _algorithm("shifted_local_sgd", kind, **parts)


# --- what they share -----------------------------------------------------------------------------


def _controlled(name: str, kind: Variant, parts: Parts) -> Algorithm:
    """Return an algorithm with control variates; raise for parts with which they would be false."""
    optimizer = parts.get("optimizer")
    why = "whose control variates are made of SGD steps: leave it out"
    applies(optimizer is None, name, why, optimizer=optimizer)
    chosen = part("compressor", parts.get("compressor")) or identity()
    why = "whose server takes c for the mean of control variates that clients keep uncompressed"
    applies(chosen.exact, name, f"{why}: leave it out", compressor=chosen)
    return _algorithm(name, kind, **parts)


def _ringed(
    name: str, paper: str, law: RingNoise, std: float, bits: int, **parts: Unpack[Parts]
) -> Algorithm:
    """Return an algorithm whose clients add integer noise; raise for parts that do not fit."""
    for role in ("aggregation", "mechanism", "compressor", "convex"):
        why = "whose clients add integer noise to whole messages in a secure sum: leave it out"
        applies(not parts.get(role), name, why, **{role: parts.get(role)})
    std = number("noise_std", std, least=1, most=2.0**15)
    kind = Variant(paper, bounded=True, claims=False, ring=(law, std, bits))
    return _algorithm(name, kind, **parts)


@cached
def _algorithm(
    name: str,
    kind: Variant,
    *,
    optimizer: Callable[[Hyper], optax.GradientTransformation] | None = None,
    fresh: bool = False,
    convex: bool = False,
    **parts: Any,
) -> Algorithm:
    given = {"compressor": kind.compressor(), **only(name, parts, *numbers.Parts.__annotations__)}
    clip, noise = given.pop("clip", "example"), given.setdefault("noise", "per_client")
    applies(clip == "example", name, "which clips every example", clip=clip)
    applies(noise == "per_client", name, "whose clients draw their own noise", noise=noise)
    sampler = given.pop("sampler", kind.sampler())
    if fresh and (sampler.single_pass or sampler.cycles):
        raise InputError(
            f"sampler = {sampler.name!r} orders the records of the whole run, and fresh = True "
            "restarts in every round: leave out one."
        )
    estimator, usual, summed = estimators.minibatch(sampler), kind.mechanism(), kind.aggregation()
    if kind.ring is not None:
        usual, summed = rings.on_ring(*kind.ring[:2]), rings.ring_sum(*kind.ring)
    mechanism = given.get("mechanism", usual)
    inner = mechanism if kind.ring is None else mechanisms.noiseless()
    body = body_of(
        given,
        estimator=estimator,
        mechanism=usual,
        channel=kind.channel(),
        server=servers.averaging(),
        local=local.steps(
            estimator,
            inner,
            kind.pull(),
            optimizer,
            fresh,
            kind.bounded,
            kind.once,
            kind.last,
        ),
        aggregation=summed,
    )
    params = (
        SMOOTHNESS,
        *(() if mechanism.std is None else PRIVACY),
    )
    rules = PaperRules(body, kind.once, fresh, convex, optimizer is None, kind.last, kind.ring)
    formula = {} if kind.claims and not kind.last else {"formula": None}
    cited = not mechanism.central
    return by_rules(globals()[name], kind.paper, rules, params, cited=cited, **formula)


class PaperRules(NamedTuple):
    """The hyper-parameters of a run, its privacy event, and the paper's noise formula."""

    body: Federated
    once: bool  # one step a round, by the paper's baseline
    fresh: bool
    convex: bool
    plain: bool  # steps of SGD: another optimizer's are no sums, and hide nothing in a sum of them
    last: bool = False  # the noise is on the clipped report: all records of a client are protected
    ring: tuple[RingNoise, float, int] | None = None

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then the paper's, then defaults, labelled as such."""
        body, N = self.body, Draft.of(given, facts)
        private, central = body.mechanism.std is not None, body.mechanism.central
        names = {
            param.name
            for owner in (body.local, body.server, body.channel)
            if owner
            for param in owner.params
        }
        whole = central or self.last or self.ring is not None
        N.clip(private and not whole)
        N.parts(body, facts)
        N.batch(body, facts)
        if "local_steps" in names:
            N.default("local_steps", 5)
        L, tau = N.values.get("smoothness", facts.smoothness), N.values.get("local_steps", 1)
        if L:  # known, and not 0 on data without features
            N.theorem("lr", float(theory.local_step(L, tau)), "Theorem 2: the largest step")
        N.default("lr", 0.1, "L of this model is unknown")
        for name, value in (("server_lr", 1.0), ("prox", 0.1), ("update_clip", 1.0)):
            if name in names:
                N.default(name, value)
        if "shift" in names:
            N.default("shift", 1 / (1 + float(N["omega"])), "1/(1 + omega), as in DIANA")
        if self.convex:
            self._one_pass(N.values, facts)
        if private:
            N.target(facts, "n" if whole else "m")
        if self.ring is not None and isinstance(N.asked, Eps):
            self._fine(N, N.asked.eps, self.ring[1], facts)
        return N.plan()

    def _fine(self, N: Draft, eps: float, std: float, facts: ProblemFacts) -> None:
        """Raise where rounding alone moves a sum by more than its integer noise hides."""
        loud = {**N.values, "sigma": 1e9 * float(N["update_clip"])}
        least = epsilon(self.event(loud, facts), float(N["delta"])).eps
        require(
            least < eps,
            lambda: (
                f"is too coarse: rounding {facts.d} coordinates to integers moves a sum by so much that no "
                f"sigma proves less than eps = {least:.4g}"
            ),
            "take a larger one",
            noise_std=std,
        )

    def _one_pass(self, v: Mapping[str, Any], facts: ProblemFacts) -> None:
        """Raise unless amplification by iteration applies; convexity is checked where it is known."""
        tau = int(v.get("local_steps", 1))
        for m in {facts.m, facts.m_max}:
            length = m // int(v["batch"]) if "batch" in v else 1
            if tau > 1 and (tau > length or (not self.fresh and length % tau)):
                raise InputError(
                    f"local_steps = {tau} does not divide the epoch of {length} batches, and a round may "
                    "use a record twice, where convex=True proves nothing: change batch or local_steps, "
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
        is :func:`jaxfl.rounds.transcript.event`.  What follows from the convexity and the smoothness of
        losses is stated by the user where they are unknown.
        """
        body, mechanism = self.body, self.body.mechanism
        if mechanism.std is None:
            return events.NoClaim("nothing is noised")
        if mechanism.central:
            return of_a_server(body, values, facts, float(values["update_clip"]), self.fresh)
        if self.last:
            return transcript.of_clients(body, values, facts, lambda now: float(now["update_clip"]))
        if self.ring is not None:
            return self._on_ring(*self.ring[:2], values, facts)
        hidden = body.aggregation is not None
        if not self.plain:
            body = body._replace(aggregation=None)
        tau, r = int(values.get("local_steps", 1)), transcript.noises(body, values, facts)
        turns, sampler = transcript.turns(body, values, facts), body.estimator.sampler
        if not sampler.epochs:
            if tau > 1:
                body = body._replace(aggregation=None)
            each = values if tau == 1 else {**values, "turns": turns * tau}
            return transcript.event(body, each, facts)
        convex = self.convex and self.plain and self._contracts(values, facts)
        convex = convex and not facts.groups  # proved for equal weights
        sigma, b = transcript.least_noise(body, values, facts), float(values["batch"])

        def client(m: int) -> Any:
            # where messages are seen, other devices hide nothing
            heavier = max(1.0, (r / facts.noises(r, m)) ** 0.5)
            clip = values["clip"] * heavier
            steps = events.LocalSteps(clip, tau, r, convex=convex, fresh=self.fresh)
            rows = events.Sampling("shuffled", m, b)
            trust: Any = "secure_sum" if hidden else "local_transcript"
            return events.Event(rows, steps, sigma, turns, trust=trust)

        found = worst(facts, client)
        users = facts.contracts is None or facts.smoothness is None
        return events.Stated(found) if convex and users else found

    def _contracts(self, values: Mapping[str, Any], facts: ProblemFacts) -> bool:
        """eta <= 2/L, and clipped losses that are convex, as far as the model or the user says so.

        Of the L of a model and one that the user gives, the larger counts.
        """
        known = [L for L in (facts.smoothness, values.get("smoothness")) if L is not None]
        if facts.contracts is False or not known:
            return False
        return max(known) * local.largest(values["lr"], values["rounds"]) <= 2

    def _on_ring(
        self, noise: RingNoise, std: float, values: Mapping[str, Any], facts: ProblemFacts
    ) -> Any:
        """One client's message has norm at most S, and the sum has the noise of all who do not collude."""
        body, S = self.body, float(values["update_clip"])
        h = transcript.noises(body, values, facts)
        draws = facts.d * body.participation.capacity(values, facts).get("cohort", facts.n)
        moves = events.OnRing(S, facts.d, noise, std, h, draws)
        rows = events.Sampling("full", facts.n, float(facts.n))

        def part(some: transcript.Rounds) -> events.Event:
            return events.Event(
                rows,
                moves,
                some.std * h**0.5,
                some.number,
                unit="client",
                adjacency="zero_out",
                trust="secure_sum",
            )

        return transcript.in_turns(part, body, values, facts)

    def formula(self, values: Mapping[str, Any], facts: ProblemFacts, asked: Asked) -> Claim | None:
        """Theorem 1, or the formula of the baseline, or of the noise of a trusted server."""
        body, T, delta, way = self.body, values["rounds"], values["delta"], asked.way
        if body.mechanism.central:
            r = reporting(body, values, facts.n)
            S = float(values["update_clip"]) * facts.weight()
            return claims.trusted_server(S, r, T, delta, **way)
        if not self.plain or not body.estimator.sampler.epochs:
            return None
        G, b, turns = values["clip"], int(values["batch"]), transcript.turns(body, values, facts)
        if self.once and body.aggregation is None:
            return claims.dp_sgd_baseline(G, facts.n, b, turns, delta, **way)
        tau = int(values.get("local_steps", 1))
        senders = transcript.noises(body, {**values, "colluding": 0}, facts)
        devices = min(facts.noises(senders, m) for m in facts.sizes or (facts.m,))
        convex = self._contracts(values, facts) if self.convex else None
        claim = claims.hu(G, facts.m, b, tau, turns, delta, devices=devices, convex=convex, **way)
        return claim._replace(where="the paper's formula") if self.once else claim
