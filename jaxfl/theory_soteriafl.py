"""SoteriaFL and CDP-SGD: step sizes, schedules, noise and utility as the paper prints them.  Host side.

Z. Li, H. Zhao, B. Li, Y. Chi: SoteriaFL: A Unified Framework for Private Federated Learning with
Communication Compression.  NeurIPS 2022.  Theorem 3 for any estimator is in
:mod:`jaxfl.theory_shifted`.  Letters of the paper, held by a :class:`Setting`; its numbers may be
NumPy arrays, they broadcast.  What the paper gives up to a constant has constant 1 here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "CDP_CONSTANT",
    "Setting",
    "cdp_bound",
    "cdp_rounds",
    "cdp_step",
    "cdp_utility",
    "paper_sigma",
    "saga_batch",
    "saga_step",
    "sgd_batch",
    "sgd_rounds",
    "sgd_step",
    "sgd_utility",
    "shift",
    "svrg_batch",
    "svrg_rounds",
    "svrg_step",
    "svrg_utility",
    "tau",
    "unit_sigma",
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


# --- privacy -------------------------------------------------------------------------------------


def unit_sigma(constant: Number, G: Number, m: Number, rounds: Number, delta: Number) -> Number:
    """sigma eps = sqrt(c G^2 T ln(1/delta)) / m  [Theorems 1 and 2].

    The papers print only "c"; 8 follows from the proof of CDP-SGD, 12 of SoteriaFL-SGD, 96 of
    SoteriaFL-SVRG and -SAGA.  The theorem's condition eps < c' b^2 T / m^2 is looked at by
    :func:`jaxfl.privacy.formulas.compressed_gd`.
    """
    return np.sqrt(constant * G**2 * rounds * np.log(1 / delta)) / m


def paper_sigma(constant: Number, s: Setting, rounds: Number) -> Number:
    """sigma = sqrt(c G^2 T ln(1/delta)) / (m eps): :func:`unit_sigma` at the eps of ``s``."""
    return unit_sigma(constant, s.G, s.m, rounds, s.delta) / s.eps


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


def cdp_utility(s: Setting) -> Number:
    """5 G sqrt((1+omega) L D_f c d ln(1/delta)) / (m eps sqrt(n)), which bounds the mean of |grad f|^2.

    [Theorem 1], at :func:`cdp_step`, :func:`cdp_rounds` and the paper's noise; the 5 and the c are
    those of its proof.
    """
    top = (1 + s.omega) * s.L * s.gap * CDP_CONSTANT * s.noise
    return 5 * s.G * np.sqrt(top) / (s.m * s.eps * np.sqrt(s.n))


def cdp_bound(
    s: Setting, eta: Number, rounds: Number, sigma: Number, variance: Number | None = None
) -> Number:
    """Bound on the mean of |grad f|^2 for any eta <= 1/L and any noise  [(46), in Theorem 1's proof]::

        2 D_f/(eta T) + (L eta/n) (omega G^2 + (1 + omega) (V + d sigma^2))

    ``variance`` is V, of a client's minibatch gradient; None: full gradients, V = 0.
    """
    V = 0.0 if variance is None else variance
    spread = s.omega * s.G**2 + (1 + s.omega) * (V + s.d * sigma**2)
    return 2 * s.gap / (eta * rounds) + s.L * eta / s.n * spread


# --- SoteriaFL -----------------------------------------------------------------------------------


def sgd_step(s: Setting) -> Number:
    """eta = 1 / ((1 + 2 sqrt((1 + omega)^3 / n)) L)  [Corollary 1]."""
    return 1 / ((1 + 2 * tau(s)) * s.L)


def svrg_step(s: Setting, b: Number, p: Number) -> Number:
    """eta = p^{2/3} b^{1/3} min(1, 1/tau) / (2 L)  [Corollary 2].

    That is min(1, 1/tau) / (8 L) at the paper's b = m^{2/3} / 4 and p = b/m.  Without compression and
    with fewer than 7 clients it breaks the condition (62) of its own proof; what Theorem 3 allows
    is :func:`jaxfl.theory.longest_step`.
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


def sgd_utility(s: Setting) -> Number:
    """G sqrt((1+omega) L d ln(1/delta)) (1 + sqrt(tau)) / (sqrt(n) m eps), of the mean of |grad f|^2.

    [Corollary 1, also for full gradients]; the paper gives the order, constant 1 here.
    """
    return svrg_utility(s) * (1 + np.sqrt(tau(s)))


def svrg_utility(s: Setting) -> Number:
    """G sqrt((1+omega) L d ln(1/delta)) / (sqrt(n) m eps), of the mean of |grad f|^2.

    [Corollaries 2 and 3]; the paper gives the order, constant 1 here.
    """
    return s.G * np.sqrt((1 + s.omega) * s.L * s.noise) / (np.sqrt(s.n) * s.m * s.eps)


def _order(s: Setting) -> Number:
    return np.sqrt(s.n * s.L) * s.m * s.eps / (s.G * np.sqrt((1 + s.omega) * s.noise))


def _floor(x: Number) -> Number:
    """1000^{2/3} is 100, also where floating point falls short of it."""
    return np.floor(x * (1 + 1e-12))
