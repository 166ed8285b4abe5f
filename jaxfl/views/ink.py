"""The drawing kit of all pictures: frames, legends, panels of lines, axes, files.

Type has 7 to 9 points.  Figures are as wide as their medium asks: a column of a paper by default; on slides
and in notebooks they are scaled, or have more room.  They are drawn without any global state: no pyplot, no
backend chosen.
"""

from __future__ import annotations

import functools
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np

from jaxfl.core.errors import printable, require
from jaxfl.core.files import replace
from jaxfl.core.params import choice, closest
from jaxfl.core.params import number as in_range
from jaxfl.views.cells import Array
from jaxfl.views.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "FORMATS",
    "MEDIA",
    "Line",
    "Look",
    "Panel",
    "Sheet",
    "beyond",
    "fitted",
    "frame",
    "logarithmic",
    "picture",
    "powers",
    "save",
    "sheet",
    "write",
]

COLUMN, FULL = 3.3, 6.9  # inches: the width of one column of a paper, and of two
MEDIA = {"paper": COLUMN, "slides": 5.2, "notebook": FULL}  # inches; slides scale theirs up
PANEL = 1.6  # inches: the least width of a panel
TITLE, TEXT, SMALL = 9.0, 8.0, 7.0  # points
CHARACTER = 0.0078  # inches per point of type: the width of a character on average
LEADING = 0.0178  # inches per point of type, from line to line
HANDLE = 0.42  # inches of a legend's entry before its words
HEIGHT = 0.72, 0.27  # inches of a panel, and that share of its width: its height
EDGE = 0.04  # inches around the texts
DPI, SHOWN = 300, 160  # of files, and in notebooks
LEGEND: dict[str, Any] = {
    "frameon": False, "fontsize": SMALL, "borderaxespad": 0.0, "borderpad": 0.1,
    "labelspacing": 0.3, "handlelength": 2.2, "handletextpad": 0.5, "columnspacing": 1.0,
}  # fmt: skip

# Distinct for every colour vision, and no lightened one is another; five are of Okabe and Ito.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#000000", "#8C6BFF", "#E69F00", "#7A1F5C")
STYLES: tuple[Any, ...] = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.5, 1.2)))
OTHER: Any = (0, (3, 1, 1, 1, 1, 1))  # of algorithms without the axis that the styles stand for
MARKERS = ("o", "s", "^", "D", "v", "p", "<", ">", "X", "h", "d")
APART = "P"  # the marker of algorithms without the axis that the others stand for
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
PALE = 0.5  # a line under another
COVERED = 4.0, 1.2  # points: how near another covers a point, or a line
RING, HALO = 3.0, 1.2  # points that a cover adds to a marker, and to a line
RISEN = 2.0  # times where it began: what ends above that diverges, and sets no axis
ABOVE = 3.0  # times the largest of the others: from there on it leaves the picture
CROSS = f"A cross: from the next evaluation on infinite, or {CAP:g} times its first value."
ARROW = "An arrow: there a line goes above what the axis shows."
FEW = 4  # lines that have their names next to them, in place of a legend
ASIDE = 0.34  # of a panel's width: the most that such names take


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
            "markersize": 6.0 if style == "none" else 3.5,
        }
        if style == "none" and self.marker in (*MARKERS, APART):  # points may lie on each other
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
        y = np.asarray(self.y, np.float64)
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
    start: float = math.nan  # where the lines begin, if small values are good
    span: Sequence[Line] = ()  # that the vertical axis shows; by default the panel's own


EMPTY = Panel("", "", "", ())


class Sheet(NamedTuple):
    """The format of a picture: its width in inches, its title, and whether it has notes below."""

    width: float | None = None  # None: a column for one panel in a row, else two
    title: str = ""
    noted: bool = True

    def rows(self, panels: list[Any]) -> list[list[Any]]:
        """As many beside each other as there is room for, in rows of one length."""
        count = math.ceil(len(panels) / max(1, int((self.width or FULL) / PANEL)))
        size = math.ceil(len(panels) / count)
        return [panels[i : i + size] for i in range(0, len(panels), size)]


class Look(TypedDict, total=False):
    """``medium`` is ``"paper"`` (a column, 3.3 inches wide, without a title), ``"slides"`` or
    ``"notebook"``.  ``width`` in inches and ``title`` (``""``: none) replace its own; without ``note``
    nothing stands under the picture."""

    medium: str
    width: float
    title: str | None
    note: bool


