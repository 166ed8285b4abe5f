"""Parse the command line; every mistake is reported in one sentence.

`argparse` splits the words, and does not convert them, since its own messages do not say what to do.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jaxfl.algorithms.defaults import defaults
from jaxfl.algorithms.registry import ALGORITHMS, TABLES, of_a_file
from jaxfl.cli.build import DEMO, choose_algorithm
from jaxfl.cli.options import Counts, Option, Session, Setup, Study, help_of, hyper, options
from jaxfl.cli.written import Among, flag, real, text, whole
from jaxfl.core.errors import InputError, require
from jaxfl.core.params import MOST as LARGEST
from jaxfl.core.params import at_most_one, known, near, reads
from jaxfl.core.schedules import RULES, schedule
from jaxfl.core.types import Param

__all__ = [
    "SAID",
    "Once",
    "Parser",
    "checked",
    "documented",
    "hyper_parameters",
    "larger",
    "options_of_runs",
    "parse",
    "parser_of_runs",
]

SYMBOLS = (
    "Below, d is the number of parameters, L the smoothness of the loss, n the number of clients with m "
    "records each, and T the number of rounds; other letters are the paper's.  Defaults that come from a "
    "theorem or a corollary need L.  Where L is unknown, private algorithms of jaxfl have batches of "
    "min(128, m) records, and lr is 1/clip.  docs/algorithms.md has their formulas."
)
# an option in a help text: its name, what it takes, and its explanation
SAID = re.compile(r"^ +(--[a-z-]+)((?: \S+)*)(?:  +|\n {28})(\S.*(?:\n {28}\S.*)*)", re.MULTILINE)
KINDS = (Setup, Counts, Session)
HYPER = "hyper-parameter "  # before the names of hyper-parameters


class Parser(argparse.ArgumentParser):
    """Raises one sentence where `argparse` would print its usage and exit."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(prog="jaxfl", allow_abbrev=False, add_help=False, **keywords)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Options may have underscores for dashes, and negative numbers for values."""
        words: list[str] = []
        for word in args:
            negative = word.startswith("-") and reads(word)
            if negative and words and words[-1].startswith("--") and "=" not in words[-1]:
                words[-1] += "=" + word  # argparse takes -1e-3 for an option
            else:
                words.append(re.sub("^--[^=]*", lambda m: m[0].replace("_", "-"), word))
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        match = re.match(r"argument (\S+): expected .*argument", message)
        if match:
            message = f"Option {match[1].split('/')[0]} needs a value."
        raise InputError(message if message.endswith((".", "?")) else message.capitalize())

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Do nothing: readers check values, and choices are for the completion of shells."""

    def arguments(self) -> list[argparse.Action]:
        """The options that a file of `--config` may hold and a shell completes."""
        return [action for action in self._actions if action.dest not in ("help", "config")]

    def finish(self, rest: Sequence[str], takes: str, otherwise: str) -> None:
        """Raise for the first word that no option takes."""
        for word in rest:
            require(word.startswith("-"), lambda: f"{word!r} is one word too many", takes)
            name = word.split("=")[0]
            known = [flag.lstrip("-") for action in self._actions for flag in action.option_strings]
            close = near(name.lstrip("-"), known)
            hint = f"did you mean --{close}?" if close else otherwise
            raise InputError(f"There is no option {name}", hint)


class Once(argparse.Action):
    """An option that must not be given twice: the last would silently win."""

    def __call__(self, parser: Any, namespace: Any, values: Any, flag: str | None = None) -> None:
        if vars(namespace).pop(self.dest) is not None:
            second = " ".join(values) if isinstance(values, list) else values
            raise InputError(f"Option {flag} is given twice, the second time as {second}")
        setattr(namespace, self.dest, values)  # the last one: axes are in the order of the words


def documented(text: str) -> Parser:
    """A parser of the options that a help text explains; "..." stands for more values."""
    parser = Parser(usage=text.splitlines()[0].removeprefix("usage: "))
    for option, takes, _ in SAID.findall(text):
        several = {"nargs": "+", "action": "extend", "metavar": takes.split()[0]} if takes else {}
        how: Any = several if takes.endswith("...") else {"action": Once} if takes else {}
        parser.add_argument(option, **how or {"action": "store_true"})
    return parser


# --- `jaxfl run` and `jaxfl sweep` ---------------------------------------------------------------


@functools.cache
def table() -> dict[str, Option]:
    """All options but hyper-parameters, by name."""
    return {name: each for kind in KINDS for name, each in options(kind).items()}


class _OfRuns(Parser):
    """Names of algorithms come first, which an option with several values would take."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        pairs = [*zip(("", *args), args, strict=False)]
        first = [b for a, b in pairs if b in ALGORITHMS and (a[:2] != "--" or "=" in a)]
        left = [b for a, b in pairs if b not in ALGORITHMS or (a[:2] == "--" and "=" not in a)]
        return super().parse_known_args([*first, *left], namespace)


