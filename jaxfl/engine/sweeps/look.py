"""The plan and the progress of a sweep."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfl.core.progress import Bar, amount, duration, plural
from jaxfl.engine.sweeps.plan import Chunk, Program, rounds_of, work_of

__all__ = ["Look", "Plan", "Progress", "counted", "parts", "show", "words"]

PRIOR = 0.05  # share of a program's work at the common speed, beside what is measured of it


def counted(
    programs: Sequence[Program], todo: Sequence[Chunk], done: Sequence[bool]
) -> tuple[int, int]:
    """How many runs of these chunks are done, and how many are to continue shorter ones."""
    found = [0, 0]
    for chunk, ready in zip(todo, done, strict=True):
        if ready or programs[chunk.program].begun:
            found[not ready] += len(chunk.cells) * len(chunk.seeds)
    return found[0], found[1]


def parts(runs: int, finished: int, continued: int) -> str:
    """The runs that an extended sweep has, continues and adds, in words."""
    new = runs - finished - continued
    return f"{plural(finished, 'run')} done, {continued:,} to continue, {new:,} new"


class Plan(NamedTuple):
    """The plan of a sweep, before anything is compiled; chunks and bytes are estimated from shapes."""

    runs: int
    compilations: int  # that are left, as the programs are
    chunks: int
    done: int  # chunks finished by earlier calls
    bytes: int  # of the largest chunk that is left
    available: int
    disk: int  # bytes of the result in a folder, before compression, and of states that are kept
    states: int  # of them, from which runs continue when the sweep is extended by rounds
    finished: int  # runs of chunks that are done
    continued: int  # runs that begin where shorter ones of the folder end
    left: int  # runs, those to continue included
    evaluation: float  # share of the evaluations in the counted work that is left
    programs: tuple[str, ...]  # one line each
    time: Callable[[], float]  # compile and time the largest program: seconds that are left, about

    def __repr__(self) -> str:
        """What `jaxfl sweep --plan` prints."""
        states = f", {self.states / 2**20:,.1f} of them states from which runs continue"
        result = f"the result takes at most {max(self.disk / 2**20, 0.1):,.1f} MiB"
        result += states * (self.states > 0)
        if not self.left:
            return f"done: all {plural(self.runs, 'run')}; left: nothing\n{result}"
        chunks = plural(self.chunks - self.done, "chunk")
        continued = f" ({self.continued:,} to continue)" if self.continued else ""
        left = (
            f"{plural(self.left, 'run')}{continued} in "
            f"{plural(self.compilations, 'compilation')}, about "
            f"{chunks} of {self.bytes / 2**20:,.0f} MiB ({self.available / 2**20:,.0f} MiB are free)"
        )
        if self.done:
            left = f"done: {self.finished:,} of {plural(self.runs, 'run')}; left: {left}"
        lines = (
            left,
            f"evaluations (see eval_every) are about {self.evaluation:.0%} of the work; {result}",
        )
        return "\n".join((*lines, *self.programs))


class Progress(NamedTuple):
    """The progress of a sweep."""

    done: int  # rounds of all runs together, of this call
    total: int
    per_second: float  # nan before the first rounds
    seconds_left: float  # nan while programs are compiled
    best: float  # least training loss at any evaluated round so far, of earlier calls too
    where: str  # the run with that loss
    chunk: int = 0  # that is computed, from 1
    chunks: int = 0
    doing: str = ""  # what else than rounds takes time now, such as compiling


def words(now: Progress) -> str:
    """The chunk, the rate and the time left."""
    rate = "" if math.isnan(now.per_second) else f", {amount(now.per_second)} rounds/s"
    return f"chunk {now.chunk}/{now.chunks}{rate}, {duration(now.seconds_left)} left"


def show(bar: Bar, now: Progress) -> None:
    if now.doing:
        bar.doing(now.doing)
        return
    best = f"least loss {now.best:.5g} ({now.where})" if now.where else ""
    bar.update(now.done, now.total, words(now), best)


class Look:
    """Follows the losses of the chunks, and reports the progress.

    The time left is the counted work that is left, over the speed of its program so far; a program that
    has just begun, or has not, takes that of all.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        todo: Sequence[tuple[Chunk, int]],  # and the rounds between its evaluations
        seeds: Sequence[int],
        report: Callable[[Progress], None] | None,
    ) -> None:
        self.programs, self.seeds, self.callback, self.todo = programs, seeds, report, todo
        self.total = sum(self.size(c) * rounds_of(programs[c.program], c) for c, _ in todo)
        self.chunk, self.chunks = 0, len(todo)
        self.behind = 0  # rounds in finished chunks
        self.earlier = 0  # rounds of earlier calls in unfinished ones
        self.end = 0.0  # work that is left after the current chunk
        self.began = self.seen = time.perf_counter()
        self.best, self.where = math.inf, ""
        # the work of rounds and of evaluations, by program
        self.parts: dict[int, tuple[float, float]] = {}
        for chunk, every in todo:
            rounds, seen = self.parts.get(chunk.program, (0.0, 0.0))
            more = self.whole(chunk, every)
            self.parts[chunk.program] = rounds + more[0], seen + more[1]
        self.left = {program: sum(parts) for program, parts in self.parts.items()}
        self.work: dict[int, float] = defaultdict(float)  # that is done
        self.seconds: dict[int, float] = defaultdict(float)  # that it took
        self.now = Progress(self.total, self.total, math.nan, 0.0, math.inf, "")  # the last report

    def size(self, chunk: Chunk) -> int:
        return len(chunk.cells) * len(chunk.seeds)

    def looks(self, chunk: Chunk, first: bool) -> int:
        """How many runs are evaluated at one mark."""
        once = first and self.programs[chunk.program].once
        return len(chunk.seeds) if once else self.size(chunk)

    def whole(self, chunk: Chunk, every: int) -> tuple[float, float]:
        """The work of a chunk: rounds, and evaluations."""
        program = self.programs[chunk.program]
        each, T = work_of(program, chunk), rounds_of(program, chunk)
        size, marks = self.size(chunk), len(range(0, T, every or T))
        looks = self.looks(chunk, True) + size * marks
        return size * T * each.round, looks * each.evaluation

    def begin(self, chunk: Chunk, every: int, t: int = 0, work: float = 0.0) -> None:
        """Take a chunk that begins at round t, after so much work of earlier calls."""
        self.chunk += 1
        self.end = self.left[chunk.program] - sum(self.whole(chunk, every))
        self.left[chunk.program] -= work
        self.earlier += self.size(chunk) * t

    def at(self, chunk: Chunk, t: int, losses: Any, work: float, late: bool) -> bool:
        """Take what is ready: round t, the last losses, the work since the last look.

        Returns False if no run is finite any more.
        """
        finite = self.note(chunk, losses)
        self.passed(chunk.program, work)
        if late:
            self.report(self.behind + self.size(chunk) * t)
        return finite

    def finished(self, chunk: Chunk, losses: Any) -> None:
        """Take the losses of a finished chunk at all evaluated rounds."""
        self.note(chunk, losses)
        self.left[chunk.program] = self.end  # runs that were all lost have ended early
        self.behind += self.size(chunk) * rounds_of(self.programs[chunk.program], chunk)
        self.report(self.behind)

    def passed(self, program: int, work: float) -> None:
        """Add the work since the last look to that of its program."""
        now = time.perf_counter()
        self.seconds[program] += now - self.seen
        self.work[program] += work
        self.left[program] -= work
        self.seen = now

    def note(self, chunk: Chunk, losses: Any) -> bool:
        """Remember the least loss, of axes (seeds, cells[, rounds]); return False if none is finite."""
        values = np.asarray(losses)[: len(chunk.seeds), : len(chunk.cells)]
        finite = np.isfinite(values)
        if not finite.any():
            return False
        least = np.unravel_index(np.argmin(np.where(finite, values, np.inf)), values.shape)
        if values[least] < self.best:
            program = self.programs[chunk.program]
            cell = program.cells[chunk.cells[int(least[1])]]
            self.best = float(values[least])
            seed = self.seeds[program.seeds[chunk.seeds[int(least[0])]]]
            self.where = f"{program.algorithm.name} {cell.label.replace('|', ' ')} seed={seed}"
        return True

    def seconds_left(self) -> float:
        common = sum(self.seconds.values()) / max(sum(self.work.values()), 1.0)
        found = 0.0
        for p, left in self.left.items():
            known = PRIOR * sum(self.parts[p])
            pace = (self.seconds[p] + known * common) / max(self.work[p] + known, 1.0)
            found += max(0.0, left) * pace
        return found

    def report(self, done: int) -> None:
        new = done - self.earlier
        rate = new / max(time.perf_counter() - self.began, 1e-9) if new else math.nan
        left, best = self.seconds_left(), (self.best, self.where)
        self.now = Progress(done, self.total, rate, left, *best, self.chunk, self.chunks)
        if self.callback is not None:
            self.callback(self.now)
