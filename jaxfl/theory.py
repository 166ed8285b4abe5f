"""Step sizes, schedules and noise levels as the papers print them.  Host side: floats in and out.

Letters as in SoteriaFL [Li, Zhao, Li, Chi, 2022]: ``n`` clients of ``m`` samples, ``d``
coordinates, gradient bound ``G``, smoothness ``L``, compressor variance ``omega``, privacy
``(eps, delta)``.  Arguments may be NumPy arrays; they broadcast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "cdp_rounds",
    "cdp_step",
    "paper_eps",
    "paper_sigma",
    "saga_batch",
    "saga_step",
    "sgd_batch",
    "sgd_step",
    "shift",
    "soteriafl_rounds",
    "svrg_batch",
    "svrg_step",
    "tau",
]

Number = Any  # a float or an array of them


def shift(omega: Number) -> Number:
    """gamma = sqrt((1 + 2 omega) / (2 (1 + omega)^3))  [Theorem 3]."""
    return np.sqrt((1 + 2 * omega) / (2 * (1 + omega) ** 3))


def tau(omega: Number, n: Number) -> Number:
    """tau = (1 + omega)^{3/2} / n^{1/2}  [Table 1]."""
    return (1 + omega) ** 1.5 / np.sqrt(n)


def paper_sigma(
    constant: Number, G: Number, rounds: Number, m: Number, eps: Number, delta: Number
) -> Number:
    """sigma = sqrt(c G^2 T ln(1/delta)) / (m eps)  [Theorems 1 and 2].

    The papers print only "c"; 8 follows from the proof of CDP-SGD, 12 of SoteriaFL-SGD, 96 of
    SoteriaFL-SVRG and -SAGA.  The theorem's condition eps < c' b^2 T / m^2 is the caller's.
    """
    return np.sqrt(constant * G**2 * rounds * np.log(1 / delta)) / (m * eps)


def paper_eps(
    constant: Number, G: Number, rounds: Number, m: Number, sigma: Number, delta: Number
) -> Number:
    """The eps at which :func:`paper_sigma` gives ``sigma``."""
    return np.sqrt(constant * G**2 * rounds * np.log(1 / delta)) / (m * sigma)


def sgd_step(omega: Number, n: Number, L: Number) -> Number:
    """eta = 1 / ((1 + 2 sqrt((1 + omega)^3 / n)) L)  [Corollary 1]."""
    return 1 / ((1 + 2 * tau(omega, n)) * L)


def svrg_step(omega: Number, n: Number, L: Number) -> Number:
    """eta = p^{2/3} b^{1/3} min(1, 1/tau) / (2 L) = min(1, 1/tau) / (8 L)  [Corollary 2]."""
    return np.minimum(1, 1 / tau(omega, n)) / (8 * L)


def saga_step(omega: Number, n: Number, L: Number) -> Number:
    """eta = min(1, 1/tau) / (3 L)  [Corollary 3]."""
    return np.minimum(1, 1 / tau(omega, n)) / (3 * L)


def cdp_step(
    omega: Number,
    n: Number,
    L: Number,
    gap: Number,
    d: Number,
    m: Number,
    G: Number,
    eps: Number,
    delta: Number,
    constant: Number = 8,
) -> Number:
    """eta = min(1/L, sqrt(n D_f c d ln(1/delta)) / (G m eps sqrt((1 + omega) L)))  [Theorem 1].

    ``gap`` is D_f = f(x0) - f*.
    """
    noise = np.sqrt(n * gap * constant * d * np.log(1 / delta))
    return np.minimum(1 / L, noise / (G * m * eps * np.sqrt((1 + omega) * L)))


def cdp_rounds(
    omega: Number,
    n: Number,
    L: Number,
    gap: Number,
    d: Number,
    m: Number,
    G: Number,
    eps: Number,
    delta: Number,
    constant: Number = 8,
) -> Number:
    """T = max(m eps sqrt(n L D_f) / (G sqrt((1+omega) c d l)), m^2 eps^2 / (c d l)).

    [Theorem 1], l = ln(1/delta).
    """
    dl = constant * d * np.log(1 / delta)
    return np.maximum(
        m * eps * np.sqrt(n * L * gap) / (G * np.sqrt((1 + omega) * dl)), (m * eps) ** 2 / dl
    )


def sgd_batch(
    omega: Number, n: Number, L: Number, d: Number, m: Number, G: Number, eps: Number, delta: Number
) -> Number:
    """b = min(m eps G sqrt(beta) / sqrt((1+omega) L d ln(1/delta)), m), beta = tau / (2 (1+omega)).

    [Corollary 1]; at least one sample.
    """
    beta = tau(omega, n) / (2 * (1 + omega))
    b = m * eps * G * np.sqrt(beta) / np.sqrt((1 + omega) * L * d * np.log(1 / delta))
    return np.maximum(1, np.minimum(np.floor(b), m))


def svrg_batch(m: Number) -> Number:
    """b = m^{2/3} / 4  [Corollary 2], at least one sample; the snapshot moves with p = b/m."""
    return np.maximum(1, np.floor(m ** (2 / 3) / 4))


def saga_batch(m: Number) -> Number:
    """b = min(3 m^{2/3}, m)  [Corollary 3; the minimum is ours, for m < 27]."""
    return np.maximum(1, np.minimum(np.floor(3 * m ** (2 / 3)), m))


def soteriafl_rounds(
    omega: Number,
    n: Number,
    L: Number,
    d: Number,
    m: Number,
    G: Number,
    eps: Number,
    delta: Number,
    variance_reduced: bool,
) -> Number:
    """T = sqrt(n L) m eps / (G sqrt((1+omega) d ln(1/delta))) times 1 + sqrt(tau) for SGD and GD
    [Corollary 1] or max(1, tau) for SVRG and SAGA [Corollaries 2 and 3]; the order, constant 1."""
    t = tau(omega, n)
    factor = np.maximum(1, t) if variance_reduced else 1 + np.sqrt(t)
    return np.sqrt(n * L) * m * eps / (G * np.sqrt((1 + omega) * d * np.log(1 / delta))) * factor
