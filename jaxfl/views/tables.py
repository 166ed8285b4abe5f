"""Tables, as text, data frames, CSV, LaTeX and Markdown."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from jaxfl.core.errors import printable
from jaxfl.views.cells import over_seeds
from jaxfl.views.words import estimate, number

if TYPE_CHECKING:
    import pandas
    import xarray
    from rich.console import Console

__all__ = ["Column", "Estimate", "Mark", "Table", "Value", "by_rows", "eps_words", "estimates"]

WIDTH = 10_000  # of a table in a file: no line is broken


class Estimate(NamedTuple):
    """A mean over seeds with its standard error, NaN for a single seed."""

    mean: float
    error: float


Value: TypeAlias = str | float | Estimate | None  # None: does not apply


def estimates(values: xarray.DataArray) -> list[Estimate]:
    """The mean of each cell."""
    return list(map(Estimate, *(side.values.tolist() for side in over_seeds(values))))


def eps_words(noisy: bool, eps: float, stated: bool = False) -> Value:
    """A proven eps, or that it is the user's word, or the reason why there is none."""
    if not noisy or math.isinf(eps):
        return "none" if noisy else "no noise"
    return f"{number(eps)} (stated)" if stated else float(eps)


class Column(NamedTuple):
    """``name`` is the header in CSV, where values are not scaled and keep all digits."""

    name: str
    heading: str
    values: Sequence[Value]
    scale: float = 1.0  # shown is value / scale, in the unit that the heading names
    alarm: bool = False  # its words are in red

    def words(self) -> list[str]:
        return [self._word(value) for value in self.values]

    def _word(self, value: Value) -> str:
        if isinstance(value, str | None):
            return "–" if value is None else printable(value)
        if not isinstance(value, Estimate):
            return number(value / self.scale)
        mean, error = (each / self.scale for each in value)
        return " ± ".join(filter(None, estimate(mean, error)))

    @property
    def side(self) -> str:
        """The alignment: l for texts, r for numbers."""
        return "l" if all(isinstance(value, str | None) for value in self.values) else "r"


class Mark(NamedTuple):
    """A sign before some rows, explained below; in CSV a column of this name."""

    name: str
    sign: str
    rows: frozenset[int]
    note: str


