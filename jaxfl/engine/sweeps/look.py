"""The plan and the progress of a sweep."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfl.core.progress import Bar
from jaxfl.engine.sweeps.plan import Chunk, Program

__all__ = ["Look", "Plan", "Progress", "show", "words"]

SECONDS = 0.2  # between reports
OFTEN = 8  # most evaluations between reads of the loss, each of which waits for the device


class Plan(NamedTuple):
    """The plan of a sweep."""

    runs: int
    compilations: int
    compile_seconds: float
    chunks: int
    done: int  # chunks finished by earlier calls
    bytes: int  # of the largest chunk
    available: int
    programs: tuple[str, ...]  # one line each


class Progress(NamedTuple):
    """The progress of a sweep."""

    done: int  # rounds of all runs together, of this call
    total: int
    per_second: float
    seconds_left: float
    best: float  # least training loss at any evaluated round so far, of earlier calls too
    where: str  # the run with that loss


def words(now: Progress) -> str:
    """The rate, the time left, and the best run so far."""
    left = f", {_time(now.seconds_left)} left" if now.done else ""
    best = f", least loss {now.best:.5g} ({now.where})" if now.where else ""
    return f"{now.per_second:,.0f} cell-rounds/s{left}{best}"


def show(bar: Bar, now: Progress) -> None:
    bar.update(now.done, now.total, words(now), "cell-round")


class Look:
    """Follows the losses of the chunks, and reports the progress."""

    def __init__(
        self,
        programs: Sequence[Program],
        todo: Sequence[Chunk],
        seeds: Sequence[int],
        report: Callable[[Progress], None] | None,
    ) -> None:
        self.programs, self.seeds, self.callback = programs, seeds, report
        self.total = sum(self.size(chunk) * self.rounds(chunk) for chunk in todo)
        self.behind = 0  # rounds in finished chunks
        self.began = self.reported = time.perf_counter()
        self.best, self.where = math.inf, ""
        self.unseen = 0  # evaluations since the last look

    def size(self, chunk: Chunk) -> int:
        return len(chunk.cells) * len(chunk.seeds)

    def rounds(self, chunk: Chunk) -> int:
        return self.programs[chunk.program].cells[chunk.cells[0]].facts.rounds or 1

    def at(self, chunk: Chunk, t: int, loss: Any) -> bool:
        """Take the losses at round t of a chunk; return True if no run is finite any more."""
        self.unseen += 1
        late = time.perf_counter() - self.reported >= SECONDS
        if not late and self.unseen < OFTEN:
            return False
        self.unseen = 0
        lost = not self.note(chunk, loss)
        if late:
            self.report(self.behind + self.size(chunk) * t)
        return lost

    def finished(self, chunk: Chunk, losses: Any) -> None:
        """Take the losses of a finished chunk at all evaluated rounds."""
        self.note(chunk, losses)
        self.behind += self.size(chunk) * self.rounds(chunk)
        self.report(self.behind)

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
            seed = self.seeds[chunk.seeds[int(least[0])]]
            self.where = f"{program.algorithm.name} {cell.label.replace('|', ' ')} seed={seed}"
        return True

    def report(self, done: int) -> None:
        if self.callback is None:
            return
        self.reported = time.perf_counter()
        rate = done / max(self.reported - self.began, 1e-9)
        left = (self.total - done) / max(rate, 1e-9)
        self.callback(Progress(done, self.total, rate, left, self.best, self.where))


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
