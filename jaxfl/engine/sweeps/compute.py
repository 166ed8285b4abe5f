"""Compute one chunk, from its first round to its last."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.core.types import Info
from jaxfl.engine.loop import rounds_of_call
from jaxfl.engine.sweeps import engine
from jaxfl.engine.sweeps.gather import finish
from jaxfl.engine.sweeps.look import Look
from jaxfl.engine.sweeps.plan import Chunk, Program, rounds_of, work_of
from jaxfl.engine.sweeps.store import Arrays

__all__ = ["compute"]

HALVES = np.array([1 << 16, 1])  # weights of the upper and the lower bits of a count
PENDING = 64  # calls whose results stay on the device, so that it does not wait for the host


def compute(
    program: Program,
    chunk: Chunk,
    run: engine.Compiled,
    given: Any,
    problem: Any,
    every: int,
    look: Look,
) -> Arrays:
    """All rounds of a chunk, evaluated at the cadence; ``given`` are its keys and hyper-parameters."""
    keys, hp = given
    T, each, size = rounds_of(program, chunk), work_of(program, chunk), look.size(chunk)
    most = rounds_of_call(each.round * run.shape[0] * run.shape[1], run.length)
    marks = [*range(0, T, every or T), T]
    state, series = engine.blank(run), Series()
    first, t, lost = True, 0, False
    before: Any = None  # a call is looked at one call later, while the device is busy
    look.begin(chunk, every)
    for mark in marks:
        while not lost and (first or t < mark):
            end = min(mark, t + most)
            seen = end == mark
            state, counts, measured = run.call(
                keys,
                state,
                hp,
                jnp.bool_(first),
                jnp.int32(t),
                jnp.int32(end),
                jnp.bool_(seen),
                problem,
            )
            series.add(counts, measured if seen else None)
            if before is not None:
                lost = look.at(chunk, *before)  # no run is finite any more
            work = size * (end - t) * each.round
            work += seen * look.looks(chunk, first) * each.evaluation
            before = end, work, (counts, measured["loss"] if seen else None)
            first, t = False, end
        if lost:
            break
    look.unread += before[1]
    series.read()
    return finish(program, chunk, marks, series.metrics, series.totals)


class Series:
    """Metrics at the evaluated rounds, and exact sums of the counts up to each of them."""

    def __init__(self) -> None:
        self.pending: list[tuple[Info, dict[str, Any] | None]] = []
        self.sums: list[npt.NDArray[np.int64] | int] = [0] * len(Info._fields)
        self.metrics: list[dict[str, npt.NDArray[Any]]] = []
        self.totals: list[list[Any]] = []

    def add(self, counts: Info, metrics: dict[str, Any] | None) -> None:
        self.pending.append((counts, metrics))
        if len(self.pending) >= PENDING:
            self.read()

    def read(self) -> None:
        for counts, metrics in self.pending:
            new = (np.asarray(a, np.int64) @ HALVES for a in counts)
            self.sums = [s + a for s, a in zip(self.sums, new, strict=True)]
            if metrics is not None:
                self.metrics.append({name: np.array(a) for name, a in metrics.items()})
                self.totals.append(self.sums)
        self.pending = []
