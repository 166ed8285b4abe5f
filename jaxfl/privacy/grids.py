"""One release on a grid of losses, by connecting the dots.

The hockey-stick curve of a release, known at losses 0, h, ..., Kh in both directions, is replaced by
the curve that joins these points by straight lines in e^eps: that of a discrete pair, and an upper
bound [Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, 2022].
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from jaxfl.privacy.gaussian import Floats
from jaxfl.privacy.profiles import Profile

__all__ = ["Grid", "grid", "loss_bound"]


class Grid(NamedTuple):
    """One release on losses ``h (-K, ..., K)``: probabilities under P, and of an infinite loss."""

    p: Floats
    infinite: float
    variance: float
    inflation: float  # of the variance, by doubling h


def loss_bound(profile: Profile, tail: float) -> float:
    """A loss that the release exceeds with probability below ``tail``, in both directions."""
    mu = min(profile.shift_bound, 1e8)
    most = mu * mu / 2 + mu * math.sqrt(-2 * math.log(tail))
    loss: Floats = np.geomspace(most * 1e-7, most, 160).astype(np.float64)
    inside = np.maximum(*profile(loss)) > tail
    last = int(np.flatnonzero(inside)[-1]) + 1 if inside.any() else 0
    return float(loss[min(last, loss.size - 1)])


@functools.lru_cache(maxsize=64)
def grid(profile: Profile, h: float, K: int, reverse: bool) -> Grid:
    """The release on the grid; K must be even."""
    forward, backward = profile(np.asarray(h * np.arange(K + 1), np.float64))
    if reverse:
        forward, backward = backward, forward
    p, infinite = _join(forward, backward, h)
    coarse, _ = _join(forward[::2], backward[::2], 2 * h)
    loss: Floats = np.asarray(h * np.arange(-K, K + 1), np.float64)
    variance = _variance(p, loss)
    return Grid(p, infinite, variance, max(0.0, _variance(coarse, loss[::2]) - variance))


def _join(forward: Floats, backward: Floats, h: float) -> tuple[Floats, float]:
    K = forward.size - 1
    loss = h * np.arange(1, K + 1)
    above, below = _masses(forward, h), _masses(backward, h)
    p = np.concatenate([(below * np.exp(-loss))[::-1], [0.0], above])
    infinite = float(forward[-1])
    p[K] = max(0.0, 1.0 - float(p.sum()) - infinite)
    return p, infinite


def _masses(H: Floats, h: float) -> Floats:
    """P-masses at losses h, 2h, ..., Kh from ``H`` at 0, h, ..., Kh.

    A chord of H in e^eps falls by the Q-mass above it; P has e^loss times the difference of two.
    Chords that rounding left steeper than the one before are levelled up.
    """
    K = H.size - 1
    # the chord from (k-1)h to kh times e^{kh}; the P-mass at kh is slope_k - e^{-h} slope_{k+1}
    loss = h * np.arange(1, K + 1)
    slope = np.maximum(-np.diff(H) / -math.expm1(-h), 0.0)
    log = np.where(slope > 0, np.log(np.where(slope > 0, slope, 1.0)) - loss, -np.inf)
    log = np.maximum.accumulate(log[::-1])[::-1]
    slope = np.exp(log + loss)
    return np.asarray(np.maximum(slope - math.exp(-h) * np.append(slope[1:], 0.0), 0.0))


def _variance(p: Floats, loss: Floats) -> float:
    mean = float(np.sum(p * loss))  # not a BLAS product: its threads cost more than they save
    return float(np.sum(p * (loss - mean) ** 2))
