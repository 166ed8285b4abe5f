"""What makes a sweep this one and no other: what its manifest says, and a resumed one has to be."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxfl.errors import InputError
from jaxfl.loop import Extra
from jaxfl.record import settings
from jaxfl.schedules import Schedule
from jaxfl.sweeps.grid import Cell, Grid
from jaxfl.sweeps.plan import Program
from jaxfl.types import Key

__all__ = ["about", "same"]

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
    """Everything that decides the numbers of a sweep, as its manifest holds it."""
    studies = []
    for study in grid.studies:
        told = settings(study.algorithm, study.problem, keys[0])
        cells = [f"{cell.label} {sorted(_words(cell).items())}" for cell in study.cells]
        points = [float(number) for number in told["objective"].split()]
        kept = {name: told[name] for name in SAME}
        studies.append(kept | {"objective": points, "numbers": _sum(cells)})
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


def _words(cell: Cell) -> dict[str, str]:
    """Numbers to nine digits: calibration may differ in the last ones between machines."""
    return {
        name: f"{value} {zlib.crc32(value.over(cell.facts.rounds or 1).tobytes()):08x}"
        if isinstance(value, Schedule)
        else f"{float(value):.9g}"
        for name, value in cell.values.items()
    }


def _sum(words: Sequence[str]) -> str:
    return f"{zlib.crc32(chr(10).join(words).encode()):08x} of {len(words)}"


def same(folder: Path | None, held: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with another sweep's chunks."""
    found = _difference("", {name: held.get(name) for name in now}, json.loads(json.dumps(now)))
    if found is not None:
        name, before, mine = found
        raise InputError(
            f"{folder} holds another sweep: its {name} is {_short(before)}, this one's "
            f"{_short(mine)}: name another folder, or make the sweep as it was."
        )


def _difference(name: str, held: Any, mine: Any) -> tuple[str, Any, Any] | None:
    """The first thing that differs, by its name.  Devices may differ in the last digits of a loss."""
    pairs: Iterable[tuple[str, Any, Any]] = ()
    if isinstance(held, dict) and isinstance(mine, dict):
        pairs = ((key, held.get(key), mine.get(key)) for key in (mine | held))
    elif isinstance(held, list) and isinstance(mine, list) and len(held) == len(mine):
        pairs = ((name, a, b) for a, b in zip(held, mine, strict=True))
    elif name == "objective" and isinstance(held, float):
        return None if np.isclose(held, mine, 1e-5, 1e-6, equal_nan=True) else (name, held, mine)
    elif held != mine:
        return name, held, mine
    return next(filter(None, (_difference(*pair) for pair in pairs)), None)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."
