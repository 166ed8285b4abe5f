"""`jaxfl papers`: the published figures and tables, listed and reproduced."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxfl import papers
from jaxfl.cli.interrupt import Interrupts
from jaxfl.cli.parser import Once, Parser
from jaxfl.cli.readers import text
from jaxfl.cli.report import print_json, print_table
from jaxfl.core.errors import printable, require
from jaxfl.papers.report import Report, epsilon_table, table

__all__ = ["papers_parser", "run_papers"]


def run_papers(words: Sequence[str]) -> None:
    """usage: jaxfl papers
           jaxfl papers run NAME [NAME ...] [--OPTION VALUE ...]

    List the published figures and tables that jaxfl reproduces, or reproduce some of them.

    A run writes the picture in the paper's layout, and a table of the published values beside ours with
    the eps that are claimed, proven and audited.  NAME is a name of the list, a prefix shared by several
    (hu), or all.  The same command continues an interrupted run.

      jaxfl papers run soteriafl-figure-1 --fast
      jaxfl papers run hu --out results/papers

      --out DIR                 folder of the results, with a folder for each NAME
                                (default: results/papers)
      --fast                    take fewer seeds, rounds and settings, and write to NAME-fast
      --data-dir DIR            folder of data files (default: the variable JAXFL_DATA, else the user's
                                cache)
      --quiet                   print nothing
    """
    found, rest = papers_parser().parse_known_intermixed_args(list(words))
    papers_parser().finish(rest, "", "`jaxfl papers --help` lists them")
    if found.action is None:
        entries = papers.entries()
        if found.json:
            print_json({name: {"what": e.what, "paper": e.paper} for name, e in entries.items()})
            return
        width = max(map(len, papers.entries()))
        for name, entry in papers.entries().items():
            print(f"{name:<{width}}  {entry.what}; {entry.paper}")
        return
    way = "`jaxfl papers` lists them and `jaxfl papers run NAME` runs one"
    require(found.action == "run", f"There is no `jaxfl papers {found.action}`", way)
    require(found.names, "No figure is named", "`jaxfl papers` lists their names, and all runs all")
    out = Path("results/papers" if found.out is None else text("--out", found.out))
    data = None if found.data_dir is None else text("--data-dir", found.data_dir)
    reports: list[Report] = []
    with Interrupts() as interrupts:

        def say(line: str) -> None:
            interrupts.check()
            if not found.quiet:
                print(printable(line), file=sys.stderr, flush=True)

        for name in _named(found.names):
            try:
                report = papers.run(name, out, fast=found.fast, data=data, say=say)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(
                    "; finished parts are kept: give the command again to resume."
                ) from None
            reports.append(report)
            if not (found.quiet or found.json):
                _show(report)
    if found.json:
        print_json({report.entry.name: _facts(report) for report in reports})


def papers_parser() -> Parser:
    parser = Parser()
    parser.add_argument("action", nargs="?", metavar="run")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--out", action=Once, metavar="DIR")
    parser.add_argument("--data-dir", action=Once, metavar="DIR")
    for option in ("--fast", "--quiet", "--json"):
        parser.add_argument(option, action="store_true")
    return parser


def _named(asked: Sequence[str]) -> list[str]:
    """Names, in their order, each once; the beginning of several stands for all of them."""
    known = list(papers.entries())
    chosen: dict[str, None] = {}
    for word in asked:
        several = [name for name in known if word == "all" or name.startswith(f"{word}-")]
        chosen |= dict.fromkeys([papers.entry(word).name] if word in known else several)
        if word not in known and not several:
            papers.entry(word)  # says what is near
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
        "files": report.files,
    }


def _show(report: Report) -> None:
    print_table(table(report))
    if report.epsilons:
        print()
        print_table(epsilon_table(report))
    for file in report.files:
        print(printable(f"file  {file}"))
