"""The rounds of SPIDER [Lowy et al.]."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxfl.algorithms.soteriafl.theory import Setting

__all__ = ["spider_rounds"]

Number = Any  # a float or an array of them


def spider_rounds(s: Setting, period: Number) -> Number:
    """FedProx-SPIDER: R = eps m sqrt(M q) sqrt(D_F L)/(G sqrt(d ln(1/delta)))  [Lowy et al., 2023].

    M silos take part in a round: n of ``s``.
    """
    return s.eps * s.m * np.sqrt(s.n * period * s.gap * s.L) / (s.G * np.sqrt(s.noise))
