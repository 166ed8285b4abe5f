"""Ranges of the parameters of questions and audits that no algorithm declares.

Outside its range a formula may still give a number, and that number would be false.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxfl.core.errors import require
from jaxfl.core.params import check
from jaxfl.core.types import Param

__all__ = ["FLAGS", "NUMBERS", "checked"]

COUNT = 1e12  # accountants hold counts, and products of two of them, in 64 bits

# Without an upper end a number may be infinite, such as a clip that bounds nothing.
_RANGES = (
    (
        Param("", "", 1, COUNT, integer=True),
        "samples slots rounds dimension clients epochs inner local_steps devices machines npos nneg "
        "canaries chunk",
    ),
    (Param("", "", 0, COUNT, integer=True), "tp fp guesses correct"),
    (Param("", "", 2, COUNT, integer=True), "runs"),
    (Param("", "", 0, COUNT, open_low=True), "batch"),
    (Param("", "", open_low=True), "clip record_norm noise_multiplier"),
    (Param("", "", open_low=True, open_high=True), "canary"),
    (Param("", ""), "sigma mu claimed"),
    (Param("", "", open_high=True), "eps rho"),
    (Param("", "", 0, 1, open_low=True, open_high=True), "delta alpha confidence"),
)
NUMBERS: Mapping[str, Param] = {
    name: param._replace(name=name) for param, names in _RANGES for name in names.split()
}
FLAGS = ("convex", "fresh")


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not None, whole numbers as ints; raise unless each is in its range.

    A name without a range here (a sampling scheme, a hyper-parameter) is left to the function that
    takes it.
    """
    values = {name: value for name, value in given.items() if value is not None}
    for name, value in values.items():
        if name in FLAGS:
            flag = isinstance(value, bool | np.bool_)
            require(flag, "must be true or false", **{name: value})
        elif name in NUMBERS:
            several = isinstance(value, list | tuple) or np.ndim(value)
            require(not several, "must be one number", **{name: value})
            check((NUMBERS[name],), {name: value}, "privacy")
            values[name] = int(value) if NUMBERS[name].integer else value
    return values
