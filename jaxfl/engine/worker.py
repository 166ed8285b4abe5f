"""Compute one chunk for a driver elsewhere: the function that executors call on workers.

Its arguments and results are texts, numbers, bytes and arrays: releases are compared before anything of
this package is unpickled.
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
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from jaxfl.core.errors import InputError, one_line
from jaxfl.core.types import Key
from jaxfl.core.version import __version__
from jaxfl.engine import checkpoint
from jaxfl.engine.checkpoint import Batch
from jaxfl.engine.compute import Follower, Machine, Saves, TooLarge
from jaxfl.engine.plan import Chunk, Options, Program, halves
from jaxfl.engine.program import Compiled
from jaxfl.engine.store import Store

__all__ = ["SETTINGS", "Content", "chunk", "release"]

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
SOON = 0.3  # a chunk is halved before this share of it is computed,
LATE = 1.25  # if it takes so many times its time


class Content(NamedTuple):
    """What all chunks of a driver share."""

    programs: list[Program | None]
    keys: list[Key]  # of each seed
    options: Options
    memory: int | None


# What this process keeps between chunks, by digest: compiled programs and placed data stay.
_held: dict[str, tuple[Content, Machine]] = {}
_lock = threading.Lock()  # an executor may run several chunks in one process


def release() -> str:
    """The versions that must be those of the driver."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"jaxfl {__version__}, JAX {jax.__version__} and Python {python}"


def chunk(
    expected: str, task: Mapping[str, Any], digest: str, source: Callable[[], bytes]
) -> dict[str, Any]:
    """Compute the arrays of a chunk.  A long chunk ends early, with a checkpoint.

    ``expected`` is the driver's release.  ``source`` returns the :class:`Content`, pickled.  The reply
    has the worker's ``release`` if that is another, a ``mistake`` of the user, the ``reason`` why the
    chunk failed here, that it is ``large``, its ``arrays``, or only a ``checkpoint`` to go on from.
    """
    if release() != expected:
        return {"release": release()}
    try:
        with _lock, contextlib.ExitStack() as stack:
            for name, value in task["settings"].items():
                if getattr(jax.config, f"jax_{name}") != value:
                    stack.enter_context(getattr(jax, name)(value))
            return _chunk(task, digest, source)
    except TooLarge as error:
        return {"large": str(error), "parts": len(jax.local_devices())}
    except InputError as error:
        return {"mistake": str(error)}
    except Exception as error:
        return {"reason": one_line(error)}


def _chunk(task: Mapping[str, Any], digest: str, source: Callable[[], bytes]) -> dict[str, Any]:
    turn, number, here = Turn(task), task["number"], Chunk(*task["chunk"])
    if digest not in _held:
        turn.began -= START
        _held.clear()  # before the next one takes memory
        data = source()
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError("what was sent to this worker arrived damaged")
        content: Content = pickle.loads(data)
        share = min(1.0, task["cpus"] / (os.cpu_count() or 1)) if task["cpus"] else 1.0
        machine = Machine(jax.local_devices(), *content[1:], share)
        _held[digest] = content, machine
    content, machine = _held[digest]
    program = content.programs[here.program]
    assert program is not None
    try:
        done = machine.compute(program, number, here, turn, Follower())
    except Paused:
        return {"checkpoint": turn.content()}
    return {"arrays": done, **({"checkpoint": turn.content()} if task["keep"] else {})}


class Paused(Exception):
    """It is time for a checkpoint."""


class Turn(Saves):
    """One of the calls that a long chunk takes: from a checkpoint, until the next one is due.

    What comes with each call takes at most a share of its time: to begin, and to send the state twice.
    """

    def __init__(self, task: Mapping[str, Any]) -> None:
        super().__init__(Store(None))  # which keeps nothing: the reply has the checkpoint
        self.task, self.cadence, self.store.keep = task, task["cadence"], task["keep"]

    def found(self, number: int, chunk: Chunk) -> checkpoint.Content | None:
        found: checkpoint.Content | None = self.task["checkpoint"]
        return found

    def begin(self, number: int, chunk: Chunk, run: Compiled) -> Batch:
        self.batch = super().begin(number, chunk, run)
        parts = len(jax.local_devices())
        self.divisible = not self.batch.log.rounds and bool(halves(number, chunk, parts))
        nbytes = sum(math.prod(a.shape) * a.dtype.itemsize for a in jax.tree.leaves(run.state))
        now = time.perf_counter()
        self.took = now - self.began + 2 * nbytes / SPEED
        self.began = self.last = now
        return self.batch

    def due(self, share: float) -> bool:
        whole = (time.perf_counter() - self.last) / max(share, 1e-9)
        if self.divisible and share < SOON and whole > LATE * self.task["seconds"]:
            raise TooLarge(f"it would take {whole:.0f} s")
        if super().due(share):
            raise Paused
        return False

    def save(self, number: int, batch: Batch) -> None: ...

    def content(self) -> checkpoint.Content:
        return checkpoint.content(self.batch)
