"""What makes a sweep this one and no other: what its manifest says, and a resumed one has to be."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
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

SAME = ("algorithm", "parts", "problem", "model", "data", "objective", "dtype")


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
        studies.append({name: told[name] for name in SAME} | {"cells": _sum(cells)})
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
    for name, mine in json.loads(json.dumps(now, default=str)).items():
        if held.get(name) != mine:
            raise InputError(
                f"{folder} holds another sweep: its {name} is {_short(held.get(name))}, this one's "
                f"{_short(mine)}: name another folder, or make the sweep as it was."
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."
