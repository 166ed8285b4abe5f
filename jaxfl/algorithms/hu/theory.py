"""Private local SGD: its step size and its convergence as the paper prints them.  Host side.

R. Hu, Y. Guo, Y. Gong: Concentrated Differentially Private and Utility Preserving Federated
Learning.  2020.  Numbers may be NumPy arrays; they broadcast.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["LocalSetting", "local_bound", "local_bound_convex", "local_condition", "local_step"]

Number = Any  # a float or an array of them


class LocalSetting(NamedTuple):
    """The quantities in Theorem 2 and Lemma 6."""

    eta: Number  # local step size
    tau: Number  # local steps per round
    rounds: Number  # T
    r: Number  # devices per round
    batch: Number  # gamma
    d: Number
    L: Number  # smoothness
    sigma: Number  # of the noise in each local step
    variance: Number  # beta^2, of one example's gradient
    gap: Number = 1.0  # f(x0) - f*

    @property
    def K(self) -> Number:
        """Local steps of the whole run, T tau."""
        return self.tau * self.rounds


def local_condition(s: LocalSetting) -> Number:
    """5 eta L + 3 tau^2 eta^2 L^2, which must be at most 1  [Theorem 2]."""
    return 5 * s.eta * s.L + 3 * (s.tau * s.eta * s.L) ** 2


def local_step(L: Number, tau: Number) -> Number:
    """The largest eta with 5 eta L + 3 tau^2 eta^2 L^2 <= 1  [Theorem 2].

    The root with its cancelling digits multiplied out, ``2 / (L (5 + sqrt(25 + 12 tau^2)))``.
    """
    return 2 / (L * (5 + np.sqrt(25 + 12 * tau**2)))


def local_bound(s: LocalSetting) -> Number:
    """Bound on the mean of |grad f|^2 over the K averaged iterates  [Theorem 2]::

        2 gap/(eta K) + eta L beta^2/(2 gamma) + eta L d sigma^2/(2 r)
        + (tau-1)(2 tau-1) eta^2 L^2 (2 beta^2/(3 gamma) + d sigma^2 (r+1)/(3 r))

    As printed; the proof gives twice the two terms with a single eta L.
    """
    noise = s.d * s.sigma**2
    averaged = noise / s.r + s.variance / s.batch
    drift = (s.tau - 1) * (2 * s.tau - 1) * (s.eta * s.L) ** 2
    return (
        2 * s.gap / (s.eta * s.K)
        + s.eta * s.L / 2 * averaged
        + drift * (2 * s.variance / (3 * s.batch) + noise * (s.r + 1) / (3 * s.r))
    )


def local_bound_convex(s: LocalSetting, lam: Number) -> Number:
    """Bound on the mean of f - f* over the K averaged iterates, f lam-strongly convex  [Lemma 6]::

        (1 - eta lam)/(K eta lam) gap + eta L beta^2/(4 lam gamma) + eta L d sigma^2/(4 r lam)
        + eta^2 L^2 (tau-1)(2 tau-1) (beta^2/(3 lam gamma) + d sigma^2 (r+1)/(6 r lam))

    As printed; the proof gives twice the two terms with a single eta L.
    """
    first = (1 - s.eta * lam) / (s.K * s.eta * lam) * s.gap
    return first + (local_bound(s) - 2 * s.gap / (s.eta * s.K)) / (2 * lam)
