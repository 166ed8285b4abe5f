"""The drawing kit of all pictures: frames, legends, panels of lines, axes, files.

Figures are as wide as a column of a paper, or as two, with type of 7 to 9 points.  They are drawn
without any global state: no pyplot, no backend chosen.
"""

from __future__ import annotations

import functools
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxfl.core.errors import printable, require
from jaxfl.core.files import replace
from jaxfl.views.cells import Array
from jaxfl.views.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "Line", "Panel", "frame", "logarithmic", "picture", "powers", "save", "write"]

COLUMN, FULL = 3.3, 6.9  # inches: the width of one column of a paper, and of two
TITLE, TEXT, SMALL = 9.0, 8.0, 7.0  # points
CHARACTER = 0.0078  # inches per point of type: the width of a character on average
LEADING = 0.0178  # inches per point of type, from line to line
HANDLE = 0.42  # inches of a legend's entry beside its words
SIZES = {1: 1.9, 2: 1.75, 3: 1.5}  # inches of a panel's height, by the panels in a row
LOW = 1.3  # of more
EDGE = 0.04  # inches around the texts
DPI = 300
LEGEND: dict[str, Any] = {
    "frameon": False, "fontsize": SMALL, "borderaxespad": 0.0, "borderpad": 0.1,
    "labelspacing": 0.3, "handlelength": 2.2, "handletextpad": 0.5, "columnspacing": 1.0,
}  # fmt: skip

# Okabe and Ito: distinct for every colour vision; yellow is too light for lines. Then darker ones.
OKABE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
PALETTE = (*OKABE, "#00446B", "#803800", "#005F45", "#7A4964", "#8A5F00", "#346C8C", "#777777")
STYLES: tuple[Any, ...] = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.5, 1.2)))
OTHER: Any = (0, (3, 1, 1, 1, 1, 1))  # of algorithms without the axis that the styles stand for
MARKERS = ("o", "s", "^", "D", "v", "p", "<", ">", "P", "X", "h", "d")
GREY = "#555555"
FORMATS: dict[str, dict[str, Any]] = {  # without dates, and quickly
    "png": {"pil_kwargs": {"compress_level": 1}},
    "pdf": {"metadata": {"CreationDate": None}},
    "svg": {"metadata": {"Date": None}},
}

MARGIN = 0.06  # of a vertical axis, beyond its values
DECADE = 10.0 * (1 + 1e-9)  # an axis whose values span more is logarithmic
CAP = 1e3  # times its first value: where a diverging line ends
FLAT = 1e-5  # relative spread that is taken for rounding
SPARSE = 15  # points of a line up to which each is marked
ALIKE = 0.01  # of an axis: lines that lie closer than this cover each other
WIDER = 2.0  # points, of a line for each other that covers it
PALE = 0.5
FLATTENED = 4.0  # times the span of one panel: where panels stop sharing their vertical axis
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
    kind: str = ""  # what its style or its marker stands for, in a second row of the legend
    ends: bool = False  # in a cross

    def look(self) -> dict[str, Any]:
        color, style = self.color, self.style
        look = {
            "color": PALETTE[color % len(PALETTE)] if isinstance(color, int) else color,
            "linestyle": STYLES[style % len(STYLES)] if isinstance(style, int) else style,
            "marker": self.marker,
            "linewidth": self.width,
            "markersize": 3.5 if style != "none" else 8.0 if self.marker == "*" else 5.0,
        }
        if style == "none" and self.marker in (*MARKERS, "*"):  # points may lie on each other
            look |= {"markeredgecolor": "white", "markeredgewidth": 0.5}
        return look

    def live(self) -> Line:
        """Its part before the first value that is not finite; there also before those beyond ``CAP``."""
        x, y = np.asarray(self.x, np.float64), np.asarray(self.y, np.float64)
        ends = not np.isfinite(y).all()
        beyond = ~(np.abs(y) <= CAP * abs(y[0])) if ends else np.zeros(len(y), bool)
        live, error = int(np.argmax(np.append(beyond, True))), self.error
        if error is not None:
            error = np.broadcast_to(np.asarray(error, np.float64)[..., :live], (2, live))
        return self._replace(x=x[:live], y=y[:live], error=error, ends=ends)

    def shown(self) -> Array:
        """The values that the vertical axis has to show."""
        y = np.asarray(self.y)
        if self.error is None:
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


