"""Parse `jaxfl sweep`: the options of `jaxfl run`, most of them with several values."""

# ruff: noqa: RUF009 -- option() returns a field

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxfl.algorithms.registry import ALGORITHMS, algorithm
from jaxfl.cli.build import DEMO
from jaxfl.cli.options import DEFAULTS, LIMITS, Option, Setup, option, options
from jaxfl.cli.parser import (
    Parser,
    hyper_parameters,
    make_parser,
    number,
    options_help,
    parse,
    read_options,
    with_numbers,
)
from jaxfl.cli.readers import pair, real, rounds, text, whole
from jaxfl.cli.written import JSON, TRACK, flag
from jaxfl.core.errors import InputError, require
from jaxfl.core.params import at_most_one, known
from jaxfl.views.selection import AUTO

__all__ = [
    "OF_ALGORITHM",
    "OF_PROBLEM",
    "Session",
    "Spans",
    "larger",
    "parse_sweep",
    "sweep_options",
    "sweep_parser",
]

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
OF_PROBLEM = (
    "data",
    "clients",
    "partition",
    "alpha",
    "model",
    "regularizer",
    "strength",
    "clip_by",
)
AXES = (*OF_ALGORITHM, *OF_PROBLEM)  # options that take several values
WITHOUT = ("seed", "checkpoint_every", "metrics_on", *LIMITS, "rounds")
RUNS = 10**7  # of one sweep: the hyper-parameters of more do not fit in memory
TITLES = {
    "data": "data",
    "model": "model",
    "parts": "parts of the algorithms",
    "run": "runs",
    "output": "input and output",
}
OF_RUNS = {
    "rounds": Option(
        "run",
        "T",
        "number of rounds (default: 200); auto takes that of the theory",
        rounds,
        "values",
    ),
    "seeds": Option("run", "S", "run with the seeds 0 to S-1 (default: 1)", whole(1, RUNS)),
    "seed": Option("run", "S", "run with these seeds", whole(0, 2**31 - 1), "values"),
    "unpaired": Option("run", "", "draw separately for each setting, not once per seed"),
}


@dataclasses.dataclass(frozen=True)
class Spans:
    """What a sweep is made from."""

    algorithms: list[str]
    setup: dict[str, Any]  # options with one value
    static: dict[str, list[Any]]  # options with several
    numbers: dict[str, list[Any]]  # hyper-parameters and ``rounds``; schedules are texts
    seeds: list[int]
    paired: bool = True

    @property
    def runs(self) -> int:
        """An upper bound on the number of runs: axes that an algorithm does not use are broadcast."""
        axes = [*self.static.values(), *self.numbers.values(), self.algorithms, self.seeds]
        return math.prod(map(len, axes))


_run, _output = (functools.partial(option, group) for group in ("run", "output"))


@dataclasses.dataclass(frozen=True)
class Session:
    """Options that change no result: where it goes, what computes it, and what is printed and drawn."""

    memory: int | None = _run(
        None,
        "BYTES",
        "memory for the runs that are computed together (default: most of what is free)",
        whole(1),
    )
    on: str | None = _run(
        None,
        "WHERE",
        "what computes the chunks: processes:N of this machine, ray, ray://HOST:PORT, dask://HOST:PORT or "
        "slurm (default: this process)",
    )
    slurm_option: dict[str, str] = _run(
        dict,
        "NAME=VALUE",
        "option of the jobs of --on slurm, such as partition=gpu (repeatable)",
        pair,
        "repeat",
    )
    chunk_seconds: float | None = _run(
        None, "SECONDS", "longest time that a chunk of --on takes (default: 300)", real(above=0)
    )
    out: str | None = _output(
        None, "DIR", "folder for the result (default: results/sweep-ALGORITHMS-DATA)"
    )
    resume: str | None = _output(None, "DIR", "finish the sweep in this folder")
    extend: str | None = _output(
        None,
        "DIR",
        "add these values, ALGORITHMs and seeds to the sweep in this folder, or more rounds; what is "
        "there is not computed again",
    )
    track: str | None = _output(None, "WHERE", TRACK)
    choose_by: str = _output(
        AUTO,
        "HOW",
        "the metric after the last round by which the best setting along lr and shift is chosen: auto "
        "(default: accuracy, else loss, on validation data; without them the training loss), a metric, "
        "min:NAME or max:NAME",
    )
    plan: bool = _output(False, "", "report the plan and stop: runs, chunks, memory, evaluations")
    plan_time: bool = _output(
        False, "", "like --plan, and also compile and time one program to estimate the total time"
    )
    no_plot: bool = _output(False, "", "draw no pictures")
    quiet: bool = _output(False, "", "print nothing")
    json: bool = _output(False, "", JSON)


def parse_sweep(words: Sequence[str]) -> tuple[Spans | None, Session]:
    """The sweep that the command line describes, and the session.

    With --extend it has what is added, with --resume it is None.
    """
    raw = parse(_parser(), words, "", nargs="+")
    session = Session(**read_options(options(Session), raw))
    alone = session.on is None and session.chunk_seconds is not None
    require(not alone, "needs --on", **{"--chunk-seconds": session.chunk_seconds})
    require(session.on == "slurm" or not session.slurm_option, "--slurm-option needs --on slurm")
    folders = {"resume": session.resume, "extend": session.extend, "out": session.out}
    at_most_one("each names the folder of a sweep", **folders)
    if session.resume is None:
        return _spans(raw, session.extend is not None), session
    for name in sorted(raw.keys() - options(Session).keys()):
        typed = "ALGORITHM" if name == "algorithms" else flag(name.removeprefix("number "))
        resumed = (
            f"{typed} does not go with --resume {session.resume}, which finishes the sweep as it is"
        )
        raise InputError(resumed, "leave it out")
    return None, session


