"""The folder of a sweep: what it is, and one file per finished chunk.

Chunks are written beside their place, synced and renamed, so that a sweep killed at any instant has
whole files only.  Compressed `npz` rather than an array store: chunks are small, and one file each
is what resuming needs.  Two processes may go on with one sweep at once: both compute the same
chunks from one manifest, and each file is whole whoever wrote it last.  Of two that begin one at once,
the second is refused.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl.checkpoint import replace, writable
from jaxfl.errors import InputError
from jaxfl.sweeps.plan import Chunk

__all__ = ["MANIFEST", "RESULT", "Arrays", "Store"]

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
FORMAT = 1
MANIFEST = "sweep.json"
RESULT = "result.nc"
WHOSE = "chunk.json"  # no metric's name has a dot
_TAKEN = "{} holds a sweep already: go on with it (resume), or name another folder."
ROOM = 2  # times what is predicted: chunks and the result that they are merged into


class Store:
    """Chunks on disk, or with ``folder`` None in memory."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.memory: dict[int, Arrays] = {}

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
        """What an earlier call left here; refused unless it is to be gone on with."""
        if self.folder is None:
            if resume:
                raise InputError("resume = True needs out=, the folder of the sweep to go on with.")
            return None
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file: a sweep needs a folder.")
        if resume:
            return read_manifest(self.folder)
        if self.manifest.exists():
            raise InputError(_TAKEN.format(self.folder))
        for old in (self.result, *self.chunk(0).parent.glob("chunk-*.npz")):
            if old.exists():
                raise InputError(f"{old} exists already: name another folder, or remove it.")
        return None

    def begin(self, about: Mapping[str, Any], nbytes: int) -> None:
        """Write the manifest, after making sure that the results will find room."""
        if self.folder is None:
            return
        writable(self.manifest)
        writable(self.chunk(0))
        free = shutil.disk_usage(self.folder).free
        if ROOM * nbytes > free:
            raise InputError(
                f"{self.folder} has {free / 2**20:,.0f} MiB free, and the results of this sweep need "
                f"{ROOM * nbytes / 2**20:,.0f}: free some space, name another folder, or evaluate "
                "less often."
            )
        text = json.dumps({"format": FORMAT, **about}, indent=1, default=str).encode()
        try:
            replace(self.manifest, lambda file: file.write(text), new=True)
        except FileExistsError:  # since :meth:`claim`, while programs were compiled
            raise InputError(_TAKEN.format(self.folder)) from None

    # --- chunks ----------------------------------------------------------------------------------

    def write(self, index: int, chunk: Chunk, arrays: Arrays) -> None:
        if self.folder is None:
            self.memory[index] = arrays
            return
        content: Any = {WHOSE: np.array(json.dumps(chunk)), **arrays}
        replace(self.chunk(index), lambda file: np.savez_compressed(file, **content))

    def read(self, index: int, chunk: Chunk) -> Arrays | None:
        """A finished chunk; None if there is none, it is damaged, or not this one."""
        if self.folder is None:
            return self.memory.get(index)
        try:
            with open(self.chunk(index), "rb") as held, np.load(held, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            return arrays if arrays.pop(WHOSE).item() == json.dumps(chunk) else None
        except Exception:
            return None


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a sweep's folder says of it."""
    try:
        about: dict[str, Any] = json.loads((folder / MANIFEST).read_text("utf-8"))
        form = about["format"]
    except FileNotFoundError:
        raise InputError(
            f"{folder} holds no {MANIFEST}, so there is no sweep to go on with."
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{folder / MANIFEST} is damaged: start anew in another folder.") from None
    if form != FORMAT:
        raise InputError(f"{folder} has sweep format {form}, and this version reads {FORMAT}.")
    return about
