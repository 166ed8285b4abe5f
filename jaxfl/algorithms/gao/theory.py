"""Parameters of ISRL-DP as Gao, Lowy, Zhou and Wright, 2024, print them.

Host side, letters of the paper: N silos
with n records, M available per round, loss L-Lipschitz (L is also the clip) and beta-smooth, a set of
diameter D, K records per silo and round, R rounds.  What holds up to constants and logarithms has
constant 1 here.  Numbers may be NumPy arrays.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "IsrlSetting",
    "accelerated_rounds",
    "accelerated_step",
    "convolution_radius",
    "convolution_rounds",
    "convolution_smoothness",
    "excess_risk",
    "gap",
    "isrl_sigma",
    "least_batch",
    "localization_lam",
    "localization_power",
    "nesterov_rounds",
    "nesterov_smoothness",
    "signal",
    "smooth_rounds",
    "stages",
    "subgradient_communication",
    "subgradient_eta",
    "subgradient_rounds",
    "variance",
]

Number = Any  # a float or an array of them


class IsrlSetting(NamedTuple):
    """The quantities in the theorems."""

    N: Number  # silos
    n: Number  # records of each
    d: Number  # coordinates
    eps: Number
    delta: Number
    L: Number = 1.0  # Lipschitz constant, the clip
    D: Number = 1.0  # diameter of the constraint set
    beta: Number = 1.0  # smoothness
    M: Number | None = None  # silos per round; None: all

    @property
    def silos(self) -> Number:
        return self.N if self.M is None else self.M

    @property
    def log(self) -> Number:
        """ln(1/delta)."""
        return np.log(1 / self.delta)


def signal(s: IsrlSetting) -> Number:
    """``min(sqrt(n), eps n / sqrt(d ln(1/delta)))``."""
    return np.minimum(np.sqrt(s.n), s.eps * s.n / np.sqrt(s.d * s.log))


def localization_power(s: IsrlSetting) -> Number:
    """``p = max(log_n(M)/2 + 1, 3)``  [Algorithm 1]."""
    return np.maximum(0.5 * np.log(s.silos) / np.log(s.n) + 1, 3.0)


def localization_lam(s: IsrlSetting) -> Number:
    """``lambda = L/(D n sqrt(M)) max(sqrt(n), sqrt(d ln(1/delta))/eps)``  [(16)];
    ``lambda_i = lambda 2^{(i-1)p}``."""
    most = np.maximum(np.sqrt(s.n), np.sqrt(s.d * s.log) / s.eps)
    return s.L / (s.D * s.n * np.sqrt(s.silos)) * most


def gap(s: IsrlSetting, lam: Number) -> Number:
    """``Delta = min(L D, L^2/(2 lambda_i))``, which no data enter: at least F_i(w_{i-1}) - F_i*."""
    return np.minimum(s.L * s.D, s.L**2 / (2 * lam))


def least_batch(s: IsrlSetting, size: Number, rounds: Number) -> Number:
    """``K_i >= eps n_i / (4 sqrt(2 R_i ln(2/delta)))``  [Theorem C.1]."""
    return s.eps * size / (4 * np.sqrt(2 * rounds * np.log(2 / s.delta)))


def accelerated_rounds(
    s: IsrlSetting, size: Number, lam: Number, batch: Number = None, poisson: bool = False
) -> Number:
    """``R_i = max(sqrt((beta+lambda_i)/lambda_i) ln(Delta_i lambda_i M eps^2 n_i^2/(L^2 d)),
    1{M K_i < N n_i} eps^2 n_i^2/(K_i d ln(1/delta)), 1)``  [Theorem C.1].

    Without ``batch`` the first term; ``poisson``: the indicator is left out [Theorem D.5].
    """
    inside = gap(s, lam) * lam * s.silos * (s.eps * size / s.L) ** 2 / s.d
    rounds = np.sqrt((s.beta + lam) / lam) * np.log(np.maximum(inside, 1.0))
    if batch is not None:
        some = (s.silos * batch < s.N * size) | poisson
        rounds = np.maximum(rounds, some * (s.eps * size) ** 2 / (batch * s.d * s.log))
    return np.ceil(np.maximum(rounds, 1.0))


def isrl_sigma(s: IsrlSetting, size: Number, rounds: Number) -> Number:
    """``sigma_i^2 = 256 L^2 R_i ln(2.5 R_i/delta) ln(2/delta) / (n_i eps)^2``  [Theorem C.1]."""
    top = 256 * rounds * np.log(2.5 * rounds / s.delta) * np.log(2 / s.delta)
    return s.L * np.sqrt(top) / (size * s.eps)


def variance(s: IsrlSetting, size: Number, batch: Number, sigma: Number) -> Number:
    """V^2 of the mean of the messages around the gradient of the phase's objective.

    It is ``4 L^2/(M K) 1{M K < N n_i} + d sigma^2/M + 1{M < N} (N-M)/(N-1) L^2/M``.
    """
    M = s.silos
    some = 4 * s.L**2 / (M * batch) * (s.N * size > M * batch)
    absent = (s.N - M) / np.maximum(s.N - 1, 1) * s.L**2 / M
    return some + s.d * sigma**2 / M + absent


def stages(
    beta: float, mu: float, V2: float, Delta: float, rounds: int, L: float, variant: str = "sound"
) -> list[tuple[int, float]]:
    """(R_k, v_k) of the stages of Algorithm 5, the last cut short where the rounds end::

        R_k = ceil(max(4 sqrt(2 beta/mu), 128 V^2/(3 mu Delta 2^{-(k+1)})))
        v_k = max(2 beta, sqrt(mu V^2 R_k (R_k+1)(R_k+2) / (3 Delta 2^{-(k-1)})))

    The paper prints L^2 for V^2 in R_k and R_k (R_k+1)(R_k+2) in the denominator of v_k, both of
    which are slips: AC-SA's bound ~ v dist^2/R^2 + V^2 R/v asks for v ~ V R^{3/2}.
    ``variant="paper"`` keeps them.
    """
    out: list[tuple[int, float]] = []
    left, k = rounds, 1
    while left > 0:
        # beyond 2^-900 Delta is 0 to a float, and the last stage takes whatever is left
        half = Delta * 2.0 ** -min(k, 900)
        top = L**2 if variant == "paper" else V2
        wanted = max(4 * math.sqrt(2 * beta / mu), 256 * top / (3 * mu * half))
        R = left if wanted >= left else max(1, math.ceil(wanted))
        cube = R * (R + 1.0) * (R + 2.0)
        scale = 1 / cube if variant == "paper" else cube
        out.append((R, max(2 * beta, math.sqrt(mu * V2 * scale / (6 * half)))))
        left, k = left - R, k + 1
    return out


def accelerated_step(beta: float, V2: float, D: float, rounds: int) -> float:
    """``v = max(2 beta, sqrt(2 V^2 R (R+1)(R+2)/(3 D^2)))``: v_1 of Algorithm 5 with mu/2 D^2 for
    Delta, which does not need mu  [Ghadimi and Lan, 2012]."""
    R = float(rounds)
    return max(2 * beta, math.sqrt(2 * V2 * R * (R + 1) * (R + 2) / 3) / D)


def subgradient_eta(s: IsrlSetting) -> Number:
    """``eta = (D sqrt(M)/L) min(1/sqrt(n), eps/sqrt(d ln(1/delta)))``  [(35)];
    ``eta_i = eta/2^{i p}``, ``lambda_i = 1/(eta_i n_i)``."""
    least = np.minimum(1 / np.sqrt(s.n), s.eps / np.sqrt(s.d * s.log))
    return s.D * np.sqrt(s.silos) / s.L * least


def subgradient_rounds(s: IsrlSetting, size: Number) -> Number:
    """``R_i = min(M n_i, M eps^2 n_i^2/d) + 1``, rounded up  [Theorem G.1]."""
    return np.ceil(s.silos * np.minimum(size, (s.eps * size) ** 2 / s.d) + 1)


def nesterov_smoothness(s: IsrlSetting) -> Number:
    """``beta = (L sqrt(M)/D) min(sqrt(n), eps n/sqrt(d ln(1/delta)))`` of the envelope  [Theorem E.2]."""
    return s.L * np.sqrt(s.silos) / s.D * signal(s)


def convolution_radius(s: IsrlSetting) -> Number:
    """``(D/sqrt(M)) (1/sqrt(n) + sqrt(d ln(1/delta))/(eps n))``  [Theorem D.5]."""
    return s.D / np.sqrt(s.silos) * (1 / np.sqrt(s.n) + np.sqrt(s.d * s.log) / (s.eps * s.n))


def convolution_smoothness(s: IsrlSetting, radius: Number) -> Number:
    """``beta = L sqrt(d)/s``  [Lemma D.2]."""
    return s.L * np.sqrt(s.d) / radius


def excess_risk(s: IsrlSetting) -> Number:
    """``(L D/sqrt(M)) (1/sqrt(n) + sqrt(d ln(1/delta))/(eps n))``: the optimal rate.

    [(9) of Theorem 2.1, and (17); also of Theorems 3.1, 3.2 and 3.5.]
    """
    return s.L * convolution_radius(s)


def smooth_rounds(s: IsrlSetting) -> Number:
    """``max(1, sqrt(beta D/L) M^{1/4} min(...)^{1/2}, 1{M<N} eps^2 n/(d ln(1/delta)))``.

    [Theorem 2.1 for M = N; (18) of Theorem C.1.]
    """
    accelerated = np.sqrt(s.beta * s.D / s.L) * s.silos**0.25 * np.sqrt(signal(s))
    return np.maximum(np.maximum(accelerated, _absent(s)), 1.0)


def _absent(s: IsrlSetting) -> Number:
    """The additional rounds if some silos do not answer."""
    return (s.silos < s.N) * _drawn(s)


def _drawn(s: IsrlSetting) -> Number:
    return s.eps**2 * s.n / (s.d * s.log)


def nesterov_rounds(s: IsrlSetting) -> Number:
    """``sqrt(M) min(sqrt(n), eps n/sqrt(d ln(1/delta)))``, at least 1, and with M < N the same as in
    :func:`smooth_rounds`  [Theorem 3.1 for M = N; Theorem E.2]."""
    return np.maximum(np.maximum(np.sqrt(s.silos) * signal(s), _absent(s)), 1.0)


def convolution_rounds(s: IsrlSetting) -> Number:
    """``max(1, d^{1/4} sqrt(M) min(sqrt(n), eps n/sqrt(d ln(1/delta))), eps^2 n/(d ln(1/delta)))``.

    [(13) of Theorem 3.2]
    """
    root = s.d**0.25 * np.sqrt(s.silos) * signal(s)
    return np.maximum(np.maximum(root, _drawn(s)), 1.0)


def subgradient_communication(s: IsrlSetting) -> Number:
    """``min(n M, M eps^2 n^2/d) + 1``  [Theorem 3.5]: the rounds of all phases."""
    return s.silos * np.minimum(s.n, (s.eps * s.n) ** 2 / s.d) + 1
