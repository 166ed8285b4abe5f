"""What all pictures of sweeps share: frames, legends, axes, words, files."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxfl.plots import DECADE, GREY, PALETTE, SUFFIXES, grid_behind, write
from jaxfl.views.cells import Array

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = [
    "DECADE",
    "FORMATS",
    "GREY",
    "MARKERS",
    "OTHER",
    "STYLES",
    "Key",
    "frame",
    "logarithmic",
    "powers",
    "save",
    "shade",
    "tidy",
]

FORMATS = tuple(suffix[1:] for suffix in SUFFIXES)
STYLES: tuple[Any, ...] = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.5, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "p", "<", ">")
OTHER: Any = (0, (3, 1, 1, 1, 1, 1))  # of what has no place on the axis that the styles tell apart
LIGHTER = (0.0, 0.2, 0.35, 0.45)  # towards white, with the line styles
CHARACTERS = 12.5  # per inch of a legend
SMALL = 14.5  # per inch of a note
LINE = 0.2  # inches of a line of a legend
DOWN = 0.62  # inches below the panels, for the words of their axes


class Key(NamedTuple):
    """One row of a legend: what tells apart, and the words for each."""

    title: str
    handles: Sequence[Artist]
    labels: Sequence[str]


def frame(
    rows: int,
    columns: int,
    *,
    size: tuple[float, float],
    title: str,
    keys: Sequence[Key] = (),
    notes: Sequence[str] = (),
    left: float = 0.95,
    right: float = 0.2,
    gaps: tuple[float, float] = (0.28, 0.62),
    heads: bool = True,
    **options: Any,
) -> tuple[Figure, Any]:
    """Panels of a given size in inches, with room for all words around them.

    The title is on top, then a legend per key, which cannot cover data, then the panels' own
    ``heads``; the notes are at the foot.
    """
    from matplotlib.figure import Figure

    width = left + columns * size[0] + (columns - 1) * gaps[0] + right
    room = int(width * CHARACTERS)
    titles = textwrap.wrap(title, int(room * 0.75))
    lines = [line for note in notes for line in textwrap.wrap(note, int(width * SMALL))]
    widths = [len(k.title) + 2 + sum(len(label) + 7 for label in k.labels) for k in keys]
    tall = [-(-w // room) for w in widths]
    above = 0.22 + 0.24 * len(titles) + LINE * sum(tall) + 0.1 * bool(keys) + 0.22 * heads
    below = DOWN + 0.17 * len(lines)
    height = above + rows * size[1] + (rows - 1) * gaps[1] + below
    figure = Figure(figsize=(width, height))
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    figure.subplots_adjust(
        left / width,
        below / height,
        1 - right / width,
        1 - above / height,
        gaps[0] / size[0],
        gaps[1] / size[1],
    )
    figure.text(
        0.5,
        1 - 0.12 / height,
        "\n".join(titles),
        fontsize=12,
        ha="center",
        va="top",
        linespacing=1.2,
    )
    top = height - 0.16 - 0.24 * len(titles)
    for key, count in zip(keys, tall, strict=True):
        per = -(-(len(key.labels) + bool(key.title)) // count)
        figure.legend(
            [*([_nothing()] if key.title else []), *key.handles],
            [*([key.title] if key.title else []), *key.labels],
            loc="upper center",
            bbox_to_anchor=(0.5, top / height),
            borderaxespad=0.0,
            borderpad=0.1,
            frameon=False,
            fontsize=9.5,
            ncols=per,
            handlelength=2.4,
            columnspacing=1.4,
        )
        top -= LINE * count
    foot = (below - DOWN + 0.05) / height
    if lines:
        figure.text(0.12 / width, foot, "\n".join(lines), fontsize=8.5, color=GREY, va="top")
    return figure, axes


def shade(algorithm: int, place: int) -> tuple[tuple[float, ...], Any]:
    """Colour and line style of an algorithm at one place of a second axis."""
    step = min(place, len(STYLES) - 1)
    color = np.array([int(PALETTE[algorithm][i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return tuple(color + LIGHTER[step] * (1 - color)), STYLES[step]


def logarithmic(values: Array) -> bool:
    """Whether these numbers are better seen on a logarithmic axis."""
    known = values[np.isfinite(values)]
    return bool(known.size and known.min() > 0 and known.max() > DECADE * known.min())


def tidy(ax: Axes, values: Array, log: bool | None = None) -> None:
    """A grid that stays behind; a vertical axis that suits these values, unless ``log`` says which."""
    from matplotlib.ticker import ScalarFormatter

    formatter = ax.yaxis.get_major_formatter()
    if isinstance(formatter, ScalarFormatter):
        formatter.set_useOffset(False)  # it would be written over words
    if logarithmic(values) if log is None else log:
        known = values[np.isfinite(values)]
        low, high = float(known.min()), float(known.max())
        ax.set_yscale("log", nonpositive="clip")
        powers(ax.yaxis, low, high)
        ax.set_ylim(low / 1.15, high * 1.15)
    grid_behind(ax)


def powers(axis: Axis, low: float, high: float) -> None:
    """Readable numbers on a logarithmic axis: no minor ones, which would overlap."""
    from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullFormatter

    span = math.log10(high / low)
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if span < 2.1 else (1,)))
    axis.set_major_formatter("{x:g}" if span < 4 else LogFormatterSciNotation())
    axis.set_minor_formatter(NullFormatter())


def save(figure: Figure, folder: Path, name: str, formats: Sequence[str]) -> list[Path]:
    """One file for each format."""
    out = [folder / f"{name}.{kind}" for kind in formats]
    for path in out:
        write(figure, path)
    return out


def _nothing() -> Artist:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="none")
