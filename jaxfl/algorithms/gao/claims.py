"""The noise formula of Gao, Lowy, Zhou and Wright, with its conditions."""

from __future__ import annotations

import math

from jaxfl.algorithms.gao.theory import IsrlSetting, isrl_sigma, least_batch
from jaxfl.privacy.claims import Claim, Condition, either

__all__ = ["gao", "one_pass"]


def gao(L: float, n: int, K: float, rounds: int, delta: float, **way: float) -> Claim:
    """``sigma^2 = 256 L^2 R ln(2.5R/delta) ln(2/delta)/(n^2 eps^2)`` per phase.

    [Gao, Lowy, Zhou, Wright; also the multi-pass algorithm of Lowy and Razaviyayn, 2023.]  Advanced
    composition with amplification by subsampling: safe, and several times more noise than needed.
    """
    unit = IsrlSetting(1, n, 1, 1.0, delta, L)
    s, e = either(float(isrl_sigma(unit, n, rounds)), delta, **way)
    least = float(least_batch(unit._replace(eps=e), n, rounds))
    conditions = (
        Condition(
            f"eps <= 2 ln(2/delta) = {2 * math.log(2 / delta):.4g}",
            e <= 2 * math.log(2 / delta),
            here=f"eps = {e:.4g}",
        ),
        Condition(
            f"K >= eps n/(4 sqrt(2 R ln(2/delta))) = {least:.4g}", least <= K, here=f"K = {K:g}"
        ),
    )
    formula = "sigma^2 = 256 L^2 R ln(2.5R/delta) ln(2/delta)/(n^2 eps^2)"
    return Claim("Gao, Lowy, Zhou, Wright", formula, s, e, delta, conditions)


def one_pass(L: float, K: int, delta: float, **way: float) -> Claim:
    """``sigma^2 = 8 L^2 ln(1/delta)/(K^2 eps^2)`` for disjoint batches [Lowy et al., AISTATS 2023].

    It fails from about eps = 7.0 at delta = 1e-3 on, 8.0 at 1e-5.
    """
    log = math.log(1 / delta)
    s, e = either(math.sqrt(8 * L * L * log) / K, delta, **way)
    conditions = (Condition(f"eps <= {8 * log:.4g}", e <= 8 * log, here=f"eps = {e:.4g}"),)
    formula = "sigma^2 = 8 L^2 ln(1/delta)/(K^2 eps^2)"
    return Claim("Lowy et al., AISTATS 2023", formula, s, e, delta, conditions)
