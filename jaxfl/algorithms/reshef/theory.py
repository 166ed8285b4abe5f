"""mu^2-SGD: step sizes, noise, privacy and bounds as the paper prints them.  Host side.

R. Reshef, K. Y. Levy: Private and Federated Stochastic Convex Optimization: Efficient Strategies for
Centralized Systems.  2024.  Numbers may be NumPy arrays; they broadcast.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "AnytimeSetting",
    "anytime_bound",
    "anytime_deviation",
    "anytime_regret",
    "anytime_rho",
    "anytime_sigma",
    "anytime_step",
    "importance",
    "minibatch_step",
]

Number = Any  # a float or an array of them


class AnytimeSetting(NamedTuple):
    """The quantities in Theorems 5.1 to 6.2."""

    G: Number  # bound on every gradient
    L: Number  # smoothness of every example's loss
    D: Number  # diameter of the set K
    d: Number
    T: Number  # rounds: samples of each machine
    M: Number  # machines
    rho: Number = np.inf  # sqrt(2 rho_z) of zCDP; infinity: no noise
    trusted: bool = False  # whether the server may see what machines send

    @property
    def S(self) -> Number:
        """S = G + 2 L D, which bounds every weighted increment."""
        return self.G + 2 * self.L * self.D


def importance(t: Number, p: Number) -> Number:
    """alpha_t = Gamma(t+p)/(Gamma(t) Gamma(1+p)): 1 for p = 0, t for p = 1, t (t+1)/2 for p = 2."""
    from scipy.special import binom

    return binom(t + p - 1, p)


def anytime_sigma(s: AnytimeSetting) -> Number:
    """sigma = 2 S sqrt(T)/rho  [Theorem 5.1]; over M with a trusted server  [Theorem 6.1]."""
    return 2 * s.S * np.sqrt(s.T) / (s.rho * (s.M if s.trusted else 1))


def anytime_rho(s: AnytimeSetting, sigma: Number) -> Number:
    """The rho at which :func:`anytime_sigma` gives ``sigma``; that of ``s`` is not looked at."""
    return anytime_sigma(s._replace(rho=1.0)) / sigma


def anytime_step(s: AnytimeSetting) -> Number:
    """eta = min(rho D sqrt(M)/(2 S T sqrt(d)), 1/(4 L T))  [Theorem 5.2]; M for sqrt(M) [6.2]."""
    machines = s.M if s.trusted else np.sqrt(s.M)
    return np.minimum(s.rho * s.D * machines / (2 * s.S * s.T * np.sqrt(s.d)), 1 / (4 * s.L * s.T))


def anytime_deviation(s: AnytimeSetting, sigma_grad: Number, sigma_L: Number) -> Number:
    """s~ = sigma_grad + 2 sigma_L D, of one example's gradient and of its change per distance."""
    return sigma_grad + 2 * sigma_L * s.D


def anytime_bound(
    s: AnytimeSetting, at_optimum: Number, sigma_grad: Number, sigma_L: Number
) -> Number:
    """Bound on the expected excess loss of x_T  [Theorems 5.2 and 6.2]::

        4 D ((G* + 2 L D)/T + 2 S sqrt(d)/(rho T sqrt(M)) + s~/sqrt(T M))

    ``at_optimum`` is ``G* = |grad f(x*)|``, and s~ is :func:`anytime_deviation`; trusted has M for the
    first sqrt(M).
    """
    machines = s.M if s.trusted else np.sqrt(s.M)
    drift = (at_optimum + 2 * s.L * s.D) / s.T
    noise = 2 * s.S * np.sqrt(s.d) / (s.rho * s.T * machines)
    spread = anytime_deviation(s, sigma_grad, sigma_L)
    return 4 * s.D * (drift + noise + spread / np.sqrt(s.T * s.M))


def anytime_regret(
    s: AnytimeSetting,
    eta: Number,
    sigma: Number,
    at_optimum: Number,
    sigma_grad: Number,
    sigma_L: Number,
) -> Number:
    """:func:`anytime_bound` before eta and sigma are put in, for eta up to 1/(4 L T)  [appendix E]::

        (2/T^2) (D^2/eta + eta T d s^2 + 2 T D G* + 2 D s~ T^{3/2}/sqrt(M))

    s is the deviation of the noise on the mean: sigma/sqrt(M), with a trusted server sigma.
    """
    on_mean = sigma**2 / (1 if s.trusted else s.M)
    spread = anytime_deviation(s, sigma_grad, sigma_L)
    drift = 2 * s.D * (s.T * at_optimum + spread * s.T**1.5 / np.sqrt(s.M))
    return 2 / s.T**2 * (s.D**2 / eta + eta * s.T * s.d * on_mean + drift)


# --- the noisy minibatch baseline ------------------------------------------------------------------


def minibatch_step(s: AnytimeSetting, sigma: Number) -> Number:
    """eta = D/sqrt(T (G^2 + d sigma^2/M)): what the regret bound of projected SGD asks for."""
    return s.D / np.sqrt(s.T * (s.G**2 + s.d * sigma**2 / s.M))
