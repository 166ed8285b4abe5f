"""The drawing kit of all pictures: frames, legends, panels of lines, axes, files.

Figures are as wide as a column of a paper, or as two, with type of 7 to 9 points.  They are drawn
without any global state: no pyplot, no backend chosen.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxfl.core.errors import printable
from jaxfl.core.files import replace
from jaxfl.views.cells import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = [
    "CHARACTER",
    "COLUMN",
    "FORMATS",
    "FULL",
    "GREY",
    "MARKERS",
    "OTHER",
    "PALETTE",
    "SMALL",
    "SUFFIXES",
    "TEXT",
    "Line",
    "Panel",
    "frame",
    "logarithmic",
    "picture",
    "powers",
    "save",
    "shade",
    "tidy",
    "write",
]

COLUMN, FULL = 3.3, 6.9  # inches: the width of one column of a paper, and of two
TITLE, TEXT, SMALL = 9.0, 8.0, 7.0  # points
CHARACTER = 0.0078  # inches per point of type: the width of a character on average
LEADING = 0.0172  # inches per point of type, from line to line
HANDLE = 0.42  # inches of a legend's entry beside its words
SIZES = {1: 1.9, 2: 1.75, 3: 1.5}  # inches of a panel's height, by the panels in a row
LOW = 1.3  # of more
EDGE = 0.04  # inches around the texts
DPI = 300
LEGEND: dict[str, Any] = {
    "frameon": False, "fontsize": SMALL, "borderaxespad": 0.0, "borderpad": 0.1,
    "labelspacing": 0.3, "handlelength": 2.2, "handletextpad": 0.5, "columnspacing": 1.0,
}  # fmt: skip

# Okabe and Ito: distinct for every colour vision; yellow is too light for lines.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES: tuple[Any, ...] = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.5, 1.2)))
OTHER: Any = (0, (3, 1, 1, 1, 1, 1))  # of algorithms without the axis that the styles stand for
LIGHTER = (0.0, 0.2, 0.35, 0.45)  # towards white, with the line styles
MARKERS = ("o", "s", "^", "D", "v", "p", "<", ">", "P", "X", "h", "d")
FILLED = (*MARKERS, "*")
GREY = "#555555"
SUFFIXES = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
FORMATS = tuple(suffix[1:] for suffix in SUFFIXES)

MORE = 1 + 1e-9  # tolerance for rounding
DECADE = 10.0  # an axis whose values span more is logarithmic
CAP = 1e3  # times the largest first value: where a diverging line ends
FLAT = 1e-5  # relative spread that is taken for rounding
LARGE = 1e5  # numbers from here on are powers of ten
FEW = 8  # values on a logarithmic axis up to which each has a label
ALIKE = 0.01  # of an axis: lines that lie closer than this cover each other
WIDER = 2.0  # points, of a line for each other that covers it
PALE = 0.5
FLATTENED = 2.5  # times the span of one panel: where panels stop sharing their vertical axis
UNDER = "A wide, pale line lies under another that coincides with it."
APART = "Panels have vertical axes of their own."


class Line(NamedTuple):
    """A line; it ends in a cross where its values diverge or are NaN."""

    label: str  # what its colour stands for, in the legend; "" for none
    x: Sequence[float] | Array
    y: Sequence[float] | Array
    error: Any = None  # of y: one, or those below and above; none for a single seed
    color: Any = 0  # a place in PALETTE, or any colour
    style: Any = 0  # a place in STYLES, or any line style
    marker: str = ""
    width: float = 1.2  # points
    steps: str = "default"  # or "steps-pre": the later of two values holds between them
    size: float = 3.5  # points, of markers
    spread: Any = None  # error of x, of a single point
    kind: str = ""  # what its style or its marker stands for, in a second row of the legend
    ends: bool = False  # in a cross

    @property
    def cut(self) -> bool:
        return not np.isfinite(np.asarray(self.y, np.float64)).all()

    def look(self) -> dict[str, Any]:
        color = shade(self.color) if isinstance(self.color, int) else self.color
        style = STYLES[self.style % len(STYLES)] if isinstance(self.style, int) else self.style
        look = {"color": color, "linestyle": style, "marker": self.marker, "linewidth": self.width}
        if self.style == "none" and self.marker in FILLED:  # points may lie on each other
            look |= {"markeredgecolor": "white", "markeredgewidth": 0.5}
        return look | {"markersize": self.size}

    def upto(self, top: float) -> Line:
        """Its part before the first value that is not finite, or beyond ``top``."""
        live = int(np.argmin(np.append(np.abs(self.y) <= top, False))) if self.cut else len(self.y)
        x, y = (np.asarray(values, np.float64)[:live] for values in (self.x, self.y))
        error = self.error
        if error is not None:
            error = np.broadcast_to(np.asarray(error, np.float64)[..., :live], (2, live))
        return self._replace(x=x, y=y, error=error, ends=self.cut)

    def shown(self) -> Array:
        """The values that the vertical axis has to show."""
        y = np.asarray(self.y)
        if self.error is None or not len(y):
            return y
        low, high = y - self.error[0], y + self.error[1]
        return np.concatenate([y, high[np.isfinite(high)], low[low > y / 2]])


class Panel(NamedTuple):
    title: str
    across: str
    up: str
    lines: Sequence[Line]
    logarithmic: bool | None = False  # across; None: if the lines end a decade apart
    powers: bool | None = None  # logarithmic upwards; None: if the values span a decade
    until: float = math.nan  # where a linear horizontal axis ends
    zero: bool = False  # the vertical axis begins there
    key: str = ""  # panels with one key share their vertical axis, others unless it flattens lines


# --- pictures of lines ---------------------------------------------------------------------------


def picture(
    title: str,
    rows: Sequence[Sequence[Panel]],
    notes: Sequence[str] = (),
    *,
    heights: Sequence[float] | None = None,
    margins: tuple[float, float] = (0.05, 0.05),
) -> Figure:
    """Panels of equal width, with one legend and one horizontal axis for each of its labels.

    Those with one label above share their vertical axis, by keys where one axis would flatten
    lines.  ``heights`` are those of the rows, relative to each other, ``margins`` parts of the data's
    span on both axes.
    """
    columns, shares = max(map(len, rows)), heights or (1.0,) * len(rows)
    height = SIZES.get(columns, LOW)
    panels = _live({(i, j): p for i, row in enumerate(rows) for j, p in enumerate(row)})
    scales = _scales(panels)
    covered = {place: _covered(panel.lines, *scales[place]) for place, panel in panels.items()}
    shown = {(panel.up, id(scales[place][1])) for place, panel in panels.items()}
    apart = len(shown) > len({panel.up for panel in panels.values()})
    said = [*notes, *[APART] * apart, *[UNDER] * any(map(any, covered.values()))]
    figure = frame(
        title,
        sum(shares) * height + 0.24 * len(rows),
        _key(line for panel in panels.values() for line in panel.lines),
        said,
        COLUMN if columns == 1 else FULL,
    )
    grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=shares)
    for (i, j), ax in np.ndenumerate(grid):
        if (i, j) not in panels:
            ax.set_visible(False)
            continue
        place, left, above, below = (i, j), (i, j - 1), (i - 1, j), (i + 1, j)
        panel = panels[place]
        ax.margins(*margins)
        for line, count in zip(panel.lines, covered[place], strict=True):
            _draw(ax, line, count)
        tidy(ax, scales[place][1], scales[place][0], margins[1])
        if panel.zero:
            ax.set_ylim(bottom=0)
        _across(ax, panel, [p for p in panels.values() if p.across == panel.across])
        words = textwrap.fill(panel.up, int(height * shares[i] / (CHARACTER * TEXT)))
        if left in panels and panels[left].up == panel.up:
            words = ""
            ax.tick_params(labelleft=scales[left][1] is not scales[place][1])
        ax.set_ylabel(words, fontsize=TEXT)
        lowest = below not in panels or panels[below].across != panel.across
        ax.tick_params(labelbottom=lowest)
        ax.set_xlabel(panel.across if lowest else "", fontsize=TEXT)
        room = int(figure.get_figwidth() / columns / (CHARACTER * TEXT))
        if above not in panels or panels[above].title != panel.title:
            ax.set_title(textwrap.fill(panel.title, room), fontsize=TEXT, pad=3)
        if not ax.has_data():
            ax.set(xticks=[], yticks=[])
            at = {"transform": ax.transAxes, "ha": "center", "color": GREY, "fontsize": SMALL}
            ax.text(0.5, 0.5, "diverged, or not run", **at)
    for across in {panel.across for panel in panels.values()}:  # the same costs in every panel
        alike = [grid[place] for place, panel in panels.items() if panel.across == across]
        alike = [ax for ax in alike if ax.has_data()]
        limits = np.array([ax.get_xlim() for ax in alike]).reshape(-1, 2)
        for ax in alike:
            ax.set_xlim(limits[:, 0].min(), limits[:, 1].max())
    return figure


def _live(panels: dict[tuple[int, int], Panel]) -> dict[tuple[int, int], Panel]:
    """The panels with their lines up to where they diverge."""
    first: dict[str, list[float]] = {}
    for panel in panels.values():
        known = [abs(float(line.y[0])) for line in panel.lines if len(line.y)]
        first.setdefault(panel.up, []).extend(value for value in known if math.isfinite(value))
    tops = {up: CAP * max(values, default=math.inf) for up, values in first.items()}
    return {
        place: panel._replace(lines=[line.upto(tops[panel.up]) for line in panel.lines])
        for place, panel in panels.items()
    }


def _scales(panels: dict[tuple[int, int], Panel]) -> dict[tuple[int, int], tuple[bool, Array]]:
    """Whether the vertical axis of each panel is logarithmic, and the values that it shows."""
    out = {}
    for up in {panel.up for panel in panels.values()}:
        group = {place: panel for place, panel in panels.items() if panel.up == up}
        values = {panel.key: np.zeros(0) for panel in group.values()}
        for panel in group.values():
            each = [values[panel.key], *(line.shown() for line in panel.lines)]
            values[panel.key] = np.concatenate(each)
        whole = np.concatenate([*values.values()])
        log = logarithmic(whole) and all(panel.powers is not False for panel in group.values())
        spans = [np.ptp(np.log10(v) if log else v) for v in (whole, *values.values()) if v.size]
        apart = spans and spans[0] > FLATTENED * min(spans)
        for place, panel in group.items():
            shown = values[panel.key] if apart else whole
            given = False if panel.zero else panel.powers
            out[place] = logarithmic(shown) if given is None else given, shown
    return out


def _covered(lines: Sequence[Line], log: bool, values: Array) -> list[int]:
    """How many of the lines after each one lie on it."""
    scale = np.log10 if log else np.asarray
    least = ALIKE * float(np.ptp(scale(values))) if values.size else 0.0

    def alike(a: Line, b: Line) -> bool:
        if not a.label or len(a.y) != len(b.y) or len(a.y) < 2 or not np.allclose(a.x, b.x, 0.01):
            return False
        return bool(np.abs(scale(np.asarray(a.y)) - scale(np.asarray(b.y))).max() <= least)

    return [sum(alike(line, other) for other in lines[i + 1 :]) for i, line in enumerate(lines)]


def _key(lines: Iterable[Line]) -> dict[str, Line]:
    """The entries of the legend: the labels, then the kinds."""
    labels: dict[str, Line] = {}
    kinds: dict[str, Line] = {}
    for line in lines:
        first, points = line, line.style == "none"
        if line.kind:
            kinds.setdefault(line.kind, line._replace(color=GREY, marker=line.marker * points))
            first = line._replace(marker="o") if points else line._replace(style="solid")
        if line.label:
            labels.setdefault(line.label, first)
    return labels | kinds


def _draw(ax: Axes, line: Line, under: int) -> None:
    """Draw one line, its band or its bars, and a cross at its end if it has one.

    A line ``under`` others is wide and pale.
    """
    x, y, look = line.x, line.y, line.look() | {"drawstyle": line.steps}
    if under:
        look |= {"linewidth": line.width + WIDER * min(under, 2), "alpha": PALE}
    if not len(y):
        return
    if len(y) == 1 and not line.marker:
        look["marker"] = "o"
    ax.plot(x, y, label=line.label, **look)
    if line.error is not None and np.isfinite(line.error[1]).any():
        below, above = line.error
        if len(y) == 1:
            bars = {"ecolor": look["color"], "elinewidth": 0.9, "fmt": "none"}
            ax.errorbar(x, y, [below, above], line.spread, **bars)
        else:
            ax.fill_between(x, y - below, y + above, color=look["color"], alpha=0.18, linewidth=0)
    if line.ends:
        ax.plot(x[-1], y[-1], "X", color=look["color"], markersize=6, clip_on=False, zorder=4)


def _across(ax: Axes, panel: Panel, alike: Sequence[Panel]) -> None:
    """The horizontal axis; panels with one label make it logarithmic together."""
    from matplotlib.ticker import LogFormatterSciNotation, MaxNLocator, NullFormatter

    every = [np.asarray(line.x, np.float64) for p in alike for line in p.lines]
    every = [x for x in every if x.size]
    last = [float(x[-1]) for x in every]
    if panel.logarithmic:
        values = np.unique(np.concatenate([np.asarray(line.x, float) for line in panel.lines]))
        ax.set_xscale("log")
        if len(values) <= FEW:  # named are the values themselves
            ax.set_xticks(values)
        ax.xaxis.set_major_formatter("{x:g}" if values[-1] < LARGE else LogFormatterSciNotation())
        ax.xaxis.set_minor_formatter(NullFormatter())
    elif panel.logarithmic is None and last and max(last) > MORE * DECADE * min(last) > 0:
        ax.set_xscale("log", nonpositive="mask")
        ax.autoscale(axis="x")
        powers(ax.xaxis, min(float(x[x > 0][0]) for x in every), max(last))
    else:
        if all((x == np.round(x)).all() for x in every):
            ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        if math.isfinite(panel.until):
            ax.set_xlim(-0.05 * panel.until or -1.0, 1.05 * panel.until or 1.0)


# --- frames --------------------------------------------------------------------------------------


def frame(
    title: str, height: float, key: dict[str, Line], notes: Sequence[str], width: float = FULL
) -> Figure:
    """A figure with room for panels of this height, between its texts.

    The title is on top, then the legend, which cannot cover data; the notes are at the foot, and the
    figure's label.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    titles = textwrap.wrap(title, int(width / (CHARACTER * TITLE)))
    lines = textwrap.wrap(" ".join(notes), int(width / (CHARACTER * SMALL)))
    rows = math.ceil(sum(HANDLE + CHARACTER * SMALL * len(name) for name in key) / width)
    head, row = LEADING * TITLE, LEADING * SMALL
    above, below = EDGE + head * len(titles) + 1.15 * row * rows, EDGE + row * len(lines)
    whole = above + height + below
    figure = Figure(figsize=(width, whole), layout="constrained")
    figure.set_label("\n".join(notes))
    FigureCanvasAgg(figure)  # measures texts; the one of no backend would start a file for each
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, below / whole, 1, height / whole), wspace=0.02, hspace=0.02)
    top, foot = "\n".join(titles), "\n".join(lines)
    small: dict[str, Any] = {"fontsize": SMALL, "color": GREY, "linespacing": 1.15}
    if top:
        look: dict[str, Any] = {"ha": "center", "fontsize": TITLE, "linespacing": 1.15}
        figure.text(0.5, 1 - EDGE / whole, top, va="top", **look)
    if foot:
        figure.text(EDGE / width, EDGE / whole, foot, va="bottom", **small)
    if key:
        above = 1 - (EDGE + head * len(titles)) / whole
        place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, above)}
        handles = [Line2D([], [], **line.look()) for line in key.values()]
        figure.legend(handles, [*key], ncols=-(-len(key) // rows), **place, **LEGEND)
    return figure


def shade(color: int, place: int = 0) -> Any:
    """A colour of the palette, darker beyond its end, and lighter at places of a second axis."""
    from matplotlib.colors import to_rgb

    turns, color = divmod(color, len(PALETTE))
    share = LIGHTER[min(place, len(LIGHTER) - 1)]
    found = np.array(to_rgb(PALETTE[color])) * 0.6**turns * (1 - share) + share
    return tuple(found.tolist()) if turns or place else PALETTE[color]


# --- axes ----------------------------------------------------------------------------------------


def logarithmic(values: Array) -> bool:
    """Whether these numbers suit a logarithmic axis."""
    known = values[np.isfinite(values)]
    return bool(known.size and known.min() > 0 and known.max() > DECADE * known.min())


def tidy(ax: Axes, values: Array, log: bool | None = None, margin: float = 0.05) -> None:
    """Scale the vertical axis to these values (``log``: logarithmic, None: if they span a decade)."""
    from matplotlib.ticker import ScalarFormatter

    known = values[np.isfinite(values)]
    formatter = ax.yaxis.get_major_formatter()
    if isinstance(formatter, ScalarFormatter):
        formatter.set_useOffset(False)  # it would be written over words
    if logarithmic(known) if log is None else log:
        low, high = float(known.min()), float(known.max())
        ax.set_yscale("log", nonpositive="clip")
        powers(ax.yaxis, low, high)
        room = max(1.15, (high / low) ** margin)
        ax.set_ylim(low / room, high * room)
    elif known.size and np.ptp(known) <= FLAT * np.abs(known).max():
        middle = float(known.mean())  # digits that rounding made are no axis
        ax.set_ylim(middle - (room := 0.05 * abs(middle) or 1.0), middle + room)
    elif known.size:
        room = margin * float(np.ptp(known))
        ax.set_ylim(known.min() - room, known.max() + room)
    ax.tick_params(labelsize=SMALL, length=2.5, pad=2)
    ax.grid(True, which="major", color="#DDDDDD", linewidth=0.5)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def powers(axis: Axis, low: float, high: float) -> None:
    """Label a logarithmic axis at powers of ten, or at 1, 2 and 5 times them, without overlap."""
    from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullFormatter

    span = math.log10(high / low)
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if span < 2.1 else (1,)))
    axis.set_major_formatter("{x:g}" if span < 4 else LogFormatterSciNotation())
    axis.set_minor_formatter(NullFormatter())


