"""Compute one chunk, from its first round or its checkpoint to its last."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxfl.core import hosts
from jaxfl.core.errors import InputError, JaxflWarning
from jaxfl.core.types import Info, State
from jaxfl.engine.log import Log
from jaxfl.engine.loop import Loop, Runs, Work, rounds_of_call
from jaxfl.engine.sweeps import engine
from jaxfl.engine.sweeps.gather import finish
from jaxfl.engine.sweeps.look import Look
from jaxfl.engine.sweeps.plan import Chunk, Program, rounds_of, work_of
from jaxfl.engine.sweeps.store import Arrays, Source, Store
from jaxfl.engine.sweeps.watch import Watch

__all__ = ["SAVE_EVERY", "SHARE", "ChunkRuns", "Saves", "compute"]

SAVE_EVERY = 120.0  # seconds between checkpoints of a chunk, at least
SHARE = 0.05  # of the time that they take, at most


@dataclasses.dataclass
class ChunkRuns:
    """The runs of a chunk."""

    state: State
    log: Log


class Saves:
    """The checkpoints of unfinished chunks in the folder of a sweep, at a cadence in time."""

    def __init__(self, store: Store, sources: Mapping[Any, Source] | None = None) -> None:
        self.store, self.sources = store, sources or {}  # by cells and seeds of programs
        self.began = self.last = time.perf_counter()
        self.took = self.spent = 0.0  # seconds of the last one, and of all

    def begin(self, index: int, program: Program, chunk: Chunk, run: engine.Compiled) -> ChunkRuns:
        """The runs of a chunk as its checkpoint or a shorter sweep has them, or before round 1."""
        self.last = time.perf_counter()
        saved = self.store.saved(index, chunk, run.state, run.shardings[1])
        if saved is None and program.begun and self.sources:
            seeds, cells = engine.padded(chunk, run.shape)
            names = [[(id(program.cells[j]), program.seeds[i]) for j in cells] for i in seeds]
            at = [[self.sources[name] for name in row] for row in names]
            saved = self.store.joined(at, program.begun, run.state, run.shardings[1])
        return ChunkRuns(*saved) if saved is not None else ChunkRuns(engine.blank(run), Log())

    def due(self) -> bool:
        """Whether it is time for a checkpoint, and the next one is likely to keep to its share."""
        now = time.perf_counter()
        short = self.spent + self.took <= SHARE * (now - self.began)
        return self.store.folder is not None and short and now - self.last >= SAVE_EVERY

    def save(self, index: int, chunk: Chunk, runs: Runs) -> None:
        """Write a checkpoint.  Warn where that fails, and write no more: the sweep needs none."""
        if self.store.folder is None and hosts.is_first():
            return
        jax.block_until_ready(runs.state)  # rounds that are queued are not part of its time
        began = time.perf_counter()
        try:
            self.store.save(index, chunk, runs)
        except InputError as error:
            warnings.warn(f"{error}  The sweep has no checkpoint.", JaxflWarning, stacklevel=2)
            self.took = math.inf
            return
        self.last = time.perf_counter()
        self.took = self.last - began
        self.spent += self.took


def compute(
    program: Program,
    index: int,
    chunk: Chunk,
    run: engine.Compiled,
    given: Any,
    problem: Any,
    every: int,
    look: Look,
    saves: Saves,
    watch: Watch | None = None,
) -> Arrays:
    """All rounds of a chunk, evaluated at the cadence; ``given`` are its keys and hyper-parameters."""
    keys, hp = given
    T, each, size = rounds_of(program, chunk), work_of(program, chunk), look.size(chunk)

    def step(
        state: State, first: bool, start: int, stop: int, seen: bool
    ) -> tuple[State, Info, Any]:
        flags = np.bool_(first), np.int32(start), np.int32(stop), np.bool_(seen)
        state, counts, metrics = run.call(keys, state, hp, *flags, problem)
        return state, counts, metrics if seen else None

    work = Work(size * each.round, size * each.evaluation)
    most = rounds_of_call(each.round * math.prod(run.shape))
    runs = saves.begin(index, program, chunk, run)
    loop = Loop(step, runs, T, every, work, most)
    marks, first = len(runs.log.rounds), look.looks(chunk, True) * each.evaluation
    done = first + loop.t * work.round + (marks - 1) * work.evaluation if marks else 0.0
    look.begin(chunk, every, loop.t, done)
    loop.begin()
    loop.unread, saved = 0.0 if marks else first, loop.t
    rounds = [*range(0, T, every or T), T]
    try:
        for ready in loop.calls():
            if ready is not None and watch is not None:
                watch.read(chunk, rounds, runs.log.read(ready.round))
            lost = ready is not None and not look.at(chunk, *ready)
            lost, due = hosts.first(lambda lost=lost: (lost, saves.due()))  # type: ignore[misc]
            if lost:
                break  # no run is finite any more
            if due:
                saves.save(index, chunk, runs)
                saved = loop.t
    except BaseException:
        if loop.intact and not hosts.several():  # others may be elsewhere
            saves.save(index, chunk, runs)
        raise
    if saves.store.keep and loop.t == T != saved and saves.took < math.inf:
        saves.save(index, chunk, runs)
    arrays = finish(chunk, rounds, runs.log)
    look.passed(chunk.program, loop.unread)
    return arrays
