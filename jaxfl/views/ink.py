"""The drawing kit of all pictures: frames, legends, panels of lines, axes, files.

Figures are drawn without any global state: no pyplot, no backend chosen.
"""

from __future__ import annotations

import itertools
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
    "FORMATS",
    "GREY",
    "MARKERS",
    "OTHER",
    "PALETTE",
    "SUFFIXES",
    "Line",
    "Panel",
    "frame",
    "lighter",
    "logarithmic",
    "picture",
    "plain_name",
    "powers",
    "save",
    "tidy",
    "write",
]

# Okabe and Ito: distinct for every colour vision; yellow is too light for lines.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES: tuple[Any, ...] = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.5, 1.2)))
OTHER: Any = (0, (3, 1, 1, 1, 1, 1))  # of algorithms without the axis that the styles stand for
LIGHTER = (0.0, 0.2, 0.35, 0.45)  # towards white, with the line styles
MARKERS = ("o", "s", "^", "D", "v", "p", "<", ">")
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

CHARACTERS = 12.5  # per inch of a legend
SMALL = 14.5  # per inch of a note
LINE = 0.2  # inches of a line of a legend
DOWN = 0.62  # inches below the panels, for the words of their axes
SIZES = {1: (5.4, 3.2), 2: (3.8, 2.5)}  # inches of a panel, by their number in a row
NARROW = 2.9, 2.1


class Line(NamedTuple):
    """A line; it ends in a cross where its values diverge or are NaN."""

    label: str  # what its colour stands for, in the legend; "" for none
    x: Sequence[float] | Array
    y: Sequence[float] | Array
    error: Any = None  # of y: one, or those below and above; none for a single seed
    color: Any = 0  # a place in PALETTE, or any colour
    style: Any = 0  # a place in STYLES, or any line style
    marker: str = ""
    width: float = 1.5  # points
    steps: str = "default"  # or "steps-pre": the later of two values holds between them
    size: float = 4.0  # points, of markers
    spread: Any = None  # error of x, of a single point
    kind: str = ""  # what its style or its marker stands for, in a second row of the legend

    @property
    def cut(self) -> bool:
        return not np.isfinite(np.asarray(self.y, np.float64)).all()

    def look(self) -> dict[str, Any]:
        color = PALETTE[self.color % len(PALETTE)] if isinstance(self.color, int) else self.color
        style = STYLES[self.style % len(STYLES)] if isinstance(self.style, int) else self.style
        look = {"color": color, "linestyle": style, "marker": self.marker, "linewidth": self.width}
        if self.style == "none" and self.marker in FILLED:  # points may lie on each other
            look |= {"markeredgecolor": "white", "markeredgewidth": 0.6}
        return look | {"markersize": self.size}


class Panel(NamedTuple):
    title: str
    across: str
    up: str
    lines: Sequence[Line]
    logarithmic: bool | None = False  # across; None: if the lines end a decade apart
    powers: bool | None = None  # logarithmic upwards; None: if the values span a decade
    until: float = math.nan  # where a linear horizontal axis ends
    legend: bool = False  # of its own, in place of that of the picture
    zero: bool = False  # the vertical axis begins there


# --- pictures of lines ---------------------------------------------------------------------------


