"""Reading files with readable errors, digests of their contents, and replacing them atomically."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import re
import secrets
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import InputError, one_line, require

try:
    import fcntl
except ImportError:  # on Windows the files of killed writers stay
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "NO_DIGEST",
    "arrays",
    "check_digest",
    "check_format",
    "locked",
    "reading",
    "replace",
    "sealed",
    "writable",
]

NO_DIGEST = "0" * 64  # in the place of a digest while it is computed

LOCK = ".lock"  # in a folder while a process writes there
END = 22  # bytes of the last record of a zip file, which has the number of the others
PART = re.compile(r"\..+\.[0-9a-f]{12}\.part")  # what :func:`_unique` returns


@contextlib.contextmanager
def reading(path: Path, what: str, remedy: str = "") -> Iterator[None]:
    """Turn any exception while ``path`` is read as ``what`` into an :class:`InputError`."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"Cannot read {path}", "it is not a file")
        yield
    except (InputError, MemoryError):
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} does not exist, so there is no {what}", remedy) from None
    except OSError as error:
        raise InputError(f"Cannot read {path}", str(error.strerror or error)) from None
    except Exception as error:
        why = f"{path} is damaged, or not a {what} ({one_line(error)})"
        raise InputError(why, remedy) from None


def check_format(path: Path, what: str, found: Any, read: int) -> None:
    """Raise if another version of this package wrote the file."""
    require(
        found == read,
        lambda: f"{path} has {what} format {found}, and this version reads {read}",
        "read it with the version that wrote it",
    )


def arrays(path: Path | BinaryIO, most: int) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an npz file; nothing is unpacked if they declare more than ``most`` bytes."""
    out = {}
    with zipfile.ZipFile(path) as file:
        assert file.fp is not None
        file.fp.seek(-END, os.SEEK_END)
        end = file.fp.read()
        if end[:4] != b"PK\5\6" or int.from_bytes(end[10:12], "little") != len(file.infolist()):
            raise ValueError("its list of arrays is incomplete")
        size = sum(part.file_size for part in file.infolist())
        if size > most:
            raise ValueError(
                f"it would unpack to {size:,} bytes, more than the {most:,} of any such file"
            )
        for part in file.infolist():
            with file.open(part) as content:
                _check_header(content, part.file_size)
            with file.open(part) as content:  # to its end, where its checksum is compared
                array = np.lib.format.read_array(content, allow_pickle=False)
            out[part.filename.removesuffix(".npy")] = array
    return out


def _check_header(content: Any, size: int) -> None:
    """Raise unless the array that an npy file declares is as large as the file."""
    version = np.lib.format.read_magic(content)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, _, dtype = read(content)
    if math.prod(shape) * dtype.itemsize != size - content.tell():
        raise ValueError(f"an array of shape {shape} has {size:,} bytes")


def sealed(content: bytes, mark: bytes) -> bytes:
    """Return ``content`` with its digest written over the zeros that follow ``mark``."""
    at = content.index(mark + NO_DIGEST.encode()) + len(mark)
    return content[:at] + _digest(content, at) + content[at + len(NO_DIGEST) :]


def check_digest(path: Path, content: bytes, mark: bytes, remedy: str, **how: Any) -> None:
    """Raise unless ``content`` is what :func:`sealed` returned; digests do not guard against forgery."""
    at = content.find(mark) + len(mark)
    none = f"{path} has no digest of its contents, as files of earlier versions or other programs"
    require(mark in content, lambda: f"{none}, or is damaged", remedy, **how)
    intact = content[at : at + len(NO_DIGEST)] == _digest(content, at)
    require(intact, lambda: f"{path} is damaged or cut short", remedy, **how)


def _digest(content: bytes, at: int) -> bytes:
    """The digest of ``content`` with zeros in the place ``at`` of the digest itself."""
    found = hashlib.sha256(content[:at] + NO_DIGEST.encode())
    found.update(memoryview(content)[at + len(NO_DIGEST) :])
    return found.hexdigest().encode()


def writable(path: Path, what: str) -> None:
    """Raise unless the file can be written; call this before a long computation."""
    require(
        not path.is_dir(),
        lambda: f"Cannot write {path}",
        lambda: f"it is a folder, and a {what} is a file",
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe, file = _begun(path)
        file.close()
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"Cannot write {path}", str(error.strerror or error)) from None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an existing folder against other processes; the end of this one frees it, even a kill.

    Nothing is held where the system has no locks, or the folder cannot be written.
    """
    path = folder / LOCK
    with contextlib.ExitStack() as stack:
        while fcntl is not None:
            try:
                file = stack.enter_context(open(path, "a+", encoding="utf-8"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                who = file.read() or "another process"
                raise InputError(f"{folder} is in use by {who}", "wait until it ends") from None
            except OSError:
                break
            with contextlib.suppress(FileNotFoundError):  # removed by its last owner: once more
                if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
                    stack.callback(path.unlink, missing_ok=True)
                    print(
                        f"process {os.getpid()} on {platform.node()}", file=file, end="", flush=True
                    )
                    break
        yield


def replace(path: Path, content: Any, new: bool = False) -> None:
    """Write ``path`` atomically by ``content(file)``: readers see the old file or the new one.

    Of several writers at once the last one wins; with ``new`` the first one does, and the others get
    a ``FileExistsError``.
    """
    part: Path | None = None
    try:
        _remove_parts(path.parent)
        part, file = _begun(path)
        with file:
            content(file)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # open files cannot be renamed there
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
        if part is not None:
            with contextlib.suppress(OSError):
                part.unlink()


def _unique(path: Path) -> Path:
    """A unique temporary name in the same folder."""
    return path.with_name(f".{path.name[:200]}.{secrets.token_hex(6)}.part")


def _begun(path: Path) -> tuple[Path, BinaryIO]:
    """A new temporary file in the same folder, locked until it is closed or its writer dies."""
    while True:
        part = _unique(path)
        file = open(part, "xb")  # noqa: SIM115 -- the caller closes it
        if fcntl is not None:
            with contextlib.suppress(OSError):  # some network file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
        if part.exists():
            return part, file
        file.close()  # another writer removed it before it was locked


def _remove_parts(folder: Path) -> None:
    """Remove the temporary files of killed writers; living ones hold a lock on theirs."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        parts = [name for name in os.listdir(folder) if PART.fullmatch(name)]
        for part in (folder / name for name in parts):
            with contextlib.suppress(OSError), open(part, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()


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
