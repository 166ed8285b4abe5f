"""The folder of a run: what it was made from, and when it may be written to."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from jaxfl.cli.options import Session, Setup, options
from jaxfl.cli.written import flag
from jaxfl.core.errors import InputError, require
from jaxfl.core.files import reading, replace, writable
from jaxfl.core.version import __version__

__all__ = ["Folder"]


@dataclasses.dataclass
class Folder:
    """``setup`` makes the run again; ``assumed`` says whence the numbers came that nobody gave.

    Each file is whole whoever writes it, but nothing keeps two processes with different setups apart
    before the first of them has saved something: give each a folder.
    """

    path: Path
    setup: Setup
    assumed: dict[str, str] = dataclasses.field(default_factory=dict)
    reached: int | None = None  # the last round, once the run has ended
    before: bytes | None = None  # config.json as this call found it
    ours: bool = False  # whether this call has begun to write here
    lost: bool = False  # whether the run has ended, and its result is gone: the checkpoint has it

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def result(self) -> Path:
        return self.path / "result.nc"

    @property
    def picture(self) -> Path:
        return self.path / "curves.png"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.npz"

    @property
    def products(self) -> list[Path]:
        return [file for file in self.places if file.exists()]

    @property
    def places(self) -> tuple[Path, ...]:
        return self.result, self.checkpoint, self.picture

    # --- reading and writing config.json ---------------------------------------------------------

    @classmethod
    def read(cls, path: Path) -> Folder:
        """The folder as an earlier run left it."""
        require(
            not _of_sweep(path),
            f"{path} holds a sweep, and no run",
            f"go on with `jaxfl sweep --resume {path}`",
        )
        file = path / "config.json"
        with reading(file, "run of this version of jaxfl", "name the folder of a `jaxfl run`"):
            about = json.loads(file.read_text("utf-8"))
            setup = Setup.from_json(about["setup"], file)
            return cls(path, setup, about["assumed"], about["reached"])

    def write(self) -> None:

        about = {
            "jaxfl": __version__,
            "reached": self.reached,
            "assumed": self.assumed,
            "setup": dataclasses.asdict(self.setup),
        }
        text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
        replace(self.config, lambda file: file.write(text.encode()))

    # --- a new run -------------------------------------------------------------------------------

    def claim(self, force: bool) -> None:
        """Refuse to replace what this run would not give again."""
        is_file = self.path.exists() and not self.path.is_dir()
        require(not is_file, f"{self.path} is a file", "name a folder with --out")
        require(
            not _of_sweep(self.path),
            f"{self.path} holds a sweep, which no run replaces",
            "name another folder with --out",
        )
        if force or not self.products:
            return
        ways_out = "name another folder with --out, or replace it with --force"
        if not self.config.exists():
            raise InputError(f"{self.path} holds {self.products[0].name} already", ways_out)
        old = Folder.read(self.path)
        for option, its, mine in old.setup.differences(self.setup):
            raise InputError(
                f"{self.path} holds a run with {option} {_shown(its)}, not {_shown(mine)}",
                ways_out,
            )
        require(
            old.reached is not None,
            f"{self.path} holds an unfinished run of this configuration",
            f"go on with `jaxfl run --resume {self.path}`, or start anew with --force",
        )

    def begin(self) -> None:
        """From here on the folder belongs to this run; what it replaces waits beside."""
        writable(self.config, "config.json")
        self.before = self.config.read_bytes() if self.config.exists() else None
        self.reached, self.ours = None, True
        for file in self.products:
            os.replace(file, _aside(file))
        self.write()

    def go_on(self) -> None:
        """From here on the folder belongs to the longer run."""
        self.settle()  # what a killed run had put aside has been replaced
        self.before = self.config.read_bytes()
        self.reached, self.ours = None, True
        self.write()

    def abandon(self) -> None:
        """Leave the folder as it was found, unless a new run has saved something."""
        before, waiting = self.before, [file for file in self.places if _aside(file).exists()]
        if waiting and self.products:
            self.settle()
            return
        for file in waiting:
            os.replace(_aside(file), file)
        if before is not None:
            replace(self.config, lambda file: file.write(before))
        elif not self.products:
            self.config.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # other files are in it
                self.path.rmdir()

    def settle(self) -> None:
        """What this run replaces may go."""
        for file in self.places:
            _aside(file).unlink(missing_ok=True)

    # --- an earlier run --------------------------------------------------------------------------

    @classmethod
    def resume(cls, given: dict[str, Any], session: Session) -> Folder:
        """The folder of an earlier run, with those options changed that may change."""
        path = Path(session.resume or "")
        here = session.out is None or Path(session.out).resolve() == path.resolve()
        require(here, f"is not {path}, where --resume goes on", "leave it out", out=session.out)
        beside = f"--force does not go with --resume {path}"
        require(not session.force, beside, "leave it out, since nothing is replaced")
        require(
            given.get("rounds", 0) is not None,
            f"--rounds auto does not go with --resume {path}, whose rounds were fixed when it "
            "began",
            "give a number, or leave it out",
        )
        folder = cls.read(path)
        old, ended = folder.setup, folder.reached
        if ended is not None:  # limits that were reached must not end it again at once
            old = dataclasses.replace(old, target_loss=None, max_seconds=None, max_bits=None)
        changed = {**given, "numbers": {**old.numbers, **given["numbers"]}}
        new = dataclasses.replace(old, **changed)
        later = {flag(name) for name, option in options().items() if option.later}
        for option, mine, its in new.differences(old):
            if option not in later:
                raise InputError(
                    f"{option} {_shown(mine)} does not go with {path}, begun with {option} "
                    f"{_shown(its)}",
                    "leave it out, or start a new run",
                )
        require(folder.checkpoint.exists(), f"{path} holds no checkpoint.npz to go on from")
        if ended is not None and not folder.result.exists() and given.get("rounds", ended) == ended:
            device = given.get("device", folder.setup.device)
            folder.setup, folder.lost = dataclasses.replace(folder.setup, device=device), True
            return folder
        if ended is not None and new.rounds is not None and new.rounds <= ended:
            asked = f"--rounds {new.rounds} is not enough: " if "rounds" in given else ""
            raise InputError(f"{asked}{path} has reached round {ended}; ask for more with --rounds")
        folder.setup = new
        return folder


def _aside(file: Path) -> Path:
    """Where a product waits that is to be replaced."""
    return file.with_name(f"{file.name}.before")


def _of_sweep(path: Path) -> bool:
    """Whether a sweep has begun to write there."""
    if (path / "sweep.json").exists():
        return True
    try:
        return "sweep" in json.loads((path / "config.json").read_text("utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _shown(value: Any) -> str:
    if value is None or value == {}:
        return "left to its default"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