def picture(
    title: str,
    rows: Sequence[Sequence[Panel]],
    notes: Sequence[str] = (),
    *,
    size: tuple[float, float] | None = None,
    stacked: bool = False,
    margins: tuple[float, float] = (0.05, 0.05),
    **options: Any,
) -> Figure:
    """Panels of equal size; those with one label share their vertical axis, by rows or all.

    The legend is that of all lines.  ``stacked`` panels share their horizontal axes.  ``margins``
    are parts of the data's span on both axes.
    """
    columns = max(map(len, rows))
    every = [panel for row in rows for panel in row]
    own = any(panel.legend for panel in every)
    labels = [{panel.up for panel in row} for row in rows]
    alike = all(len(names) == 1 for names in labels)
    one = alike and len(set.union(*labels)) == 1
    defaults: dict[str, Any] = {
        "heads": own or any(panel.title for panel in every),
        "gaps": (0.28 if alike else 0.85, 0.75),
    }
    figure, grid = frame(
        len(rows),
        columns,
        size=size or SIZES.get(columns, NARROW),
        title=title,
        keys=[] if own else _keys(line for panel in every for line in panel.lines),
        notes=notes,
        sharey="all" if one else "row" if alike else False,
        sharex="col" if stacked else False,
        **defaults | options,
    )
    drawn = [
        (ax, panel)
        for axes, row in zip(grid, rows, strict=True)
        for ax, panel in itertools.zip_longest(axes, row)
    ]
    for ax, panel in drawn:
        ax.set_visible(panel is not None)
        ax.margins(*margins)
    drawn = [(ax, panel) for ax, panel in drawn if panel is not None]
    shared = [drawn] if one else [[pair] for pair in drawn]
    if alike and not one:
        shared = [[pair for pair in drawn if pair[0] in axes] for axes in grid]
    for pairs in shared:
        _upwards(pairs, margins[1])
    for i, (ax, panel) in enumerate(drawn):
        _across(ax, panel, [p for p in every if p.across == panel.across])
        if i % columns == 0 or not alike:
            ax.set_ylabel(panel.up)
        if not stacked or ax in grid[-1]:
            ax.set_xlabel(panel.across, fontsize=9.5)
        ax.set_title(panel.title, fontsize=10.5)
        if panel.legend:
            ax.legend(
                loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, frameon=False,
                ncols=len(panel.lines), reverse=True,
            )  # fmt: skip
        if not ax.has_data():
            _empty(ax, everywhere=not any(other.has_data() for other, _ in drawn))
    return figure


def _keys(lines: Iterable[Line]) -> list[dict[str, Line]]:
    """A row of the legend for the labels, and one for the kinds."""
    labels: dict[str, Line] = {}
    kinds: dict[str, Line] = {}
    for line in lines:
        first, points = line, line.style == "none"
        if line.kind:
            kinds.setdefault(
                line.kind,
                line._replace(color=GREY, width=1.5, marker=line.marker if points else ""),
            )
            first = line._replace(marker="o") if points else line._replace(style="solid")
        if line.label:
            labels.setdefault(line.label, first)
    return [key for key in (labels, kinds) if key]


def _upwards(pairs: Sequence[tuple[Axes, Panel]], margin: float) -> None:
    """Draw the panels that share a vertical axis, and choose it."""
    first = [abs(line.y[0]) for _, panel in pairs for line in panel.lines if len(line.y)]
    top = CAP * max((v for v in first if math.isfinite(v)), default=math.inf)
    parts = [_draw(ax, line, top) for ax, panel in pairs for line in panel.lines]
    values = np.concatenate([np.zeros(0), *parts])
    for ax, panel in pairs:
        tidy(ax, values, False if panel.zero else panel.powers, margin)
        if panel.zero:
            ax.set_ylim(bottom=0)


def _draw(ax: Axes, line: Line, top: float) -> Array:
    """Draw one line; returns the values that the vertical axis has to show."""
    x, y = (np.asarray(values, np.float64) for values in (line.x, line.y))
    live = int(np.argmin(np.append(np.abs(y) <= top, False))) if line.cut else len(y)
    if not live:
        return y[:0]
    look = line.look() | {"drawstyle": line.steps}
    if live == 1 and not line.marker:
        look["marker"] = "o"
    x, y, shown = x[:live], y[:live], [y[:live]]
    ax.plot(x, y, label=line.label, **look)
    if line.error is not None:
        below, above = np.broadcast_to(np.asarray(line.error, np.float64)[..., :live], (2, live))
        if np.isfinite(above).any():
            low, high = y - below, y + above
            if live == 1:
                bars = {"ecolor": look["color"], "elinewidth": 1.2, "fmt": "none"}
                ax.errorbar(x, y, [below, above], line.spread, **bars)
            else:
                ax.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)
            shown += [high[np.isfinite(high)], low[low > y / 2]]
    if line.cut:
        ax.plot(x[-1], y[-1], "X", color=look["color"], markersize=8, clip_on=False, zorder=4)
    return np.concatenate(shown)


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
            ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if math.isfinite(panel.until):
            ax.set_xlim(-0.05 * panel.until or -1.0, 1.05 * panel.until or 1.0)


def _empty(ax: Axes, everywhere: bool) -> None:
    """Replace the ticks of an axis without data by a note."""
    ax.set_xticks([])
    if everywhere:
        ax.set_yticks([])
    ax.text(0.5, 0.5, "diverged, or not run", transform=ax.transAxes, ha="center", color=GREY)


# --- frames --------------------------------------------------------------------------------------


