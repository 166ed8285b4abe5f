"""From a command line to a :class:`Setup`; every mistake is one sentence.

`argparse` splits the words; it neither converts nor judges them, since its own messages would
not say what to do.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jaxfl.algorithms.registry import ALGORITHMS
from jaxfl.cli.build import choose_algorithm
from jaxfl.cli.options import Option, Session, options
from jaxfl.cli.readers import Read, real, text, whole
from jaxfl.cli.written import flag
from jaxfl.core.errors import InputError, require
from jaxfl.core.params import MOST
from jaxfl.core.schedules import RULES, schedule
from jaxfl.parts.compressors import COMPRESSORS
from jaxfl.parts.sampling import PARTICIPATIONS, SAMPLERS

__all__ = [
    "Help",
    "Once",
    "Parser",
    "closest_option",
    "glued",
    "hyper_parameters",
    "number",
    "parse_run",
    "print_run_help",
    "read",
]

USAGE = "jaxfl run [ALGORITHM] [--OPTION VALUE ...]"
ABOUT = """\
Run one algorithm.  Without ALGORITHM: a demonstration, soteriafl_sgd with step size, batch and
compression that suit the digits data.  Numbers that are not given come from the algorithm's
theory and are listed with their source.  The folder --out gets result.nc, curves.png,
checkpoint.npz and config.json; `jaxfl run --resume FOLDER --rounds MORE` goes on from there."""
TITLES = {
    "data": "data",
    "model": "model",
    "parts": "parts of the algorithm",
    "run": "run",
    "output": "output",
}


class Parser(argparse.ArgumentParser):
    """Raises one sentence where `argparse` would print its usage and exit."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(prog="jaxfl", allow_abbrev=False, add_help=False, **keywords)

    def error(self, message: str) -> NoReturn:
        match = re.match(r"argument (\S+): expected .*argument", message)
        if match:
            message = f"Option {match[1].split('/')[0]} needs a value."
        raise InputError(message if message.endswith((".", "?")) else message.capitalize())

    def finish(self, rest: Sequence[str], takes: str, otherwise: str) -> None:
        """Raise for the first of the words that no option took."""
        for word in rest:
            if not word.startswith("-"):
                raise InputError(f"{word!r} is one word too many", takes)
            raise InputError(closest_option(word, self, otherwise))


class Once(argparse.Action):
    """An option that must not be given twice: the last would silently win."""

    def __call__(self, parser: Any, namespace: Any, values: Any, flag: str | None = None) -> None:
        if getattr(namespace, self.dest) is not None:
            raise InputError(f"Option {flag} is given twice, the second time as {_shown(values)}")
        setattr(namespace, self.dest, values)


def _shown(values: Any) -> str:
    return " ".join(values) if isinstance(values, list) else str(values)


def parse_run(words: Sequence[str]) -> tuple[dict[str, Any], Session]:
    """The options of `jaxfl run` that are on the command line, converted, and the session."""
    known = hyper_parameters()
    parser = _parser()
    numbers = parser.add_argument_group("numbers")
    for name in known:
        numbers.add_argument(flag(name), dest=f"number {name}", action=Once)
    found, rest = parser.parse_known_args(glued(words))
    every = "`jaxfl run ALGORITHM --help` lists those that there are"
    parser.finish(rest, "`jaxfl run` takes one ALGORITHM", every)
    raw = {name: value for name, value in vars(found).items() if value is not None}

    given: dict[str, Any] = {}
    for name, option in options().items():
        if name in raw:
            given[name] = read(flag(name), option, raw[name])
    if "algorithm" in raw:
        given["algorithm"] = text("ALGORITHM", raw["algorithm"])
    given["numbers"] = {
        name: number(name, raw[f"number {name}"], integer)
        for name, integer in known.items()
        if f"number {name}" in raw
    }
    session = Session(
        out=text("--out", raw["out"]) if "out" in raw else None,
        resume=text("--resume", raw["resume"]) if "resume" in raw else None,
        force=raw.get("force", False),
        quiet=raw.get("quiet", False),
        plot=not raw.get("no_plot", False),
        bound=real(least=0.0)("--bound", raw["bound"]) if "bound" in raw else None,
    )
    return given, session


def _parser(**keywords: Any) -> Parser:
    parser = Parser(usage=USAGE, description=ABOUT, formatter_class=Help, **keywords)
    parser.add_argument("algorithm", nargs="?", metavar="ALGORITHM", help=argparse.SUPPRESS)
    groups = {name: parser.add_argument_group(title) for name, title in TITLES.items()}
    for name, option in options().items():
        extra: dict[str, Any] = {"nargs": "+"} if option.many == "values" else {}
        groups[option.group].add_argument(
            flag(name),
            metavar=option.metavar,
            help=option.doc,
            action="append" if option.many == "repeat" else Once,
            **extra,
        )
    output = groups["output"]
    output.add_argument(
        "--out",
        metavar="DIR",
        action=Once,
        help="folder of the result (default: results/ALGORITHM-DATA-sSEED)",
    )
    output.add_argument(
        "--resume", metavar="DIR", action=Once, help="go on with the run in this folder"
    )
    output.add_argument(
        "--force", action="store_true", help="replace the result of another configuration"
    )
    output.add_argument(
        "--bound",
        metavar="LAM",
        nargs="?",
        const="0",
        action=Once,
        help="draw the paper's convergence bound beside the curves, where there is one; with LAM also "
        "the one for losses that are LAM-strongly convex",
    )
    output.add_argument("--no-plot", action="store_true", help="draw no picture")
    output.add_argument("--quiet", action="store_true", help="print nothing, unless it diverges")
    output.add_argument("-h", "--help", action="store_true", help="show this, and exit")
    return parser


class Help(argparse.HelpFormatter):
    """Wider first columns."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


def print_run_help(words: Sequence[str]) -> None:
    """Help of `jaxfl run`, with the numbers of the algorithm that the other words describe."""

    rest = [word for word in words if word not in ("-h", "--help")]
    given, _ = parse_run(rest)
    algorithm = choose_algorithm(
        given.get("algorithm"),
        **{
            name: given.get(name)
            for name in (
                "compressor",
                "sampler",
                "participation",
                "aggregation",
                "graph",
                "clip_mode",
            )
        },
    )
    parser = _parser()
    group = parser.add_argument_group(f"numbers of {algorithm.name}")
    for param in algorithm.params:
        metavar = "K" if param.integer else "X"
        group.add_argument(flag(param.name), metavar=metavar, help=param.doc.replace("%", "%%"))
    parser.print_help()


# --- pieces --------------------------------------------------------------------------------------


def read(flag: str, option: Option, raw: Any) -> Any:
    """The value of one option of :class:`Setup`."""
    if option.many == "repeat":
        return dict(option.read(flag, value) for value in raw)
    if option.many == "values":
        return [option.read(flag, value) for value in raw]
    return option.read(flag, raw)


def number(name: str, word: str, integer: bool) -> Any:
    """One hyper-parameter: a number, or a schedule by its text."""

    kind, colon, rest = word.partition(":")
    near = difflib.get_close_matches(kind, RULES, 1)
    if colon and kind not in RULES and near:
        raise InputError(f"There is no schedule {word!r}", f"did you mean {near[0]}:{rest}?")
    if colon:
        return schedule(word).label
    concerned = {flag(name): word}
    shape = "write it as in cosine:0.3"
    require(kind not in RULES, "is a schedule without its numbers", shape, **concerned)
    infinite = name == "eps" and word.lower().lstrip("+") in ("inf", "infinity")
    require(not infinite, "must be finite", "for no noise give --sigma 0", **concerned)
    reader: Read = whole(-MOST, MOST) if integer else real(infinite=name == "clip")
    return reader(flag(name), word)


def hyper_parameters() -> dict[str, bool]:
    """Of all algorithms and of all parts that one can exchange, and whether they are whole numbers."""

    tables: tuple[Mapping[str, Any], ...] = (ALGORITHMS, COMPRESSORS, SAMPLERS, PARTICIPATIONS)
    every = [param for table in tables for make in table.values() for param in make().params]
    return {param.name: all(p.integer for p in every if p.name == param.name) for param in every}


def glued(words: Sequence[str]) -> list[str]:
    """``--lr -1e-3`` as one word, since `argparse` takes -1e-3 for an option."""
    out: list[str] = []
    for word in words:
        if out and out[-1].startswith("--") and "=" not in out[-1] and _negative(word):
            out[-1] += "=" + word
        else:
            out.append(word)
    return out


def _negative(word: str) -> bool:
    try:
        return word.startswith("-") and float(word) is not None
    except ValueError:
        return False


def closest_option(word: str, parser: Parser, otherwise: str) -> str:
    """One sentence for an option that does not exist."""
    name = word.split("=")[0]
    known = [flag for action in parser._actions for flag in action.option_strings]
    near = difflib.get_close_matches(name.replace("_", "-"), known, 1)
    return f"There is no option {name}: " + (
        f"did you mean {near[0]}?" if near else f"{otherwise}."
    )
