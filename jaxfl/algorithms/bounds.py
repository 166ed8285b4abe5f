"""Convergence bounds: the records of their inputs and results, and the checks that several share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy.typing as npt

from jaxfl.core.errors import InputError
from jaxfl.core.types import Origin, Source

__all__ = [
    "CALLED",
    "CLOSE",
    "Array",
    "Bound",
    "Case",
    "Family",
    "Measured",
    "assumed",
    "covers",
    "no_lam",
    "numbers",
    "parts",
    "unconstrained",
]

Array: TypeAlias = npt.NDArray[Any]
# a mean over everyone, or over r clients that each round draws, all sets of r equally likely
CALLED = ("everyone", "uniform")
CLOSE = 1 + 1e-6  # float32 numbers meet a condition with equality


class Bound(NamedTuple):
    """``values`` bound the running mean of ``metric`` after ``rounds``, or ``metric`` itself where
    they are one; None: the theorem does not apply, or gives an order only."""

    metric: str
    label: str
    rounds: Array
    values: Array | None
    note: str


class Case(NamedTuple):
    """A run's settings, which are known before it starts."""

    algorithm: str
    parts: Mapping[str, str]
    values: Mapping[str, Any]
    facts: Mapping[str, Any]
    sources: Mapping[str, str]

    @property
    def L(self) -> float:
        return float(self.values.get("smoothness") or self.facts["smoothness"])

    @property
    def clip(self) -> float:
        return float(self.values["clip"])


class Measured(NamedTuple):
    """The measurements of a run that its bounds read."""

    rounds: Array
    start: float  # the loss at x_0
    least: float  # the least loss that was seen, no smaller than f*
    regularized: bool


class Family(NamedTuple):
    """Algorithms of one theorem."""

    check: Callable[[Case], None]
    bounds: Callable[[Case, Measured, float | None], list[Bound]]


# --- what several of them ask for ----------------------------------------------------------------


def numbers(case: Case) -> None:
    values, facts = case.values, case.facts
    origin = Source.read(case.sources.get("smoothness", "")).origin
    if not facts.get("smoothness") and origin is not Origin.GIVEN:
        raise InputError(
            "The smoothness of this model's loss is unknown, on which the bound depends: give smoothness."
        )
    if not math.isfinite(float(values["clip"])):
        raise InputError(
            "clip = inf leaves the variance of the gradients unknown, which the bound needs: give clip."
        )
    if not isinstance(values["lr"], int | float):
        raise InputError("The bound is for one step size, and lr is a schedule: give a number.")


def covers(holds: bool, theorem: str, of: str, here: str) -> None:
    """Raise unless an assumption ``of`` a theorem ``holds``; ``here`` describes the run."""
    if not holds:
        raise InputError(f"{theorem} assumes {of}, and {here}: leave it, or the bound, out.")


def parts(case: Case, theorem: str, **wanted: tuple[str, ...]) -> None:
    for role, names in wanted.items():
        found = case.parts.get(role, names[0])
        of = f"{role} = {' or '.join(names)}"
        covers(found in names, theorem, of, f"{role} = {found!r} here")


def unconstrained(case: Case, theorem: str) -> None:
    """Raise for a constrained model: at a best point on the border the gradient is not zero."""
    D = case.facts.get("diameter")
    what = "no diameter" if D is None else f"diameter {D:.4g}"
    free = D is None and not case.facts.get("constrained")
    of = "models that no projection keeps in a set"
    covers(free, theorem, of, f"this one's set has {what}")


def no_lam(case: Case, lam: float | None) -> None:
    if lam is not None:
        raise InputError(
            f"lam = {lam!r} is asked for by a bound of private local SGD alone: leave it out for "
            f"{case.algorithm}."
        )


def assumed(case: Case, measured: Measured, *more: str) -> str:
    said = [*more, f"L = {case.L:.4g}"]
    whole = ", the regularizer's included" if measured.regularized else ""
    return f"with {', '.join(said[:-1])} and {said[-1]}; it assumes gradients that are not clipped{whole}"
