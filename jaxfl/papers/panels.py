"""Pictures in a paper's layout: rows of panels with lines, bands of standard errors, one legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxfl.plots import PALETTE
from jaxfl.views.ink import GREY, STYLES, Key, frame, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Line", "Panel", "picture"]

SIZES = {1: (5.4, 3.2), 2: (3.8, 2.5)}  # inches of a panel, by their number in a row
SMALL = 2.9, 2.1
LARGE = 1e5  # numbers from here on are powers of ten
FEW = 8  # places on a logarithmic axis that are all named


class Line(NamedTuple):
    """Lines with one label have one colour in all panels; ``style`` is said in a legend of its own."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | None = None  # of y; none for a single seed
    color: int = 0
    style: int = 0
    marker: str = ""
    width: float = 1.5  # points: a thin line on a thick one leaves both to be seen


class Panel(NamedTuple):
    title: str
    across: str
    up: str
    lines: Sequence[Line]
    logarithmic: bool = False  # across
    powers: bool | None = None  # logarithmic upwards; None: if the values span a decade


def picture(
    title: str,
    rows: Sequence[Sequence[Panel]],
    styles: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Figure:
    """Panels of equal size; those of a row share their vertical axis if they have one label.

    ``styles`` are the words for solid, dashed and dotted lines, where there are several.
    """
    from matplotlib.lines import Line2D

    looks: dict[str, Line] = {}
    for line in _lines(rows):
        looks.setdefault(line.label, line)
    handles = [
        Line2D([], [], color=_color(line), marker=line.marker, linewidth=line.width)
        for line in looks.values()
    ]
    dashes = [Line2D([], [], color=GREY, linestyle=STYLES[i]) for i in range(len(styles))]
    columns = max(map(len, rows))
    alike = all(len({panel.up for panel in row}) == 1 for row in rows)
    figure, grid = frame(
        len(rows),
        columns,
        size=SIZES.get(columns, SMALL),
        title=title,
        keys=[Key("", handles, list(looks)), *([Key("", dashes, styles)] if styles else [])],
        notes=notes,
        heads=any(panel.title for row in rows for panel in row),
        sharey="row" if alike else False,
        gaps=(0.28 if alike else 0.85, 0.75),
    )
    for axes, row in zip(grid, rows, strict=True):
        for i, ax in enumerate(axes):
            if i >= len(row):
                ax.set_visible(False)
                continue
            _panel(ax, row[i])
            if i == 0 or not alike:
                ax.set_ylabel(row[i].up)
        if alike:
            _upwards(axes[0], row)
    return figure


def _panel(ax: Axes, panel: Panel) -> None:
    for line in panel.lines:
        x, y = (np.asarray(values, np.float64) for values in (line.x, line.y))
        color = _color(line)
        ax.plot(
            x, y, color=color, linestyle=STYLES[line.style], marker=line.marker,
            markersize=4, linewidth=line.width,
        )  # fmt: skip
        if line.error is not None and not np.isnan(np.asarray(line.error, np.float64)).all():
            error = np.asarray(line.error, np.float64)
            ax.fill_between(x, y - error, y + error, color=color, alpha=0.18, linewidth=0)
    if panel.logarithmic:
        _places(ax, sorted({float(v) for line in panel.lines for v in line.x}))
    elif all(float(v).is_integer() for line in panel.lines for v in line.x):
        from matplotlib.ticker import MaxNLocator

        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    _upwards(ax, [panel])
    ax.set_title(panel.title, fontsize=10.5)
    ax.set_xlabel(panel.across, fontsize=9.5)


def _places(ax: Axes, values: list[float]) -> None:
    """A logarithmic axis that names the values themselves, if they are few."""
    from matplotlib.ticker import LogFormatterSciNotation, NullFormatter

    ax.set_xscale("log")
    if len(values) <= FEW:
        ax.set_xticks(values)
    ax.xaxis.set_major_formatter("{x:g}" if values[-1] < LARGE else LogFormatterSciNotation())
    ax.xaxis.set_minor_formatter(NullFormatter())


def _upwards(ax: Axes, panels: Sequence[Panel]) -> None:
    """The vertical axis that these panels share."""
    parts = [np.asarray(line.y) for panel in panels for line in panel.lines]
    values = np.concatenate(parts) if parts else np.zeros(0)
    tidy(ax, values, panels[0].powers)


def _lines(rows: Sequence[Sequence[Panel]]) -> Iterable[Line]:
    return (line for row in rows for panel in row for line in panel.lines)


def _color(line: Line) -> str:
    return PALETTE[line.color % len(PALETTE)]
