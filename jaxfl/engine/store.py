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
from collections.abc import Mapping, Sequence
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
from jaxfl.core.types import State
from jaxfl.core.version import __version__
from jaxfl.engine import checkpoint, stopping
from jaxfl.engine.checkpoint import Batch, Content, Place
from jaxfl.engine.plan import digest
from jaxfl.engine.results import RESULT

__all__ = [
    "CHUNK",
    "PLANNED",
    "ROOM",
    "Arrays",
    "Line",
    "Store",
    "refuse_older",
    "restored",
]

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Line: TypeAlias = dict[str, Any]
FORMAT = 2
DIGEST = b'"digest": "'
PLANNED = "planned.jsonl"
BEFORE = ("sweep.json", "checkpoint.npz")  # in the folders of jaxfl 0.2.0
OWNER = "chunk.json"  # names of metrics have no dot
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
        self.memory: dict[int, Arrays] = {}  # of finished chunks
        self.batches: dict[int, Batch] = {}  # their final states, or as workers sent them:
        self.contents: dict[int, Content] = {}
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

    def open(self, begun: bool) -> None:
        """Hold the folder, and read its list where it is ``begun``; raise where it should not be."""
        if self.folder is None:
            require(not begun, "needs out=, the folder to continue", resume=begun)
            return
        is_file = self.folder.exists() and not self.folder.is_dir()
        require(not is_file, "is a file, and results need a folder", out=str(self.folder))
        refuse_older(self.folder)
        planned = self.path(PLANNED)
        if begun:
            with reading(planned, "plan of a run or a sweep", WAY):
                planned.stat()
        writable(planned, "plan")
        self.enter_context(locked(self.folder))
        if begun:
            self.look()
            return
        taken = [planned, self.path(RESULT), *self.path("chunks").glob("*.npz")]
        for old in taken:
            way = "continue it with {resume}, or name another folder"
            require(
                not old.exists(),
                lambda: f"{self.folder} holds a run or a sweep already",
                way,
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

    def add(
        self, about: Mapping[str, Any], programs: Sequence[Line] = (), chunks: Sequence[Line] = ()
    ) -> None:
        """Add lines to the list, under a header that holds ``about``."""
        self.programs += programs
        self.chunks += chunks
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
        found = {number: self.saved(number) for number in range(len(self.chunks))}
        out.contents = {number: one for number, one in found.items() if one is not None}
        return out

    # --- room ------------------------------------------------------------------------------------

    def room(self) -> int:
        """The free bytes of the disk."""
        assert self.folder is not None
        return shutil.disk_usage(self.folder).free

    def reserve(self, size: int, states: int, alone: bool) -> int:
        """Raise if the disk has no room for results of ``size`` bytes; return those of states.

        Final states are kept of a run ``alone``, and where they are few: with them runs can continue.
        """
        self.most, self.keep = ROOM * size + CHUNK, alone
        if self.folder is None:
            return 0
        free = self.room()
        require(
            ROOM * size <= free,
            lambda: (
                f"{self.folder} has {free / 2**20:,.0f} MiB free, and the results of these runs "
                f"need {ROOM * size / 2**20:,.0f}"
            ),
            "free some space, name another folder, or evaluate less often",
        )
        kept = size + states
        self.keep = alone or kept <= min(KEPT, free - ROOM * size)
        return kept if self.keep else 0

    # --- chunks ----------------------------------------------------------------------------------

    def write(self, number: int, found: Arrays) -> None:
        if self.folder is None:
            self.memory[number] = found
            return
        content: Any = {OWNER: np.array(self._owner(number, _digest(found))), **found}
        replace(self.chunk(number), lambda file: np.savez_compressed(file, **content))
        if not self.keep:
            self.state(number).unlink(missing_ok=True)

    def read(self, number: int) -> Arrays | None:
        """A finished chunk; None if it is missing or damaged, so that it is computed again."""
        if self.folder is None:
            return self.memory.get(number)
        path = self.chunk(number)
        try:
            found = arrays(path, self.most)
            owner = found.pop(OWNER).item()
            return found if owner == self._owner(number, _digest(found)) else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"Cannot read {path}", str(error.strerror or error)) from None
        except Exception:
            return None

    # --- checkpoints -----------------------------------------------------------------------------

    def save(self, number: int, batch: Batch) -> None:
        """Write the runs of a chunk as they are."""
        if self.folder is None:
            self.batches[number] = batch
        else:
            self.save_content(number, checkpoint.content(batch))

    def save_content(self, number: int, content: Content) -> None:
        """Write a checkpoint of a chunk."""
        found = content[0], {**content[1], "owner": self.owner(number)}
        if self.folder is None:
            self.contents[number] = found
        else:
            replace(self.state(number), lambda file: checkpoint.put(file, found))

    def saved(self, number: int) -> Content | None:
        """The last checkpoint of a chunk; None if it is missing, damaged, or of another version."""
        if self.folder is None:
            batch = self.batches.get(number)
            if batch is None:
                return self.contents.get(number)
            return checkpoint.content(batch)
        with contextlib.suppress(Exception), open(self.state(number), "rb") as file:
            found = checkpoint.take(file)
            if found[1]["owner"] == self.owner(number):
                return found
        return None

    def gathered(self, number: int, at: Sequence[Sequence[tuple[int, Place]]], t: int) -> Any:
        """A checkpoint of runs that other chunks have brought to round t; None unless all have.

        Runs that a rule has ended go on, unless the same rule holds for the longer ones.
        """
        files = {other: self.saved(other) for row in at for other, _ in row}
        if any(found is None or found[1]["at"] != t for found in files.values()):
            return None
        rows: Any = [[(files[other], place) for other, place in row] for row in at]
        found, about = checkpoint.joined(rows)
        rules = self.chunks[number]["rules"]
        if not all(stopping.holds(rules, self.chunks[other]["rules"]) for other in files):
            about["ended"] = [["" for _ in row] for row in about["ended"]]
        return found, {**about, "owner": self.owner(number)}

    def owner(self, number: int) -> str:
        """A chunk of this folder, and the versions that go on with it bit for bit."""
        return self._owner(number, *VERSIONS)

    def _owner(self, number: int, *words: str) -> str:
        name = self.header["name"] if self.folder is not None else ""
        return json.dumps([digest(self.chunks[number]), *words, name])


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


def restored(found: Content, shape: State, where: Any) -> Batch | None:
    """The runs of a checkpoint; None if it has another shape, or is incomplete."""
    with contextlib.suppress(Exception):
        return checkpoint.restored(found, shape, where)
    return None
