"""What identifies a sweep: the content of its manifest, compared when it is resumed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Key, Origin
from jaxfl.core.version import __version__
from jaxfl.engine import record
from jaxfl.engine.loop import Extra
from jaxfl.engine.record import settings
from jaxfl.engine.sweeps.grid import Cell, Grid
from jaxfl.engine.sweeps.plan import Program

__all__ = ["about", "drawn", "same"]

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


def drawn() -> dict[str, Any]:
    """What decides the draws beside the keys."""
    names = ("default_prng_impl", "threefry_partitionable")
    return {"jaxfl": __version__, **{name: getattr(jax.config, f"jax_{name}") for name in names}}


def _numbers(cells: Sequence[Cell]) -> dict[str, Any]:
    """``numbers``: each hyper-parameter by name, a checksum where cells differ; ``assumed``: the names
    that take their defaults in every cell.

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
    return {"numbers": found, "assumed": assumed}


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
    theirs = {name: stored.get(name, USUALLY.get(name)) for name in now}
    mine = json.loads(json.dumps(now))
    for before, study in zip(theirs["studies"], mine["studies"], strict=False):
        usual = {name: study["numbers"][name] for name in study.pop("assumed")}
        before.pop("assumed", None)
        before["numbers"] = usual | before["numbers"]
    way = "name another folder, or make the sweep as it was"
    record.same(f"{folder} holds another sweep", theirs, mine, way)
