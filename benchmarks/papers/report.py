"""From an entry's values to its files: record, picture, table, and one page over all of them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxfl import InputError
from jaxfl.views import ink
from jaxfl.views.tables import Column, Estimate, Table
from papers.entry import Entry, Epsilons, Job, Numbers, Row, in_words

__all__ = [
    "RECORD",
    "Report",
    "epsilon_table",
    "markdown",
    "read",
    "table",
    "write",
    "write_overview",
]

RECORD = "record.json"
FORMAT = 1
NO_DIGEST = "0" * 64  # in the place of a digest while it is computed
FORMATS = ("png", "pdf")
FLAG = "claim < proven"
FLAGGED = (
    f"{FLAG}: the proven eps exceeds that of the paper's formula by more than 1 %, within its theorem "
    "or not, or no eps is proven."
)
VERDICTS = {True: "yes", False: "NO", None: "–"}


class Report(NamedTuple):
    """The values of one entry, and what follows from them."""

    entry: Entry
    numbers: Numbers
    fast: bool
    seeds: int
    seconds: float  # of computation, in the call that finished it
    version: str
    files: tuple[Path, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(self.entry.judge(self.numbers))

    @property
    def epsilons(self) -> tuple[Epsilons, ...]:
        return tuple(self.entry.privacy(self.numbers))


def write(entry: Entry, job: Job) -> Report:
    """Measure, judge and draw an entry; return its report."""
    began = time.perf_counter()
    numbers: Numbers = plain(entry.measure(job))
    seconds = time.perf_counter() - began
    about = {
        "format": FORMAT,
        "digest": NO_DIGEST,
        "name": entry.name,
        "jaxfl": importlib.metadata.version("jaxfl"),
        "fast": job.fast,
        "seeds": job.seeds,
        "seconds": round(seconds, 1),
        "numbers": numbers,
    }
    files = [job.folder / RECORD]
    text = json.dumps(about, ensure_ascii=False, separators=(",", ":")) + "\n"
    _text(files[0], text.replace(NO_DIGEST, _digest(text), 1))
    report = read(entry, files[0])  # what is judged and drawn is what the file says
    for end, figure in entry.draw(report.numbers).items():
        files += ink.save(figure, job.folder, f"{entry.name}{end}", FORMATS)
    files += [job.folder / "table.csv", job.folder / "report.md"]
    _text(files[-2], table(report).csv())
    _text(files[-1], markdown(report))
    return report._replace(files=tuple(files))


def read(entry: Entry, path: str | Path) -> Report:
    """The record that :func:`write` left, judged again."""
    text = Path(path).read_bytes().decode(errors="replace")
    try:
        about: dict[str, Any] = json.loads(text)
        known = (FORMAT, entry.name, _digest(text.replace(about["digest"], NO_DIGEST, 1)))
        if (about["format"], about["name"], about["digest"]) != known:
            raise ValueError
        facts = about["fast"], about["seeds"], about["seconds"], about["jaxfl"]
        return Report(entry, about["numbers"], *facts)
    except (KeyError, TypeError, ValueError):
        why = f"{path} is damaged, or not a record of {entry.name}"
        raise InputError(why, "run it again") from None


def write_overview(folder: Path, known: Mapping[str, Entry]) -> Path:
    """``papers.md``: the reports of all records in the folder, in the order of the papers."""
    reports = []
    for name, entry in known.items():
        for place in (folder / name, folder / f"{name}-fast"):
            if (place / RECORD).exists():
                reports.append((place, read(entry, place / RECORD)))
    parts = ["# The papers, run again", "", *_summary(reports), ""]
    parts += [markdown(report, f"{place.name}/", depth=2) for place, report in reports]
    path = folder / "papers.md"
    _text(path, "\n".join(parts))
    return path


def _summary(reports: Sequence[tuple[Path, Report]]) -> list[str]:
    """The published values that each entry meets, its time, and the reasons for those that it misses."""
    rows, missed = [], []
    for place, report in reports:
        judged = [row for row in report.rows if row.published != "–" and row.holds is not None]
        failed = [row for row in judged if not row.holds]
        met = f"{len(judged) - len(failed)} of {len(judged)}" if judged else None
        rows.append((place.name, report.entry.what, met, f"{report.seconds:.0f}"))
        if failed:
            said = " ".join(report.entry.why) or "The reason is not known."
            each = [
                f"  - {row.what}: {row.published}; here {_in_words(row.ours)}" for row in failed
            ]
            missed += [f"- {place.name}: {said}", "", *each, ""]
    total = sum(report.seconds for _, report in reports)
    heads = ("", "what", "published values and statements met", "seconds")
    grid = Table("", _columns({head: head for head in heads}, rows))
    lines = [grid.markdown(), f"All of it took {total / 60:.0f} minutes by the clock.", ""]
    return lines if not missed else [*lines, "Not met:", "", *missed]


# --- words ---------------------------------------------------------------------------------------


def table(report: Report) -> Table:
    """``published | ours | band | agrees``, one row each."""
    heads = {name: name for name in ("what", "published", "ours", "band", "agrees")}
    heads["ours"] += f" ({_seeds(report)})"
    heads["agrees"] = "within band, or ordering holds?"
    rows = [
        (row.what, row.published, row.ours, row.band or None, row.verdict or VERDICTS[row.holds])
        for row in report.rows
    ]
    title = f"{report.entry.name}: {report.entry.what}; {report.entry.paper}"
    return Table(title, _columns(heads, rows))


def epsilon_table(report: Report) -> Table:
    """``claimed | proven | audited`` of each setting; an infinite proven eps is "none".

    A claim below the proven eps is flagged.
    """
    heads = {
        "what": "privacy of",
        "claimed": "claimed ε",
        "proven": "proven ε",
        "audited": "audited ε ≥",
        "delta": "δ",
        "flag": "flag",
        "note": "",
    }
    rows = [
        (
            e.what,
            e.claimed,
            "none" if math.isinf(e.proven) else e.proven,
            e.audited,
            e.delta,
            FLAG * e.flagged,
            e.note,
        )
        for e in report.epsilons
    ]
    return Table("", _columns(heads, rows), (FLAGGED,) * any(e.flagged for e in report.epsilons))


def markdown(report: Report, folder: str = "", depth: int = 1) -> str:
    """The report as a page, or as a section of one."""
    entry, known = report.entry, table(report)
    fast = "The fast variant: fewer rounds or cells.  " if report.fast else ""
    how = f"{fast}{_seeds(report).capitalize()}; jaxfl {report.version}."
    lines = [f"{'#' * depth} {entry.name}: {entry.what}", "", f"{entry.paper}.  {how}", ""]
    for end in entry.draw(report.numbers):
        lines += [f"![{entry.name}{end}]({folder}{entry.name}{end}.png)", ""]
    tables = [known, epsilon_table(report)] if report.epsilons else [known]
    for each in tables:
        lines += [each.markdown()]
        lines += [line for note in each.notes for line in (note, "")]
    for title, items in (("Our choices, which the paper does not print", entry.choices),
                         ("Why values are not met", entry.why), ("Notes", entry.notes)):  # fmt: skip
        if items:
            lines += [f"{title}:", "", *(f"- {item}" for item in items), ""]
    return "\n".join(lines)


def _seeds(report: Report) -> str:
    return f"mean and standard error of {report.seeds} seeds"


def _in_words(ours: Estimate | str) -> str:
    return ours if isinstance(ours, str) else in_words(ours)


def _columns(heads: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> tuple[Column, ...]:
    each = zip(*rows, strict=True) if rows else [()] * len(heads)
    return tuple(Column(*head, values) for head, values in zip(heads.items(), each, strict=True))


def plain(value: Any) -> Any:
    """A value as strict JSON can hold it: numbers of NumPy and JAX as Python's, and inf as a text."""
    text = json.dumps(value, default=lambda number: number.tolist())
    return json.loads(text, parse_constant=lambda word: str(float(word)))


# --- files ---------------------------------------------------------------------------------------


def _digest(text: str) -> str:
    """The digest of a record that has zeros in its place."""
    return hashlib.sha256(text.encode()).hexdigest()


def _text(path: Path, text: str) -> None:
    """Write a file at once: a kill leaves the earlier one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    (part := path.with_name(f".{path.name}.part")).write_bytes(text.encode())
    os.replace(part, path)
