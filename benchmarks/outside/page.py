"""The page of the documentation: each published value beside ours, from the records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from jaxfl.views.tables import Column, Estimate, Table
from outside.row import AGREES, NOT_RUN, Row, ours, read

__all__ = ["page", "table"]

HEADS = ("command", "setting", "what", "published", "ours", "verdict", "seeds", "minutes")
INTRODUCTION = """\
# Outside numbers

Values that other groups published, and those of jaxfl in the same setting.
`python benchmarks/outside.py run NAME`, in a checkout, measures a row: the column *command* has what
follows `outside.py`. *Minutes* are those of all its seeds, on two cores with much other work. *Ours* is a
mean over seeds, with its standard error where there are several.
`python benchmarks/outside.py page > docs/outside.md` writes this page from the records in
`benchmarks/results/outside`.

- *Within the band*: the band is that of the source.
- *Reached*: ours is a published value without a band, up to its rounding and two standard errors.
- *At most theirs*: a published eps is a bound by Renyi divergences or moments for a record that is added or
  removed. Ours, for the same noise and the same relation, may not exceed it.
- *Holds*: by more than two standard errors.
"""
Cells = tuple[str | Estimate, ...]


def page(rows: Iterable[Row], folder: Path) -> str:
    """The page over all rows."""
    rows = list(rows)
    here = [row for row in rows if row.measure is not None]
    absent = [row for row in rows if row.measure is None]
    choices = {row.source: row.choices for row in here}
    lines = [INTRODUCTION, _summary(here, folder), "", table(here, folder).markdown()]
    lines += ["## Why some differ", "", *_differing(here, folder), ""]
    lines += ["## What the sources leave open", ""]
    lines += [f"- {source}: {words}" for source, words in choices.items()]
    lines += ["", "## What cannot run here", ""]
    cells = [(row.source, row.setting, row.published, row.missing) for row in absent]
    return (
        "\n".join(lines)
        + "\n"
        + _table(("source", "setting", "published", "why"), cells).markdown()
    )


def table(rows: Iterable[Row], folder: Path) -> Table:
    """One line for each published value."""
    return _table(HEADS, [line for row in rows for line in _lines(row, folder)])


def _table(heads: Sequence[str], lines: Sequence[Cells]) -> Table:
    columns = zip(*lines, strict=True) if lines else [()] * len(heads)
    return Table("", tuple(Column(h, h, column) for h, column in zip(heads, columns, strict=True)))


def _lines(row: Row, folder: Path) -> list[Cells]:
    record = read(row, folder)
    out: list[Cells] = []
    took = f"{sum(each.seconds for each in record.values()) / 60:.1f}"
    for i, (check, verdict) in enumerate(zip(row.checks, _verdicts(row, folder), strict=True)):
        value = ours(check, record) if record else ""
        minutes = took if record else f"{row.minutes:g} for a seed"
        seeds = f"{len(record)} of {max(row.seeds, len(record))}"
        own = (f"`run {row.name}`", row.setting, seeds, minutes) if i == 0 else ("",) * 4
        out.append((*own[:2], check.what, check.published, value, verdict, *own[2:]))
    return out


def _verdicts(row: Row, folder: Path) -> list[str]:
    record = read(row, folder)
    return [check.verdict(ours(check, record)) if record else NOT_RUN for check in row.checks]


def _summary(rows: Iterable[Row], folder: Path) -> str:
    verdicts = [verdict for row in rows for verdict in _verdicts(row, folder)]
    ran = [verdict for verdict in verdicts if verdict != NOT_RUN]
    bands = [verdict for verdict in ran if verdict.endswith("the band")]
    return (
        f"{len(ran)} of {len(verdicts)} published values and statements are measured, and "
        f"{sum(verdict in AGREES for verdict in ran)} of these agree. Of {len(bands)} with a band, "
        f"{bands.count('within the band')} lie within it and {bands.count('above the band')} above."
    )


def _differing(rows: Iterable[Row], folder: Path) -> list[str]:
    out = []
    for row in rows:
        each = zip(row.checks, _verdicts(row, folder), strict=True)
        agrees = (*AGREES, NOT_RUN)
        missed = [f"{c.what}: {v}" for c, v in each if v not in agrees]
        if missed:
            why = row.why or "The reason is not known."
            out.append(f"- {row.name} ({'; '.join(missed)}). {why}")
    return out or ["None of those measured does."]
