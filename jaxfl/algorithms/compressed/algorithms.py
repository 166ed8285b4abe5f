"""Compressed descent without privacy: references that SoteriaFL grew out of, and its neighbours.

=======  ==============  ===========  ===============================  ==========================
name     estimator       compressor   channel                          source
=======  ==============  ===========  ===============================  ==========================
diana    full gradient   random-k     shifted, gamma = 1/(1 + omega)   Mishchenko et al., 2019
marina   differences     random-k     recursion                        Gorbunov et al., ICML 2021
ef21     full gradient   top-k        learned, gamma = 1               Richtarik et al., 2021
ef_sgd   minibatch       top-k        error feedback                   Stich et al., NeurIPS 2018
=======  ==============  ===========  ===============================  ==========================

The first three are as FL_PyTorch has them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Unpack

from jaxfl.algorithms.composition import compose
from jaxfl.algorithms.numbers import Draft, Parts, only, reporting, summary_of
from jaxfl.core.errors import InputError
from jaxfl.core.types import (
    Algorithm,
    Channel,
    Compressor,
    Estimator,
    Participation,
    Plan,
    ProblemFacts,
    Sampler,
    Server,
)
from jaxfl.parts import (
    channels,
    compressors,
    estimators,
    mechanisms,
    momentum,
    sampling,
    servers,
)
from jaxfl.rounds.federated import Federated

__all__ = ["diana", "ef21", "ef_sgd", "marina"]

EXCHANGED = ("compressor", "participation", "sampler", "server")


def diana(**parts: Unpack[Parts]) -> Algorithm:
    """DIANA: SoteriaFL-GD without noise, with shifts of step 1/(1 + omega)::

        v_i = C_i(grad f_i(x) - s_i),  s_i <- s_i + v_i/(1 + omega)
        v = s + mean_i v_i,  x <- x - eta v,  s <- s + mean_i v_i/(1 + omega)

    Not private.
    """
    return _algorithm("diana", DIANA, **only("diana", parts, *EXCHANGED))


def marina(**parts: Unpack[Parts]) -> Algorithm:
    """MARINA: a full gradient now and then, compressed differences otherwise::

        g <- mean_i grad f_i(x) with probability p, else g + mean_i C_i(grad f_i(x) - grad f_i(x'))
        x' <- x,  x <- x - eta g

    A sparsifier with a shared seed, so that its full rounds cost 32 bits a coordinate.
    Not private.
    """
    given = only("marina", parts, "compressor", "participation", "server")
    chosen = given.get("compressor")
    if chosen is not None and (
        chosen.select is None
        or chosen.code is not None
        or "k" not in {param.name for param in chosen.params}
    ):
        raise InputError(
            f"compressor = {chosen.name!r} does not apply to marina, whose full rounds send all of d "
            "coordinates: take random_k, stratified_k or bernoulli."
        )
    return _algorithm("marina", MARINA, **given)


def ef21(**parts: Unpack[Parts]) -> Algorithm:
    """EF21: gradients learned from compressed differences::

        c_i = C(grad f_i(x) - g_i),  g_i <- g_i + c_i,  x <- x - eta mean_i g_i

    The compressor may be biased: top-k by default.  Clients that do not take part keep their g_i, which
    stay in the mean.  Not private.
    """
    return _algorithm("ef21", EF21, **only("ef21", parts, *EXCHANGED))


def ef_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """SGD with error feedback: what compression left out is sent later::

        p_i = e_i + g_i,  send C(p_i),  e_i <- p_i - C(p_i),  x <- x - eta mean_i C(p_i)

    Not private.
    """
    return _algorithm("ef_sgd", EF, **only("ef_sgd", parts, *EXCHANGED))


# --- what they share -----------------------------------------------------------------------------


class Variant(NamedTuple):
    """What tells these algorithms apart."""

    paper: str
    channel: Callable[[], Channel]
    compressor: Callable[[], Compressor]
    sampler: Callable[[], Sampler] = sampling.full
    estimator: Callable[[Sampler], Estimator] = estimators.minibatch
    shift: Callable[[float], float] | None = None
    biased: bool = False  # whether it can do with a biased compressor


DIANA = Variant(
    "Mishchenko et al., 2019",
    channels.shifted,
    compressors.random_k,
    shift=lambda omega: 1 / (1 + omega),
)
MARINA = Variant(
    "Gorbunov et al., ICML 2021",
    channels.recursion,
    functools.partial(compressors.random_k, False),
    estimator=momentum.marina,
)
EF21 = Variant(
    "Richtarik et al., NeurIPS 2021",
    channels.learned,
    compressors.top_k,
    shift=lambda _: 1.0,
    biased=True,
)
EF = Variant(
    "Stich et al., NeurIPS 2018",
    channels.error_feedback,
    compressors.top_k,
    sampling.poisson,
    biased=True,
)


@functools.cache
def _algorithm(
    name: str,
    kind: Variant,
    *,
    compressor: Compressor | None = None,
    sampler: Sampler | None = None,
    participation: Participation | None = None,
    server: Server | None = None,
) -> Algorithm:
    chosen = compressor or kind.compressor()
    if not chosen.unbiased and not kind.biased:
        raise InputError(
            f"compressor = {chosen.name!r} is biased, and {name} needs one that is right in the mean: "
            "take ef21 or ef_sgd."
        )
    body = Federated(
        estimator=kind.estimator(sampler or kind.sampler()),
        mechanism=mechanisms.noiseless(),
        compressor=chosen,
        channel=kind.channel(),
        server=server or servers.descent(),
        participation=participation or sampling.everyone(),
    )
    made = compose(
        name,
        summary_of(globals()[name]),
        kind.paper,
        body,
        functools.partial(_plan, kind, body),
        (momentum.SMOOTHNESS,),
    )
    if kind is not MARINA:
        return made

    def capacity(values: Mapping[str, Any], facts: ProblemFacts) -> dict[str, int]:
        return {**made.capacity(values, facts), "k": facts.d}  # full rounds send all of them

    return made._replace(capacity=capacity)


def _plan(kind: Variant, body: Federated, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
    N = Draft.of(given, facts)
    N.default("clip", math.inf)
    N.parts(body, facts)
    omega, L = N["omega"], N.smoothness(facts)
    if body.estimator.sampler.params:
        N.default("batch", min(32, facts.m))
    if kind.shift is not None:
        N.theorem("shift", kind.shift(omega), "1/(1 + omega)" if kind is DIANA else "1")
    if kind is MARINA:
        N.theorem("restart", 1 / (1 + omega), "1/(1 + omega)")
    # safe orders of the papers: 1/L slowed down by what compression adds to a mean over r
    r = reporting(body, N.values, facts.n)
    contracts = (
        not body.compressor.unbiased
    )  # omega is then what is lost: |C(v) - v|^2 <= omega |v|^2
    slow = 1 + (omega / (1 - omega) if contracts and omega < 1 else omega * r**-0.5)
    N.default("lr", 1 / (L * slow), "1/L, less for compression")
    return N.plan()
