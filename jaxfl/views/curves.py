"""Metrics against rounds, uplink bits and gradients: means over seeds with bands."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxfl.views.cells import Array, Cell, axes, cells, over_seeds
from jaxfl.views.ink import DECADE, GREY, OTHER, Key, frame, powers, shade, tidy
from jaxfl.views.rows import heading
from jaxfl.views.scenes import Scene, notes, pages, panel_words, panels_of, titled
from jaxfl.views.words import NAMES, label, name_of, prefix

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BANDS", "draw_curves"]

ALONG = {
    "round": "communication round",
    "uplink_bits": "bits sent by all clients",
    "gradients": "per-example gradients",
}
BANDS = {"error": "standard error", "range": "smallest to largest"}
THOUSANDS = {"k": "thousands", "M": "millions", "G": "billions"}
COLUMNS = 5  # of panels
SIZE = (2.7, 2.0)  # inches of a panel
CAP = 1e3  # times the largest first value: where a curve on its way to infinity ends
CROSS = "a cross is where the first of the seeds diverged"


class Course(NamedTuple):
    """One line: the mean over seeds where all of them are finite, and its band."""

    x: Array
    mean: Array
    low: Array
    high: Array
    diverged: bool


def draw_curves(
    ds: xarray.Dataset, where: Scene, metric: str, band: str = "error"
) -> Iterator[tuple[str, Figure]]:
    """Every picture of one metric, under its name."""
    for page in pages(ds, where.pages):
        count = 1 if where.panel is None else page.ds.sizes[where.panel]
        together = [list(ALONG)] if count <= COLUMNS else [[along] for along in ALONG]
        for alongs in together:
            by = "" if len(alongs) > 1 else f"-{alongs[0]}"
            name = f"curves-{metric}{by}{page.suffix}"
            yield name, _picture(ds, page.ds, where, metric, alongs, band)


def _picture(
    whole: xarray.Dataset,
    ds: xarray.Dataset,
    where: Scene,
    metric: str,
    alongs: list[str],
    band: str,
) -> Figure:
    panels = panels_of(ds, where.panel)
    # one panel: its three pictures side by side; several: one row for each of the three
    count = len(panels)
    if count == 1:
        rows, columns = 1, len(alongs)
    elif len(alongs) > 1:
        rows, columns = len(alongs), count
    else:
        columns = math.ceil(count / math.ceil(count / COLUMNS))
        rows = math.ceil(count / columns)
    scales = {along: _scale(ds, along) for along in alongs}
    courses = [
        {a: [(cell, _course(part, cell, metric, a, band)) for cell in cells(part)] for a in alongs}
        for part in panels
    ]
    every = [course for by in courses for drawn in by.values() for _, course in drawn]
    top = CAP * max((abs(c.mean[0]) for c in every if c.mean.size), default=math.inf)
    said = notes(ds)
    lost = any(course.diverged and course.mean.size for course in every)
    seeds = ds.sizes["seed"]
    more = [f"Bands: {BANDS[band]} over {seeds} seeds"] * (seeds > 1) + [CROSS] * lost
    if more:
        said.insert(0, "; ".join(more)[:1].upper() + "; ".join(more)[1:] + ".")
    figure, grid = frame(
        rows,
        columns,
        size=SIZE if columns > 1 else (4.4, 2.6),
        title=heading(ds),
        keys=_keys(whole, ds, where),
        notes=said,
        heads=where.panel is not None,
        gaps=(0.42, 0.62),  # wide enough for the last number of a panel and the first of the next
        sharey=True,
    )
    everything = []
    spots = [(p, along) for along in alongs for p in range(count)]
    flat = [ax for row in grid for ax in row]
    for ax, (p, along) in zip(flat, spots, strict=False):
        scale, unit = scales[along]
        for cell, course in courses[p][along]:
            color, style = _look(whole, ds, where, cell)
            everything += _line(ax, course, scale, top, color, style)
        _below(ax, along, unit)
        if along == "round":  # the planned rounds, also where no run reached them
            ends = float(ds["round"].values[-1])
            ax.set_xlim(-0.05 * ends, 1.05 * ends)
        if along != "round":
            _across(ax, [c for by in courses for _, c in by[along]], scale)
        if along == alongs[0]:
            ax.set_title(panel_words(panels[p], where.panel), fontsize=10.5)
    shown = np.concatenate(everything) if everything else np.array([])
    for i, ax in enumerate(flat):
        if i >= len(spots):
            ax.set_visible(False)
            continue
        tidy(ax, shown)
        if not ax.has_data():
            _empty(ax, everywhere=not everything)
        if i % columns == 0:
            ax.set_ylabel(NAMES.get(metric, metric.replace("_", " ")).replace(" (", "\n("))
    return figure


# --- data ----------------------------------------------------------------------------------------


def _course(ds: xarray.Dataset, cell: Cell, metric: str, along: str, band: str) -> Course:
    names = axes(ds)
    here = dict(zip(names, cell.at, strict=True))
    values = ds[metric].isel(here).transpose("round", "seed").values.astype(np.float64)
    if along == "round":
        x = ds["round"].values.astype(np.float64)
    else:
        x = ds[along].isel(here).transpose("round", "seed").values.mean(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        mean, error = over_seeds(values)
    live = np.isfinite(mean) & np.isfinite(x)
    low, high = mean - error, mean + error
    if band == "range":
        low, high = values.min(-1), values.max(-1)
    lost = bool(np.isfinite(ds["diverged_at"].isel(here).values).any())
    return Course(x[live], mean[live], low[live], high[live], lost)


def _scale(ds: xarray.Dataset, along: str) -> tuple[float, str]:
    if along == "round":
        return 1.0, ""
    if along == "uplink_bits":
        return prefix(ds[along].values, "bit")
    scale, letter = prefix(ds[along].values, "")
    return scale, THOUSANDS.get(letter, letter)


# --- ink -----------------------------------------------------------------------------------------


def _line(
    ax: Axes, course: Course, scale: float, top: float, color: Any, style: Any
) -> list[Array]:
    """Draws one course; returns the values that the vertical axis has to show."""
    over = np.abs(course.mean) > top
    end = int(over.argmax()) if over.any() else len(over)
    if not end:
        return []
    x, mean, low, high = (v[:end] for v in (course.x / scale, *course[1:4]))
    ax.plot(x, mean, color=color, linestyle=style, linewidth=1.6)
    if np.isfinite(low).any():
        ax.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
    if end == 1:
        ax.plot(x, mean, "o", color=color, markersize=4)
    if course.diverged or over.any():
        ax.plot(x[-1], mean[-1], "X", color=color, markersize=8, clip_on=False, zorder=4)
    return [mean, high[np.isfinite(high)], low[low > mean / 2]]


def _empty(ax: Axes, everywhere: bool) -> None:
    """Numbers along these axes would be none of anything."""
    ax.set_xticks([])
    if everywhere:
        ax.set_yticks([])
    ax.text(0.5, 0.5, "diverged, or not run", transform=ax.transAxes, ha="center", color=GREY)


def _look(whole: xarray.Dataset, ds: xarray.Dataset, where: Scene, cell: Cell) -> tuple[Any, Any]:
    """Colour and style: by algorithm and line, or by line alone in a picture of one algorithm."""
    labels = cell.labels
    value = labels[where.line] if where.line else None
    place = 0 if value is None else ds[where.line].values.tolist().index(value)
    if where.line and ds.sizes["algorithm"] == 1:
        return ("black" if value is None else _sequence(ds.sizes[where.line])[place]), "solid"
    color, style = shade(whole["algorithm"].values.tolist().index(labels["algorithm"]), place)
    return color, (OTHER if where.line and value is None else style)


def _sequence(count: int) -> list[Any]:
    """Colours from dark to light, in the order of the values."""
    from matplotlib import colormaps

    return [colormaps["viridis"](v) for v in np.linspace(0.0, 0.85, count)]


def _keys(whole: xarray.Dataset, ds: xarray.Dataset, where: Scene) -> list[Key]:
    """What colours mean, and what line styles mean."""
    from matplotlib.lines import Line2D

    def handle(color: Any, style: Any) -> Line2D:
        return Line2D([], [], color=color, linestyle=style, linewidth=2)

    names = ds["algorithm"].values.tolist()
    everyone = whole["algorithm"].values.tolist()
    alone = len(names) == 1
    out = []
    if not (alone and where.line):
        colors = [shade(everyone.index(name), 0) for name in names]
        out.append(Key("", [handle(*look) for look in colors], titled(ds)))
    if where.line is not None:
        values = ds[where.line].values.tolist()
        has = {c.labels[where.line] is not None for c in cells(ds)}
        looks: list[tuple[Any, Any]] = [
            (_sequence(len(values))[i], "solid") if alone else (GREY, shade(0, i)[1])
            for i in range(len(values))
        ]
        if has == {False}:
            return [Key("", [handle("black", "solid")], titled(ds))]
        title = f"{titled(ds)[0]}:" if alone else ""
        said = [label(where.line, v) for v in values]
        if not alone and len(has) > 1:
            looks.append((GREY, OTHER))
            said.append(f"no {name_of(where.line)}")
        out.append(Key(title, [handle(*look) for look in looks], said))
    return out


def _below(ax: Axes, along: str, unit: str) -> None:
    from matplotlib.ticker import MaxNLocator

    words = ALONG[along] + (f" ({unit})" if unit else "")
    ax.set_xlabel(words, fontsize=9.5)
    if along == "round":
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _across(ax: Axes, courses: list[Course], scale: float) -> None:
    """Costs that end far from each other are seen on a logarithmic axis."""
    ends = [float(c.x[-1]) for c in courses if c.x.size]
    if ends and max(ends) > DECADE * min(ends) > 0:
        ax.set_xscale("log", nonpositive="mask")
        powers(
            ax.xaxis,
            min(float(c.x[c.x > 0][0]) for c in courses if c.x.size) / scale,
            max(ends) / scale,
        )
