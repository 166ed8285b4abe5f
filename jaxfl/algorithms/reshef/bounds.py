"""Theorems 5.2 and 6.2 of Reshef and Levy for a measured curve."""

from __future__ import annotations

import numpy as np

from jaxfl.algorithms.bounds import (
    CLOSE,
    Bound,
    Case,
    Family,
    Measured,
    assumed,
    covers,
    no_lam,
    numbers,
    parts,
)
from jaxfl.algorithms.reshef.theory import AnytimeSetting, anytime_regret
from jaxfl.core.errors import InputError

__all__ = ["ANYTIME"]


def _check_anytime(case: Case) -> None:
    parts(case, "Theorem 5.2", compressor=("identity",))
    numbers(case)
    for name in ("weight_power", "momentum_power"):
        power = case.values.get(name, 1.0)  # older files have none
        covers(power == 1, "Theorem 5.2", f"{name} = 1", f"{name} = {power:g}")
    batch, D = case.values["batch"], float(case.values["diameter"])
    covers(batch == 1, "Theorem 5.2", "one sample a round", f"batch = {batch:g}")
    if case.facts.get("convex") is False:
        raise InputError(
            "Theorem 5.2 assumes convex losses, and this model's are not: leave the bound out."
        )
    within = case.facts.get("diameter") or 0.0
    of = f"the diameter of the set, which is {within:.4g}"
    covers(within <= D * CLOSE, "Theorem 5.2", of, f"diameter = {D:g}")


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
            f"{name} does not apply: a step size of at most 1/(4LT) = {most:.3g} is needed at "
            f"L = {L:.4g} and T = {T}, and it is {eta:.3g}"
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