def sheet(heading: str, look: Look) -> tuple[Sheet, list[str]]:
    """The sheet, and the heading where no title says it."""
    title, medium, noted = look.get("title"), look.get("medium", "paper"), look.get("note", True)
    choice("medium", medium, MEDIA)
    for name in look:
        known = [*Look.__annotations__]
        require(name in known, closest("option named", name, known))
    width = in_range("width", look.get("width", MEDIA[medium]), least=1, most=100)
    if title is None and medium != "paper":
        return Sheet(width, heading, noted), []
    return Sheet(width, title or "", noted), [f"{heading}."] * bool(heading)


# --- pictures of lines ---------------------------------------------------------------------------


def picture(on: str | Sheet, rows: Sequence[Sequence[Panel]], notes: Sequence[str] = ()) -> Figure:
    """Panels of equal width on a sheet, or under a title, with one legend, or names next to few lines.

    Those with one label share that axis.  What diverges leaves the picture.
    """
    on = Sheet(title=on) if isinstance(on, str) else on
    columns = max(map(len, rows))
    width = on.width or (COLUMN if columns == 1 else FULL)
    height = HEIGHT[0] + HEIGHT[1] * width / columns
    panels = {(i, j): panel for i, row in enumerate(rows) for j, panel in enumerate(row)}
    panels = {at: p._replace(lines=[line.live() for line in p.lines]) for at, p in panels.items()}
    ups = {up: [p for p in panels.values() if p.up == up] for up in {p.up for p in panels.values()}}
    seen = {up: _seen(those) for up, those in ups.items()}
    every = [line for panel in panels.values() for line in panel.lines]
    key, cross = _key(every), any(line.ends and len(line.y) for line in every)
    notes = [*notes, *[CROSS] * cross, *[ARROW] * any(cut for _, cut in seen.values())]
    named = _named(panels, key, width / columns)
    size = on._replace(width=width), (height + 0.24) * len(rows)
    figure = frame(*size, {} if named else key, notes)
    grid = figure.subplots(len(rows), columns, squeeze=False)
    first: dict[Any, Axes] = {}  # of those that share an axis
    for (i, j), ax in np.ndenumerate(grid):
        if (i, j) not in panels:
            ax.remove()
            continue
        panel, last = panels[i, j], j + 1 == len(rows[i]) < columns
        if last and len(ups[panel.up]) == 1:  # an axis of its own has the room of the whole row
            ax.set_subplotspec(ax.get_subplotspec().get_gridspec()[i, j:])
        left, above, below = (panels.get(p, EMPTY) for p in ((i, j - 1), (i - 1, j), (i + 1, j)))
        if first.setdefault(panel.across, ax) is not ax:
            ax.sharex(first[panel.across])
        if first.setdefault((panel.up,), ax) is not ax:
            ax.sharey(first[panel.up,])
        _draw(ax, panel.lines)
        outer, lowest = left.up != panel.up, below.across != panel.across
        ax.set_ylabel(**fitted(panel.up * outer, height))
        ax.set_xlabel(panel.across * lowest, fontsize=TEXT)
        title = panel.title * (above.title != panel.title)
        ax.set_title(**fitted(title, 0.9 * width / columns, "label"), pad=3)
        ax.tick_params(labelleft=outer, labelbottom=lowest, labelsize=SMALL, length=2.5, pad=2)
        if not ax.has_data():
            at = {"transform": ax.transAxes, "ha": "center", "color": GREY, "fontsize": SMALL}
            ax.text(0.5, 0.5, "diverged, or not run", **at)
        ax.grid(True, which="major", color="#DDDDDD", linewidth=0.5)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    for up, those in ups.items():
        _up(first[up,], seen[up][0], those[0].powers)
    for across in {panel.across for panel in panels.values()}:
        _across(first[across], [p for p in panels.values() if p.across == across])
    for place, panel in panels.items():
        _uncover(grid[place])
        _leave(grid[place], panel.lines)
        if place in named:
            _name(grid[place], panel.lines, height)
    return figure


def _seen(panels: Sequence[Panel]) -> tuple[Array, bool]:
    """The values that the vertical axis of these panels shows, and whether it leaves some out."""
    every = (line for panel in panels for line in panel.span or panel.lines)
    lines = [line for line in map(Line.live, every) if len(line.y)]
    values = np.concatenate([np.zeros(0), *(line.shown() for line in lines)])
    top = beyond([line.y[-1] for line in lines], max(p.start for p in panels))
    return values[values <= top], bool((values > top).any())


