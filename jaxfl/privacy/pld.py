"""Composition of many releases: privacy loss distributions on a grid, multiplied by FFT.

Each release is a discrete pair, :class:`Grid`, that bounds it from above.  The
T-fold law of the loss is computed under an exponential tilt towards the eps in question where delta
is so tiny that rounding errors would show.  Mass beyond the window is bounded by Chernoff's
inequality and added to delta; what the FFT wraps around only adds [as Gopi, Lee, Wutschitz, 2021].
Everything is rounded up except the floating-point errors themselves.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfl.core.errors import require
from jaxfl.privacy.gaussian import Floats
from jaxfl.privacy.profiles import Profile

__all__ = ["TINY", "Curve", "Part", "compose"]

TINY = 1e-20  # a smaller delta is only known to be below about that
SEEN = 1e-300  # a smaller probability is taken for none
FAR = 40.0  # e^-FAR is below the rounding of 64 bits

_PRECISION = 1.2e-4  # of eps, that the grid may cost
_SHARE = 1e-7  # of delta, given away to each truncation
_VISIBLE = 1e-8  # larger deltas need no tilt
_NOISE = 1e-12  # rounding errors of all grid points together
_MOST = 2**21  # grid points


@dataclasses.dataclass(frozen=True)
class Part:
    """A release, and the number of times that it is repeated."""

    profile: Profile
    count: int


@dataclasses.dataclass(frozen=True)
class Curve:
    """``delta(eps)`` of a composition, and its inverse; exact for the discretised law."""

    loss: Floats  # l_j, increasing
    mass: Floats  # sum_{k >= j} p_k
    damped: Floats  # sum_{k >= j} p_k e^{l_j - l_k}
    extra: float  # delta that no eps removes

    def delta(self, eps: Any) -> Any:
        """``extra + sum_{l > eps} p(l) (1 - e^(eps - l))``."""
        eps = np.asarray(eps, np.float64)
        j = np.minimum(np.searchsorted(self.loss, eps, side="right"), self.loss.size - 1)
        gap = np.minimum(eps - self.loss[j], 0.0)
        value = self.mass[j] - np.exp(gap) * self.damped[j]
        value = np.where(eps > self.loss[-1], 0.0, np.maximum(value, 0.0))
        return np.minimum(value + self.extra, 1.0)[()]

    def eps(self, delta: Any) -> Any:
        """The least eps >= 0 with ``delta(eps) <= delta``; infinity where there is none."""
        target = np.asarray(delta, np.float64) - self.extra
        at_grid = np.maximum(self.mass - self.damped, 0.0)  # delta at l_j, decreasing in j
        j = np.searchsorted(-at_grid, -target, side="left")
        j = np.minimum(j, self.loss.size - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            eps = self.loss[j] + np.log((self.mass[j] - target) / self.damped[j])
        eps = np.where(np.isnan(eps), 0.0, np.maximum(eps, 0.0))
        return np.where(target <= 0, np.inf, eps)[()]

    def decay(self, eps: float) -> float:
        """``-d ln delta / d eps``: how much a wider law matters."""
        j = min(int(np.searchsorted(self.loss, eps, side="right")), self.loss.size - 1)
        slope = math.exp(min(eps - float(self.loss[j]), 0.0)) * float(self.damped[j])
        return slope / max(float(self.delta(eps)), 1e-300)


def compose(
    parts: Sequence[Part],
    *,
    delta: float | None = None,
    eps: float | None = None,
    reverse: bool = False,
    scale: float = 0.0,
) -> Curve:
    """The curve of all parts together, most precise around the given delta or eps.

    ``reverse`` exchanges the roles of the two data sets.  ``scale`` is an eps to which this one is added:
    the error of this one need only be small in comparison.
    """
    if delta is not None:
        return _compose(parts, delta, reverse, scale=scale)
    require(eps is not None, "eps = None, delta = None", "give one of them to compose for")
    level = 1e-6
    while True:
        curve = _compose(parts, level, reverse, eps)
        reached = float(curve.delta(eps))
        if reached >= 1e-2 * level or level <= TINY:
            return curve
        level = max(TINY, reached if reached > 1e-5 * level else 1e-6 * level)


def _compose(
    parts: Sequence[Part],
    delta: float,
    reverse: bool,
    eps: float | None = None,
    scale: float = 0.0,
) -> Curve:
    """The curve for this delta; ``eps`` is where it will be read, if that is known."""
    parts = [part for part in parts if part.count > 0 and part.profile.shift_bound > 0]
    if not parts:
        return Curve(np.zeros(1), np.zeros(1), np.ones(1), 0.0)
    bounds = [loss_bound(part.profile, _SHARE * delta / part.count / len(parts)) for part in parts]

    # coarse first: what a finer grid has to achieve is read off the curve
    h = 2.0 ** math.floor(math.log2(max(bounds) / 64))
    finest, target = max(bounds) * 8 / _MOST, eps
    for _ in range(40):
        law = _Law(h)
        for part, most in zip(parts, bounds, strict=True):
            g = grid(part.profile, h, 2 * math.ceil(most / h / 2 + 1), reverse)
            if not (g.p > SEEN).any():  # one part reveals everything by itself
                return Curve(np.zeros(1), np.zeros(1), np.ones(1), 1.0)
            law.add(g, part.count)
        window = _window(law, delta, eps)
        if window.size > _MOST:
            h *= 2.0 ** math.ceil(math.log2(window.size / _MOST))
            finest = h  # coarser than wished for, and still an upper bound
            continue
        curve = _convolve(law, window)
        answer = float(curve.eps(delta)) if target is None else target
        if not answer < math.inf or h <= finest or (answer == 0 and target is None):
            return curve
        if target is not None and float(curve.delta(target)) < 1e-2 * delta:
            return curve  # too small for this level
        # Doubling h adds `excess` to the variance of the loss, h itself a third of that; half of it
        # moves the mean, and times the decay of ln delta the tail.
        excess, width = law.inflation / 3, math.sqrt(law.variance)
        decay = curve.decay(answer)
        moved = (decay + 1) * excess / 2
        if target is None:
            ratio = moved / (_PRECISION * max(answer, scale, 0.05 * width))
        else:  # delta itself, which a tail decays from by at least its own width
            ratio = moved * max(decay, 1 / (answer + width + 1e-300)) / (10 * _PRECISION)
        noise = window.psi - window.theta * answer + math.log(_NOISE)
        muddy = window.theta > 0 and noise > math.log(1e-5 * delta)
        if ratio <= 1 and not (muddy and eps != answer):
            return curve
        if ratio > 1:
            h = max(finest, h / 2.0 ** max(1, math.ceil(math.log2(min(ratio, 1e12)) / 2)))
        eps = answer  # a tilt towards the answer
    return curve


# --- composition ---------------------------------------------------------------------------------


class _Law:
    """The law of the loss of all parts together, on losses that are multiples of h."""

    def __init__(self, h: float):
        self.h, self.variance, self.inflation, self.grids = h, 0.0, 0.0, list[tuple[Grid, int]]()
        self.terms: list[tuple[int, Floats, Any]] = []

    def add(self, g: Grid, count: int) -> None:
        """Compose with a part that is repeated ``count`` times."""
        seen = np.flatnonzero(g.p > SEEN)
        self.terms.append((count, np.log(g.p[seen]), self.h * (seen - g.p.size // 2)))
        self.grids.append((g, count))
        self.variance += count * g.variance
        self.inflation += count * g.inflation

    @property
    def width(self) -> float:
        return math.sqrt(self.variance) or self.h

    def moments(self, theta: float) -> tuple[float, float]:
        """``psi(theta) = ln sum_i p_i e^(theta l_i)``, and its derivative."""
        psi = slope = 0.0
        for count, log_p, loss in self.terms:
            weights = log_p + theta * loss
            top = float(weights.max())
            weights = np.exp(weights - top)
            total = float(weights.sum())
            psi += count * (math.log(total) + top)
            slope += count * float(np.sum(weights * loss)) / total
        return psi, slope


class _Window(NamedTuple):
    """Losses ``h (first, ..., first + size - 1)`` and the tilt to compute them under."""

    theta: float
    psi: float
    first: int
    size: int
    lost: float


def _window(law: _Law, delta: float, eps: float | None) -> _Window:
    from scipy import fft

    h, lost = law.h, math.log(_SHARE * delta)
    theta = _tilt(law, delta, eps, lost)
    psi, centre = law.moments(theta)
    high = low = centre
    for _ in range(40):
        # mass beyond the upper end wraps around to the lower, where removing the tilt enlarges it
        before, high = high, _upper(law, theta, lost - theta * (high - low))
        low = _lower(law, theta, min(0.0, lost - psi + theta * high))
        if theta > 0:  # what is wrapped from below shrinks: keep no more than eps >= 0 needs
            low = min(low, 0.0)
        if theta == 0 or abs(high - before) < 0.01 * (high - low):
            break
    first = math.floor(min(low, centre - h) / h)
    size = fft.next_fast_len(max(8, math.ceil(high / h) - first + 1), real=True)
    return _Window(theta, psi, first, size, math.exp(lost))


def _convolve(law: _Law, window: _Window) -> Curve:
    from scipy import fft

    h, (theta, psi, first, size, lost) = law.h, window
    product: Any = 1.0
    for g, count in law.grids:
        index = np.arange(g.p.size) - g.p.size // 2
        tilted = _tilted(g.p, np.asarray(theta * h * index, np.float64))
        folded = np.bincount(index % size, weights=tilted, minlength=size)
        product = product * np.power(fft.rfft(folded), count)
    folded = np.maximum(np.roll(fft.irfft(product, size), -first % size), 0.0)
    loss: Floats = np.asarray(h * (first + np.arange(size)), np.float64)
    p = folded * np.exp(np.minimum(psi - theta * loss, 0.0 if theta == 0 else 700.0))
    mass = np.cumsum(p[::-1])[::-1]
    finite = (count * math.log1p(-min(g.infinite, 1 - 1e-16)) for g, count in law.grids)
    infinite = -math.expm1(sum(finite))
    return Curve(loss, mass, _discounted(p, h), infinite + lost)


def _tilted(p: Floats, exponent: Floats) -> Floats:
    """``p e^exponent``, normalised."""
    seen = p > SEEN
    weights = np.where(seen, np.log(np.where(seen, p, 1.0)) + exponent, -np.inf)
    weights = np.exp(weights - weights.max())
    return np.asarray(weights / weights.sum())


def _discounted(p: Floats, h: float) -> Floats:
    """``sum_{k >= j} p_k e^(-h (k - j))``."""
    if h > FAR:  # two terms: to leave out the others enlarges delta, by less than rounding does
        return np.asarray(p + math.exp(-h) * np.append(p[1:], 0.0))
    block = max(1, min(p.size, int(200 / h)))
    out = np.empty_like(p)
    carry = 0.0
    for stop in range(p.size, 0, -block):
        start = max(0, stop - block)
        k = np.arange(stop - start)
        weights = np.exp(-h * k)
        out[start:stop] = np.cumsum((p[start:stop] * weights)[::-1])[::-1] / weights
        out[start:stop] += carry * np.exp(-h * (stop - start - k))
        carry = float(out[start])
    return out


def _tilt(law: _Law, delta: float, eps: float | None, lost: float) -> float:
    """The least theta under which delta stands out from the rounding errors of the FFT.

    If eps is not known, theta centres the law where Chernoff's bound falls to delta.  It is never so
    large that the law leaves the window.
    """
    if delta >= _VISIBLE:
        return 0.0
    top = _upper(law, 0.0, lost)
    quiet = math.log(1e-5 * delta / _NOISE)

    def enough(theta: float) -> bool:
        psi, centre = law.moments(theta)
        if eps is None:
            return centre > top or psi - theta * centre < math.log(delta)
        return centre > min(top, eps) or psi - theta * eps < quiet

    if enough(0.0):
        return 0.0
    low, high = 0.0, 1.0 / law.width
    while not enough(high) and high * law.width < 1e9:
        low, high = high, 2 * high
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    # few and large losses: the centre jumps, and the law has two modes just before it does
    return high if law.moments(high)[1] <= top else 0.8 * low


def _upper(law: _Law, theta: float, log_lost: float) -> float:
    """A loss exceeded with probability below e^log_lost: the best of Chernoff's bounds."""
    low = max(1.01 * theta, min(1e-3 / law.width, 1e-2))
    top = 10 * low + max(1e3 / law.width, 1e3)
    return _least(lambda s: (law.moments(s)[0] - log_lost) / s, low, top)


