"""Readers of one value: the option as written and its text in, the value or one sentence out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, TypeAlias

from jaxfl.errors import InputError
from jaxfl.params import MOST

__all__ = ["MOST", "Read", "among", "pair", "real", "rounds", "text", "whole"]


Read: TypeAlias = Callable[[str, str], Any]  # (option as written, its text) -> value


def text(flag: str, value: str) -> str:
    if not value.strip():
        raise InputError(f"{flag} {value!r} is empty: give it a value or leave it out.")
    return value


def whole(least: int, most: float = math.inf) -> Read:
    """A whole number; 1e3 is one too."""

    def read(flag: str, value: str) -> int:
        number = _float(value)
        if number != number or math.isinf(number) or number != int(number):
            raise InputError(f"{flag} {value} is not a whole number.")
        number = int(value) if value.lstrip("+-").isdigit() else int(number)
        if number < least:
            raise InputError(f"{flag} {value} has to be at least {least}.")
        if number > most:
            raise InputError(f"{flag} {value} has to be at most {most:.0f}.")
        return number

    return read


def real(
    *,
    above: float = -math.inf,
    below: float = math.inf,
    infinite: bool = False,
    least: float = -math.inf,
) -> Read:
    def read(flag: str, value: str) -> float:
        number = _float(value)
        if number != number:
            raise InputError(f"{flag} {value} is not a number.")
        if math.isinf(number) and not infinite:
            raise InputError(f"{flag} {value} is not a finite number.")
        if number <= above:
            raise InputError(f"{flag} {value} has to be above {above:g}.")
        if number >= below and math.isfinite(below):
            raise InputError(f"{flag} {value} has to be below {below:g}.")
        if number < least:
            raise InputError(f"{flag} {value} has to be {least:g} or more.")
        return int(value) if value.isdigit() else number

    return read


def among(*names: str) -> Read:
    def read(flag: str, value: str) -> str:
        if value not in names:
            raise InputError(f"{flag} {value} has to be {' or '.join(names)}.")
        return value

    return read


def pair(flag: str, value: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as JSON where it reads as such, else as text."""
    name, equals, given = value.partition("=")
    if not (name and equals and given):
        raise InputError(f"{flag} {value} has to read NAME=VALUE.")
    try:
        return name.replace("-", "_"), json.loads(given)
    except ValueError:
        return name.replace("-", "_"), given


def rounds(flag: str, value: str) -> int | None:
    """A number of rounds, or None for the algorithm's own."""
    return None if value == "auto" else int(whole(1, MOST)(flag, value))


def _float(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan
