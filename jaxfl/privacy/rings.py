"""Integer noise on the ring of a secure sum: its probabilities as integers, and the eps that a sum proves.

Each of n clients adds a draw Z with standard deviation s to each coordinate of its integer message, and
the server sees the sum of all words, modulo a power of 2.

* Skellam noise is the difference of two Poisson numbers of mean ``s^2/2``.  A sum of h draws is Skellam
  noise of variance ``mu = h s^2`` [Agarwal, Kairouz, Liu, NeurIPS 2021; integer alpha]::

      D_alpha <= alpha D2^2/(2 mu) + min(((2 alpha - 1) D2^2 + 6 D1)/(4 mu^2), 3 D1/(2 mu))

* Discrete Gaussian noise has masses proportional to ``exp(-k^2/(2 s^2))``.  A sum of h draws is nearly a
  discrete Gaussian [Kairouz, Liu, Steinke, ICML 2021]::

      D_alpha <= alpha e^2/2,   tau = 10 sum_{k=1}^{h-1} exp(-2 pi^2 s^2 k/(k+1))
      e = min(sqrt(D2^2/(h s^2) + tau d/2), D2/(sqrt(h) s) + tau sqrt(d))

* Rounded Gaussian noise is ``round(N)``, N ~ N(0, s^2).  A sum of h draws is nearly ``W = round(N(0, h s^2)
  + U_1 + ... + U_{h-1})``, U uniform on [-1/2, 1/2]: at integers, N + U has the masses of round(N) as its
  density, and ``N(0, h s^2) + U_1 + ... + U_h`` those of W.  An integer D moves W as it moves the normal
  number, ``W + D = round(N(0, h s^2) + D + U_1 + ...)``, which is then rounded: T sums of vectors are as
  private as a Gaussian mechanism, exactly, mu = sqrt(T) D2/(sqrt(h) s), up to the distance tau of the two
  laws [:func:`apart`], which adds ``(1 + e^eps) T d tau`` to delta (derived by us).

Two sums of neighbours differ by an integer vector of norms D2 and ``D1 <= min(sqrt(d) D2, D2^2)``.

Draws come from a table of 64-bit thresholds, made of integers alone: rounds draw exactly its masses.
Each draw is at most :attr:`Table.distance` from Z in total variation, and N draws add
``(1 + e^eps) N distance`` to delta.  The proof needs no real numbers, and no caveat on floating point.
"""

from __future__ import annotations

import decimal
import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxfl.core.params import choice, number
from jaxfl.core.records import document_all
from jaxfl.privacy.events import RING_NOISES, Event, OnRing, RingNoise
from jaxfl.privacy.gaussian import gdp_delta

__all__ = ["ORDERS", "Table", "apart", "longest", "renyi", "ring_delta", "ring_eps", "table"]

Floats = npt.NDArray[np.float64]
ORDERS: Floats = np.unique(np.round(np.geomspace(2, 1e6, 600)))
SMALLER: Floats = np.geomspace(1e-2, 700.0, 200)  # values of eps
POINT = 320  # bits after the point of the numbers from which tables are made
WORD = 64  # bits of a threshold
SLACK = 1 + 1e-5  # by which single precision may raise a bound that the host computes in double


class Table(NamedTuple):
    """The law of one draw, ``k - last`` with chance ``(above[k] - above[k-1])/2^64``.

    Fields:
        last: the largest number, and minus the smallest.
        above: thresholds as two words, the high one first, (2, 2 last) of uint32: a draw is ``-last`` plus
            the number of thresholds that a uniform number of 64 bits reaches.
        distance: from the noise without a table, in total variation.
    """

    last: int
    above: npt.NDArray[np.uint32]
    distance: float


