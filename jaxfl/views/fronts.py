"""What a metric costs in bits: every setting, and those that no other beats in both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxfl.views.cells import Array, axes, cells, final, over_seeds
from jaxfl.views.ink import GREY, MARKERS, Key, frame, logarithmic, powers, shade, tidy
from jaxfl.views.rows import heading
from jaxfl.views.scenes import Scene, notes, pages, panel_words, panels_of, titled
from jaxfl.views.selection import Criterion
from jaxfl.views.words import NAMES, label, prefix

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Point", "draw_fronts", "front"]

COLUMNS = 3
SIZE = (3.3, 2.5)
WIDE, TALL = 4.8, 13.0  # points: of a letter and of a line
ROOM = 0.25  # of a panel: what a label takes


class Point(NamedTuple):
    """The final means of one setting, with their standard errors."""

    algorithm: str
    place: int  # on the second axis, -1 where it does not apply
    bits: float
    value: float
    bits_error: float
    error: float
    noisy: bool


def front(bits: Sequence[float], values: Sequence[float], sign: int = 1) -> list[int]:
    """Points that no other beats: at least as few bits and as good a value, and one better.

    In ascending order of bits; ``sign`` is 1 where small values are good, else -1.
    """
    out: list[int] = []
    best = math.inf
    for i in sorted(range(len(bits)), key=lambda i: (bits[i], sign * values[i])):
        if sign * values[i] < best:
            out.append(i)
            best = sign * values[i]
    return out


def draw_fronts(ds: xarray.Dataset, where: Scene, rule: Criterion) -> Iterator[tuple[str, Figure]]:
    """The metric against uplink bits, a panel for each eps."""
    for page in pages(ds, where.pages):
        if not any(_points(part, where.line, rule) for part in panels_of(page.ds, where.panel)):
            continue  # nothing ended with a value: empty axes would say nothing
        yield f"front-{rule.metric}{page.suffix}", _picture(ds, page.ds, where, rule)


def _picture(whole: xarray.Dataset, ds: xarray.Dataset, where: Scene, rule: Criterion) -> Figure:
    parts = panels_of(ds, where.panel)
    columns = math.ceil(len(parts) / math.ceil(len(parts) / COLUMNS))
    points = [_points(part, where.line, rule) for part in parts]
    everything = [point for some in points for point in some]
    costs = np.array([point.bits for point in everything])
    scale, unit = prefix(costs, "bit")
    costs = costs / scale
    seeds = ds.sizes["seed"]
    mixed = len({point.noisy for point in everything}) > 1
    whose, other = ("private settings", "other of them") if mixed else ("settings", "other")
    said = [f"Grey: the {whose} that no {other} beats in both bits and value"]
    said[0] += f"; bars: standard error over {seeds} seeds." if seeds > 1 else "."
    figure, grid = frame(
        math.ceil(len(parts) / columns),
        columns,
        size=SIZE if columns > 1 else (4.8, 3.2),
        title=heading(ds),
        keys=_keys(whole, ds, where),
        notes=[*said, *notes(ds)],
        heads=where.panel is not None,
        gaps=(0.25, 0.85),
        sharey=True,
    )
    shown = [np.array([p.value for p in everything])]
    for sign in (-1, 1):
        ends = [p.value + sign * p.error for p in everything if math.isfinite(p.error)]
        shown.append(np.array([v for v in ends if v > 0 or shown[0].min() <= 0]))
    flat = [ax for row in grid for ax in row]
    for i, ax in enumerate(flat):
        if i >= len(parts):
            ax.set_visible(False)
            continue
        best = _panel(ax, whole, ds, where, points[i], scale, costs, rule)
        tidy(ax, np.concatenate(shown))
        _room(ax, np.concatenate(shown), rule.sign)
        _named(ax, ds, where, best, scale, rule)
        ax.set_title(panel_words(parts[i], where.panel), fontsize=10.5)
        ax.set_xlabel(f"uplink of all clients ({unit})", fontsize=9.5)
        if i % columns == 0:
            words = NAMES.get(rule.metric, rule.metric.replace("_", " "))
            ax.set_ylabel(f"final {words}".replace(" (", "\n("))
    return figure


# --- data ----------------------------------------------------------------------------------------


def _points(ds: xarray.Dataset, line: str | None, rule: Criterion) -> list[Point]:
    """The settings of one panel that ended with a value."""
    value, bits = (over_seeds(final(ds, name).values) for name in (rule.metric, "uplink_bits"))
    names = axes(ds)
    noisy = ds["noisy"].transpose(*names).values
    out = []
    for cell in cells(ds):
        applies = line is not None and cell.labels[line] is not None
        place = cell.at[names.index(line)] if line is not None and applies else -1
        x, y, dx, dy = (float(a[cell.at]) for a in (bits[0], value[0], bits[1], value[1]))
        point = Point(cell.labels["algorithm"], place, x, y, dx, dy, bool(noisy[cell.at]))
        if math.isfinite(point.value) and math.isfinite(point.bits):
            out.append(point)
    return out


# --- ink -----------------------------------------------------------------------------------------


def _panel(
    ax: Axes,
    whole: xarray.Dataset,
    ds: xarray.Dataset,
    where: Scene,
    points: list[Point],
    scale: float,
    costs: Array,
    rule: Criterion,
) -> list[Point]:
    everyone = whole["algorithm"].values.tolist()
    # What needs no privacy is drawn for comparison, and beats nobody who does.
    rivals = [i for i, p in enumerate(points) if p.noisy] or list(range(len(points)))
    best = front([points[i].bits for i in rivals], [points[i].value for i in rivals], rule.sign)
    best = [rivals[i] for i in best]
    bits = np.array([p.bits / scale for p in points])
    if best:
        x, y = bits[best], np.array([points[i].value for i in best])
        ax.step(x, y, where="post", color="#CCCCCC", linewidth=4, zorder=1)
    for i, point in enumerate(points):
        color = shade(everyone.index(point.algorithm), 0)[0]
        star = where.line is not None and point.place < 0
        ax.errorbar(
            bits[i],
            point.value,
            yerr=point.error if math.isfinite(point.error) else None,
            xerr=point.bits_error / scale if point.bits_error > 0 else None,
            color=color,
            marker="*" if star else MARKERS[max(point.place, 0) % len(MARKERS)],
            markersize=10 if star else 6.5,
            markeredgecolor="white",
            markeredgewidth=0.6,
            elinewidth=1.2,
            linestyle="none",
            zorder=3,
        )
    _across(ax, costs)
    return [points[i] for i in best]


def _named(
    ax: Axes, ds: xarray.Dataset, where: Scene, best: list[Point], scale: float, rule: Criterion
) -> None:
    """Names of the points on the front, on its better side, where no point lies; where two would
    meet, the marker says the second."""
    said: list[tuple[float, float, float]] = []  # left, right and height of what stands, in points
    for point in best:
        if where.line is not None and point.place < 0:
            continue  # the marker says it already
        at = (point.bits / scale, point.value)
        inner = ax.transAxes.inverted().transform(ax.transData.transform(at))[0] > ROOM
        words = _words(ds, where.line, point)
        x, y = ax.transData.transform(at) * 72 / ax.figure.dpi
        left = x - 5 - WIDE * len(words) if inner else x + 5
        right = left + WIDE * len(words)
        meets = any(left < r and l < right and abs(y - h) < TALL for l, r, h in said)
        if meets and where.line is not None:
            continue
        said.append((left, right, y))
        ax.annotate(
            words,
            at,
            (-5 if inner else 5, -7 * rule.sign),
            textcoords="offset points",
            ha="right" if inner else "left",
            va="top" if rule.sign > 0 else "bottom",
            fontsize=8,
            zorder=4,
        )


def _across(ax: Axes, costs: Array) -> None:
    """The same costs in every panel, with room for labels at the sides."""
    if not costs.size or costs.min() == costs.max():
        return
    low, high = float(costs.min()), float(costs.max())
    if logarithmic(costs):
        ax.set_xscale("log")
        powers(ax.xaxis, low, high)
        ax.set_xlim(low * (low / high) ** 0.12, high * (high / low) ** 0.12)
    else:
        ax.set_xlim(low - 0.12 * (high - low), high + 0.12 * (high - low))


def _room(ax: Axes, values: Array, sign: int) -> None:
    """More of the axis on the better side, where the labels are."""
    known = values[np.isfinite(values)]
    if not known.size or known.min() == known.max():
        return
    ends = np.array([known.min(), known.max()])
    log = logarithmic(known)
    low, high = np.log(ends) if log else ends
    low, high = (v + step * (high - low) for v, step in ((low, -0.07), (high, 0.07)))
    low, high = (low - 0.13 * (high - low), high) if sign > 0 else (low, high + 0.13 * (high - low))
    ax.set_ylim(*(np.exp([low, high]) if log else (low, high)))


def _words(ds: xarray.Dataset, line: str | None, point: Point) -> str:
    if line is None or point.place < 0:
        return point.algorithm
    return label(line, ds[line].values.tolist()[point.place])


def _keys(whole: xarray.Dataset, ds: xarray.Dataset, where: Scene) -> list[Key]:
    """Colours for algorithms, markers for the second axis."""
    from matplotlib.lines import Line2D

    def handle(color: Any, marker: str) -> Line2D:
        return Line2D([], [], color=color, marker=marker, linestyle="none", markersize=7)

    names, everyone = ds["algorithm"].values.tolist(), whole["algorithm"].values.tolist()
    lines = where.line is not None
    has = {
        c.labels["algorithm"] for c in cells(ds) if where.line and c.labels[where.line] is not None
    }
    colors = [shade(everyone.index(name), 0)[0] for name in names]
    marks = ["o" if not lines or name in has else "*" for name in names]
    out = [Key("", [handle(*look) for look in zip(colors, marks, strict=True)], titled(ds))]
    if where.line is not None and ds.sizes[where.line] <= len(MARKERS):
        values = ds[where.line].values.tolist()
        labels = [label(where.line, v) for v in values]
        out.append(Key("", [handle(GREY, mark) for mark in MARKERS[: len(values)]], labels))
    return out
