"""The command line: `jaxfl run`, `show`, `compare`, `plot`, `papers`, `list`, `account` and others.

`argparse` rather than a library of typed functions, because most options come from the
algorithms' own records of hyper-parameters.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from jaxfl.cli.interrupt import Terminated
from jaxfl.cli.lists import run_list
from jaxfl.cli.look import run_look
from jaxfl.cli.papers import run_papers
from jaxfl.cli.parser import parse_run, print_run_help
from jaxfl.cli.profiling import run_profile
from jaxfl.cli.questions import run_question
from jaxfl.cli.sweep_parser import parse_sweep, print_sweep_help
from jaxfl.cli.sweeping import run_sweep
from jaxfl.cli.theory import run_theory
from jaxfl.cli.work import run
from jaxfl.cli.written import as_typed, suggested
from jaxfl.core.errors import InputError
from jaxfl.core.version import __version__

__all__ = ["keep_programs", "main"]

COMMANDS = (
    "run", "sweep", "show", "compare", "plot", "list", "papers", "theory", "account", "calibrate",
    "audit", "profile",
)  # fmt: skip
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
    """The command `jaxfl`; returns its exit status: 0, 2 for a mistake, and as in a shell 130 when
    interrupted, 143 when terminated."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if argv is None:
            keep_programs()
        _dispatch(words)
        sys.stdout.flush()  # a full disk says so here, and not when Python has ended
    except InputError as error:
        return _refused(error.sentence(as_typed(words), suggested))
    except KeyboardInterrupt as error:
        print(f"jaxfl: interrupted{str(error) or '.'}", file=sys.stderr, flush=True)
        status = 143 if isinstance(error, Terminated) else 130
        if argv is None:  # a thread of JAX may be compiling still, and crash in a regular exit
            os._exit(status)
        return status
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        _hush()
    except OSError as error:
        what = f"cannot read or write {error.filename}" if error.filename else "cannot write"
        status = _refused(f"{what}: {error.strerror or error}.")
        _hush()
        return status
    except MemoryError as error:
        return _refused(_too_small(error))
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):  # which is how JAX says that memory is short
            raise
        return _refused(_too_small(error))
    except OverflowError as error:
        return _refused(
            f"a number is too large to compute with ({error}): make the largest ones smaller."
        )
    return 0


def _refused(sentence: str) -> int:
    print(f"jaxfl: error: {sentence}", file=sys.stderr)
    return 2


def _too_small(error: BaseException) -> str:
    said = str(error).splitlines()[0].rstrip(".") if str(error) else ""
    why = f" ({said})" if said else ""
    return f"the memory is too small{why}: take fewer clients, smaller data or a smaller model."


def _hush() -> None:
    """What is still to be printed cannot be: Python would try once more at its end."""
    with contextlib.suppress(OSError, ValueError):  # a test's standard output is no file
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
        print(f"jaxfl {__version__}")
    elif command == "list":
        run_list(rest)
    elif command == "run" and ("-h" in rest or "--help" in rest):
        print_run_help(rest)
    elif command == "run":
        run(*parse_run(rest))
    elif command == "sweep" and ("-h" in rest or "--help" in rest):
        print_sweep_help(rest)
    elif command == "sweep":
        run_sweep(*parse_sweep(rest))
    elif command in ("account", "calibrate", "audit"):
        run_question(command, rest)
    elif command == "profile":
        run_profile(rest)
    elif command == "papers":
        run_papers(rest)
    elif command == "theory":
        run_theory(rest)
    elif command in ("show", "compare", "plot"):
        run_look(command, rest)
    else:
        kind = "option" if command.startswith("-") else "command"
        near = difflib.get_close_matches(command, (*COMMANDS, "--help", "--version"), 1)
        raise InputError(
            f"There is no {kind} {command!r}: "
            + (f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}.")
        )
