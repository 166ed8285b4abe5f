"""Arguments of the library in the form of the command line: how they are written and read."""

from __future__ import annotations

import itertools
import json
import math
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from jaxfl.core.errors import assigned, printable, require
from jaxfl.core.params import MOST, choice, number, reads
from jaxfl.data.loaders import LOADERS

__all__ = [
    "LEAF",
    "LIMITS",
    "MOST",
    "Among",
    "Read",
    "as_typed",
    "command",
    "data",
    "flag",
    "is_file",
    "of_leaf",
    "pair",
    "path",
    "real",
    "records",
    "rounds",
    "suggested",
    "text",
    "whole",
]

LEAF = "leaf:"
MANY = ("--data-option", "--partition-option")  # whose values are NAME=VALUE

# the options of the fields of a Stop
LIMITS = {"loss": "target_loss", "bound": "loss_bound", "sigma": "loss_sigma"}
LIMITS |= {"seconds": "max_seconds", "bits": "max_bits"}
# options of parts that have other numbers' names
MODES = {"clip": "clip_mode", "noise": "noise_draw"}


def flag(name: str) -> str:
    """The option of a name on the command line; ``stop.NAME`` is a limit that ends a run."""
    name = "on" if name == "executor" else name
    name = LIMITS.get(name.removeprefix("stop."), name) if name.startswith("stop.") else name
    return "--" + name.replace("_", "-")


def command(*words: object) -> str:
    """A command of jaxfl, quoted for a shell."""
    return f"`{' '.join(['jaxfl', *map(_quoted, map(str, words))])}`"


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{printable(escaped)}'"


def as_typed(words: Sequence[str]) -> Callable[[str, Any], str]:
    """Return a function that writes an argument as these words gave it, and as in Python if none did."""
    typed = {word.split("=")[0] for word in words}

    def written(name: str, value: Any) -> str:
        if name.startswith("stop.") and value is None:
            return flag(name)
        mode = MODES.get(name, name) if isinstance(value, str) else name
        name = mode if flag(mode) in typed else name
        if flag(name) in typed:
            return assigned(flag(name), value)
        for option, given in itertools.pairwise(words):
            if option in MANY and given.startswith(f"{name}="):
                return f"{option} {given}"
        return assigned(name, value)

    return written


def suggested(name: str, value: Any) -> str:
    """An argument that a remedy asks for."""
    if name == "classes":
        return f"--data-option {name}={value}"
    if name in ("resume", "extend"):
        return f"{flag(name)} DIR"
    return flag(name) if value is None or value is True else f"{flag(name)} {value}"


# --- reading: the option as written and its text in, the value or one sentence out ---------------

Read: TypeAlias = Callable[[str, str], Any]  # (option as written, its text) -> value


def text(flag: str, value: str) -> str:
    require(value.strip(), "is empty", "give it a value or leave it out", **{flag: repr(value)})
    return value


def path(flag: str, value: str) -> str:
    """An absolute path, which holds wherever a run is resumed."""
    return str(Path(os.path.expanduser(text(flag, value))).resolve())


def data(flag: str, value: str) -> str:
    """The name of a data set, or the absolute path of a file or of LEAF's folder."""
    if (folder := of_leaf(text(flag, value))) is not None:
        return f"{LEAF}{path(flag, folder)}"
    return value if value in LOADERS or not is_file(value) else path(flag, value)


def of_leaf(name: str) -> str | None:
    """The folder of LEAF's data, if that is what the name of a data set says."""
    return name.removeprefix(LEAF) if name.startswith(LEAF) and name != LEAF else None


def is_file(name: str) -> bool:
    """Whether the name of a data set is a path."""
    return "/" in name or "\\" in name or Path(name).suffix != "" or Path(name).exists()


def whole(least: int, most: float = math.inf) -> Read:
    """A whole number; 1e3 is one too."""

    def read(flag: str, value: str) -> int:
        found = number(flag, _float(flag, value), least=least, most=most, integer=True)
        return int(value) if value.lstrip("+-").isdigit() else int(found)

    return read


def real(infinite: bool = False, **bounds: float) -> Read:
    """A finite number in the range, or an infinite one too."""
    ends: dict[str, Any] = bounds if infinite else {"below": math.inf, **bounds}

    def read(flag: str, value: str) -> float:
        found = number(flag, _float(flag, value), **ends)
        return int(value) if value.isdigit() else found

    return read


class Among:
    """One of these names."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __call__(self, flag: str, value: str) -> str:
        choice(flag, value, self.names)
        return value


def pair(flag: str, value: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as JSON where it reads as such, else as text."""
    name, equals, given = value.partition("=")
    require(name and equals and given, "must read NAME=VALUE", **{flag: value})
    try:
        return name.replace("-", "_"), json.loads(given)
    except ValueError:  # .5 is a number as well
        return name.replace("-", "_"), float(given) if reads(given) else given


def rounds(flag: str, value: str) -> int | None:
    """A number of rounds, or None for the algorithm's own."""
    return None if value == "auto" else int(whole(1, MOST)(flag, value))


def records(flag: str, value: str) -> int | str:
    """A number of records, or "all"."""
    if value == "all":
        return value
    require(reads(value), 'is neither a number nor "all"', **{flag: value})
    return int(whole(1)(flag, value))


def _float(flag: str, value: str) -> float:
    require(reads(value), "is not a number", **{flag: value})
    return float(value)
