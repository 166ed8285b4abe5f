"""Heat maps: the final value over two axes, one panel per algorithm."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxfl.views.cells import Array, Cell, applying, axes, cells, final, over_seeds
from jaxfl.views.ink import GREY, frame, logarithmic, powers
from jaxfl.views.rows import heading
from jaxfl.views.scenes import free, notes, pages
from jaxfl.views.selection import Criterion
from jaxfl.views.words import NAMES, name_of, number

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_maps"]

COLUMNS = 4
CELL = (0.78, 0.5)  # inches
LEAST = 2.2  # inches of a panel's width
DARK = 0.5  # luminance below which words are white


class Square(NamedTuple):
    """One cell of a map: a value, or the reason why there is none."""

    x: int
    y: int
    value: float
    why: str


def draw_maps(ds: xarray.Dataset, rule: Criterion) -> Iterator[tuple[str, Figure]]:
    """The first two axes, or one axis against the algorithms; one picture for each value of others."""
    names = free(ds)
    if not names:
        return
    across, up = (names[0], names[1]) if len(names) > 1 else (names[0], "algorithm")
    for page in pages(ds, tuple(name for name in names if name not in (across, up))):
        yield f"map-{rule.metric}{page.suffix}", _picture(page.ds, across, up, rule)


def _picture(ds: xarray.Dataset, across: str, up: str, rule: Criterion) -> Figure:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm, Normalize

    mean = over_seeds(final(ds, rule.metric).values)[0]
    parts = [""] if up == "algorithm" else ds["algorithm"].values.tolist()
    columns = math.ceil(len(parts) / math.ceil(len(parts) / COLUMNS))
    size = (max(LEAST, CELL[0] * ds.sizes[across]), CELL[1] * max(2, ds.sizes[up]))
    known = mean[np.isfinite(mean)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    norm: Any = LogNorm(low, high) if logarithmic(known) else Normalize(low, high)
    colors = colormaps["viridis_r" if rule.sign > 0 else "viridis"]
    seeds = ds.sizes["seed"]
    said = [
        f"Final values, means over {seeds} seeds." if seeds > 1 else "Final values.",
        *notes(ds),
    ]
    long = max(len(words) for words in _words(ds, up))
    figure, grid = frame(
        math.ceil(len(parts) / columns),
        columns,
        size=size,
        title=heading(ds),
        notes=said,
        heads=up != "algorithm",
        right=1.25,
        left=0.3 + 0.3 * (up != "algorithm") + 0.085 * max(long, 5),
        gaps=(0.25 if applying(ds, up).all() else 0.6, 0.85),
    )
    flat = [ax for row in grid for ax in row]
    for i, ax in enumerate(flat):
        if i >= len(parts):
            ax.set_visible(False)
            continue
        squares = _squares(ds, across, up, parts[i], mean)
        _map(ax, squares, lambda v: colors(norm(v)))
        _axis(ax, ds, across, up, first=i % columns == 0, what=parts[i])
    width = figure.get_size_inches()[0]
    bounds = [ax.get_position() for ax in flat[: len(parts)]]
    bottom, top = min(b.y0 for b in bounds), max(b.y1 for b in bounds)
    bar = figure.add_axes((1 - 1.05 / width, bottom, 0.16 / width, top - bottom))
    figure.colorbar(ScalarMappable(norm, colors), cax=bar)
    better = "lower" if rule.sign > 0 else "higher"
    words = NAMES.get(rule.metric, rule.metric.replace("_", " ")).split(" (")[0]
    bar.set_ylabel(f"{words}\n({better} is better)", fontsize=9)
    bar.tick_params(labelsize=8.5)
    if logarithmic(known):
        powers(bar.yaxis, low, high)
    return figure


# --- data ----------------------------------------------------------------------------------------


def _squares(ds: xarray.Dataset, across: str, up: str, algorithm: str, mean: Array) -> list[Square]:
    names = axes(ds)
    x, y = names.index(across), names.index(up)
    return [
        Square(cell.at[x], cell.at[y], float(mean[cell.at]), _why(ds, cell))
        for cell in cells(ds)
        if algorithm in ("", cell.labels["algorithm"])
    ]


def _why(ds: xarray.Dataset, cell: Cell) -> str:
    here = dict(zip(axes(ds), cell.at, strict=True))
    if "found" in ds and not ds["found"].isel(here):
        return "diverged" if ds["candidates"].isel(here) else "not run"
    return "not run" if not ds["complete"].isel(here).all() else "diverged"


# --- ink -----------------------------------------------------------------------------------------


def _map(ax: Axes, squares: list[Square], color: Any) -> None:
    from matplotlib.patches import Rectangle

    for x, y, value, why in squares:
        lost = math.isnan(value)
        face: Any = "#F2F2F2" if lost else color(value)
        ax.add_patch(
            Rectangle(
                (x - 0.5, y - 0.5),
                1,
                1,
                facecolor=face,
                edgecolor="#BBBBBB" if lost else "white",
                hatch="///" if lost else None,
                linewidth=0.8,
            )
        )
        if lost:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
            ax.text(x, y, why, ha="center", va="center", fontsize=8, color=GREY, bbox=box)
            continue
        dark = 0.2126 * face[0] + 0.7152 * face[1] + 0.0722 * face[2] < DARK
        ax.text(
            x, y, _digits(value), ha="center", va="center", fontsize=9,
            color="white" if dark else "black",
        )  # fmt: skip


def _words(ds: xarray.Dataset, name: str) -> list[str]:
    return [v if isinstance(v, str) else number(v) for v in ds[name].values.tolist()]


def _digits(value: float) -> str:
    """Three digits, zeros at the end too: beside each other they are easier to compare."""
    text = f"{value:#.3g}"
    return number(value, 3) if "e" in text else text.rstrip(".")


def _axis(
    ax: Axes,
    ds: xarray.Dataset,
    across: str,
    up: str,
    *,
    first: bool,
    what: str,
) -> None:
    """Both axes with their values in order; a single row or column where one does not apply."""
    ax.set_xlim(-0.5, ds.sizes[across] - 0.5)
    ax.set_ylim(-0.5, ds.sizes[up] - 0.5)
    if what:
        ax.set_title(what, fontsize=10.5)
    names = [c.labels for c in cells(ds) if not what or c.labels["algorithm"] == what]
    for axis, name, named in ((ax.xaxis, across, True), (ax.yaxis, up, first)):
        words = _words(ds, name)
        if all(labels[name] is None for labels in names):
            axis.set_ticks([0], [f"no {name_of(name)}"], fontsize=9)
            continue
        axis.set_ticks(range(len(words)), words if named else [""] * len(words), fontsize=9)
        if named and name != "algorithm":
            axis.set_label_text(name_of(name))
            if axis is ax.yaxis and len(name_of(name)) == 1:  # a letter that lies is another one
                axis.label.set(rotation=0, ha="right", va="center")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
