"""Step sizes, schedules and noise levels as the papers print them.  Host side: floats in and out.

Letters as in SoteriaFL [Li, Zhao, Li, Chi, 2022], held by a :class:`Setting`, as in Hu, Guo and
Gong, held by a :class:`LocalSetting`, and as in Gao, Lowy, Zhou and Wright, held by an
:class:`IsrlSetting` (all of theirs is in :mod:`jaxfl.theory_isrl`).  Their numbers may be NumPy
arrays; they broadcast.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxfl.theory_isrl import (
    Complexity,
    IsrlSetting,
    excess_risk,
    rounds_lower_bound,
    smooth_gradients,
    smooth_rounds,
    subgradient_gradients,
    table1,
    table2,
)

__all__ = [
    "Complexity",
    "IsrlSetting",
    "LocalSetting",
    "Setting",
    "cdp_rounds",
    "cdp_step",
    "excess_risk",
    "local_bound",
    "local_bound_convex",
    "local_condition",
    "local_step",
    "paper_eps",
    "paper_sigma",
    "rounds_lower_bound",
    "saga_batch",
    "saga_step",
    "sgd_batch",
    "sgd_rounds",
    "sgd_step",
    "shift",
    "smooth_gradients",
    "smooth_rounds",
    "subgradient_gradients",
    "svrg_batch",
    "svrg_rounds",
    "svrg_step",
    "table1",
    "table2",
    "tau",
]

Number = Any  # a float or an array of them
CDP_CONSTANT = 8  # c of Theorem 1, from its proof


class Setting(NamedTuple):
    """What the theorems speak of."""

    n: Number  # clients
    m: Number  # samples of each
    d: Number  # coordinates
    omega: Number  # variance of the compressor
    L: Number  # smoothness of every example's loss
    G: Number  # bound on every example's gradient
    eps: Number
    delta: Number
    gap: Number = 1.0  # D_f = f(x0) - f*

    @property
    def noise(self) -> Number:
        """d ln(1/delta)."""
        return self.d * np.log(1 / self.delta)


def shift(omega: Number) -> Number:
    """gamma = sqrt((1 + 2 omega) / (2 (1 + omega)^3))  [Theorem 3]."""
    return np.sqrt((1 + 2 * omega) / (2 * (1 + omega) ** 3))


def tau(s: Setting) -> Number:
    """tau = (1 + omega)^{3/2} / n^{1/2}  [Table 1]."""
    return (1 + s.omega) ** 1.5 / np.sqrt(s.n)


def paper_sigma(constant: Number, s: Setting, rounds: Number) -> Number:
    """sigma = sqrt(c G^2 T ln(1/delta)) / (m eps)  [Theorems 1 and 2].

    The papers print only "c"; 8 follows from the proof of CDP-SGD, 12 of SoteriaFL-SGD, 96 of
    SoteriaFL-SVRG and -SAGA.  The theorem's condition eps < c' b^2 T / m^2 is the caller's.
    """
    return np.sqrt(constant * s.G**2 * rounds * np.log(1 / s.delta)) / (s.m * s.eps)


def paper_eps(constant: Number, s: Setting, rounds: Number, sigma: Number) -> Number:
    """The eps at which :func:`paper_sigma` gives ``sigma``; that of ``s`` is not looked at."""
    return paper_sigma(constant, s._replace(eps=1.0), rounds) / sigma


# --- CDP-SGD -------------------------------------------------------------------------------------


def cdp_step(s: Setting) -> Number:
    """eta = min(1/L, sqrt(n D_f c d l) / (G m eps sqrt((1 + omega) L))), l = ln(1/delta).

    [Theorem 1]
    """
    noise = np.sqrt(s.n * s.gap * CDP_CONSTANT * s.noise)
    return np.minimum(1 / s.L, noise / (s.G * s.m * s.eps * np.sqrt((1 + s.omega) * s.L)))


def cdp_rounds(s: Setting) -> Number:
    """T = max(m eps sqrt(n L D_f) / (G sqrt((1+omega) c d l)), m^2 eps^2 / (c d l)).

    [Theorem 1], l = ln(1/delta).
    """
    noise, signal = CDP_CONSTANT * s.noise, s.m * s.eps
    first = signal * np.sqrt(s.n * s.L * s.gap) / (s.G * np.sqrt((1 + s.omega) * noise))
    return np.maximum(first, signal**2 / noise)


# --- SoteriaFL -----------------------------------------------------------------------------------


def sgd_step(s: Setting) -> Number:
    """eta = 1 / ((1 + 2 sqrt((1 + omega)^3 / n)) L)  [Corollary 1]."""
    return 1 / ((1 + 2 * tau(s)) * s.L)


def svrg_step(s: Setting, b: Number, p: Number) -> Number:
    """eta = p^{2/3} b^{1/3} min(1, 1/tau) / (2 L)  [Corollary 2].

    That is min(1, 1/tau) / (8 L) at the paper's b = m^{2/3} / 4 and p = b/m.
    """
    return p ** (2 / 3) * b ** (1 / 3) * np.minimum(1, 1 / tau(s)) / (2 * s.L)


def saga_step(s: Setting) -> Number:
    """eta = min(1, 1/tau) / (3 L)  [Corollary 3], for its own b."""
    return np.minimum(1, 1 / tau(s)) / (3 * s.L)


def sgd_batch(s: Setting) -> Number:
    """b = min(m eps G sqrt(beta) / sqrt((1+omega) L d ln(1/delta)), m), beta = tau / (2 (1+omega)).

    [Corollary 1]; at least one sample.
    """
    beta = tau(s) / (2 * (1 + s.omega))
    b = s.m * s.eps * s.G * np.sqrt(beta) / np.sqrt((1 + s.omega) * s.L * s.noise)
    return np.maximum(1, np.minimum(_floor(b), s.m))


def svrg_batch(s: Setting) -> Number:
    """b = m^{2/3} / 4  [Corollary 2], at least one sample; the snapshot moves with p = b/m."""
    return np.maximum(1, _floor(s.m ** (2 / 3) / 4))


def saga_batch(s: Setting) -> Number:
    """b = min(3 m^{2/3}, m)  [Corollary 3; the minimum is ours, for m < 27]."""
    return np.maximum(1, np.minimum(_floor(3 * s.m ** (2 / 3)), s.m))


def sgd_rounds(s: Setting) -> Number:
    """T = sqrt(n L) m eps (1 + sqrt(tau)) / (G sqrt((1+omega) d ln(1/delta))).

    [Corollary 1]; the paper gives the order, constant 1 here.
    """
    return _order(s) * (1 + np.sqrt(tau(s)))


def svrg_rounds(s: Setting) -> Number:
    """T = sqrt(n L) m eps max(1, tau) / (G sqrt((1+omega) d ln(1/delta))).

    [Corollaries 2 and 3]; the paper gives the order, constant 1 here.
    """
    return _order(s) * np.maximum(1, tau(s))


def _order(s: Setting) -> Number:
    return np.sqrt(s.n * s.L) * s.m * s.eps / (s.G * np.sqrt((1 + s.omega) * s.noise))


def _floor(x: Number) -> Number:
    """1000^{2/3} is 100, also where floating point falls short of it."""
    return np.floor(x * (1 + 1e-12))


# --- private local SGD [Hu, Guo, Gong] -------------------------------------------------------------


class LocalSetting(NamedTuple):
    """What Theorem 2 and Lemma 6 speak of."""

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
    """5 eta L + 3 tau^2 eta^2 L^2, which has to be at most 1  [Theorem 2]."""
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
    drift = (s.tau - 1) * (2 * s.tau - 1) * (s.eta * s.L) ** 2
    return (
        2 * s.gap / (s.eta * s.K)
        + s.eta * s.L / 2 * (s.variance / s.batch + noise / s.r)
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
