"""Theorems 5.2 and 6.2 of Reshef and Levy beside a measured curve."""

from __future__ import annotations

import numpy as np

from jaxfl.algorithms.bounds import (
    CLOSE,
    Bound,
    Case,
    Family,
    Measured,
    assumed,
    convex,
    no_lam,
    numbers,
    parts,
)
from jaxfl.algorithms.reshef.theory import AnytimeSetting, anytime_regret
from jaxfl.core.errors import InputError, require

__all__ = ["ANYTIME"]


def _check_anytime(case: Case) -> None:
    parts(case, "Theorem 5.2", compressor=("identity",))
    numbers(case)
    for name in ("weight_power", "momentum_power"):
        power = case.values.get(name, 1.0)  # older files have none
        require(
            power == 1,
            "is not 1, as in Theorem 5.2",
            "leave it, or the bound, out",
            **{name: power},
        )
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
    s = AnytimeSetting(G, L, D, facts["d"], T, facts["n"], trusted=trusted)
    last = measured.rounds[-1:]
    most = 1 / (4 * L * T)
    if eta > most * CLOSE:
        note = (
            f"{name} is silent: a step size of at most 1/(4LT) = {most:.3g} is needed at L = {L:.4g} and "
            f"T = {T}, and it is {eta:.3g}"
        )
        return [Bound("loss", name, last, None, note)]
    sigma = float(values.get("sigma", 0.0))
    excess = float(anytime_regret(s, eta, sigma, G, G, L))
    said = (f"f* ≤ {measured.least:.4g}", "G* and σ ≤ clip", "σ_L ≤ L", f"D = {D:.4g}")
    note = (
        f"{name}, as its proof has it for these η and σ, {assumed(case, measured, *said)}, of convex "
        "losses, and of the population's loss after the last round"
    )
    return [Bound("loss", name, last, np.array([measured.least + excess]), note)]


ANYTIME = Family(_check_anytime, _anytime)
