"""Algorithms of a node that holds all data, or of one that clients trust with their sum.

==================  ===================  ==========================  =================================
algorithm           estimator            step                        source
==================  ===================  ==========================  =================================
dp_gd               full gradient        constant                    Wang, Ye, Xu, 2017: recalled
dp_sgd              Poisson minibatch    constant                    Abadi et al., 2016
rrpsgd              one sample           constant, stops at random   Zhang, Zheng, Mou, Wang, 2017:
                                                                     recalled, constant unverified
dp_srm              recursive momentum   at most zeta/(n0 L) long    Wang et al., UAI 2023: verified
distributed_dp_srm  the same             the same                    the same: recalled
==================  ===================  ==========================  =================================

The noise is one draw on the mean of all clients, so what is protected is a record of the pooled data,
against all who see the models ("global", or central, privacy) and not against the curator.  A single
node is a problem with one client; with n clients, the curator draws from the data of each, and what a
record can change is n times smaller.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Unpack

import jax.numpy as jnp

from jaxfl import (
    aggregations,
    channels,
    compressors,
    estimators,
    iterates,
    mechanisms,
    momentum,
    sampling,
    servers,
    theory,
    theory_recursive,
)
from jaxfl.algorithms.compose import compose
from jaxfl.algorithms.numbers import (
    PRIVACY,
    Numbers,
    Parts,
    curator,
    only,
    refuse_epochs,
    reporting,
    summary_of,
)
from jaxfl.errors import InputError
from jaxfl.rounds import Federated
from jaxfl.types import (
    Aggregation,
    Algorithm,
    Array,
    Channel,
    Estimator,
    Facts,
    Hyper,
    Param,
    Participation,
    Resolved,
    Sampler,
    Server,
)

__all__ = ["distributed_dp_srm", "dp_gd", "dp_sgd", "dp_srm", "rrpsgd"]

GAP = Param("gap", "f(x0) - f*, which step sizes ask for", open_low=True)


def dp_gd(**parts: Unpack[Parts]) -> Algorithm:
    """DP-GD::

        x <- x - eta (mean_j clip grad f_j(x) + xi),  xi ~ N(0, sigma^2 I)
        output a random one of the points

    Reimplemented from description: eta = 1/L, sigma^2 = 8 G^2 T ln(1/delta)/(m eps)^2.
    """
    given = only("dp_gd", parts, "participation", "server")
    return _algorithm("dp_gd", GD, sampler=_full(), **given)


def dp_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """DP-SGD [Abadi et al., 2016]::

        x <- x - eta/b (sum_{j in B} clip grad f_j(x) + N(0, (z G)^2 I))

    ``sigma`` is z G/b.  Poisson batches; output the last point.
    """
    given = only("dp_sgd", parts, "participation", "server", "sampler")
    return _algorithm("dp_sgd", SGD, **given)


def rrpsgd(**parts: Unpack[Parts]) -> Algorithm:
    """RRPSGD::

        x <- x - eta (clip grad f_j(x) + xi), one j a round;  output x_R, R random

    Reimplemented from description.  ``P(R = k)`` is proportional to ``2 eta_k - L eta_k^2``, k = 1 ... T,
    and T at most m^2.  The accountant takes the worst case, all T rounds, and x_R alone is shown.
    """
    given = only("rrpsgd", parts, "participation")
    return _algorithm("rrpsgd", RRPSGD, sampler=_single(), **given)


def dp_srm(**parts: Unpack[Parts]) -> Algorithm:
    """DP-SRM [Wang et al., UAI 2023, Algorithm 1]::

        v <- grad f_B0(x_0) + N(0, sigma0^2 I)                                   first, then
        v <- grad f_B(x) + (1-gamma)(v - grad f_B(x')) + N(0, sigma^2 I)
        x <- x - min(zeta/(n0 L |v|), 1/(2 n0 L)) v,  output a random one of the points

    As in practice, gradients are clipped to G and their differences to C = zeta/n0: a record moves
    an estimate by 2 ((1-gamma) C + gamma G)/b.  ``lr`` is 1/(2 n0 L), ``step_limit`` zeta/(n0 L).
    """
    given = only("dp_srm", parts, "participation", "sampler")
    return _algorithm("dp_srm", SRM, **given)


def distributed_dp_srm(**parts: Unpack[Parts]) -> Algorithm:
    """Distributed DP-SRM: :func:`dp_srm` of clients whose messages are seen as a sum only::

        v <- mean_i ((1-gamma) (v - grad f_iB(x')) + grad f_iB(x)) + N(0, sigma^2 I)

    Reimplemented from description.  The noise is one draw on the mean: privacy of the pooled data
    against those who see the models, not local privacy.
    """
    given = only("distributed_dp_srm", parts, "participation", "sampler", "aggregation")
    given.setdefault("aggregation", aggregations.secure_sum())
    return _algorithm("distributed_dp_srm", SRM, **given)


# --- what they share -----------------------------------------------------------------------------

_minibatch = functools.cache(estimators.minibatch)
_recursive = functools.cache(momentum.recursive)
_central = functools.cache(mechanisms.central)
_direct = functools.cache(channels.direct)
_recursion = functools.cache(channels.recursion)
_descent = functools.cache(servers.descent)
_full = functools.cache(sampling.full)
_poisson = functools.cache(sampling.poisson)


@functools.cache
def _single() -> Sampler:
    """One row, drawn anew in each round."""
    return sampling.without_replacement()


def _weight(hp: Hyper) -> Array:
    """2 eta - L eta^2, kept positive: with a constant eta only that all are alike matters."""
    weight = 2 * hp["lr"] - hp["smoothness"] * hp["lr"] ** 2
    return jnp.maximum(weight, 1e-30)


@functools.cache
def _any_iterate() -> Server:
    return iterates.sampled(_descent())


@functools.cache
def _any_weighted() -> Server:
    return iterates.sampled(_descent(), _weight, first=False)


@functools.cache
def _any_limited() -> Server:
    return iterates.sampled(iterates.limited())


class Kind(NamedTuple):
    """What tells these algorithms apart."""

    paper: str
    server: Callable[[], Server]
    sampler: Callable[[], Sampler] = _poisson
    recursive: bool = False
    once: bool = False  # one sample a round


GD = Kind("Wang, Ye, Xu, NeurIPS 2017", _any_iterate, _full)
SGD = Kind("Abadi et al., CCS 2016", _descent)
RRPSGD = Kind("Zhang, Zheng, Mou, Wang, IJCAI 2017", _any_weighted, _single, once=True)
SRM = Kind("Wang et al., UAI 2023", _any_limited, sampling.without_replacement, recursive=True)


@functools.cache
def _algorithm(
    name: str,
    kind: Kind,
    *,
    sampler: Sampler | None = None,
    participation: Participation | None = None,
    server: Server | None = None,
    aggregation: Aggregation | None = None,
) -> Algorithm:
    chosen = sampler or kind.sampler()
    estimator: Estimator = _minibatch(chosen)
    channel: Channel = _direct()
    if kind.recursive:
        if chosen.name == "full":
            raise InputError(f"sampler = 'full' does not apply to {name}, which draws batches.")
        refuse_epochs(name, chosen)
        estimator, channel = _recursive(chosen, False), _recursion()
    body = Federated(
        estimator=estimator,
        mechanism=_central(),
        compressor=compressors.identity(),
        channel=channel,
        server=server or kind.server(),
        participation=participation or sampling.everyone(),
        aggregation=aggregation if aggregation and aggregation.name != "plain_sum" else None,
    )
    promise = Promise(kind, body)
    return compose(
        name,
        summary_of(globals()[name]),
        kind.paper,
        body,
        promise.resolve,
        (momentum.SMOOTHNESS, GAP, *PRIVACY),
        promise.claim,
        promise.event,
    )


class Promise(NamedTuple):
    """The numbers of a run, what it releases, and what the paper says of it."""

    kind: Kind
    body: Federated

    def resolve(self, given: Mapping[str, Any], facts: Facts) -> Resolved:
        """The user's numbers, then the papers', then defaults that say so."""
        kind, body = self.kind, self.body
        N = Numbers(given, facts, rounds="theory")
        N.one_of("eps", "sigma")
        G = N.clip(True)
        N.parts(body, facts)
        L = N.smoothness(facts)
        N.target(facts)
        N.default("gap", 1.0)
        records = facts.m * reporting(body, N.values, facts.n)
        s = theory.Setting(
            1, records, facts.d, 0.0, L, G, N.values.get("eps", 5.0), N["delta"], N["gap"]
        )
        if kind.recursive:
            self._srm(N, facts, s)
        elif kind.once:
            N.default("rounds", facts.m, "default: one pass")
            N.default("batch", 1, "one sample a round")
            if N["batch"] != 1:
                raise InputError(
                    f"batch = {N['batch']} does not apply to rrpsgd, which draws 1: leave it out."
                )
            if N["rounds"] > records**2:
                raise InputError(
                    f"rounds = {N['rounds']} exceeds m^2 = {records**2:g}, which RRPSGD never reaches: ask "
                    "for fewer."
                )
        else:
            N.default(
                "rounds", max(1, round(float(theory_recursive.gd_rounds(s)))), "the paper's order"
            )
            if body.estimator.sampler.params:
                N.default("batch", min(32, facts.m))
        eps_of, sigma_of = self._formula(N.values, facts)
        N.noise(sigma_of, eps_of, "the paper's formula")
        N.default("lr", *self._step(N, s))
        return N.resolved()

    def _srm(self, N: Numbers, facts: Facts, s: theory.Setting) -> None:
        where = "Theorem 1 of DP-SRM, constants 1"
        best, r = theory_recursive.srm_numbers(s), s.m / facts.m
        N.default("rounds", max(1, round(float(theory_recursive.srm_rounds(s)))), where)
        b = min(facts.m, max(1, round(float(best.batch) / r)))
        N.default("batch", b, where)
        N.default("anchor_batch", b, where)
        N.default("momentum", float(best.gamma), where)
        N.default("step_limit", float(best.zeta / (best.n0 * s.L)), "zeta/(n0 L)")
        N.default("lr", float(1 / (2 * best.n0 * s.L)), "1/(2 n0 L)")
        N.default(
            "difference_clip", min(2 * s.G, s.L * N["step_limit"]), "L times the longest step"
        )
        ratio = s.G / N["anchor_batch"] / (_moved(N.values) / N["batch"])
        N.default("noise_ratio", ratio, "of what a record moves")

    def _step(self, N: Numbers, s: theory.Setting) -> tuple[float, str]:
        if self.kind.once:
            sigma = max(N["sigma"], 1e-30) if N["sigma"] == N["sigma"] else 1e-30
            most = (s.gap / (s.L * s.m**2 * s.d * sigma**2)) ** 0.5
            return float(min(1 / s.L, most)), "min(1/L, sqrt(D_F/(L m^2 d sigma^2)))"
        if self.body.estimator.sampler.name == "full":
            return 1 / s.L, "1/L"
        return float(theory.cdp_step(s)), "Theorem 1 of SoteriaFL with one client"

    def _formula(
        self, v: Mapping[str, Any], facts: Facts
    ) -> tuple[Callable[[float], float], Callable[[float], float]]:
        """eps of a sigma, and sigma of an eps, by the paper."""

        def eps_of(sigma: float) -> float:
            claim = self.claim({**v, "sigma": sigma}, facts)
            return float(claim.eps)

        def sigma_of(eps: float) -> float:
            low, high = 1e-30, 1e30  # formulas fall with sigma
            for _ in range(200):
                middle = (low * high) ** 0.5
                low, high = (middle, high) if eps_of(middle) > eps else (low, middle)
            return high

        return eps_of, sigma_of

    def claim(self, values: Mapping[str, Any], facts: Facts) -> Any:
        """What the paper's formula says of this noise, with m the records of all clients."""
        from jaxfl.privacy import formulas

        sigma = float(values["sigma"])
        if sigma == 0:
            return None
        G, delta, T = float(values["clip"]), values["delta"], int(values["rounds"])
        r = reporting(self.body, values, facts.n)
        m, b = round(facts.m * r), round(values.get("batch", facts.m) * r)
        if self.kind.once:
            return formulas.rrpsgd(G, m, delta, sigma=sigma)
        if not self.kind.recursive:
            return formulas.compressed_gd(8, G, m, b, T, delta, sigma=sigma)
        gamma, C = float(values["momentum"]), float(values["difference_clip"])
        eps = float(theory_recursive.srm_sigma_eps(T, _moved(values), m, delta, sigma))
        b0 = round(values["anchor_batch"] * r)
        first, later = formulas.dp_srm(G, m, b, b0, T, gamma, C, delta, eps)
        enough = formulas.Condition(
            f"sigma0 = {sigma * values['noise_ratio']:.4g} >= {first.sigma:.4g}",
            bool(sigma * values["noise_ratio"] >= first.sigma * (1 - 1e-6)),
        )
        return later._replace(conditions=(*later.conditions, enough))

    def event(self, values: Mapping[str, Any], facts: Facts) -> Any:
        """Every release of the noised mean; DP-SRM's first has its own batch and noise."""
        from jaxfl.privacy import events

        G, T, sigma = float(values["clip"]), int(values["rounds"]), float(values["sigma"])
        trust: Any = "single_node" if facts.n == 1 else "trusted_server"
        trust = trust if self.body.aggregation is None else "secure_sum"

        def release(m: int, b: float, scheme: str, slots: int | None, r: float) -> Any:
            def plain(b: float, moved: float, sigma: float, times: int) -> Any:
                sampling = events.Sampling(scheme, m, b, slots)
                return events.Event(sampling, events.Mean(moved / r), sigma, times, trust=trust)

            if not self.kind.recursive:
                return plain(b, G, sigma, T)
            first = plain(float(values["anchor_batch"]), G, sigma * float(values["noise_ratio"]), 1)
            return events.Sequence((plain(b, _moved(values), sigma, T - 1), first))

        return curator(self.body, values, facts, release)


def _moved(values: Mapping[str, Any]) -> float:
    """The norm of a record's share in DP-SRM: (1-gamma) C + gamma G."""
    gamma = float(values["momentum"])
    return (1 - gamma) * float(values["difference_clip"]) + gamma * float(values["clip"])
