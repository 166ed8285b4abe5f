"""A paper's convergence bound beside the curve of a run, and what had to be assumed for it.

Constants that nobody knows are replaced by what is known to be larger: the loss is not negative, so
f(x_0) - f* <= f(x_0), and clipped gradients vary by no more than the clip.  Where a condition of
the theorem fails nothing is drawn, and the note says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl import theory
from jaxfl.errors import InputError

if TYPE_CHECKING:
    import xarray

__all__ = ["ALGORITHMS", "Bound", "bounds", "possible"]

Array: TypeAlias = npt.NDArray[Any]

ALGORITHMS = ("private_local_sgd", "local_dp_sgd", "fedavg")


class Bound(NamedTuple):
    """``values`` bound the running average of ``metric`` after ``rounds``; None: the theorem is silent."""

    metric: str
    label: str
    rounds: Array
    values: Array | None
    note: str


def possible(
    algorithm: str, parts: Mapping[str, str], values: Mapping[str, Any], facts: Mapping[str, Any]
) -> None:
    """Refuse, in one sentence, what no bound speaks of or what it cannot be computed from."""
    if algorithm not in ALGORITHMS:
        raise InputError(
            f"No bound is known to draw for {algorithm}: there are those of {', '.join(ALGORITHMS)}."
        )
    plain = parts.get("local") == "sgd, free" and parts.get("compressor") == "identity"
    if not plain or values["server_lr"] != 1:
        raise InputError(
            f"Theorem 2 speaks of plain SGD steps, no compression and server_lr = 1, and these parts of "
            f"{algorithm} differ: leave them, or the bound, out."
        )
    if values.get("smoothness", facts.get("smoothness")) is None:
        raise InputError(
            "The smoothness of this model's loss is unknown, on which the bound depends: give smoothness."
        )
    if not math.isfinite(float(values["clip"])):
        raise InputError(
            "clip = inf leaves the variance of the gradients unknown, which the bound needs: give clip."
        )
    if not isinstance(values["lr"], int | float):
        raise InputError("The bound is for one step size, and lr is a schedule: give a number.")


def bounds(ds: xarray.Dataset, lam: float | None = None) -> list[Bound]:
    """Theorem 2 of Hu, Guo and Gong for a result, and with ``lam`` Lemma 6 for lam-strong convexity."""
    from jaxfl import results

    about = results.config(ds)
    values, facts = about["values"], about["facts"]
    possible(about["settings"]["algorithm"], about["settings"]["parts"], values, facts)
    if lam is not None and not lam > 0:
        raise InputError(f"lam = {lam!r}: strong convexity has to be a positive number.")
    L = float(values.get("smoothness") or facts["smoothness"])
    rounds = ds["round"].values[1:]
    s = theory.LocalSetting(
        eta=float(values["lr"]),
        tau=int(values.get("local_steps", 1)),
        rounds=rounds.astype(np.float64),
        r=float(values.get("cohort", facts["n"])),
        batch=float(values.get("batch", facts["m"])),
        d=float(facts["d"]),
        L=L,
        sigma=float(values.get("sigma", 0.0)),
        variance=float(values["clip"]) ** 2,
        gap=float(ds["loss"].values[0]),
    )
    return [_bound(ds, s, rounds, None), *([] if lam is None else [_bound(ds, s, rounds, lam)])]


def _bound(ds: xarray.Dataset, s: theory.LocalSetting, rounds: Array, lam: float | None) -> Bound:
    name = "Theorem 2" if lam is None else "Lemma 6"
    metric = "grad_norm_sq" if lam is None else "loss"
    condition = float(theory.local_condition(s))
    if condition > 1 + 1e-9:
        most = float(theory.local_step(s.L, s.tau))
        return Bound(
            metric,
            name,
            rounds,
            None,
            f"{name} is silent: 5ηL + 3τ²η²L² = {condition:.3g} is above 1 at L = {s.L:.4g}, and a step "
            f"size of at most {most:.3g} is needed",
        )
    note = f"{name} with f* ≥ 0, β² ≤ clip² and L = {s.L:.4g}; it speaks of gradients that are not clipped"
    if lam is None:
        return Bound(metric, name, rounds, np.asarray(theory.local_bound(s)), note)
    least = float(np.nanmin(ds["loss"].values))  # no smaller than f*
    values = least + np.asarray(theory.local_bound_convex(s, lam))
    return Bound(metric, name, rounds, values, f"{note}, λ = {lam:g} and f* ≤ {least:.4g}")
