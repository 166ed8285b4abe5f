"""Published figures and tables, reproduced: one entry each, with what the reference lists as public.

* :mod:`~papers.census` -- logistic regression on a9a, the problem of those entries that no
  paper prints
* :mod:`~papers.clip21` -- Clip21 and clipped gradient descent: error feedback removes
  the bias of clipping
* :mod:`~papers.courses` -- what a record keeps of a sweep: mean curves, and the values of
  each seed that are judged
* :mod:`~papers.dicesgd` -- DiceSGD and DP-SGD: what error feedback gains over clipping,
  and what its noise proves
* :mod:`~papers.entry` -- the parts of a published figure or table: values that are
  measured once, then judged and drawn
* :mod:`~papers.gao` -- figures 2 and 3, Tables 1 and 2 of Gao, Lowy, Zhou and Wright:
  localized against one-pass
* :mod:`~papers.hu` -- figures 3 to 8 of Hu, Guo and Gong: private local SGD on Adult
* :mod:`~papers.porter` -- PORTER and decentralized SGD: what privacy, compression and
  connectivity cost a network
* :mod:`~papers.report` -- from an entry's numbers to its files: record, picture, table, and
  one page over all of them
* :mod:`~papers.reshef` -- tables 1 and 2 of Reshef and Levy: DP-mu^2-FL on MNIST
* :mod:`~papers.soteriafl` -- figures 1 to 8 of SoteriaFL, and when its shifts pay off

A new paper is a module with ``ENTRIES`` and one more name in :data:`MODULES`.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Callable
from pathlib import Path

from jaxfl import InputError
from papers.entry import Entry, Epsilons, Job, Numbers, Row
from papers.report import Report, write, write_overview
from papers.report import read as read_report

__all__ = [
    "MODULES",
    "Entry",
    "Epsilons",
    "Job",
    "Numbers",
    "Report",
    "Row",
    "entries",
    "entry",
    "read_report",
    "run",
]

MODULES = ("soteriafl", "hu", "gao", "reshef", "clip21", "dicesgd", "porter")


@functools.cache
def entries() -> dict[str, Entry]:
    """All entries by name, in the order of the papers."""
    modules = [importlib.import_module(f"papers.{name}") for name in MODULES]
    return {entry.name: entry for module in modules for entry in module.ENTRIES}


def entry(name: str) -> Entry:
    """The entry with this name."""
    if name not in entries():
        near = difflib.get_close_matches(name, entries(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the names are {', '.join(entries())}"
        raise InputError(f"There is no figure or table named {name!r}", hint)
    return entries()[name]


def run(
    name: str,
    out: str | Path = "results/papers",
    *,
    fast: bool = False,
    data: str | Path | None = None,
    say: Callable[[str], None] | None = None,
) -> Report:
    """Regenerate one figure or table in ``out/NAME`` (``out/NAME-fast``).

    Its sweeps resume where an earlier call stopped.  It writes the picture as PNG and PDF, the measured
    values (``record.json``), the table (``report.md``, ``table.csv``), and ``out/papers.md`` over all
    entries in ``out``.  ``fast`` takes fewer seeds, rounds and settings.
    """
    made = entry(name)
    folder = Path(out) / (f"{name}-fast" if fast else name)
    say = say or (lambda line: None)
    job = Job(folder, fast, None if data is None else str(data), say, made.few, made.seeds)
    report = write(made, job)
    write_overview(Path(out), entries())
    return report
