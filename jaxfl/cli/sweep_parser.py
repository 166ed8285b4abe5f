"""From a command line to a :class:`Spans`: `jaxfl run`'s options, most of them with several values."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxfl.algorithms.registry import ALGORITHMS, algorithm
from jaxfl.cli.options import options
from jaxfl.cli.parser import Help, Once, Parser, glued, hyper_parameters, number, read
from jaxfl.cli.readers import real, rounds, text, whole
from jaxfl.cli.written import flag
from jaxfl.core.errors import InputError, require
from jaxfl.core.params import known

__all__ = ["OF_ALGORITHM", "OF_PROBLEM", "Session", "Spans", "parse_sweep", "print_sweep_help"]

USAGE = "jaxfl sweep ALGORITHM [ALGORITHM ...] [--OPTION VALUE ...] [--NUMBER VALUE [VALUE ...]]"
ABOUT = """\
Run a whole grid: every combination of all the values that options and numbers are given, for every
seed.  Numbers, also --rounds, are axes of one compiled program; each algorithm, data set or part is
a program of its own.  Cells of a seed share their draws.  A schedule is a value too, as in
--lr 0.1 cosine:0.3.  The folder --out gets result.nc, pictures, and all that --resume needs; look at
it again with `jaxfl show FOLDER` and `jaxfl plot FOLDER`."""
OF_ALGORITHM = (
    "compressor",
    "sampler",
    "participation",
    "aggregation",
    "graph",
    "clip_mode",
    "noise_draw",
    "storage",
)
OF_PROBLEM = ("data", "clients", "partition", "alpha", "model", "regularizer", "strength")
WITHOUT = ("seed", "checkpoint_every", "target_loss", "max_seconds", "max_bits", "rounds")
RUNS = 10**7  # of one sweep: the numbers of more could not be held
TITLES = {"data": "data", "model": "model", "parts": "parts of the algorithms", "run": "runs"}


@dataclasses.dataclass(frozen=True)
class Spans:
    """Everything that a sweep is made from."""

    algorithms: list[str]
    setup: dict[str, Any]  # options with one value
    static: dict[str, list[Any]]  # options with several
    numbers: dict[str, list[Any]]  # also ``rounds``; schedules are texts
    seeds: list[int]
    paired: bool = True

    @property
    def runs(self) -> int:
        """How many at most: an algorithm without a number runs once along its axis."""
        many = [*self.static.values(), *self.numbers.values(), self.algorithms, self.seeds]
        return math.prod(map(len, many))


class Session(NamedTuple):
    """How this call goes; nothing that changes a number."""

    out: str | None = None
    resume: str | None = None
    quiet: bool = False
    plot: bool = True
    plan: bool = False  # only say what would be done
    memory: int | None = None
    select: str = "utility"
    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None


def parse_sweep(words: Sequence[str]) -> tuple[Spans | None, Session]:
    """The sweep that the command line asks for, None with --resume, and the session."""
    known = hyper_parameters()
    parser = _parser()
    group = parser.add_argument_group("numbers")
    for name in known:
        group.add_argument(flag(name), dest=f"number {name}", nargs="+", action=Once)
    found, rest = parser.parse_known_args(glued(words))
    parser.finish(rest, "", "`jaxfl sweep ALGORITHM --help` lists those there are")
    raw = {name: value for name, value in vars(found).items() if value is not None}
    session = _session(raw)
    _hosts(raw)
    if session.resume is not None:
        for option in sorted(_named(raw)):
            going = f"{option} does not go with --resume {session.resume}"
            raise InputError(f"{going}, which goes on with the sweep as it was", "leave it out")
        return None, session
    return _spans(raw, known), session


def _named(raw: Mapping[str, Any]) -> list[str]:
    """Options on the command line that decide what is computed."""
    session = {"out", "resume", "quiet", "no_plot", "plan", "memory", "select", "help"}
    session |= {"coordinator", "processes", "process"}
    given = [name for name in raw if name not in session and raw[name] not in (None, False, [])]
    return [flag(n.removeprefix("number ")) if n != "algorithms" else "ALGORITHM" for n in given]


def _spans(raw: Mapping[str, Any], known: Mapping[str, bool]) -> Spans:
    algorithms = [text("ALGORITHM", word) for word in raw.get("algorithms", [])]
    require(algorithms, "`jaxfl sweep` needs an ALGORITHM", "`jaxfl list algorithms` names them")
    _different("ALGORITHM", algorithms)
    setup: dict[str, Any] = {}
    static: dict[str, list[Any]] = {}
    for name, option in options().items():
        if name not in raw or name in WITHOUT:
            continue
        if name in (*OF_ALGORITHM, *OF_PROBLEM):
            values = [option.read(flag(name), word) for word in raw[name]]
            _different(flag(name), values)
            if len(values) > 1:
                static[name] = values
            else:
                setup[name] = values[0]
        else:
            setup[name] = read(flag(name), option, raw[name])
    numbers = {
        name: [number(name, word, integer) for word in raw[f"number {name}"]]
        for name, integer in known.items()
        if f"number {name}" in raw
    }
    if "rounds" in raw:
        numbers["rounds"] = [rounds("--rounds", word) for word in raw["rounds"]]
        alone = None not in numbers["rounds"] or len(numbers["rounds"]) == 1
        require(alone, "--rounds auto goes with no other number of rounds")
    for name, values in numbers.items():
        _different(flag(name), values)
    both = "seeds" in raw and "seed" in raw
    require(not both, "--seeds and --seed are both given", "the first is how many, the other which")
    seeds = list(range(whole(1, RUNS)("--seeds", raw.get("seeds", "1"))))
    if "seed" in raw:
        seeds = [whole(0, 2**31 - 1)("--seed", word) for word in raw["seed"]]
        _different("--seed", seeds)
    spans = Spans(algorithms, setup, static, numbers, seeds, not raw.get("unpaired", False))
    require(
        spans.runs <= RUNS,
        f"This sweep has {spans.runs:,} runs, more than the {RUNS:,} that one can have",
        "give fewer values, or divide it into several",
    )
    return spans


def _different(option: str, values: Sequence[Any]) -> None:
    for value in values:
        once = list(values).count(value) == 1
        require(once, "is given twice", "give it once", **{option: value})


def _session(raw: Mapping[str, Any]) -> Session:
    def count(name: str, least: int) -> int | None:
        return whole(least)(flag(name), raw[name]) if name in raw else None

    return Session(
        out=text("--out", raw["out"]) if "out" in raw else None,
        resume=text("--resume", raw["resume"]) if "resume" in raw else None,
        quiet=raw.get("quiet", False),
        plot=not raw.get("no_plot", False),
        plan=raw.get("plan", False),
        memory=count("memory", 1),
        select=text("--select", raw.get("select", "utility")),
        coordinator=raw.get("coordinator"),
        processes=count("processes", 1),
        process=count("process", 0),
    )


def _hosts(raw: Mapping[str, Any]) -> None:
    """Several hosts are told all three, or each would run the whole sweep by itself."""
    names = ("coordinator", "processes", "process")
    given, missing = ([n for n in names if (n in raw) == there] for there in (True, False))
    if given and missing:
        raise InputError(
            f"is for a sweep on several hosts and needs {' and '.join(map(flag, missing))} too",
            **{flag(given[0]): raw[given[0]]},
        )
    if given:
        real(below=int(raw["processes"]))("--process", raw["process"])


def _parser() -> Parser:
    parser = Parser(usage=USAGE, description=ABOUT, formatter_class=Help)
    parser.add_argument("algorithms", nargs="*", metavar="ALGORITHM", help=argparse.SUPPRESS)
    groups = {name: parser.add_argument_group(title) for name, title in TITLES.items()}
    for name, option in options().items():
        if name in WITHOUT:
            continue
        many = name in (*OF_ALGORITHM, *OF_PROBLEM) or option.many == "values"
        groups[option.group].add_argument(
            flag(name),
            metavar=option.metavar,
            help=option.doc,
            action="append" if option.many == "repeat" else Once,
            nargs="+" if many else None,
        )
    runs = groups["run"]
    runs.add_argument(
        "--rounds", metavar="T", nargs="+", action=Once, help="rounds (default: 200), or auto"
    )
    runs.add_argument("--seeds", metavar="S", action=Once, help="how many seeds (default: 1)")
    runs.add_argument("--seed", metavar="S", nargs="+", action=Once, help="or which")
    runs.add_argument(
        "--unpaired", action="store_true", help="draws of its own for each cell, not each seed"
    )
    runs.add_argument(
        "--memory",
        metavar="BYTES",
        action=Once,
        help="that a chunk may take (default: most of all)",
    )
    runs.add_argument("--coordinator", metavar="HOST:PORT", action=Once, help="of several hosts,")
    runs.add_argument("--processes", metavar="N", action=Once, help="how many they are,")
    runs.add_argument("--process", metavar="I", action=Once, help="and which of them this one is")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out",
        metavar="DIR",
        action=Once,
        help="folder of the result (default: results/sweep-ALGORITHMS-DATA)",
    )
    output.add_argument(
        "--resume", metavar="DIR", action=Once, help="finish the sweep in this folder"
    )
    output.add_argument(
        "--select",
        metavar="HOW",
        action=Once,
        help="what step sizes are chosen by: utility (default), loss, accuracy, ...",
    )
    output.add_argument(
        "--plan", action="store_true", help="say what would be done, and do nothing"
    )
    output.add_argument("--no-plot", action="store_true", help="draw no pictures")
    output.add_argument("--quiet", action="store_true", help="print nothing")
    output.add_argument("-h", "--help", action="store_true", help="show this, and exit")
    return parser


def print_sweep_help(words: Sequence[str]) -> None:
    """Help of `jaxfl sweep`, with the numbers of the algorithms named."""

    parser = _parser()
    names = [word for word in words if not word.startswith("-")]
    for name in names:
        known("algorithm", name, ALGORITHMS)
    params = {p.name: p for name in names or ["soteriafl_sgd"] for p in algorithm(name).params}
    group = parser.add_argument_group(f"numbers of {' or '.join(names or ['soteriafl_sgd'])}")
    for param in params.values():
        metavar = "K" if param.integer else "X"
        group.add_argument(
            flag(param.name), metavar=metavar, nargs="+", help=param.doc.replace("%", "%%")
        )
    parser.print_help()
