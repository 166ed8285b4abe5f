"""The folder of a run or a sweep: ``config.json``, which --resume and --extend read."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import shutil
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path

from jaxfl.cli.imports import CONFIG, begun_with, record
from jaxfl.cli.options import Study
from jaxfl.cli.parser import parse
from jaxfl.cli.written import command
from jaxfl.core.checks import conforms
from jaxfl.core.errors import InputError, require, within
from jaxfl.core.files import locked, reading, replace
from jaxfl.core.version import __version__
from jaxfl.engine.results import RESULT
from jaxfl.engine.store import PLANNED, refuse_older

__all__ = [
    "CURVES",
    "PICTURES",
    "again",
    "begun",
    "check_free",
    "cleared",
    "extended",
    "kind_of",
    "read",
    "written",
]

PICTURES = "pictures"  # of a sweep
CURVES = "curves.png"  # of a run


def read(folder: Path, name: str) -> Study:
    """Read the study that the command of that name began in a folder."""
    if folder.is_dir():
        refuse_older(folder)
    file = folder / CONFIG
    ours = file.exists() or not any((folder / made).exists() for made in (PLANNED, RESULT))
    way = (
        "repeat the call with resume=True, and ask run.privacy().card() and run.spent([50]), or of a "
        "setting of a sweep jaxfl.functions(algorithm, problem, rounds, ...).privacy(50)"
    )
    require(ours, lambda: f"{folder} was made in Python, and is read there", way)
    with reading(file, "run or sweep of this version of jaxfl", "name the folder of one"):
        about = json.loads(file.read_text("utf-8"))
        conforms(CONFIG, about, {"command": str, "words": [str], "assumed": {str: str}})
    other = about["command"]
    way = f"continue with {again(other, folder)}"
    require(other == name, lambda: f"{folder} holds a {other}, and no {name}", way)
    with within(str(file)):
        study, _ = parse(name, about["words"])
    return dataclasses.replace(study, assumed=about["assumed"])


def kind_of(folder: Path) -> str:
    """The command that has begun something in a folder; empty where none has."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        return str(json.loads((folder / CONFIG).read_text("utf-8"))["command"])
    return ""


def again(name: str, folder: Path) -> str:
    """The command that continues a folder, with the files of the user's own with which it was begun."""
    files = itertools.chain(*(("--import", file) for file, _ in begun_with(folder)))
    return command(name, *files, "--resume", folder)


def begun(folder: Path) -> bool:
    """Whether there is a plan: what was killed before begins anew."""
    return (folder / PLANNED).exists()


def extended(folder: Path, sizes: Mapping[Hashable, int]) -> bool:
    """Whether more values or seeds are planned than a result has, by the sizes of its dimensions."""
    with (folder / PLANNED).open(encoding="utf-8") as lines:
        axes = json.loads(next(lines))["axes"]
    return any(
        len(values) > sizes.get("seed" if name == "seeds" else name, 1)
        for name, values in axes.items()
    )


def check_free(folder: Path, name: str) -> None:
    """Raise for a folder of something else; the engine compares what both call the same."""
    if folder.is_dir():
        refuse_older(folder)
    kind, other = kind_of(folder), "name another folder with --out"
    ours = kind == name or not (folder / CONFIG).exists()
    require(ours, lambda: f"{folder} holds {f'a {kind}' if kind else f'another {CONFIG}'}", other)


def cleared(folder: Path) -> None:
    """Remove the run in a folder, and nothing else."""
    if kind_of(folder) == "run":
        with locked(folder):
            shutil.rmtree(folder / "chunks", ignore_errors=True)
            for name in (PLANNED, RESULT, CURVES, CONFIG):
                (folder / name).unlink(missing_ok=True)


@contextlib.contextmanager
def written(folder: Path, name: str, study: Study) -> Iterator[Callable[[], None]]:
    """A function that writes ``config.json``, once the folder is held.

    A new one goes again, with its folder, unless the plan of the study is written too.  After a mistake the
    plan goes with it, if nothing is computed; where a disk was full, the command may go on later.
    """
    fresh = [place for place in (folder, *folder.parents) if not place.exists()]
    new: list[Path] = []

    def write() -> None:
        new.extend(file for file in [folder / CONFIG] if not file.exists())
        about = {"jaxfl": __version__, **record(), "command": name, "words": study.words}
        text = json.dumps({**about, "assumed": study.assumed}, indent=2) + "\n"
        replace(folder / CONFIG, lambda file: file.write(text.encode()))

    try:
        yield write
    except InputError as error:
        mistake = not isinstance(error.__context__, OSError)  # a disk, say, was full
        if new and mistake and not any((folder / "chunks").glob("*.npz")):
            (folder / PLANNED).unlink(missing_ok=True)
        raise
    finally:
        if not begun(folder):
            for file in new:
                file.unlink(missing_ok=True)
            for place in (folder / "chunks", *fresh):
                with contextlib.suppress(OSError):  # other files are in it, or it is not there
                    place.rmdir()
