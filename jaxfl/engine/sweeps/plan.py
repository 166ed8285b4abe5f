"""Divide cells into compiled programs, and programs into chunks.  Host side.

A program is one compilation: cells of one study whose arrays have the same shapes.  k, b and T fill
static capacities, so that cells which differ in them share a program, unless padding would more than
double the work of the smaller ones.  A chunk is computed by one call: cells with the same batch and
number of rounds, so that their draws are made once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfl.algorithms.resolution import read
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Algorithm, Problem
from jaxfl.data.samples import measured
from jaxfl.engine.loop import CALL, Work, work
from jaxfl.engine.sweeps.grid import Cell, Grid, Study

__all__ = [
    "Block",
    "Chunk",
    "Program",
    "chunks",
    "continues",
    "programs",
    "restored",
    "rounds_of",
    "sources",
    "work_of",
]

PADDING = 2.0  # most work of the smaller cells with padding, relative to that without
# equal in a chunk: otherwise each cell gathers its own rows, or waits for the longest run
SEPARATE = ("batch", "cohort", "local_steps", "rounds")
BETTER = ("refresh", "k")  # equal in a chunk if chunks still have so many cells:
WORTH = 16
WEIGHT = 50  # arithmetic of one sent coordinate, in multiplications of a gradient


class Program(NamedTuple):
    """One compilation."""

    study: int
    algorithm: Algorithm
    problem: Problem  # measured, see jaxfl.data.samples
    cells: tuple[Cell, ...]
    caps: tuple[tuple[str, int], ...]
    names: tuple[str, ...]  # hyper-parameters that rounds may read
    shared: frozenset[str]  # those with a single value in each chunk
    once: bool  # metrics of round 0 are computed once for all cells of a seed
    places: tuple[int, ...]  # of the cells in the study
    seeds: tuple[int, ...]  # positions in the seeds of the grid
    begun: int = 0  # rounds that the runs of an extended sweep have behind them
    paced: int = 0  # rounds that set the default cadence, if not those of the runs


class Block(NamedTuple):
    """Cells by study, in positions, each with these seeds; ``begun`` as in :class:`Program`."""

    cells: Mapping[int, Sequence[int]]
    seeds: tuple[int, ...]
    begun: int = 0


class Chunk(NamedTuple):
    """Positions of cells and seeds in those of a program; computed in one call, saved in one file."""

    program: int
    cells: tuple[int, ...]
    seeds: tuple[int, ...]


def programs(grid: Grid, blocks: Sequence[Block] | None = None, paced: int = 0) -> list[Program]:
    """The programs of a grid, or of some of its runs, as few as padding allows."""
    if blocks is None:
        whole = {i: range(len(study.cells)) for i, study in enumerate(grid.studies)}
        blocks = [Block(whole, tuple(range(len(grid.seeds))))]
    entries = []
    for block in blocks:
        for i, places in block.cells.items():
            study = grid.studies[i]
            known = {id(study.cells[j]): j for j in places}
            for cells in _buckets(study, [study.cells[j] for j in places]):
                entries.append((i, [known[id(cell)] for cell in cells], block.seeds, block.begun))
    return restored(grid, entries, paced)


def restored(grid: Grid, entries: Iterable[Sequence[Any]], paced: int) -> list[Program]:
    """Programs of these studies, positions of cells and of seeds, and rounds behind them."""
    problems = functools.cache(lambda i: measured(grid.studies[i].problem))
    out = []
    for i, places, seeds, begun in entries:
        study, problem = grid.studies[i], problems(i)
        cells = [study.cells[j] for j in places]
        names = sorted(
            name
            for name in set.intersection(*(set(cell.values) for cell in cells))
            if any(read(study.algorithm, name, cell.values[name]) for cell in cells)
        )
        groups = list(_groups(cells))
        shared = frozenset(
            name
            for name in names
            if all(len({_same(cells[j].values[name]) for j in group}) == 1 for group in groups)
        )
        caps = tuple(sorted(_capacity(study, cells).items()))
        seen = work(problem, cells[0].values, cells[0].facts).evaluation
        once = (len(cells) - 1) * seen > CALL  # or it would save less than it takes to compile
        found = (tuple(cells), caps, tuple(names), shared, once, tuple(places), tuple(seeds))
        out.append(Program(i, study.algorithm, problem, *found, begun, paced))
    return out


def continues(study: Study, before: Cell, now: Cell) -> bool:
    """Whether the rounds of ``before`` are the first rounds of ``now``: they read the same values."""
    T = before.facts.rounds or 1

    def values(cell: Cell, name: str) -> Any:
        value = cell.values[name]
        return value.over(cell.facts.rounds or 1)[:T] if isinstance(value, Schedule) else value

    return before.values.keys() == now.values.keys() and all(
        np.all(np.equal(values(before, name), values(now, name)))
        for name in now.values
        if any(read(study.algorithm, name, cell.values[name]) for cell in (before, now))
    )


def sources(made: Sequence[Program], todo: Sequence[Chunk]) -> dict[Any, Any]:
    """The number, the chunk and the place in it of each run, by its cell and seed."""
    found = {}
    for n, chunk in enumerate(todo):
        program = made[chunk.program]
        for a, i in enumerate(chunk.seeds):
            for b, j in enumerate(chunk.cells):
                found[id(program.cells[j]), program.seeds[i]] = n, chunk, (a, b)
    return found


def chunks(
    program: int, cells: Sequence[Cell], seeds: int, limit: int, parts: int = 1
) -> tuple[tuple[int, int], list[Chunk]]:
    """The shape (seeds, cells) of all chunks of a program, and the chunks.

    A chunk has at most ``limit`` runs, but one on each of the ``parts`` devices; cells come first,
    since they share their seed's draws.  The last chunks may have fewer runs than the shape.
    """
    groups = list(_groups(cells))
    tall, wide = _shape(max(map(len, groups)), seeds, limit, parts)
    out = []
    for group in groups:
        for i in range(0, len(group), wide):
            for s in range(0, seeds, tall):
                out.append(
                    Chunk(program, tuple(group[i : i + wide]), tuple(range(seeds)[s : s + tall]))
                )
    return (tall, wide), out


def rounds_of(program: Program, chunk: Chunk) -> int:
    """The rounds of a chunk's runs."""
    return program.cells[chunk.cells[0]].facts.rounds or 1