# --- files ---------------------------------------------------------------------------------------


def save(figure: Figure, folder: Path, name: str, formats: Iterable[str]) -> list[Path]:
    """One file for each format; its name is safe, whatever result it comes from."""
    safe = re.sub(r"[^A-Za-z0-9._+-]+", "_", name)
    out = [folder / f"{safe}.{kind}" for kind in formats]
    for path in out:
        write(figure, path)
    return out


def write(figure: Figure, path: Path) -> None:
    """Write a figure reproducibly: without a date, without random names, with names as they are."""
    import matplotlib
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter

    kind = path.suffix.lower()
    options: dict[str, Any] = {"format": kind[1:], "dpi": DPI, "metadata": SUFFIXES[kind]}
    path.parent.mkdir(parents=True, exist_ok=True)
    axes = (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis))
    numeric = (axis for axis in axes if not isinstance(axis.get_major_formatter(), FixedFormatter))
    numbers = {label for axis in numeric for label in axis.get_ticklabels(which="both")}
    for text in set(figure.findobj(Text)) - numbers:  # which may hold names, and these dollars
        text.set_parse_math(False)
        text.set_text("\n".join(map(printable, text.get_text().split("\n"))))
    if (engine := figure.get_layout_engine()) is not None:  # places the panels once for all formats
        engine.execute(figure)
        figure.set_layout_engine("none")
    with matplotlib.rc_context({"svg.hashsalt": "jaxfl", "pdf.fonttype": 42}):
        replace(path, lambda file: figure.savefig(file, **options))
