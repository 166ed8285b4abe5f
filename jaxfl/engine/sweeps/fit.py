"""Chunks that fit the device: from shapes first, then checked against the compiler's own analysis."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import jax

from jaxfl.core.errors import InputError, require
from jaxfl.core.memory import free
from jaxfl.core.params import whole
from jaxfl.engine.loop import Extra
from jaxfl.engine.run import EVALUATIONS
from jaxfl.engine.sweeps import engine
from jaxfl.engine.sweeps.grid import Grid
from jaxfl.engine.sweeps.placement import placement
from jaxfl.engine.sweeps.plan import Chunk, Program, chunks

__all__ = ["again", "budget", "cadence", "fit", "line", "predicted"]

RUNS_ON_CPU = 256  # of a chunk: more gain nothing there, and an interrupt loses what a chunk took
RUNS = 4096
FREE_ON_CPU = 0.6  # of the free memory that a chunk may take
FREE = 0.85
GROW = 2  # times the runs at once are worth another compilation
SERIES = 16  # numbers kept per run and evaluation, about


def budget(asked: int | None, devices: Sequence[jax.Device]) -> int:
    """Bytes that a chunk may take on all devices together, the data included."""
    if asked is not None:
        return whole("memory", asked, 1)
    if devices[0].platform == "cpu":
        return int(FREE_ON_CPU * free(devices[0]))
    return int(FREE * min(map(free, devices)) * len(devices))


def cadence(program: Program, chunk: Chunk | None, eval_every: int | None) -> int:
    """Rounds between evaluations: given, or a hundredth of the run's, as alone."""
    if eval_every is not None:
        return eval_every
    cells = program.cells if chunk is None else [program.cells[chunk.cells[0]]]
    return math.ceil(max(cell.facts.rounds or 1 for cell in cells) / EVALUATIONS)


def line(program: Program, grid: Grid) -> str:
    """A program in words."""
    cells, seeds = len(program.cells), len(grid.seeds)
    place = grid.studies[program.study].place
    told = "".join(  # parts and data, without which lines of several programs would be the same
        f", {axis.name.replace('_', ' ')} {_word(axis.labels[i])}"
        for axis, i in zip(grid.static, place, strict=True)
        if axis.name != "algorithm" and len(axis.values) > 1
    )
    return (
        f"{program.algorithm.name} on {program.problem.name}{told}, {cells} cell{'s' * (cells != 1)} x "
        f"{seeds} seed{'s' * (seeds != 1)}"
    )


def _word(label: float | str) -> str:
    return label if isinstance(label, str) else f"{label:g}"


def fit(
    grid: Grid,
    made: Sequence[Program],
    extra: Extra,
    eval_every: int | None,
    paired: bool,
    devices: Sequence[jax.Device],
    available: int,
    say: Callable[[str], None],
    at_once: int | None,
) -> tuple[list[engine.Compiled], list[Chunk]]:
    """Compiled programs and their chunks; refused before anything runs where one run is too large."""
    programs, todo = [], []
    for i, program in enumerate(made):
        place = placement(program.problem, devices)
        most = at_once or (RUNS_ON_CPU if devices[0].platform == "cpu" else RUNS) * place.parts
        data = place.parts * _size(program.problem)
        guess = max(1, engine.bytes_of_run(program))
        limit = max(place.parts, min(most, (available - data) // guess))
        every = cadence(program, None, eval_every)
        guessed = limit < most  # and not measured yet
        while True:
            say(f"compiling {line(program, grid)}")
            shape, mine = chunks(i, program.cells, len(grid.seeds), limit, place.parts)
            found = engine.compiled(program, shape, extra, every, paired, devices)
            runs = shape[0] * shape[1]
            share = max(0, available - data) / max(1, found.bytes - data)
            if found.bytes <= available:
                larger = min(most, int(0.9 * runs * share))
                if not guessed or len(mine) == 1 or larger < GROW * runs:
                    break
                limit, guessed = larger, False  # the guess was far too careful
                continue
            guessed = False
            if runs <= place.parts:
                raise InputError(
                    f"One run of {program.algorithm.name} on {program.problem.name} needs "
                    f"{found.bytes / place.parts:,.0f} bytes and {available / place.parts:,.0f} are "
                    "available",
                    "give it more {memory}, a smaller batch or k, fewer clients, or a smaller model",
                    suggested={"memory": None},
                )
            limit = max(place.parts, min(runs - 1, int(0.9 * runs * share)))
        programs.append(found)
        todo += mine
    return programs, todo


def again(
    grid: Grid,
    made: Sequence[Program],
    extra: Extra,
    eval_every: int | None,
    paired: bool,
    devices: Sequence[jax.Device],
    available: int,
    say: Callable[[str], None],
    shapes: Sequence[tuple[int, int]],
    needed: Collection[int],
) -> list[engine.Compiled | None]:
    """Programs in the shapes that an earlier call, or another host, has planned; only the needed."""
    programs: list[engine.Compiled | None] = []
    for i, (program, (tall, wide)) in enumerate(zip(made, shapes, strict=True)):
        if i not in needed:
            programs.append(None)
            continue
        parts = placement(program.problem, devices).parts
        if tall % parts and wide % parts:  # planned for other devices
            wide = -(-wide // parts) * parts
        every = cadence(program, None, eval_every)
        say(f"compiling {line(program, grid)}")
        found = engine.compiled(program, (tall, wide), extra, every, paired, devices)
        require(
            found.bytes <= available,
            f"A chunk of {tall * wide} runs, as this sweep was begun with, needs "
            f"{found.bytes:,} bytes and {available:,} are available",
            "give it more {memory}, or start anew",
            suggested={"memory": None},
        )
        programs.append(found)
    return programs


def predicted(grid: Grid, made: Sequence[Program], extra: Extra, eval_every: int | None) -> int:
    """Bytes of the results on disk, before compression."""
    total = 0
    for program in made:
        every = cadence(program, None, eval_every)
        rounds = max(cell.facts.rounds or 1 for cell in program.cells)
        marks = 2 + (rounds // every if every else 0)
        total += 8 * len(program.cells) * len(grid.seeds) * marks * (SERIES + len(extra))
    return total


def _size(tree: object) -> int:
    return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(tree))