def parser_of_runs() -> Parser:
    """All that `jaxfl run` and `jaxfl sweep` take."""
    parser = _OfRuns()
    parser.add_argument("algorithms", nargs="*", metavar="ALGORITHM")
    for name, each in table().items():
        how: dict[str, Any] = {"action": Once}
        if each.read is None:
            how = {"action": "store_true"}
        elif each.many == "repeat":
            how = {"action": "append", "metavar": "NAME=VALUE"}
        elif each.many:
            how["nargs"] = "+"
        elif each.bare is not None:
            how |= {"nargs": "?", "const": each.bare}
        if isinstance(each.read, Among):
            how["choices"] = each.read.names
        parser.add_argument(flag(name), **how)
    for name, param in hyper_parameters().items():
        doc = param.doc.replace("%", "%%")
        parser.add_argument(hyper(name), dest=HYPER + name, action=Once, nargs="+", help=doc)
    parser.add_argument("--import", dest="files", action="append")  # it is run before
    parser.add_argument("--config")
    parser.add_argument("-h", "--help", action="store_true")
    return parser


def parse(command: str, words: Sequence[str]) -> tuple[Study, Session]:
    """Parse a command line into a study and a session; with --extend the study has what is added."""
    parser = parser_of_runs()
    found, rest = parser.parse_known_args(words)
    parser.finish(rest, "", f"`jaxfl {command} ALGORITHM --help` lists the options")
    raw = {name: value for name, value in vars(found).items() if value not in (None, False, [])}
    read = {name: _read(name, table()[name], raw[name]) for name in raw if name in table()}
    for name in read:
        other = table()[name].alone
        own = f"{flag(name)} is an option of `jaxfl {other}`"
        require(other in ("", command), own, "leave it out")
    session = Session(**{name: read[name] for name in options(Session) if name in read})
    require(session.on == "slurm" or not session.slurm_option, "--slurm-option needs --on slurm")
    places = {"resume": session.resume, "extend": session.extend, "out": session.out}
    at_most_one("each names the folder of a result", **places)
    if session.resume is not None:
        _alone(session.resume, raw)
    return _study(raw, read, session.extend is not None), session


def _read(name: str, option: Option, words: Any) -> Any:
    if option.read is None or not option.many:
        return option.read(flag(name), words) if option.read else words
    values = [option.read(flag(name), word) for word in words]
    return dict(values) if option.many == "repeat" else values


def _alone(folder: str, raw: Mapping[str, Any]) -> None:
    for name in sorted(raw.keys() - options(Session).keys() - {"files"}):
        typed = flag(name) if name in table() else hyper(name.removeprefix(HYPER))
        typed = "ALGORITHM" if name == "algorithms" else typed
        resumed = f"{typed} does not go with --resume {folder}, which finishes what was begun"
        raise InputError(resumed, "leave it out, or take --extend for more")


def _study(raw: Mapping[str, Any], read: Mapping[str, Any], added: bool) -> Study:
    algorithms = [text("ALGORITHM", word) for word in raw.get("algorithms", [])]
    for name in algorithms:
        known("algorithm", name, ALGORITHMS, of_a_file())
    own = {name: values for name, values in read.items() if name in options(Setup)}
    given = {n: v if table()[n].many == "axis" else [v] for n, v in own.items()}
    params = {HYPER + name: param for name, param in hyper_parameters().items()}
    numbers = {
        param.name: [number(param.name, word, param.integer) for word in words]
        for name, words in raw.items()
        if (param := params.get(name))
    }
    if "rounds" in read:
        numbers = {"rounds": read["rounds"], **numbers}
        alone = None not in read["rounds"] or len(read["rounds"]) == 1
        require(alone, "--rounds auto goes with no other number of rounds")
    both = "seeds" in read and "seed" in read
    require(not both, "--seeds and --seed are both given", "the first is how many, the other which")
    seeds = read.get("seed", list(range(read.get("seeds", 0 if added else 1))))
    paired, seeded = "unpaired" not in read, "seed" in read
    return Study(algorithms, given, numbers, seeds, paired, seeded=seeded)


def checked(study: Study, command: str, extended: str | None = None) -> Study:
    """The study, of a folder that is extended; raise for one that the command does not compute."""
    if command == "sweep":
        names = "`jaxfl list algorithms` names them"
        require(study.algorithms, "`jaxfl sweep` needs an ALGORITHM", names)
        return study
    for name, values in {**study.axes, "seed": study.seeds}.items():
        several = f"`jaxfl run` computes one run, and {flag(name)} has {len(values)} values"
        way = "`jaxfl sweep` computes one for each"
        if extended and len(values) > 1:
            held = f"{extended} holds a run with {flag(name)} {values[0]}"
            several = f"{held}, to which --extend adds rounds alone"
            way = f"for {flag(name)} {values[-1]} begin another, with --out instead of --extend"
        require(len(values) < 2, several, way)
    return study


