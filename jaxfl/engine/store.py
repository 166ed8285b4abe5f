"""The folder of runs: the list of planned chunks, a file for each finished chunk, and checkpoints.

``planned.jsonl`` has a header and then one line for each program and each chunk.  Lines are only added,
and always before anything of theirs is computed.  Files are written atomically: a call that is killed at
any instant leaves whole files.  One process at a time writes in a folder; a second one raises an error.
Without a folder the same is kept in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import InputError, require
from jaxfl.core.files import (
    NO_DIGEST,
    arrays,
    check_digest,
    check_format,
    locked,
    reading,
    replace,
    sealed,
    writable,
)
from jaxfl.core.version import __version__
from jaxfl.engine import checkpoint
from jaxfl.engine.checkpoint import Batch, Content
from jaxfl.engine.plan import digest
from jaxfl.engine.results import RESULT

__all__ = ["CHUNK", "OUTSIDE", "PLANNED", "ROOM", "Arrays", "Line", "Store", "refuse_older"]

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Line: TypeAlias = dict[str, Any]
FORMAT = 3
DIGEST = b'"digest": "'
PLANNED = "planned.jsonl"
BEFORE = ("sweep.json", "checkpoint.npz")  # in the folders of jaxfl 0.2.0
OWNER = "chunk.json"  # names of metrics have no dot
OUTSIDE = "x.outside"  # the distance of models from their constraint set, and their length
CHUNK = 1 << 20  # bytes of names and headers, at most
VERSIONS = (__version__, jax.__version__)  # that continue a checkpoint bit for bit
KEPT = 1 << 30  # bytes of final states, at most: of runs with more none is kept
WAY = "name the folder of a run or a sweep, or start over in another"
ROOM = 2  # times the predicted size: chunks, and the result that they are merged into


class Store(contextlib.ExitStack):
    """Planned chunks and what is known of them.  As a context it holds the folder."""

    def __init__(self, folder: Path | None) -> None:
        super().__init__()
        self.folder = folder
        self.header: dict[str, Any] = {}
        self.programs: list[Line] = []
        self.chunks: list[Line] = []
        self.memory: dict[int, Arrays] = {}  # without a folder: finished chunks,
        self.states: dict[int, Batch | Content] = {}  # and their states, or as workers sent them
        self.most = 0  # bytes that a chunk may unpack to
        self.keep = False  # whether the states of finished chunks are kept

    def path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / name

    def chunk(self, number: int) -> Path:
        return self.path("chunks") / f"chunk-{number:05d}.npz"

    def state(self, number: int) -> Path:
        """The last checkpoint of a chunk, or its final state."""
        return self.chunk(number).with_name(f"state-{number:05d}.npz")

    # --- the list --------------------------------------------------------------------------------

    def open(self, begun: bool, new: bool = False) -> None:
        """Hold the folder, and read its list where it is ``begun``; raise where it should not be.

        With ``new`` a folder that holds nothing is begun.
        """
        if self.folder is None:
            require(not begun, "needs out=, the folder to continue", resume=begun)
            return
        is_file = self.folder.exists() and not self.folder.is_dir()
        require(not is_file, "is a file, and results need a folder", out=str(self.folder))
        refuse_older(self.folder)
        planned = self.path(PLANNED)
        taken = (planned, self.path(RESULT), *self.path("chunks").glob("*.npz"))
        begun &= not new or any(old.exists() for old in taken)
        if begun:
            with reading(planned, "plan of a run or a sweep", WAY):
                planned.stat()
        writable(planned, "plan")
        self.enter_context(locked(self.folder))
        if begun:
            self.look()
            return
        require(
            not any(old.exists() for old in taken),
            lambda: f"{self.folder} holds a run or a sweep already",
            "continue it with {resume}, or name another folder",
            suggested={"resume": True},
        )

    def look(self) -> None:
        """Read the list."""
        planned = self.path(PLANNED)
        with reading(planned, "plan of a run or a sweep", WAY):
            text = planned.read_bytes()
            head, *lines = text.splitlines()
            self.header = json.loads(head)
            check_format(planned, "plan", self.header["format"], FORMAT)
            check_digest(planned, text, DIGEST, WAY)
            found = [json.loads(line) for line in lines]
            self.programs = [line["program"] for line in found if "program" in line]
            self.chunks = [line["chunk"] for line in found if "chunk" in line]

    def write_list(self, about: Mapping[str, Any]) -> None:
        """Write the list, under a header that holds ``about``."""
        name = self.header.get("name") or digest([dict(about), os.urandom(8).hex()])
        self.header = {"format": FORMAT, "digest": NO_DIGEST, "name": name, **about}
        if self.folder is None:
            return
        lines = [{"program": line} for line in self.programs]
        lines += [{"chunk": line} for line in self.chunks]
        text = "\n".join(json.dumps(line, default=str) for line in (self.header, *lines))
        self.chunk(0).parent.mkdir(exist_ok=True)
        content = sealed(f"{text}\n".encode(), DIGEST)
        replace(self.path(PLANNED), lambda file: file.write(content))

    def divided(self) -> set[int]:
        """Chunks that halves have replaced."""
        return {line["parent"] for line in self.chunks if line["parent"] is not None}

    def detached(self) -> Store:
        """The same plan and states in memory, to go on without a change of these."""
        out = Store(None)
        out.programs, out.chunks = [*self.programs], [*self.chunks]
        states = {number: self.saved(number) for number in range(len(self.chunks))}
        out.states = {number: one for number, one in states.items() if one is not None}
        return out

    def reserve(self, size: int, states: int, alone: bool) -> int:
        """Raise if the disk has no room for results of ``size`` bytes; return those of states.

        Final states are kept of a run ``alone``, and where they are few: with them runs can continue.
        """
        self.most, self.keep = ROOM * size + CHUNK, alone
        if self.folder is None:
            return 0
        free, need, kept = shutil.disk_usage(self.folder).free, ROOM * size, size + states
        require(
            need <= free,
            lambda: (
                f"{self.folder} has {free / 2**20:,.0f} MiB free, and the results of these runs "
                f"need {need / 2**20:,.0f}"
            ),
            "free some space, name another folder, or evaluate less often",
        )
        self.keep = alone or kept <= min(KEPT, free - need)
        return kept if self.keep else 0

    # --- chunks ----------------------------------------------------------------------------------

    def write(self, number: int, found: Arrays) -> None:
        if self.folder is None:
            self.memory[number] = found
            return
        content: Any = {OWNER: np.array(self.owner(number, _digest(found))), **found}
        replace(self.chunk(number), lambda file: np.savez_compressed(file, **content))
        if not self.keep:
            self.state(number).unlink(missing_ok=True)

    def read(self, number: int) -> Arrays | None:
        """A finished chunk; None if it is missing or damaged, and must be computed again."""
        if self.folder is None:
            return self.memory.get(number)
        path = self.chunk(number)
        try:
            found = arrays(path, self.most)
            owner = found.pop(OWNER).item()
            return found if owner == self.owner(number, _digest(found)) else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"Cannot read {path}", str(error.strerror or error)) from None
        except Exception:
            return None

    def owner(self, number: int, *words: str) -> str:
        """A chunk of this folder as text, with ``words``, or the versions that continue it bit for bit."""
        name = self.header["name"] if self.folder is not None else ""
        return json.dumps([digest(self.chunks[number]), *(words or VERSIONS), name])

    # --- checkpoints -----------------------------------------------------------------------------

    def save(self, number: int, batch: Batch) -> None:
        """Keep the runs of a chunk as they are."""
        if self.folder is None:
            self.states[number] = batch
        else:
            self.save_content(number, checkpoint.content(batch))

    def save_content(self, number: int, content: Content) -> None:
        """Keep a checkpoint of a chunk."""
        found = content[0], {**content[1], "owner": self.owner(number)}
        if self.folder is None:
            self.states[number] = found
        else:
            replace(self.state(number), lambda file: checkpoint.put(file, found))

    def ran(self, number: int) -> bool:
        """Whether something of a chunk was computed."""
        files = () if self.folder is None else (self.chunk(number), self.state(number))
        return number in {*self.memory, *self.states} or any(file.exists() for file in files)

    def saved(self, number: int) -> Content | None:
        """The last checkpoint of a chunk; None if it is missing, damaged, or of another version."""
        if self.folder is None:
            found = self.states.get(number)
            return checkpoint.content(found) if isinstance(found, Batch) else found
        with contextlib.suppress(OSError), open(self.state(number), "rb") as file:
            return checkpoint.take(file, self.owner(number))
        return None


def refuse_older(folder: Path) -> None:
    """Raise for a folder of jaxfl 0.2.0, which had other files."""
    older = next((name for name in BEFORE if (folder / name).exists()), None)
    require(
        older is None,
        lambda: f"{folder} was begun by jaxfl 0.2.0 or earlier ({older})",
        "finish it with that version, or name another folder; jaxfl.load reads its result",
    )


def _digest(found: Arrays) -> str:
    out = hashlib.sha256()
    for name, array in sorted(found.items()):
        out.update(f"{name} {array.dtype} {array.shape}".encode())
        out.update(np.ascontiguousarray(array).data)
    return out.hexdigest()
