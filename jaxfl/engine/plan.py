"""Divide the runs of a grid into compiled programs, and programs into chunks.  Host side.

A program is one compilation: cells of one study whose arrays have the same shapes.  k, b and T fill
static capacities.  Cells which differ in them share a program, unless padding would more than double the
work of one of them.  A chunk is computed by one call: cells with the same batch and number of
rounds, whose draws are made once.

A run has an address, digests of what was asked for it and of what its rounds read.  A folder lists the
addresses of the runs that are planned in it: to resume is to compute what is planned and has no result, to
extend is to plan the runs whose address is not listed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxfl.algorithms.resolution import read
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Algorithm, Key, Problem
from jaxfl.engine.grid import Cell, Grid, Study, word
from jaxfl.engine.loop import CALL, Extra, Work, cadence, work
from jaxfl.engine.runs import settings
from jaxfl.engine.stopping import Stop

__all__ = [
    "KEPT",
    "SAME",
    "Address",
    "Chunk",
    "Options",
    "Program",
    "addresses",
    "chunks",
    "digest",
    "halves",
    "key_word",
    "looks",
    "number_of_looks",
    "program_of",
    "programs",
    "trail",
    "values_of",
    "work_of",
]

PADDING = 2.0  # most work of a cell with padding, relative to that without
# equal in a chunk: otherwise each cell gathers its own rows, or waits for the longest run
SEPARATE = ("batch", "cohort", "local_steps", "rounds")
BETTER = ("refresh", "k")  # equal in a chunk if chunks still have so many cells:
WORTH = 16
WEIGHT = 50  # arithmetic of one sent coordinate, in multiplications of a gradient
SAME = ("algorithm", "parts", "problem", "model", "data", "eval_records", "dtype")
KEPT = ("clients", "eps_spent", "x")  # what is large or slow over a grid


class Options(NamedTuple):
    """The options, besides hyper-parameters, that decide the results of all runs."""

    extra: Extra = ()  # the user's own metrics
    eval_every: int | None = None
    metrics_on: str = "train"
    stop: Stop | None = None
    paired: bool = True
    noise: str = "calibrated"
    matmul_precision: str = "default"
    keep: tuple[str, ...] = ()  # of KEPT

    def words(self) -> dict[str, Any]:
        """The options in words, as a folder keeps them."""
        return {**self._asdict(), "extra": None, "metrics": [name for name, _ in self.extra]}


class Program(NamedTuple):
    """One compilation."""

    study: int
    algorithm: Algorithm
    problem: Problem  # measured, see jaxfl.data.samples
    held: Problem | None  # on which metrics are taken, where that is not ``problem``
    cells: tuple[Cell, ...]
    places: tuple[int, ...]  # of the cells in the study
    caps: tuple[tuple[str, int], ...]
    names: tuple[str, ...]  # hyper-parameters that rounds may read
    shared: frozenset[str]  # those with a single value in each chunk
    once: bool  # metrics of round 0 are computed once for all cells of a seed


class Chunk(NamedTuple):
    """Positions of cells in a program and of seeds in the grid, computed in one call."""

    program: int
    cells: tuple[int, ...]
    seeds: tuple[int, ...]
    shape: tuple[int, int]  # of the arrays: seeds and cells, the last ones repeated
    every: int  # rounds between evaluations
    after: int = 0  # rounds that its runs have behind them in other chunks
    parent: int | None = None  # the chunk of which this is a half
    rules: tuple[Any, ...] = ()  # by which its runs may stop [:mod:`jaxfl.engine.stopping`]

    @property
    def runs(self) -> int:
        return len(self.cells) * len(self.seeds)


# --- addresses -----------------------------------------------------------------------------------


class Address(NamedTuple):
    """Digests that name a cell; with the key of a seed they name a run."""

    cell: str  # of all that decides the numbers of its runs
    setting: str  # of what was asked, without the number of rounds
    rounds: int
    trail: str  # of what all its rounds read


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def key_word(key: Key) -> str:
    """The name of a key in addresses."""
    data = np.asarray(jax.random.key_data(key)).tolist()
    return digest([str(jax.random.key_impl(key)), data])


def addresses(study: Study, options: Options) -> list[Address]:
    """The address of each cell of a study."""
    shared, out = _shared(study, options), []
    for cell in study.cells:
        # cells of a seed share its draws, or each has its own by its label
        draws = "" if options.paired else cell.label
        asked = {name: word(value) for name, value in cell.given.items()}
        setting = digest([shared, asked, options.eval_every, options.noise, draws])
        seen = trail(study, cell, options)
        out.append(Address(digest([setting, seen, options.stop]), setting, cell.rounds, seen))
    return out


def trail(study: Study, cell: Cell, options: Options, rounds: int | None = None) -> str:
    """A digest of what the first ``rounds`` read: equal for runs whose rounds are equal so far."""
    T = cell.rounds if rounds is None else rounds
    values = {
        name: _over(value, T, cell).tolist() if isinstance(value, Schedule) else f"{value:.9g}"
        for name, value in cell.values.items()
        if read(study.algorithm, name, value)
    }
    draws = "" if options.paired else cell.label
    return digest([_shared(study, options), values, T, draws])


def _shared(study: Study, options: Options) -> list[Any]:
    described = settings(study.algorithm, study.problem, study.standing)
    words = options.words()
    kept = {name: words[name] for name in ("metrics", "metrics_on", "matmul_precision")}
    large = [name for name in options.keep if name != "eps_spent"]  # which is computed at the end
    draws = jax.config.values["jax_threefry_partitionable"]
    return [{name: described[name] for name in SAME}, kept, large, draws]


def values_of(cell: Cell) -> dict[str, str]:
    """Values to nine digits: the last digits of a calibration may differ between machines."""
    return {
        name: f"{value}, {digest(_over(value, cell.rounds, cell).tolist())}"
        if isinstance(value, Schedule)
        else f"{float(value):.9g}"
        for name, value in cell.values.items()
    }


def _over(value: Schedule, rounds: int, cell: Cell) -> Any:
    return value.over(max(rounds, cell.rounds, int(cell.values["rounds"])))[:rounds]


# --- programs ------------------------------------------------------------------------------------


def programs(
    grid: Grid, cells: Sequence[tuple[int, int]] | None = None, began: int = 0
) -> list[Program]:
    """The programs of a grid, or of the cells at these studies and places, as few as padding allows."""
    if cells is None:
        cells = [(i, j) for i, study in enumerate(grid.studies) for j in range(len(study.cells))]
    return [
        program_of(grid, i, places, began)
        for i, some in itertools.groupby(cells, key=lambda at: at[0])
        for places in _buckets(grid.studies[i], [j for _, j in some])
    ]


def program_of(grid: Grid, number: int, places: Sequence[int], began: int = 0) -> Program:
    """The program of the cells at these positions of a study.

    Runs that were planned for fewer rounds when they ``began`` keep the slots of their batches.
    """
    study = grid.studies[number]
    cells = [study.cells[j] for j in places]
    if began:
        cells = [cell._replace(facts=cell.facts._replace(rounds=began)) for cell in cells]
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
    seen = work(study.problem, cells[0].values, cells[0].facts).evaluation
    return Program(
        number,
        study.algorithm,
        study.measured,
        study.held,
        tuple(cells),
        tuple(places),
        tuple(sorted(_capacity(study, cells).items())),
        tuple(names),
        shared,
        (len(cells) - 1) * seen > CALL,  # or it would save less than it takes to compile
    )


def chunks(
    number: int,
    program: Program,
    seeds: Sequence[int],
    limit: int,
    parts: int = 1,
    eval_every: int | None = None,
    after: int = 0,
) -> list[Chunk]:
    """The chunks of a program, all of one shape.

    A chunk has at most ``limit`` runs, but one on each of the ``parts`` devices; cells come first,
    since they share their seed's draws.  The last chunks may have fewer runs than the shape.
    """
    groups = list(_groups(program.cells))
    tall, wide = _shape(max(map(len, groups)), len(seeds), limit, parts)
    return [
        Chunk(
            number,
            cells,
            some,
            (tall, wide),
            _every(program.problem, program.cells[cells[0]]) if eval_every is None else eval_every,
            after,
        )
        for group in groups
        for cells in _split(group, wide)
        for some in _split(seeds, tall)
    ]


def _every(problem: Problem, cell: Cell) -> int:
    """Rounds between evaluations, as the work of a run suggests."""
    return cadence(cell.facts.rounds or cell.rounds, work(problem, cell.values, cell.facts))


def halves(number: int, chunk: Chunk, parts: int) -> list[Chunk]:
    """Both halves of a chunk: of its cells, or of its seeds if there is one cell on each device."""
    tall, wide = chunk.shape
    t, w = (parts, 1) if tall % parts == 0 else (1, parts)  # one of them is split over devices
    if wide > w:
        shape = tall, math.ceil(wide / w / 2) * w
        cells, seeds = _split(chunk.cells, shape[1]), [chunk.seeds]
    else:
        shape = math.ceil(tall / t / 2) * t, wide
        cells, seeds = [chunk.cells], _split(chunk.seeds, shape[0])
    if shape == chunk.shape:
        return []
    return [
        chunk._replace(cells=some, seeds=these, shape=shape, parent=number)
        for some in cells
        for these in seeds
    ]


def _split(positions: Sequence[int], most: int) -> list[tuple[int, ...]]:
    return [tuple(positions[i : i + most]) for i in range(0, len(positions), most)]


def work_of(program: Program, chunk: Chunk) -> Work:
    """The work of one run of a chunk, whose runs read as many examples."""
    cell = program.cells[chunk.cells[0]]
    return work(program.problem, cell.values, cell.facts)


def looks(program: Program, chunk: Chunk) -> list[int]:
    """The rounds at which a chunk is evaluated."""
    T = program.cells[chunk.cells[0]].rounds
    return [*range(0, T, chunk.every or T), T]


def number_of_looks(program: Program, chunk: Chunk) -> int:
    """The number of rounds of :func:`looks`, which may be more than fit in memory."""
    T = program.cells[chunk.cells[0]].rounds
    return -(-T // (chunk.every or T)) + 1


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


def _buckets(study: Study, places: Sequence[int]) -> Iterator[list[int]]:
    """Divide cells, the largest first: padding must cost none of them too much work."""
    cells = study.cells
    own = {j: _work(study, cells[j], _capacity(study, [cells[j]])) for j in places}
    left = [*places]
    while left:
        caps = _capacity(study, [cells[j] for j in left])
        alike = [j for j in left if _work(study, cells[j], caps) <= PADDING * own[j]]
        alike = alike or [max(left, key=own.__getitem__)]
        yield alike
        left = sorted(set(left) - set(alike))


def _capacity(study: Study, cells: Sequence[Cell]) -> dict[str, int]:
    """The capacities of the algorithm for the largest values of all cells."""
    names = set.intersection(*(set(cell.values) for cell in cells))
    values = {
        name: np.asarray([cell.values[name] for cell in cells])
        if len(cells) > 1
        else cells[0].values[name]
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