# --- pictures of lines ---------------------------------------------------------------------------


def picture(title: str, rows: Sequence[Sequence[Panel]], notes: Sequence[str] = ()) -> Figure:
    """Panels of equal width, with one legend.

    Those with one label share that axis.  Where one vertical axis would flatten lines, panels share it
    only if they have one title, too.
    """
    columns = max(map(len, rows))
    height = SIZES.get(columns, LOW)
    panels = {(i, j): panel for i, row in enumerate(rows) for j, panel in enumerate(row)}
    panels = {at: p._replace(lines=[line.live() for line in p.lines]) for at, p in panels.items()}
    uprights = _uprights(panels)
    covered = {place: _covered(panel.lines, uprights[place]) for place, panel in panels.items()}
    apart = len({*uprights.values()}) > len({panel.up for panel in panels.values()})
    key = _key(line for panel in panels.values() for line in panel.lines)
    notes = [*notes, *[APART] * apart, *[UNDER] * any(map(any, covered.values()))]
    width = COLUMN if columns == 1 else FULL
    figure = frame(title, (height + 0.24) * len(rows), key, notes, width)
    grid = figure.subplots(len(rows), columns, squeeze=False)
    first: dict[Any, Axes] = {}  # of those that share an axis
    for (i, j), ax in np.ndenumerate(grid):
        if (i, j) not in panels:
            ax.set_visible(False)
            continue
        panel, upright = panels[i, j], uprights[i, j]
        left, above, below = (panels.get(p) for p in ((i, j - 1), (i - 1, j), (i + 1, j)))
        if first.setdefault(panel.across, ax) is not ax:
            ax.sharex(first[panel.across])
        if first.setdefault(upright, ax) is not ax:
            ax.sharey(first[upright])
        _draw(ax, panel.lines, covered[i, j])
        if left is None or left.up != panel.up:
            room = int(height / (CHARACTER * TEXT))
            ax.set_ylabel(textwrap.fill(panel.up, room), fontsize=TEXT)
        else:
            ax.tick_params(labelleft=uprights[i, j - 1] != upright)
        if below is None or below.across != panel.across:
            ax.set_xlabel(panel.across, fontsize=TEXT)
        else:
            ax.tick_params(labelbottom=False)
        if above is None or above.title != panel.title:
            room = int(width / columns / (CHARACTER * TEXT))
            ax.set_title(textwrap.fill(panel.title, room), fontsize=TEXT, pad=3)
        if not ax.has_data():
            at = {"transform": ax.transAxes, "ha": "center", "color": GREY, "fontsize": SMALL}
            ax.text(0.5, 0.5, "diverged, or not run", **at)
        ax.tick_params(labelsize=SMALL, length=2.5, pad=2)
        ax.grid(True, which="major", color="#DDDDDD", linewidth=0.5)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    for upright in {*uprights.values()}:
        _up(first[upright], upright)
    for across in {panel.across for panel in panels.values()}:
        _across(first[across], [p for p in panels.values() if p.across == across])
    return figure


class Upright(NamedTuple):
    """A vertical axis: what it shows, and its scale."""

    up: str
    title: str  # of its panels; "" where all panels with one label share it
    low: float
    high: float
    log: bool

    def length(self, log: bool) -> float:
        """NaN where nothing is shown."""
        return math.log10(self.high / self.low) if log else self.high - self.low


def _uprights(panels: dict[tuple[int, int], Panel]) -> dict[tuple[int, int], Upright]:
    """The vertical axis of each panel."""

    def upright(up: str, title: str = "") -> Upright:
        group = [p for p in panels.values() if p.up == up and title in (p.title, "")]
        values = np.concatenate([np.zeros(0), *(line.shown() for p in group for line in p.lines)])
        ends = (float(values.min()), float(values.max())) if values.size else (math.nan, math.nan)
        log = group[0].powers
        return Upright(up, title, *ends, logarithmic(values) if log is None else log)

    whole = {up: upright(up) for up in {panel.up for panel in panels.values()}}
    own = {place: upright(panel.up, panel.title) for place, panel in panels.items()}
    pairs = [(each, whole[each.up]) for each in own.values()]
    apart = {a.up for a, b in pairs if b.length(b.log) > FLATTENED * a.length(b.log)}
    return {place: each if each.up in apart else whole[each.up] for place, each in own.items()}


