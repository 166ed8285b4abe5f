"""Parse the command line; every mistake is reported in one sentence.

`argparse` splits the words, and does not convert them, since its own messages do not say what to do.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jaxfl.algorithms.registry import ALGORITHMS
from jaxfl.algorithms.resolution import planned, resolve
from jaxfl.cli.build import choose_algorithm
from jaxfl.cli.options import Option, Session, Setup, options
from jaxfl.cli.readers import Among, Read, real, text, whole
from jaxfl.cli.written import flag
from jaxfl.core.errors import InputError, require
from jaxfl.core.params import MOST, near, reads
from jaxfl.core.schedules import RULES, schedule
from jaxfl.core.types import Algorithm, Eps, Origin, Param, ProblemFacts, Source
from jaxfl.parts.compressors import COMPRESSORS
from jaxfl.parts.sampling import PARTICIPATIONS, SAMPLERS

__all__ = [
    "CONFIG",
    "HELP",
    "IMPORT",
    "Once",
    "Parser",
    "defaults",
    "hyper_parameters",
    "join_negatives",
    "make_parser",
    "number",
    "options_help",
    "parse",
    "parse_run",
    "read_options",
    "run_options",
    "run_parser",
    "with_numbers",
]

TITLES = {
    "data": "data",
    "model": "model",
    "parts": "parts of the algorithm",
    "run": "run",
    "output": "input and output",
}


IMPORT = "run this Python file first, which registers algorithms, models, data sets or parts (repeatable)"
CONFIG = "read options from a TOML file; the command line overrides the file"
HELP = "print this help"
SYMBOLS = (
    "Below, d is the number of parameters, L the smoothness of the loss, n the number of clients with m "
    "records each, and T the number of rounds; other letters are the paper's.  Defaults that come from a "
    "theorem or a corollary need L.  Where L is unknown, batches of private algorithms have min(128, m) "
    "records, and lr is 1/clip.  docs/algorithms.md has the formulas."
)


class Parser(argparse.ArgumentParser):
    """Raises one sentence where `argparse` would print its usage and exit."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(prog="jaxfl", allow_abbrev=False, add_help=False, **keywords)

    def error(self, message: str) -> NoReturn:
        match = re.match(r"argument (\S+): expected .*argument", message)
        if match:
            message = f"Option {match[1].split('/')[0]} needs a value."
        raise InputError(message if message.endswith((".", "?")) else message.capitalize())

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Do nothing: readers check values, and choices are for the completion of shells."""

    def arguments(self) -> list[argparse.Action]:
        """What a file of `--config` may hold and a shell completes."""
        return [action for action in self._actions if action.dest not in ("help", "config")]

    def finish(self, rest: Sequence[str], takes: str, otherwise: str) -> None:
        """Raise for the first word that no option takes."""
        for word in rest:
            require(word.startswith("-"), lambda: f"{word!r} is one word too many", takes)
            name = word.split("=")[0]
            known = [flag.lstrip("-") for action in self._actions for flag in action.option_strings]
            close = near(name.lstrip("-").replace("_", "-"), known)
            hint = f"did you mean --{close}?" if close else otherwise
            raise InputError(f"There is no option {name}", hint)


class Once(argparse.Action):
    """An option that must not be given twice: the last would silently win."""

    def __call__(self, parser: Any, namespace: Any, values: Any, flag: str | None = None) -> None:
        if getattr(namespace, self.dest) is not None:
            raise InputError(f"Option {flag} is given twice, the second time as {_shown(values)}")
        setattr(namespace, self.dest, values)


def _shown(values: Any) -> str:
    return " ".join(values) if isinstance(values, list) else str(values)


def parse_run(words: Sequence[str]) -> tuple[dict[str, Any], Session]:
    """The fields of :class:`Setup` that the command line gives, and the session."""
    takes = "`jaxfl run` takes one ALGORITHM, and one value for most options (`jaxfl sweep` takes several)"
    raw = parse(_run_parser(), words, takes)
    given = read_options(options(Setup), raw)
    if "algorithm" in raw:
        given["algorithm"] = text("ALGORITHM", raw["algorithm"])
    given["numbers"] = {
        name: number(name, raw[f"number {name}"], integer)
        for name, integer in hyper_parameters().items()
        if f"number {name}" in raw
    }
    return given, Session(**read_options(options(Session), raw))


def run_options(words: Sequence[str]) -> str:
    """The options of `jaxfl run`, with the hyper-parameters of the algorithm described by ``words``."""
    given, _ = parse_run([word for word in words if word not in ("-h", "--help")])
    return options_help(_run_parser(), [choose_algorithm(Setup(**given))])


def run_parser() -> Parser:
    """All that `jaxfl run` takes."""
    return with_numbers(_run_parser())


def _run_parser() -> Parser:
    parser = make_parser({**options(Setup), **options(Session)}, TITLES)
    parser.add_argument("algorithm", nargs="?", metavar="ALGORITHM", help=argparse.SUPPRESS)
    return parser


# --- shared with `jaxfl sweep` -------------------------------------------------------------------


def make_parser(table: Mapping[str, Option], titles: Mapping[str, str]) -> Parser:
    """A parser of the options in ``table``, in groups with these titles."""
    parser = Parser(usage=argparse.SUPPRESS, formatter_class=_Help)
    groups = {name: parser.add_argument_group(title) for name, title in titles.items()}
    for name, option in table.items():
        how: dict[str, Any] = {"action": "store_true"}
        if option.metavar:
            how = {"metavar": option.metavar, "action": Once}
            if isinstance(option.read, Among):
                how["choices"] = option.read.names
        if option.many == "repeat":
            how["action"] = "append"
        elif option.many == "values":
            how["nargs"] = "+"
        elif option.bare is not None:
            how |= {"nargs": "?", "const": option.bare}
        groups[option.group].add_argument(flag(name), help=option.doc, **how)
    # it is run before, and never parsed here
    files: dict[str, Any] = {"dest": "files", "action": "append", "metavar": "FILE"}
    groups["output"].add_argument("--import", help=IMPORT, **files)
    groups["output"].add_argument("--config", metavar="FILE", help=CONFIG)
    groups["output"].add_argument("-h", "--help", action="store_true", help=HELP)
    return parser


class _Help(argparse.HelpFormatter):
    """Wider columns, as wide as the text above the options."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=100)


