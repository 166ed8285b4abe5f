"""Lower bounds for ``clip="batch"``, the minibatch mean clipped as a whole.

A record with a large enough gradient dominates the mean of every batch it is in, so that replacing it
moves the release by 2G, not 2G/b.  There is no upper bound unless gradients are bounded independently of
the data.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxfl.privacy.events import Sampling
from jaxfl.privacy.pld import Part, compose
from jaxfl.privacy.profiles import Pair, WithReplacement

__all__ = ["Exposure", "exposure"]


class Exposure(NamedTuple):
    """A realisable attack on batch clipping."""

    hit: float  # the chance that a record is in a batch
    delta: float  # of distinguishing at the claimed eps
    eps: float  # a lower bound at the given delta, in closed form
    client_mu: float  # GDP of the client as a whole


def exposure(
    sampling: Sampling,
    rounds: int,
    G: float,
    sigma: float,
    claimed: float,
    bound: float | None = None,
) -> Exposure:
    """An outlier among records of gradient zero, against its negation.

    Drawn k times it moves the clipped mean by ``min(2G, 2 L0 k/b)``, L0 the data-independent
    ``bound`` if there is one.  In closed form, with mu = 2G/sigma: at delta the loss is at least
    ``mu^2/2 - 4 mu + ln q - ln(2/P[hit at all])``.
    """
    if sampling.scheme == "with_replacement":
        hit = -math.expm1(sampling.b * math.log1p(-1 / sampling.m)) if sampling.m > 1 else 1.0
        k, pi, _ = WithReplacement(int(sampling.b), sampling.m, 1.0).counts
    else:
        hit = min(1.0, sampling.q)
        k, pi = np.ones(1), np.array([hit])
    moves = np.full(k.size, 2 * G)
    if bound is not None:
        moves = np.minimum(moves, 2 * bound * k / sampling.b)
    # a weaker outlier is an attack too, and beyond 40 sigma nothing is gained
    weights, shifts = pi.tolist(), np.minimum(moves / sigma, 40.0).tolist()
    if hit < 1:
        weights, shifts = [1 - float(pi.sum()), *weights], [0.0, *shifts]
    attack = Pair(tuple(weights), tuple(shifts), (1.0,), (0.0,))
    success = float(compose([Part(attack, rounds)], eps=claimed).delta(claimed))
    mu = 2 * G / sigma
    ever = -math.expm1(rounds * math.log1p(-hit)) if hit < 1 else 1.0
    by_hand = mu * mu / 2 - 4 * mu + math.log(hit) - math.log(2 / ever)
    return Exposure(hit, success, by_hand, mu * math.sqrt(rounds))
