"""Compute one chunk, from its first round to its last."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp

from jaxfl.core.types import Info, State
from jaxfl.engine.log import Log
from jaxfl.engine.loop import Loop, Work, rounds_of_call
from jaxfl.engine.sweeps import engine
from jaxfl.engine.sweeps.gather import finish
from jaxfl.engine.sweeps.look import Look
from jaxfl.engine.sweeps.plan import Chunk, Program, rounds_of, work_of
from jaxfl.engine.sweeps.store import Arrays

__all__ = ["compute"]


@dataclasses.dataclass
class Runs:
    """The runs of a chunk."""

    state: State
    log: Log


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

    def step(
        state: State, first: bool, start: int, stop: int, seen: bool
    ) -> tuple[State, Info, Any]:
        flags = jnp.bool_(first), jnp.int32(start), jnp.int32(stop), jnp.bool_(seen)
        state, counts, metrics = run.call(keys, state, hp, *flags, problem)
        return state, counts, metrics if seen else None

    work = Work(size * each.round, size * each.evaluation)
    most = rounds_of_call(each.round * run.shape[0] * run.shape[1])
    runs = Runs(engine.blank(run), Log())
    loop = Loop(step, runs, T, every, work, most)
    look.begin(chunk, every)
    loop.begin()
    loop.unread = look.looks(chunk, True) * each.evaluation
    for ready in loop.calls():
        if ready is not None and not look.at(chunk, *ready):
            break  # no run is finite any more
    arrays = finish(chunk, [*range(0, T, every or T), T], runs.log)
    look.passed(chunk.program, loop.unread)
    return arrays
