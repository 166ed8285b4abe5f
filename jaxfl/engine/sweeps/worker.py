"""Compute one chunk for a driver elsewhere: the function that executors call on workers.

Its arguments and results are texts, numbers, bytes and arrays, so that releases are compared before
anything of this package is unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import pickle
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxfl.core.errors import InputError, one_line
from jaxfl.core.types import Problem
from jaxfl.core.version import __version__
from jaxfl.data.samples import measured
from jaxfl.engine.log import Log
from jaxfl.engine.loop import Extra
from jaxfl.engine.sweeps import engine
from jaxfl.engine.sweeps.compute import ChunkRuns, Saves, compute
from jaxfl.engine.sweeps.fit import Compiler, budget, fitted, halved, pace
from jaxfl.engine.sweeps.grid import Grid
from jaxfl.engine.sweeps.look import Look
from jaxfl.engine.sweeps.placement import placement
from jaxfl.engine.sweeps.plan import Chunk, Program
from jaxfl.engine.sweeps.store import Arrays, Store, pack, unpack

__all__ = ["SETTINGS", "Content", "chunk", "release", "use_share"]

# Settings of JAX on which draws and precision depend; each is a context of the same name, too.
SETTINGS = (
    "enable_x64",
    "threefry_partitionable",
    "default_prng_impl",
    "default_matmul_precision",
    "numpy_dtype_promotion",
)
FULL = "RESOURCE_EXHAUSTED"  # of a device's memory, while rounds run
START = 10.0  # seconds that a new worker has taken to start, about
SPEED = 1e8  # bytes per second of a slow network

Source = Callable[[], bytes]  # of what tasks share


class Content(NamedTuple):
    """What all tasks of a sweep share, beside the data of their problems."""

    programs: list[Program]  # positions in place of the arrays of their problems
    keys: Any  # one of each seed, stacked
    seeds: tuple[int, ...]
    extra: Extra
    eval_every: int | None
    paired: bool
    settings: dict[str, Any]


class _Held:
    """What this process keeps between chunks, so that compiled programs and placed data stay."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # an engine may run several tasks in one process
        self.share = 1.0  # of the free memory
        self.available: dict[int | None, int] = {}  # bytes, by those that were asked for
        self.content: tuple[str, Any] = ("", None)  # by digest
        self.data: tuple[str, Any] = ("", None)
        self.program: tuple[Any, Any] = (None, None)
        self.placed: tuple[Any, Any] = (None, None)


_held = _Held()


def use_share(share: float) -> None:
    """Let this process use a share of the machine's free memory, and leave the rest to others."""
    _held.share = share


