"""`--import FILE`: Python code of the user's own, which registers algorithms, models, data sets and parts.

It runs before the command line is parsed, since what it registers has names and options.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from jaxfl.algorithms.registry import TABLES
from jaxfl.cli.parser import Parser
from jaxfl.core.calls import blamed, described
from jaxfl.core.errors import InputError, one_line, printable, require, within
from jaxfl.core.files import reading
from jaxfl.core.foreign import importing
from jaxfl.core.types import Aggregation, Algorithm, Compressor, Participation, Sampler

__all__ = ["CONFIG", "begun_with", "check_begun", "file_of", "imported", "record"]

MADE: dict[str, type] = {
    "algorithm": Algorithm,
    "compressor": Compressor,
    "sampler": Sampler,
    "participation": Participation,
    "aggregation": Aggregation,
}
CONFIG = "config.json"
LOADED: dict[str, str] = {}  # the digest of each imported file
# what each file registers and cannot be made, by name
BROKEN: dict[str, dict[str, InputError]] = {}


def imported(words: Sequence[str]) -> list[str]:
    """The words of a command without ``--import``; runs the files that they and ``--config`` name.

    What a file registers and cannot be made is reported, and left out; an error where a word asks for it.
    A folder that is continued names the files with which it was begun: they have to be named again, since
    whoever wrote the folder may not be who runs the command.
    """
    own = Parser()
    own.add_argument("--import", dest="files", action="append", default=[])
    found, rest = own.parse_known_args(words)
    for name in ("--config", "--resume", "--extend"):
        own.add_argument(name)
    named = own.parse_known_args(words)[0]
    asked = {name for word in words for name in re.split("[=+:]", word)}
    for file in (*_configured(named.config), *found.files):
        _run(path := Path(file).resolve())
        for name, error in BROKEN.get(str(path), {}).items():
            if name in asked:
                raise error
            lines = (f"jaxfl: {error} It is left out.", *(f"  {line}" for line in error.lines))
            print(*map(printable, lines), sep="\n", file=sys.stderr)
    for folder in filter(None, (named.resume, named.extend)):
        check_begun(Path(folder))
    return list(rest)


def record() -> dict[str, Any]:
    """The entry of ``config.json`` about the imported files: their paths and digests."""
    files = [{"file": file, "digest": digest} for file, digest in LOADED.items()]
    return {"imports": files} if files else {}


def file_of(make: Callable[..., Any]) -> str:
    """The name of the imported file that a function is from, or nothing."""
    module = sys.modules.get(getattr(make, "__module__", ""))
    file = str(getattr(module, "__file__", ""))
    return Path(file).name if file in LOADED else ""


def _configured(file: str | None) -> Iterator[str]:
    """The files that a TOML file names; what else is wrong with it, its own reader says."""
    try:
        names = tomllib.loads(Path(str(file)).read_text("utf-8")).get("import", [])
    except (OSError, ValueError):
        return
    yield from map(str, names if isinstance(names, list) else [names])


def begun_with(folder: Path) -> list[tuple[str, str]]:
    """The files with which a folder was begun, and their digests."""
    try:
        entries = json.loads((folder / CONFIG).read_text("utf-8"))["imports"]
        return [(str(entry["file"]), str(entry["digest"])) for entry in entries]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return []  # none, or a file that others refuse


def check_begun(folder: Path) -> None:
    """Raise unless the files with which a folder was begun have been imported, and are the same."""
    pairs = begun_with(folder)
    lost = [file for file, digest in pairs if not {file, digest} & {*LOADED, *LOADED.values()}]
    require(
        not lost,
        lambda: f"{folder} was begun with the Python file {' and '.join(lost)}",
        lambda: (
            f"to have what it registers, give --import {' --import '.join(lost)}, or where it is now"
        ),
    )
    for file, digest in pairs:
        changed = f"{file} has changed since {folder} was begun with it"
        require(
            LOADED.get(file, digest) == digest,
            changed,
            "restore it, or start over in another folder",
        )


def _run(file: Path) -> None:
    """Import a file, once in a process; its functions go to workers by value."""
    with reading(file, "Python file", "name another file with --import"):
        content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if str(file) in LOADED:
        changed = f"{file} has changed since it was imported"
        require(LOADED[str(file)] == digest, changed, "start another process")
        return
    name = file.stem if file.stem not in sys.modules else f"imported_{file.stem}"
    spec = importlib.util.spec_from_loader(name, None, origin=str(file))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(file)
    earlier = {kind: {**table} for kind, table in TABLES.items()}
    sys.modules[name] = module
    LOADED[str(file)] = digest  # while it runs, registered functions are from it
    try:
        with importing(file.parent) as found:
            exec(compile(content, str(file), "exec"), module.__dict__)
            _check(file, earlier)
    except (Exception, SystemExit) as error:
        del sys.modules[name], LOADED[str(file)]
        for kind, table in earlier.items():
            TABLES[kind].clear()
            TABLES[kind].update(table)
        if isinstance(error, InputError):
            raise error.within(str(file)) from None
        raise InputError(f"{file}, line {_line(file, error)}: {one_line(error)}") from error
    for each in (module, *found):
        cloudpickle.register_pickle_by_value(each)
        path = Path(str(each.__file__))
        LOADED.setdefault(str(path), hashlib.sha256(path.read_bytes()).hexdigest())


def _check(file: Path, earlier: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise unless what the file registers is new, and leave out what is not of its kind.

    Models and data wait for arguments.
    """
    for kind, table in TABLES.items():
        for name, make in [*table.items()]:  # a function may import a file that registers more
            if (before := earlier[kind].get(name, make)) is not make:
                again = f"{file.name} registers the {kind} {name!r}, and so does"
                raise InputError(
                    f"{again} {file_of(before) or 'other code'}", "rename one of the two"
                )
            if file_of(make) == file.name and kind in MADE:
                try:
                    with within(f"The {kind} {name!r}"), blamed("it", make):
                        found = make()
                    way = f"make it return {MADE[kind].__name__}(...)"
                    other = f"The {kind} {name} is {described(found)}"
                    require(isinstance(found, MADE[kind]), other, way)
                except InputError as error:
                    BROKEN.setdefault(str(file), {})[name] = error.within(str(file))
                    del table[name]


def _line(file: Path, error: BaseException) -> int:
    """The line of the file in which an error arose."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.lineno or 0 for f in reversed(frames) if f.filename == str(file)), 0)