def _covered(lines: Sequence[Line], upright: Upright) -> list[int]:
    """How many of the lines after each one lie on it."""
    scale = np.log10 if upright.log else np.asarray

    def alike(a: Line, b: Line) -> bool:
        if not a.label or len(a.y) != len(b.y) or len(a.y) < 2 or not np.allclose(a.x, b.x, 0.01):
            return False
        most = np.abs(scale(np.asarray(a.y)) - scale(np.asarray(b.y))).max()
        return bool(most <= ALIKE * upright.length(upright.log))

    return [sum(alike(line, other) for other in lines[i + 1 :]) for i, line in enumerate(lines)]


def _key(lines: Iterable[Line]) -> dict[str, Line]:
    """The entries of the legend: the labels, then the kinds."""
    labels, kinds = dict[str, Line](), dict[str, Line]()
    for line in lines:
        first, points = line, line.style == "none"
        if line.kind:
            kinds.setdefault(line.kind, line._replace(color=GREY, marker=line.marker * points))
            first = line._replace(marker="o") if points else line._replace(style="solid")
        if line.label:
            labels.setdefault(line.label, first)
    return labels | kinds


def _draw(ax: Axes, lines: Sequence[Line], covered: Sequence[int]) -> None:
    """Draw lines, their bands or bars, and a cross at the end of each that has one.

    A line that is ``covered`` by others is wide and pale.
    """
    bars = list[Any]()
    for line, under in zip(lines, covered, strict=True):
        x, y, look = np.asarray(line.x), np.asarray(line.y), line.look() | {"drawstyle": line.steps}
        if under:
            look |= {"linewidth": line.width + WIDER * min(under, 2), "alpha": PALE}
        if not len(y):
            continue
        if not line.marker and line.steps == "default" and len(y) <= SPARSE:
            look["marker"] = "o" if len(y) == 1 else "."
        ax.plot(x, y, label=line.label, **look)
        color = look["color"]
        if line.error is not None and np.isfinite(line.error[1]).any():
            low, high = y - line.error[0], y + line.error[1]
            if len(y) > 1:
                ax.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
            else:
                bars.append((x[0], low[0], high[0], color))
        if line.ends:
            ax.plot(x[-1], y[-1], "X", color=color, markersize=6, clip_on=False, zorder=4)
    if bars:
        ax.vlines(*zip(*bars, strict=True), linewidth=0.9)


def _up(ax: Axes, upright: Upright) -> None:
    """The vertical axis."""
    low, high = upright.low, upright.high
    if math.isnan(low):
        ax.set_yticks([])
    elif upright.log:
        ax.set_yscale("log", nonpositive="clip")
        powers(ax.yaxis, low, high)
        room = max(1.15, (high / low) ** MARGIN)
        ax.set_ylim(low / room, high * room)
    else:  # digits that rounding made are no axis
        flat = high - low <= FLAT * max(abs(low), abs(high))
        room = MARGIN * (abs(high) if flat else high - low) or 1.0
        ax.set_ylim(low - room, high + room)
        ax.ticklabel_format(axis="y", useOffset=False)  # it would be written over words


def _across(ax: Axes, panels: Sequence[Panel]) -> None:
    """The horizontal axis of these panels."""
    every = [np.asarray(line.x) for p in panels for line in p.lines if len(line.x)] or [np.zeros(1)]
    values, last = np.unique(np.concatenate(every)), [x[-1] for x in every]
    log = panels[0].logarithmic
    if log is None:
        log = max(last) > DECADE * min(last) > 0
    if log and values[-1] > 0:
        ax.set_xscale("log", nonpositive="mask")
        powers(ax.xaxis, values[values > 0][0], max(last))
    elif (values == np.round(values)).all():
        ax.locator_params(axis="x", nbins=4, integer=True)


