"""The command line: `jaxfl run`, `show`, `compare`, `plot`, `list`, `account` and others.

* :mod:`~jaxfl.cli.build` -- build the algorithm and the problem of a :class:`Setup`
* :mod:`~jaxfl.cli.compute` -- `jaxfl run` and `jaxfl sweep`: compute a :class:`Study` in its
  folder, and show its result
* :mod:`~jaxfl.cli.config` -- `--config FILE`: options of a command from a TOML file
* :mod:`~jaxfl.cli.folder` -- the folder of a run or a sweep: ``config.json``, which --resume and
  --extend read, next to the engine's files
* :mod:`~jaxfl.cli.imports` -- `--import FILE`: code of the user's own, which registers algorithms,
  models, data sets and parts
* :mod:`~jaxfl.cli.interrupt` -- Ctrl-C, and a scheduler's request to end, always arrive
* :mod:`~jaxfl.cli.lists` -- `jaxfl list` and `jaxfl completion`: the names that there are, in
  lines, as JSON, and for shells
* :mod:`~jaxfl.cli.look` -- `jaxfl show`, `jaxfl compare` and `jaxfl plot`: tables and pictures of
  results
* :mod:`~jaxfl.cli.options` -- the options of `jaxfl run` and `jaxfl sweep`: a field each, explained
  in the docstrings of the records
* :mod:`~jaxfl.cli.parser` -- parse the command line; every mistake is reported in one sentence
* :mod:`~jaxfl.cli.questions` -- `jaxfl account`, `jaxfl calibrate` and `jaxfl audit`: privacy by
  the name of an algorithm
* :mod:`~jaxfl.cli.report` -- what is printed of runs
* :mod:`~jaxfl.cli.written` -- arguments of the library as the command line has them: as they are
  written, and read

The help of a command is the docstring of its function, and what :data:`MORE` adds to it.
It uses `argparse` and not a library of typed functions, because most options come from the records
of hyper-parameters of the algorithms.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxfl.cli.compute import run
from jaxfl.cli.config import Config, with_config
from jaxfl.cli.imports import imported, record
from jaxfl.cli.interrupt import Terminated
from jaxfl.cli.lists import SHELLS, list_parser, run_list, script
from jaxfl.cli.look import look_options, look_parser, run_compare, run_plot, run_show
from jaxfl.cli.options import help_of
from jaxfl.cli.parser import Parser, options_of_runs, parser_of_runs
from jaxfl.cli.questions import parameters, question_parser, run_account, run_audit, run_calibrate
from jaxfl.cli.written import as_typed, suggested
from jaxfl.core.calls import blamed
from jaxfl.core.errors import InputError, printable
from jaxfl.core.foreign import apart
from jaxfl.core.params import near
from jaxfl.core.programs import keep_programs
from jaxfl.core.version import __version__

__all__ = ["keep_programs", "main"]

TRACEBACK = "--traceback"


def main(argv: Sequence[str] | None = None) -> int:
    """The command `jaxfl`; returns its exit status: 0, 2 for an error of the user or of the machine, 3 if
    a probe or an attack refutes an eps, 130 when interrupted and 143 when terminated, as in a shell."""
    words = list(sys.argv[1:] if argv is None else argv)
    words, traced = [word for word in words if word != TRACEBACK], TRACEBACK in words
    config: Config | None = None
    lines: Sequence[str] = ()
    try:
        if argv is None:
            keep_programs()
        only_json = "--json" in words and not {"-h", "--help"} & {*words}
        with apart(only_json):
            if words and words[0] in COMMANDS and (parser := COMMANDS[words[0]].parser):
                words[1:] = imported(words[1:])
                words[1:], config = with_config(words[1:], parser)
            with blamed("Your code") if record() else contextlib.nullcontext():
                status = _dispatch(words) or 0
        sys.stdout.flush()  # a full disk is reported here, and not when Python ends
        return status
    except InputError as error:
        sentence = error.sentence(as_typed(words), suggested)
        sentence = config.named(sentence) if config else sentence
        lines = error.lines
        if traced:
            traceback.print_exception(error)
    except KeyboardInterrupt as error:
        print(f"jaxfl: interrupted{str(error) or '.'}", file=sys.stderr, flush=True)
        status = 143 if isinstance(error, Terminated) else 130
        if argv is None:  # a thread of JAX may still be compiling, and crash in a regular exit
            os._exit(status)
        return status
    except BrokenPipeError:  # the reader, such as `head`, has ended
        _silence()
        return 0
    except OSError as error:
        what = f"cannot read or write {error.filename}" if error.filename else "cannot write"
        sentence = f"{what}: {error.strerror or error}."
        _silence()
    except OverflowError as error:
        sentence = f"a number is too large to compute with ({error}): make the largest smaller."
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise  # other errors of JAX are bugs
        reason = f" ({str(error).splitlines()[0].rstrip('.')})" if str(error) else ""
        way = "take fewer clients, smaller data or a smaller model"
        sentence = f"the memory is too small{reason}: {way}."
    print(f"jaxfl: error: {printable(sentence)}", file=sys.stderr)
    for line in lines:  # of the user's code
        print(f"  {printable(line)}", file=sys.stderr)
    return 2


def _silence() -> None:
    """Drop what cannot be printed: Python would try once more when it ends."""
    with contextlib.suppress(OSError, ValueError):  # in tests standard output is no file
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_help(words: Sequence[str]) -> None:
    """usage: jaxfl COMMAND [ARGUMENT ...] [--OPTION VALUE ...]

    Simulate private, communication-compressed federated optimization.

    run algorithms
      run [ALGORITHM]         run one algorithm; without ALGORITHM a demonstration that takes seconds
      sweep ALGORITHM ...     run a grid: every combination of the values of options
      run|sweep --resume DIR  finish what was interrupted
      run|sweep --extend DIR  compute more rounds; of a sweep also more values, algorithms or seeds

    look at results
      show DIR                print the table of a sweep, or the summary of a run
      compare DIR DIR         print the differences between two sweeps or two runs
      plot DIR                draw the pictures of a sweep or of a run

    privacy accounting
      account NAME            compute the eps that is proven for a given noise, and the paper's claim
      calibrate NAME          compute the least noise for a given eps
      audit ALGORITHM         measure a lower bound on eps by an attack

    reference and tools
      list [KIND]             list the available algorithms, models, data sets, partitions and parts
      completion SHELL        print a completion script for bash, zsh or fish

    `jaxfl COMMAND --help` explains a command, and `jaxfl run ALGORITHM --help` lists the
    hyper-parameters of an algorithm.  `jaxfl --version` prints the version.

    Every command except completion takes
      --config FILE           read options from a TOML file; the command line overrides the file
      --json                  print the result as one JSON object
      --traceback             print all of what Python says of an error, not the sentence alone

    examples
      jaxfl run
      jaxfl run soteriafl_sgd --eps 2 --omega 9 --out first
      jaxfl sweep soteriafl_sgd ldp_sgd --eps 1 4 16 --batch 32 --lr 0.1 0.3 1 --seeds 3 --out grid
      jaxfl show grid
    """
    print(inspect.getdoc(run_help))


def run_version(words: Sequence[str]) -> None:
    """usage: jaxfl --version"""
    print(f"jaxfl {__version__}")


def run_run(words: Sequence[str]) -> int:
    """usage: jaxfl run [ALGORITHM] [--OPTION VALUE ...]

    Run one algorithm and write its plan, its result, its final state and its picture to a folder.  The
    options are those of `jaxfl sweep`, with one value each.

    Hyper-parameters that are not given follow from the algorithm's theory or take its defaults; the
    summary lists the source of each.  Without ALGORITHM, a demonstration runs: soteriafl_sgd with a step
    size, batch and compression that suit the digits data.

      jaxfl run soteriafl_sgd --eps 2 --omega 9 --rounds 300 --out first
      jaxfl run ldp_svrg --data mnist --partition by_label --model mlp --lr 0.1 --batch 64
      jaxfl run --resume first
      jaxfl run --extend first --rounds 600
      jaxfl run soteriafl_sgd --config first.toml --json
    """
    return run("run", words)


def run_grid(words: Sequence[str]) -> int:
    """usage: jaxfl sweep ALGORITHM [ALGORITHM ...] [--OPTION VALUE ...] [--PARAMETER VALUE [VALUE ...]]

    Run a grid, every combination of the values for every seed, and write its result and pictures.  The
    options are those of `jaxfl run`: several values of an option are an axis of the grid.  Axes can be
    hyper-parameters, --rounds, --seed, --data, --clients, --partition, --alpha, --model, --regularizer,
    --strength, --clip-by and the parts of algorithms.

    A setting is one combination of values; its runs differ in the seed alone.  A program is what
    JAX compiles: settings of one algorithm with arrays of similar shapes share one, and another
    algorithm, data set or part, or a much larger --batch, needs another.  A chunk holds the
    settings that a program computes together, as many as fit in memory.  Runs with the same seed
    share their random draws, which makes their differences precise (--unpaired: separate draws).  A
    value may be a schedule, as in --lr 0.1 cosine:0.3.

      jaxfl sweep soteriafl_sgd ldp_sgd --eps 1 4 --omega 4 19 --batch 32 --lr 0.1 0.3 1 --seeds 3
      jaxfl sweep soteriafl_sgd --config grid.toml --plan
      jaxfl sweep --resume grid
      jaxfl sweep --extend grid --eps 16 --seeds 5
      jaxfl show grid
    """
    return run("sweep", words)


def run_completion(words: Sequence[str]) -> None:
    """usage: jaxfl completion SHELL

    Print a script with which bash, zsh or fish completes commands, options and names.  Write it to the
    file from which the shell reads it, and again after an update of jaxfl:

      jaxfl completion bash > ~/.local/share/bash-completion/completions/jaxfl
      jaxfl completion zsh > "${fpath[1]}/_jaxfl"
      jaxfl completion fish > ~/.config/fish/completions/jaxfl.fish
    """
    found, rest = completion_parser().parse_known_args(list(words))
    usage = f"`jaxfl completion` takes one of {', '.join(SHELLS)}"
    completion_parser().finish(rest, usage, usage)
    named = {name: each.parser for name, each in COMMANDS.items()}
    print(script(found.shell, {name: (explained(name, []), p) for name, p in named.items() if p}))


def completion_parser() -> Parser:
    parser = Parser()
    parser.add_argument("shell", nargs="?", metavar="SHELL")
    return parser


class Command(NamedTuple):
    """A command: its help is the docstring of ``answer``, and ``more``."""

    answer: Callable[[list[str]], int | None]  # the exit status; None: 0
    # what it takes: the keys of --config, and what a shell completes
    parser: Callable[[], Parser] | None = None
    more: Callable[[list[str]], str] | None = None


one = functools.partial
COMMANDS = {
    "run": Command(run_run, parser_of_runs, one(options_of_runs, "run")),
    "sweep": Command(run_grid, parser_of_runs, one(options_of_runs, "sweep")),
    "show": Command(run_show, one(look_parser, "show"), look_options),
    "compare": Command(run_compare, one(look_parser, "compare"), look_options),
    "plot": Command(run_plot, one(look_parser, "plot"), look_options),
    "list": Command(run_list, list_parser),
    **{
        name: Command(answer, one(question_parser, name), one(parameters, name))
        for name, answer in {"account": run_account, "calibrate": run_calibrate}.items()
    },
    "audit": Command(run_audit, one(question_parser, "audit")),
    "completion": Command(run_completion, completion_parser),
    "-h": Command(run_help),
    "--help": Command(run_help),
    "--version": Command(run_version),
}
# without words: their help
ALONE = ("show", "compare", "plot", "account", "calibrate", "audit", "completion")


def explained(command: str, words: list[str]) -> str:
    """The help of a command."""
    answer, parser, more = COMMANDS[command]
    parts = [str(inspect.getdoc(answer)), *([more(words)] if more else [])]
    if parser and command != "completion":
        parts.append(help_of(of_all))
    return "\n\n".join(parts)


def of_all() -> None:
    """The options of every command.

    options of every command:
      --import FILE             run this Python file first, which registers algorithms, models, data sets
                                or parts (repeatable); a folder that was begun with it needs it again
      --config FILE             read options from a TOML file; the command line overrides the file
      --json                    print the result as one JSON object
      -h, --help                print this help
    """


def _dispatch(words: list[str]) -> int | None:
    command = words[0] if words else "--help"
    if command in COMMANDS:
        answer, rest = COMMANDS[command].answer, words[1:]
        if not {"-h", "--help"} & set(rest) and (rest or command not in ALONE):
            return answer(rest)
        print(explained(command, rest))
        return None
    kind = "option" if command.startswith("-") else "command"
    names = [name for name in COMMANDS if not name.startswith("-")]
    close = near(command, COMMANDS)
    other = f"did you mean {close}?" if close else f"the commands are {', '.join(names)}."
    raise InputError(f"There is no {kind} {command!r}: {other}")
