"""The bounds of Gao et al., which hold up to constants: a note gives the order, nothing is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jaxfl.algorithms.bounds import CALLED, Bound, Case, Family, Measured, no_lam, parts
from jaxfl.algorithms.gao import theory
from jaxfl.core.errors import InputError

__all__ = ["ORDER", "ORDERS"]

ORDERS: dict[str, tuple[str, Callable[[theory.IsrlSetting], Any]]] = {
    "localized_accelerated_mbsgd": ("Theorem 2.1", theory.smooth_rounds),
    "localized_nesterov": ("Theorem 3.1", theory.nesterov_rounds),
    "localized_convolution": ("Theorem 3.2", theory.convolution_rounds),
    "localized_subgradient": ("Theorem 3.5", theory.subgradient_communication),
}


def _check_order(case: Case) -> None:
    if not math.isfinite(case.clip) or "diameter" not in case.values:
        raise InputError(
            f"{ORDERS[case.algorithm][0]} assumes L-Lipschitz losses on a set of diameter D: give clip "
            "and diameter."
        )
    parts(case, ORDERS[case.algorithm][0], participation=CALLED)


def _order(case: Case, measured: Measured, lam: float | None) -> list[Bound]:
    no_lam(case, lam)
    name, rounds = ORDERS[case.algorithm]
    values, facts = case.values, case.facts
    s = theory.IsrlSetting(
        N=facts["n"], n=facts["m"], d=facts["d"], eps=float(values["eps"]), delta=values["delta"],
        L=case.clip, D=float(values["diameter"]), beta=float(values.get("smoothness", 1.0)),
        M=float(values.get("cohort", facts["n"])),
    )  # fmt: skip
    risk, needed = float(theory.excess_risk(s)), float(rounds(s))
    note = (
        f"{name} is an order, and not drawn: excess risk Õ(LD/√M (1/√n + √(d ln(1/δ))/(εn))), which is "
        f"{risk:.3g} without its constant and logarithms, in Õ({needed:.3g}) rounds"
    )
    return [Bound("loss", name, measured.rounds, None, note)]


ORDER = Family(_check_order, _order)
