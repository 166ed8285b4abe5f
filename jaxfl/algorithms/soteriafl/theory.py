"""SoteriaFL for any estimator: Lemma 1, Theorems 2 and 3, and the choices of Corollaries 1 to 3.

Z. Li, H. Zhao, B. Li, Y. Chi, NeurIPS 2022.  An :class:`Estimator` holds what Assumption 3 asks of
a client's gradient estimate; C3 carries eta^2 in the paper, and is divided by it here: eta cancels in
Theorem 3.  Host side; numbers may be NumPy arrays, and broadcast.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "CDP_CONSTANT",
    "CONSTANT",
    "Estimator",
    "Setting",
    "cdp_bound",
    "cdp_rounds",
    "cdp_step",
    "cdp_utility",
    "least_beta",
    "longest_step",
    "order",
    "paper_sigma",
    "saga",
    "saga_batch",
    "saga_beta",
    "saga_step",
    "sgd",
    "sgd_batch",
    "sgd_beta",
    "sgd_rounds",
    "sgd_step",
    "shift",
    "shifted_bound",
    "shifted_rounds",
    "shifted_step",
    "svrg",
    "svrg_batch",
    "svrg_beta",
    "svrg_rounds",
    "svrg_step",
    "tau",
    "unit_sigma",
]

Number = Any  # a float or an array of them
CDP_CONSTANT = 8  # c of Theorem 1, from its proof
CONSTANT = 48  # c of Theorem 2, from its proof: 12 G^2 of SGD, 96 G^2 of SVRG and SAGA


class Setting(NamedTuple):
    """The quantities in the theorems."""

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


class Estimator(NamedTuple):
    """The constants of Assumption 3."""

    G_A: Number  # bounds what the minibatch averages
    G_B: Number  # bounds what all samples average
    C1: Number
    C2: Number
    C3: Number  # over eta^2
    C4: Number
    theta: Number

    @property
    def size(self) -> Number:
        """G_A^2/4 + G_B^2."""
        return self.G_A**2 / 4 + self.G_B**2


def shift(omega: Number) -> Number:
    """gamma = sqrt((1 + 2 omega) / (2 (1 + omega)^3))  [Theorem 3]."""
    return np.sqrt((1 + 2 * omega) / (2 * (1 + omega) ** 3))


def tau(s: Setting) -> Number:
    """tau = (1 + omega)^{3/2} / n^{1/2}  [Table 1]."""
    return (1 + s.omega) ** 1.5 / np.sqrt(s.n)


# --- privacy -------------------------------------------------------------------------------------


def unit_sigma(constant: Number, G: Number, m: Number, rounds: Number, delta: Number) -> Number:
    """sigma eps = sqrt(c G^2 T ln(1/delta)) / m  [Theorems 1, 2 and 4].

    The papers print only "c"; 8 follows from the proof of CDP-SGD, 12 of SoteriaFL-SGD, 96 of
    SoteriaFL-SVRG and -SAGA.  The theorem's condition eps < c' b^2 T / m^2 is looked at by
    :func:`jaxfl.algorithms.soteriafl.claims.compressed_gd`.
    """
    return np.sqrt(constant * G**2 * rounds * np.log(1 / delta)) / m


def paper_sigma(constant: Number, s: Setting, rounds: Number) -> Number:
    """sigma = sqrt(c G^2 T ln(1/delta)) / (m eps): :func:`unit_sigma` at the eps of ``s``."""
    return unit_sigma(constant, s.G, s.m, rounds, s.delta) / s.eps


# --- Lemma 1 -------------------------------------------------------------------------------------


def sgd(s: Setting, b: Number) -> Estimator:
    """Minibatches, each sample in with probability b/m: C2 = (m-b) G^2/(m b)  [Lemma 1]."""
    return Estimator(s.G, 0.0, 0.0, (s.m - b) * s.G**2 / (s.m * b), 0.0, 0.0, 1.0)


def svrg(s: Setting, b: Number, p: Number) -> Estimator:
    """C1 = L^2/b, C3 = 2 (1-p) eta^2/p, theta = p/2  [Lemma 1]."""
    return Estimator(2 * s.G, s.G, s.L**2 / b, 0.0, 2 * (1 - p) / p, 1.0, p / 2)


def saga(s: Setting, b: Number) -> Estimator:
    """C1 = L^2/b, C3 = 2 (m-b) eta^2/b, theta = b/(2m)  [Lemma 1]."""
    return Estimator(2 * s.G, s.G, s.L**2 / b, 0.0, 2 * (s.m - b) / b, 1.0, b / (2 * s.m))


# --- Theorems 2 and 3 ----------------------------------------------------------------------------


def shifted_step(s: Setting, e: Estimator, beta: Number) -> Number:
    """The largest eta  [Theorem 3]::

        min(1/((A + 2 alpha C3/eta^2) L), sqrt(beta n)/(sqrt(A) (1 + omega) L))
        A = 1 + 2 alpha C4 + 4 beta (1 + omega),  alpha = 3 beta C1/(2 (1 + omega) theta L^2)

    C1 to C4 and theta are those of the :class:`Estimator`.
    """
    rise, extra = _rates(s, e)
    A = 1 + beta * rise
    second = np.sqrt(beta * s.n) / (np.sqrt(A) * (1 + s.omega) * s.L)
    return np.minimum(1 / ((A + beta * extra) * s.L), second)


def shifted_bound(
    s: Setting, e: Estimator, beta: Number, eta: Number, rounds: Number, sigma: Number
) -> Number:
    """Bound on the mean of |grad f|^2 for eta up to :func:`shifted_step` and any noise  [Theorem 3]::

        2 Phi_0/(eta T) + 3 beta/((1 + omega) L eta) (C2 + d sigma^2)
        Phi_0 = D_f + (beta/L) mean_i |grad f_i(x0) - s_i^0|^2

    s_i^0 = 0, and G^2 stands for the mean square, which it bounds.
    """
    first = 2 * _potential(s, beta) / (eta * rounds)
    return first + 3 * beta / ((1 + s.omega) * s.L * eta) * (e.C2 + s.d * sigma**2)


def shifted_rounds(s: Setting, e: Estimator, beta: Number) -> Number:
    """T = max(m eps sqrt(2 (1+omega) L Phi_0)/sqrt(3 beta c d S l), C2 m^2 eps^2/(c d S l)).

    [(5) of Theorem 3], S = G_A^2/4 + G_B^2, l = ln(1/delta).
    """
    noise, signal = CONSTANT * e.size * s.noise, s.m * s.eps
    first = signal * np.sqrt(2 * (1 + s.omega) * s.L * _potential(s, beta) / (3 * beta * noise))
    return np.maximum(first, e.C2 * signal**2 / noise)


def least_beta(s: Setting, e: Estimator, eta: Number) -> Number:
    """The smallest beta that allows this eta, which is where the bound is least; nan where none does.

    The theorem holds for every beta > 0; the bound grows with it, and so does what eta may be by its
    second condition, whereas the first limits beta from above.
    """
    rise, extra = _rates(s, e)
    reach = ((1 + s.omega) * s.L * eta) ** 2
    room = s.n - rise * reach
    least = reach / np.where(room > 0, room, np.nan)
    most = (1 / (s.L * eta) - 1) / (rise + extra)
    return np.where(least <= most * (1 + 1e-9), least, np.nan)[()]


def longest_step(s: Setting, e: Estimator) -> float:
    """The largest eta that Theorem 3 allows for any beta, by bisection."""
    low, high = 0.0, float(1 / s.L)
    for _ in range(60):
        middle = (low + high) / 2
        allowed = bool(np.isfinite(least_beta(s, e, middle)))
        low, high = (middle, high) if allowed else (low, middle)
    return low


# --- what the corollaries choose -----------------------------------------------------------------


def sgd_beta(s: Setting) -> Number:
    """beta = tau/(2 (1 + omega))  [Corollary 1].

    As printed.  For tau < 1 the corollary's utility does not follow from it, Theorem 3 gives
    1/sqrt(tau) times as much; it follows from beta = tau^2/(1 + omega), at the same eta.
    """
    return tau(s) / (2 * (1 + s.omega))


def svrg_beta(s: Setting, b: Number, p: Number) -> Number:
    """beta = p^{4/3} b^{2/3} (1 + omega)^2 min(1, 1/tau^2)/n  [Corollary 2], p^{2/3} b^{1/3} <= 1/4."""
    least = np.minimum(1, 1 / tau(s) ** 2)
    return p ** (4 / 3) * b ** (2 / 3) * (1 + s.omega) ** 2 * least / s.n


def saga_beta(s: Setting) -> Number:
    """beta = (1 + omega)^2 min(1, 1/tau^2)/(3n)  [Corollary 3]."""
    return (1 + s.omega) ** 2 * np.minimum(1, 1 / tau(s) ** 2) / (3 * s.n)


def _rates(s: Setting, e: Estimator) -> tuple[Number, Number]:
    """The growth of A and of 2 alpha C3/eta^2 with beta."""
    alpha = 3 * e.C1 / (2 * (1 + s.omega) * e.theta * s.L**2)
    return 2 * alpha * e.C4 + 4 * (1 + s.omega), 2 * alpha * e.C3


def _potential(s: Setting, beta: Number) -> Number:
    return s.gap + beta / s.L * s.G**2


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
    is :func:`jaxfl.algorithms.soteriafl.theory.longest_step`.
    """
    return p ** (2 / 3) * b ** (1 / 3) * np.minimum(1, 1 / tau(s)) / (2 * s.L)


