"""Arguments of the library as the command line has them."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from jaxfl.core.errors import assigned, printable

__all__ = ["as_typed", "command", "flag", "suggested"]

MANY = ("--data-option", "--partition-option")  # whose values are NAME=VALUE

STOP = {"loss": "target-loss", "bound": "loss-bound", "sigma": "loss-sigma"}  # others: max-NAME


def flag(name: str) -> str:
    """How a name is written on the command line; ``stop.NAME`` is a field of :class:`jaxfl.Stop`."""
    name = "on" if name == "executor" else name
    if name.startswith("stop."):
        name = STOP.get(name[5:], f"max-{name[5:]}")
    return "--" + name.replace("_", "-")


def command(*words: object) -> str:
    """A command as a shell takes it, whatever is in its words."""
    return f"`{' '.join(['jaxfl', *map(_quoted, map(str, words))])}`"


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{printable(escaped)}'"


def as_typed(words: Sequence[str]) -> Callable[[str, Any], str]:
    """How these words give an argument: by its option, or for what nobody typed as in Python."""
    typed = {word.split("=")[0] for word in words}

    def written(name: str, value: Any) -> str:
        if name.startswith("stop.") and value is None:
            return flag(name)
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