def beyond(last: Sequence[float] | Array, start: float) -> float:
    """The largest value that an axis shows: it leaves out ends far above the start and the other ends.

    ``start`` is NaN where it is unknown.
    """
    known = np.asarray(last)
    fine = known[known <= RISEN * abs(start)]
    most = max(abs(start), fine.max(initial=0))
    return RISEN * most if fine.size and known.max() > ABOVE * most else math.inf


def _named(panels: Mapping[Any, Panel], key: Mapping[str, Line], width: float) -> list[Any]:
    """The panels at the right, which name their lines at the ends; none if some line has no place for
    its name there, or if all lines of a panel end in one point."""
    room = max((CHARACTER * SMALL * len(name) for name in key), default=math.inf)
    if room > ASIDE * width or any(line.kind for line in key.values()):
        return []
    out, left, last = list[Any](), {*key}, max(column for _, column in panels)
    for at in (at for at in panels if at[1] == last):
        of = [line for line in panels[at].lines if line.label and len(line.y)]
        names, x = {each.label for each in of}, [each.x[-1] for each in of]
        fits = 0 < len(of) == len(names) <= FEW and min(x) > 0.97 * max(x) > 0
        if fits and (len(of) == 1 or len({float(each.y[-1]) for each in of}) > 1):
            out.append(at)
            left -= names
    return [] if left else out


def _name(ax: Axes, lines: Sequence[Line], height: float) -> None:
    """Write the name of each line next to its end, none over another."""
    to_axes, step = ax.transData + ax.transAxes.inverted(), 1.5 * SMALL / 72 / height
    own = {line.label: line for line in reversed(lines) if line.label and len(line.y)}
    ends = {name: to_axes.transform((line.x[-1], line.y[-1]))[1] for name, line in own.items()}
    upwards, below, above = sorted(ends, key=lambda name: ends[name]), -math.inf, 1.0 + step
    for name in upwards:
        ends[name] = below = max(min(1.0, ends[name]), below + step)
    for name in reversed(upwards):
        above = min(ends[name], above - step)
        look = {"color": own[name].look()["color"], "fontsize": SMALL, "va": "center"}
        ax.text(1.02, above, name, transform=ax.transAxes, **look)


def _leave(ax: Axes, lines: Sequence[Line]) -> None:
    """An arrow at the upper edge wherever a line or a point leaves the picture."""
    (*_, top), scale = ax.get_ylim(), ax.yaxis.get_transform().transform
    look: Any = {"transform": ax.get_xaxis_transform(), "clip_on": False, "markersize": 5}
    for line in lines:
        x, y = np.clip(np.asarray(line.x, np.float64), *ax.get_xlim()), np.asarray(line.y)
        out = y > top  # and of x, 0 may have no place
        for i in np.flatnonzero(out & ~np.append(False, out[:-1])):
            last = slice(max(int(i) - (line.steps == "default"), 0), int(i) + 1)
            at = np.interp(scale(top), scale(y[last]), x[last])
            ax.plot(at, 1.0, "^", color=line.look()["color"], **look)


def _uncover(ax: Axes) -> None:
    """Enlarge each point, and widen each line, that others cover, to show around them."""
    own = [line for line in ax.get_lines() if not str(line.get_label()).startswith("_")]
    ends = [ax.transData.transform(line.get_xydata()) for line in own]
    places = [np.nan_to_num(at * 72 / SHOWN, posinf=0, neginf=0) for at in ends]
    for i, (line, at) in enumerate(zip(own, places, strict=True)):
        near = [at - o for o in places[i + 1 :] if len(o) == len(at)]
        over = sum(bool(np.abs(gap).max() < COVERED[len(at) > 1]) for gap in near)
        if over and len(at) == 1:
            line.set_markersize(line.get_markersize() + RING * min(over, 3))
        elif over:
            line.set(linewidth=line.get_linewidth() + HALO * min(over, 2), alpha=PALE)


def fitted(text: str, inches: float, name: str = "ylabel") -> dict[str, Any]:
    """A text as broken between words, in smaller type where a word is longer than this room."""
    room = int(inches / (CHARACTER * TEXT))
    kept: Any = {"break_long_words": False, "break_on_hyphens": False}
    lines = [line for part in text.splitlines() for line in textwrap.wrap(part, room, **kept)]
    longest = max(map(len, lines), default=1)
    return {name: "\n".join(lines), "fontsize": TEXT * min(1.0, room / longest)}


