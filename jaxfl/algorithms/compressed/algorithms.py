"""Compressed descent without privacy: references that SoteriaFL grew out of, and its neighbours.

==========  ==============  ===========  ===============================  ==================================
name        estimator       compressor   channel                          source
==========  ==============  ===========  ===============================  ==================================
diana       full gradient   random-k     shifted, gamma = 1/(1 + omega)   Mishchenko et al., 2019
marina      differences     random-k     recursion                        Gorbunov et al., ICML 2021
ef21        full gradient   top-k        learned, gamma = 1               Richtarik et al., 2021
ef_sgd      minibatch       top-k        error feedback                   Stich et al., NeurIPS 2018
ef21_sgdm   momentum        top-k        learned, gamma = 1               Fatkhullin et al., NeurIPS 2023
dasha       full gradient   random-k     dasha, a = 1/(1 + 2 omega)       Tyurin, Richtarik, ICLR 2023
dasha_page  page            random-k     dasha, a = 1/(1 + 2 omega)       Tyurin, Richtarik, ICLR 2023
dasha_mvr   with            random-k     dasha, a = 1/(1 + 2 omega)       Tyurin, Richtarik, ICLR 2023
            differences
==========  ==============  ===========  ===============================  ==================================

The first three are as FL_PyTorch has them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Unpack

from jaxfl.algorithms.composition import by_rules
from jaxfl.algorithms.compressed import theory
from jaxfl.algorithms.numbers import Draft, Parts, applies, body_of, only, reporting
from jaxfl.algorithms.roles import cached, part
from jaxfl.core.types import Algorithm, Channel, Compressor, Estimator, Plan, ProblemFacts, Sampler
from jaxfl.parts import channels, compressors, estimators, mechanisms, momentum, sampling
from jaxfl.rounds.federated import Federated

__all__ = ["dasha", "dasha_mvr", "dasha_page", "diana", "ef21", "ef21_sgdm", "ef_sgd", "marina"]


def diana(**parts: Unpack[Parts]) -> Algorithm:
    """DIANA: SoteriaFL-GD without noise, with shifts of step 1/(1 + omega)::

        v_i = C_i(grad f_i(x) - s_i),  s_i <- s_i + v_i/(1 + omega)
        v = s + mean_i v_i,  x <- x - eta v,  s <- s + mean_i v_i/(1 + omega)

    Not private.
    """
    return _algorithm("diana", DIANA, **parts)


def marina(**parts: Unpack[Parts]) -> Algorithm:
    """MARINA: a full gradient now and then, compressed differences otherwise::

        g <- mean_i grad f_i(x) with probability p, else g + mean_i C_i(grad f_i(x) - grad f_i(x'))
        x' <- x,  x <- x - eta g

    A sparsifier with a shared seed: its full rounds cost 32 bits a coordinate.
    Not private.
    """
    chosen = part("compressor", parts.get("compressor")) or compressors.random_k(False)
    sparse = chosen.select is not None and chosen.code is None
    why = "whose full rounds send all of d coordinates: take random_k, stratified_k or bernoulli"
    counts = any(param.name == "k" for param in chosen.params)
    applies(sparse and counts, "marina", why, compressor=chosen)
    return _algorithm("marina", MARINA, **parts)


def ef21(**parts: Unpack[Parts]) -> Algorithm:
    """EF21: gradients learned from compressed differences::

        c_i = C(grad f_i(x) - g_i),  g_i <- g_i + c_i,  x <- x - eta mean_i g_i

    The compressor may be biased: top-k by default.  Clients that do not take part keep their g_i, which
    stay in the mean.  Not private.
    """
    return _algorithm("ef21", EF21, **parts)


def ef_sgd(**parts: Unpack[Parts]) -> Algorithm:
    """SGD with error feedback: what compression left out is sent later::

        p_i = e_i + g_i,  send C(p_i),  e_i <- p_i - C(p_i),  x <- x - eta mean_i C(p_i)

    Not private.
    """
    return _algorithm("ef_sgd", EF, **parts)


def ef21_sgdm(**parts: Unpack[Parts]) -> Algorithm:
    """EF21-SGDM: EF21 of averaged gradients, which small batches suffice for::

        h_i <- (1 - eta) h_i + eta mean_{j in I_b} grad f_ij(x)
        c_i = C(h_i - g_i),  g_i <- g_i + c_i,  x <- x - gamma mean_i g_i

    In the first round eta = 1: h_i is the gradient of the first batch; g_i = 0 at first.  The
    compressor may be biased: top-k by default.  ``lr`` is gamma, and ``momentum`` eta.  Not private.
    """
    return _algorithm("ef21_sgdm", SGDM, **parts)


def dasha(**parts: Unpack[Parts]) -> Algorithm:
    """DASHA: compressed changes of gradients, and a share of the error::

        c_i = C(grad f_i(x) - grad f_i(x') - a (g_i - grad f_i(x'))),  g_i <- g_i + c_i
        x' <- x,  x <- x - eta mean_i g_i

    grad f_i(x') and g_i are 0 at first: no message is a full one, and clients do not synchronize.
    ``shift`` is a.  Not private.
    """
    return _algorithm("dasha", DASHA, **parts)


def dasha_page(**parts: Unpack[Parts]) -> Algorithm:
    """DASHA-PAGE: DASHA of gradients that differences of batches follow, and a coin takes anew::

        h_i' = grad f_i(x) with probability p, else h_i + mean_{j in I_b} (grad f_ij(x) - grad f_ij(x'))
        c_i = C(h_i' - h_i - a (g_i - h_i)),  h_i <- h_i',  g_i <- g_i + c_i
        x' <- x,  x <- x - eta mean_i g_i

    One coin for all clients, and full gradients in the first round; h_i and g_i are 0 at first, and all
    messages are compressed.  ``shift`` is a, and ``restart`` p.  Not private.
    """
    return _algorithm("dasha_page", PAGE, **parts)


def dasha_mvr(**parts: Unpack[Parts]) -> Algorithm:
    """DASHA-MVR: DASHA of averaged gradients, without the delay of averages::

        h_i' = mean_{j in I_b} (grad f_ij(x) - (1 - b) grad f_ij(x')) + (1 - b) h_i
        c_i = C(h_i' - h_i - a (g_i - h_i)),  h_i <- h_i',  g_i <- g_i + c_i
        x' <- x,  x <- x - eta mean_i g_i

    In the first round b = 1: h_i is the gradient of the first batch.  ``shift`` is a, and
    ``momentum`` b.  Not private.
    """
    return _algorithm("dasha_mvr", MVR, **parts)


# --- what they share -----------------------------------------------------------------------------


class Variant(NamedTuple):
    """Parts and rules in which the algorithms of this folder differ."""

    paper: str
    channel: Callable[[], Channel]
    compressor: Callable[[], Compressor]
    sampler: Callable[[], Sampler] = sampling.full
    estimator: Callable[[Sampler], Estimator] = estimators.minibatch
    shift: Callable[[float], float] | None = None
    rate: str = "1"  # the shift in words
    step: Callable[[Draft, float, float], float] | None = (
        None  # of (values, L, clients), a theorem's
    )
    where: str = ""
    exchanged: tuple[str, ...] = ("compressor", "participation", "sampler", "server")


DIANA = Variant(
    "Mishchenko et al., 2019",
    channels.shifted,
    compressors.random_k,
    shift=lambda omega: 1 / (1 + omega),
    rate="1/(1 + omega)",
)
MARINA = Variant(
    "Gorbunov et al., ICML 2021",
    channels.recursion,
    functools.partial(compressors.random_k, False),
    estimator=momentum.marina,
    exchanged=("compressor", "participation", "server"),
)
EF21 = Variant(
    "Richtarik et al., NeurIPS 2021",
    channels.learned,
    compressors.top_k,
    shift=lambda _: 1.0,
)
EF = Variant(
    "Stich et al., NeurIPS 2018",
    channels.error_feedback,
    compressors.top_k,
    sampling.poisson,
)


ALL = ("compressor", "sampler", "server")  # in whose rounds everyone takes part


def _sgdm_step(N: Draft, L: float, n: float) -> float:
    omega = N["omega"]  # what is lost of v
    return theory.sgdm_step(L, L, 1 - omega if omega < 1 else 1 / (1 + omega), N["momentum"])


def _mvr_step(N: Draft, L: float, n: float) -> float:
    return theory.mvr_step(L, N["omega"], n, N["momentum"], N.values.get("batch", math.inf))


def _page_step(N: Draft, L: float, n: float) -> float:
    return theory.page_step(L, N["omega"], n, N["restart"], N.values.get("batch", math.inf))


SGDM = Variant(
    "Fatkhullin et al., NeurIPS 2023",
    channels.learned,
    compressors.top_k,
    sampling.poisson,
    functools.partial(momentum.averaged, differences=False),
    shift=lambda _: 1.0,
    step=_sgdm_step,
    where="Theorem 3",
    exchanged=ALL,
)
DASHA = Variant(
    "Tyurin, Richtarik, ICLR 2023",
    channels.dasha,
    compressors.random_k,
    shift=lambda omega: 1 / (1 + 2 * omega),
    rate="1/(1 + 2 omega)",
    step=lambda N, L, n: theory.dasha_step(L, L, N["omega"], n),
    where="Theorem 6.1",
)
MVR = DASHA._replace(
    sampler=sampling.poisson,
    estimator=functools.partial(momentum.averaged, differences=True),
    step=_mvr_step,
    where="Theorem 6.7",
    exchanged=ALL,
)
PAGE = MVR._replace(estimator=momentum.page, step=_page_step, where="Theorem 6.4")


@cached
def _algorithm(name: str, kind: Variant, **parts: Any) -> Algorithm:
    given = {"compressor": kind.compressor(), **only(name, parts, *kind.exchanged)}
    sampler = given.pop("sampler", kind.sampler())
    body = body_of(
        given,
        estimator=kind.estimator(sampler),
        mechanism=mechanisms.noiseless(),
        channel=kind.channel(),
    )
    made = by_rules(globals()[name], kind.paper, PaperRules(body, kind), (momentum.SMOOTHNESS,))
    if kind is not MARINA:
        return made

    def capacity(values: Mapping[str, Any], facts: ProblemFacts) -> dict[str, int]:
        return {**made.capacity(values, facts), "k": facts.d}  # full rounds send all of them

    return made._replace(capacity=capacity)


class PaperRules(NamedTuple):
    """The hyper-parameters of a run."""

    body: Federated
    kind: Variant

    def plan(self, given: Mapping[str, Any], facts: ProblemFacts) -> Plan:
        """The user's values, then the papers', then defaults, labelled as such."""
        body, kind = self
        N = Draft.of(given, facts)
        N.default("clip", math.inf)
        N.parts(body, facts)
        omega, L = N["omega"], N.smoothness(facts)
        N.batch(body, facts)
        if kind.shift is not None:
            N.theorem("shift", kind.shift(omega), kind.rate)
        if kind is MARINA:
            N.theorem("restart", 1 / (1 + omega), "1/(1 + omega)")
        if kind is PAGE:
            b = N.values.get("batch", facts.m)
            N.theorem("restart", b / (facts.m + b), "b/(m + b)")
        # safe orders of the papers: 1/L slowed down by what compression adds to a mean over r
        r = reporting(body, N.values, facts.n)
        if any(param.name == "momentum" for param in body.estimator.params):
            N.default("momentum", 0.1, "chosen by jaxfl")
        if kind.step is not None:
            N.theorem("lr", kind.step(N, L, r), kind.where)
        # of a contraction omega is what is lost: |C(v) - v|^2 <= omega |v|^2
        contracts = not body.compressor.unbiased
        slow = 1 + (omega / (1 - omega) if contracts and omega < 1 else omega * r**-0.5)
        N.default("lr", 1 / (L * slow), "1/L, less for compression")
        return N.plan()
