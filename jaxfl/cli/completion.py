"""`jaxfl completion SHELL`: a static script, in which a shell finds commands, options and names."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from jaxfl.algorithms.registry import ALGORITHMS
from jaxfl.audit import questions
from jaxfl.cli.lists import KINDS, OTHERS, PARTS
from jaxfl.cli.parser import SAID, Parser
from jaxfl.core.errors import require
from jaxfl.views.selection import AUTO, CRITERIA

__all__ = ["SHELLS", "script"]

SHELLS = ("bash", "zsh", "fish")
FIRST = {  # the values of arguments, by name
    "algorithm": ALGORITHMS,
    "algorithms": ALGORITHMS,
    "kind": KINDS,
    "shell": SHELLS,
    "choose_by": (AUTO, *CRITERIA, "none"),
    "format": ("png", "pdf", "svg"),
    **{kind.removesuffix("s"): table for kind, table in (OTHERS | PARTS).items()},
}


def script(shell: str, parsers: Mapping[str, tuple[str, Callable[[], Parser]]]) -> str:
    """The script for a shell: each command has a help and a parser."""
    import shtab

    require(shell in SHELLS, lambda: f"SHELL {shell} must be one of {', '.join(SHELLS)}")
    whole = argparse.ArgumentParser(prog="jaxfl", add_help=False)
    whole.add_argument("-h", "--help", action="store_true", help="print this help")
    whole.add_argument("--version", action="store_true", help="print the version")
    commands = whole.add_subparsers()
    for name, (text, make) in parsers.items():
        # shtab reads `choices` and `complete` of the actions, which the two parsers share
        summary = " ".join(text.split("\n\n")[1].split()).split(". ")[0].rstrip(".")
        one = commands.add_parser(name, parents=[make()], add_help=False, help=summary)
        known = [option for action in one._actions for option in action.option_strings]
        if "--config" not in known:
            one.add_argument("--config")
            one.add_argument("-h", "--help", action="store_true")
        said = {option: about for option, *about in SAID.findall(text)}
        for action in one._actions:
            metavar, doc = next((said[o] for o in action.option_strings if o in said), ("", ""))
            action.help = action.help or " ".join(doc.split()).replace("%", "%%") or None
            if action.dest == "name":
                action.choices = questions.names()
            elif action.dest in FIRST:
                action.choices = list(FIRST[action.dest])
            elif "FILE" in metavar:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif "DIR" in metavar or action.metavar == "DIR":
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return str(shtab.complete(whole, shell))
