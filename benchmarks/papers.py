"""Published figures and tables, listed and reproduced.

    python benchmarks/papers.py list
    python benchmarks/papers.py run NAME [NAME ...] [--OPTION VALUE ...]

A run writes the picture in the paper's layout, and a table of the published values, ours,
and the eps that are claimed, proven and audited.  NAME is a name of the list, a prefix shared by several
(hu), or all.  The same command continues an interrupted run.

    python benchmarks/papers.py run soteriafl-figure-1 --fast
    python benchmarks/papers.py run hu --out results/papers
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import papers
from papers.report import Report, epsilon_table, plain, table

from jaxfl import InputError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 2 for a mistake, 130 when interrupted."""
    parser = _parser()
    asked = parser.parse_args(argv)
    try:
        _listed(asked.json) if asked.command == "list" else _run(asked)
    except InputError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        words = "interrupted; finished parts are kept: give the command again to resume."
        print(words, file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="list the figures and tables")
    run = commands.add_parser("run", help="reproduce some of them")
    run.add_argument("names", nargs="+", metavar="NAME", help="a name, a shared prefix, or all")
    out = "folder of the results, with a folder for each NAME (default: results/papers)"
    run.add_argument("--out", default="results/papers", metavar="DIR", help=out)
    fast = "take fewer seeds, rounds and settings, and write to NAME-fast"
    run.add_argument("--fast", action="store_true", help=fast)
    data = "folder of data files (default: the variable JAXFL_DATA, else the user's cache)"
    run.add_argument("--data-dir", metavar="DIR", help=data)
    run.add_argument("--quiet", action="store_true", help="print nothing")
    for each in (listing, run):
        each.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _listed(as_json: bool) -> None:
    entries = papers.entries()
    if as_json:
        _print_json({name: {"what": e.what, "paper": e.paper} for name, e in entries.items()})
        return
    width = max(map(len, entries))
    for name, entry in entries.items():
        print(f"{name:<{width}}  {entry.what}; {entry.paper}")


def _run(asked: argparse.Namespace) -> None:
    reports: list[Report] = []

    def say(line: str) -> None:
        if not asked.quiet:
            print(line, file=sys.stderr, flush=True)

    for name in _named(asked.names):
        report = papers.run(name, asked.out, fast=asked.fast, data=asked.data_dir, say=say)
        reports.append(report)
        if not (asked.quiet or asked.json):
            print(table(report).text())
            if report.epsilons:
                print(epsilon_table(report).text())
            print(*(f"file  {file}" for file in report.files), sep="\n")
    if asked.json:
        _print_json({report.entry.name: _facts(report) for report in reports})


def _named(asked: Sequence[str]) -> list[str]:
    """Names, in their order, each once; the beginning of several stands for all of them."""
    known = list(papers.entries())
    chosen: dict[str, None] = {}
    for word in asked:
        several = [name for name in known if word == "all" or name.startswith(f"{word}-")]
        chosen |= dict.fromkeys([word] if word in known else several or [papers.entry(word).name])
    return list(chosen)


def _facts(report: Report) -> dict[str, Any]:
    return {
        "rows": [
            {**row._asdict(), "ours": row.ours if isinstance(row.ours, str) else row.ours._asdict()}
            for row in report.rows
        ],
        "epsilons": [row._asdict() for row in report.epsilons],
        "seeds": report.seeds,
        "seconds": report.seconds,
        "files": [str(file) for file in report.files],
    }


def _print_json(value: Any) -> None:
    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
