"""The schedules of DP-SRM and of DP-GD, as their papers give them.  Host side.

Letters as in :class:`jaxfl.algorithms.soteriafl.theory.Setting`, with m the records of the whole
node.  The papers give orders; the constants are 1 here.  Numbers may be NumPy arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxfl.algorithms.soteriafl.theory import Setting

__all__ = ["SrmNumbers", "gd_rounds", "srm_numbers", "srm_rounds"]

Number = Any  # a float or an array of them


class SrmNumbers(NamedTuple):
    """The parameters of DP-SRM by Theorem 1 of Wang et al., UAI 2023."""

    n0: Number  # L D_F/G^2
    zeta: Number  # (G L D_F d ln(1/delta))^{1/3}/(m eps)^{2/3}
    gamma: Number  # zeta/(n0 G), at most 1
    batch: Number  # G/(n0 zeta), which is b0 too


def srm_numbers(s: Setting) -> SrmNumbers:
    """DP-SRM's n0, zeta, gamma and b."""
    n0 = s.L * s.gap / s.G**2
    zeta = (s.G * s.L * s.gap * s.noise) ** (1 / 3) / (s.m * s.eps) ** (2 / 3)
    return SrmNumbers(n0, zeta, np.minimum(1.0, zeta / (n0 * s.G)), s.G / (n0 * zeta))


def srm_rounds(s: Setting) -> Number:
    """T = (m eps L D_F)^{4/3}/(G^{8/3} (d ln(1/delta))^{2/3})."""
    return (s.m * s.eps * s.L * s.gap) ** (4 / 3) / (s.G ** (8 / 3) * s.noise ** (2 / 3))


def gd_rounds(s: Setting) -> Number:
    """DP-GD: T = sqrt(L) m eps/(G sqrt(d ln(1/delta))), recalled."""
    return np.sqrt(s.L) * s.m * s.eps / (s.G * np.sqrt(s.noise))