def release() -> str:
    """The versions that must be those of the driver."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"jaxfl {__version__}, JAX {jax.__version__} and Python {python}"


def chunk(
    expected: str,
    attempt: int,
    task: Mapping[str, Any],
    digests: tuple[str, str],
    content: Source,
    data: Source,
) -> dict[str, Any]:
    """Compute the arrays of a chunk, or only time it.  A long chunk ends early, with a checkpoint.

    ``expected`` is the driver's release, and ``attempt`` tells apart calls that an engine might take
    for equal.  The reply has the worker's ``release`` if that is another, a ``mistake`` of the user,
    the ``reason`` why it has failed here, the ``arrays``, or a ``checkpoint`` to go on from.
    """
    if release() != expected:
        return {"release": release()}
    try:
        with _held.lock:
            return _chunk(task, digests, content, data)
    except InputError as error:
        return {"mistake": str(error)}
    except Exception as error:
        return {"reason": one_line(error)}


def _chunk(
    task: Mapping[str, Any], digests: tuple[str, str], content: Source, data: Source
) -> dict[str, Any]:
    began = time.perf_counter()
    devices = jax.local_devices()
    if task["memory"] not in _held.available:  # before anything is placed
        _held.available[task["memory"]] = int(
            budget(task["memory"], devices) * (1.0 if task["memory"] else _held.share)
        )
    shared: Content = _kept("content", digests[0], content)
    with _settings(shared.settings):
        leaves = _kept("data", digests[1], data)
        number = task["program"]
        if _held.program[0] != (digests, number):
            stripped = shared.programs[number]
            problem: Problem = jax.tree.map(lambda i: leaves[i], stripped.problem)
            _held.program = (digests, number), stripped._replace(problem=measured(problem))
        program: Program = _held.program[1]
        here = Chunk(number, *map(tuple, task["chunk"]))
        available = _held.available[task["memory"]]
        grid = Grid((), (), shared.seeds, ())
        compiler = Compiler(
            grid, shared.extra, shared.eval_every, shared.paired, devices, available, lambda _: None
        )
        run = fitted(compiler, program, tuple(task["shape"]))
        if run.bytes > available:
            return {"reason": compiler.too_large(program, run)}
        reply: dict[str, Any] = {"worker": f"{platform.node()} {os.getpid()}"}
        if task.get("time"):
            timed = pace(program, here, run, shared.keys, shared.paired)
            parts = placement(program.problem, devices).parts
            found = (devices[0].platform, parts, available, *timed)
            return {**reply, "pace": found}
        turn = Turn(here, task, began - (_held.placed[0] is None) * START)
        try:
            done = _computed(compiler, shared, program, here, run, task["every"], turn)
        except Paused:
            return {**reply, "checkpoint": turn.packed()}
    return {**reply, **done, "seconds": time.perf_counter() - began}


class Paused(Exception):
    """It is time for a checkpoint."""


class Turn(Saves):
    """One of the calls that a long chunk takes: from a checkpoint, until the next one is due.

    What comes with each call takes at most a share of its time: to begin, and to send the state twice.
    """

    def __init__(self, whole: Chunk, task: Mapping[str, Any], began: float) -> None:
        super().__init__(Store(None))
        self.whole, self.owner, self.began = whole, task["owner"], began
        self.before: bytes | None = task["checkpoint"]
        self.pause, self.until = task["pause"], math.inf

    def begin(self, index: int, program: Program, chunk: Chunk, run: engine.Compiled) -> ChunkRuns:
        where, saved = run.shardings[1], None
        if self.before is not None:
            saved = unpack(self.before, self.owner, self.whole, chunk, run.state, where)
        self.runs = ChunkRuns(*saved) if saved else ChunkRuns(engine.blank(run), Log())
        self.until = math.inf
        if self.pause is not None and chunk == self.whole:  # pieces have no common round
            seconds, share = self.pause
            now = time.perf_counter()
            nbytes = sum(math.prod(a.shape) * a.dtype.itemsize for a in jax.tree.leaves(run.state))
            spent = now - self.began + 2 * nbytes / SPEED
            self.until = now + max(seconds, spent / share)
        return self.runs

    def due(self) -> bool:
        if time.perf_counter() >= self.until:
            raise Paused
        return False

    def packed(self) -> bytes:
        return pack(self.runs, self.owner)


def _computed(
    compiler: Compiler,
    shared: Content,
    program: Program,
    whole: Chunk,
    run: engine.Compiled,
    every: int,
    turn: Turn,
) -> dict[str, Any]:
    """The chunk's arrays, computed in pieces that fit; the shape of the pieces."""
    programs = [*shared.programs]
    programs[whole.program] = program
    while True:
        if _held.placed[0] != (id(program), run.shardings[7]):
            _held.placed = (id(program), run.shardings[7]), engine.placed_problem(program, run)
        try:
            rows = []
            for seeds in _split(whole.seeds, run.shape[0]):
                row = []
                for cells in _split(whole.cells, run.shape[1]):
                    piece = Chunk(whole.program, cells, seeds)
                    look = Look(programs, [(piece, every)], shared.seeds, None)
                    given = engine.inputs(program, piece, run, shared.keys, shared.paired)
                    placed = _held.placed[1]
                    row.append(compute(program, 0, piece, run, given, placed, every, look, turn))
                rows.append(_joined(row, axis=1))
            return {"arrays": _joined(rows, axis=0), "shape": run.shape}
        except jax.errors.JaxRuntimeError as error:
            smaller = halved(run.shape, placement(program.problem, compiler.devices).parts)
            if FULL not in str(error) or smaller == run.shape:
                raise
            run = fitted(compiler, program, smaller)


def _split(positions: tuple[int, ...], most: int) -> list[tuple[int, ...]]:
    return [positions[i : i + most] for i in range(0, len(positions), most)]


def _joined(pieces: list[Arrays], axis: int) -> Arrays:
    """Arrays of axes (seeds, cells, ...), one after the other; those of one axis are the same in all."""
    first = pieces[0]
    return {
        name: np.concatenate([piece[name] for piece in pieces], axis) if a.ndim > 1 else a
        for name, a in first.items()
    }


def _kept(name: str, digest: str, source: Source) -> Any:
    """What ``source`` has pickled, unpickled once."""
    if getattr(_held, name)[0] != digest:
        _held.program = _held.placed = (None, None)  # before the next one takes memory
        setattr(_held, name, ("", None))
        content = source()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("what was sent to this worker arrived damaged")
        setattr(_held, name, (digest, pickle.loads(content)))
    return getattr(_held, name)[1]


@contextlib.contextmanager
def _settings(values: Mapping[str, Any]) -> Iterator[None]:
    """The driver's settings of JAX."""
    with contextlib.ExitStack() as stack:
        for name in SETTINGS:
            if getattr(jax.config, f"jax_{name}") != values[name]:
                stack.enter_context(getattr(jax, name)(values[name]))
        yield
