"""What identifies a sweep: the content of its manifest, compared when it is resumed or extended."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxfl.core.errors import InputError, require
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Key, Origin
from jaxfl.core.version import __version__
from jaxfl.engine import record
from jaxfl.engine.loop import Extra
from jaxfl.engine.record import joined_proof, settings
from jaxfl.engine.sweeps.grid import Cell, Grid, Study, with_rounds, within, word
from jaxfl.privacy.events import Standing

__all__ = ["Part", "about", "drawn", "entire", "part", "proofs", "same"]

RESUMED = "name another folder, or make the sweep as it was, or a larger one with {extend}"
USUALLY: dict[str, Any] = {
    "metrics": [],
    "eval_every": None,
    "paired": True,
    "noise": "calibrated",
    "matmul_precision": "default",
}
SAME = ("algorithm", "parts", "problem", "model", "data", "eval_records", "dtype")


def about(
    grid: Grid,
    keys: Sequence[Key],
    extra: Extra,
    eval_every: int | None,
    paired: bool,
    noise: str,
    matmul_precision: str,
) -> dict[str, Any]:
    """What determines the result of a sweep, for its manifest."""
    studies = []
    for study in grid.studies:
        described = settings(study.algorithm, study.problem, keys[0])
        points = [float(number) for number in described["objective"].split()]
        kept = {name: described[name] for name in SAME}
        proof = {"proof": list(study.standing)}
        studies.append(kept | proof | {"objective": points} | _numbers(study.cells))
    axes = {axis.name: list(axis.labels) for axis in (*grid.static, *grid.numbers)}
    return {
        "axes": axes,
        "seeds": list(grid.seeds),
        "keys": [np.asarray(jax.random.key_data(key)).tolist() for key in keys],
        "metrics": [name for name, _ in extra],
        "eval_every": eval_every,
        "paired": paired,
        "noise": noise,
        "matmul_precision": matmul_precision,
        "studies": studies,
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


def same(
    folder: Path | None, stored: Mapping[str, Any], now: Mapping[str, Any], way: str = RESUMED
) -> None:
    """Raise unless the manifest is that of this sweep; options that are newer have their defaults."""
    theirs = {name: stored.get(name, USUALLY.get(name)) for name in now}
    theirs["studies"] = [dict(study) for study in theirs["studies"]]
    mine = json.loads(json.dumps(now))
    for before, study in zip(theirs["studies"], mine["studies"], strict=False):
        usual = {name: study["numbers"][name] for name in study.pop("assumed")}
        before.pop("assumed", None)
        before.pop("proof", None)
        del study["proof"]
        before.setdefault("eval_records", "all")
        before["numbers"] = usual | before["numbers"]
    extend = {"extend": True}
    record.same(f"{folder} holds another sweep", theirs, mine, way, suggested=extend)


def proofs(grid: Grid, stored: Mapping[str, Any], held: Part) -> Grid:
    """The grid, where nothing more is said of privacy than of the sweep in the folder."""
    studies = list(grid.studies)
    for (i, _), before in zip(held.places, stored["studies"], strict=True):
        found = joined_proof(before.get("proof"), list(studies[i].standing))
        studies[i] = studies[i]._replace(standing=Standing(*found))  # type: ignore[arg-type]
    return grid._replace(studies=tuple(studies))


# --- a sweep that is part of a larger one --------------------------------------------------------


class Part(NamedTuple):
    """What the folder of a smaller sweep has of a grid."""

    places: list[tuple[int, list[int]]]  # positions of its studies and of their cells
    studies: tuple[Study, ...]  # its own, whose cells may have fewer rounds
    seeds: list[int]  # positions
    longer: bool = False  # whether the runs of the grid have more rounds


def entire(grid: Grid) -> Part:
    """The whole grid."""
    places = [(i, [*range(len(study.cells))]) for i, study in enumerate(grid.studies)]
    return Part(places, grid.studies, [*range(len(grid.seeds))])


def part(
    folder: Path | None,
    stored: Mapping[str, Any],
    grid: Grid,
    keys: Sequence[Key],
    extra: Extra,
    eval_every: int | None,
    paired: bool,
    noise: str,
    matmul_precision: str,
) -> Part:
    """The part of the grid that the manifest describes; raise unless it is the same sweep there.

    Of an axis that the folder does not have, it has one value, which is searched for.
    """
    axes = {axis.name: axis for axis in (*grid.static, *grid.numbers)}
    here = {**{name: axis.labels for name, axis in axes.items()}, "seeds": grid.seeds}
    way = "give a grid that holds all of it, or name another folder"
    for name, labels in (*stored["axes"].items(), ("seeds", stored["seeds"])):
        missing = {word(w): w for w in labels}.keys() - set(map(word, here.get(name, ())))
        lost = f"its {name} has {', '.join(sorted(missing))}, and this one's has not"
        require(not missing, lambda: f"{folder} holds another sweep: {lost}", way)
    seeds = [grid.seeds.index(seed) for seed in stored["seeds"]]
    absent = [axis for name, axis in axes.items() if name not in stored["axes"]]
    unnamed = {axis.name for axis in absent if axis.static or axis.name == "rounds"}
    require(
        paired or not unnamed,
        lambda: (
            f"{folder} has no axis {' or '.join(sorted(unnamed))}, by which unpaired runs get their draws"
        ),
        "name another folder",
    )
    mistake: InputError | None = None
    for chosen in itertools.product(*(axis.labels for axis in absent)):
        more = {axis.name: [label] for axis, label in zip(absent, chosen, strict=True)}
        places = within(grid, {**stored["axes"], **more})
        studies, longer = _as_they_were(folder, stored, grid, places, unnamed, noise)
        held = {name: axes[name]._replace(labels=tuple(w)) for name, w in stored["axes"].items()}
        mine = Grid(tuple(held.values()), (), tuple(stored["seeds"]), studies)
        mine_keys = [keys[i] for i in seeds]
        now = about(mine, mine_keys, extra, eval_every, paired, noise, matmul_precision)
        try:
            same(folder, stored, now, way)
            return Part(places, studies, seeds, longer)
        except InputError as error:
            mistake = mistake or error
    assert mistake is not None
    raise mistake


def _as_they_were(
    folder: Path | None,
    stored: Mapping[str, Any],
    grid: Grid,
    places: Sequence[tuple[int, list[int]]],
    unnamed: Collection[str],
    noise: str,
) -> tuple[tuple[Study, ...], bool]:
    """The studies of the folder, with its rounds and labels; whether the grid has more rounds."""
    counts = {study["numbers"].get("rounds", "") for study in stored["studies"]}
    rounds = counts.pop() if len(counts) == 1 else ""
    T = int(rounds) if rounds.isdigit() and "rounds" not in {a.name for a in grid.numbers} else 0
    studies, longer = [], False
    for i, positions in places:
        study, cells = grid.studies[i], []
        for cell in (study.cells[j] for j in positions):
            now = cell.facts.rounds or 0
            if T and now != T and _origin(cell, "rounds") is Origin.GIVEN:
                longer = True
                done = f"lies before round {T}, which {folder} has reached already"
                require(now > T, done, "give at least as many", rounds=now)
                cell = with_rounds(study, cell, T, noise)
            words = (w for w in cell.label.split("|") if w.split("=")[0] not in unnamed)
            cells.append(cell._replace(label="|".join(words)))
        studies.append(study._replace(cells=tuple(cells)))
    return tuple(studies), longer