def options_help(parser: Parser, algorithms: Sequence[Algorithm], **how: Any) -> str:
    """The hyper-parameters of the algorithms, each with its default, and the parser's options."""
    about = "; ".join(f"{each.summary} ({each.paper})" for each in algorithms)
    title = f"hyper-parameters of {' or '.join(each.name for each in algorithms)}"
    group = parser.add_argument_group(title, f"{about}.  {SYMBOLS}")
    parser._action_groups.insert(0, parser._action_groups.pop())
    params = {param.name: param for each in algorithms for param in each.params}
    found = [defaults(each) for each in algorithms]
    for name, param in params.items():
        texts = dict.fromkeys(each[name] for each in found if name in each)
        default = f" (default: {' or '.join(texts)})" * (
            bool(texts) and "(default" not in param.doc
        )
        metavar, doc = "K" if param.integer else "X", (param.doc + default).replace("%", "%%")
        group.add_argument(flag(name), metavar=metavar, help=doc, **how)
    return parser.format_help().rstrip("\n")


def defaults(algorithm: Algorithm) -> dict[str, str]:
    """The default of each hyper-parameter: a constant, or where its value comes from.

    They are those of one typical problem; how a value depends on the problem, its source says.
    """
    for n in (10, 1):  # some algorithms are for a single node
        with contextlib.suppress(InputError):
            facts = ProblemFacts(n, 1000, 1000, 100, 100, 1.0, (1000,), 10.0, True, True)
            plan, given = planned(algorithm, {}, facts), {}
            if isinstance(plan.asked, Eps):  # to calibrate may take seconds, and changes no source
                given = {"sigma": 1.0}
            found = resolve(algorithm, given, facts)
            values, sources = {**found.values, **plan.values}, {**found.sources, **plan.sources}
            texts = {name: _default(values[name], source) for name, source in sources.items()}
            if isinstance(plan.asked, Eps):
                texts["eps"] = f"{plan.asked.eps:g}"
                texts["sigma"] = (
                    "calibrated: the least that is proven for eps" * algorithm.per_record
                )
            return {name: shown for name, shown in texts.items() if shown}
    return {}


