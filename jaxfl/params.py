"""The one validator of hyper-parameters: a number's range stands in its ``Param`` alone.  Host side."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jaxfl.checks import shown
from jaxfl.errors import InputError
from jaxfl.schedules import Floats, Schedule
from jaxfl.types import Param

__all__ = ["LEAST", "MOST", "check", "closest", "numbers", "reads", "varies", "whole"]

MOST = 2**31 - 1  # of rounds and other whole numbers, which a run holds as int32
LEAST = 1e-37  # noise below it is 0, or not told from 0, in a float32


def closest(kind: str, name: str, known: Iterable[str]) -> str:
    """One sentence for a name that is not known."""
    known = sorted(known)
    near = difflib.get_close_matches(str(name), known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}."
    return f"There is no {kind} {name!r}: {hint}"


def check(params: Iterable[Param], given: Mapping[str, Any], owner: str) -> None:
    """Refuse numbers that no run could mean."""
    table = {param.name: param for param in params}
    for name, value in given.items():
        if name not in table:
            raise InputError(closest(f"hyper-parameter of {owner} named", name, table))
        param = table[name]
        array = numbers(name, value)
        low, high = float(np.min(array)), float(np.max(array))
        if math.isnan(low):
            raise InputError(f"{name} = {value!r} is not a number.")
        if param.integer and not np.array_equal(array, np.round(array)):
            raise InputError(f"{name} = {value!r} has to be a whole number.")
        below = low < param.low or (param.open_low and low == param.low)
        if below or high > param.high or (param.open_high and high == param.high):
            least = f"{'above' if param.open_low else 'at least'} {param.low:g}"
            most = f" and {'below' if param.open_high else 'at most'} {param.high:g}"
            if math.isinf(param.high):
                most = " and finite" if param.open_high else ""
            raise InputError(f"{name} = {value!r} has to be {least}{most} ({param.doc}).")


def numbers(name: str, value: Any) -> Floats:
    """``value`` as floats: no text, truth value or complex number is taken for one."""
    try:
        given = np.asarray(value)
        if given.size == 0 or given.dtype.kind in "bcSUmM":
            raise TypeError
        return given.astype(np.float64)
    except (TypeError, ValueError):
        way = ": leave out the quotes" if isinstance(value, str) and reads(value) else ""
        raise InputError(f"{name} = {shown(value)} is not a number{way}.") from None


def reads(text: str) -> bool:
    """Whether a text would be a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def whole(name: str, value: Any, least: int) -> int:
    """``value`` as an int, or one sentence."""
    try:
        number = int(value)
        if isinstance(value, bool | np.bool_) or number != value or number < least:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{name} = {shown(value)} has to be a whole number of at least {least}."
        ) from None
    if number > MOST:
        raise InputError(f"{name} = {shown(value)} is more than can be counted: at most {MOST}.")
    return number


def varies(value: Any) -> bool:
    """Whether it is said as a schedule."""
    return (
        callable(value) or isinstance(value, Schedule) or (isinstance(value, str) and ":" in value)
    )