class Table(NamedTuple):
    """Columns, with ``notes`` below.  Rows with the first mark are bold."""

    title: str
    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()

    def text(self) -> str:
        """Plain text without colours, one line per row."""
        from rich.console import Console

        file = io.StringIO()
        self.show(Console(file=file, width=WIDTH, color_system=None, highlight=False))
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"

    def show(self, console: Console) -> None:
        """Print to a terminal, the best rows bold and alarms red."""
        from rich.table import Table as Grid
        from rich.text import Text

        named = any(column.heading for column in self.columns)
        grid = Grid(box=None, pad_edge=False, header_style="bold", show_header=named)
        if self.marks:
            grid.add_column("", no_wrap=True)
        for column in self.columns:
            justify: Any = "left" if column.side == "l" else "right"
            style = "red" if column.alarm else ""
            grid.add_column(Text(printable(column.heading)), justify=justify, style=style)
        for i, words in enumerate(self._rows()):
            signs = "".join(mark.sign for mark in self.marks if i in mark.rows)
            style = "bold" if i in self._best() else ""
            grid.add_row(*[Text(signs)] * bool(self.marks), *map(Text, words), style=style)
        if self.title:
            console.print(Text(printable(self.title), "bold"))
        narrow, options = console.width, console.options.update(width=WIDTH)
        # Columns are not squeezed: a terminal that is too narrow breaks the lines.
        console.width = max(narrow, console.measure(grid, options=options).maximum)
        console.print(grid)
        console.width = narrow
        for note in self._notes():
            console.print(Text(printable(note)))

    def facts(self) -> dict[str, Any]:
        """``rows`` as dicts with the columns of :meth:`csv`, ``title`` and ``notes``."""
        columns = self._columns()
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return {"title": self.title, "rows": rows, "notes": self._notes()}

    def to_pandas(self) -> pandas.DataFrame:
        """All digits; an estimate takes two columns, the second ending in ``_se``, a mark one of bools.

        Texts and numbers that do not apply are missing.
        """
        import pandas

        return pandas.DataFrame(self._columns())

    def csv(self) -> str:
        """The table of :meth:`to_pandas`; whole numbers have no point."""
        import pandas

        columns = {name: [*map(_whole, values)] for name, values in self._columns().items()}
        frame = pandas.DataFrame(columns, dtype=object)
        return str(frame.to_csv(index=False, lineterminator="\n"))

    def latex(self) -> str:
        """A ``tabular`` for the package booktabs; names of the best rows are bold, notes are comments."""
        sides = "".join(column.side for column in self.columns)
        lines = [f"% {printable(note)}" for note in (self.title, *self._notes()) if note]
        lines += [rf"\begin{{tabular}}{{{sides}}}", r"\toprule"]
        lines += [" & ".join(_latex(column.heading) for column in self.columns) + r" \\"]
        lines.append(r"\midrule")
        for i, words in enumerate(self._rows()):
            cells = [_latex(word) for word in words]
            if i in self._best():  # names alone: a bold number would be the best of its column
                cells = [rf"\textbf{{{cell}}}" if cell[:1].isalpha() else cell for cell in cells]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def markdown(self) -> str:
        """The rows alone."""
        heads = [printable(column.heading) for column in self.columns]
        lines = [heads, ["---"] * len(heads), *self._rows()]
        cells = [[word.replace("|", "\\|") for word in line] for line in lines]
        return "".join(f"| {' | '.join(line)} |\n" for line in cells)

    def _rows(self) -> list[tuple[str, ...]]:
        return list(zip(*(column.words() for column in self.columns), strict=True))

    def _best(self) -> frozenset[int]:
        return self.marks[0].rows if self.marks else frozenset()

    def _notes(self) -> tuple[str, ...]:
        return (*(f"{mark.sign} {mark.note}" for mark in self.marks), *self.notes)

    def _columns(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {}
        for name, _, values, *_ in self.columns:
            pairs = [value if isinstance(value, Estimate) else (value, None) for value in values]
            columns[name] = [mean for mean, _ in pairs]
            if any(isinstance(value, Estimate) for value in values):
                columns[f"{name}_se"] = [error for _, error in pairs]
        for mark in self.marks:
            columns[mark.name] = [i in mark.rows for i in range(len(self.columns[0].values))]
        return columns


def by_rows(heads: Mapping[str, str], rows: Sequence[Sequence[Value]]) -> tuple[Column, ...]:
    """Columns with these names and headings from their values row by row."""
    each = zip(*rows, strict=True) if rows else [()] * len(heads)
    return tuple(Column(*head, values) for head, values in zip(heads.items(), each, strict=True))


def _whole(value: Any) -> object:
    """Whole numbers without a point."""
    whole = isinstance(value, bool) or (isinstance(value, float) and value.is_integer())
    return int(value) if whole else value


MATH = {
    "<": "<", ">": ">", "≤": r"\le", "≥": r"\ge", "±": r"\pm", "−": "-", "‖": r"\|", "²": "^2",
    "ε": r"\varepsilon", "ω": r"\omega", "δ": r"\delta", "σ": r"\sigma", "γ": r"\gamma",
    "∇": r"\nabla", "∞": r"\infty",
}  # fmt: skip
ESCAPES: dict[str, Any] = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"${math}$" for sign, math in MATH.items()},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
}
QUANTITY = re.compile(r"-?[\d.]+(e-?\d+)?( ± -?[\d.]+(e-?\d+)?)?")


def _latex(text: str) -> str:
    """Numbers in math mode, exponents as powers of ten."""
    if not QUANTITY.fullmatch(text):
        return printable(text).translate(str.maketrans(ESCAPES))
    powers = re.sub(r"e(-?\d+)", r" \\cdot 10^{\1}", text)
    return "$" + powers.replace("±", r"\pm") + "$"