def _default(value: Any, source: Source) -> str:
    return f"{value:g}" if source == Origin.DEFAULT.value else source.removeprefix("default: ")


def parse(parser: Parser, words: Sequence[str], takes: str, **how: Any) -> dict[str, Any]:
    """What the command line gives, as text: options, and hyper-parameters as "number NAME"."""
    found, rest = with_numbers(parser, **how).parse_known_args(join_negatives(words))
    parser.finish(rest, takes, "`jaxfl COMMAND ALGORITHM --help` lists the options")
    return {name: value for name, value in vars(found).items() if value not in (None, False, [])}


def with_numbers(parser: Parser, **how: Any) -> Parser:
    """The parser, with every hyper-parameter as an option."""
    docs = {param.name: param.doc.replace("%", "%%") for param in _params()}
    for name, doc in docs.items():
        parser.add_argument(flag(name), dest=f"number {name}", action=Once, help=doc, **how)
    return parser


def read_options(table: Mapping[str, Option], raw: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the options in ``table`` that are given."""

    def read(name: str, option: Option, words: Any) -> Any:
        if not option.metavar:
            return words
        if option.many == "repeat":
            return dict(option.read(flag(name), word) for word in words)
        if option.many == "values":
            return [option.read(flag(name), word) for word in words]
        return option.read(flag(name), words)

    return {name: read(name, option, raw[name]) for name, option in table.items() if name in raw}


def number(name: str, word: str, integer: bool) -> Any:
    """One hyper-parameter: a number, or a schedule by its text."""
    kind, colon, rest = word.partition(":")
    close = near(kind, RULES)
    if colon and kind not in RULES and close:
        raise InputError(f"There is no schedule {word!r}", f"did you mean {close}:{rest}?")
    if colon:
        return schedule(word).label
    concerned = {flag(name): word}
    shape = "write it as in cosine:0.3"
    require(kind not in RULES, "is a schedule without its numbers", shape, **concerned)
    parts = word.split(",")
    several = len(parts) > 1 and all(map(reads, parts))
    separate = f"`jaxfl sweep` takes several, separated by spaces: {' '.join(parts)}"
    require(not several, "is not one number", separate, **concerned)
    infinite = name == "eps" and word.lower().lstrip("+") in ("inf", "infinity")
    require(not infinite, "must be finite", "for no noise give --sigma 0", **concerned)
    reader: Read = whole(-MOST, MOST) if integer else real(infinite=name == "clip")
    return reader(flag(name), word)


def hyper_parameters() -> dict[str, bool]:
    """Names of all hyper-parameters of algorithms and parts; True for whole numbers."""
    params = _params()
    return {param.name: all(p.integer for p in params if p.name == param.name) for param in params}


def _params() -> list[Param]:
    """The hyper-parameters of all algorithms and parts."""
    tables: tuple[Mapping[str, Any], ...] = (ALGORITHMS, COMPRESSORS, SAMPLERS, PARTICIPATIONS)
    return [param for table in tables for make in table.values() for param in make().params]


def join_negatives(words: Sequence[str]) -> list[str]:
    """Join ``--lr -1e-3`` into one word, since `argparse` takes -1e-3 for an option."""
    out: list[str] = []
    for word in words:
        negative = word.startswith("-") and reads(word)
        if negative and out and out[-1].startswith("--") and "=" not in out[-1]:
            out[-1] += "=" + word
        else:
            out.append(word)
    return out
