"""What a folder has planned, matched with a grid: what is finished, what is left, what is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxfl.algorithms.standing import weaker
from jaxfl.core.errors import InputError, require
from jaxfl.core.types import Key
from jaxfl.core.version import __version__
from jaxfl.engine import stopping
from jaxfl.engine.checkpoint import Place
from jaxfl.engine.dataset import Found
from jaxfl.engine.grid import Grid, word
from jaxfl.engine.plan import (
    SAME,
    Chunk,
    Options,
    Program,
    addresses,
    chunks,
    digest,
    key_word,
    program_of,
    programs,
    trail,
    values_of,
)
from jaxfl.engine.runs import same, settings
from jaxfl.engine.store import Line, Store
from jaxfl.privacy.events import Standing

__all__ = ["Planned", "joined_standing"]

# a chunk that is past, the place of a run in it, the rounds it has reached, and those it was begun for
Past = tuple[int, Place, int, int]
Fit = Any  # how many runs of a program fit into a chunk, and on how many devices


class Planned:
    """The programs and chunks of a store, as far as they are those of the grid.

    A program whose cells are not all in the grid is past: it was for fewer rounds.
    """

    def __init__(self, store: Store, grid: Grid, keys: Sequence[Key], options: Options) -> None:
        self.store, self.grid, self.options = store, grid, options
        self.drawn = store.header.get("drawn", drawn())
        self.keys, self.words = keys, [key_word(key) for key in keys]
        self.names = [addresses(study, options) for study in grid.studies]
        self.programs: list[Program | None] = [self._program(line) for line in store.programs]
        self.chunks: list[Chunk | None] = [self._chunk(line) for line in store.chunks]
        self.behind: dict[int, dict[tuple[str, str], list[Past]]] | None = None

    def _program(self, line: Line) -> Program | None:
        places = {
            name.cell: (i, j) for i, names in enumerate(self.names) for j, name in enumerate(names)
        }
        found = [places.get(cell) for cell, *_ in line["cells"]]
        if not all(found):
            return None
        known: list[Any] = found
        return program_of(self.grid, known[0][0], [j for _, j in known], line["began"])

    def _chunk(self, line: Line) -> Chunk | None:
        if self.programs[line["program"]] is None or not set(line["keys"]) <= set(self.words):
            return None
        return Chunk(
            line["program"],
            tuple(line["cells"]),
            tuple(self.words.index(name) for name in line["keys"]),
            tuple(line["shape"]),
            line["every"],
            line["after"],
            line["parent"],
            tuple(line["rules"]),
        )

    def chunk(self, number: int) -> Chunk:
        chunk = self.chunks[number]
        assert chunk is not None
        return chunk

    def program(self, number: int) -> Program:
        """The program of a chunk."""
        program = self.programs[self.chunk(number).program]
        assert program is not None
        return program

    def found(self, chunks: Sequence[Any]) -> Found:
        """The runs with these arrays of their chunks."""
        made: Any = self.programs
        return Found(self.grid, self.keys, self.options, made, chunks)

    @property
    def current(self) -> list[int]:
        """The chunks of which the result consists."""
        divided = self.store.divided()
        return [n for n, chunk in enumerate(self.chunks) if chunk is not None and n not in divided]

    # --- what is missing -------------------------------------------------------------------------

    def missing(self, fit: Fit) -> tuple[list[Line], list[Line]]:
        """Programs and chunks for the runs that no chunk has; they join those that are planned."""
        have = set()
        for number in self.current:
            chunk, program = self.chunk(number), self.program(number)
            have |= {
                (program.study, program.places[c], s) for c in chunk.cells for s in chunk.seeds
            }
        lines: tuple[list[Line], list[Line]] = [], []
        for (after, began, rules, seeds), cells in self._groups(have).items():
            for program in programs(self.grid, cells, began):
                number = len(self.programs)
                self.programs.append(program)
                names = [self.names[program.study][j] for j in program.places]
                lines[0].append({"cells": [list(name) for name in names], "began": began})
                limit, parts = fit(program)
                every = self.options.eval_every
                made = chunks(number, program, seeds, limit, parts, every, after)
                lines[1].extend(self._add(one, json.loads(rules)) for one in made)
        return lines

    def _groups(self, have: set[tuple[int, int, int]]) -> dict[Any, dict[int, list[int]]]:
        """Cells by study of the runs that are missing, by what they have behind them and by seeds."""
        starts: dict[tuple[int, int], dict[Any, list[int]]] = {}
        for i, study in enumerate(self.grid.studies):
            for j in range(len(study.cells)):
                for s in range(len(self.words)):
                    if (i, j, s) not in have:
                        start = self._start(i, j, s)
                        starts.setdefault((i, j), {}).setdefault(start, []).append(s)
        groups: dict[Any, dict[int, list[int]]] = {}
        for (i, j), mine in starts.items():
            for start, seeds in mine.items():
                groups.setdefault((*start, tuple(seeds)), {}).setdefault(i, []).append(j)
        return dict(sorted(groups.items(), key=lambda item: -item[0][0]))

    def _start(self, i: int, j: int, s: int) -> tuple[int, int, str]:
        """The rounds that a run has behind it, those for which it was planned, and its rules."""
        number, _, after, began = self._source(i, j, s)
        return after, began, json.dumps([] if number < 0 else self.store.chunks[number]["rules"])

    def _source(self, i: int, j: int, s: int) -> Past:
        """The chunk that has brought a run furthest, and the place there; -1: none has."""
        best = -1, (0, 0), 0, 0
        if self.behind is None:
            self.behind = self._past()
        study = self.grid.studies[i]
        for T, runs in self.behind.items():
            name = trail(study, study.cells[j], self.options, T), self.words[s]
            some = (one for one in runs.get(name, ()) if one[2] <= study.cells[j].rounds)
            best = max([best, *some], key=lambda one: one[2])
        return best

    def _past(self) -> dict[int, dict[tuple[str, str], list[Past]]]:
        """Runs of chunks that are past: by rounds, by what these read, and by key."""
        found: dict[int, dict[Any, Any]] = {}
        divided = self.store.divided()
        for n, line in enumerate(self.store.chunks):
            if self.chunks[n] is not None or n in divided:
                continue
            saved = self.store.saved(n)
            if saved is None or saved[1]["at"] <= 0:
                continue
            program = self.store.programs[line["program"]]
            for b, c in enumerate(line["cells"]):
                _, _, T, read = program["cells"][c]
                for a, key in enumerate(line["keys"]):
                    began = program["began"] or T
                    place = n, (a, b), int(saved[1]["at"]), began
                    found.setdefault(T, {}).setdefault((read, key), []).append(place)
        return found

    def sources(self, number: int) -> list[list[tuple[int, Place]]] | None:
        """Where the runs of a chunk have begun; None where they begin with it."""
        chunk = self.chunks[number]
        if chunk is None or not chunk.after:
            return None
        program = self.program(number)
        rows = [
            [self._source(program.study, program.places[c], s)[:2] for c in chunk.cells]
            for s in chunk.seeds
        ]
        return None if any(n < 0 for row in rows for n, _ in row) else rows

    # --- adding ----------------------------------------------------------------------------------

    def _add(self, chunk: Chunk, earlier: Sequence[Any]) -> Line:
        """Plan a chunk, whose runs have ``earlier`` stopping rules; its line."""
        self.chunks.append(chunk._replace(rules=tuple(earlier)))
        if chunk.parent is None and (stop := self.options.stop) is not None:
            T = self.program(-1).cells[chunk.cells[0]].rounds
            rules = stopping.followed(earlier, stopping.rule(stop, chunk.after, T, chunk.every))
            self.chunks[-1] = chunk._replace(rules=tuple(rules))
        about = self.chunk(-1)._asdict()
        return {**about, "keys": [self.words[s] for s in about.pop("seeds")]}

    def divide(self, halves: Sequence[Chunk]) -> list[int]:
        """Plan halves in the place of their parent; their numbers."""
        first = len(self.chunks)
        lines = [self._add(half, half.rules) for half in halves]
        self.store.add(self.about(), (), lines)
        return [*range(first, len(self.chunks))]

    # --- what the header says --------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """What determines the results, for the header of the list."""
        described = [self._described(i) for i in range(len(self.grid.studies))]
        cells = [[name.setting, name.rounds] for names in self.names for name in names]
        return {
            "axes": {axis.name: list(axis.labels) for axis in self.grid.axes},
            "given": self._given(),
            "seeds": list(self.grid.seeds),
            "keys": self.words,
            **self.options.words(),
            "studies": described,
            "cells": cells,
            "drawn": self.drawn,
        }

    def _given(self) -> dict[str, str]:
        """The hyper-parameters that are given for all runs."""
        axes = {axis.name for axis in self.grid.axes}
        cells = [cell for study in self.grid.studies for cell in study.cells]
        given = {name: word(value) for cell in cells for name, value in cell.given.items()}
        return {name: value for name, value in given.items() if name not in axes}

    def _described(self, i: int) -> dict[str, Any]:
        study = self.grid.studies[i]
        about = settings(study.algorithm, study.problem, study.standing)
        points = [float(number) for number in about["objective"].split()]
        return {
            **{name: about[name] for name in SAME},
            "objective": points,
            "proof": list(study.standing),
            **_numbers(study.cells),
        }

    def check(self, folder: Path | None, extend: bool) -> None:
        """Raise unless the folder holds these runs, or with ``extend`` some of them."""
        stored, now = self.store.header, json.loads(json.dumps(self.about(), default=str))
        begun = f"{folder} holds other runs"
        if not extend:
            way = "name another folder, or make them as they were, or more of them with {extend}"
            same(begun, _compared(stored), _compared(now), way, suggested={"extend": True})
            return
        way = "give a grid that holds all of it, or name another folder"
        here = {**now["axes"], "seeds": now["seeds"]}
        for name, labels in (*stored["axes"].items(), ("seeds", stored["seeds"])):
            there = here.get(name, labels if len(labels) == 1 else ())
            missing = {word(w): w for w in labels}.keys() - set(map(word, there))
            lost = f"its {name} has {', '.join(sorted(missing))}, and this one's has not"
            require(not missing, lambda: f"{begun}: {lost}", way)
        most: dict[str, int] = {}
        for setting, T in now["cells"]:
            most[setting] = max(T, most.get(setting, 0))
        for setting, T in stored["cells"]:
            if setting not in most:
                same(begun, _compared(stored, True), _compared(now, True), way)
                raise InputError(begun, way)
            done = f"lies before round {T}, which {folder} has reached already"
            require(most[setting] >= T, done, "give at least as many", rounds=most[setting])
        kept = [key for key in stored["keys"] if key in now["keys"]]
        same(begun, {"keys": stored["keys"]}, {"keys": kept or now["keys"]}, way)

    def check_draws(self, folder: Path | None) -> None:
        """Raise where what is left would draw other numbers than what is there."""
        begun, way = (
            f"{folder} was begun with other draws",
            "finish it as it was begun, or start over",
        )
        same(begun, self.drawn, drawn(), f"{way} in another folder")


def _compared(about: Mapping[str, Any], fixed: bool = False) -> dict[str, Any]:
    """What must be the same; ``fixed``: what no larger grid changes."""
    out = {name: value for name, value in about.items() if name in (*Options._fields, "metrics")}
    if fixed:
        del out["stop"]  # a run may go on without the rule that has ended it
    studies = [dict(study) for study in about["studies"]]
    for study in studies:
        del study["proof"]
        if fixed:
            study.pop("numbers")
    if fixed:
        return {**out, "given": about["given"], "studies": studies[:1]}
    return {"axes": about["axes"], "seeds": about["seeds"], "keys": about["keys"], **out} | {
        "studies": studies
    }


def _numbers(cells: Sequence[Any]) -> dict[str, Any]:
    """``numbers``: the hyper-parameters by name, with a digest where cells differ."""
    found, words = {}, [values_of(cell) for cell in cells]
    for name in sorted({name for cell in cells for name in cell.values}):
        mine = [own.get(name, "none") for own in words]
        alike = all(one == mine[0] for one in mine)
        found[name] = mine[0] if alike else f"{digest(mine)[:8]} of {len(mine)}"
    first = (*cells[0].given, "rounds")  # they cause the differences of others
    return {"numbers": {name: found.pop(name) for name in first if name in found} | found}


def drawn() -> dict[str, Any]:
    """What decides the draws beside the keys."""
    names = ("default_prng_impl", "threefry_partitionable")
    return {"jaxfl": __version__, **{name: getattr(jax.config, f"jax_{name}") for name in names}}


def joined_standing(grid: Grid, header: Mapping[str, Any]) -> Grid:
    """The grid, where nothing more is said of privacy than of the runs in the folder."""

    def name(study: Mapping[str, Any]) -> str:
        return digest({key: study[key] for key in SAME})

    before = {name(study): Standing(*study["proof"]) for study in header.get("studies", ())}
    studies = []
    for study in grid.studies:
        about = settings(study.algorithm, study.problem, study.standing)
        earlier = before.get(name(about), study.standing)
        studies.append(study._replace(standing=weaker(earlier, study.standing)))
    return grid._replace(studies=tuple(studies))
