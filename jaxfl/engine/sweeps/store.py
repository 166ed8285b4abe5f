"""The folder of a sweep: its manifest, one file per finished chunk, checkpoints of unfinished ones.

Files are written atomically, so that a sweep killed at any instant leaves whole files only.  Two
processes may resume one sweep at once: both compute the same chunks from one manifest, and each file
is whole whoever wrote it last.  Of two that start one at once, the second raises an error.
"""

from __future__ import annotations

import json
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
    reading,
    replace,
    sealed,
    writable,
)
from jaxfl.core.types import State
from jaxfl.core.version import __version__
from jaxfl.engine import checkpoint
from jaxfl.engine.log import Log
from jaxfl.engine.loop import Runs
from jaxfl.engine.sweeps.plan import Chunk

__all__ = ["MANIFEST", "RESULT", "Arrays", "Store"]

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
FORMAT = 1
DIGEST = b'"digest": "'
MANIFEST = "sweep.json"
RESULT = "result.nc"
OWNER = "chunk.json"  # names of metrics have no dot
CHUNK = 1 << 20  # bytes of names and headers, at most
ROOM = 2  # times the predicted size: chunks, and the result that they are merged into


class Store:
    """Chunks on disk, or with ``folder`` None in memory."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.memory: dict[int, Arrays] = {}
        self.most = 0  # bytes that a chunk may unpack to

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
            return read_manifest(self.folder)
        require(not self.manifest.exists(), *self._taken())
        for old in (self.result, *self.chunk(0).parent.glob("chunk-*.npz")):
            require(not old.exists(), f"{old} exists already", "name another folder, or remove it")
        return None

    def begin(self, about: Mapping[str, Any], nbytes: int) -> None:
        """Write the manifest; raise if the disk has no room for results of ``nbytes``."""
        if self.folder is None:
            return
        writable(self.manifest, "manifest")
        writable(self.chunk(0), "chunk")
        free = shutil.disk_usage(self.folder).free
        require(
            ROOM * nbytes <= free,
            f"{self.folder} has {free / 2**20:,.0f} MiB free, and the results of this sweep "
            f"need {ROOM * nbytes / 2**20:,.0f}",
            "free some space, name another folder, or evaluate less often",
        )
        whole = {"format": FORMAT, "digest": NO_DIGEST, **about}
        text = json.dumps(whole, indent=1, default=str).encode()
        try:
            replace(self.manifest, lambda file: file.write(sealed(text, DIGEST)), new=True)
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
        content: Any = {OWNER: np.array(json.dumps(chunk)), **found}
        replace(self.chunk(index), lambda file: np.savez_compressed(file, **content))
        self.forget(index)

    def read(self, index: int, chunk: Chunk) -> Arrays | None:
        """A finished chunk; None if it is missing, damaged, or another one."""
        if self.folder is None:
            return self.memory.get(index)
        try:
            found = arrays(self.chunk(index), self.most)
            return found if found.pop(OWNER).item() == json.dumps(chunk) else None
        except Exception:
            return None

    # --- checkpoints of chunks -------------------------------------------------------------------

    def checkpoint(self, index: int) -> Path:
        return self.chunk(index).with_suffix(".checkpoint.npz")

    def save(self, index: int, chunk: Chunk, runs: Runs) -> None:
        """Write state and log of the runs of an unfinished chunk."""
        checkpoint.put(self.checkpoint(index), runs, {"owner": _owner(chunk)})

    def saved(self, index: int, chunk: Chunk, shape: State, where: Any) -> tuple[State, Log] | None:
        """What :meth:`save` wrote; None if it is missing, damaged, of another chunk, shape or version."""
        if self.folder is None:
            return None
        path = self.checkpoint(index)
        try:
            found, about = checkpoint.take(path)
            if about["owner"] != _owner(chunk):
                return None
            log = checkpoint.log_of(path, found, about)
            return checkpoint.state_of(found, about, shape, where), log
        except Exception:
            return None

    def forget(self, index: int) -> None:
        """Remove the checkpoint of a finished chunk."""
        if self.folder is not None:
            self.checkpoint(index).unlink(missing_ok=True)


def _owner(chunk: Chunk) -> str:
    """The chunk, and the versions that go on with it bit for bit."""
    return json.dumps([chunk, __version__, jax.__version__])


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
