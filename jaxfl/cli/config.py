"""`--config FILE`: options of a command from a TOML file, as words of the command line."""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxfl.cli.parser import Once, Parser
from jaxfl.cli.written import text
from jaxfl.core.errors import InputError, require
from jaxfl.core.files import reading
from jaxfl.core.params import closest

__all__ = ["Config", "with_config"]


class Config(NamedTuple):
    """The words that a file adds to the command line."""

    file: Path
    words: tuple[str, ...]

    def named(self, sentence: str) -> str:
        """The sentence of an error, with the file's name if the error concerns one of its options."""
        for word in self.words:
            said = word.partition("=")[0] if word.startswith("--") else repr(word)
            if re.search(rf"(?<![\w-]){re.escape(said)}(?![\w-])", sentence):
                return f"{self.file}: {sentence}"
        return sentence


def with_config(
    words: Sequence[str], make: Callable[[], Parser]
) -> tuple[list[str], Config | None]:
    """The words of a command with those of the file that ``--config`` names.

    The file's keys are the options of the parser that ``make`` returns, without dashes, and its
    positional arguments by name.  An option that ``words`` give too is left to them.
    """
    own = Parser()
    own.add_argument("--config", action=Once)
    found, rest = own.parse_known_args(list(words))
    if found.config is None:
        return rest, None
    file = Path(text("--config", found.config))
    with reading(file, "TOML configuration", "name another file with --config"):
        table = tomllib.loads(file.read_text("utf-8"))
    parser = make()
    typed = {word.partition("=")[0] for word in rest if word.startswith("--")}
    given, extra = parser.parse_known_args(rest)
    alone = any(not word.startswith("-") for word in extra)
    options, positional = list[str](), list[str]()
    for key, action in _actions(table, parser, file).items():
        new = list(_words(action, table[key], f"{file}: {key}"))
        if action.option_strings:
            options += new if action.option_strings[0] not in typed else []
        elif not (alone or getattr(given, action.dest)):
            positional += new
    return [*positional, *rest, *options], Config(file, (*positional, *options))


def _actions(table: Mapping[str, Any], parser: Parser, file: Path) -> dict[str, argparse.Action]:
    """The option or argument of each key."""
    names: dict[str, argparse.Action] = {}
    for action in parser.arguments():
        names |= dict.fromkeys((name.lstrip("-") for name in action.option_strings), action)
        if not action.option_strings:
            names |= {action.dest: action, action.dest.removesuffix("s"): action}
    out: dict[str, argparse.Action] = {}
    for key in table:
        name = key.replace("_", "-")
        if name not in names:
            raise InputError(f"{file}: {closest('option', name, names)}")
        twice = f"{file} has the option {name} twice"
        require(names[name] not in out.values(), twice)
        out[key] = names[name]
    return out


def _words(action: argparse.Action, value: Any, key: str) -> Iterator[str]:
    """The words of one option with this value."""
    name, several = "".join(action.option_strings), action.nargs in ("+", "*")
    repeated = isinstance(action, argparse._AppendAction)
    if isinstance(value, dict) and action.metavar in TABLES:
        write = TABLES[str(action.metavar)]
        value = [f"{name}={write(item, key)}" for name, item in value.items()]
    if isinstance(value, bool) and action.nargs in (0, "?"):
        if value or action.const == "true":
            yield name if value else f"{name}=false"
        return
    require(action.nargs != 0, "must be true or false", **{key: value})
    require(value != [], "must not be empty", **{key: value})
    many = isinstance(value, list) and (several or repeated)
    words = [_word(item, key) for item in (value if many else [value])]
    if not (several or repeated) and name:
        yield f"{name}={words[0]}"
        return
    for i, word in enumerate(words):
        yield from [name] * bool(name and (repeated or i == 0))
        yield word


def _word(value: Any, key: str) -> str:
    require(not isinstance(value, list), "must be one value", **{key: value})
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    require(plain, "must be a number or a text", **{key: value})
    return str(value)


def _axis(value: Any, key: str) -> str:
    """The values of an axis, as `--where` takes them."""
    return ",".join(_word(item, key) for item in (value if isinstance(value, list) else [value]))


# How a table's values are written, by what the option takes.
TABLES: dict[str, Callable[[Any, str], str]] = {
    "NAME=VALUE": lambda value, key: json.dumps(value, default=str),
    "AXIS=V,V": _axis,
    "OLD=NEW": _word,
}
