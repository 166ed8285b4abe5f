"""Public files: the folders they may lie in, their hosts, and the checks of their content."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tempfile
import zlib
from pathlib import Path
from typing import NamedTuple

from jaxfl.core.errors import InputError, require
from jaxfl.core.files import reading

__all__ = ["FILES", "Source", "find_directory", "read"]

# Seconds to connect, and to wait for the next bytes: a machine without network must say so soon.
TIMEOUT = (3.0, 20.0)
MOST = 1 << 28  # bytes of a file, uncompressed

# sha256 of the uncompressed content of each file, by its hosts
PUBLISHED = {
    ("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/",): {
        "a9a": "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
        "a9a.t": "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
        "mushrooms": "f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538",
    },
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ): {
        "train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    ("https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",): {
        "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    },
    ("https://www.cs.toronto.edu/~kriz/",): {
        "cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        "cifar-100-binary.tar.gz": "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    },
}


class Source(NamedTuple):
    """A public file; ``sha256`` is that of its uncompressed content, of an archive as it is packed."""

    name: str
    sha256: str
    hosts: tuple[str, ...]

    @property
    def archive(self) -> bool:
        return self.name.endswith(".tar.gz")


FILES = {
    name: Source(name, sha256, hosts)
    for hosts, files in PUBLISHED.items()
    for name, sha256 in files.items()
}


def read(
    name: str, directory: str | os.PathLike[str] | None = None, *, download: bool = True
) -> bytes:
    """The uncompressed, checked content of one of `FILES`.

    Looked for in ``directory`` (default: the environment variable ``JAXFL_DATA``), then in the
    per-user cache, then at its public address, from which it goes to the cache.  Gzipped files may
    also lie there unpacked, without the ``.gz``.
    """
    source = FILES[name]
    own, cache = find_directory(directory), _cache()
    for place in (own, cache):
        for file in (name,) if source.archive else (name, name.removesuffix(".gz")):
            if place is not None and (path := place / file).is_file():
                fix = "delete it and load again" if place == cache else "replace or delete it"
                return _checked(source, path, fix)
    reason = _download(source, cache) if download else "downloads are switched off"
    if not reason:
        return _checked(source, cache / name, "delete it and load again")
    seen = f"{own} or {cache}" if own else f"{cache} (and JAXFL_DATA is not set)"
    raise InputError(
        f"Data file {name!r} is not in {seen} and was not downloaded ({reason})",
        f"fetch {source.hosts[0]}{name}, put it into a directory, and set JAXFL_DATA to that directory",
    )


def find_directory(directory: str | os.PathLike[str] | None = None) -> Path | None:
    """The user's data directory, if one is named."""
    given = os.environ.get("JAXFL_DATA") if directory is None else directory
    if not given:
        return None
    path = Path(os.path.expanduser(given))
    origin = "JAXFL_DATA" if directory is None else "The data directory"
    wrong = f"{origin} is {str(given)!r}, which is not a directory"
    require(path.is_dir(), wrong, "create or correct it")
    return path


def _cache() -> Path:
    import pooch

    return Path(pooch.os_cache("jaxfl"))


def _checked(source: Source, path: Path, fix: str) -> bytes:
    with reading(path, "data file"):
        content = path.read_bytes()
    problem, content = _verify(source, content)
    wrong = f"Data file {path} is not the published one: {problem}"
    require(not problem, wrong, lambda: f"{fix} (the original is {source.hosts[0]}{source.name})")
    return content


def _verify(source: Source, content: bytes) -> tuple[str, bytes]:
    """Check the content; return a description of the mismatch, if any, and the content uncompressed."""
    if source.archive and (other := _other(source, content, "")):
        return other, b""
    try:
        if content[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(content)) as packed:
                content = packed.read(MOST + 1)
    except (OSError, EOFError, zlib.error):
        return f"it is a damaged gzip file, where sha256 {source.sha256} was expected", b""
    if len(content) > MOST:
        return f"it has more than {MOST:,} bytes (uncompressed)", b""
    if not source.archive and (other := _other(source, content, "(uncompressed) ")):
        return other, b""
    return "", content


def _other(source: Source, content: bytes, which: str) -> str:
    actual = hashlib.sha256(content).hexdigest()
    return "" if actual == source.sha256 else f"its {which}sha256 is {actual}, not {source.sha256}"


def _fetch(url: str, path: str) -> None:
    """Download one address to one path; replaced in tests."""
    import pooch

    pooch.HTTPDownloader(timeout=TIMEOUT)(url, path, None)


def _download(source: Source, cache: Path) -> str:
    """Put the file into the cache; the reason why not, or an empty string.

    Only checked content enters the cache, by one atomic rename.  Neither an interruption nor two
    processes at once leave a broken file behind.
    """
    reason = ""
    for host in source.hosts:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache, prefix=".partial-") as folder:
                path = Path(folder) / source.name
                _fetch(host + source.name, str(path))
                reason, _ = _verify(source, path.read_bytes())
                if not reason:
                    os.replace(path, cache / source.name)
                    return ""
        except (OSError, ValueError) as error:  # requests' errors are OSErrors
            reason = type(error).__name__
    return reason
