"""Readers of one value: the option as written and its text in, the value or one sentence out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, TypeAlias

from jaxfl.core.errors import require
from jaxfl.core.params import MOST, choice, number, reads

__all__ = ["MOST", "Among", "Read", "pair", "real", "records", "rounds", "text", "whole"]


Read: TypeAlias = Callable[[str, str], Any]  # (option as written, its text) -> value


def text(flag: str, value: str) -> str:
    require(value.strip(), "is empty", "give it a value or leave it out", **{flag: repr(value)})
    return value


def whole(least: int, most: float = math.inf) -> Read:
    """A whole number; 1e3 is one too."""

    def read(flag: str, value: str) -> int:
        found = number(flag, _float(flag, value), least=least, most=most, integer=True)
        return int(value) if value.lstrip("+-").isdigit() else int(found)

    return read


def real(infinite: bool = False, **bounds: float) -> Read:
    """A finite number in the range, or an infinite one too."""
    ends: dict[str, Any] = bounds if infinite else {"below": math.inf, **bounds}

    def read(flag: str, value: str) -> float:
        found = number(flag, _float(flag, value), **ends)
        return int(value) if value.isdigit() else found

    return read


class Among:
    """One of these names."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __call__(self, flag: str, value: str) -> str:
        choice(flag, value, self.names)
        return value


def pair(flag: str, value: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as JSON where it reads as such, else as text."""
    name, equals, given = value.partition("=")
    require(name and equals and given, "must read NAME=VALUE", **{flag: value})
    try:
        return name.replace("-", "_"), json.loads(given)
    except ValueError:  # .5 is a number as well
        return name.replace("-", "_"), float(given) if reads(given) else given


def rounds(flag: str, value: str) -> int | None:
    """A number of rounds, or None for the algorithm's own."""
    return None if value == "auto" else int(whole(1, MOST)(flag, value))


def records(flag: str, value: str) -> int | str:
    """A number of records, or "all"."""
    if value == "all":
        return value
    require(reads(value), 'is neither a number nor "all"', **{flag: value})
    return int(whole(1)(flag, value))


def _float(flag: str, value: str) -> float:
    require(reads(value), "is not a number", **{flag: value})
    return float(value)
