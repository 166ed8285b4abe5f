"""Checks of random draws, within standard errors."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl.core.types import Draw

__all__ = ["ERRORS", "CheckFailed", "Checked", "confirm", "equal", "mean_is", "scattered"]

Floats: TypeAlias = npt.NDArray[np.float64]
ERRORS = 6.0  # standard errors: of 1e8 honest checks about one fails by chance


class CheckFailed(AssertionError):
    """A part or an algorithm is not what it declares."""


class Checked(NamedTuple):
    """The names of the checks that passed, and of those that could not be made, with the reason."""

    done: tuple[str, ...]
    left: dict[str, str]


def confirm(holds: Any, words: str) -> None:
    """Raise unless the condition holds."""
    if not bool(holds):
        raise CheckFailed(words)


def mean_is(draws: Floats, expected: Any, what: str) -> None:
    """The mean over draws (axis 0) is ``expected``."""
    found = draws.mean(0)
    allowed = ERRORS * draws.std(0) / np.sqrt(len(draws)) + 1e-6 * (1 + np.abs(expected))
    worst = np.argmax(np.abs(found - expected) / allowed)
    at = np.ravel(found)[worst], np.ravel(np.broadcast_to(expected, found.shape))[worst]
    confirm(
        (np.abs(found - expected) <= allowed).all(),
        (f"{what} is {at[0]:.4g} in the mean of {len(draws):,} draws, and should be {at[1]:.4g}"),
    )


def equal(a: Any, b: Any, what: str, tolerance: float = 1e-5) -> None:
    """Two arrays are equal up to rounding, relative to the largest entry."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    confirm(a.shape == b.shape, f"{what}: shapes {a.shape} and {b.shape} differ")
    scale = max(1e-30, float(np.abs(b).max(initial=0.0)))
    apart = float(np.abs(a - b).max(initial=0.0)) / scale
    confirm(apart <= tolerance, f"{what} differ by {apart:.2g} of the largest entry")


def scattered(draw: Draw, size: int) -> Floats:
    """The weight of each member in each draw, (draws, size)."""
    weight = np.asarray(draw.weight, np.float64)
    if draw.index is None:
        return weight
    total = np.zeros((len(weight), size + 1))
    np.add.at(total, (np.arange(len(weight))[:, None], np.minimum(draw.index, size)), weight)
    return total[:, :size]
