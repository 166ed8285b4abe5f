"""Composition of many releases: privacy loss distributions on a grid, multiplied by FFT.

Each release is a discrete pair from :mod:`jaxfl.privacy.grids` that bounds it from above.  The
T-fold law of the loss is computed under an exponential tilt towards the eps in question where delta
is so tiny that rounding errors would show.  Mass beyond the window is bounded by Chernoff's
inequality and added to delta; what the FFT wraps around only adds [as Gopi, Lee, Wutschitz, 2021].
Everything is rounded up except the floating-point errors themselves.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfl.errors import InputError
from jaxfl.privacy.gaussian import Floats
from jaxfl.privacy.grids import Grid, grid, shape
from jaxfl.privacy.profiles import Profile

__all__ = ["Curve", "Part", "compose"]

# A grid step is fine enough when doubling it adds less than this to the variance of the loss; the
# step itself adds a third of it, and eps moves by about half of that, relatively.
_INFLATION = 1e-3
_SHARE = 1e-7  # of delta, given away to each truncation
_VISIBLE = 1e-8  # a delta from here on needs no tilt
_MOST = 2**21  # grid points


@dataclasses.dataclass(frozen=True)
class Part:
    """A release and how often it is made."""

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


def compose(
    parts: Sequence[Part],
    *,
    delta: float | None = None,
    eps: float | None = None,
    reverse: bool = False,
) -> Curve:
    """The curve of all parts together, most precise around the given delta or eps.

    ``reverse`` exchanges the roles of the two data sets.
    """
    if delta is not None:
        return _compose(parts, delta, reverse)
    if eps is None:
        raise InputError("eps = None, delta = None: give one of them to compose for.")
    for trial in (1e-6, 1e-14, 1e-30, 1e-60):
        curve = _compose(parts, trial, reverse)
        if curve.delta(eps) >= 1e-2 * trial:
            break
    return curve


def _compose(parts: Sequence[Part], delta: float, reverse: bool) -> Curve:
    parts = [part for part in parts if part.count > 0 and part.profile.reach > 0]
    if not parts:
        return Curve(np.zeros(1), np.zeros(1), np.ones(1), 0.0)
    shapes = [shape(part.profile, _SHARE * delta / part.count / len(parts)) for part in parts]
    reaches = [reach for reach, _ in shapes]
    counts = [part.count for part in parts]

    def grids(h: float) -> list[Grid]:
        return [
            grid(part.profile, h, 2 * math.ceil(reach / h / 2 + 1), reverse)
            for part, reach in zip(parts, reaches, strict=True)
        ]

    finest = max(reaches) * 8 / _MOST
    width = math.sqrt(sum(c * v for c, (_, v) in zip(counts, shapes, strict=True)) / sum(counts))
    h = 2.0 ** math.floor(
        math.log2(max(min(1.4 * math.sqrt(_INFLATION) * width, max(reaches) / 8), finest))
    )
    while h > finest:
        made = grids(h)
        spread = sum(c * g.variance for c, g in zip(counts, made, strict=True))
        excess = sum(c * g.inflation for c, g in zip(counts, made, strict=True))
        if excess <= _INFLATION * spread:
            break
        h /= 2.0 ** max(1, math.floor(math.log2(excess / (_INFLATION * spread)) / 2))
    halvings = 3
    while True:
        made = grids(h)
        window = _window(_Moments(made, counts, h), made, counts, h, delta)
        if window.size > _MOST:
            h *= 2.0 ** math.ceil(math.log2(window.size / _MOST))
            finest = h  # coarser than wished for, and still an upper bound
            continue
        curve = _convolve(made, counts, h, window)
        if not 0 < float(curve.eps(delta)) < 8 * h or h / 2 <= finest or halvings == 0:
            return curve
        h /= 2  # the question is finer than the law's own width
        halvings -= 1


# --- composition ---------------------------------------------------------------------------------


class _Moments:
    """``psi(theta) = ln sum_i p_i e^(theta l_i)`` of all parts together, and its derivative."""

    def __init__(self, grids: Sequence[Grid], counts: Sequence[int], h: float):
        self.terms = []
        for g, count in zip(grids, counts, strict=True):
            seen = np.flatnonzero(g.p > 1e-300)
            self.terms.append((count, np.log(g.p[seen]), h * (seen - g.p.size // 2)))

    def __call__(self, theta: float) -> tuple[float, float]:
        psi = slope = 0.0
        for count, log_p, loss in self.terms:
            weights = log_p + theta * loss
            top = float(weights.max())
            weights = np.exp(weights - top)
            total = float(weights.sum())
            psi += count * (math.log(total) + top)
            slope += count * float(weights @ loss) / total
        return psi, slope


class _Window(NamedTuple):
    """Losses ``h (first, ..., first + size - 1)`` and the tilt to compute them under."""

    theta: float
    psi: float
    first: int
    size: int
    lost: float


def _window(
    moments: _Moments,
    grids: Sequence[Grid],
    counts: Sequence[int],
    h: float,
    delta: float,
) -> _Window:
    from scipy import fft

    width = math.sqrt(sum(c * g.variance for c, g in zip(counts, grids, strict=True))) or h
    theta = _tilt(moments, width, delta)
    psi, centre = moments(theta)
    lost = math.log(_SHARE * delta)
    high = low = centre
    for _ in range(3 if theta > 0 else 1):
        # what leaves the window above comes back below, where removing the tilt enlarges it
        high = _upper(moments, theta, width, lost - theta * (high - low))
        low = _lower(moments, theta, width, min(0.0, lost - psi + theta * high))
        if (
            theta > 0
        ):  # the tilt shrinks what is wrapped from below, so keep all that eps >= 0 needs
            low = min(low, 0.0)
    first = math.floor(min(low, centre - h) / h)
    size = fft.next_fast_len(max(8, math.ceil(high / h) - first + 1), real=True)
    return _Window(theta, psi, first, size, math.exp(lost))


def _convolve(grids: Sequence[Grid], counts: Sequence[int], h: float, window: _Window) -> Curve:
    from scipy import fft

    theta, psi, first, size, lost = window
    product: Any = 1.0
    for g, count in zip(grids, counts, strict=True):
        index = np.arange(g.p.size) - g.p.size // 2
        tilted = _tilted(g.p, np.asarray(theta * h * index, np.float64))
        folded = np.bincount(index % size, weights=tilted, minlength=size)
        product = product * np.power(fft.rfft(folded), count)
    law = np.maximum(np.roll(fft.irfft(product, size), -first % size), 0.0)
    loss: Floats = np.asarray(h * (first + np.arange(size)), np.float64)
    p = law * np.exp(np.minimum(psi - theta * loss, 0.0 if theta == 0 else 700.0))
    mass = np.cumsum(p[::-1])[::-1]
    infinite = -math.expm1(
        sum(c * math.log1p(-min(g.infinite, 1 - 1e-16)) for c, g in zip(counts, grids, strict=True))
    )
    return Curve(loss, mass, _discounted(p, h), infinite + lost)


def _tilted(p: Floats, exponent: Floats) -> Floats:
    """``p e^exponent``, normalised."""
    seen = p > 1e-300
    weights = np.where(seen, np.log(np.where(seen, p, 1.0)) + exponent, -np.inf)
    weights = np.exp(weights - weights.max())
    return np.asarray(weights / weights.sum())


def _discounted(p: Floats, h: float) -> Floats:
    """``sum_{k >= j} p_k e^(-h (k - j))``."""
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


def _tilt(moments: _Moments, width: float, delta: float) -> float:
    """theta such that delta, by Chernoff's bound, is not far out in the tilted law.

    Zero unless delta is so small that the rounding errors of the FFT could be seen.
    """

    def enough(theta: float) -> bool:
        psi, centre = moments(theta)
        return psi - theta * centre < math.log(delta / _VISIBLE)

    if delta >= _VISIBLE:
        return 0.0
    low, high = 0.0, 1.0 / width
    while not enough(high) and high * width < 1e9:
        low, high = high, 2 * high
    for _ in range(5):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _upper(moments: _Moments, theta: float, width: float, log_lost: float) -> float:
    """A loss exceeded with probability below e^log_lost: the best of Chernoff's bounds."""
    base = max(theta, 1e-3 / width)
    return _least(lambda r: (moments(base * r)[0] - log_lost) / (base * r), 1.01, 1e3)


def _lower(moments: _Moments, theta: float, width: float, log_lost: float) -> float:
    """A loss below which the tilted law has mass below e^log_lost."""
    psi = moments(theta)[0]
    return -_least(lambda r: (moments(theta - r / width)[0] - psi - log_lost) * width / r, 0.1, 1e3)


def _least(f: Callable[[float], float], low: float, high: float) -> float:
    """About the least value of a function with one valley, on a logarithmic scale."""
    ratio = (math.sqrt(5) - 1) / 2
    a, b = math.log(low), math.log(high)
    x, y = b - ratio * (b - a), a + ratio * (b - a)
    fx, fy = f(math.exp(x)), f(math.exp(y))
    for _ in range(12):
        if fx <= fy:
            b, y, fy = y, x, fx
            x = b - ratio * (b - a)
            fx = f(math.exp(x))
        else:
            a, x, fx = x, y, fy
            y = a + ratio * (b - a)
            fy = f(math.exp(y))
    return min(fx, fy)
