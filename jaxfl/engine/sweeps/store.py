"""The folder of a sweep: its manifest, one file per chunk, checkpoints of chunks and final states.

Files are written atomically, so that a sweep killed at any instant leaves whole files only.  One process
at a time writes in a folder; a second one raises an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from jaxfl.core import hosts
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
from jaxfl.engine import checkpoint
from jaxfl.engine.checkpoint import Content
from jaxfl.engine.log import Log
from jaxfl.engine.loop import Runs
from jaxfl.engine.results import RESULT
from jaxfl.engine.sweeps.engine import padded
from jaxfl.engine.sweeps.plan import Chunk

__all__ = ["MANIFEST", "ROOM", "Arrays", "Source", "Store", "pack", "unpack"]

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Source: TypeAlias = tuple[int, Chunk, tuple[int, int]]  # a chunk, and a run's seed and cell in it
FORMAT = 1
DIGEST = b'"digest": "'
MANIFEST = "sweep.json"
OWNER = "chunk.json"  # names of metrics have no dot
CHUNK = 1 << 20  # bytes of names and headers, at most
VERSIONS = (__version__, jax.__version__)  # that continue a checkpoint bit for bit
KEPT = 1 << 30  # bytes of states of finished chunks, at most: of a sweep with more none is kept
ROOM = 2  # times the predicted size: chunks, and the result that they are merged into


class Store(contextlib.ExitStack):
    """Chunks on disk, or with ``folder`` None in memory.  As a context it holds the folder once it has
    a manifest."""

    def __init__(self, folder: Path | None) -> None:
        super().__init__()
        self.folder = folder
        self.name = ""  # of the sweep, so that chunks of another one are not taken for its own
        self.memory: dict[int, Arrays] = {}
        self.most = 0  # bytes that a chunk may unpack to
        self.keep = False  # whether the states of finished chunks are kept

    @property
    def manifest(self) -> Path:
        assert self.folder is not None
        return self.folder / MANIFEST

    @property
    def result(self) -> Path:
        assert self.folder is not None
        return self.folder / RESULT

    def chunk(self, index: int) -> Path:
        assert self.folder is not None
        return self.folder / "chunks" / f"chunk-{index:05d}.npz"

    # --- beginning -------------------------------------------------------------------------------

    def claim(self, resume: bool) -> dict[str, Any] | None:
        """Return the existing manifest; raise unless ``resume=True``."""
        if self.folder is None:
            require(not resume, "needs out=, the folder of the sweep to resume", resume=resume)
            return None
        is_file = self.folder.exists() and not self.folder.is_dir()
        require(not is_file, "is a file, and a sweep needs a folder", out=str(self.folder))
        if resume:
            about = read_manifest(self.folder)
            self.enter_context(locked(self.folder))
            self.name = about.get("name", "")
            return about
        require(not self.manifest.exists(), *self._taken())
        for old in (self.result, *self.chunk(0).parent.glob("chunk-*.npz")):
            require(
                not old.exists(),
                lambda: f"{old} exists already",
                "name another folder, or remove it",
            )
        return None

    def room(self) -> int:
        """The free bytes of the disk."""
        assert self.folder is not None
        there = next(place for place in (self.folder, *self.folder.parents) if place.exists())
        return shutil.disk_usage(there).free

    def keeps(self, size: int, states: int) -> int:
        """The bytes of final states and logs in a folder; 0 where they are too many, or it has no room.

        With them the runs of a finished sweep can continue.
        """
        kept = size + states
        room = KEPT if self.folder is None else min(KEPT, self.room() - ROOM * size)
        self.keep = self.folder is not None and kept <= room
        return kept if kept <= room else 0

    def begin(self, about: Mapping[str, Any], nbytes: int, new: bool = True) -> None:
        """Write the manifest; raise if the disk has no room for results of ``nbytes``.

        With ``new=False`` it replaces that of a smaller sweep, whose chunks are part of this one.
        """
        if self.folder is None:
            return
        writable(self.manifest, "manifest")
        writable(self.chunk(0), "chunk")
        free = self.room()
        require(
            ROOM * nbytes <= free,
            lambda: (
                f"{self.folder} has {free / 2**20:,.0f} MiB free, and the results of this sweep "
                f"need {ROOM * nbytes / 2**20:,.0f}"
            ),
            "free some space, name another folder, or evaluate less often",
        )
        text = json.dumps(about, default=str)
        if new:
            self.name = hashlib.sha256(text.encode()).hexdigest()[:16]
            self.enter_context(locked(self.folder))
        whole = {"format": FORMAT, "digest": NO_DIGEST, "name": self.name, **about}
        text = json.dumps(whole, indent=1, default=str)
        try:
            replace(self.manifest, lambda file: file.write(sealed(text.encode(), DIGEST)), new)
        except FileExistsError:  # since :meth:`claim`, while programs were compiled
            raise InputError(*self._taken()) from None

    def _taken(self) -> tuple[str, str]:
        way = "resume it, or name another folder"
        return f"{self.folder} holds a sweep already", way

    # --- chunks ----------------------------------------------------------------------------------

    def write(self, index: int, chunk: Chunk, found: Arrays) -> None:
        if self.folder is None:
            self.memory[index] = found
            return
        content: Any = {OWNER: np.array(self._owner(chunk, _digest(found))), **found}
        replace(self.chunk(index), lambda file: np.savez_compressed(file, **content))
        self.forget(index)

    def read(self, index: int, chunk: Chunk) -> Arrays | None:
        """A finished chunk; None if it is missing, damaged, or another one."""
        if self.folder is None:
            return self.memory.get(index)
        try:
            found = arrays(self.chunk(index), self.most)
            owner = found.pop(OWNER).item()
            return found if owner == self._owner(chunk, _digest(found)) else None
        except Exception:
            return None

    # --- checkpoints of chunks -------------------------------------------------------------------

    def checkpoint(self, index: int) -> Path:
        return self.chunk(index).with_suffix(".checkpoint.npz")

    def state(self, index: int) -> Path:
        """The last checkpoint of a finished chunk."""
        return self.chunk(index).with_name(f"state-{index:05d}.npz")

    def save(self, index: int, chunk: Chunk, runs: Runs) -> None:
        """Write state and log of the runs of a chunk, of which all processes have a part."""
        content = packed(runs, self.owner(chunk))
        if self.folder is not None:
            replace(self.checkpoint(index), lambda file: checkpoint.put(file, content))

    def saved(self, index: int, chunk: Chunk, shape: State, where: Any) -> tuple[State, Log] | None:
        """What :meth:`save` wrote; None if it is missing, damaged, of another chunk, shape or version."""
        found = hosts.first(lambda: self._held(index, chunk, self.checkpoint, self.state))
        return restored(found, shape, where) if found is not None else None

    def keep_bytes(self, index: int, content: bytes) -> None:
        """Write a checkpoint that a worker has packed."""
        replace(self.checkpoint(index), lambda file: file.write(content))

    def kept(self, index: int) -> bytes | None:
        """The checkpoint of a chunk, for a worker."""
        try:
            return None if self.folder is None else self.checkpoint(index).read_bytes()
        except OSError:
            return None

    def reached(self, index: int, chunk: Chunk) -> int:
        """The round of the last checkpoint of a chunk, finished or not; 0 if there is none."""
        found = self._held(index, chunk, self.state, self.checkpoint)
        return int(found[1]["at"]) if found is not None else 0

    def joined(
        self, at: Sequence[Sequence[Source]], t: int, shape: State, where: Any
    ) -> tuple[State, Log] | None:
        """State and log of runs that other chunks have brought to round t; None unless all have."""
        files = {
            index: self._held(index, chunk, self.state, self.checkpoint)
            for index, chunk in {index: chunk for row in at for index, chunk, _ in row}.items()
        }
        if any(found is None or found[1]["at"] != t for found in files.values()):
            return None
        rows: Any = [[(files[index], place) for index, _, place in row] for row in at]
        return restored(checkpoint.joined(rows), shape, where)

    def _held(self, index: int, chunk: Chunk, *kinds: Callable[[int], Path]) -> Content | None:
        """The first of these files that :meth:`save` wrote for the chunk."""
        for kind in kinds if self.folder is not None else ():
            with contextlib.suppress(Exception), open(kind(index), "rb") as file:
                found, about = checkpoint.take(file)
                if about["owner"] == self.owner(chunk):
                    return found, about
        return None

    def forget(self, index: int) -> None:
        """Remove the checkpoint of a finished chunk, or keep it as its state."""
        if self.folder is None or not self.checkpoint(index).exists():
            return
        if self.keep:
            os.replace(self.checkpoint(index), self.state(index))
        else:
            self.checkpoint(index).unlink(missing_ok=True)

    def owner(self, chunk: Chunk) -> str:
        """The chunk and its sweep, and the versions that go on with it bit for bit."""
        return self._owner(chunk, *VERSIONS)

    def _owner(self, chunk: Chunk, *words: str) -> str:
        """The chunk and its sweep, and versions or a digest; in the first manifests the chunk alone."""
        return json.dumps([chunk, *words, self.name] if self.name else chunk)


def _digest(found: Arrays) -> str:
    out = hashlib.sha256()
    for name, array in sorted(found.items()):
        out.update(f"{name} {array.dtype} {array.shape}".encode())
        out.update(np.ascontiguousarray(array).data)
    return out.hexdigest()


def packed(runs: Runs, owner: str) -> dict[str, npt.NDArray[Any]]:
    """The content of a checkpoint of the runs of a chunk."""
    t = int(np.ravel(hosts.on_host(runs.state.t))[0])
    return checkpoint.content(runs, {"owner": owner, "at": t})


def pack(runs: Runs, owner: str) -> bytes:
    """A checkpoint of the runs of a chunk, as :meth:`Store.save` writes it."""
    file = io.BytesIO()
    checkpoint.put(file, packed(runs, owner))
    return file.getvalue()


def unpack(
    content: bytes, owner: str, whole: Chunk, part: Chunk, shape: State, where: Any
) -> tuple[State, Log] | None:
    """State and log of a ``part`` of a ``whole`` chunk; None if the content is damaged or another's."""
    with contextlib.suppress(Exception):
        found = checkpoint.take(io.BytesIO(content))
        if found[1]["owner"] == owner:
            tall, wide = shape.t.shape
            seeds, cells = padded(part, (tall, wide))
            rows = [whole.seeds.index(s) for s in seeds]
            columns = [whole.cells.index(c) for c in cells]
            at = [[(found, (row, column)) for column in columns] for row in rows]
            return restored(checkpoint.joined(at), shape, where)
    return None


def restored(content: Content, shape: State, where: Any) -> tuple[State, Log] | None:
    """State and log of a checkpoint; None if it has another shape, or is incomplete."""
    with contextlib.suppress(Exception):
        log = checkpoint.log_of("The checkpoint", *content)
        return checkpoint.state_of(*content, shape, where), log
    return None


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a sweep."""
    path = folder / MANIFEST
    way = "name the folder of a sweep, or start over in another"
    with reading(path, "manifest of a sweep", way):
        content = path.read_bytes()
        about: dict[str, Any] = json.loads(content)
        check_format(path, "sweep", about["format"], FORMAT)
        if about.pop("digest", None) is not None:  # the first manifests have none
            check_digest(path, content, DIGEST, way)
    return about
