"""Tables 1 and 2 of Gao, Lowy, Zhou, Wright, 2024, for any numbers.

What holds up to constants and logarithms has constant 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxfl.algorithms.gao import theory

__all__ = ["Complexity", "smooth_gradients", "subgradient_gradients", "table1", "table2"]

Number = Any  # a float or an array of them


class Complexity(NamedTuple):
    """A row of Table 1 or 2."""

    algorithm: str
    iid: bool  # needs silos whose data have one law
    risk: Number
    optimal: bool
    rounds: Number  # communication complexity
    gradients: Number | None  # None: omitted in the paper


def table1(s: theory.IsrlSetting) -> list[Complexity]:
    """Table 1, smooth losses, for any parameters; the paper prints M = N, d = n, eps = L = beta = D = 1.

    The rows of Lowy and Razaviyayn, 2023, are printed for that case only, the first one's rounds
    and gradients beside it for every d [(3) and (6)]; the second one's follow from its risk.
    """
    return [
        _one_pass_row(s),
        _erm_row(s, 4 / 5, 2 / 5, s.N * s.n),
        Complexity(
            "Alg. 1",
            False,
            theory.excess_risk(s),
            True,
            theory.smooth_rounds(s),
            smooth_gradients(s),
        ),
    ]


def table2(s: theory.IsrlSetting) -> list[Complexity]:
    """Table 2, nonsmooth losses: the first three rows with Nesterov smoothing."""
    smoothed = s._replace(beta=theory.convolution_smoothness(s, theory.convolution_radius(s)))
    risk = theory.excess_risk(s)
    return [
        _one_pass_row(s)._replace(gradients=None),
        _erm_row(s, 2 / 3, 2 / 3, None),
        Complexity("Alg. 1", False, risk, True, theory.nesterov_rounds(s), None),
        Complexity(
            "Alg. 4",
            False,
            risk,
            True,
            theory.subgradient_communication(s),
            subgradient_gradients(s),
        ),
        Complexity(
            "Alg. 6", False, risk, True, theory.convolution_rounds(s), smooth_gradients(smoothed)
        ),
    ]


def _one_pass_row(s: theory.IsrlSetting) -> Complexity:
    """``min(Nn, N n^2 eps^2/d)`` rounds [(3)],
    ``N^2 min(n, n^2/d) + N^{3/2} min(n^{3/2}, n^2/sqrt(d))`` gradients [(6), eps = 1]."""
    N, n, d = s.N, s.n, s.d
    rounds = N * np.minimum(n, (n * s.eps) ** 2 / d)
    gradients = N**2 * np.minimum(n, n**2 / d) + N**1.5 * np.minimum(n**1.5, n**2 / np.sqrt(d))
    return Complexity("[LR'23] Alg. 2", True, theory.excess_risk(s), True, rounds, gradients)


def _erm_row(s: theory.IsrlSetting, power: float, rate: float, gradients: Number) -> Complexity:
    """Risk ``1/sqrt(Nn) + z^power``, ``z = sqrt(d ln(1/delta))/(eps n sqrt(N))``, in ``z^-rate`` rounds:
    (Nn)^{1/5} and (Nn)^{1/3} in the printed case."""
    z = np.sqrt(s.d * s.log) / (s.eps * s.n * np.sqrt(s.N))
    risk = s.L * s.D * (1 / np.sqrt(s.N * s.n) + z**power)
    return Complexity("[LR'23] Alg. 1", False, risk, False, np.maximum(1.0, z**-rate), gradients)


def smooth_gradients(s: theory.IsrlSetting) -> Number:
    """Gradient complexity of Algorithm 1 with the best batch, M = N  [proof of Theorem C.6]::

        d <= n:  M (R'+1) max(K_a, K_b, 1); if d <= K_a also M d + E, and only that if K_a > n
        d >= n:  M (R'+1) max(K_c, min(K_d, n), 1), and M n + E if K_c > n

    ``E = M eps^2 n^2/(d l)``, ``l = ln(1/delta)``, ``Q = sqrt(beta D/L) M^{1/4}``,
    ``K_a = eps^2 n^{7/4}/(Q d l)``, ``K_b = eps n^{7/8}/sqrt(Q l)``,
    ``K_c = (eps n)^{3/2}/(Q (d l)^{3/4})``, ``K_d = (eps n)^{3/4} d^{1/8}/(Q^{1/2} l^{3/8})``.

    The paper's summary takes the lesser of the two in all cases, which at d = n would undercut its
    own (25): the second needs a batch K = d (or n) below K_a (or K_c).
    """
    M, n, d, l, e = s.silos, s.n, s.d, s.log, s.eps
    Q = np.sqrt(s.beta * s.D / s.L) * M**0.25
    each = M * (Q * np.sqrt(theory.signal(s)) + 1)
    many = M * (e * n) ** 2 / (d * l)
    K_a, K_b = e**2 * n**1.75 / (Q * d * l), e * n**0.875 / np.sqrt(Q * l)
    K_c = (e * n) ** 1.5 / (Q * (d * l) ** 0.75)
    K_d = (e * n) ** 0.75 * d**0.125 / (np.sqrt(Q) * l**0.375)
    low = each * np.maximum(np.maximum(K_a, K_b), 1.0)
    low = np.where(d <= K_a, np.minimum(low, M * d + many), low)
    low = np.where(K_a <= n, low, M * d + many)
    high = each * np.maximum(np.maximum(K_c, np.minimum(K_d, n)), 1.0)
    high = np.where(K_c <= n, high, M * n + many)
    return np.where(d <= n, low, high)[()]


def subgradient_gradients(s: theory.IsrlSetting) -> Number:
    """``M + M^2 min(n, eps^2 n^2/d) + eps M n + M^{3/2} min(eps n^{3/2}, eps^2 n^2/sqrt(d))``.

    [Theorem G.1; Theorem 3.5 for eps = Theta(1)]
    """
    M, e, n = s.silos, s.eps, s.n
    few = np.minimum(n, (e * n) ** 2 / s.d)
    return M + M**2 * few + e * M * n + M**1.5 * np.minimum(e * n**1.5, (e * n) ** 2 / np.sqrt(s.d))
