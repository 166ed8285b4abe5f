"""The planned runs of a grid, in a folder or in memory: those that it holds, and those that are missing."""

from __future__ import annotations

import functools
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxfl.algorithms.standing import weaker
from jaxfl.core.errors import InputError, require
from jaxfl.core.secret import words_of_key
from jaxfl.core.types import Key
from jaxfl.core.version import __version__
from jaxfl.engine import stopping
from jaxfl.engine.checkpoint import Content, Place, joined
from jaxfl.engine.grid import Cell, Grid, Study, word
from jaxfl.engine.plan import (
    SAME,
    Chunk,
    Options,
    Program,
    addresses,
    chunks,
    digest,
    halves,
    key_word,
    program_of,
    programs,
    trail,
    values_of,
)
from jaxfl.engine.runs import noisy, settings
from jaxfl.engine.store import Arrays, Store
from jaxfl.privacy.events import Standing

__all__ = ["Base", "Planned", "keys_of"]

# the base key, from the header of a folder, which is empty for a new one
Base = Callable[[Mapping[str, Any]], Key]
Fit = Callable[[Program], tuple[int, int]]  # the most runs of a chunk, and the devices they share


class Past(NamedTuple):
    """The rounds that a run has completed in a chunk for fewer rounds; by default none."""

    chunk: int = -1
    place: Place = (0, 0)
    rounds: int = 0  # that it has reached
    began: int = 0  # rounds for which it was planned when it began


