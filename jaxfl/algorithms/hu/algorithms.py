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
from collections.abc import Callable
from typing import NamedTuple, Unpack

import optax

from jaxfl.algorithms import numbers
from jaxfl.algorithms.composition import compose
from jaxfl.algorithms.hu.rules import PaperRules
from jaxfl.algorithms.numbers import PRIVACY, summary_of
from jaxfl.core.errors import InputError
from jaxfl.core.types import (
    Aggregation,
    Algorithm,
    Compressor,
    Hyper,
    Mechanism,
    Param,
    Participation,
    Sampler,
    Server,
)
from jaxfl.parts import aggregations, channels, estimators, local, mechanisms, sampling, servers
from jaxfl.parts.aggregations import unless_plain
from jaxfl.parts.compressors import identity
from jaxfl.parts.momentum import SMOOTHNESS
from jaxfl.rounds.federated import Federated

__all__ = ["dp_fedavg", "fedavg", "fedprox", "local_dp_sgd", "private_local_sgd", "scaffold"]

PAPER = "Hu, Guo, Gong, 2020"
COLLUDING = Param("colluding", "devices of a sum whose messages the server knows", integer=True)


class Parts(numbers.Parts, total=False):
    """What a user may exchange in any of these algorithms."""

    optimizer: Callable[[Hyper], optax.GradientTransformation]  # of the clients; default SGD
    fresh: bool  # a new epoch in every round
    convex: bool  # the user knows that every clipped loss is convex and smooth


class Variant(NamedTuple):
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
    kind = Variant(mechanism=mechanisms.gaussian, aggregation=aggregations.secure_sum)
    return _algorithm("private_local_sgd", kind, PAPER, **parts)


def local_dp_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """The paper's DP-SGD baseline: one noisy step per round, and every model is seen::

        theta_i = x - eta (mean_{j in B} clip grad f_ij(x) + b),  b ~ N(0, sigma^2 I)
        x <- (1/r) sum_{i in S} theta_i

    There is no secure aggregation: what is proven holds against a server that sees every theta_i.
    """
    return _algorithm(
        "local_dp_sgd", Variant(mechanism=mechanisms.gaussian, once=True), PAPER, **parts
    )


def dp_fedavg(**parts: Unpack[Parts]) -> Algorithm:
    """DP-FedAvg, user-level privacy with a trusted server [McMahan et al., ICLR 2018]::

        g_i = clip_S(x - theta_i) after tau local steps;   x <- x - eta_g (sum_S g_i / r + xi)

    xi ~ N(0, sigma^2 I) is the server's.  What is protected is all of a client's data; clients drawn
    by Poisson participation are hidden among the others, since only the model is seen.
    """
    kind = Variant(mechanism=mechanisms.central, bounded=True)
    return _algorithm("dp_fedavg", kind, "McMahan et al., ICLR 2018", **parts)


def fedavg(**parts: Unpack[Parts]) -> Algorithm:
    """FedAvg: :func:`private_local_sgd` without noise [McMahan et al., 2017]::

        theta_i <- x;  tau times:  theta_i <- theta_i - eta mean_{j in B} grad f_ij(theta_i)
        x <- (1/r) sum_{i in S} theta_i

    Not private.
    """
    return _algorithm("fedavg", Variant(), "McMahan et al., AISTATS 2017", **parts)


def fedprox(**parts: Unpack[Parts]) -> Algorithm:
    """FedProx: local steps on ``f_i + mu/2 |theta - x|^2`` [Li et al., 2020]::

        theta_i <- x;  tau times:
            theta_i <- theta_i - eta (mean_{j in B} grad f_ij(theta_i) + mu (theta_i - x))
        x <- (1/r) sum_{i in S} theta_i

    Not private.
    """
    return _algorithm("fedprox", Variant(local.proximal), "Li et al., MLSys 2020", **parts)


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
    chosen = parts.get("compressor")
    if chosen is not None and not chosen.exact:
        raise InputError(
            f"compressor = {chosen.name!r} does not apply to scaffold, whose server takes c for the "
            "mean of control variates that clients keep uncompressed: leave it out."
        )
    return _algorithm("scaffold", Variant(local.control), "Karimireddy et al., ICML 2020", **parts)


# --- what they share -----------------------------------------------------------------------------


@functools.cache
def _algorithm(
    name: str,
    kind: Variant,
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
    rows = sampler or sampling.shuffled()
    if fresh and rows.single_pass:
        raise InputError(
            f"sampler = {rows.name!r} reads every record once in the whole run, and fresh = True starts "
            "anew in every round: leave out one."
        )
    estimator, mechanism = estimators.minibatch(rows), kind.mechanism()
    chosen = aggregation or kind.aggregation()
    body = Federated(
        estimator=estimator,
        mechanism=mechanism,
        compressor=compressor or identity(),
        channel=channels.direct(),
        server=server or servers.averaging(),
        participation=participation or sampling.everyone(),
        noise=noise,
        local=local.steps(
            estimator, mechanism, kind.pull(), optimizer, fresh, kind.bounded, kind.once
        ),
        aggregation=unless_plain(chosen),
    )
    private = mechanism.std is not None
    own = (SMOOTHNESS, *PRIVACY) if private else (SMOOTHNESS,)
    promise = PaperRules(body, kind.once, fresh, convex, optimizer is None)
    return compose(
        name,
        summary_of(globals()[name]).split(",")[0],
        paper,
        body,
        promise.plan,
        own if body.aggregation is None else (*own, COLLUDING),
        promise.formula if private else None,
        promise.event,
        cited=not mechanism.central,
    )
