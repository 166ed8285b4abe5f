"""Time a round by phase, and compare it with what the machine can do."""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfl.core.types import Algorithm, Array, Hyper, Key, Problem, State
from jaxfl.engine.functions import functions
from jaxfl.engine.loop import measure
from jaxfl.engine.memory import remembered
from jaxfl.engine.runs import device_name
from jaxfl.problems.identity import dtype

__all__ = ["Profile", "profile"]

TURNS = 5
SECONDS = 0.2  # of one timed call, about
SIDE = 2048  # of the matrices whose product sets the ceiling
COPIED = 1 << 25  # numbers


class Profile(NamedTuple):
    """Seconds, bytes and operations of one algorithm on one problem, medians of five turns.

    ``phases`` are differences between a round and its beginnings, compiled one by one; they add up
    to ``round``.  ``flops`` and ``bytes`` are the compiler's count, which counts a loop over blocks of
    clients once.
    """

    device: str
    trace: float  # seconds, of the round
    compile: float
    round: float
    evaluation: float
    phases: dict[str, float]
    flops: float
    bytes: float
    scratch: int  # bytes beside state and data
    memory: dict[str, int]  # bytes of the state, by part
    data: int  # bytes
    matmul: float  # operations per second of a large matrix product
    copy: float  # bytes per second, read and written

    @property
    def of_matmul(self) -> float:
        """Arithmetic of a round as a share of that of the matrix product."""
        return self.flops / self.round / self.matmul

    @property
    def of_copy(self) -> float:
        """Traffic of a round as a share of that of the copy."""
        return self.bytes / self.round / self.copy

    def __repr__(self) -> str:
        return (
            f"Profile(round {self.round:.3g} s, evaluation {self.evaluation:.3g} s, compile "
            f"{self.compile:.3g} s, {self.of_matmul:.0%} of a matrix product, {self.device})"
        )


def profile(
    algorithm: Algorithm | str,
    problem: Problem,
    key: Key,
    rounds: int = 100,
    *,
    noise: str = "calibrated",
    **numbers: Any,
) -> Profile:
    """Compile and time a round, its phases and an evaluation, with the hyper-parameters of such a run."""
    f = functions(algorithm, problem, rounds, noise=noise, **numbers)
    algorithm, read, hp = f.algorithm, f.problem, f.hp
    key, state = f.init(key)

    with _uncached():
        began = time.perf_counter()
        lowered = jax.jit(algorithm.round).lower(key, state, read, hp)
        traced = time.perf_counter()
        compiled = lowered.compile()
        done = time.perf_counter()
    cost = compiled.cost_analysis() or {}
    taken = compiled.memory_analysis()

    def rounds_of(state: State, stop: Array, problem: Problem, hp: Hyper) -> State:
        # counts are dropped: their array would be as long as the longest call
        end: State = jax.lax.fori_loop(
            state.t, stop, lambda t, s: algorithm.round(key, s, problem, hp)[0], state
        )
        return end

    body = algorithm.body
    parts = {} if body is None else body.beginnings()
    calls = {name: looped(part, key) for name, part in parts.items()} | {"round": rounds_of}
    times = per_round({name: jax.jit(f) for name, f in calls.items()}, state, read, hp)
    evaluate = jax.jit(lambda state, problem: measure(algorithm, (), state, problem))
    (evaluation,) = timed([lambda: evaluate(state, problem)])
    matmul, copy = ceilings(dtype(problem))

    phases, before = {}, 0.0
    for name in parts:
        reached = min(max(before, times[name]), times["round"])
        phases[name], before = reached - before, reached
    phases["messages and server" if parts else "whole"] = times["round"] - before
    (device, *_) = sorted(problem.count.devices(), key=lambda d: d.id)
    return Profile(
        device=device_name(device),
        trace=traced - began,
        compile=done - traced,
        round=times["round"],
        evaluation=evaluation,
        phases=phases,
        flops=float(cost.get("flops", 0.0)),
        bytes=float(cost.get("bytes accessed", 0.0)),
        scratch=int(taken.temp_size_in_bytes) if taken is not None else 0,
        memory=remembered(algorithm, problem, hp),
        data=sum(a.nbytes for a in jax.tree.leaves(problem)),
        matmul=matmul,
        copy=copy,
    )


def looped(part: Callable[..., Array], key: Key) -> Callable[..., Array]:
    """Run ``part`` in the rounds from the state's to ``stop``."""

    def run(state: State, stop: Array, problem: Problem, hp: Hyper) -> Array:
        def body(t: Array, total: Array) -> Array:
            # round and model depend on the total, so that nothing can be moved out of the loop
            never = total != total
            model = jax.tree.map(lambda a: a + never.astype(a.dtype), state.server)
            now = state._replace(t=t + never.astype(t.dtype), server=model)
            return total + part(key, now, problem, hp)

        end: Array = jax.lax.fori_loop(state.t, stop, body, jnp.float32(0))
        return end

    return run


@contextlib.contextmanager
def _uncached() -> Iterator[None]:
    """Compile without the persistent cache."""
    before = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)


# --- timing --------------------------------------------------------------------------------------


def per_round(
    calls: dict[str, Callable[..., Any]], state: State, problem: Problem, hp: Hyper
) -> dict[str, float]:
    """Seconds per round of each call, measured in turns."""
    runs: list[Callable[[], Any]] = []
    lengths: list[int] = []
    for f in calls.values():
        once = functools.partial(f, state, state.t + 1, problem, hp)
        timed([once], turns=1)  # compiled now
        (seconds,) = timed([once], turns=1)
        lengths.append(max(1, min(10_000, int(SECONDS / max(seconds, 1e-6)))))
        runs.append(functools.partial(f, state, state.t + lengths[-1], problem, hp))
    found = timed(runs)
    return {name: s / n for name, s, n in zip(calls, found, lengths, strict=True)}


def timed(calls: Sequence[Callable[[], Any]], turns: int = TURNS) -> list[float]:
    """Median seconds of each call, measured in turns after a first call that may compile."""
    for call in calls:
        jax.block_until_ready(call())
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(turns):
        for call, row in zip(calls, seconds, strict=True):
            began = time.perf_counter()
            jax.block_until_ready(call())
            row.append(time.perf_counter() - began)
    return [statistics.median(row) for row in seconds]


def ceilings(kind: Any) -> tuple[float, float]:
    """Operations per second of a matrix product, and bytes per second of a copy."""
    a, b = jnp.ones((SIDE, SIDE), kind), jnp.ones(COPIED, kind)
    dot, move = jax.jit(jnp.matmul), jax.jit(lambda a: a + 1)
    product, copy = timed([lambda: dot(a, a), lambda: move(b)])
    return 2.0 * SIDE**3 / product, 2.0 * b.nbytes / copy