class Planned:
    """The programs and chunks of a store that are those of the grid, by their numbers.

    A program whose cells are not all in the grid is past: it was for fewer rounds.
    """

    def __init__(self, store: Store, grid: Grid, key: Base, options: Options) -> None:
        self.store, self.options = store, options
        self.grid = grid = _joined_standing(grid, store.header)
        self.drawn = store.header.get("drawn", drawn())
        self.base = key(store.header)
        self.keys = keys_of(self.base, grid.seeds)
        self.words = [key_word(key) for key in self.keys]
        self.names = [addresses(study, options) for study in grid.studies]
        self.programs: dict[int, Program] = {}
        self.chunks: dict[int, Chunk] = {}
        places = {
            name.cell: (i, j) for i, names in enumerate(self.names) for j, name in enumerate(names)
        }
        for number, line in enumerate(store.programs):
            found = [places[cell] for cell, *_ in line["cells"] if cell in places]
            if len(found) == len(line["cells"]):
                positions = [j for _, j in found]
                self.programs[number] = program_of(grid, found[0][0], positions, line["began"])
        for number, line in enumerate(store.chunks):
            if line["program"] in self.programs and set(line["keys"]) <= set(self.words):
                fields: Any = {n: tuple(v) if isinstance(v, list) else v for n, v in line.items()}
                seeds = tuple(map(self.words.index, fields.pop("keys")))
                self.chunks[number] = Chunk(**fields, seeds=seeds)

    def program(self, number: int) -> Program:
        """The program of a chunk."""
        return self.programs[self.chunks[number].program]

    def study(self, chunk: Chunk) -> Study:
        return self.grid.studies[self.programs[chunk.program].study]

    @property
    def current(self) -> list[int]:
        """The chunks of which the result consists."""
        divided = self.store.divided()
        return [number for number in self.chunks if number not in divided]

    def read(self) -> dict[int, Arrays | None]:
        """The arrays of the chunks of which the result consists, where they are finished."""
        return {number: self.store.read(number) for number in self.current}

    # --- what is missing -------------------------------------------------------------------------

    def complete(self, fit: Fit) -> int:
        """Add programs and chunks for the runs that no chunk has to the list; how many chunks."""
        have, before = set(), len(self.chunks)
        for number in self.current:
            chunk, program = self.chunks[number], self.program(number)
            have |= {
                (program.study, program.places[c], s) for c in chunk.cells for s in chunk.seeds
            }
        for (after, began, rules, seeds), cells in self._groups(have).items():
            for program in programs(self.grid, cells, began):
                number = len(self.store.programs)
                names = [list(self.names[program.study][j]) for j in program.places]
                self.store.programs.append({"cells": names, "began": began})
                self.programs[number] = program
                most, parts = fit(program)
                every = self.options.eval_every
                for chunk in chunks(number, program, seeds, most, parts, every, after):
                    self._add(chunk, json.loads(rules))
        return len(self.chunks) - before

    def _groups(self, have: set[tuple[int, int, int]]) -> dict[Any, list[tuple[int, int]]]:
        """Study and place of the cells with missing runs, by what these have behind them and by seeds.

        Runs with more rounds behind them come first.
        """
        groups: dict[Any, list[tuple[int, int]]] = {}
        for i, study in enumerate(self.grid.studies):
            for j in range(len(study.cells)):
                starts: dict[Any, list[int]] = {}
                for s in range(len(self.words)):
                    if (i, j, s) not in have:
                        past = self._past(i, j, s)
                        rules = self.store.chunks[past.chunk]["rules"] if past.rounds else []
                        start = past.rounds, past.began, json.dumps(rules)
                        starts.setdefault(start, []).append(s)
                for start, seeds in starts.items():
                    groups.setdefault((*start, tuple(seeds)), []).append((i, j))
        return dict(sorted(groups.items(), key=lambda item: -item[0][0]))

    def _past(self, i: int, j: int, s: int) -> Past:
        """The chunk that has brought a run furthest."""
        study, best = self.grid.studies[i], Past()
        cell = study.cells[j]
        for T, runs in self._reached.items():
            name = trail(study, cell, self.options, T), self.words[s]
            some = (one for one in runs.get(name, ()) if one.rounds <= cell.rounds)
            best = max([best, *some], key=lambda one: one.rounds)
        return best

    @functools.cached_property
    def _reached(self) -> dict[int, dict[tuple[str, str], list[Past]]]:
        """Runs of chunks that are past: by rounds, by what these read, and by key."""
        found: dict[int, dict[Any, list[Past]]] = {}
        divided = self.store.divided()
        for number, line in enumerate(self.store.chunks):
            past = number not in self.chunks and number not in divided
            saved = self.store.saved(number) if past else None
            if saved is None or saved[1]["at"] <= 0:
                continue
            program = self.store.programs[line["program"]]
            for b, c in enumerate(line["cells"]):
                _, _, T, read = program["cells"][c]
                for a, key in enumerate(line["keys"]):
                    one = Past(number, (a, b), saved[1]["at"], program["began"] or T)
                    found.setdefault(T, {}).setdefault((read, key), []).append(one)
        return found

    def repeated(self, numbers: Iterable[int]) -> int:
        """The runs of these chunks with the key, and so multiples of the noise, of a shorter one."""
        past = defaultdict[tuple[str, str], set[tuple[int, str]]](set)
        for number, line in enumerate(self.store.chunks):
            if number not in self.chunks and self.store.ran(number):
                cells = self.store.programs[line["program"]]["cells"]
                for c, key in itertools.product(line["cells"], line["keys"]):
                    _, setting, T, read = cells[c]
                    past[setting, key].add((T, read))

        def differs(program: Program, c: int, key: str) -> bool:
            study, cell = self.grid.studies[program.study], program.cells[c]
            before = past[self.names[program.study][program.places[c]].setting, key]
            others = any(trail(study, cell, self.options, T) != read for T, read in before)
            return others and noisy(study.algorithm, cell.values)

        some = [(self.program(n), self.chunks[n]) for n in numbers if past]
        return sum(
            differs(p, *run) for p, a in some for run in itertools.product(a.cells, self._keys(a))
        )

    def _keys(self, chunk: Chunk) -> list[str]:
        return [self.words[s] for s in chunk.seeds]

    def checkpoint(self, number: int) -> Content | None:
        """The checkpoint of a chunk, or one of all the shorter runs that it continues; None without.

        Runs that a rule has ended go on, unless the same rule holds for the longer ones.
        """
        found, chunk = self.store.saved(number), self.chunks[number]
        if found is not None or not chunk.after:
            return found
        program = self.program(number)
        past = [
            [self._past(program.study, program.places[c], s) for c in chunk.cells]
            for s in chunk.seeds
        ]
        files = {one.chunk: self.store.saved(one.chunk) for row in past for one in row}
        if any(file is None or file[1]["at"] != chunk.after for file in files.values()):
            return None
        rows: Any = [[(files[one.chunk], one.place) for one in row] for row in past]
        arrays, about = joined(rows)
        before = (self.store.chunks[other]["rules"] for other in files)
        if not all(stopping.holds(chunk.rules, rules) for rules in before):
            arrays["ended"] = np.full_like(arrays["ended"], "")
        return arrays, {**about, "owner": self.store.owner(number)}

    # --- adding ----------------------------------------------------------------------------------

    def _add(self, chunk: Chunk, rules: Sequence[Any]) -> int:
        """Add a chunk to the list, whose runs have these earlier stopping rules; its number."""
        if chunk.parent is None and (stop := self.options.stop) is not None:
            T = self.programs[chunk.program].cells[chunk.cells[0]].rounds
            rules = stopping.followed(rules, stopping.rule(stop, chunk.after, T, chunk.every))
        number = len(self.store.chunks)
        self.chunks[number] = chunk._replace(rules=tuple(rules))
        line = self.chunks[number]._asdict()
        line["keys"] = self._keys(self.chunks[number])
        del line["seeds"]
        self.store.chunks.append(line)
        return number

    def divide(self, number: int, parts: int) -> dict[int, Chunk]:
        """Plan the halves of a chunk in its place; none if it has one run on each device."""
        some = halves(number, self.chunks[number], parts)
        made = {self._add(half, half.rules): half for half in some}
        if made:
            self.store.write_list(self.about())
        return made

    # --- what the header says --------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """Describe all that determines the results, for the header of the list."""
        axes = {axis.name: list(axis.labels) for axis in self.grid.axes}
        cells = [cell for study in self.grid.studies for cell in study.cells]
        given = {name: word(value) for cell in cells for name, value in cell.given.items()}
        return {
            "axes": {**axes, "seeds": list(self.grid.seeds)},
            "keys": self.words,
            "options": self.options.words(),
            "given": {name: value for name, value in given.items() if name not in axes},
            "studies": [_described(study) for study in self.grid.studies],
            "numbers": [_numbers(study.cells) for study in self.grid.studies],
            "proofs": [list(study.standing) for study in self.grid.studies],
            "drawn": self.drawn,
            "base": words_of_key(self.base),
        }

    def check(self, extend: bool) -> None:
        """Raise unless the folder holds these runs, or with ``extend`` some of them."""
        folder, stored = self.store.folder, self.store.header
        now = json.loads(json.dumps(self.about(), default=str))
        begun = f"{folder} holds other runs"
        if not extend:
            way = "name another folder, or make them as they were, or more of them with {extend}"
            before, mine = (
                [a["axes"], {"keys": a["keys"]}, a["options"], *a["studies"], *a["numbers"]]
                for a in (stored, now)
            )
            for pair in zip(before, mine, strict=False):  # as many, if their axes are the same
                _same(begun, *pair, way, suggested={"extend": True})
            return
        way = "give a grid that holds all of it, or name another folder"
        for name, labels in stored["axes"].items():
            there = now["axes"].get(name, labels if len(labels) == 1 else ())
            missing = set(map(word, labels)) - set(map(word, there))
            lost = f"its {name} has {', '.join(sorted(missing))}, and this one's has not"
            require(not missing, lambda: f"{begun}: {lost}", way)
        most: dict[str, int] = {}
        for name in itertools.chain(*self.names):
            most[name.setting] = max(name.rounds, most.get(name.setting, 0))
        cells = [cell for line in self.store.programs for cell in line["cells"]]
        for _, setting, T, _ in sorted(cells, key=lambda cell: -cell[2]):  # the last round is named
            if setting not in most:
                # a run that its stopping rule ended may go on without that rule
                before, mine = (
                    [{**a["options"], "stop": None}, a["given"], a["studies"][0]]
                    for a in (stored, now)
                )
                for pair in zip(before, mine, strict=True):
                    _same(begun, *pair, way)
                raise InputError(begun, way)
            done = f"lies before round {T}, which {folder} has reached already"
            require(most[setting] >= T, done, "give at least as many", rounds=most[setting])
        kept = [key for key in stored["keys"] if key in now["keys"]]
        _same(begun, {"keys": stored["keys"]}, {"keys": kept or now["keys"]}, way)

    def check_draws(self) -> None:
        """Raise where what is left would draw other numbers than what is there."""
        begun = f"{self.store.folder} was begun with other draws"
        way = "finish it as it was begun, or start over in another folder"
        _same(begun, self.drawn, drawn(), way)


