"""Convex losses on a bounded set: Theorems 5.2 and 6.2 of Reshef and Levy, orders of Gao et al."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxfl import theory
from jaxfl.bounds.case import (
    CLOSE,
    Bound,
    Case,
    Family,
    Measured,
    assumed,
    called,
    convex,
    no_lam,
    numbers,
    parts,
)
from jaxfl.errors import InputError

__all__ = ["ANYTIME", "ORDER", "ORDERS"]

# --- mu^2-SGD [Reshef, Levy] ---------------------------------------------------------------------


def _check_anytime(case: Case) -> None:
    parts(case, "Theorem 5.2", compressor=("identity",))
    numbers(case)
    if case.values["batch"] != 1:
        raise InputError(
            f"Theorem 5.2 speaks of one sample a round, and batch = {case.values['batch']:g}: leave it, or "
            "the bound, out."
        )
    convex(case, "Theorem 5.2")
    within, D = case.facts.get("diameter"), float(case.values["diameter"])
    if within is not None and within > D * CLOSE:
        raise InputError(
            f"Theorem 5.2 speaks of the diameter of the set, which is {within:.4g}, and diameter = {D:g}: "
            "leave it, or the bound, out."
        )


def _anytime(case: Case, measured: Measured, lam: float | None) -> list[Bound]:
    no_lam(case, lam)
    values, facts, T = case.values, case.facts, int(measured.rounds[-1])
    trusted = case.parts["mechanism"] == "central"
    name = "Theorem 6.2" if trusted else "Theorem 5.2"
    L, G, D, eta = case.L, case.clip, float(values["diameter"]), float(values["lr"])
    s = theory.AnytimeSetting(G, L, D, facts["d"], T, facts["n"], trusted=trusted)
    last = measured.rounds[-1:]
    most = 1 / (4 * L * T)
    if eta > most * CLOSE:
        note = (
            f"{name} is silent: a step size of at most 1/(4LT) = {most:.3g} is needed at L = {L:.4g} and "
            f"T = {T}, and it is {eta:.3g}"
        )
        return [Bound("loss", name, last, None, note)]
    sigma = float(values.get("sigma", 0.0))
    excess = float(theory.anytime_regret(s, eta, sigma, G, G, L))
    said = (f"f* ≤ {measured.least:.4g}", "G* and σ ≤ clip", "σ_L ≤ L", f"D = {D:.4g}")
    note = (
        f"{name}, as its proof has it for these η and σ, {assumed(case, measured, *said)}, of convex "
        "losses, and of the population's loss after the last round"
    )
    return [Bound("loss", name, last, np.array([measured.least + excess]), note)]


# --- ISRL-DP [Gao, Lowy, Zhou, Wright] -----------------------------------------------------------

ORDERS: dict[str, tuple[str, Callable[[theory.IsrlSetting], Any]]] = {
    "localized_accelerated_mbsgd": ("Theorem 2.1", theory.smooth_rounds),
    "localized_nesterov": ("Theorem 3.1", theory.nesterov_rounds),
    "localized_convolution": ("Theorem 3.2", theory.convolution_rounds),
    "localized_subgradient": ("Theorem 3.5", theory.subgradient_communication),
}


def _check_order(case: Case) -> None:
    if not math.isfinite(case.clip) or "diameter" not in case.values:
        raise InputError(
            f"{ORDERS[case.algorithm][0]} speaks of L-Lipschitz losses on a set of diameter D: give clip "
            "and diameter."
        )
    called(case, ORDERS[case.algorithm][0])


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


ANYTIME, ORDER = Family(_check_anytime, _anytime), Family(_check_order, _order)
