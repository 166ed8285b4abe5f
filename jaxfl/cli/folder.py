"""The folder of a run or a sweep: ``config.json``, which --resume and --extend read."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxfl.cli.imports import record
from jaxfl.cli.options import Study
from jaxfl.cli.written import command
from jaxfl.core.checks import conforms
from jaxfl.core.errors import InputError, require
from jaxfl.core.files import locked, reading, replace
from jaxfl.core.version import __version__
from jaxfl.engine.results import RESULT
from jaxfl.engine.store import PLANNED, refuse_older

__all__ = ["CONFIG", "PICTURES", "again", "begun", "cleared", "kind_of", "read", "written"]

CONFIG = "config.json"
PICTURES = "pictures"  # of a sweep
CURVES = "curves.png"  # of a run
OWN = (PLANNED, RESULT, "chunks", CURVES, CONFIG)  # files of a run


def read(folder: Path, name: str) -> Study:
    """What was begun in a folder by the command of that name."""
    if folder.is_dir():
        refuse_older(folder)
    file = folder / CONFIG
    with reading(file, "run or sweep of this version of jaxfl", "name the folder of one"):
        about = json.loads(file.read_text("utf-8"))
        conforms(CONFIG, about, {"command": str, "study": dict})
        study = Study.from_json(about["study"], file)
    other = about["command"]
    way = f"continue with {command(other, '--resume', folder)}"
    kinds = f"{folder} holds a {other}, and no {name}"
    require(other == name, kinds, way)
    return study


def kind_of(folder: Path) -> str:
    """The command that has begun something in a folder; empty where none has."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        return str(json.loads((folder / CONFIG).read_text("utf-8"))["command"])
    return ""


def begun(folder: Path) -> bool:
    """Whether there is a plan: what was killed before begins anew."""
    return (folder / PLANNED).exists()


def again(folder: Path, name: str, study: Study) -> bool:
    """Whether the same was begun there before; raise for anything else."""
    if not (folder / CONFIG).exists():
        return False
    if folder.is_dir():
        refuse_older(folder)
    ways = "name another folder with --out" + ", or replace it with --force" * (name == "run")
    other = kind_of(folder)
    require(other, lambda: f"{folder} holds a {CONFIG} already", "name another folder with --out")
    if not begun(folder):
        return False
    require(other == name, lambda: f"{folder} holds a {other}", "name another folder with --out")
    try:
        there = read(folder, name)
    except InputError:
        there = None
    if there == study:
        return True
    for what, old, new in _differences(there, study) if there else ():
        words = f"{folder} holds a {name} with {what} {old}, not {new}"
        raise InputError(words, ways)
    raise InputError(f"{folder} holds another {name}", ways)


def _differences(old: Study, new: Study) -> Iterator[tuple[str, str, str]]:
    for group in ("options", "numbers"):
        one, other = getattr(old, group), getattr(new, group)
        for name in sorted({*one, *other}):
            if one.get(name) != other.get(name):
                yield f"--{name.replace('_', '-')}", _shown(one.get(name)), _shown(other.get(name))
    if old.seeds != new.seeds:
        yield "--seed", _shown(old.seeds), _shown(new.seeds)
    if old.algorithms != new.algorithms:
        yield "ALGORITHM", _shown(old.algorithms), _shown(new.algorithms)


def _shown(values: Any) -> str:
    return "left to its default" if values is None else " ".join(map(str, values))


def cleared(folder: Path) -> None:
    """Remove the run in a folder, and nothing else."""
    if kind_of(folder) == "run" or not (folder / CONFIG).exists():
        with locked(folder) if folder.is_dir() else contextlib.nullcontext():
            for place in (folder / name for name in OWN):
                if place.is_dir() and not place.is_symlink():
                    shutil.rmtree(place)
                else:
                    place.unlink(missing_ok=True)


@contextlib.contextmanager
def written(folder: Path, name: str, study: Study) -> Iterator[Callable[[], None]]:
    """A function that writes ``config.json``, once the folder is held.

    What it writes is undone unless the plan of the study is written too.
    """
    config = folder / CONFIG
    fresh = [place for place in (folder, *folder.parents) if not place.exists()]
    before: list[tuple[bytes | None, bytes | None]] = []

    def write() -> None:
        before.append((_bytes(config), _bytes(folder / PLANNED)))
        about = {"jaxfl": __version__, **record(), "command": name}
        whole = {**about, "study": dataclasses.asdict(study)}
        text = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
        replace(config, lambda file: file.write(text.encode()))

    try:
        yield write
    except BaseException:
        for content, plan in before[-1:]:
            if _bytes(folder / PLANNED) == plan:
                if content is None:
                    config.unlink(missing_ok=True)
                else:
                    replace(config, lambda file: file.write(content))
        raise
    finally:
        if not begun(folder):
            for place in (folder / "chunks", *fresh):
                with contextlib.suppress(OSError):  # other files are in it, or it is not there
                    place.rmdir()


def _bytes(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None
