"""Numbers that change from round to round: step sizes, shifts, refresh probabilities.

A schedule is evaluated on the host into one number per round, so that a run reads it like any other
number and a sweep has it as an axis.  Named ones are texts, from A in round 0 to B in the last:

=====================  ============================================================================
``cosine:A`` or A,B    half a period of the cosine; B is 0 where it is not given
``linear:A,B``         a straight line
``exponential:A,B``    a constant ratio
``sqrt:A``             ``A / sqrt(1 + t)``
``inverse:A``          ``A / (1 + t)``
``step:A,B,t``         A before round t, B from it on
=====================  ============================================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl.errors import InputError

__all__ = ["Schedule", "schedule"]

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Schedule:
    """``rule(t, T)`` for the rounds t = 0 ... T-1, under the name that results show."""

    label: str
    rule: Callable[[Floats, int], Any]

    def over(self, rounds: int) -> Floats:
        t = np.arange(rounds, dtype=np.float64)
        return np.broadcast_to(np.asarray(self.rule(t, rounds), np.float64), t.shape)

    def __str__(self) -> str:
        return self.label


def schedule(spec: Any, label: str | None = None) -> Schedule:
    """A named schedule from its text, or one's own from a function of the round (optax's serve)."""
    if isinstance(spec, Schedule):
        return spec
    if callable(spec):
        return Schedule(
            label or "schedule", lambda t, T: [float(spec(i)) for i in t.astype(int).tolist()]
        )
    name, _, rest = str(spec).partition(":")
    if name not in RULES:
        raise InputError(
            f"There is no schedule {spec!r}: write one of {', '.join(RULES)}, as in cosine:0.3."
        )
    rule, least, most = RULES[name]
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []
    if not least <= len(numbers) <= most or not np.isfinite(numbers).all():
        counts = f"{least}" if least == most else f"{least} or {most}"
        raise InputError(f"{spec!r} has to read {name}:A,B,... with {counts} finite numbers.")
    return Schedule(label or str(spec), lambda t, T: rule(t, max(T - 1, 1), *numbers))


def cosine(t: Floats, end: int, a: float, b: float = 0.0) -> Floats:
    return b + (a - b) * (1 + np.cos(np.pi * t / end)) / 2


def exponential(t: Floats, end: int, a: float, b: float) -> Floats:
    if a * b <= 0:
        raise InputError(f"exponential:{a:g},{b:g} has to join two numbers of one sign, not 0.")
    out: Floats = a * (b / a) ** (t / end)
    return out


RULES: dict[str, tuple[Callable[..., Floats], int, int]] = {
    "cosine": (cosine, 1, 2),
    "linear": (lambda t, end, a, b: a + (b - a) * t / end, 2, 2),
    "exponential": (exponential, 2, 2),
    "sqrt": (lambda t, end, a: a / np.sqrt(1 + t), 1, 1),
    "inverse": (lambda t, end, a: a / (1 + t), 1, 1),
    "step": (lambda t, end, a, b, change: b + (a - b) * (t < change), 3, 3),
}
