"""The folder of a sweep: its manifest, one file per finished chunk, checkpoints of unfinished ones.

Files are written atomically, so that a sweep killed at any instant leaves whole files only.  One process
at a time writes in a folder; a second one raises an error.
"""

from __future__ import annotations

import contextlib
import hashlib
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
    locked,
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
VERSIONS = (__version__, jax.__version__)  # that continue a checkpoint bit for bit
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
        text = json.dumps(about, default=str)
        self.name = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.enter_context(locked(self.folder))
        whole = {"format": FORMAT, "digest": NO_DIGEST, "name": self.name, **about}
        text = json.dumps(whole, indent=1, default=str)
        try:
            replace(self.manifest, lambda file: file.write(sealed(text.encode(), DIGEST)), new=True)
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

    def save(self, index: int, chunk: Chunk, runs: Runs) -> None:
        """Write state and log of the runs of an unfinished chunk."""
        checkpoint.put(self.checkpoint(index), runs, {"owner": self._owner(chunk, *VERSIONS)})

    def saved(self, index: int, chunk: Chunk, shape: State, where: Any) -> tuple[State, Log] | None:
        """What :meth:`save` wrote; None if it is missing, damaged, of another chunk, shape or version."""
        if self.folder is None:
            return None
        path = self.checkpoint(index)
        try:
            found, about = checkpoint.take(path)
            if about["owner"] != self._owner(chunk, *VERSIONS):
                return None
            log = checkpoint.log_of(path, found, about)
            return checkpoint.state_of(found, about, shape, where), log
        except Exception:
            return None

    def forget(self, index: int) -> None:
        """Remove the checkpoint of a finished chunk."""
        if self.folder is not None:
            self.checkpoint(index).unlink(missing_ok=True)

    def _owner(self, chunk: Chunk, *words: str) -> str:
        """The chunk and its sweep, and versions or a digest; in the first manifests the chunk alone."""
        return json.dumps([chunk, *words, self.name] if self.name else chunk)


def _digest(found: Arrays) -> str:
    out = hashlib.sha256()
    for name, array in sorted(found.items()):
        out.update(f"{name} {array.dtype} {array.shape}".encode())
        out.update(np.ascontiguousarray(array).data)
    return out.hexdigest()


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
