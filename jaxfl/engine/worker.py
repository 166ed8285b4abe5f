"""Compute one chunk for a driver elsewhere: the function that executors call on workers.

Its arguments and results are texts, numbers, bytes and arrays: releases are compared before anything of
this package is unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
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
from jaxfl.engine.checkpoint import Batch
from jaxfl.engine.compute import Follower, Machine, Ready, Saves, TooLarge
from jaxfl.engine.plan import Chunk, Options, Program, halves
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
    """The content that all chunks of a driver share."""

    programs: Mapping[int, Program]
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
    turn, number, store = Turn(task), task["number"], Store(None)
    store.keep = task["keep"]
    if task["checkpoint"] is not None:
        store.states[number] = task["checkpoint"]
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
    program = content.programs[turn.chunk.program]
    try:
        done = machine.compute(program, number, turn.chunk, Saves(store), turn)
    except Paused:
        return {"checkpoint": store.saved(number)}
    return {"arrays": done, **({"checkpoint": store.saved(number)} if store.keep else {})}


class Paused(Exception):
    """It is time for a checkpoint."""


class Turn(Follower):
    """One of the calls that a long chunk takes: from a checkpoint, until the next one is due.

    What comes with each call takes at most a share of its time: to begin, and to send the state twice.
    """

    def __init__(self, task: Mapping[str, Any]) -> None:
        self.chunk, self.seconds = Chunk(*task["chunk"]), task["seconds"]
        self.cadence = task["cadence"]
        self.began = time.perf_counter()

    def begin(self, number: int, t: int) -> None:
        self.last = time.perf_counter()
        self.divisible = t == 0 and bool(halves(number, self.chunk, len(jax.local_devices())))

    def ready(self, number: int, now: Ready, batch: Batch) -> None:
        passed = time.perf_counter() - self.last
        whole = passed / max(now.share, 1e-9)
        if self.divisible and 0 < now.share < SOON and whole > LATE * self.seconds:
            raise TooLarge(f"it would take {whole:.0f} s")
        if self.cadence is not None:
            seconds, share = self.cadence
            nbytes = sum(leaf.nbytes for leaf in jax.tree.leaves(batch.state))
            spent = self.last - self.began + 2 * nbytes / SPEED
            if passed >= max(seconds, spent / share):
                raise Paused
