"""A row: what others published, the rule that compares ours with it, and what is recorded of ours."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from papers.entry import estimate
from papers.report import plain

from jaxfl import InputError
from jaxfl.views.tables import Estimate

__all__ = [
    "AGREES",
    "NOT_RUN",
    "Check",
    "Measure",
    "Record",
    "Row",
    "Seed",
    "check_of",
    "measured",
    "ours",
    "read",
]

Measure: TypeAlias = Callable[[str | None, int], Mapping[str, float]]
FORMAT = 1
ERRORS = 2.0  # standard errors of ours that count as chance
AGREES = ("within the band", "reached", "at most theirs", "above it", "holds")
NOT_RUN = "not run yet"


class Check(NamedTuple):
    """One published value or statement, and the range in which ours has to lie.

    Fields:
        key: of the number that :attr:`Row.measure` returns.
        what: what it is.
        published: the value, with its band, or the statement.
        low: the least value that agrees.
        high: the largest.
        words: the verdict within the range, below it and above it.
        room: standard errors of ours by which the range is wider; where negative, narrower.
    """

    key: str
    what: str
    published: str
    low: float
    high: float
    words: tuple[str, str, str]
    room: float = 0.0

    def verdict(self, value: Estimate) -> str:
        """In words; NaN counts as below the range."""
        room = self.room * value.error if math.isfinite(value.error) else 0.0
        if value.mean > self.high + room:
            return self.words[2]
        return self.words[0 if value.mean >= self.low - room else 1]


def check_of(key: str, what: str, kind: str, value: float = 0.0, **more: Any) -> Check:
    """A check of one of the kinds of ``rows.toml``."""
    if kind == "band":
        width = more.get("width", 0.0)
        text, wide = (
            f"{value} ± {width}" if width else f"{value}",
            width + more.get("unit", 0) / 2,
        )
        words = ("within the band", "below the band", "above the band")
        return Check(key, what, text, value - wide, value + wide, words, more.get("room", 0.0))
    if kind == "reached":
        words = ("reached", "below", "")
        return Check(key, what, f"{value}", value - more["unit"] / 2, math.inf, words, ERRORS)
    if kind == "most":
        words = ("at most theirs", "negative", "ABOVE theirs")
        return Check(key, what, f"{value}", 0.0, value, words)
    if kind == "least":
        words = ("above it", "NOT above it", "")
        return Check(key, what, f"{value}, which is no bound", value, math.inf, words)
    words = ("holds", "does not hold", "")
    return Check(key, what, more["words"], value, math.inf, words, -ERRORS)


class Row(NamedTuple):
    """What one source published in one setting.

    Fields:
        name: as in ``python benchmarks/outside.py run NAME``.
        source: who published it.
        setting: in words.
        checks: the published values.
        measure: the numbers of one seed, from the folder of the data and the seed; None: cannot run here.
        seeds: how many are run.
        minutes: of one seed on two cores, predicted.
        choices: what the source leaves open, or does otherwise.
        why: the reason where ours differs.
        published: of a row that cannot run here, in words.
        missing: the reason why it cannot.
    """

    name: str
    source: str
    setting: str
    checks: tuple[Check, ...] = ()
    measure: Measure | None = None
    seeds: int = 1
    minutes: float = 0.5
    choices: str = ""
    why: str = ""
    published: str = ""
    missing: str = ""


class Seed(NamedTuple):
    """The numbers of one seed, and the seconds that they took."""

    numbers: Mapping[str, float]
    seconds: float


Record: TypeAlias = dict[int, Seed]


def read(row: Row, folder: Path) -> Record:
    """The seeds that are recorded of a row; none where there is no file."""
    path = folder / f"{row.name}.json"
    if not path.exists():
        return {}
    try:
        about = json.loads(path.read_text("utf-8"))
        found = {int(seed): Seed(**each) for seed, each in about["seeds"].items()}
        keys = {check.key for check in row.checks}
        whole = all(keys <= each.numbers.keys() for each in found.values())
        if not whole or (about["format"], about["name"]) != (FORMAT, row.name):
            raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{path} is damaged, or no record of {row.name}", "remove it") from None
    return found


def measured(row: Row, folder: Path, data: str | None, seed: int) -> Seed:
    """Measure one seed of a row, and add it to the row's file."""
    assert row.measure is not None
    began = time.perf_counter()
    numbers = plain(dict(row.measure(data, seed)))
    new = Seed(numbers, round(time.perf_counter() - began, 1))
    seeds = {**read(row, folder), seed: new}
    about = {
        "format": FORMAT,
        "name": row.name,
        "jaxfl": importlib.metadata.version("jaxfl"),
        "seeds": {str(each): seeds[each]._asdict() for each in sorted(seeds)},
    }
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{row.name}.part"
    part.write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    os.replace(part, folder / f"{row.name}.json")  # a kill leaves the earlier file
    return new


def ours(check: Check, record: Record) -> Estimate:
    """The mean over seeds with its standard error; NaN for one seed, and for equal ones."""
    mean, error = estimate([float(each.numbers[check.key]) for each in record.values()])
    return Estimate(mean, error or math.nan)