def larger(old: Spans, more: Spans, folder: str) -> Spans:
    """A sweep with what is added to it; raise for an option that cannot be."""

    numbers, begun = dict(old.numbers), {**dataclasses.asdict(Setup()), **DEFAULTS, **old.setup}
    others = {name: (begun[name], v) for name, v in more.setup.items() if name not in AXES}
    for name, (before, now) in {**others, "unpaired": (not old.paired, not more.paired)}.items():
        way = "leave it out: values, algorithms, seeds and rounds can be added"
        value = "" if name == "unpaired" else f" {now}"
        fixed = f"{flag(name)}{value} does not go with --extend {folder}"
        require(now == before or now is False, fixed, way)
    lists = {name: [value] for name, value in old.setup.items() if name in AXES} | old.static
    added = {name: [value] for name, value in more.setup.items() if name in AXES} | more.static
    for name, values in added.items():
        before = lists.get(name, [begun[name]])
        default = f"{folder} left {flag(name)} to its default, which other values cannot join"
        require(before != [None], default, "name another folder with --out")
        lists[name] = [*dict.fromkeys([*before, *values])]
    for name, values in more.numbers.items():
        before = numbers.get(name, [])
        longer = name == "rounds" and len(before) < 2 and len(values) == 1
        numbers[name] = values if longer else [*dict.fromkeys([*before, *values])]
    setup = {name: value for name, value in old.setup.items() if name not in AXES}
    whole = Spans(
        [*dict.fromkeys([*old.algorithms, *more.algorithms])],
        setup | {name: values[0] for name, values in lists.items() if len(values) == 1},
        {name: values for name, values in lists.items() if len(values) > 1},
        numbers,
        [*dict.fromkeys([*old.seeds, *more.seeds])],
        old.paired,
    )
    return checked(whole)


def _spans(raw: Mapping[str, Any], added: bool = False) -> Spans:
    algorithms = [text("ALGORITHM", word) for word in raw.get("algorithms", [])]
    require(
        added or algorithms,
        "`jaxfl sweep` needs an ALGORITHM",
        "`jaxfl list algorithms` names them",
    )
    setup = read_options(_run_options(), raw)
    static = {name: setup.pop(name) for name in AXES if name in setup}
    numbers = {
        name: [number(name, word, integer) for word in raw[f"number {name}"]]
        for name, integer in hyper_parameters().items()
        if f"number {name}" in raw
    }
    runs = read_options(OF_RUNS, raw)
    if "rounds" in runs:
        numbers["rounds"] = runs["rounds"]
        alone = None not in numbers["rounds"] or len(numbers["rounds"]) == 1
        require(alone, "--rounds auto goes with no other number of rounds")
    both = "seeds" in runs and "seed" in runs
    require(not both, "--seeds and --seed are both given", "the first is how many, the other which")
    seeds = runs.get("seed", list(range(runs.get("seeds", 0 if added else 1))))
    given = {flag(name): values for name, values in {**static, **numbers}.items()}
    for name, values in {"ALGORITHM": algorithms, **given, "--seed": runs.get("seed", [])}.items():
        for value in values:
            require(values.count(value) == 1, "is given twice", "give it once", **{name: value})
    setup |= {name: values[0] for name, values in static.items() if len(values) == 1}
    static = {name: values for name, values in static.items() if len(values) > 1}
    spans = Spans(algorithms, setup, static, numbers, seeds, "unpaired" not in runs)
    return spans if added else checked(spans)


def checked(spans: Spans) -> Spans:
    """The sweep; raise for one of too many runs."""
    require(
        spans.runs <= RUNS,
        lambda: f"This sweep has {spans.runs:,} runs, more than the {RUNS:,} that one can have",
        "give fewer values, or divide it into several",
    )
    return spans


def _run_options() -> dict[str, Option]:
    """The options of `jaxfl run` that a sweep has too; :data:`AXES` with several values."""
    return {
        name: option._replace(many="values") if name in AXES else option
        for name, option in options(Setup).items()
        if name not in WITHOUT
    }


def sweep_parser() -> Parser:
    """All that `jaxfl sweep` takes."""
    return with_numbers(_parser(), nargs="+")


def _parser() -> Parser:
    parser = make_parser({**_run_options(), **OF_RUNS, **options(Session)}, TITLES)
    parser.add_argument("algorithms", nargs="*", metavar="ALGORITHM", help=argparse.SUPPRESS)
    return parser


def sweep_options(words: Sequence[str]) -> str:
    """The options of `jaxfl sweep`, with the hyper-parameters of the algorithms in ``words``."""
    names = [word for word in words if not word.startswith("-")]
    for name in names:
        known("algorithm", name, ALGORITHMS)
    return options_help(_parser(), [algorithm(name) for name in names or [DEMO]], nargs="+")
