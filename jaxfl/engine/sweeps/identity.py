"""What identifies a sweep: the content of its manifest, compared when it is resumed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxfl.core.errors import InputError
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Key, Origin
from jaxfl.engine.loop import Extra
from jaxfl.engine.record import USUAL, settings
from jaxfl.engine.sweeps.grid import Cell, Grid
from jaxfl.engine.sweeps.plan import Program

__all__ = ["about", "same"]

USUALLY: dict[str, Any] = {"metrics": [], "eval_every": None, "paired": True, "noise": "calibrated"}
SAME = ("algorithm", "parts", "problem", "model", "data", "dtype")


def about(
    grid: Grid,
    made: Sequence[Program],
    keys: Sequence[Key],
    extra: Extra,
    eval_every: int | None,
    paired: bool,
    noise: str,
) -> dict[str, Any]:
    """What determines the result of a sweep, for its manifest."""
    studies = []
    for study in grid.studies:
        described = settings(study.algorithm, study.problem, keys[0])
        points = [float(number) for number in described["objective"].split()]
        kept = {name: described[name] for name in SAME}
        studies.append(kept | {"objective": points} | _numbers(study.cells))
    axes = {axis.name: list(axis.labels) for axis in (*grid.static, *grid.numbers)}
    return {
        "axes": axes,
        "seeds": list(grid.seeds),
        "keys": [np.asarray(jax.random.key_data(key)).tolist() for key in keys],
        "metrics": [name for name, _ in extra],
        "eval_every": eval_every,
        "paired": paired,
        "noise": noise,
        "studies": studies,
        "programs": [[program.study, len(program.cells)] for program in made],
    }


def _numbers(cells: Sequence[Cell]) -> dict[str, Any]:
    """``numbers``: each hyper-parameter by name, a checksum where cells differ; ``sum``: a checksum of
    all, as in the first manifests; ``assumed``: the names that take their defaults in every cell.

    Given values come first, so that an error names the cause of a difference.
    """
    words, labels = [_words(cell) for cell in cells], [cell.label for cell in cells]

    def follows(name: str) -> tuple[bool, str]:
        return all(_origin(cell, name) is not Origin.GIVEN for cell in cells), name

    found = {}
    for name in sorted({name for each in words for name in each}, key=follows):
        mine = [each.get(name, "none") for each in words]
        pairs = [f"{label} {word}" for label, word in zip(labels, mine, strict=True)]
        found[name] = mine[0] if len(set(mine)) == 1 else _sum(pairs)
    assumed = [
        name for name in found if all(_origin(cell, name) is Origin.DEFAULT for cell in cells)
    ]
    pairs = [f"{label} {sorted(each.items())}" for label, each in zip(labels, words, strict=True)]
    return {"numbers": found, "sum": _sum(pairs), "assumed": assumed}


def _origin(cell: Cell, name: str) -> Origin | None:
    return cell.sources[name].origin if name in cell.sources else None


def _words(cell: Cell) -> dict[str, str]:
    """Values to nine digits: the last digits of a calibration may differ between machines."""
    return {
        name: f"{value} {zlib.crc32(value.over(cell.facts.rounds or 1).tobytes()):08x}"
        if isinstance(value, Schedule)
        else f"{float(value):.9g}"
        for name, value in cell.values.items()
    }


def _sum(words: Sequence[str]) -> str:
    return f"{zlib.crc32(chr(10).join(words).encode()):08x} of {len(words)}"


def same(folder: Path | None, stored: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise unless the manifest is that of this sweep; options that are newer have their defaults."""
    stored = {name: stored.get(name, USUALLY.get(name)) for name in now}
    mine = json.loads(json.dumps(now))
    if len(stored["studies"] or ()) == len(mine["studies"]):
        pairs = [_alike(*pair) for pair in zip(stored["studies"], mine["studies"], strict=True)]
        stored["studies"], mine["studies"] = ([pair[i] for pair in pairs] for i in range(2))
    difference = _difference("", stored, mine)
    if difference is not None:
        name, before, mine = difference
        raise InputError(
            f"{folder} holds another sweep: its {name} is {_short(before)}, this one's "
            f"{_short(mine)}",
            "name another folder, or make the sweep as it was",
        )


def _alike(stored: dict[str, Any], mine: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two studies for comparison, with defaults where the earlier one has no entry."""
    stored, mine = ({**study, "parts": {**USUAL, **study["parts"]}} for study in (stored, mine))
    whole, assumed = mine.pop("sum"), mine.pop("assumed")
    for name in ("sum", "assumed"):
        stored.pop(name, None)
    if isinstance(stored["numbers"], str):
        return stored, {**mine, "numbers": whole}
    usual = {name: mine["numbers"][name] for name in assumed}
    return {**stored, "numbers": {**usual, **stored["numbers"]}}, mine


def _difference(name: str, stored: Any, mine: Any) -> tuple[str, Any, Any] | None:
    """The first difference, by name.  Devices may differ in the last digits of a loss."""
    pairs: Iterable[tuple[str, Any, Any]] = ()
    if isinstance(stored, dict) and isinstance(mine, dict):
        pairs = ((key, stored.get(key), mine.get(key)) for key in (mine | stored))
    elif isinstance(stored, list) and isinstance(mine, list) and len(stored) == len(mine):
        pairs = ((name, a, b) for a, b in zip(stored, mine, strict=True))
    elif name == "objective" and isinstance(stored, float):
        return (
            None if np.isclose(stored, mine, 1e-5, 1e-6, equal_nan=True) else (name, stored, mine)
        )
    elif stored != mine:
        return name, stored, mine
    return next(filter(None, (_difference(*pair) for pair in pairs)), None)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."
