"""Chunks that fit the device: from shapes first, then checked against the compiler's own analysis."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import jax

from jaxfl.errors import InputError
from jaxfl.loop import Extra
from jaxfl.run import EVALUATIONS
from jaxfl.sweeps import engine
from jaxfl.sweeps.grid import Grid
from jaxfl.sweeps.plan import Chunk, Program, chunks

__all__ = ["budget", "cadence", "fit", "predicted"]

RUNS_ON_CPU = 256  # of a chunk: more gain nothing there, and an interrupt loses what a chunk took
RUNS = 4096
FREE_ON_CPU = 0.6  # of the free memory that a chunk may take
FREE = 0.85
SERIES = 16  # numbers kept per run and evaluation, about


def budget(asked: int | None, devices: Sequence[jax.Device]) -> int:
    """Bytes that a chunk may take on all devices together."""
    if asked is not None:
        if not asked > 0:
            raise InputError(f"memory = {asked!r} has to be a positive number of bytes.")
        return int(asked)
    if devices[0].platform == "cpu":
        return int(FREE_ON_CPU * _free_host_memory())
    free = []
    for device in devices:
        stats = device.memory_stats() or {}
        limit = stats.get("bytes_limit", _free_host_memory())
        free.append(limit - stats.get("bytes_in_use", 0))
    return int(FREE * min(free) * len(devices))


def _free_host_memory() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30


def cadence(program: Program, chunk: Chunk | None, eval_every: int | None) -> int:
    """Rounds between evaluations: given, or a hundredth of the run's, as alone."""
    if eval_every is not None:
        return eval_every
    cells = program.cells if chunk is None else [program.cells[chunk.cells[0]]]
    return math.ceil(max(cell.facts.rounds or 1 for cell in cells) / EVALUATIONS)


def fit(
    grid: Grid,
    made: Sequence[Program],
    extra: Extra,
    eval_every: int | None,
    paired: bool,
    devices: Sequence[jax.Device],
    available: int,
    at_once: int | None,
) -> tuple[list[engine.Compiled], list[Chunk]]:
    """Compiled programs and their chunks; refused before anything runs where one run is too large."""
    most = at_once or (RUNS_ON_CPU if devices[0].platform == "cpu" else RUNS) * len(devices)
    programs, todo = [], []
    for i, program in enumerate(made):
        room = available - (len(devices) - 1) * _size(program.problem)
        guess = engine.bytes_of_run(program)
        limit = max(1, min(most, room // max(1, guess)))
        every = cadence(program, None, eval_every)
        while True:
            shape, mine = chunks(i, program.cells, len(grid.seeds), limit, len(devices))
            found = engine.compiled(program, shape, extra, every, paired, devices)
            needed = found.bytes - _size(program.problem)  # which is in memory already
            if needed <= room:
                break
            runs = shape[0] * shape[1]
            if runs <= len(devices):
                raise InputError(
                    f"One run of {program.algorithm.name} on {program.problem.name} needs "
                    f"{needed / len(devices):,.0f} bytes and {room / len(devices):,.0f} are available "
                    "on each device: give it more memory=, a smaller batch or k, fewer clients, or a "
                    "smaller model."
                )
            limit = max(1, min(runs - 1, int(0.9 * runs * room / needed)))
        programs.append(found)
        todo += mine
    return programs, todo


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