def _lower(law: _Law, theta: float, log_lost: float) -> float:
    """A loss below which the tilted law has mass below e^log_lost."""
    psi, ends = law.moments(theta)[0], (min(0.1 / law.width, 1e-2), max(1e3 / law.width, 1e3))
    return -_least(lambda s: (law.moments(theta - s)[0] - psi - log_lost) / s, *ends)


def _least(f: Callable[[float], float], low: float, high: float) -> float:
    """About the least value of a function with one valley, on a logarithmic scale."""
    ratio = (math.sqrt(5) - 1) / 2
    a, b = math.log(low), math.log(high)
    x, y = b - ratio * (b - a), a + ratio * (b - a)
    fx, fy = f(math.exp(x)), f(math.exp(y))
    while b - a > 0.1:
        if fx <= fy:
            b, y, fy = y, x, fx
            x = b - ratio * (b - a)
            fx = f(math.exp(x))
        else:
            a, x, fx = x, y, fy
            y = a + ratio * (b - a)
            fy = f(math.exp(y))
    return min(fx, fy)


# --- one release on a grid of losses, by connecting the dots -------------------------------------


class Grid(NamedTuple):
    """One release on losses ``h (-K, ..., K)``: probabilities under P, and of an infinite loss.

    The hockey-stick curve of a release, known at losses 0, h, ..., Kh in both directions, is replaced by
    the curve that joins these points by straight lines in e^eps: that of a discrete pair, and an upper
    bound [Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, 2022].
    """

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
