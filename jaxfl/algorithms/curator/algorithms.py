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
from collections.abc import Callable
from typing import NamedTuple, Unpack

import jax.numpy as jnp

from jaxfl.algorithms.composition import compose
from jaxfl.algorithms.curator.rules import GAP, PaperRules
from jaxfl.algorithms.numbers import PRIVACY, Parts, only, refuse_epochs, summary_of
from jaxfl.core.errors import InputError
from jaxfl.core.types import (
    Aggregation,
    Algorithm,
    Array,
    Channel,
    Estimator,
    Hyper,
    Participation,
    Sampler,
    Server,
)
from jaxfl.parts import (
    aggregations,
    channels,
    estimators,
    iterates,
    mechanisms,
    momentum,
    sampling,
    servers,
)
from jaxfl.parts.compressors import identity
from jaxfl.rounds.federated import Federated

__all__ = ["distributed_dp_srm", "dp_gd", "dp_sgd", "dp_srm", "rrpsgd"]


def dp_gd(**parts: Unpack[Parts]) -> Algorithm:
    """DP-GD::

        x <- x - eta (mean_j clip grad f_j(x) + xi),  xi ~ N(0, sigma^2 I)
        output a random one of the points

    Reimplemented from description: eta = 1/L, sigma^2 = 8 G^2 T ln(1/delta)/(m eps)^2.
    """
    given = only("dp_gd", parts, "participation", "server")
    return _algorithm("dp_gd", GD, sampler=sampling.full(), **given)


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
    return _algorithm("rrpsgd", RRPSGD, sampler=sampling.without_replacement(), **given)


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


def _weight(hp: Hyper) -> Array:
    """2 eta - L eta^2, kept positive: with a constant eta only that all are alike matters."""
    weight = 2 * hp["lr"] - hp["smoothness"] * hp["lr"] ** 2
    return jnp.maximum(weight, 1e-30)


def _any_iterate() -> Server:
    return iterates.sampled(servers.descent())


def _any_weighted() -> Server:
    return iterates.sampled(servers.descent(), _weight, first=False)


def _any_limited() -> Server:
    return iterates.sampled(iterates.limited())


class Variant(NamedTuple):
    """What tells these algorithms apart."""

    paper: str
    server: Callable[[], Server]
    sampler: Callable[[], Sampler] = sampling.poisson
    recursive: bool = False
    once: bool = False  # one sample a round


GD = Variant("Wang, Ye, Xu, NeurIPS 2017", _any_iterate, sampling.full)
SGD = Variant("Abadi et al., CCS 2016", servers.descent)
RRPSGD = Variant(
    "Zhang, Zheng, Mou, Wang, IJCAI 2017", _any_weighted, sampling.without_replacement, once=True
)
SRM = Variant("Wang et al., UAI 2023", _any_limited, sampling.without_replacement, recursive=True)


@functools.cache
def _algorithm(
    name: str,
    kind: Variant,
    *,
    sampler: Sampler | None = None,
    participation: Participation | None = None,
    server: Server | None = None,
    aggregation: Aggregation | None = None,
) -> Algorithm:
    chosen = sampler or kind.sampler()
    estimator: Estimator = estimators.minibatch(chosen)
    channel: Channel = channels.direct()
    if kind.recursive:
        if chosen.whole:
            raise InputError(
                f"sampler = {chosen.name!r} does not apply to {name}, which draws batches."
            )
        refuse_epochs(name, chosen)
        estimator, channel = momentum.recursive(chosen, False), channels.recursion()
    body = Federated(
        estimator=estimator,
        mechanism=mechanisms.central(),
        compressor=identity(),
        channel=channel,
        server=server or kind.server(),
        participation=participation or sampling.everyone(),
        aggregation=aggregations.unless_plain(aggregation),
    )
    promise = PaperRules(body, kind.recursive, kind.once)
    return compose(
        name,
        summary_of(globals()[name]),
        kind.paper,
        body,
        promise.plan,
        (momentum.SMOOTHNESS, GAP, *PRIVACY),
        promise.formula,
        promise.event,
        promise.finish,
        follows=("lr",) if kind.once else (),
        reads=("smoothness",) if kind.once else (),
    )