def saga_step(s: Setting) -> Number:
    """eta = min(1, 1/tau) / (3 L)  [Corollary 3], for its own b."""
    return np.minimum(1, 1 / tau(s)) / (3 * s.L)


def sgd_batch(s: Setting) -> Number:
    """b = min(m eps G sqrt(beta) / sqrt((1+omega) L d ln(1/delta)), m), beta = tau / (2 (1+omega)).

    [Corollary 1]; at least one sample.
    """
    b = s.m * s.eps * s.G * np.sqrt(sgd_beta(s)) / np.sqrt((1 + s.omega) * s.L * s.noise)
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
    return order(s) * (1 + np.sqrt(tau(s)))


def svrg_rounds(s: Setting) -> Number:
    """T = sqrt(n L) m eps max(1, tau) / (G sqrt((1+omega) d ln(1/delta))).

    [Corollaries 2 and 3]; the paper gives the order, constant 1 here.
    """
    return order(s) * np.maximum(1, tau(s))


def order(s: Setting) -> Number:
    """sqrt(n L) m eps / (G sqrt((1+omega) d ln(1/delta))): the order of rounds and gradients  [Table 2]."""
    return np.sqrt(s.n * s.L) * s.m * s.eps / (s.G * np.sqrt((1 + s.omega) * s.noise))


def _floor(x: Number) -> Number:
    """1000^{2/3} is 100, also where floating point falls short of it."""
    return np.floor(x * (1 + 1e-12))
