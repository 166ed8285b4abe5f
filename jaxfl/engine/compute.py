"""Compute one chunk, from its first round or its checkpoint to its last."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxfl.core.errors import InputError, JaxflWarning
from jaxfl.core.foreign import warn
from jaxfl.core.interrupts import interrupts_deferred
from jaxfl.core.memory import free
from jaxfl.core.params import whole
from jaxfl.core.types import Hyper, Key
from jaxfl.data.samples import plain
from jaxfl.engine import checkpoint, stopping
from jaxfl.engine.checkpoint import REASON, Batch, restored
from jaxfl.engine.log import Log
from jaxfl.engine.loop import CALL, rounds_of_call
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
from jaxfl.engine.stopping import Stop
from jaxfl.engine.store import OUTSIDE, Arrays, Store
from jaxfl.privacy.losses import deviation
from jaxfl.problems.public import distance

__all__ = ["Follower", "Machine", "Ready", "Saves", "TooLarge", "budget"]

SAVE_EVERY = 120.0  # seconds between checkpoints of a chunk, at least
SHARE = 0.05  # of the time that they take, at most
FREE_ON_CPU = 0.6  # share of the free memory that a chunk may use
FREE = 0.85
FULL = "RESOURCE_EXHAUSTED"  # of a device's memory, while rounds run
SECONDS = 0.2  # between reports of the progress
OFTEN = 8  # most calls between waits for the device


def budget(asked: int | None, devices: Sequence[jax.Device]) -> int:
    """Bytes that a chunk may use on all devices together, data included."""
    if asked is not None:
        return whole("memory", asked, 1)
    if devices[0].platform == "cpu":
        return int(FREE_ON_CPU * free(devices[0]))
    return int(FREE * min(map(free, devices)) * len(devices))


class TooLarge(Exception):
    """A chunk does not fit into memory or into its time."""


class Ready(NamedTuple):
    """A call that the device has finished."""

    round: int
    share: float  # of the rounds of the chunk
    loss: Any  # at the last evaluation up to that round, of each run
    late: bool  # whether a report of the progress is due


class Follower:
    """Base class of observers of a chunk while it is computed; its methods do nothing."""

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
        self.store = store
        self.found = found or store.saved  # the checkpoint from which a chunk goes on
        self.cadence = None if store.folder is None else (SAVE_EVERY, SHARE)
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

    def due(self) -> bool:
        """Whether it is time for a checkpoint, and the next one is likely to keep to its share."""
        if self.cadence is None:
            return False
        now, (seconds, most) = time.perf_counter(), self.cadence
        short = self.spent + self.took <= most * (now - self.began)
        return short and now - self.last >= seconds

    def save(self, number: int, batch: Batch) -> None:
        """Write a checkpoint."""
        jax.block_until_ready(batch.state)  # rounds that are queued are not part of its time
        self._write(lambda: self.store.save(number, batch))

    def keep(self, number: int, content: checkpoint.Content) -> None:
        """Write a checkpoint that a worker has sent."""
        self._write(lambda: self.store.save_content(number, content))

    def _write(self, write: Callable[[], None]) -> None:
        """Warn where writing fails, and write no more: the runs need no checkpoint."""
        began = time.perf_counter()
        try:
            write()
        except InputError as error:
            warn(JaxflWarning(f"{error}  There is no checkpoint"))
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
        self,
        devices: Sequence[jax.Device],
        keys: Sequence[Key],
        options: Options,
        memory: int | None = None,
        share: float = 1.0,
    ) -> None:
        self.devices, self.keys, self.options, self.asked = devices, keys, options, memory
        self.available = int(budget(memory, devices) * (1.0 if memory else share))
        self.compile_seconds = 0.0
        self.known: set[Any] = set()  # programs and shapes that are compiled
        self.placed: tuple[Any, Any] = (None, None)

    def compiled(self, program: Program, chunk: Chunk) -> Compiled:
        """The program of a chunk; raise where it does not fit."""
        tall, wide = chunk.shape
        parts = placement(program.problem, self.devices).parts
        if tall * wide > 1 and tall % parts and wide % parts:  # planned for other devices
            wide = math.ceil(wide / parts) * parts
        run = compiled(program, (tall, wide), self.options, self.devices)
        if (id(program), chunk.shape) not in self.known:
            self.known.add((id(program), chunk.shape))
            self.compile_seconds += run.seconds
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
        self, program: Program, number: int, chunk: Chunk, saves: Saves, follower: Follower
    ) -> Arrays:
        """All rounds of a chunk, evaluated at its cadence.  Raise where it is too large."""
        if (id(program), chunk.shape) not in self.known:
            follower.compiling(number)
        run = self.compiled(program, chunk)
        if self.placed[0] != (id(program), run.shardings[8]):
            self.placed = (None, None)  # before the next one takes memory
            self.placed = (id(program), run.shardings[8]), placed(program, run)
        keys, hp = inputs(program, chunk, run, self.keys, self.options.paired)
        batch = saves.begin(number, chunk, run)
        loop = Loop(program, chunk, run, (keys, hp, self.placed[1]), batch, self.options.stop)
        try:
            _computed(loop, number, saves, follower)
        except jax.errors.JaxRuntimeError as error:
            if FULL not in str(error):
                raise
            raise TooLarge(str(error)) from None
        return finish(program, chunk, batch, self.options)


class Loop:
    """The rounds of the runs of a chunk together, in calls of bounded work.

    A call ends at the next evaluation, if its work allows.  Its results are read one call later, while
    the device is busy.
    """

    def __init__(
        self,
        program: Program,
        chunk: Chunk,
        run: Compiled,
        given: tuple[Key, Hyper, Any],
        batch: Batch,
        stop: Stop | None,
    ) -> None:
        self.program, self.chunk, self.run, self.batch = program, chunk, run, batch
        self.keys, self.hp, self.data = given
        self.stop = stop
        self.work = work_of(program, chunk)  # of one run
        self.rounds = program.cells[chunk.cells[0]].rounds
        self.every = chunk.every or self.rounds
        self.most = rounds_of_call(self.work.round * math.prod(run.shape))
        self.t = int(np.max(batch.state.t)) if batch.log.rounds else 0
        self.unread = 0.0  # work of the calls that nobody has waited for
        self.counts: Any = None  # of the last call
        self.loss: Any = None  # at the last evaluation

    @property
    def intact(self) -> bool:
        """Whether there is a state: an interrupted call may have taken it."""
        return not any(leaf.is_deleted() for leaf in jax.tree.leaves(self.batch.state))

    def due(self, t: int) -> bool:
        """Whether metrics are computed at round t."""
        return t in (0, self.rounds) or t % self.every == 0

    def begin(self) -> None:
        """Call the compiled program without a round; evaluate a new run, or align a resumed one."""
        log = self.batch.log
        if log.rounds:
            self.loss = log.last.metrics["loss"]
            if log.last.round == self.t and not self.due(self.t):
                log.forget_last()  # the end of a run that is extended
        self._call(self.t, self.due(self.t) and self.t not in log.rounds[-1:], not log.rounds)

    def calls(self) -> Iterator[Ready | None]:
        """Compute the remaining rounds; after each call, yield the one before if it was waited for."""
        count, reported = 0, time.perf_counter()
        while self.t < self.rounds:
            counts, t, loss, work = self.counts, self.t, self.loss, self.unread
            end = min(self.rounds, t + self.most, t - t % self.every + self.every)
            with interrupts_deferred():  # an interrupt between its lines would lose the state
                self._call(end, self.due(end))
            late, count = time.perf_counter() - reported >= SECONDS, count + 1
            ready = None
            if late or count >= OFTEN or work >= CALL / 4:
                jax.block_until_ready(counts)
                ready, count = Ready(t, t / self.rounds, loss, late), 0
                self.unread -= work
                reported = time.perf_counter() if late else reported
            yield ready

    def _call(self, end: int, seen: bool, first: bool = False) -> None:
        flags = np.bool_(first), np.int32(self.t), np.int32(end), np.bool_(seen)
        live = self.batch.ended == ""
        state, counts, metrics = self.run.call(
            self.keys, self.batch.state, self.hp, *flags, live, self.data
        )
        self.batch.log.add(end, counts, metrics if seen else None)
        work = (end - self.t) * self.work.round + seen * self.work.evaluation
        self.unread += self.chunk.runs * work
        self.counts, self.t = counts, end
        self.loss = metrics["loss"] if seen else self.loss
        # Last: until here the old state is donated, and nothing can be saved.
        self.batch.state = state

    # --- stopping --------------------------------------------------------------------------------

    def stopped(self) -> bool:
        """Apply the stopping rule to an evaluation before the last; whether no run goes on."""
        if self.stop is None:
            return False
        if self.chunk.after < self.t < self.rounds and self.due(self.t):
            self._apply(self.stop)
        return bool((self.batch.ended != "").all())

    def _apply(self, stop: Stop) -> None:
        batch, chunk = self.batch, self.chunk
        for j, c in enumerate(chunk.cells):
            cell = self.program.cells[c]
            cost = self.program.algorithm.cost(cell.values, cell.facts)
            for i in range(len(chunk.seeds)):
                if not batch.ended[i, j]:
                    counts = {name: int(a[i, j]) for name, a in batch.log.last.counts.items()}
                    read, spent = self._loss(stop, i, j), totals(cost, counts)
                    batch.ended[i, j] = stopping.reached(stop, *read, spent, batch.seconds)
        rows, columns = len(chunk.seeds), len(chunk.cells)
        batch.ended[rows:] = batch.ended[rows - 1]
        batch.ended[:, columns:] = batch.ended[:, [columns - 1]]

    def _loss(self, stop: Stop, i: int, j: int) -> tuple[float, float]:
        """The loss of a run that a rule reads, and the standard deviation of its noise."""
        if stop.loss is None or stop.bound is None or stop.sigma is None:
            return float(self.batch.log.last.metrics["loss"][i, j]), 0.0
        algorithm, cell = self.program.algorithm, self.program.cells[self.chunk.cells[j]]
        alone = self.run.shape == (1, 1)
        state = self.batch.state if alone else jax.tree.map(lambda a: a[i, j], self.batch.state)
        key = self.keys[(i, j)[: self.keys.ndim]]
        assert algorithm.event is not None
        std = deviation(algorithm.event(cell.values, cell.facts), cell.facts, stop.sigma)
        problem, x = plain(self.program.problem), algorithm.output(state)
        return float(stopping.noisy_loss(key, problem, x, int(state.t), stop.bound, std)), std


def _computed(loop: Loop, number: int, saves: Saves, follower: Follower) -> None:
    """Compute the rounds that are left, with checkpoints."""
    batch, began = loop.batch, time.perf_counter()
    earlier = batch.seconds
    follower.begin(number, loop.t)
    try:
        loop.begin()
        # a checkpoint may lie between an evaluation and this check
        for ready in () if loop.stopped() else loop.calls():
            batch.seconds = earlier + time.perf_counter() - began
            if loop.stopped():
                break
            if ready is not None:
                follower.ready(number, ready, batch)
                if not np.isfinite(np.asarray(ready.loss)).any():
                    break  # no run is finite any more
            if saves.due():
                saves.save(number, batch)
    except BaseException:
        if loop.intact and batch.log.rounds:
            batch.log.read()
            saves.save(number, batch)
        raise
    batch.seconds = earlier + time.perf_counter() - began
    if saves.store.keep and saves.took < math.inf:
        saves.save(number, batch)


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
    project, output = program.problem.model.project, program.algorithm.output
    several = batch.ended.shape != (1, 1)

    def of_each(read: Callable[[Any], jax.Array]) -> np.ndarray:
        found = (jax.vmap(jax.vmap(read)) if several else read)(batch.state)
        return np.asarray(found if several else found[None, None])[:tall, :wide]

    if done and project is not None:
        out[OUTSIDE] = of_each(lambda state: distance(project, output(state))).astype(np.float64)
    if done and "x" in options.keep:
        out["x"] = portable("x", of_each(output))
    return out