def _same(
    begun: str, stored: Mapping[str, Any], now: Mapping[str, Any], way: str, **how: Any
) -> None:
    """Raise, with the first difference, unless both are the same."""
    for name in {**now, **stored}:
        before, mine = (about.get(name) for about in (stored, now))
        if name == "objective" and np.allclose(before, mine, 1e-5, 1e-6, equal_nan=True):  # type: ignore[arg-type]
            continue  # devices may differ in the last digits
        if before != mine:
            there, here = ("none" if v is None else _short(v) for v in (before, mine))
            raise InputError(f"{begun}: its {name} is {there} there, and {here} here", way, **how)


def _short(value: Any) -> str:
    """A value in one short line, or the only value of a list."""
    text = json.dumps(value[0] if isinstance(value, list) and len(value) == 1 else value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _described(study: Study) -> dict[str, Any]:
    """The facts that identify a study, in words, and its objective at some points."""
    about = settings(study.algorithm, study.problem, study.standing)
    points = [float(number) for number in about["objective"].split()]
    same = {name: about[name] for name in SAME if name != "parts"}
    return {**same, **about["parts"], "objective": points}


def _name(described: Mapping[str, Any]) -> str:
    """Devices may differ in the last digits of an objective."""
    return digest({name: value for name, value in described.items() if name != "objective"})


def _numbers(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """The values of each hyper-parameter; given ones come first, as they cause differences of others."""
    words = [values_of(cell) for cell in cells]
    names = sorted({name for own in words for name in own})
    first = [name for name in (*cells[0].given, "rounds") if name in names]
    return {
        name: list(dict.fromkeys(own.get(name, "none") for own in words))
        for name in dict.fromkeys([*first, *names])
    }


def keys_of(key: Key, seeds: Sequence[int]) -> list[Key]:
    """The keys of seeds: seed s of base key K runs with ``fold_in(K, s)``."""
    return [jax.random.fold_in(key, seed) for seed in seeds]


def drawn() -> dict[str, Any]:
    """The settings that decide the draws, besides the keys."""
    names = ("default_prng_impl", "threefry_partitionable")
    return {"jaxfl": __version__, **{name: getattr(jax.config, f"jax_{name}") for name in names}}


def _joined_standing(grid: Grid, header: Mapping[str, Any]) -> Grid:
    """The grid, where nothing more is said of privacy than of the runs in the folder."""
    before = {}
    for about, proof in zip(header.get("studies", ()), header.get("proofs", ()), strict=True):
        before[_name(about)] = Standing(*proof)
    studies = []
    for study in grid.studies:
        earlier = before.get(_name(_described(study)), study.standing)
        studies.append(study._replace(standing=weaker(earlier, study.standing)))
    return grid._replace(studies=tuple(studies))
