"""Compiled programs that are kept between processes."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

__all__ = ["bound", "keep_programs"]

SHORT = 0.2  # seconds of compilation below which no file is written
ROOM = 1 << 30  # bytes of compiled programs that are kept


def keep_programs() -> None:
    """Cache compiled programs in the user's cache folder, unless JAX is configured otherwise.

    The oldest are removed where they take more than a gigabyte.  JAX_ENABLE_COMPILATION_CACHE=0 turns the
    cache off, JAX_COMPILATION_CACHE_DIR names another folder, which is left as it is.
    """
    now = jax.config.values
    if not now["jax_enable_compilation_cache"] or now["jax_compilation_cache_dir"] is not None:
        return
    import pooch

    folder = Path(pooch.os_cache("jaxfl")) / f"programs-{platform.node()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        bound(folder, ROOM)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORT)
        compilation_cache.reset_cache()  # which may have found that there is none


def bound(folder: Path, room: int) -> None:
    """Remove the files of a folder that were read longest ago, until the others take ``room`` bytes."""
    with contextlib.suppress(OSError):
        files = [(file.stat(), file.path) for file in os.scandir(folder) if file.is_file()]
        left = sum(stat.st_size for stat, _ in files)
        for stat, path in sorted(files, key=lambda one: max(one[0].st_atime, one[0].st_mtime)):
            if left <= room:
                return
            os.unlink(path)
            left -= stat.st_size
