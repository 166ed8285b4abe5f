"""Privacy profiles of single releases under replace-one.

A profile maps eps >= 0 to ``H(eps) = sup_S P(S) - e^eps Q(S)`` and to the same with P and Q
exchanged; together they determine a dominating pair of the release.  P and Q are laws of a
one-dimensional statistic whose noise is standard normal.  Letters: q is the chance that the record
is drawn, g its norm in units of the noise.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Hashable
from typing import Protocol

import numpy as np

from jaxfl.privacy.gaussian import Floats, gdp_delta

__all__ = [
    "Gaussian",
    "Pair",
    "Profile",
    "Shown",
    "Split",
    "WithReplacement",
    "WithoutReplacement",
    "poisson",
    "poisson_add_remove",
    "theorem_k",
]

_TINY = 1e-24


class Profile(Hashable, Protocol):
    """``profile(eps) -> (H(P||Q), H(Q||P))`` for an increasing array of eps >= 0."""

    @property
    def shift_bound(self) -> float: ...  # no Gaussian shift of this release is larger

    @property
    def symmetric(self) -> bool: ...

    def __call__(self, eps: Floats) -> tuple[Floats, Floats]: ...


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """N(mu) against N(0)."""

    mu: float
    symmetric = True

    @property
    def shift_bound(self) -> float:
        return self.mu

    def __call__(self, eps: Floats) -> tuple[Floats, Floats]:
        delta = gdp_delta(self.mu, eps)
        return delta, delta


@dataclasses.dataclass(frozen=True)
class Shown:
    """N(mu_k) against N(0) with probability w_k, where k is shown and does not depend on data.

    ``H(eps) = sum_k w_k delta_Gauss(eps; mu_k)``: a record's own coins revealed, or one coordinate
    under a public random mask.
    """

    w: tuple[float, ...]
    mu: tuple[float, ...]
    symmetric = True

    @property
    def shift_bound(self) -> float:
        return max(self.mu)

    def __call__(self, eps: Floats) -> tuple[Floats, Floats]:
        delta = sum(
            (w * gdp_delta(mu, eps) for w, mu in zip(self.w, self.mu, strict=True)), 0 * eps
        )
        return delta, delta


@dataclasses.dataclass(frozen=True)
class WithoutReplacement:
    """b of m records, the changed one among them with probability q = b/m.

    ``H(eps) = q delta_Gauss(ln(1 + (e^eps - 1)/q); 2g)`` in both directions [Balle, Barthe,
    Gaboardi, 2018, Theorem 9, for replace-one].
    """

    q: float
    g: float
    symmetric = True

    @property
    def shift_bound(self) -> float:
        return 2 * self.g

    def __call__(self, eps: Floats) -> tuple[Floats, Floats]:
        delta = self.q * gdp_delta(2 * self.g, amplified(eps, self.q))
        return delta, delta


@dataclasses.dataclass(frozen=True)
class WithReplacement:
    """b independent draws from m records: the changed one comes k times, pi_k = Bin(b, 1/m)(k).

    With q' = 1 - pi_0, gamma' = e^eps, gamma = 1 + (gamma' - 1)/q', beta = gamma'/gamma::

        H(eps) <= q' [ (1 - beta) H_gamma(sum_k (pi_k/q') N(2 k g) || N(0))
                       + beta sum_k (pi_k/q') delta_Gauss(ln gamma; 2 k g) ]

    a tightening of Balle, Barthe and Gaboardi (2018), Theorem 10, which bounds the first term like
    the second: conditioned on no draw of the record both worlds agree, and by advanced joint
    convexity the k-fold outputs need only be compared with what they mix to.
    """

    b: int
    m: int
    g: float
    symmetric = True

    @functools.cached_property
    def counts(self) -> tuple[Floats, Floats, float]:
        """k, pi_k and the chance of more draws than that, which is given away whole."""
        from scipy.stats import binom

        k = np.arange(1, self.b + 1 if self.b < 1000 else self.b // self.m + 1000)
        more = binom.sf(k, self.b, 1 / self.m)
        k = k[: int(np.searchsorted(-more, -_TINY)) + 1]
        pi = binom.pmf(k, self.b, 1 / self.m)
        k, pi = k[pi > 0], pi[pi > 0]
        return k.astype(np.float64), pi, float(more[int(k[-1]) - 1])

    @property
    def shift_bound(self) -> float:
        return 2 * self.g * float(self.counts[0][-1])

    def __call__(self, eps: Floats) -> tuple[Floats, Floats]:
        k, pi, lost = self.counts
        hit = float(pi.sum())
        log_gamma = amplified(eps, hit)
        mixed = Pair(tuple(pi / hit), tuple(2 * self.g * k), (1.0,), (0.0,))(log_gamma, False)[0]
        beta = np.exp(np.minimum(eps - log_gamma, 0.0))
        separate = np.zeros_like(eps)
        for weight, shift in zip(pi, 2 * self.g * k, strict=True):
            separate += weight * gdp_delta(shift, log_gamma)
        delta = (1 - beta) * hit * mixed + beta * separate + lost
        return delta, delta


def amplified(eps: Floats, q: float) -> Floats:
    """``ln(1 + (e^eps - 1)/q)`` without overflow."""
    with np.errstate(over="ignore"):
        near = np.log1p(np.expm1(np.minimum(eps, 30.0)) / q)
        far = eps - math.log(q) + np.log1p(-(1 - q) * np.exp(-eps))
    return np.where(eps < 30, near, far)


@dataclasses.dataclass(frozen=True)
class Pair:
    """``P = sum_i w_i N(a_i)`` against ``Q = sum_j v_j N(c_j)``, every a_i >= every c_j.

    The loss ``ln P/Q`` then increases, so the best set is a half-line.
    """

    w: tuple[float, ...]
    a: tuple[float, ...]
    v: tuple[float, ...]
    c: tuple[float, ...]

    @property
    def symmetric(self) -> bool:
        return self.w == self.v and self.a == tuple(-c for c in self.c)

    @property
    def shift_bound(self) -> float:
        return max(self.a) - min(self.c)

    def loss(self, x: Floats) -> tuple[Floats, Floats]:
        """``ln P(x)/Q(x)`` and its derivative."""
        p, dp = log_mixture(self.w, self.a, x)
        r, dr = log_mixture(self.v, self.c, x)
        return p - r, dp - dr

    def __call__(self, eps: Floats, backward: bool = True) -> tuple[Floats, Floats]:
        if self.shift_bound == 0:
            return np.zeros_like(eps), np.zeros_like(eps)
        x = invert(self.loss, eps)
        forward = above(self.w, self.a, x, 0 * eps) - above(self.v, self.c, x, eps)
        forward = np.maximum(forward, 0.0)
        if self.symmetric or not backward:
            return forward, forward
        y = invert(self.loss, -eps[::-1], floor=min(self.c) - 64)[::-1]
        back = above(self.v, minus(self.c), -y, 0 * eps) - above(self.w, minus(self.a), -y, eps)
        return forward, np.maximum(back, 0.0)


def poisson(q: float, g: float) -> Pair:
    """``(1-q) N(0) + q N(g)`` against ``(1-q) N(0) + q N(-g)``: Poisson sampling, replace-one.

    Attained by a record of gradient +-G among records of gradient zero.
    """
    return theorem_k(q, g, 0.0)


def poisson_add_remove(q: float, g: float) -> Pair:
    """``(1-q) N(0) + q N(g)`` against ``N(0)``: Poisson sampling, one record more or less."""
    if q == 1:
        return Pair((1.0,), (g,), (1.0,), (0.0,))
    return Pair((1 - q, q), (0.0, g), (1.0,), (0.0,))


def theorem_k(q: float, X: float, Y: float) -> Pair:
    """``(1-q) N(Y) + q N(X)`` against its mirror image, X >= Y."""
    if q == 1:
        return Pair((1.0,), (X,), (1.0,), (-X,))
    return Pair((1 - q, q), (Y, X), (1 - q, q), (-Y, -X))


@dataclasses.dataclass(frozen=True)
class Split:
    """``(1-q) N(-qV) + q N((1-q)V)`` against ``N(0)``: an estimate against its mean over coins."""

    q: float
    V: float
    symmetric = False

    @property
    def shift_bound(self) -> float:
        return self.V

    def __call__(self, eps: Floats) -> tuple[Floats, Floats]:
        w, a = (1 - self.q, self.q), (-self.q * self.V, (1 - self.q) * self.V)
        if self.V == 0 or self.q in (0, 1):
            return np.zeros_like(eps), np.zeros_like(eps)
        # ln P/N is convex with its least value at the midpoint of the two means
        middle, least = (a[0] + a[1]) / 2, a[0] * a[1] / 2
        right = functools.partial(log_mixture, w, a)
        left = functools.partial(log_mixture, w, minus(a))
        zero = 0 * eps
        one, origin = (1.0,), (0.0,)
        x, y = invert(right, eps, middle), invert(left, eps, -middle)
        forward = above(w, a, x, zero) - above(one, origin, x, eps)
        forward += above(w, minus(a), y, zero) - above(one, origin, y, eps)
        inside = -eps > least
        back = zero.copy()
        if inside.any():
            e = eps[inside]
            x = invert(right, -e[::-1], middle)[::-1]
            y = -invert(left, -e[::-1], -middle)[::-1]
            back[inside] = between(one, origin, y, x)
            back[inside] -= np.exp(np.minimum(e, 700.0)) * between(w, a, y, x)
        return np.maximum(forward, 0.0), np.maximum(back, 0.0)


# --- mixtures of unit normals on a line: their logarithm, half-lines, and where a loss is reached ----


def minus(means: tuple[float, ...]) -> tuple[float, ...]:
    """The means of the mirror image."""
    return tuple(-a for a in means)


def log_mixture(w: tuple[float, ...], a: tuple[float, ...], x: Floats) -> tuple[Floats, Floats]:
    """``ln sum_i w_i N(x; a_i, 1)/N(x; 0, 1)`` and its derivative."""
    terms = [math.log(wi) + ai * x - ai * ai / 2 for wi, ai in zip(w, a, strict=True)]
    if len(terms) == 1:
        return terms[0], np.full_like(x, a[0])
    top = functools.reduce(np.maximum, terms)
    total, slope = np.zeros_like(x), np.zeros_like(x)
    for ai, term in zip(a, terms, strict=True):
        part = np.exp(term - top)
        total += part
        slope += ai * part
    return top + np.log(total), slope / total


def above(w: tuple[float, ...], a: tuple[float, ...], x: Floats, log_factor: Floats) -> Floats:
    """``e^log_factor sum_i w_i P[N(a_i, 1) > x]``."""
    from scipy.special import log_ndtr

    total = np.zeros_like(x)
    for wi, ai in zip(w, a, strict=True):
        total += wi * np.exp(np.minimum(log_ndtr(ai - x) + log_factor, 700.0))
    return total


def between(w: tuple[float, ...], a: tuple[float, ...], x: Floats, y: Floats) -> Floats:
    """``sum_i w_i P[x < N(a_i, 1) < y]``."""
    from scipy.special import ndtr

    total = np.zeros_like(x)
    for wi, ai in zip(w, a, strict=True):
        total += wi * np.where(x > ai, ndtr(ai - x) - ndtr(ai - y), ndtr(y - ai) - ndtr(x - ai))
    return total


def invert(
    loss: Callable[[Floats], tuple[Floats, Floats]],
    targets: Floats,
    start: float | None = None,
    floor: float = -64.0,
) -> Floats:
    """x with ``loss(x) = target`` for increasing targets and a loss increasing from ``start`` on.

    Newton steps kept inside a bracket from a table.  A target that is not reached above ``floor``
    gives about that.
    """
    low = -1.0 if start is None else start
    while start is None and loss(np.array([low]))[0][0] > targets[0] and low > floor:
        low = max(2 * low, floor)
    high = max(low, 0.0) + 1.0
    while loss(np.array([high]))[0][0] < targets[-1] and high < 1e9:
        high += max(1.0, high)
    table = np.linspace(low, high, 1025)
    values = np.maximum.accumulate(loss(table)[0])
    cell = np.clip(np.searchsorted(values, targets), 1, 1024)
    left, right = table[cell - 1].copy(), table[cell].copy()
    rise = values[cell] - values[cell - 1]
    part = np.divide(targets - values[cell - 1], rise, out=np.full_like(rise, 0.5), where=rise > 0)
    x = left + np.clip(part, 0.0, 1.0) * (right - left)
    close = 1e-8 * max(1.0, high)  # H is flat in x at its best
    for _ in range(60):
        value, slope = loss(x)
        below = value < targets
        left, right = np.where(below, x, left), np.where(below, right, x)
        with np.errstate(over="ignore"):
            step = np.divide(targets - value, slope, out=np.full_like(x, np.inf), where=slope > 0)
        wild = (np.abs(step) > close) & ~((x + step > left) & (x + step < right))
        step = np.where(wild, (left + right) / 2 - x, step)
        x = x + step
        if np.max(np.abs(step), initial=0.0) <= close:
            break
    return np.asarray(x, np.float64)