def work_of(program: Program, chunk: Chunk) -> Work:
    """The work of one run of a chunk, whose runs read as many examples."""
    cell = program.cells[chunk.cells[0]]
    return work(program.problem, cell.values, cell.facts)


def _shape(cells: int, seeds: int, limit: int, parts: int) -> tuple[int, int]:
    """Split seeds or cells over devices, whichever gives each device less work."""
    each = max(1, limit // parts)

    def even(total: int, most: int) -> int:
        return math.ceil(total / math.ceil(total / most))

    def work(split: tuple[int, int]) -> int:
        return math.ceil(seeds / split[0]) * math.ceil(cells / split[1]) * split[0] * split[1]

    wide = even(cells, each)
    by_seeds = even(math.ceil(seeds / parts), max(1, each // wide)) * parts, wide
    wide = even(math.ceil(cells / parts), each)
    by_cells = even(seeds, max(1, each // wide)), wide * parts
    return min(by_seeds, by_cells, key=work)


def _groups(cells: Sequence[Cell]) -> Iterator[list[int]]:
    """Positions of cells that may share a chunk."""

    def split(names: Sequence[str]) -> list[list[int]]:
        found: dict[Any, list[int]] = {}
        for j, cell in enumerate(cells):
            key = tuple(_same(cell.values.get(name)) for name in names)
            found.setdefault(key, []).append(j)
        return list(found.values())

    names, groups = list(SEPARATE), split(SEPARATE)
    for name in BETTER:
        finer = split([*names, name])
        if len(finer) == len(groups) or len(cells) >= WORTH * len(finer):
            names, groups = [*names, name], finer
    yield from groups


def _same(value: Any) -> Any:
    """A key that is equal for equal values."""
    return value if value is None or isinstance(value, Schedule) else float(value)


# --- padding -------------------------------------------------------------------------------------


def _buckets(study: Study, cells: list[Cell]) -> Iterator[list[Cell]]:
    """Split the cells in halves, recursively, while padding costs the smaller ones too much work."""
    caps = _capacity(study, cells)
    if not caps:
        yield cells
        return

    def lost(name: str) -> float:
        return sum(
            _work(study, cell, caps)
            - _work(study, cell, {**caps, name: _capacity(study, [cell])[name]})
            for cell in cells
        )

    name = max(caps, key=lost)
    sizes = [_capacity(study, [cell])[name] for cell in cells]
    middle = math.sqrt(min(sizes) * max(sizes))
    small = [cell for cell, size in zip(cells, sizes, strict=True) if size <= middle]
    large = [cell for cell, size in zip(cells, sizes, strict=True) if size > middle]
    padded = sum(_work(study, cell, caps) for cell in small)
    own = sum(_work(study, cell, _capacity(study, small)) for cell in small)
    if not large or padded <= PADDING * own:
        yield cells
        return
    yield from _buckets(study, small)
    yield from _buckets(study, large)


def _capacity(study: Study, cells: Sequence[Cell]) -> dict[str, int]:
    """The capacities of the algorithm for the largest values of all cells."""
    names = set.intersection(*(set(cell.values) for cell in cells))
    values = {
        name: np.asarray([cell.values[name] for cell in cells])
        for name in names
        if not any(isinstance(cell.values[name], Schedule) for cell in cells)
    }
    facts = cells[0].facts._replace(rounds=max(cell.facts.rounds or 0 for cell in cells))
    return study.algorithm.capacity(values, facts)


def _work(study: Study, cell: Cell, caps: dict[str, int]) -> float:
    """An estimate of the multiplications of one run: gradients of the drawn rows, and messages."""
    facts, d = cell.facts, study.problem.model.dim
    clients = min(facts.n, caps.get("cohort", facts.n))
    rows = caps.get("batch", facts.m_max) * float(cell.values.get("local_steps", 1))
    sent = WEIGHT * caps.get("k", 0)
    return float(facts.rounds or 1) * clients * (4.0 * rows * d + sent)
