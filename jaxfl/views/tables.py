"""A table, and what it looks like in a terminal, in a file and in a paper."""

from __future__ import annotations

import csv
import io
import math
import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from jaxfl.views.words import estimate, number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["Column", "Estimate", "Table", "Value"]

WIDTH = 10_000  # of a table in a file: no line is broken
ABSENT = "–"


class Estimate(NamedTuple):
    """A mean over seeds with its standard error, NaN for a single seed."""

    mean: float
    error: float


Value: TypeAlias = str | float | Estimate | None  # None: does not apply


class Column(NamedTuple):
    """``name`` heads the column in CSV, where values keep their size and all digits."""

    name: str
    heading: str
    scale: float = 1.0  # shown is value / scale, in the unit that the heading names
    alarm: bool = False  # its words are in red


class Table(NamedTuple):
    """Rows of values; those in ``best`` are marked, and ``notes`` are said below."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    best: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Plain lines, without colours and never broken."""
        from rich.console import Console

        file = io.StringIO()
        self.show(Console(file=file, width=WIDTH, color_system=None, highlight=False))
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"

    def show(self, console: Console) -> None:
        """On a terminal: the best rows bold, what is alarming red."""
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid(box=None, pad_edge=False, header_style="bold")
        marked = bool(self.best)
        if marked:
            grid.add_column("", no_wrap=True)
        for j, column in enumerate(self.columns):
            words = all(isinstance(row[j], str | None) for row in self.rows)
            grid.add_column(Text(column.heading), justify="left" if words else "right")
        for i, row in enumerate(self.rows):
            style = "bold" if i in self.best else ""
            mark = [Text("*" if i in self.best else "", style)] if marked else []
            grid.add_row(*mark, *map(self._cell, row, self.columns), style=style)
        if self.title:
            console.print(Text(self.title, "bold"))
        console.print(grid)
        for note in self._notes():
            console.print(Text(note))

    def csv(self) -> str:
        """All digits; an estimate takes two columns, the second ending in ``_se``."""
        file = io.StringIO()
        write = csv.writer(file, lineterminator="\n")
        double = self._estimates()
        heads = [
            name
            for c, two in zip(self.columns, double, strict=True)
            for name in ((c.name, f"{c.name}_se") if two else (c.name,))
        ]
        write.writerow([*heads, *(["best"] if self.best else [])])
        for i, row in enumerate(self.rows):
            out: list[object] = []
            for value, two in zip(row, double, strict=True):
                out += [_raw(v) for v in value] if isinstance(value, Estimate) else [_raw(value)]
                out += [""] if two and not isinstance(value, Estimate) else []
            write.writerow([*out, *([int(i in self.best)] if self.best else [])])
        return file.getvalue()

    def latex(self) -> str:
        """A ``tabular`` for the package booktabs; the best rows are bold, notes are comments."""
        sides = "".join(
            "l" if all(isinstance(row[j], str | None) for row in self.rows) else "r"
            for j in range(len(self.columns))
        )
        lines = [f"% {note}" for note in (self.title, *self._notes()) if note]
        lines += [rf"\begin{{tabular}}{{{sides}}}", r"\toprule"]
        lines += [" & ".join(_escaped(c.heading) for c in self.columns) + r" \\", r"\midrule"]
        for i, row in enumerate(self.rows):
            cells = [_latex(self._words(v, c)) for v, c in zip(row, self.columns, strict=True)]
            if i in self.best:
                cells = [_bold(cell) for cell in cells]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    # --- pieces ----------------------------------------------------------------------------------

    def _notes(self) -> tuple[str, ...]:
        return (*(["* best of its group."] if self.best else []), *self.notes)

    def _estimates(self) -> list[bool]:
        width = range(len(self.columns))
        return [any(isinstance(row[j], Estimate) for row in self.rows) for j in width]

    def _words(self, value: Value, column: Column) -> str:
        if value is None:
            return ABSENT
        if isinstance(value, str):
            return value
        if isinstance(value, Estimate):
            mean, error = estimate(value.mean / column.scale, value.error / column.scale)
            return f"{mean} ± {error}" if error else mean
        return number(value / column.scale)

    def _cell(self, value: Value, column: Column) -> Text:
        from rich.text import Text

        return Text(self._words(value, column), "red" if column.alarm else "")


def _raw(value: Value) -> object:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return int(value) if isinstance(value, float) and value.is_integer() else value


ESCAPES = {
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "ε": r"$\varepsilon$",
    "ω": r"$\omega$",
    "δ": r"$\delta$",
    "σ": r"$\sigma$",
    "γ": r"$\gamma$",
    "<": "$<$",
    ">": "$>$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "‖": r"$\|$",
    "∇": r"$\nabla$",
    "²": r"$^2$",
    "±": r"$\pm$",
    "∞": r"$\infty$",
    "−": r"$-$",
    "–": "--",
}
QUANTITY = re.compile(r"(-?[\d.]+)(?:e(-?\d+))?")


def _escaped(text: str) -> str:
    return "".join(ESCAPES.get(sign, sign) for sign in text)


def _latex(text: str) -> str:
    """Numbers in mathematics, with a power of ten where there is an exponent."""
    parts = text.split(" ± ")
    found = [QUANTITY.fullmatch(part) for part in parts]
    if not all(found):
        return _escaped(text)
    numbers = [
        f"{match[1]}" + (rf" \cdot 10^{{{match[2]}}}" if match[2] else "")
        for match in found
        if match
    ]
    return "$" + r" \pm ".join(numbers) + "$"


def _bold(text: str) -> str:
    if text.startswith("$"):
        return rf"$\mathbf{{{text[1:-1]}}}$"
    return rf"\textbf{{{text}}}"
