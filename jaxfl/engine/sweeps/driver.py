"""Have an executor compute the chunks of a sweep: send what they share, submit them, collect arrays.

An executor is anything with ``submit(function, *arguments)`` that returns a future, with ``result()``
and ``done()``.  It may have ``share(data)``, which takes bytes and returns an argument that arrives as
a function that returns them, so that they do not travel with every chunk.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import queue
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Protocol

import cloudpickle
import jax
import jax.numpy as jnp

from jaxfl.core.errors import InputError, JaxflWarning, one_line, require
from jaxfl.core.types import Key
from jaxfl.data.samples import plain
from jaxfl.engine.loop import CALL
from jaxfl.engine.sweeps import worker
from jaxfl.engine.sweeps.compute import SAVE_EVERY, SHARE
from jaxfl.engine.sweeps.fit import Compiler, Pace
from jaxfl.engine.sweeps.placement import placement
from jaxfl.engine.sweeps.plan import Chunk, Program
from jaxfl.engine.sweeps.store import Store

__all__ = ["LARGE", "Driver", "Executor", "Future"]

TRIES = 3  # of one chunk
IN_FLIGHT = 256  # chunks that are submitted and not yet collected
SECONDS = 0.2  # between looks at futures that do not call back
LARGE = (
    20 * CALL
)  # multiplications of a sweep whose chunks are worth timing first, half a minute or so
GO_ON = {"resume": True}


class Future(Protocol):
    """The result of a call, now or later."""

    def result(self) -> Any: ...
    def done(self) -> bool: ...


class Executor(Protocol):
    """What computes chunks."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future: ...