def frame(
    rows: int,
    columns: int,
    *,
    size: tuple[float, float],
    title: str,
    keys: Sequence[dict[str, Line]] = (),
    notes: Sequence[str] = (),
    left: float = 0.95,
    right: float = 0.2,
    gaps: tuple[float, float] = (0.28, 0.62),
    heads: bool = True,
    heights: Sequence[float] | None = None,
    **options: Any,
) -> tuple[Figure, Any]:
    """Panels of a given size in inches, with room for the texts around them.

    The title is on top, then a row of the legend per key, which cannot cover data, then the panels' own
    ``heads``; the notes are at the foot.  ``heights`` of the rows are parts of the size.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    ratios = heights or (1.0,) * rows
    width = left + columns * size[0] + (columns - 1) * gaps[0] + right
    room = int(width * CHARACTERS)
    titles = textwrap.wrap(title, int(room * 0.75))
    lines = [line for note in notes for line in textwrap.wrap(note, int(width * SMALL))]
    tall = [-(-(2 + sum(len(name) + 7 for name in key)) // room) for key in keys]
    above = 0.22 + 0.24 * len(titles) + LINE * sum(tall) + 0.1 * bool(keys) + 0.22 * heads
    below = DOWN + 0.17 * len(lines)
    height = above + sum(ratios) * size[1] + (rows - 1) * gaps[1] + below
    figure = Figure(figsize=(width, height))
    axes = figure.subplots(rows, columns, squeeze=False, height_ratios=ratios, **options)
    figure.subplots_adjust(
        left / width,
        below / height,
        1 - right / width,
        1 - above / height,
        gaps[0] / size[0],
        gaps[1] / (size[1] * sum(ratios) / rows),
    )
    head: dict[str, Any] = {"fontsize": 12, "ha": "center", "va": "top", "linespacing": 1.2}
    figure.text(0.5, 1 - 0.12 / height, "\n".join(titles), **head)
    top = height - 0.16 - 0.24 * len(titles)
    for key, count in zip(keys, tall, strict=True):
        figure.legend(
            [Line2D([], [], **line.look()) for line in key.values()],
            list(key),
            loc="upper center",
            bbox_to_anchor=(0.5, top / height),
            borderaxespad=0.0,
            borderpad=0.1,
            frameon=False,
            fontsize=9.5,
            ncols=-(-len(key) // count),
            handlelength=2.4,
            columnspacing=1.4,
        )
        top -= LINE * count
    foot = (below - DOWN + 0.05) / height
    if lines:
        figure.text(0.12 / width, foot, "\n".join(lines), fontsize=8.5, color=GREY, va="top")
    return figure, axes


def lighter(color: int, place: int) -> tuple[float, ...]:
    """A colour at one place of a second axis."""
    from matplotlib.colors import to_rgb

    share = LIGHTER[min(place, len(LIGHTER) - 1)]
    return tuple(np.array(to_rgb(PALETTE[color])) * (1 - share) + share)


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
    ax.grid(True, which="major", color="#DDDDDD", linewidth=0.7)
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


def plain_name(name: str) -> str:
    """``name`` as a part of the name of a file, whatever result it comes from."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", name)


def save(figure: Figure, folder: Path, name: str, formats: Iterable[str]) -> list[Path]:
    """One file for each format."""
    out = [folder / f"{plain_name(name)}.{kind}" for kind in formats]
    for path in out:
        write(figure, path)
    return out


def write(figure: Figure, path: Path) -> None:
    """Write a figure reproducibly: without a date, without random names, with names as they are."""
    import matplotlib
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter

    kind = path.suffix.lower()
    options: dict[str, Any] = {"format": kind[1:], "dpi": 160, "metadata": SUFFIXES[kind]}
    path.parent.mkdir(parents=True, exist_ok=True)
    axes = (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis))
    numeric = (axis for axis in axes if not isinstance(axis.get_major_formatter(), FixedFormatter))
    numbers = {label for axis in numeric for label in axis.get_ticklabels(which="both")}
    for text in set(figure.findobj(Text)) - numbers:  # which may hold names, and these dollars
        text.set_parse_math(False)
        text.set_text("\n".join(map(printable, text.get_text().split("\n"))))
    with matplotlib.rc_context({"svg.hashsalt": "jaxfl", "pdf.fonttype": 42}):
        replace(path, lambda file: figure.savefig(file, **options))