def _key(lines: Iterable[Line]) -> dict[str, Line]:
    """The entries of the legend: the labels, then the kinds."""
    labels, kinds = dict[str, Line](), dict[str, Line]()
    for line in lines:
        first, points = line, line.style == "none"
        if line.kind:
            color = GREY if line.label else line.color
            kinds.setdefault(line.kind, line._replace(color=color, marker=line.marker * points))
            first = line._replace(marker="o") if points else line._replace(style="solid")
        if line.label:
            labels.setdefault(line.label, first)
    return labels | kinds


def _draw(ax: Axes, lines: Sequence[Line]) -> None:
    """Draw lines, their bands or bars, and a cross at the end of each that has one."""
    bars = list[Any]()
    for line in lines:
        x, y, look = np.asarray(line.x), np.asarray(line.y), line.look() | {"drawstyle": line.steps}
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
            ax.plot(x[-1], y[-1], "X", color=color, markersize=6, zorder=4)
    if bars:
        ax.vlines(*zip(*bars, strict=True), linewidth=0.9)


def _up(ax: Axes, values: Array, log: bool | None) -> None:
    """The vertical axis, which shows these values."""
    low, high = (values.min(), values.max()) if values.size else (math.nan, math.nan)
    if not values.size:
        ax.set_yticks([])
    elif logarithmic(values) if log is None else log:
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


def frame(on: Sheet, height: float, key: Mapping[str, Line], notes: Sequence[str]) -> Figure:
    """A figure with room for panels of this height, between its texts.

    The title is on top, then the legend, which cannot cover data; the notes are at the foot, and the
    figure's label.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    width = on.width or FULL
    titles = textwrap.wrap(on.title, int(width / (CHARACTER * TITLE)))
    lines = textwrap.wrap(" ".join(notes) * on.noted, int(width / (0.915 * CHARACTER * SMALL)))
    wide = [HANDLE + CHARACTER * SMALL * len(name) for name in key]
    fits = (n for n in range(len(key), 1, -1) if sum(map(max, np.array_split(wide, n))) <= width)
    columns = next(fits, 1)  # each as wide as its longest entry
    rows = math.ceil(len(key) / columns)
    head, row = EDGE + LEADING * TITLE * len(titles), LEADING * SMALL
    above, below = head + 1.15 * row * rows, EDGE + row * len(lines)
    whole = above + height + below
    figure = Figure(figsize=(width, whole), layout="constrained", dpi=SHOWN)
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
    """Label a logarithmic axis at powers of ten, or also between them, without overlap."""
    from matplotlib.ticker import LogLocator, NullLocator

    span = math.log10(high / low)
    flat = axis.axis_name == "x"  # numbers beside each other need more room
    room = axis.get_figure().get_figwidth() / axis.axes.get_gridspec().ncols if flat else 3.15
    between = (2, 5) if span < 0.67 * room else (3,) if flat and span < 1.03 * room else ()
    axis.set_major_locator(LogLocator(subs=(1, *between)))
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

    kind = path.suffix[1:].lower()
    require(kind in FORMATS, lambda: f"The picture {str(path)!r} must end in .png, .pdf or .svg")
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [*figure.texts, *(text for key in figure.legends for text in key.get_texts())]
    for ax in figure.axes:
        texts += [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts]
    for text in texts:  # they may hold a user's names, and these dollars
        text.set_parse_math(False)
        text.set_text("\n".join(map(printable, text.get_text().split("\n"))))
    engine: Any = figure.get_layout_engine()
    for _ in range(2):  # ticks, and so the room of a colour bar, follow from the first layout
        engine.execute(figure)
    for ax in figure.axes:  # the last digits of a layout depend on where its numbers are in memory
        ax.set_position(np.round(ax.get_position().bounds, 9))
        ax.set_in_layout(True)
    figure.set_layout_engine(None)  # savefig would lay texts out again
    with matplotlib.rc_context({"svg.hashsalt": "jaxfl", "pdf.fonttype": 42}):
        replace(path, functools.partial(figure.savefig, format=kind, dpi=DPI, **FORMATS[kind]))
    figure.set_layout_engine(engine)
    return path
