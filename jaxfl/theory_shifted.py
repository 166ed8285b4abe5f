"""SoteriaFL for any estimator: Lemma 1, Theorems 2 and 3, and the choices of Corollaries 1 to 3.

Z. Li, H. Zhao, B. Li, Y. Chi, NeurIPS 2022.  An :class:`Estimator` holds what Assumption 3 asks of
a client's gradient estimate; C3 carries eta^2 in the paper, and is divided by it here, so that eta
cancels in Theorem 3.  Host side; numbers may be NumPy arrays, and broadcast.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxfl.theory_soteriafl import Setting, tau

__all__ = [
    "CONSTANT",
    "Estimator",
    "least_beta",
    "longest_step",
    "saga",
    "saga_beta",
    "sgd",
    "sgd_beta",
    "shifted_bound",
    "shifted_rounds",
    "shifted_sigma",
    "shifted_step",
    "shifted_utility",
    "svrg",
    "svrg_beta",
]

Number = Any  # a float or an array of them
CONSTANT = 48  # c of Theorem 2, from its proof: 12 G^2 of SGD, 96 G^2 of SVRG and SAGA


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


def shifted_sigma(s: Setting, e: Estimator, rounds: Number) -> Number:
    """sigma = sqrt(c (G_A^2/4 + G_B^2) T ln(1/delta)) / (m eps)  [Theorem 2]."""
    return np.sqrt(CONSTANT * e.size * rounds * np.log(1 / s.delta)) / (s.m * s.eps)


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


def shifted_utility(s: Setting, e: Estimator, beta: Number, eta: Number) -> Number:
    """max(sqrt(beta d S l)/(eta m eps sqrt((1+omega) L)), beta C2/((1+omega) L eta)).

    [(6) of Theorem 3], after :func:`shifted_rounds`; the paper gives the order, constant 1 here.
    """
    noise = np.sqrt(beta * e.size * s.noise / ((1 + s.omega) * s.L)) / (eta * s.m * s.eps)
    return np.maximum(noise, beta * e.C2 / ((1 + s.omega) * s.L * eta))


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
    """By how much A and 2 alpha C3/eta^2 grow with beta."""
    alpha = 3 * e.C1 / (2 * (1 + s.omega) * e.theta * s.L**2)
    return 2 * alpha * e.C4 + 4 * (1 + s.omega), 2 * alpha * e.C3


def _potential(s: Setting, beta: Number) -> Number:
    return s.gap + beta / s.L * s.G**2
