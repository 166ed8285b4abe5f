"""Have an executor compute chunks: send what they share, submit them, collect arrays.

An executor is anything with ``submit(function, *arguments)`` that returns a future, with ``result()``
and ``done()``.  It may have ``share(data)``, which takes bytes and returns an argument that arrives as
a function that returns them: then they do not travel with every chunk.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import queue
import warnings
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

import cloudpickle
import jax
import jax.numpy as jnp

from jaxfl.core.errors import InputError, JaxflWarning, one_line, require
from jaxfl.core.types import Key
from jaxfl.data.samples import plain
from jaxfl.engine import worker
from jaxfl.engine.compute import SAVE_EVERY, SHARE, Saves
from jaxfl.engine.plan import Chunk, Options, Program
from jaxfl.engine.program import placement
from jaxfl.engine.store import pack

__all__ = ["Driver", "Executor", "Future"]

TRIES = 3  # of one chunk
IN_FLIGHT = 256  # chunks that are submitted and not yet collected
SECONDS = 0.2  # between looks at futures that do not call back
CHUNK_SECONDS = 300.0  # that a chunk is to take, at most
GO_ON = {"resume": True}


class Future(Protocol):
    """The result of a call, now or later."""

    def result(self) -> Any: ...
    def done(self) -> bool: ...


class Executor(Protocol):
    """What computes chunks."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future: ...


class Driver:
    """Sends chunks to an executor."""

    def __init__(
        self,
        executor: Executor,
        programs: Sequence[Program | None],
        keys: Sequence[Key],
        options: Options,
        saves: Saves,
        memory: int | None,
        seconds: float | None,
    ) -> None:
        self.executor, self.saves, self.memory = executor, saves, memory
        self.seconds = seconds or CHUNK_SECONDS
        self.failures: dict[int, str] = {}  # reasons of chunks that were tried often enough
        self.shared: dict[Any, tuple[str, Any]] = {}  # digest and source of what was sent
        self.data: list[tuple[Any, ...]] = []  # arrays of each program's problem
        self.pauses = saves.store.folder is not None and getattr(executor, "pauses", True)
        bare: list[Any] = []
        for program in programs:
            if program is None:
                bare.append(None)
                self.data.append(())
                continue
            problem = plain(program.problem)
            require(
                not placement(problem, jax.devices()).leaves,
                f"The clients of {problem.name} are split over devices",
                "leave out executor=, or split no clients",
            )
            leaves, tree = jax.tree.flatten((problem, program.held))
            problem, held = jax.tree.unflatten(tree, range(len(leaves)))
            bare.append(program._replace(problem=problem, held=held))
            self.data.append(tuple(leaves))
        settings = {name: getattr(jax.config, f"jax_{name}") for name in worker.SETTINGS}
        self.content = worker.Content(bare, jnp.stack(list(keys)), options, settings)

    def replies(
        self, todo: Sequence[tuple[int, Chunk]], divide: Callable[[int, int], Any]
    ) -> Generator[tuple[int, Mapping[str, Any]] | None, None, None]:
        """Numbers and replies of chunks as they come, and None while there are none.

        ``failures`` has the chunks that do not come.  ``divide(number, parts)`` returns the halves of
        a chunk that is too large, which take its place.
        """
        waiting = deque((number, chunk, 0) for number, chunk in todo)
        flying: dict[int, tuple[Any, int, Chunk, int]] = {}  # by identity of the future
        ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        try:
            while waiting or flying:
                while waiting and len(flying) < getattr(self.executor, "most", IN_FLIGHT):
                    number, chunk, tries = waiting.popleft()
                    future = self._submit(number, chunk, tries)
                    flying[id(future)] = future, number, chunk, tries + 1
                    if hasattr(future, "add_done_callback"):
                        future.add_done_callback(ended.put)
                for future in _next(ended, [future for future, *_ in flying.values()]):
                    future, number, chunk, tries = flying.pop(id(future))
                    reply = self._reply(future)
                    halves = divide(number, reply["parts"]) if "large" in reply else ()
                    if "checkpoint" in reply:
                        self._keep(number, reply["checkpoint"])
                        waiting.appendleft((number, chunk, 0))
                    elif halves:
                        waiting.extendleft((*half, 0) for half in reversed(halves))
                    elif "arrays" in reply:
                        yield number, reply
                    elif tries < TRIES and "large" not in reply:
                        waiting.append((number, chunk, tries))
                    else:
                        self.failures[number] = reply.get("large") or reply["reason"]
                yield None
        finally:
            for future, *_ in flying.values():
                with contextlib.suppress(Exception):
                    future.cancel()

    def _keep(self, number: int, content: bytes) -> None:
        """Keep the checkpoint of a chunk; where it cannot be written, the next turn is the last."""
        try:
            self.saves.store.save_bytes(number, content)
        except InputError as error:
            warnings.warn(f"{error}  There is no checkpoint.", JaxflWarning, stacklevel=2)
            self.pauses = False

    def _submit(self, number: int, chunk: Chunk, attempt: int) -> Any:
        content = self._sent("content", lambda: self.content)
        leaves = self.data[chunk.program]
        data = self._sent(tuple(map(id, leaves)), lambda: leaves)
        digests, sources = zip(content, data, strict=True)
        before = self.saves.found(number, chunk)
        task = {
            "number": number,
            "chunk": tuple(chunk),
            "memory": self.memory,
            "seconds": self.seconds,
            "keep": self.saves.store.keep,
            "owner": self.saves.store.owner(number),
            "checkpoint": None if before is None else pack(before),
            "pause": (SAVE_EVERY, SHARE) if self.pauses else None,
        }
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
                    f"These runs cannot be sent to workers ({one_line(error)})",
                    "make algorithm, model and metrics of functions and arrays alone",
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
