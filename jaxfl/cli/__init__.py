"""The command line: `jaxfl run`, `show`, `compare`, `plot`, `papers`, `list`, `account` and others.

`argparse` rather than a library of typed functions, because most options come from the
algorithms' own records of hyper-parameters.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from jaxfl.errors import InputError

__all__ = ["keep_programs", "main"]

SHORT = 0.2  # seconds of compilation that are not worth a file

HELP = """\
usage: jaxfl COMMAND [...]

Private, compressed federated optimization, simulated.

  jaxfl run [ALGORITHM] [--OPTION VALUE ...]   run one algorithm; without options a demonstration
  jaxfl run ALGORITHM --help                   its options and hyper-parameters
  jaxfl run --resume FOLDER [--rounds MORE]    go on with an earlier run
  jaxfl sweep ALGORITHM ... [--NUMBER V ...]   a grid of runs; --resume FOLDER finishes one
  jaxfl show DIR [--where eps=1,5] ...         the result of a sweep as a table, or that of a run
  jaxfl compare DIR_A DIR_B ...                two sweeps, or two runs, side by side
  jaxfl plot DIR [--out DIR] ...               pictures of a sweep or of a run
  jaxfl papers [run NAME ...]                  published figures and tables, listed or run again
  jaxfl list [KIND] [--json]                   what there is: algorithms, models, data, partitions,
                                               compressors, samplers, participations,
                                               aggregations
  jaxfl theory [--NUMBER VALUE ...]            SoteriaFL's Tables 1 and 2 for any numbers
  jaxfl account KIND --sigma S --delta D ...   what noise proves, beside what the paper claims
  jaxfl calibrate KIND --eps E --delta D ...   the least noise for (eps, delta)
  jaxfl audit ALGORITHM [--runs R] ...         a lower bound on eps, by attack
  jaxfl profile [ALGORITHM] ...                where the time of a round goes
  jaxfl --version
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command `jaxfl`; returns its exit status: 0, 2 for a mistake, 130 when interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        keep_programs()
    try:
        _dispatch(words)
    except InputError as error:
        print(f"jaxfl: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print(f"jaxfl: interrupted{str(error) or '.'}", file=sys.stderr, flush=True)
        if argv is None:  # a thread of JAX may be compiling still, and crash in a regular exit
            os._exit(130)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def keep_programs() -> None:
    """Compiled programs are kept for the next call, in the user's cache, unless JAX was told where.

    JAX_ENABLE_COMPILATION_CACHE=0 turns it off.
    """
    import jax
    import pooch

    now = jax.config.values
    if not now["jax_enable_compilation_cache"] or now["jax_compilation_cache_dir"] is not None:
        return
    folder = Path(pooch.os_cache("jaxfl")) / f"programs-{platform.node()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORT)


def _dispatch(words: list[str]) -> None:
    command, rest = (words[0], words[1:]) if words else ("--help", [])
    if command in ("-h", "--help"):
        print(HELP, end="")
    elif command == "--version":
        from jaxfl import __version__

        print(f"jaxfl {__version__}")
    elif command == "list":
        from jaxfl.cli.lists import run_list

        run_list(rest)
    elif command == "run" and ("-h" in rest or "--help" in rest):
        from jaxfl.cli.parser import print_run_help

        print_run_help(rest)
    elif command == "run":
        from jaxfl.cli.parser import parse_run
        from jaxfl.cli.work import run

        run(*parse_run(rest))
    elif command == "sweep" and ("-h" in rest or "--help" in rest):
        from jaxfl.cli.sweep_parser import print_sweep_help

        print_sweep_help(rest)
    elif command == "sweep":
        from jaxfl.cli.sweep_parser import parse_sweep
        from jaxfl.cli.sweeping import run_sweep

        run_sweep(*parse_sweep(rest))
    elif command in ("account", "calibrate", "audit"):
        from jaxfl.cli.questions import run_question

        run_question(command, rest)
    elif command == "profile":
        from jaxfl.cli.profiling import run_profile

        run_profile(rest)
    elif command == "papers":
        from jaxfl.cli.papers import run_papers

        run_papers(rest)
    elif command == "theory":
        from jaxfl.cli.theory import run_theory

        run_theory(rest)
    elif command in ("show", "compare", "plot"):
        from jaxfl.cli.look import run_look

        run_look(command, rest)
    else:
        kind = "option" if command.startswith("-") else "command"
        raise InputError(
            f"There is no {kind} {command!r}: the commands are run, sweep, show, compare, plot, list, "
            "papers, theory, account, calibrate, audit, profile."
        )
