"""Tables, as text, CSV, LaTeX and Markdown."""

from __future__ import annotations

import io
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from jaxfl.core.errors import printable
from jaxfl.views.cells import over_seeds
from jaxfl.views.words import estimate, number

if TYPE_CHECKING:
    import xarray
    from rich.console import Console

__all__ = ["Column", "Estimate", "Table", "Value", "eps_words", "estimates", "in_words"]

WIDTH = 10_000  # of a table in a file: no line is broken
ABSENT = "–"


class Estimate(NamedTuple):
    """A mean over seeds with its standard error, NaN for a single seed."""

    mean: float
    error: float


Value: TypeAlias = str | float | Estimate | None  # None: does not apply


def estimates(values: xarray.DataArray) -> list[Estimate]:
    """The mean of each cell."""
    mean, error = over_seeds(values)
    return [
        Estimate(*pair) for pair in zip(mean.values.tolist(), error.values.tolist(), strict=True)
    ]


def eps_words(noisy: bool, eps: float) -> Value:
    """A proven eps, or the reason why there is none."""
    return "no noise" if not noisy else "none" if math.isinf(eps) else float(eps)


def in_words(value: Value, scale: float = 1.0) -> str:
    """A value as text, in units of ``scale``."""
    if value is None:
        return ABSENT
    if isinstance(value, str):
        return printable(value)
    if not isinstance(value, Estimate):
        return number(value / scale)
    mean, error = estimate(value.mean / scale, value.error / scale)
    return f"{mean} ± {error}" if error else mean


class Column(NamedTuple):
    """``name`` is the header in CSV, where values are not scaled and keep all digits."""

    name: str
    heading: str
    scale: float = 1.0  # shown is value / scale, in the unit that the heading names
    alarm: bool = False  # its words are in red


class Table(NamedTuple):
    """Rows of values; those in ``best`` are marked, and ``notes`` stand below."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    best: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()

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

        grid = Grid(box=None, pad_edge=False, header_style="bold")
        if self.best:
            grid.add_column("", no_wrap=True)
        for column, side in zip(self.columns, self._sides(), strict=True):
            grid.add_column(
                Text(printable(column.heading)), justify="left" if side == "l" else "right"
            )
        for i, row in enumerate(self.rows):
            style = "bold" if i in self.best else ""
            mark = [Text("*" if i in self.best else "", style)] if self.best else []
            cells = [
                Text(in_words(value, column.scale), "red" if column.alarm else "")
                for value, column in zip(row, self.columns, strict=True)
            ]
            grid.add_row(*mark, *cells, style=style)
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
        out = []
        for i, row in enumerate(self.rows):
            one: dict[str, Any] = {}
            for column, value in zip(self.columns, row, strict=True):
                mean = value.mean if isinstance(value, Estimate) else value
                one[column.name] = mean
                if isinstance(value, Estimate):
                    one[f"{column.name}_se"] = value.error
            out.append(one | ({"best": i in self.best} if self.best else {}))
        return {"title": self.title, "rows": out, "notes": self.notes}

    def csv(self) -> str:
        """All digits; an estimate takes two columns, the second ending in ``_se``."""
        import pandas

        columns: list[tuple[str, list[Any]]] = []
        for j, column in enumerate(self.columns):
            values = [row[j] for row in self.rows]
            pairs = [value if isinstance(value, Estimate) else (value, None) for value in values]
            columns.append((column.name, [_raw(mean) for mean, _ in pairs]))
            if any(isinstance(value, Estimate) for value in values):
                columns.append((f"{column.name}_se", [_raw(error) for _, error in pairs]))
        if self.best:
            columns.append(("best", [int(i in self.best) for i in range(len(self.rows))]))
        frame = pandas.DataFrame(dict(enumerate(values for _, values in columns)), dtype=object)
        return str(
            frame.to_csv(index=False, header=[name for name, _ in columns], lineterminator="\n")
        )

    def latex(self) -> str:
        """A ``tabular`` for the package booktabs; names of the best rows are bold, notes are comments."""
        lines = [f"% {printable(note)}" for note in (self.title, *self._notes()) if note]
        lines += [rf"\begin{{tabular}}{{{self._sides()}}}", r"\toprule"]
        lines += [" & ".join(_escaped(c.heading) for c in self.columns) + r" \\", r"\midrule"]
        for i, row in enumerate(self.rows):
            cells = [_latex(in_words(v, c.scale)) for v, c in zip(row, self.columns, strict=True)]
            if i in self.best:  # names alone: a bold number would be the best of its column
                texts = [isinstance(value, str) and value for value in row]
                cells = [
                    rf"\textbf{{{c}}}" if text else c for c, text in zip(cells, texts, strict=True)
                ]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def markdown(self) -> str:
        """The rows alone."""
        heads = [printable(column.heading).replace("|", "\\|") for column in self.columns]
        rows = [
            [
                in_words(v, c.scale).replace("|", "\\|")
                for v, c in zip(row, self.columns, strict=True)
            ]
            for row in self.rows
        ]
        lines = [heads, ["---"] * len(heads), *rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    # --- pieces ----------------------------------------------------------------------------------

    def _notes(self) -> tuple[str, ...]:
        return (*(["* best of its group."] if self.best else []), *self.notes)

    def _sides(self) -> str:
        """The alignment of each column: l for texts, r for numbers."""
        columns = zip(*self.rows, strict=True) if self.rows else ((),) * len(self.columns)
        return "".join("l" if all(isinstance(v, str | None) for v in c) else "r" for c in columns)


def _raw(value: Value) -> object:
    """Whole numbers without a point."""
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
    return "".join(ESCAPES.get(sign, sign) for sign in printable(text))


def _latex(text: str) -> str:
    """Numbers in math mode, exponents as powers of ten."""
    parts = text.split(" ± ")
    matches = [QUANTITY.fullmatch(part) for part in parts]
    if not all(matches):
        return _escaped(text)
    numbers = [
        f"{match[1]}" + (rf" \cdot 10^{{{match[2]}}}" if match[2] else "")
        for match in matches
        if match
    ]
    return "$" + r" \pm ".join(numbers) + "$"