class Driver:
    """Sends chunks of one sweep to an executor."""

    def __init__(
        self,
        executor: Executor,
        compiler: Compiler,
        made: Sequence[Program],
        keys: Sequence[Key],
        memory: int | None,
    ) -> None:
        self.executor, self.made, self.memory = executor, made, memory
        self.failures: dict[int, str] = {}  # reasons of chunks that were tried often enough
        self.shared: dict[Any, tuple[str, Any]] = {}  # digest and source of what was sent
        self.data: list[tuple[Any, ...]] = []  # arrays of each program's problem
        stripped = []
        for program in made:
            problem = plain(program.problem)
            require(
                not placement(problem, compiler.devices).leaves,
                lambda: f"The clients of {problem.name} are split over devices of this process",
                "leave out executor=, or split no clients",
            )
            leaves, tree = jax.tree.flatten(problem)
            skeleton = jax.tree.unflatten(tree, range(len(leaves)))
            stripped.append(program._replace(problem=skeleton))
            self.data.append(tuple(leaves))
        settings = {name: getattr(jax.config, f"jax_{name}") for name in worker.SETTINGS}
        seeds, paired = compiler.grid.seeds, compiler.paired
        self.content = worker.Content(
            stripped, jnp.stack(keys), seeds, compiler.extra, compiler.eval_every, paired, settings
        )

    def pace(self, chunk: Chunk, shape: tuple[int, int]) -> tuple[str, int, int, Pace]:
        """A worker's platform, number of devices, free bytes, and speed in this chunk."""
        for _, reply in self._replies([(0, {**self._task(chunk, 0, shape), "time": True})], _idle):
            platform, parts, available, *timed = reply["pace"]
            return platform, parts, available, Pace(*timed)
        raise InputError(f"No worker can compute a chunk ({self.failures[0]})")

    def arrays(
        self,
        todo: Sequence[tuple[int, Chunk, int]],  # numbers, chunks, and rounds between evaluations
        shapes: Sequence[tuple[int, int]],
        store: Store,
        pulse: Callable[[], None],
    ) -> Generator[tuple[int, Mapping[str, Any]], None, None]:
        """Numbers and replies of chunks, as they come; ``failures`` has those that do not."""
        self.store = store
        self.pauses = store.folder is not None and getattr(self.executor, "pauses", True)
        tasks = (
            (i, {**self._task(chunk, every, shapes[chunk.program]), "owner": store.owner(chunk)})
            for i, chunk, every in todo
        )
        return self._replies(tasks, pulse)

    def _task(self, chunk: Chunk, every: int, shape: tuple[int, int]) -> dict[str, Any]:
        return {
            "program": chunk.program,
            "chunk": (chunk.cells, chunk.seeds),
            "every": every,
            "shape": tuple(shape),
            "memory": self.memory,
        }

    def _replies(
        self, tasks: Iterable[tuple[int, Any]], pulse: Callable[[], None]
    ) -> Generator[tuple[int, Mapping[str, Any]], None, None]:
        waiting = deque((*task, 0) for task in tasks)
        flying: dict[int, tuple[Any, int, Any, int]] = {}  # futures, chunks and tries, by identity
        ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        try:
            while waiting or flying:
                while waiting and len(flying) < getattr(self.executor, "most", IN_FLIGHT):
                    number, task, tries = waiting.popleft()
                    future = self._submit(number, task, tries)
                    flying[id(future)] = future, number, task, tries + 1
                    if hasattr(future, "add_done_callback"):
                        future.add_done_callback(ended.put)
                for future in _next(ended, [future for future, *_ in flying.values()]):
                    future, number, task, tries = flying.pop(id(future))
                    reply = self._reply(future)
                    if "checkpoint" in reply:
                        waiting.appendleft((number, self._continued(number, task, reply), 0))
                    elif "reason" not in reply:
                        yield number, reply
                    elif tries < TRIES:
                        waiting.append((number, task, tries))
                    else:
                        self.failures[number] = reply["reason"]
                pulse()
        finally:
            for future, *_ in flying.values():
                with contextlib.suppress(Exception):
                    future.cancel()

    def _continued(self, number: int, task: Mapping[str, Any], reply: Any) -> Mapping[str, Any]:
        """The rest of a chunk: its checkpoint is written, or goes with the task if it cannot be."""
        try:
            self.store.keep_bytes(number, reply["checkpoint"])
        except InputError as error:
            warnings.warn(f"{error}  The sweep has no checkpoint.", JaxflWarning, stacklevel=2)
            self.pauses = False
            return {**task, **reply}
        return task

    def _submit(self, number: int, task: Mapping[str, Any], attempt: int) -> Any:
        content = self._sent("content", lambda: self.content)
        leaves = self.data[task["program"]]
        data = self._sent(tuple(map(id, leaves)), lambda: leaves)
        digests, sources = zip(content, data, strict=True)
        if "owner" in task:
            task = {"checkpoint": self.store.kept(number), **task}
            task["pause"] = (SAVE_EVERY, SHARE) if self.pauses else None
        try:
            return self.executor.submit(
                worker.chunk, worker.release(), attempt, task, digests, *sources
            )
        except Exception as error:
            raise self._lost(error) from None

    def _sent(self, name: Any, content: Callable[[], Any]) -> tuple[str, Any]:
        """The digest of what tasks share, and the argument that brings it to a worker."""
        if name not in self.shared:
            try:
                data = cloudpickle.dumps(content())
            except Exception as error:
                raise InputError(
                    f"This sweep cannot be sent to workers ({one_line(error)})",
                    "make its algorithm, model and metrics of functions and arrays alone",
                ) from None
            try:
                share = getattr(self.executor, "share", functools.partial(functools.partial, bytes))
                self.shared[name] = hashlib.sha256(data).hexdigest(), share(data)
            except Exception as error:
                raise self._lost(error) from None
        return self.shared[name]

    def _reply(self, future: Any) -> Mapping[str, Any]:
        try:
            reply: Mapping[str, Any] = future.result()
        except asyncio.CancelledError:  # which is no Exception
            return {"reason": "the executor cancelled it"}
        except Exception as error:  # of the engine: its worker is lost
            return {"reason": one_line(error)}
        if "release" in reply:
            raise InputError(
                f"A worker has {reply['release']}, and this process {worker.release()}",
                "install the same on all; finished chunks are kept, and {resume} continues",
                suggested=GO_ON,
            )
        if "mistake" in reply:
            raise InputError(reply["mistake"].rstrip("."))
        return reply

    def _lost(self, error: Exception) -> InputError:
        return InputError(
            f"The executor takes no more chunks ({one_line(error)})",
            "finished chunks are kept, and {resume} continues",
            suggested=GO_ON,
        )


def _idle() -> None:
    """Nothing to do between replies."""


def _next(ended: queue.SimpleQueue[Any], futures: Sequence[Any]) -> list[Any]:
    """The futures that have ended by now, after a short wait if there are none."""
    found = []
    try:
        found.append(ended.get(timeout=SECONDS))
        while True:
            found.append(ended.get_nowait())
    except queue.Empty:
        pass
    return found + [f for f in futures if not hasattr(f, "add_done_callback") and f.done()]
