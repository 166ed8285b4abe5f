"""The plan and the progress of runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfl.core.progress import Bar, amount, duration, plural
from jaxfl.engine.callbacks import Watch
from jaxfl.engine.checkpoint import Batch
from jaxfl.engine.compute import Follower, Ready, finish
from jaxfl.engine.grid import Grid
from jaxfl.engine.plan import Chunk, Program, number_of_looks, work_of
from jaxfl.engine.planned import Planned
from jaxfl.engine.store import Arrays

__all__ = ["Plan", "Progress", "Tracker", "line", "show", "work"]


class Plan(NamedTuple):
    """The plan of a call, before anything is compiled; bytes are estimated from shapes."""

    runs: int
    programs: tuple[str, ...]  # that are left, one line each
    chunks: int  # that are left
    bytes: int  # of the largest chunk that is left
    available: int
    disk: int  # bytes of the result in a folder, before compression, and of states that are kept
    states: int  # of them, from which runs continue when they are extended by rounds
    finished: int  # runs of chunks that are done
    continued: int  # runs that begin where shorter ones of the folder end
    again: int  # runs that begin again, with the key of a shorter one: no eps holds for both
    left: int  # runs, those to continue included
    evaluation: float  # share of the evaluations in the counted work that is left
    each: float  # times this work, if each round were evaluated
    half: (
        int | None
    )  # eval_every with which evaluations take half or less; None: they do, or none does

    def __repr__(self) -> str:
        """The text that `--plan` prints."""
        states = f", {self.states / 2**20:,.1f} of them states from which runs continue"
        result = f"the result takes at most {max(self.disk / 2**20, 0.1):,.1f} MiB"
        result += states * (self.states > 0)
        if not self.left:
            return f"done: all {plural(self.runs, 'run')}; left: nothing\n{result}"
        kinds = {"to continue": self.continued, "to begin again": self.again}
        parts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
        continued = f" ({parts})" * bool(parts)
        left = (
            f"{plural(self.left, 'run')}{continued} in "
            f"{plural(len(self.programs), 'compilation')}, about {plural(self.chunks, 'chunk')} of "
            f"{self.bytes / 2**20:,.0f} MiB ({self.available / 2**20:,.0f} MiB are free)"
        )
        if self.finished:
            left = f"done: {self.finished:,} of {plural(self.runs, 'run')}; left: {left}"
        fresh = self.half and not self.finished and not self.continued  # others keep their rounds
        way = f"half or less with eval_every={self.half}" if fresh else "see eval_every"
        share = f"evaluations are about {self.evaluation:.0%} of the work ({way})"
        share += f"; one in each round makes it {self.each:.2g} times as much" * (self.each > 1.05)
        return "\n".join((left, f"{share}; {result}", *self.programs))


class Progress(NamedTuple):
    """The progress of a call."""

    done: int  # rounds of all runs together
    total: int
    per_second: float  # nan before the first rounds
    seconds_left: float  # nan before the first rounds
    loss: float  # of a single run at its last evaluation, of several the least so far
    where: str = ""  # the run with that loss, of several
    chunk: int = 0  # that is computed, from 1
    chunks: int = 0
    doing: str = ""  # what else than rounds takes time now, such as compiling
    runs: int = 1  # whose rounds these are


def show(bar: Bar, now: Progress) -> None:
    """Draw the progress on a bar."""
    if now.doing:
        bar.doing(now.doing)
        return
    rate = "" if math.isnan(now.per_second) else f"{amount(now.per_second)} rounds/s"
    left = "" if math.isnan(now.seconds_left) else f"{duration(now.seconds_left)} left"
    runs = f"{now.runs:,} runs together" if now.runs > 1 else ""
    part = f"chunk {now.chunk}/{now.chunks}" if now.chunks > 1 else ""
    loss = "" if now.where or math.isnan(now.loss) else f"loss {now.loss:.5g}"
    best = f"least loss {now.loss:.5g} ({now.where})" if now.where else ""
    bar.update(now.done, now.total, ", ".join(filter(None, (runs, part, rate, loss, left))), best)


def work(program: Program, chunk: Chunk) -> tuple[float, float]:
    """The multiplications of a chunk: rounds, and evaluations."""
    each, T = work_of(program, chunk), program.cells[chunk.cells[0]].rounds
    first = 0 if chunk.after else len(chunk.seeds) if program.once else chunk.runs
    later = number_of_looks(program, chunk) - 1 - chunk.after // (chunk.every or T)
    seen = first + chunk.runs * later
    return chunk.runs * (T - chunk.after) * each.round, seen * each.evaluation


def line(program: Program, grid: Grid, seeds: int, runs: int) -> str:
    """A program in words."""
    study = grid.studies[program.study]
    axes = "".join(  # parts and data, by which programs differ
        f", {axis.name.replace('_', ' ')} {label if isinstance(label, str) else f'{label:g}'}"
        for axis, label in (
            (axis, axis.labels[i]) for axis, i in zip(grid.static, study.place, strict=True)
        )
        if axis.name != "algorithm" and len(axis.values) > 1
    )
    for name, _ in program.caps:  # and those that have other shapes
        own, every = (
            {float(cell.values[name]) for cell in some if name in cell.values}
            for some in (program.cells, study.cells)
        )
        if own != every and own:
            axes += f", {name} " + " to ".join(f"{v:g}" for v in sorted({min(own), max(own)}))
    return (
        f"{program.algorithm.name} on {program.problem.name}{axes}, "
        f"{plural(len(program.cells), 'setting')} x {plural(seeds, 'seed')}: {runs} runs at once"
    )


class Tracker(Follower):
    """Follows the losses of chunks: reports the progress, and hands evaluations to callbacks.

    The time left is the counted work that is left over the speed so far.
    """

    def __init__(
        self,
        found: Planned,
        todo: Sequence[int],
        callback: Callable[[Progress], None] | None,
        watch: Watch,
    ) -> None:
        self.found, self.todo, self.callback, self.watch = found, list(todo), callback, watch
        self.alone, self.chunks = watch.alone, found.chunks
        self.total = sum(self.chunks[n].runs * self._rounds(n) for n in todo)
        self.left = sum(sum(self._work(n)) for n in todo)
        self.at: dict[int, int] = {}  # the rounds that chunks have reached
        self.done = 0  # rounds of all runs together
        self.new, self.work = 0, 0.0  # rounds and work of this call,
        self.seconds = 0.0  # and their time
        self.since = time.perf_counter()
        self.loss, self.where = math.nan, ""

    def _program(self, number: int) -> Program:
        return self.found.programs[self.chunks[number].program]

    def _rounds(self, number: int) -> int:
        return self._program(number).cells[self.chunks[number].cells[0]].rounds

    def _work(self, number: int) -> tuple[float, float]:
        return work(self._program(number), self.chunks[number])

    def _reach(self, number: int, t: int, here: bool = True) -> None:
        """Take a chunk that has reached round t: ``here``, or in an earlier call."""
        now, new = time.perf_counter(), t - self.at.get(number, 0)
        work = sum(self._work(number)) * new / self._rounds(number)
        rounds = self.chunks[number].runs * new
        self.at[number], self.done, self.left = t, self.done + rounds, self.left - work
        if here:
            self.new, self.work = self.new + rounds, self.work + work
            self.seconds += now - self.since
        self.since = now

    def divided(self, number: int, halves: Mapping[int, Chunk]) -> None:
        """Take the halves of a chunk in its place."""
        if number in self.at:
            self._reach(number, 0, here=False)
            del self.at[number]
        at = self.todo.index(number)
        self.todo[at : at + 1] = halves

    def compiling(self, number: int) -> None:
        runs, seeds = math.prod(self.chunks[number].shape), len(self.found.keys)
        what = line(self._program(number), self.found.grid, seeds, runs)
        self.report("compiling" if self.alone else f"compiling {what}")

    def begin(self, number: int, t: int) -> None:
        self._reach(number, t, here=False)

    def ready(self, number: int, now: Ready, batch: Batch) -> None:
        self._note(number, now.loss)
        self._reach(number, now.round)
        if self.watch.functions:
            batch.log.read(now.round)
            if batch.log.content.past:
                chunk, program = self.chunks[number], self._program(number)
                self.watch.read(chunk, finish(program, chunk, batch, self.found.options, False))
        if now.late:
            self.report()

    def finished(self, number: int, arrays: Arrays) -> None:
        """Take the arrays of a chunk that was computed here, by a worker or by an earlier call."""
        self._note(number, arrays["loss"])
        if number in self.todo:
            self._reach(number, self._rounds(number))
            self.report()
        if self.watch.functions:
            self.watch.finished(self.chunks[number], arrays)

    def report(self, doing: str = "") -> None:
        """Report the progress, and what else than rounds takes time now."""
        if self.callback is None:
            return
        rate = self.new / self.seconds if self.new > 0 and self.seconds > 0 else math.nan
        left = max(0.0, self.left) * self.seconds / self.work if self.work > 0 else math.nan
        left = left if self.done < self.total else 0.0
        place = min(len(self.at), len(self.todo)), len(self.todo)
        now = self.done, self.total, rate, left, self.loss, self.where, *place
        self.callback(Progress(*now, doing, sum(self.chunks[n].runs for n in self.todo)))

    def _note(self, number: int, losses: Any) -> None:
        """Remember the last loss of a run, or the least of several; axes (seeds, cells[, rounds])."""
        chunk, grid = self.chunks[number], self.found.grid
        values = np.asarray(losses)[: len(chunk.seeds), : len(chunk.cells)]
        if self.alone:
            self.loss = float(np.ravel(values)[-1])
            return
        values = np.where(np.isfinite(values), values, np.inf)
        if np.isinf(values.min()) or values.min() >= self.loss:
            return
        i, j, *_ = np.unravel_index(np.argmin(values), values.shape)
        program, seed = self._program(number), grid.seeds[chunk.seeds[int(i)]]
        label = program.cells[chunk.cells[int(j)]].label.replace("|", " ")
        self.loss = float(values.min())
        self.where = f"{program.algorithm.name} {label} seed={seed}"
