"""Hyper-parameters that change from round to round: step sizes, shifts, refresh probabilities.

The host evaluates a schedule into one number per round; a sweep may have it as an axis.  Named
schedules are texts, from A in round 0 to B in the last round:

======================  ============================================================================
``cosine:A`` or A,B     half a period of the cosine; B defaults to 0
``linear:A,B``          a straight line
``exponential:A,B``     a constant ratio
``sqrt:A``              ``A / sqrt(1 + t)``
``inverse:A``           ``A / (1 + t)``
``step:A,B,t``          A before round t, B from it on
``pieces:A,k,B,l,...``  A for k rounds, then B for l rounds and so on; the last value remains
======================  ============================================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import InputError, require, shown

__all__ = ["Schedule", "pieces", "schedule"]

Floats: TypeAlias = npt.NDArray[np.float64]
SHOWN = 48  # characters of a label


@dataclasses.dataclass(frozen=True)
class Schedule:
    """``rule(t, T)`` for the rounds t = 0 ... T-1, under the name that results show."""

    label: str
    rule: Callable[[Floats, int], Any]
    written: bool = True  # whether :func:`schedule` of the label is this one
    ends: bool = False  # whether it ends with the planned rounds: such a run cannot be extended

    def over(self, rounds: int) -> Floats:
        t = np.arange(rounds, dtype=np.float64)
        return np.broadcast_to(np.asarray(self.rule(t, rounds), np.float64), t.shape)

    def __str__(self) -> str:
        """The label, or its beginning: one number per round may make it long."""
        return self.label if len(self.label) <= SHOWN else f"{self.label[: SHOWN - 3]}..."


@dataclasses.dataclass(frozen=True)
class Pieces:
    """A rule of numbers and the number of rounds of each; equal ones compare equal."""

    numbers: tuple[float, ...]
    lengths: tuple[int, ...]

    def __call__(self, t: Floats, T: int) -> Floats:
        ends = np.cumsum(self.lengths)
        place = np.searchsorted(ends, t, side="right")
        return np.asarray(self.numbers)[np.minimum(place, len(ends) - 1)]


def pieces(numbers: Iterable[float], lengths: Iterable[int] | None = None) -> Schedule:
    """A schedule from one number per round, or from numbers and the number of rounds of each."""
    values = [float(number) for number in numbers]
    counts = [1] * len(values) if lengths is None else [int(length) for length in lengths]
    kept: list[tuple[float, int]] = []
    for value, count in zip(values, counts, strict=True):
        if kept and kept[-1][0] == value:
            kept[-1] = value, kept[-1][1] + count
        elif count:
            kept.append((value, count))
    label = "pieces:" + ",".join(f"{value!r},{count}" for value, count in kept)
    return Schedule(label, Pieces(*zip(*kept, strict=True)))


def schedule(spec: Any, label: str | None = None) -> Schedule:
    """A schedule from its text, or from a function of the round, such as those of optax.

    ``spec`` is the text or the function, and ``label`` the name of a function's schedule in results.

    >>> schedule("linear:1,0").over(5).tolist()
    [1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if isinstance(spec, Schedule):
        return spec
    if callable(spec):
        return Schedule(
            label or "schedule",
            lambda t, T: [float(spec(i)) for i in t.astype(int).tolist()],
            written=False,
        )
    name, _, rest = str(spec).partition(":")
    require(
        name in RULES,
        lambda: f"There is no schedule {shown(spec)}",
        lambda: f"write one of {', '.join(RULES)}, as in cosine:0.3",
    )
    rule, least, most = RULES[name]
    ends = name in ("cosine", "linear", "exponential")
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []
    if not least <= len(numbers) <= most or not np.isfinite(numbers).all():
        counts = f"{least}" if least == most else f"{least} or {most if most < 9 else 'more'}"
        raise InputError(f"{spec!r} must read {name}:A,B,... with {counts} finite numbers")
    if name == "pieces":
        result = _pieces(str(spec), numbers)
        return result if label is None else dataclasses.replace(result, label=label, written=False)
    word = label or str(spec)
    return Schedule(word, lambda t, T: rule(t, max(T - 1, 1), *numbers), word == str(spec), ends)


def _pieces(spec: str, numbers: list[float]) -> Schedule:
    lengths = numbers[1::2]
    require(
        not len(numbers) % 2 and not any(length < 1 or length % 1 for length in lengths),
        lambda: f"{spec!r} must read pieces:A,k,B,l,... with whole numbers of rounds k, l, ...",
    )
    return pieces(numbers[::2], [int(length) for length in lengths])


def cosine(t: Floats, end: int, a: float, b: float = 0.0) -> Floats:
    return b + (a - b) * (1 + np.cos(np.pi * t / end)) / 2


def exponential(t: Floats, end: int, a: float, b: float) -> Floats:
    require(a * b > 0, lambda: f"exponential:{a:g},{b:g} must join two numbers of one sign, not 0")
    return a * (b / a) ** (t / end)


RULES: dict[str, tuple[Callable[..., Floats], int, int]] = {
    "cosine": (cosine, 1, 2),
    "linear": (lambda t, end, a, b: a + (b - a) * t / end, 2, 2),
    "exponential": (exponential, 2, 2),
    "sqrt": (lambda t, end, a: a / np.sqrt(1 + t), 1, 1),
    "inverse": (lambda t, end, a: a / (1 + t), 1, 1),
    "pieces": (lambda t, end, *numbers: t, 2, 10**7),  # read by _pieces
    "step": (lambda t, end, a, b, change: b + (a - b) * (t < change), 3, 3),
}
