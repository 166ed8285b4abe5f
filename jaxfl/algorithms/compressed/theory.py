"""Step sizes of DASHA and EF21-SGDM, and the rates that follow from them.

L is the smoothness of f, and ``each`` the root mean square of those of the f_i.  Both rates bound the mean
of ``|grad f(x_t)|^2`` over the first T points, for full gradients and memories that are 0 at first.
They follow from the papers' proofs, of which docstrings have the steps; ``gap`` is ``f(x_0) - f*``, and
``first`` is ``mean_i |grad f_i(x_0)|^2``.  Theorems are quoted from memory.
"""

from __future__ import annotations

import math

__all__ = ["dasha_rate", "dasha_step", "mvr_step", "page_step", "sgdm_rate", "sgdm_step"]


def dasha_step(L: float, each: float, omega: float, n: float) -> float:
    """``1/(L + sqrt(16 omega (2 omega + 1)/n) each)``  [DASHA, Theorem 6.1]."""
    return 1 / (L + math.sqrt(16 * omega * (2 * omega + 1) / n) * each)


def dasha_rate(gap: float, first: float, step: float, T: int, omega: float, n: float) -> float:
    """``2/(eta T) (gap + eta omega (4 omega + 1) first/(2 n))``, for a = 1/(2 omega + 1).

    With ``e_i = g_i - grad f_i(x)``, e their mean and ``R = |x' - x|^2``, a round gives
    ``E|e_i'|^2 <= (1 - a) |e_i|^2 + 2 omega L_i^2 R`` and
    ``E|e'|^2 <= (1 - a) |e|^2 + 2 omega/n (each^2 R + a^2 mean_i |e_i|^2)``.  So the sum of |e|^2 over
    rounds is within ``4 omega (2 omega + 1)/n each^2`` times that of R, and what the first message leaves.
    A step descends by ``eta/2 |grad f|^2 + (1/(2 eta) - L/2) R - eta/2 |e|^2``: 4 would do for 16.
    """
    return 2 / (step * T) * (gap + step * omega * (4 * omega + 1) * first / (2 * n))


def mvr_step(L: float, omega: float, n: float, eta: float, batch: float) -> float:
    """``1/(L + L sqrt(96 omega (2 omega + 1)/n ((1 - eta)^2/b + 1) + 4 (1 - eta)^2/(eta n b)))``
    [DASHA-MVR, Theorem 6.7].

    Its constants are from memory, and at least those of this proof.  With R as above, D the mean over
    clients of ``|h_i - grad f_i(x)|^2`` and ``V = (1 - eta)^2 L^2 R/b``, a round gives
    ``D' <= (1 - eta)^2 D + 2 V``, its mean over clients 2 V/n, and
    ``H = mean |h_i' - h_i|^2 <= 2 L^2 R + 2 eta^2 D + 2 V``, but for the variance of gradients, which
    no step size changes.  So the sum of H is within ``2 L^2 R + 6 V``, that of the squared error of g
    within ``8 omega (2 omega + 1)/n H + 4 V/(eta n)``, and 16 and 48 would do for both 96.
    """
    old = (1 - eta) ** 2 / batch
    more = 96 * omega * (2 * omega + 1) * (old + 1) / n + 4 * old / (eta * n)
    return 1 / (L * (1 + math.sqrt(more)))


def page_step(L: float, omega: float, n: float, p: float, batch: float) -> float:
    """``1/(L + L sqrt(48 omega (2 omega + 1)/n ((1 - p)/b + 1) + 2 (1 - p)/(p n b)))``
    [DASHA-PAGE, Theorem 6.4].

    Its constants are from memory, and at least those of this proof.  With ``V = (1 - p) L^2 R/b`` and D
    as above, ``D' <= (1 - p) D + V``, its mean over clients V/n, and
    ``H <= 2 L^2 R + 2 p D + V``.  So the sum of H is within ``2 L^2 R + 3 V``, that of the squared
    error of g within ``8 omega (2 omega + 1)/n H + 2 V/(p n)``, and 16 and 24 would do for both 48.
    """
    old = (1 - p) / batch
    more = 48 * omega * (2 * omega + 1) * (old + 1) / n + 2 * old / (p * n)
    return 1 / (L * (1 + math.sqrt(more)))


def sgdm_step(L: float, each: float, alpha: float, eta: float) -> float:
    """``min(alpha/(20 each), eta/(7 L))``  [EF21-SGDM, Theorem 3].

    C loses ``|C(v) - v|^2 <= (1 - alpha) |v|^2``.
    """
    return min(alpha / (20 * each), eta / (7 * L))


def sgdm_rate(gap: float, first: float, step: float, T: int, alpha: float) -> float:
    """``2/(gamma T) (gap + 2 gamma (1 - alpha) first/alpha)`` for steps gamma.

    With h_i the average, ``E = mean_i |g_i - h_i|^2``, ``M = mean_i |h_i - grad f_i(x)|^2``, which is 0 at
    first, and ``R = |x' - x|^2``, a round gives
    ``E' <= (1 - alpha/2) E + 4 eta^2/alpha (M + each^2 R)`` and ``M' <= (1 - eta) M + each^2 R/eta``.
    A step descends by
    ``gamma/2 |grad f|^2 + (1/(2 gamma) - L/2) R - gamma (E + |h - grad f|^2)``.
    """
    return 2 / (step * T) * (gap + 2 * step * (1 - alpha) * first / alpha)
