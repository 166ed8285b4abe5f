"""Compute one chunk, from its first round or its checkpoint to its last."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxfl.core.errors import InputError, JaxflWarning
from jaxfl.core.memory import free
from jaxfl.core.params import whole
from jaxfl.core.types import Info, Key, State
from jaxfl.data.samples import plain
from jaxfl.engine import checkpoint, stopping
from jaxfl.engine.checkpoint import REASON, Batch, restored
from jaxfl.engine.log import Log
from jaxfl.engine.loop import Loop, Ready, Work, rounds_of_call
from jaxfl.engine.plan import Chunk, Options, Program, looks, work_of
from jaxfl.engine.program import (
    Compiled,
    blank,
    bytes_of_data,
    compiled,
    inputs,
    placed,
    placement,
    repeated,
)
from jaxfl.engine.results import portable
from jaxfl.engine.runs import totals
from jaxfl.engine.store import Arrays, Store

__all__ = ["Follower", "Machine", "Saves", "TooLarge", "budget"]

SAVE_EVERY = 120.0  # seconds between checkpoints of a chunk, at least
SHARE = 0.05  # of the time that they take, at most
FREE_ON_CPU = 0.6  # share of the free memory that a chunk may use
FREE = 0.85
FULL = "RESOURCE_EXHAUSTED"  # of a device's memory, while rounds run


def budget(asked: int | None, devices: Sequence[jax.Device]) -> int:
    """Bytes that a chunk may use on all devices together, data included."""
    if asked is not None:
        return whole("memory", asked, 1)
    if devices[0].platform == "cpu":
        return int(FREE_ON_CPU * free(devices[0]))
    return int(FREE * min(map(free, devices)) * len(devices))


class TooLarge(Exception):
    """A chunk does not fit into memory or into its time."""


class Follower:
    """What follows the runs of a chunk while they are computed: here nothing."""

    def begin(self, number: int, t: int) -> None:
        """Take a chunk that goes on from round ``t``."""

    def ready(self, number: int, now: Ready, batch: Batch) -> None:
        """Take rounds that the device has finished."""

    def compiling(self, number: int) -> None:
        """The program of a chunk is about to be compiled."""


class Saves:
    """The checkpoints of chunks in a store, at a cadence in time."""

    def __init__(
        self, store: Store, found: Callable[[int], checkpoint.Content | None] | None = None
    ) -> None:
        self.store, self.found = (
            store,
            found or store.saved,
        )  # the checkpoint from which a chunk goes on
        self.began = self.last = time.perf_counter()
        self.took = self.spent = 0.0  # seconds of the last one, and of all

    def begin(self, number: int, chunk: Chunk, run: Compiled) -> Batch:
        """The runs of a chunk as its checkpoint or a shorter run has them, or before round 1."""
        self.last = time.perf_counter()
        found = self.found(number)
        batch = None
        if found is not None:
            batch = restored(fitting(found, chunk, run.shape), run.state, run.shardings[1])
        return batch or Batch(blank(run), Log(), np.full(run.shape, "", REASON))

    def due(self, share: float) -> bool:
        """Whether it is time for a checkpoint, and the next one is likely to keep to its share.

        ``share`` of the rounds are computed.
        """
        now = time.perf_counter()
        short = self.spent + self.took <= SHARE * (now - self.began)
        return self.store.folder is not None and short and now - self.last >= SAVE_EVERY

    def save(self, number: int, batch: Batch) -> None:
        """Write a checkpoint."""
        jax.block_until_ready(batch.state)  # rounds that are queued are not part of its time
        self._write(lambda: self.store.save(number, batch))

    def keep(self, number: int, content: bytes) -> None:
        """Write a checkpoint that a worker has packed."""
        self._write(lambda: self.store.save_bytes(number, content))

    def _write(self, write: Callable[[], None]) -> None:
        """Warn where writing fails, and write no more: the runs need no checkpoint."""
        began = time.perf_counter()
        try:
            write()
        except InputError as error:
            warnings.warn(f"{error}  There is no checkpoint.", JaxflWarning, stacklevel=3)
            self.took = math.inf
            return
        self.last = time.perf_counter()
        self.took = self.last - began
        self.spent += self.took


def fitting(found: checkpoint.Content, chunk: Chunk, shape: tuple[int, int]) -> Any:
    """A checkpoint of a chunk for arrays of another shape, as other devices need them."""
    if found[0]["ended"].shape == shape:
        return found
    seeds, cells = repeated(chunk, shape)
    rows = [chunk.seeds.index(seed) for seed in seeds]
    columns = [chunk.cells.index(cell) for cell in cells]
    return checkpoint.joined([[(found, (i, j)) for j in columns] for i in rows])


class Machine:
    """The devices of this process, and the data that lie on them."""

    def __init__(
        self, devices: Sequence[jax.Device], memory: int | None = None, share: float = 1.0
    ) -> None:
        self.devices, self.asked = devices, memory
        self.available = int(budget(memory, devices) * (1.0 if memory else share))
        self.compile_seconds, self.compilations = 0.0, 0
        self.known: set[Any] = set()  # programs and shapes that are compiled
        self.placed: tuple[Any, Any] = (None, None)

    def compiled(self, program: Program, chunk: Chunk, options: Options) -> Compiled:
        """The program of a chunk; raise where it does not fit."""
        tall, wide = chunk.shape
        parts = placement(program.problem, self.devices).parts
        if tall * wide > 1 and tall % parts and wide % parts:  # planned for other devices
            wide = math.ceil(wide / parts) * parts
        run = compiled(program, (tall, wide), options, self.devices)
        if (id(program), chunk.shape) not in self.known:
            self.known.add((id(program), chunk.shape))
            self.compile_seconds += run.seconds
            self.compilations += 1
        if run.bytes > self.available and not self._resident(program, chunk, run):
            raise TooLarge(
                f"One run of {program.algorithm.name} on {program.problem.name} needs "
                f"{run.bytes / parts:,.0f} bytes and {self.available / parts:,.0f} are available"
            )
        return run

    def _resident(self, program: Program, chunk: Chunk, run: Compiled) -> bool:
        """Whether a single run fits all the same: its data are in memory already."""
        if chunk.runs > 1 or self.asked is not None:
            return False
        there = placement(program.problem, self.devices, alone=True).devices
        home = program.problem.count.devices()
        data = bytes_of_data(program) if home <= set(there) else 0
        room = free(there[0]) if there[0].platform == "cpu" else sum(map(free, there))
        return run.bytes - data <= room

    def compute(
        self,
        program: Program,
        number: int,
        chunk: Chunk,
        keys: Sequence[Key],
        options: Options,
        saves: Saves,
        follower: Follower,
    ) -> Arrays:
        """All rounds of a chunk, evaluated at its cadence.  Raise where it is too large."""
        if (id(program), chunk.shape) not in self.known:
            follower.compiling(number)
        run = self.compiled(program, chunk, options)
        if self.placed[0] != (id(program), run.shardings[8]):
            self.placed = (None, None)  # before the next one takes memory
            self.placed = (id(program), run.shardings[8]), placed(program, run)
        given = inputs(program, chunk, run, keys, options.paired)
        try:
            return _computed(
                program, number, chunk, run, given, self.placed[1], options, saves, follower
            )
        except jax.errors.JaxRuntimeError as error:
            if FULL not in str(error):
                raise
            raise TooLarge(str(error)) from None


def _computed(
    program: Program,
    number: int,
    chunk: Chunk,
    run: Compiled,
    given: Any,
    data: Any,
    options: Options,
    saves: Saves,
    follower: Follower,
) -> Arrays:
    keys, hp = given
    began = time.perf_counter()
    T, each, size = program.cells[chunk.cells[0]].rounds, work_of(program, chunk), chunk.runs
    batch = saves.begin(number, chunk, run)
    earlier = batch.seconds

    def step(
        state: State, first: bool, start: int, stop: int, seen: bool
    ) -> tuple[State, Info, Any]:
        flags = np.bool_(first), np.int32(start), np.int32(stop), np.bool_(seen)
        state, counts, metrics = run.call(keys, state, hp, *flags, batch.ended == "", data)
        return state, counts, metrics if seen else None

    work = Work(size * each.round, size * each.evaluation)
    most = rounds_of_call(each.round * math.prod(run.shape))
    loop = Loop(step, batch, T, chunk.every, work, most)
    ends = _limits(program, chunk, keys, options)
    follower.begin(number, loop.t)
    saved = loop.t if batch.log.rounds and loop.t > chunk.after else -1
    try:
        loop.begin()
        done = (batch.ended != "").all()
        if ends is not None and chunk.after < loop.t < T and loop.due(loop.t):
            done = ends(batch)  # a checkpoint may lie between an evaluation and this check
        for ready in () if done else loop.calls():
            batch.seconds = earlier + time.perf_counter() - began
            if ends is not None and loop.seen and loop.t < T and ends(batch):
                break
            if ready is not None:
                follower.ready(number, ready, batch)
                if not np.isfinite(np.asarray(ready.loss)).any():
                    break  # no run is finite any more
            if saves.due(loop.t / T):
                saves.save(number, batch)
                saved = loop.t
    except BaseException:
        if loop.intact and batch.log.rounds:
            batch.log.read()
            saves.save(number, batch)
        raise
    batch.seconds = earlier + time.perf_counter() - began
    if saves.store.keep and loop.t != saved and saves.took < math.inf:
        saves.save(number, batch)
    return finish(program, chunk, batch, options)


# --- stopping ------------------------------------------------------------------------------------


def _limits(
    program: Program, chunk: Chunk, keys: Any, options: Options
) -> Callable[[Batch], bool] | None:
    """A function that marks the runs which a rule ends, and returns whether all have ended."""
    stop = options.stop
    if stop is None:
        return None

    def loss(batch: Batch, i: int, j: int) -> float:
        if stop.loss is None or stop.sigma is None:
            return float(batch.log.last.metrics["loss"][i, j])
        algorithm, cell = program.algorithm, program.cells[chunk.cells[j]]
        one = batch.ended.shape == (1, 1)
        state = batch.state if one else jax.tree.map(lambda a: a[i, j], batch.state)
        assert algorithm.event is not None
        event, key = algorithm.event(cell.values, cell.facts), keys[i] if keys.ndim else keys
        key = key[j] if key.ndim else key
        x, t = algorithm.output(state), int(state.t)
        return stopping.noisy_loss(key, plain(program.problem), x, t, stop, event)

    def ends(batch: Batch) -> bool:
        last = batch.log.last
        for j, c in enumerate(chunk.cells):
            cell = program.cells[c]
            cost = program.algorithm.cost(cell.values, cell.facts)
            for i in range(len(chunk.seeds)):
                if not batch.ended[i, j]:
                    counts = {name: int(a[i, j]) for name, a in last.counts.items()}
                    spent = totals(cost, counts)
                    why = stopping.reached(stop, loss(batch, i, j), spent, batch.seconds)
                    batch.ended[i, j] = why
        rows, columns = len(chunk.seeds), len(chunk.cells)
        batch.ended[rows:] = batch.ended[rows - 1]
        batch.ended[:, columns:] = batch.ended[:, [columns - 1]]
        return bool((batch.ended != "").all())

    return ends


# --- results -------------------------------------------------------------------------------------


def finish(
    program: Program, chunk: Chunk, batch: Batch, options: Options, done: bool = True
) -> Arrays:
    """The arrays of a chunk: metrics and running totals at its evaluated rounds, or at those so far.

    A run is NaN from the first evaluation at which its loss is not finite, and after the one at which a
    rule stopped it.  If no run goes on, the log may end early.
    """
    tall, wide = len(chunk.seeds), len(chunk.cells)
    past = batch.log.entries if done else batch.log.content.past
    rounds = [entry.round for entry in past]
    if done and (batch.ended == "").any():  # else all have stopped here
        rounds = sorted({*looks(program, chunk), *rounds})
    entries = [{**entry.metrics, **entry.counts} for entry in past]
    missing = len(rounds) - len(entries)
    out: Arrays = {}
    for name in entries[0]:
        rows = [entry[name] for entry in entries]
        out[name] = portable(name, np.stack(rows + rows[-1:] * missing, axis=2)[:tall, :wide])
    ended = batch.ended[:tall, :wide]
    stopped = np.full(ended.shape, np.nan)
    if (ended != "").any():
        t = np.broadcast_to(np.asarray(batch.state.t), batch.ended.shape)
        stopped = np.where(ended != "", t[:tall, :wide], np.nan)
    lost = ~np.isfinite(out["loss"])
    first = np.where(lost.any(-1), lost.argmax(-1), len(rounds))
    gone = np.arange(len(rounds)) >= first[..., None]
    gone = gone | (np.asarray(rounds) > stopped[..., None])
    for name, values in out.items():
        kind = np.result_type(values.dtype, np.float32)
        mask = gone.reshape(*gone.shape, *[1] * (values.ndim - gone.ndim))
        out[name] = np.where(mask, np.nan, values.astype(kind)).astype(kind)
    at = np.asarray([*rounds, -1], np.float64)[first]
    out["rounds"] = np.asarray(rounds, np.int32)
    out |= {"diverged_at": np.where(at < 0, np.nan, at), "stopped_at": stopped, "ended": ended}
    out["seconds"] = np.asarray(batch.seconds)
    if done and "x" in options.keep:
        output = program.algorithm.output
        several = batch.ended.shape != (1, 1)
        x = (jax.vmap(jax.vmap(output)) if several else output)(batch.state)
        out["x"] = portable("x", np.asarray(x if several else x[None, None])[:tall, :wide])
    return out