# --- frames --------------------------------------------------------------------------------------


def frame(
    title: str, height: float, key: dict[str, Line], notes: Sequence[str], width: float
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
    wide = [HANDLE + CHARACTER * SMALL * len(name) for name in key]
    fits = (n for n in range(len(key), 1, -1) if sum(map(max, np.array_split(wide, n))) <= width)
    columns = next(fits, 1)  # each as wide as its longest entry
    rows = math.ceil(len(key) / columns)
    head, row = EDGE + LEADING * TITLE * len(titles), LEADING * SMALL
    above, below = head + 1.15 * row * rows, EDGE + row * len(lines)
    whole = above + height + below
    figure = Figure(figsize=(width, whole), layout="constrained")
    figure.set_label("\n".join(notes))
    FigureCanvasAgg(figure)  # measures texts; the one of no backend would start a file for each
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, below / whole, 1, height / whole), wspace=0.02, hspace=0.02)
    if titles:
        figure.text(0.5, 1 - EDGE / whole, "\n".join(titles), fontsize=TITLE, ha="center", va="top")
    if lines:
        foot = figure.text(EDGE / width, EDGE / whole, "\n".join(lines), fontsize=SMALL)
        foot.set(color=GREY, va="bottom")
    if key:
        place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 1 - head / whole)}
        handles = [Line2D([], [], **line.look()) for line in key.values()]
        figure.legend(handles, [*key], ncols=columns, **place, **LEGEND)
    return figure


# --- axes ----------------------------------------------------------------------------------------


def logarithmic(values: Array) -> bool:
    """Whether these numbers suit a logarithmic axis."""
    known = values[np.isfinite(values)]
    return bool(known.size and known.min() > 0 and known.max() > DECADE * known.min())


def powers(axis: Any, low: float, high: float) -> None:
    """Label a logarithmic axis at powers of ten, or at 1, 2 and 5 times them, without overlap."""
    from matplotlib.ticker import LogLocator, NullLocator

    span = math.log10(high / low)
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if span < 2.1 else (1,)))
    axis.set_major_formatter(lambda value, place: number(value))
    axis.set_minor_locator(NullLocator())


# --- files ---------------------------------------------------------------------------------------


def save(figure: Figure, folder: Path, name: str, formats: Iterable[str]) -> list[Path]:
    """One file for each format; its name is safe, whatever result it comes from."""
    safe = re.sub(r"[^A-Za-z0-9._+-]+", "_", name)
    return [write(figure, folder / f"{safe}.{kind}") for kind in formats]


def write(figure: Figure, path: Path) -> Path:
    """Write a figure reproducibly: without a date, without random names, with names as they are."""
    import matplotlib
    from matplotlib.backend_bases import get_registered_canvas_class

    kind, dpi = path.suffix[1:].lower(), figure.dpi
    wrong = f"The name of the picture {str(path)!r} must end in .png, .pdf or .svg"
    require(kind in FORMATS, wrong)
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [*figure.texts, *(text for key in figure.legends for text in key.get_texts())]
    for ax in figure.axes:
        texts += [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts]
    for text in texts:  # they may hold a user's names, and these dollars
        text.set_parse_math(False)
        text.set_text("\n".join(map(printable, text.get_text().split("\n"))))
    figure.set_dpi(DPI if kind == "png" else 72)  # that of these canvases
    canvas: Any = get_registered_canvas_class(kind)(figure)  # savefig would lay texts out twice
    engine: Any = figure.get_layout_engine()
    engine.execute(figure)
    # the last digits of a layout depend on where its numbers are in memory
    for ax in figure.axes:
        ax.set_position(np.round(ax.get_position().bounds, 9))
        ax.set_in_layout(True)
    figure.set_layout_engine("none")
    with matplotlib.rc_context({"svg.hashsalt": "jaxfl", "pdf.fonttype": 42}):
        replace(path, functools.partial(getattr(canvas, f"print_{kind}"), **FORMATS[kind]))
    figure.set_layout_engine(engine)
    figure.set_dpi(dpi)
    return path
