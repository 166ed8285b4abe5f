"""Chunks that fit in memory and in time: estimated from shapes, measured by the compiler and a clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfl.core.errors import require
from jaxfl.core.memory import free
from jaxfl.core.params import whole
from jaxfl.core.progress import duration
from jaxfl.core.types import Key
from jaxfl.engine.loop import CALL, MOST, Extra, cadence, rounds_of_call
from jaxfl.engine.sweeps import engine
from jaxfl.engine.sweeps.grid import Grid
from jaxfl.engine.sweeps.identity import Part
from jaxfl.engine.sweeps.placement import placement
from jaxfl.engine.sweeps.plan import (
    Chunk,
    Program,
    chunks,
    programs,
    restored,
    rounds_of,
    work_of,
)

__all__ = [
    "Compiler",
    "Pace",
    "Planned",
    "again",
    "budget",
    "every",
    "extended",
    "fit",
    "fitted",
    "guess",
    "halved",
    "line",
    "pace",
    "planned",
    "predicted",
    "states",
]

RUNS_ON_CPU = 256  # of a chunk: more are not faster there, and a chunk is saved when it is finished
ENOUGH = 8  # runs of a chunk that share their draws, even where to evaluate them takes long
RUNS = 4096
FREE_ON_CPU = 0.6  # share of the free memory that a chunk may use
FREE = 0.85
GROW = 2  # compile again for at least this many times the runs
SERIES, OF_CLIENTS = 20, 4  # values kept per run and evaluation, and of each client, about
MORE_MEMORY = {"memory": None}


def budget(asked: int | None, devices: Sequence[jax.Device]) -> int:
    """Bytes that a chunk may use on all devices together, data included."""
    if asked is not None:
        return whole("memory", asked, 1)
    if devices[0].platform == "cpu":
        return int(FREE_ON_CPU * free(devices[0]))
    return int(FREE * min(map(free, devices)) * len(devices))


def every(program: Program, chunk: Chunk, eval_every: int | None) -> int:
    """Rounds between evaluations: as given, or as in :func:`simulate`."""
    if eval_every is not None:
        return eval_every
    return cadence(program.paced or rounds_of(program, chunk), work_of(program, chunk))


def line(program: Program, grid: Grid) -> str:
    """A program in words."""
    cells, seeds = len(program.cells), len(program.seeds)
    place = grid.studies[program.study].place
    axes = "".join(  # parts and data, which tell programs apart
        f", {axis.name.replace('_', ' ')} {label if isinstance(label, str) else f'{label:g}'}"
        for axis, label in (
            (axis, axis.labels[i]) for axis, i in zip(grid.static, place, strict=True)
        )
        if axis.name != "algorithm" and len(axis.values) > 1
    )
    for name, _ in program.caps:  # and those that have other shapes
        own, whole = (
            {float(cell.values[name]) for cell in some if name in cell.values}
            for some in (program.cells, grid.studies[program.study].cells)
        )
        if own != whole and own:
            axes += f", {name} " + " to ".join(f"{v:g}" for v in sorted({min(own), max(own)}))
    return (
        f"{program.algorithm.name} on {program.problem.name}{axes}, {cells} setting{'s' * (cells != 1)} x "
        f"{seeds} seed{'s' * (seeds != 1)}"
    )


class Compiler(NamedTuple):
    """What the programs of a sweep are compiled for."""

    grid: Grid
    extra: Extra
    eval_every: int | None
    paired: bool
    devices: Sequence[jax.Device]
    available: int  # bytes
    say: Callable[[str], None]

    def compiled(self, program: Program, shape: tuple[int, int]) -> engine.Compiled:
        """The program, compiled for chunks of ``shape``."""
        return engine.compiled(program, shape, self.extra, self.paired, self.devices)

    def compiling(self, program: Program, done: Sequence[engine.Compiled | None], n: int) -> None:
        """Say which program is compiled, and how long the rest may take."""
        took = [run.seconds for run in done if run is not None]
        left = (n - len(took)) * sum(took) / max(len(took), 1)
        self.say(
            f"compiling {len(took) + 1} of {n}"
            + (f" ({duration(left)} left to compile)" if took else "")
            + f": {line(program, self.grid)}"
        )

    def too_large(self, program: Program, run: engine.Compiled) -> str:
        """That the smallest chunk of a program does not fit, in words."""
        parts = placement(program.problem, self.devices).parts
        return (
            f"One run of {program.algorithm.name} on {program.problem.name} needs "
            f"{run.bytes / parts:,.0f} bytes and {self.available / parts:,.0f} are available"
        )

    def most(self, program: Program, at_once: int | None) -> tuple[int, int, int, int]:
        """Parts of the devices, bytes of the data and of a run, and most runs of a chunk."""
        parts = placement(program.problem, self.devices).parts
        data = parts * sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(program.problem))
        most = RUNS * parts
        if self.devices[0].platform == "cpu":
            alike = chunks(0, program.cells, 1, len(program.cells))[1]
            longest = max(max(work_of(program, chunk)) for chunk in alike)
            most = min(RUNS_ON_CPU, max(ENOUGH, int(CALL / longest))) * parts
        return parts, data, max(1, engine.bytes_of_run(program)), at_once or most


class Planned(NamedTuple):
    """Programs, their shapes, and their chunks with the rounds between evaluations."""

    made: list[Program]
    shapes: list[tuple[int, int]]  # of the first ones, which have chunks
    todo: list[Chunk]
    marks: list[int]
    past: int = 0  # so many chunks are of shorter runs, which others continue
    paced: int = 0  # as in a program

    def written(self) -> dict[str, Any]:
        """What a manifest has of it."""
        entries = [(p.study, p.places, p.seeds, p.begun) for p in self.made]
        return {
            "programs": entries,
            "paced": self.paced,
            "past": self.past,
            "shapes": self.shapes,
            "chunks": [chunk[:] for chunk in self.todo],
            "every": self.marks,
        }


class Pace(NamedTuple):
    """The speed of a program: seconds per multiplication of its rounds and of its evaluations."""

    round: float
    evaluation: float
    compiling: float  # seconds


def pace(
    program: Program, chunk: Chunk, run: engine.Compiled, keys: Sequence[Key], paired: bool
) -> Pace:
    """Time some rounds of a chunk, and one evaluation."""
    each, size = work_of(program, chunk), math.prod(run.shape)
    most = min(rounds_of_call(each.round * size), rounds_of(program, chunk))
    given, hp = engine.inputs(program, chunk, run, keys, paired)
    problem, state = engine.placed_problem(program, run), engine.blank(run)

    def call(begin: bool, rounds: int, seen: bool) -> float:
        nonlocal state
        began = time.perf_counter()
        flags = jnp.bool_(begin), jnp.int32(0), jnp.int32(rounds), jnp.bool_(seen)
        state = jax.block_until_ready(run.call(given, state, hp, *flags, problem))[0]
        return time.perf_counter() - began

    call(True, 0, True)
    call(False, 1, True)  # memory is touched for the first time
    spent = call(False, most, False) / (most * size * each.round)
    return Pace(spent, call(False, 0, True) / (size * each.evaluation), run.seconds)


def guess(
    compiler: Compiler,
    made: Sequence[Program],
    at_once: int | None,
    seconds: Callable[[Program, Chunk], float] = lambda program, chunk: 0.0,
    longest: float = math.inf,
    first: int = 0,
) -> tuple[list[Chunk], list[tuple[int, int]], int]:
    """Chunks of the programs from ``first`` on, their shapes and the bytes of the largest, estimated
    without compiling anything.

    No chunk of several runs takes longer than ``longest``, if a run of it takes so many ``seconds``.
    """
    todo: list[Chunk] = []
    shapes, largest = [], 0
    for i, program in enumerate(made[first:], first):
        parts, data, each, most = compiler.most(program, at_once)
        alike = chunks(i, program.cells, 1, len(program.cells))[1]
        slowest = max(seconds(program, chunk) for chunk in alike)
        most = int(min(most, longest / slowest)) if slowest else most
        limit = max(parts, min(most, (compiler.available - data) // each))
        shape, here = chunks(i, program.cells, len(program.seeds), limit, parts)
        largest = max(largest, data + each * math.prod(shape))
        shapes.append(shape)
        todo += here
    return todo, shapes, largest


def fit(
    compiler: Compiler, made: Sequence[Program], at_once: int | None, first: int = 0
) -> tuple[list[engine.Compiled], list[Chunk]]:
    """Compiled programs, from ``first`` on, and their chunks.

    Raise, before anything runs, where one run is too large.
    """
    available = compiler.available
    programs: list[engine.Compiled] = []
    todo: list[Chunk] = []
    for i, program in enumerate(made[first:], first):
        parts, data, each, most = compiler.most(program, at_once)
        limit = max(parts, min(most, (available - data) // each))
        compiler.compiling(program, programs, len(made) - first)
        guessed = limit < most  # the limit is an estimate, and no measurement
        while True:
            shape, chunks_here = chunks(i, program.cells, len(program.seeds), limit, parts)
            found = compiler.compiled(program, shape)
            runs = shape[0] * shape[1]
            share = max(0, available - data) / max(1, found.bytes - data)
            if found.bytes <= available:
                larger = min(most, int(0.9 * runs * share))
                if not guessed or len(chunks_here) == 1 or larger < GROW * runs:
                    break
                limit, guessed = larger, False  # the estimate was far too small
                continue
            guessed = False
            require(
                runs > parts,
                compiler.too_large(program, found),
                "give it more {memory}, a smaller batch or k, fewer clients, or a smaller model",
                suggested=MORE_MEMORY,
            )
            limit = max(parts, min(runs - 1, int(0.9 * runs * share)))
        programs.append(found)
        todo += chunks_here
    return programs, todo


def halved(shape: tuple[int, int], parts: int) -> tuple[int, int]:
    """Half as many cells, or seeds if there is but one cell on each device; the least shape stays."""
    tall, wide = shape
    t, w = (parts, 1) if tall % parts == 0 else (1, parts)  # one of them is split over devices
    if wide > w:
        return tall, math.ceil(wide / w / 2) * w
    return math.ceil(tall / t / 2) * t, wide


def fitted(compiler: Compiler, program: Program, shape: tuple[int, int]) -> engine.Compiled:
    """The program, compiled for chunks of ``shape`` or the largest part of it that fits, if one does."""
    tall, wide = shape
    parts = placement(program.problem, compiler.devices).parts
    if tall % parts and wide % parts:  # planned for other devices
        wide = math.ceil(wide / parts) * parts
    while True:
        found = compiler.compiled(program, (tall, wide))
        smaller = halved((tall, wide), parts)
        if found.bytes <= compiler.available or smaller == (tall, wide):
            return found
        tall, wide = smaller


def again(
    compiler: Compiler,
    made: Sequence[Program],
    shapes: Sequence[tuple[int, int]],
    needed: Collection[int],
) -> list[engine.Compiled | None]:
    """The ``needed`` programs, compiled for the shapes that an earlier call or another host planned."""
    programs: list[engine.Compiled | None] = [None] * len(made)
    for i in sorted(needed):
        tall, wide = shapes[i]
        parts = placement(made[i].problem, compiler.devices).parts
        if tall % parts and wide % parts:  # planned for other devices
            wide = -(-wide // parts) * parts
        compiler.compiling(made[i], programs, len(needed))
        programs[i] = found = compiler.compiled(made[i], (tall, wide))
        require(
            found.bytes <= compiler.available,
            lambda: (
                f"A chunk of {tall * wide} runs, as this sweep planned it, needs "
                f"{found.bytes:,} bytes and {compiler.available:,} are available"
            ),
            "give it more {memory}, or start over",
            suggested=MORE_MEMORY,
        )
    return programs


def planned(manifest: Mapping[str, Any], grid: Grid, held: Part, eval_every: int | None) -> Planned:
    """What a manifest has planned, its positions as those of the grid that holds its sweep."""
    plan = manifest["plan"]
    entries = plan.get("programs")
    if entries is None:  # of the first manifests
        own = Grid(grid.static, grid.numbers, tuple(held.seeds), held.studies)
        entries = [(p.study, p.places, p.seeds, 0) for p in programs(own)]
    there = [
        (
            held.places[i][0],
            [held.places[i][1][j] for j in cells],
            [held.seeds[s] for s in seeds],
            t,
        )
        for i, cells, seeds, t in entries
    ]
    paced = plan.get("paced", 0)
    made = restored(grid, there, paced)
    todo = [Chunk(p, tuple(c), tuple(s)) for p, c, s in plan["chunks"]]
    shapes = [(tall, wide) for tall, wide in plan["shapes"]]
    earlier = (rounds_of(made[chunk.program], chunk) for chunk in todo)  # manifests without
    marks = [math.ceil(T / MOST) if eval_every is None else eval_every for T in earlier]
    return Planned(made, shapes, todo, plan.get("every", marks), plan.get("past", 0), paced)


def extended(old: Planned, held: Part) -> Planned:
    """The plan of a part whose runs become longer: its chunks are past."""
    if not held.longer:
        return old
    T = held.studies[0].cells[0].facts.rounds or 1
    return old._replace(past=len(old.todo), paced=old.paced or T)


def states(made: Sequence[Program]) -> int:
    """Bytes of the final states of all runs."""
    return sum(engine.bytes_of_state(p) * len(p.cells) * len(p.seeds) for p in made)


def predicted(compiler: Compiler, made: Sequence[Program]) -> int:
    """Bytes of the results before compression."""
    total = 0
    for i, program in enumerate(made):
        for chunk in chunks(i, program.cells, 1, len(program.cells))[1]:
            between = every(program, chunk, compiler.eval_every)
            marks = 2 + (rounds_of(program, chunk) // between if between else 0)
            runs = len(chunk.cells) * len(program.seeds)
            each = SERIES + len(compiler.extra) + OF_CLIENTS * min(program.problem.n, engine.FEW)
            total += 8 * runs * marks * each
    return total
