"""The folder of a run: its files, its configuration, and when it may be written to."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from jaxfl.cli.imports import record
from jaxfl.cli.options import LIMITS, Session, Setup, options
from jaxfl.cli.written import command, flag
from jaxfl.core.checks import conforms
from jaxfl.core.errors import InputError, require
from jaxfl.core.files import reading, replace, writable
from jaxfl.core.version import __version__
from jaxfl.engine.results import RESULT
from jaxfl.engine.sweeps.store import MANIFEST

__all__ = ["CHECKPOINT", "CONFIG", "Folder", "aside", "of_sweep", "write_config"]

CONFIG = "config.json"
CHECKPOINT = "checkpoint.npz"
FIELDS = {"setup": dict, "assumed": {str: str}, "reached": int | None}


@dataclasses.dataclass
class Folder:
    """``setup`` reproduces the run; ``assumed`` maps each defaulted value to its source.

    A new run sets aside the files that it replaces, config.json first, as NAME.before, and removes them
    once it has saved something.  A run that was killed before it wrote its own config.json leaves
    none, and the next call restores the files.

    Files are written atomically.  Give each process its own folder: two processes with different setups
    do not notice each other until one of them has saved something.
    """

    path: Path
    setup: Setup
    assumed: dict[str, str] = dataclasses.field(default_factory=dict)
    reached: int | None = None  # the last round, once the run has ended
    fresh: bool = False  # whether this call begins the run
    ours: bool = False  # whether this call has written here
    lost: bool = False  # whether the run has ended and its result is missing; the checkpoint has it

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def result(self) -> Path:
        return self.path / RESULT

    @property
    def picture(self) -> Path:
        return self.path / "curves.png"

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    @property
    def products(self) -> list[Path]:
        """The files of a result that exist."""
        return [file for file in self.places if file.exists()]

    @property
    def places(self) -> tuple[Path, ...]:
        return self.result, self.checkpoint, self.picture

    @property
    def waiting(self) -> list[Path]:
        """The files that were set aside."""
        return [file for file in map(aside, (*self.places, self.config)) if file.exists()]

    # --- reading and writing config.json ---------------------------------------------------------

    @classmethod
    def read(cls, path: Path) -> Folder:
        """The folder of an earlier run."""
        way = f"continue with {command('sweep', '--resume', path)}"
        require(not of_sweep(path), lambda: f"{path} holds a sweep, and no run", way)
        file = path / CONFIG
        with reading(file, "run of this version of jaxfl", "name the folder of a `jaxfl run`"):
            about = json.loads(file.read_text("utf-8"))
            conforms(CONFIG, about, FIELDS)
            setup = Setup.from_json(about["setup"], file)
            return cls(path, setup, about["assumed"], about["reached"])

    def write(self) -> None:
        about = {
            "reached": self.reached,
            "assumed": self.assumed,
            "setup": dataclasses.asdict(self.setup),
        }
        write_config(self.config, about)

    # --- a new run -------------------------------------------------------------------------------

    def check_free(self, force: bool) -> None:
        """Raise if this run would replace another result; with ``force`` only if a sweep is in the way."""
        is_file = self.path.exists() and not self.path.is_dir()
        require(not is_file, lambda: f"{self.path} is a file", "name a folder with --out")
        require(
            not of_sweep(self.path),
            lambda: f"{self.path} holds a sweep, which no run replaces",
            "name another folder with --out",
        )
        self.recover()
        if force or not self.products:
            return
        ways_out = "name another folder with --out, or replace it with --force"
        if not self.config.exists():
            raise InputError(f"{self.path} holds {self.products[0].name} already", ways_out)
        old = Folder.read(self.path)
        for option, there, here in old.setup.differences(self.setup):
            raise InputError(
                f"{self.path} holds a run with {option} {_shown(there)}, not {_shown(here)}",
                ways_out,
            )
        require(
            old.reached is not None,
            lambda: f"{self.path} holds an unfinished run of this configuration",
            lambda: (
                f"continue with {command('run', '--resume', self.path)}, or start over with --force"
            ),
        )

    def begin(self) -> None:
        """Take the folder for a new run."""
        writable(self.config, CONFIG)
        if self.products:
            self.settle()  # what a killed run had set aside is older
        self.fresh = True
        self._take(self.config, *self.products)

    def go_on(self) -> None:
        """Take the folder for the continued run."""
        self.settle()
        self._take(self.config)

    def _take(self, *files: Path) -> None:
        try:
            for file in files:
                if file.exists() and not aside(file).exists():
                    os.replace(file, aside(file))
            self.reached, self.ours = None, True
            self.write()
        except BaseException:
            self.ours = False
            self._restore()
            raise

    def abandon(self) -> None:
        """Restore the folder, unless a new run has saved something."""
        if self.fresh and self.products:
            self.settle()
            return
        self._restore()
        if not self.config.exists():
            with contextlib.suppress(OSError):  # it holds other files
                self.path.rmdir()

    def recover(self) -> None:
        """Restore the files that a killed run had set aside before it wrote its own config.json."""
        if self.path.is_dir() and not self.config.exists():
            self._restore()

    def _restore(self) -> None:
        """Renaming needs no space on the disk."""
        self.config.unlink(missing_ok=True)
        for file in (*self.places, self.config):
            with contextlib.suppress(FileNotFoundError):
                os.replace(aside(file), file)

    def settle(self) -> None:
        """Remove the files that this run replaced, config.json last."""
        for file in self.waiting:
            file.unlink(missing_ok=True)

    # --- an earlier run --------------------------------------------------------------------------

    @classmethod
    def resume(cls, given: dict[str, Any], session: Session) -> Folder:
        """The folder of an earlier run, with the options changed that may change."""
        path = Path(session.resume or "")
        here = session.out is None or Path(session.out).resolve() == path.resolve()
        require(
            here,
            lambda: f"is not {path}, where --resume continues",
            "leave it out",
            out=session.out,
        )
        beside = f"--force does not go with --resume {path}"
        require(not session.force, beside, "leave it out, since nothing is replaced")
        require(
            given.get("rounds", 0) is not None,
            lambda: f"--rounds auto does not go with --resume {path}, whose rounds are fixed",
            "give a number, or leave it out",
        )
        cls(path, Setup()).recover()
        folder = cls.read(path)
        old, ended = folder.setup, folder.reached
        if ended is not None:  # a limit that was reached would end it again at once
            none: dict[str, Any] = dict.fromkeys(LIMITS)
            old = dataclasses.replace(old, **none)
        changed = {**given, "numbers": {**old.numbers, **given["numbers"]}}
        new = dataclasses.replace(old, **changed)
        later = {flag(name) for name, option in options(Setup).items() if option.later}
        for option, here, there in new.differences(old):
            require(
                option in later,
                lambda: (
                    f"{option} {_shown(here)} does not go with {path}, begun with {option} "
                    f"{_shown(there)}"
                ),
                "leave it out, or start a new run",
            )
        if not folder.checkpoint.exists():  # killed before its first checkpoint, it begins again
            lost = f"{path} holds no {CHECKPOINT} to continue from"
            require(ended is None and not folder.products, lost)
            folder.setup = new
            return folder
        if ended is not None and not folder.result.exists() and given.get("rounds", ended) == ended:
            device = given.get("device", folder.setup.device)
            folder.setup, folder.lost = dataclasses.replace(folder.setup, device=device), True
            return folder
        if ended is not None and new.rounds is not None and new.rounds <= ended:
            asked = f"--rounds {new.rounds} is not enough: " if "rounds" in given else ""
            raise InputError(f"{asked}{path} has reached round {ended}; ask for more with --rounds")
        folder.setup = new
        return folder


def write_config(path: Path, about: dict[str, Any], new: bool = False) -> None:
    """Write config.json; with ``new`` raise ``FileExistsError`` if it exists."""
    whole = {"jaxfl": __version__, **record(), **about}
    text = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    replace(path, lambda file: file.write(text.encode()), new=new)


def aside(file: Path) -> Path:
    """The name of a file that is about to be replaced."""
    return file.with_name(f"{file.name}.before")


def of_sweep(path: Path) -> bool:
    """Whether a sweep has written there."""
    if (path / MANIFEST).exists():
        return True
    try:
        return "sweep" in json.loads((path / CONFIG).read_text("utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _shown(value: Any) -> str:
    if value is None or value == {}:
        return "left to its default"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
