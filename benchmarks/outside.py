"""Numbers that others published, beside ours.

    python benchmarks/outside.py list
    python benchmarks/outside.py run NAME [NAME ...] [--seeds N] [--fast]
    python benchmarks/outside.py page > docs/outside.md

A run measures the seeds of a row that its record lacks, and adds each to the record, so that an
interrupted run goes on.  NAME is a name of the list, a prefix shared by several (opacus), or all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import outside

from jaxfl import InputError

__all__ = ["main"]

RESULTS = Path(__file__).parent / "results" / "outside"
FAST = 1.0  # minutes of a seed


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 2 for a mistake, 130 when interrupted."""
    parser = _parser()
    asked = parser.parse_args(argv)
    try:
        if asked.command == "list":
            _listed()
        elif asked.command == "page":
            print(outside.page(outside.ROWS.values(), Path(asked.out)), end="")
        else:
            _run(asked)
    except InputError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        words = "interrupted; finished seeds are kept: give the command again to go on."
        print(words, file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="list the rows")
    run = commands.add_parser("run", help="measure some of them")
    page = commands.add_parser("page", help="print the page of the documentation")
    run.add_argument("names", nargs="+", metavar="NAME", help="a name, a shared prefix, or all")
    seeds = "how many seeds a row has in the end (default: as many as the list says)"
    run.add_argument("--seeds", type=int, metavar="N", help=seeds)
    fast = "take one seed, of the rows that need at most a minute"
    run.add_argument("--fast", action="store_true", help=fast)
    data = "folder of data files (default: the variable JAXFL_DATA, else the user's cache)"
    run.add_argument("--data-dir", metavar="DIR", help=data)
    for each in (run, page):
        out = "folder of the records (default: benchmarks/results/outside)"
        each.add_argument("--out", default=str(RESULTS), metavar="DIR", help=out)
    return parser


def _listed() -> None:
    width = max(map(len, outside.ROWS))
    for name, row in outside.ROWS.items():
        time = f"{row.seeds} x {row.minutes:g} min" if row.measure else "cannot run here"
        print(f"{name:<{width}}  {row.source}; {row.setting} ({time})")


def _run(asked: argparse.Namespace) -> None:
    out = Path(asked.out)
    rows = outside.chosen(asked.names)
    for row in rows:
        if row.measure is None:
            print(f"{row.name}: cannot run here: {row.missing}", file=sys.stderr)
            continue
        if asked.fast and row.minutes > FAST:
            continue
        done = outside.read(row, out)
        for seed in range(1 if asked.fast else asked.seeds or row.seeds):
            if seed not in done:
                print(f"{row.name}, seed {seed}", file=sys.stderr, flush=True)
                outside.measured(row, out, asked.data_dir, seed)
    print(outside.table(rows, out).text())


if __name__ == "__main__":
    sys.exit(main())
