"""Reading files with readable errors, and replacing them atomically."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxfl.core.errors import InputError, one_line, require

__all__ = ["check_format", "reading", "replace", "writable"]


@contextlib.contextmanager
def reading(path: Path, what: str, remedy: str = "") -> Iterator[None]:
    """Turn any exception while ``path`` is read as ``what`` into an :class:`InputError`."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"There is no {path}, and so no {what}", remedy) from None
    except OSError as error:
        raise InputError(f"Cannot read {path}", str(error.strerror or error)) from None
    except Exception as error:
        why = f"{path} is damaged, or no {what} ({one_line(error)})"
        raise InputError(why, remedy) from None


def check_format(path: Path, what: str, found: Any, read: int) -> None:
    """Raise if another version of this package wrote the file."""
    require(
        found == read,
        f"{path} has {what} format {found}, and this version reads {read}",
        "read it with the version that wrote it",
    )


def writable(path: Path, what: str) -> None:
    """Raise unless the file can be written; call this before a long computation."""
    require(not path.is_dir(), f"Cannot write {path}", f"it is a folder, and a {what} is a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe = _beside(path)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise InputError(f"Cannot write {path}", str(error.strerror or error)) from None


def replace(path: Path, content: Any, new: bool = False) -> None:
    """Write ``path`` atomically by ``content(file)``: readers see the old file or the new one.

    Of several writers at once the last one wins; with ``new`` the first one does, and the others get
    a ``FileExistsError``.
    """
    part = _beside(path)
    try:
        with open(part, "xb") as file:
            content(file)
            file.flush()
            os.fsync(file.fileno())
        if not new or not _link(part, path):
            os.replace(part, path)
        _sync(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise InputError(
            f"Cannot write {path}", f"{error.strerror or error}; what was there before is untouched"
        ) from None
    finally:  # also after an interrupt
        with contextlib.suppress(OSError):
            part.unlink()


def _beside(path: Path) -> Path:
    """A unique temporary name in the same folder."""
    return path.with_name(f".{path.name[:200]}.{secrets.token_hex(6)}.part")


def _link(part: Path, path: Path) -> bool:
    """Link ``path`` to ``part`` unless it exists; False on file systems without links."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:
        if path.exists():
            raise FileExistsError(path) from None
        return False
    return True


def _sync(folder: Path) -> None:
    """Sync the new name to disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
