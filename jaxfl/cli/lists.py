"""`jaxfl list` and `jaxfl completion`: the names that there are, in lines, as JSON, and for shells."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jaxfl.algorithms.registry import ALGORITHMS, TABLES
from jaxfl.audits import questions
from jaxfl.cli.build import DATA
from jaxfl.cli.imports import MADE, file_of
from jaxfl.cli.options import hyper
from jaxfl.cli.parser import SAID, Parser
from jaxfl.cli.report import print_json
from jaxfl.core.errors import require
from jaxfl.core.params import known
from jaxfl.core.types import Algorithm, Param
from jaxfl.data.partition import PARTITIONS
from jaxfl.parts.graphs import GRAPHS
from jaxfl.problems.models import MODELS
from jaxfl.problems.public import CONSTRAINTS, REGULARIZERS
from jaxfl.views.selection import AUTO, CRITERIA

__all__ = ["KINDS", "SHELLS", "list_parser", "run_list", "script", "tables"]


PARTS = {f"{kind}s": TABLES[kind] for kind in MADE if kind != "algorithm"}
OTHERS: dict[str, Mapping[str, Callable[..., Any]]] = {
    "models": MODELS,
    "data": DATA,
    "partitions": PARTITIONS,
    "regularizers": REGULARIZERS,
    "constraints": CONSTRAINTS,
    "graphs": GRAPHS,
}

KINDS = ("algorithms", *OTHERS, *PARTS)
GROUPS: dict[str, Sequence[str]] = {kind: (kind,) for kind in KINDS}
GROUPS["parts"] = ("graphs", *PARTS)


def tables() -> dict[str, dict[str, dict[str, Any]]]:
    """Entries by kind and name."""
    out = {"algorithms": {name: _algorithm(make) for name, make in ALGORITHMS.items()}}
    for kind, table in (OTHERS | PARTS).items():
        out[kind] = {name: {"summary": _summary(make)} for name, make in table.items()}
        for name in table if kind in PARTS else ():
            out[kind][name]["parameters"] = _parameters(table[name]().params)
    return out


def run_list(words: Sequence[str]) -> None:
    """usage: jaxfl list [KIND]

    List the available algorithms, models, data sets and parts, one per line.  KIND is one of algorithms,
    models, data, partitions, regularizers, constraints, graphs, compressors, samplers, participations,
    aggregations, or parts, which are the last five; without KIND all are listed.  Of an algorithm, the
    words in parentheses are its estimator, compressor, channel or rule, and mechanism (the noise).

      jaxfl list compressors
      jaxfl list algorithms --json
    """
    parser = list_parser()
    found, rest = parser.parse_known_args(words)
    parser.finish(rest, "`jaxfl list` takes one KIND", "`jaxfl list` has --json only")
    if found.kind is not None:
        known("kind of things to list named", found.kind, GROUPS)
    kinds = GROUPS.get(found.kind, KINDS)
    shown = {kind: about for kind, about in tables().items() if kind in kinds}
    if found.json:
        print_json(shown)
        return
    width = max(len(name) for table in shown.values() for name in table)
    for i, (kind, table) in enumerate(shown.items()):
        if len(shown) > 1:
            print(f"{'' if i == 0 else chr(10)}{kind}")
        indent = "  " * (len(shown) > 1)
        for name, about in table.items():
            print(f"{indent}{name:<{width}}  {_line(about)}")


def list_parser() -> Parser:
    parser = Parser()
    parser.add_argument("kind", nargs="?", metavar="KIND")
    parser.add_argument("--json", action="store_true")
    return parser


# --- pieces --------------------------------------------------------------------------------------


def _algorithm(make: Callable[..., Algorithm]) -> dict[str, Any]:
    algorithm = make()
    return {
        "summary": algorithm.summary + _file(make),
        "paper": algorithm.paper,
        "parts": dict(algorithm.parts),
        "parameters": _parameters(algorithm.params),
    }


def _line(about: dict[str, Any]) -> str:
    if "paper" not in about:
        return str(about["summary"])
    parts = about["parts"]
    roles = ("estimator", "compressor", "channel", "rule", "mechanism")
    made = ", ".join(parts[role] for role in roles if role in parts)
    return f"{about['summary']} ({made}); {about['paper']}"


def _parameters(params: Sequence[Param]) -> list[dict[str, Any]]:
    return [{"option": hyper(param.name), **param._asdict()} for param in params]


def _summary(make: Callable[..., Any]) -> str:
    """The first sentence of a docstring, on one line."""
    paragraph = (inspect.getdoc(make) or "").split("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "") + _file(make)


def _file(make: Callable[..., Any]) -> str:
    """The file of an entry that is not jaxfl's own."""
    name = file_of(make)
    return f" [{name}]" * bool(name)


# --- completion of shells ------------------------------------------------------------------------

SHELLS = ("bash", "zsh", "fish")
FIRST: dict[str, Iterable[str]] = {  # the values of arguments, by name
    "algorithm": ALGORITHMS,
    "algorithms": ALGORITHMS,
    "kind": GROUPS,
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
