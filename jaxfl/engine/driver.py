"""Have an executor compute chunks: send what they share, submit them, collect arrays.

An executor is anything with ``submit(function, *arguments)`` that returns a future, with ``result()``
and ``done()``.  It may have

* ``share(data)``, which takes bytes and returns an argument that arrives as a function that returns
  them: then they do not travel with every chunk;
* ``most``, the number of chunks that it takes at once;
* ``cpus`` of one worker, where several share a machine and its memory;
* ``pauses = False``, if each call has to wait for its start.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol

import cloudpickle
import jax

from jaxfl.core.errors import InputError, one_line, require
from jaxfl.engine import worker
from jaxfl.engine.compute import Saves
from jaxfl.engine.plan import Chunk
from jaxfl.engine.program import placement
from jaxfl.engine.store import Arrays

__all__ = ["Driver", "Executor"]

TRIES = 3  # of one chunk
MOST = 256  # chunks that are submitted and not yet collected
SOON, SECONDS = 0.005, 0.2  # between looks at futures, at least and at most
CHUNK_SECONDS = 300.0  # that a chunk is to take, at most
GO_ON = "finished chunks are kept, and {resume} continues"


class Executor(Protocol):
    """An executor of chunks: any object with the ``submit`` of :mod:`concurrent.futures`."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any: ...


class Driver:
    """Sends chunks to an executor."""

    def __init__(
        self,
        executor: Executor,
        content: worker.Content,
        saves: Saves,
        seconds: float | None,
    ) -> None:
        self.executor, self.content, self.saves = executor, content, saves
        self.seconds = seconds or CHUNK_SECONDS
        self.failures: dict[int, str] = {}  # reasons of chunks that were tried often enough
        self.settings = {name: getattr(jax.config, f"jax_{name}") for name in worker.SETTINGS}
        for program in content.programs.values():
            require(
                not placement(program.problem, jax.devices()).leaves,
                lambda: f"The clients of {program.problem.name} are split over devices",
                "leave out executor=, or split no clients",
            )

    def replies(
        self, todo: Mapping[int, Chunk], divide: Callable[[int, int], Mapping[int, Chunk]]
    ) -> Generator[tuple[int, Arrays] | None, None, None]:
        """Numbers and arrays of chunks as they come, and None while there are none.

        ``failures`` has the chunks that do not come.  ``divide(number, parts)`` returns the halves of
        a chunk that is too large, which take its place.
        """
        waiting = deque((number, chunk, 0) for number, chunk in todo.items())
        flying: dict[int, tuple[Any, Chunk, int]] = {}
        pause = SOON
        try:
            while waiting or flying:
                while waiting and len(flying) < getattr(self.executor, "most", MOST):
                    number, chunk, tries = waiting.popleft()
                    flying[number] = self._submit(number, chunk, tries), chunk, tries + 1
                ended = [number for number, (future, *_) in flying.items() if future.done()]
                for number in ended:
                    future, chunk, tries = flying.pop(number)
                    reply = self._reply(future)
                    halves = divide(number, reply["parts"]) if "large" in reply else {}
                    if "checkpoint" in reply:
                        self.saves.keep(number, reply["checkpoint"])
                    if "arrays" in reply:
                        yield number, reply["arrays"]
                    elif "checkpoint" in reply:
                        waiting.appendleft((number, chunk, 0))
                    elif halves:
                        waiting.extendleft((*half, 0) for half in reversed([*halves.items()]))
                    elif tries < TRIES and "large" not in reply:
                        waiting.append((number, chunk, tries))
                    else:
                        self.failures[number] = reply.get("large") or reply["reason"]
                yield None
                pause = SOON if ended else min(2 * pause, SECONDS)
                time.sleep(0 if ended else pause)
        finally:
            for future, *_ in flying.values():
                with contextlib.suppress(Exception):
                    future.cancel()

    def _submit(self, number: int, chunk: Chunk, attempt: int) -> Any:
        # where a checkpoint cannot be written, the next turn is the last
        pauses = self.saves.took < float("inf") and getattr(self.executor, "pauses", True)
        task = {
            "number": number,
            "chunk": tuple(chunk),
            "attempt": attempt,  # Dask takes equal calls for one
            "settings": self.settings,
            "seconds": self.seconds,
            "cpus": getattr(self.executor, "cpus", None),
            "keep": self.saves.store.keep,
            "checkpoint": self.saves.found(number),
            "cadence": self.saves.cadence if pauses else None,
        }
        try:
            return self.executor.submit(worker.chunk, worker.release(), task, *self._shared)
        except InputError:
            raise
        except Exception as error:
            wrong = f"The executor takes no more chunks ({one_line(error)})"
            raise InputError(wrong, GO_ON, suggested={"resume": True}) from None

    @functools.cached_property
    def _shared(self) -> tuple[str, Any]:
        """The digest of what chunks share, and the argument that brings it to a worker."""
        try:
            data = cloudpickle.dumps(self.content)
        except Exception as error:
            raise InputError(
                f"These runs cannot be sent to workers ({one_line(error)})",
                "make algorithm, model and metrics of functions and arrays alone",
            ) from None
        share = getattr(self.executor, "share", functools.partial(functools.partial, bytes))
        return hashlib.sha256(data).hexdigest(), share(data)

    def _reply(self, future: Any) -> Mapping[str, Any]:
        try:
            reply: Mapping[str, Any] = future.result()
        except (Exception, asyncio.CancelledError) as error:  # its worker is lost
            return {"reason": one_line(error)}
        if "release" in reply:
            wrong = f"A worker has {reply['release']}, and this process {worker.release()}"
            way = f"install the same on all; {GO_ON}"
            raise InputError(wrong, way, suggested={"resume": True})
        if "mistake" in reply:
            raise InputError(reply["mistake"].rstrip("."))
        return reply