def larger(old: Study, more: Study, folder: str) -> Study:
    """A study with what is added to it; raise for an option that cannot be."""
    begun, axes = dataclasses.asdict(Setup()), options(Setup)
    added = "leave it out: values, algorithms, seeds and rounds can be added"
    left = f"{folder} was begun without {{}}, and no value can be added to its default"
    begin = "begin another, with --out instead of --extend"
    lists, numbers = dict(old.options), dict(old.numbers)
    for name, values in more.options.items():
        before = values if name == "until" else old.options.get(name, [begun[name]])
        if axes[name].many != "axis":
            fixed = f"{flag(name)} {values[0]} does not go with --extend {folder}"
            require(before == values, fixed, added)
        default = left.format(flag(name))
        require(before != [None] or values == [None], default, begin)
        lists[name] = [*dict.fromkeys([*before, *values])] if axes[name].many == "axis" else values
    if "rounds" in more.numbers and "until" not in more.options:
        lists.pop("until", None)
    fixed = f"--unpaired does not go with --extend {folder}"
    require(more.paired or not old.paired, fixed, "leave it out")
    for name, values in more.numbers.items():
        before = numbers.get(name, [])
        same = ", or continue with the same noise with --until T" * (name == "sigma")
        require(before or name == "rounds", left.format(flag(name)), begin + same)
        longer = name == "rounds" and len(before) < 2 and len(values) == 1
        numbers[name] = values if longer else [*dict.fromkeys([*before, *values])]
    assumed = {name: said for name, said in old.assumed.items() if name not in more.numbers}
    algorithms = [*dict.fromkeys([*old.algorithms, *more.algorithms])]
    seeds = [*dict.fromkeys([*old.seeds, *more.seeds])]
    return Study(algorithms, lists, numbers, seeds, old.paired, assumed, old.seeded)


# --- hyper-parameters ----------------------------------------------------------------------------


def number(name: str, word: str, integer: bool) -> Any:
    """One hyper-parameter: a number, or a schedule by its text."""
    if ":" in word:
        return schedule(word).label
    concerned = {hyper(name): word}
    shape = "write it as in cosine:0.3"
    require(word not in RULES, "is a schedule without its numbers", shape, **concerned)
    parts = word.split(",")
    several = len(parts) > 1 and all(map(reads, parts))
    separate = f"`jaxfl sweep` takes several, separated by spaces: {' '.join(parts)}"
    require(not several, "is not one number", separate, **concerned)
    infinite = name == "eps" and word.lower().lstrip("+") in ("inf", "infinity")
    require(not infinite, "must be finite", "for no noise give --sigma 0", **concerned)
    reader = whole(-LARGEST, LARGEST) if integer else real(infinite=name == "clip")
    return reader(hyper(name), word)


def hyper_parameters() -> dict[str, Param]:
    """The hyper-parameters of all algorithms and parts; whole numbers where they are in all of them."""
    made = ("algorithm", "compressor", "sampler", "participation")
    found: dict[str, Param] = {}
    for param in (p for kind in made for make in TABLES[kind].values() for p in make().params):
        whole = param.integer and found.get(param.name, param).integer
        found[param.name] = param._replace(integer=whole)
    return found


# --- help ----------------------------------------------------------------------------------------


def options_of_runs(command: str, words: Sequence[str]) -> str:
    """The options, with the hyper-parameters of the algorithms that ``words`` describe."""
    study, _ = parse(command, [word for word in words if word not in ("-h", "--help")])
    names = study.algorithms or [DEMO]
    made = [choose_algorithm(dataclasses.replace(study.setup, algorithm=name)) for name in names]
    about = "; ".join(f"{each.summary} ({each.paper})" for each in made)
    lines = [f"hyper-parameters of {' or '.join(each.name for each in made)}:"]
    lines.append(textwrap.indent(textwrap.fill(f"{about}.  {SYMBOLS}", 102), "  ") + "\n")
    found = [defaults(each) for each in made]
    for name, param in {param.name: param for each in made for param in each.params}.items():
        texts = dict.fromkeys(each[name] for each in found if name in each)
        default = f" (default: {' or '.join(texts)})" if texts else ""
        doc = param.doc + default * ("(default" not in param.doc)
        head = f"  {hyper(name)} {'K' if param.integer else 'X'}"
        look: Any = {"initial_indent": f"{head:<26}  ", "subsequent_indent": " " * 28}
        lines.append(textwrap.fill(doc, 104, **look))
    return "\n".join([*lines, "", help_of(*KINDS)])