@functools.lru_cache(maxsize=64)
def table(noise: RingNoise, std: float) -> Table:
    """The table of a noise whose standard deviation, or parameter, is ``std``."""
    choice("noise", noise, RING_NOISES)
    number("std", std, least=1, most=2.0**15)
    make = {"skellam": _skellam, "discrete_gaussian": _gaussian, "rounded_gaussian": _rounded}
    half = make[noise](Fraction(std))
    last, whole = len(half) - 1, half[0] + 2 * sum(half[1:])
    masses = [*half[:0:-1], *half]
    thresholds, total, before, off = [], 0, 0, 0
    for mass in masses:
        total += mass
        reached = (total << WORD) // whole
        off += abs(((reached - before) << POINT) - (mass << (WORD + POINT)) // whole)
        thresholds.append(reached)
        before = reached
    high, low = zip(*(divmod(each, 1 << 32) for each in thresholds[:-1]), strict=True)
    # beyond the last mass lies less than its geometric series; the rest bounds the rounding of the masses
    beyond = 2 * half[-1] * half[-2] / (half[-2] - half[-1]) / whole
    distance = off / 2.0 ** (WORD + POINT) / 2 + beyond + 2.0**-200
    return Table(last, np.array([high, low], np.uint32), distance * (1 + 1e-9))


def _gaussian(std: Fraction) -> list[int]:
    """``exp(-k^2/(2 s^2))``, k = 0, 1, ..., until it is below 2^-72, in units of 2^-POINT."""
    with decimal.localcontext() as context:
        context.prec = 120
        exponent = -1 / (2 * std * std)
        ratio = (decimal.Decimal(exponent.numerator) / exponent.denominator).exp()
        step = int(ratio * 2**POINT)
    square, found = step * step >> POINT, [1 << POINT]
    while found[-1] >> (POINT - 72):
        found.append(found[-1] * step >> POINT)  # times exp(-(2k+1)/(2 s^2))
        step = step * square >> POINT
    return found


def _rounded(std: Fraction) -> list[int]:
    """``int_{k-1/2}^{k+1/2} exp(-v^2/(2 s^2)) dv``, in the same units.

    ``exp(-k^2/(2 s^2)) sum_n He_2n(k/s) (1/2)^2n/((2n)! s^2n (2n + 1))``, as ``sum_n He_n(x) (-t)^n/n!`` is
    ``exp(-x t - t^2/2)``, by ``c_{n+1} = (k/s^2 c_n - c_{n-1}/s^2)/(n + 1)`` for c_n = He_n(k/s)/(n! s^n).
    """
    above, below = std.denominator**2, std.numerator**2
    found = []
    for k, peak in enumerate(_gaussian(std)):
        before, c, total, n = 0, 1 << POINT, 0, 0
        while (abs(c) | abs(before)) >> n:
            total += (c >> n) // (n + 1) if n % 2 == 0 else 0
            before, c = c, above * (k * c - before) // (below * (n + 1))
            n += 1
        found.append(peak * total >> POINT)
    return found


def apart(std: float, h: int) -> float:
    """The distance in total variation of a sum of h rounded normal numbers from W, at most.

    With ``psi(t) = exp(-s^2 t^2/2) sin(t/2)/(t/2)``, the characteristic function of N + U, those of the sum
    and of W are ``(sum_m psi(t + 2 pi m))^h`` and ``sum_m psi(t + 2 pi m)^h`` [Poisson].  For |t| <= pi and
    s >= 1 all but m = 0 add up to less than ``b = 1.3 exp(-s^2 (2 pi - |t|)^2/2)``, and both differ by at
    most ``b^h + sum_{j >= 1} binom(h, j) exp(-(h - j) s^2 t^2/2) b^j``.  Its exponents are largest at
    ``t = 2 pi j/h``, or at pi where that is larger: ``-2 pi^2 s^2 j (h - j)/h``, or ``-h pi^2 s^2/2``.
    Masses differ by no more.  Half of their differences up to K add up to at most (K + 1/2) times that, and
    h/2 and 20 deviations are exceeded with chance 6e-89.  For h = 1 the laws are equal.
    """
    if h == 1:
        return 0.0
    from scipy.special import gammaln

    j = np.arange(1, h + 1)
    ways = gammaln(h + 1) - gammaln(j + 1) - gammaln(h - j + 1) + j * math.log(1.3)
    far = np.where(2 * j <= h, 2 * j * (h - j) / h, h / 2)
    masses = np.exp(ways - math.pi**2 * std**2 * far).sum()
    last = h * math.log(1.3) - math.pi**2 * std**2 * h / 2
    K = math.ceil(h / 2 + 20 * std * math.sqrt(h))
    return float((K + 0.5) * (masses + math.exp(min(0.0, last))) + 6e-89)


def _skellam(std: Fraction) -> list[int]:
    """``I_k(mu)/I_0(mu)``, mu = s^2, in the same units, by ratios r_k = I_{k+1}/I_k, the last first.

    ``1/r_{k-1} = 2k/mu + r_k``: an error of the first ratio shrinks by r_k^2 in each step.
    """
    mu, first = std * std, 20 * math.ceil(std) + 400
    ratios, r = [], 0
    for k in range(first, 0, -1):
        r = (1 << 2 * POINT) // ((2 * k * mu.denominator << POINT) // mu.numerator + r)
        ratios.append(r)
    found = [1 << POINT]
    while found[-1] >> (POINT - 72):
        found.append(found[-1] * ratios.pop() >> POINT)
    return found


def longest(clip: float, step: float, d: int) -> float:
    """The square of the norm, in integers, that a rounded message of d coordinates has at most.

    A vector of norm c in units of the step is rounded at random, up or down, until its squared norm is at
    most ``min((c + sqrt(d))^2, c^2 + d/4 + c + sqrt(d)/2)``, with chance ``1 - e^{-1/2}`` in each try
    [Kairouz, Liu, Steinke, ICML 2021, beta = e^{-1/2}].
    """
    c, root = clip / step, math.sqrt(d)
    return math.floor(min((c + root) ** 2, c * c + d / 4 + c + root / 2) * SLACK)


def renyi(event: Event) -> Floats:
    """The Renyi divergence of all releases at :data:`ORDERS`."""
    ring = event.sensitivity
    assert isinstance(ring, OnRing)
    both = 2.0 if event.adjacency == "replace_one" else 1.0
    h, s, d = ring.senders, ring.std, ring.d
    square = both**2 * longest(ring.clip, event.sigma / (s * math.sqrt(h)), d)
    mu = h * s * s
    if ring.noise == "skellam":
        one = min(math.sqrt(d * square), square)
        more = ((2 * ORDERS - 1) * square + 6 * one) / (4 * mu * mu)
        each = ORDERS * square / (2 * mu) + np.minimum(more, 3 * one / (2 * mu))
    elif ring.noise == "rounded_gaussian":  # up to :func:`apart`
        each = ORDERS * square / (2 * mu)
    else:
        k = np.arange(1, h)
        tau = 10 * float(np.exp(-2 * math.pi**2 * s * s * k / (k + 1)).sum())
        e = min(math.sqrt(square / mu + tau * d / 2), math.sqrt(square / mu) + tau * math.sqrt(d))
        each = ORDERS * e * e / 2
    return event.releases * each


def ring_eps(events: list[Event], delta: float) -> float:
    """The least eps of all these releases at which :func:`ring_delta` is at most ``delta``."""
    low, high = 0.0, 1.0
    while ring_delta(events, high) > delta:
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if ring_delta(events, middle) > delta else (low, middle)
    return high


def ring_delta(events: list[Event], eps: float) -> float:
    """``min_a e^{(a-1)(D_a - eps)} (1-1/a)^a/(a-1)`` [Canonne et al., 2020], and what tables add.

    Of rounded Gaussian noise alone, the profile of the Gaussian mechanism.  What tables add grows with eps,
    and the delta of a smaller eps holds, too: the least of some counts.
    """
    a, divergence, off, exact = ORDERS, np.zeros(ORDERS.size), 0.0, True
    for event in events:
        ring = event.sensitivity
        assert isinstance(ring, OnRing)
        divergence = divergence + renyi(event)
        off += event.releases * ring.draws * table(ring.noise, ring.std).distance
        if ring.noise == "rounded_gaussian":
            off += event.releases * ring.d * apart(ring.std, ring.senders)
        else:
            exact = False
    some = np.append(SMALLER[eps > SMALLER], min(eps, 700.0))
    if exact:
        delta = np.asarray(gdp_delta(math.sqrt(2 * divergence[0] / a[0]), some))
    else:
        power = (a - 1) * (divergence - some[:, None] + np.log1p(-1 / a)) - np.log(a)
        delta = np.exp(np.minimum(0.0, power.min(axis=1)))
    return min(1.0, float((delta + (1 + np.exp(some)) * off).min()))


document_all(__name__)
