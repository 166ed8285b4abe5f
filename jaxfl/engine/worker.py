"""Compute one chunk for a driver elsewhere: the function that executors call on workers.

Its arguments and results are texts, numbers, bytes and arrays: releases are compared before anything of
this package is unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import pickle
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax

from jaxfl.core.errors import InputError, one_line
from jaxfl.core.version import __version__
from jaxfl.data.samples import measured
from jaxfl.engine import checkpoint
from jaxfl.engine.checkpoint import Batch
from jaxfl.engine.compute import Follower, Machine, Saves, TooLarge
from jaxfl.engine.plan import Chunk, Options, Program
from jaxfl.engine.program import Compiled
from jaxfl.engine.store import Store, pack, unpack

__all__ = ["SETTINGS", "Content", "chunk", "release", "use_share"]

# Settings of JAX on which draws and precision depend; each is a context of the same name, too.
SETTINGS = (
    "enable_x64",
    "threefry_partitionable",
    "default_prng_impl",
    "default_matmul_precision",
    "numpy_dtype_promotion",
)
START = 10.0  # seconds that a new worker has taken to start, about
SPEED = 1e8  # bytes per second of a slow network
SOON, LATE = (
    0.3,
    1.25,
)  # a chunk is halved before this share of it, if it takes so many times its time

Source = Callable[[], bytes]  # of what tasks share


class Content(NamedTuple):
    """What all tasks share, the data of their problems left out."""

    programs: list[Program]  # positions in place of the arrays of their problems
    keys: Any  # one of each seed, stacked
    options: Options
    settings: dict[str, Any]


class _Held:
    """What this process keeps between chunks: compiled programs and placed data stay."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # an engine may run several tasks in one process
        self.share = 1.0  # of the free memory
        self.machines: dict[int | None, Machine] = {}  # by the memory that was asked for
        self.content: tuple[str, Any] = ("", None)  # by digest
        self.data: tuple[str, Any] = ("", None)
        self.program: tuple[Any, Any] = (None, None)


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
    """Compute the arrays of a chunk.  A long chunk ends early, with a checkpoint.

    ``expected`` is the driver's release, and ``attempt`` tells apart calls that an engine might take
    for equal.  The reply has the worker's ``release`` if that is another, a ``mistake`` of the user,
    the ``reason`` why it has failed here, that it is ``large``, the ``arrays``, or a ``checkpoint`` to
    go on from.
    """
    if release() != expected:
        return {"release": release()}
    try:
        with _held.lock:
            return _chunk(task, digests, content, data)
    except TooLarge as error:
        return {"large": str(error), "parts": len(jax.local_devices())}
    except InputError as error:
        return {"mistake": str(error)}
    except Exception as error:
        return {"reason": one_line(error)}


def _chunk(
    task: Mapping[str, Any], digests: tuple[str, str], content: Source, data: Source
) -> dict[str, Any]:
    began = time.perf_counter()
    first = task["memory"] not in _held.machines
    if first:  # before anything is placed
        machine = Machine(jax.local_devices(), task["memory"], _held.share)
        _held.machines[task["memory"]] = machine
    shared: Content = _kept("content", digests[0], content)
    with _settings(shared.settings):
        leaves = _kept("data", digests[1], data)
        here = Chunk(*task["chunk"])
        if _held.program[0] != (digests, here.program):
            bare = shared.programs[here.program]
            problem, held = jax.tree.map(lambda i: leaves[i], (bare.problem, bare.held))
            problem = measured(problem)
            _held.program = (digests, here.program), bare._replace(problem=problem, held=held)
        program: Program = _held.program[1]
        turn = Turn(here, task, began - first * START)
        machine = _held.machines[task["memory"]]
        number, keys, options = task["number"], shared.keys, shared.options
        try:
            done = machine.compute(program, number, here, keys, options, turn, Follower())
        except Paused:
            return {"checkpoint": turn.packed()}
    state = {"state": turn.packed()} if task["keep"] else {}
    return {"arrays": done, **state, "compile_seconds": machine.compile_seconds}


class Paused(Exception):
    """It is time for a checkpoint."""


class Turn(Saves):
    """One of the calls that a long chunk takes: from a checkpoint, until the next one is due.

    What comes with each call takes at most a share of its time: to begin, and to send the state twice.
    """

    def __init__(self, whole: Chunk, task: Mapping[str, Any], began: float) -> None:
        super().__init__(Store(None))
        self.store.keep = False
        self.whole, self.owner, self.began = whole, task["owner"], began
        self.before: bytes | None = task["checkpoint"]
        self.pause, self.until, self.longest = task["pause"], math.inf, task["seconds"]

    def found(self, number: int, chunk: Chunk) -> checkpoint.Content | None:
        return None if self.before is None else unpack(self.before, self.owner)

    def begin(self, number: int, chunk: Chunk, run: Compiled) -> Batch:
        self.batch = super().begin(number, chunk, run)
        self.fresh = not self.batch.log.rounds
        self.last = time.perf_counter()
        if self.pause is not None:
            seconds, share = self.pause
            nbytes = sum(math.prod(a.shape) * a.dtype.itemsize for a in jax.tree.leaves(run.state))
            spent = self.last - self.began + 2 * nbytes / SPEED
            self.until = self.last + max(seconds, spent / share)
        return self.batch

    def due(self, share: float, runs: int) -> bool:
        now = time.perf_counter()
        whole = (now - self.last) / max(share, 1e-9)
        if self.fresh and runs > 1 and share < SOON and whole > LATE * self.longest:
            raise TooLarge(f"it would take {whole:.0f} s")
        if now >= self.until:
            raise Paused
        return False

    def save(self, number: int, batch: Batch) -> None:
        """Nothing is written here: the reply has the checkpoint."""

    def packed(self) -> bytes:
        self.batch.log.read()
        return pack(checkpoint.content(self.batch, self.owner))


def _kept(name: str, digest: str, source: Source) -> Any:
    """What ``source`` has pickled, unpickled once."""
    if getattr(_held, name)[0] != digest:
        _held.program = (None, None)  # before the next one takes memory
        for machine in _held.machines.values():
            machine.placed = (None, None)
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
