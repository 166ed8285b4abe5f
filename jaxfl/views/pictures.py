"""The pictures of a sweep: curves, heat maps, and fronts of utility and bits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import InputError, require
from jaxfl.core.params import choice
from jaxfl.engine import results
from jaxfl.engine.sweeps.grid import TUNED
from jaxfl.views import ink
from jaxfl.views.cells import (
    applying,
    axes,
    cells,
    claimed,
    deltas,
    distinct,
    ends,
    final,
    metrics,
    over_seeds,
)
from jaxfl.views.ink import GREY, MARKERS, OTHER, PALETTE, Line, Panel
from jaxfl.views.rows import criterion_used, heading
from jaxfl.views.selection import AUTO, Criterion, select
from jaxfl.views.words import label, name_of, number, prefix, span

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["Scene", "draw", "figures", "front", "scene"]

PANELS = 12  # in one picture
LINES = 12  # in one panel
STYLED = 4  # values that line styles tell apart
SHADED = 8  # values that colours tell apart where there is one algorithm
PICTURES = 40  # of one kind
ALONG = {
    "round": "communication round",
    "uplink_bits": "bits sent by all clients",
    "gradients": "per-example gradients",
}
THOUSANDS = {"k": "thousands", "M": "millions", "G": "billions"}
BANDS = {"error": "standard error", "range": "smallest to largest"}
CROSS = "a cross is where the first of the seeds diverged"
ROW = 5  # panels of curves beside each other
COLUMNS = 4  # of maps
CELL = (0.78, 0.5)  # inches of a square of a map
LEAST = 2.2  # inches of a map's width
DARK = 0.5  # luminance below which words are white
ROOM = 0.25  # of a panel: what a label takes
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


def draw(
    ds: xarray.Dataset,
    folder: str | Path,
    *,
    formats: Sequence[str] = ("png", "pdf"),
    **options: Any,
) -> list[Path]:
    """Draw the :func:`figures` of a sweep, which take the ``options``, and return the files' names."""
    require(formats, "No formats are given", f"name at least one of {', '.join(ink.FORMATS)}")
    for name in formats:
        choice("format", name, ink.FORMATS)
    return [
        path
        for name, figure in _figures(ds, **options)
        for path in ink.save(figure, Path(folder), name, formats)
    ]


def figures(
    ds: xarray.Dataset,
    *,
    criterion: str | None = AUTO,
    over: Sequence[str] | None = None,
    allow_test: bool = False,
    band: str = "error",
) -> dict[str, Figure]:
    """The pictures of a sweep by name, each a matplotlib figure that a notebook shows.

    ``curves-METRIC``: utility, loss and accuracy against rounds, uplink bits and gradients;
    ``map-METRIC``: final values over the first two axes; ``front-METRIC``: final values against
    bits.  First the best step size is chosen as in :func:`select`; ``criterion=None`` chooses none.
    Bands are means with standard errors (``band="error"``) or from the smallest to the largest
    seed (``"range"``).

    >>> import jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> ds = jaxfl.sweep("ldp_gd", {"eps": [1, 8], "lr": [0.1, 0.3]}, problem, rounds=5)
    >>> list(figures(ds))
    ['curves-utility', 'curves-loss', 'curves-test_accuracy', 'map-utility', 'front-utility']
    """
    return dict(_figures(ds, criterion, over, allow_test, band))


def _figures(
    ds: xarray.Dataset,
    criterion: str | None = AUTO,
    over: Sequence[str] | None = None,
    allow_test: bool = False,
    band: str = "error",
) -> Iterator[tuple[str, Figure]]:
    """The figures one at a time: a sweep may have many."""
    choice("band", band, BANDS)
    if criterion is not None and (over is not None or set(TUNED) & set(axes(ds))):
        ds = select(ds, criterion, over=over, allow_test=allow_test).ds
    rule, known = criterion_used(ds), metrics(ds)
    lines, points = scene(ds), scene(ds, shaded=False)
    accuracy = "test_accuracy" if "test_accuracy" in known else "accuracy"
    for metric in dict.fromkeys(("utility", "loss", rule.metric, accuracy)):
        if metric in known:
            for page in _pages(ds, lines):
                yield from _curves(page, metric, band)
    yield from _maps(ds, rule)
    for page in _pages(ds, points):
        if figure := _front(page, rule):
            yield f"front-{rule.metric}{page.suffix}", figure


# --- axes as panels, lines and pages -------------------------------------------------------------


class Scene(NamedTuple):
    """The roles of the axes; those with one value have none."""

    panel: str | None  # one panel for each value
    line: str | None  # lines of one algorithm differ in it
    pages: tuple[str, ...]  # one picture for each value


def _free(ds: xarray.Dataset) -> list[str]:
    """Axes with more than one value that some algorithm has, eps and omega first, then numbers."""
    several = [
        n for n in axes(ds) if n != "algorithm" and ds.sizes[n] > 1 and applying(ds, n).any()
    ]
    first = [n for n in ("eps", "omega") if n in several]
    return first + sorted(_without(several, first), key=lambda n: ds[n].dtype.kind not in "iuf")


def _without(names: Sequence[str], taken: Sequence[str | None]) -> list[str]:
    return [name for name in names if name not in taken]


def scene(ds: xarray.Dataset, *, shaded: bool = True) -> Scene:
    """Panels by eps, lines by algorithm and omega, or by the next axes.

    Where lines would be too many to be told apart, there is one picture for each algorithm (if
    ``shaded``, with colours for the second axis), or else for each value of the second axis.
    Problems of different names have a picture each; unless ``shaded``, so have all problems.
    """
    spans = results.config(ds)["axes"]
    apart = [
        name
        for name in _free(ds)
        if spans[name].get("problem") and not (shaded and ds[name].dtype.kind in "iuf")
    ]
    rest = _without(_free(ds), apart)
    panel = "eps" if "eps" in rest else rest[1] if len(rest) > 1 else None
    line = next(iter(_without(rest, [panel])), None)
    if panel is not None and ds.sizes[panel] > PANELS:
        some = [v if isinstance(v, str) else f"{v:g}" for v in ds[panel].values.tolist()[:3]]
        raise InputError(
            f"{panel} has {ds.sizes[panel]} values, and a picture has room for {PANELS} panels",
            f"keep fewer, as with --where {panel}={','.join(some)}",
        )
    others = (*apart, *_without(rest, [panel, line]))
    many = ds.sizes["algorithm"]
    by_algorithm = False
    if line is not None and shaded:
        flat = cells(ds)
        drawn = len({*zip(flat["algorithm"].values, flat[line].values, strict=True)})
        if ds.sizes[line] > SHADED:
            others, line = (*others, line), None
        elif many > 1 and (ds.sizes[line] > STYLED or drawn > LINES):
            others, by_algorithm = ("algorithm", *others), True
    require(
        many <= len(PALETTE) or by_algorithm,
        f"{many} algorithms are more than a picture has colours, {len(PALETTE)}",
        "keep fewer, as with --where algorithm=NAME,NAME",
    )
    count = math.prod(ds.sizes[name] for name in others)
    if count > PICTURES:
        widest = max(others, key=lambda name: ds.sizes[name])
        raise InputError(
            f"This sweep would take {count} pictures, one for each value of "
            f"{' and '.join(map(name_of, others))}: keep fewer values of {widest} with --where."
        )
    return Scene(panel, line, others)


class Page(NamedTuple):
    """The part of a sweep that one picture shows."""

    whole: xarray.Dataset
    ds: xarray.Dataset
    scene: Scene
    suffix: str  # of its name: the values that it holds

    def panels(self) -> list[tuple[str, xarray.Dataset]]:
        """The part of every panel, after its title; an eps that is not proven is only claimed."""
        name = self.scene.panel
        if name is None:
            return [("", self.ds)]
        parts = [self.ds.isel({name: [i]}) for i in range(self.ds.sizes[name])]
        suffixes = [" (claimed)" * (name == "eps" and not _meets(part)) for part in parts]
        values = self.ds[name].values.tolist()
        return [(label(name, v) + s, p) for v, s, p in zip(values, suffixes, parts, strict=True)]

    def title(self) -> str:
        """It names the algorithm where colours do not."""
        names = self.ds["algorithm"].values.tolist()
        alone = self.scene.line and len(names) == 1
        return f"{self._named(names[0])}: {heading(self.ds)}" if alone else heading(self.ds)

    def looks(self, flat: xarray.Dataset, *, points: bool = False) -> list[dict[str, Any]]:
        """Colour and style, or marker, of each cell, by algorithm and second axis, with their meaning.

        The colour of an algorithm is the same in all pictures of a sweep.
        """
        from matplotlib import colormaps

        every, line = self.whole["algorithm"].values.tolist(), self.scene.line
        known = [] if line is None else self.ds[line].values.tolist()
        shades = colormaps["viridis"](np.linspace(0.0, 0.85, len(known)))  # from dark to light
        names = flat["algorithm"].values.tolist()
        values = [None] * len(names) if line is None else flat[line].values.tolist()
        out = []
        for name, value in zip(names, values, strict=True):
            look: dict[str, Any] = {"label": self._named(name), "color": every.index(name)}
            place = -1 if value is None else known.index(value)
            kind = label(str(line), value) if place >= 0 else f"no {name_of(str(line))}"
            if points and place < 0:  # the legend has the star with the algorithm
                look |= {"marker": "*", "size": 10} if known else {"marker": "o", "size": 6.5}
            elif points:
                told = kind if len(known) <= len(MARKERS) else ""
                look |= {"marker": MARKERS[place % len(MARKERS)], "size": 6.5, "kind": told}
            elif known and self.ds.sizes["algorithm"] == 1:
                look = {"label": kind, "color": shades[place] if place >= 0 else "black"}
            elif known:
                look["color"] = ink.lighter(look["color"], max(place, 0))
                look |= {"style": place if place >= 0 else OTHER, "kind": kind}
            out.append(look)
        return out

    def _named(self, algorithm: str) -> str:
        noisy = bool(self.ds["noisy"].sel(algorithm=algorithm).any())
        return algorithm if noisy else f"{algorithm} (no noise)"


def _pages(ds: xarray.Dataset, scene: Scene) -> Iterator[Page]:
    names = scene.pages
    for place in itertools.product(*(range(ds.sizes[name]) for name in names)):
        part = ds.isel({name: [i] for name, i in zip(names, place, strict=True)})
        if not cells(part).sizes["cell"]:
            continue
        words = [
            f"-{v}" if isinstance(v, str) else f"-{name}-{number(v)}"
            for name in names
            for v in part[name].values.tolist()
        ]
        yield Page(ds, part, scene, ink.plain_name("".join(words)))


def _grid(panels: list[Any], most: int) -> list[list[Any]]:
    """Split into rows of about equal length."""
    columns = math.ceil(len(panels) / math.ceil(len(panels) / most))
    return [panels[i : i + columns] for i in range(0, len(panels), columns)]


# --- notes ---------------------------------------------------------------------------------------


def _notes(ds: xarray.Dataset) -> list[str]:
    """Missing values, the selection, and the privacy of each algorithm."""
    chosen = results.config(ds).get("selection")
    out = [chosen["note"].replace(" eps ", " ε ")] if chosen and chosen["note"] else []
    flat = ends(ds, "uplink_bits")
    lost = int(flat["uplink_bits"].isnull().any("seed").sum())
    if lost:
        what = "1 setting that" if lost == 1 else f"{lost} settings that"
        out.append(f"No final value: {what} diverged or {'has' if lost == 1 else 'have'} not run.")
    worth: dict[str, list[str]] = {}
    for name in ds["algorithm"].values.tolist():
        worth.setdefault(_worth(ds.sel(algorithm=name), "eps" in axes(ds)), []).append(name)
    everyone = ds.sizes["algorithm"]
    for words, who in worth.items():
        if words:
            out.append(f"{words}." if len(who) == everyone > 1 else f"{', '.join(who)}: {words}.")
    each = deltas(ds).to_series().dropna().unique()
    if len(each) == 1:
        out.append(f"δ = {number(each[0])}.")
    return out


def _meets(ds: xarray.Dataset) -> bool:
    """Whether every eps on the axis is proven for the noise that was made for it."""
    short = ds["proven_eps"] > ds["eps"].astype(float) * (1 + 1e-6)
    return not bool((short & (ds["noisy"] > 0)).any())


def _worth(ds: xarray.Dataset, by_eps: bool) -> str:
    """The privacy of one algorithm; empty where the title of the panel states it."""
    noisy = ds["noisy"].values.astype(bool)
    if not noisy.any():
        return "not private, no noise"
    proven, flag = ds["proven_eps"].values[noisy], ds["flag"].values[noisy].astype(bool)
    stated, known = claimed(ds).values[noisy], proven[np.isfinite(proven)]
    if np.isinf(proven).any():
        some = stated[np.isfinite(stated)]
        return "no ε proven" + (f", where its paper claims {span(some)}" if some.size else "")
    if by_eps and _meets(ds):
        if not flag.any():
            return ""
        return f"for the noise of ε = {span(proven[flag])} its paper claims {span(stated[flag])}"
    if flag.any():
        return f"proven is ε = {span(proven[flag])}, where its paper claims {span(stated[flag])}"
    return "" if by_eps or not known.size else f"ε = {span(known)} proven"


# --- curves: a metric against rounds, bits and gradients, means over seeds with bands ------------


def _curves(page: Page, metric: str, band: str) -> Iterator[tuple[str, Figure]]:
    """One picture, or one for each cost where its panels would be too many."""
    panels = page.panels()
    together = [list(ALONG)] if len(panels) <= ROW else [[along] for along in ALONG]
    for alongs in together:
        rows = [[_panel(page, part, metric, a, band) for _, part in panels] for a in alongs]
        rows[0] = [p._replace(title=t) for p, (t, _) in zip(rows[0], panels, strict=True)]
        if len(panels) == 1:  # its three pictures side by side
            rows = [[row[0] for row in rows]]
        elif len(alongs) == 1:
            rows = _grid(rows[0], ROW)
        seeds = page.ds.sizes["seed"]
        notes = [f"bands: {BANDS[band]} over {seeds} seeds"] * (seeds > 1)
        lines = (line for row in rows for panel in row for line in panel.lines)
        notes += [CROSS] * any(line.cut and np.isfinite(line.y[0]) for line in lines)
        text = "; ".join(notes) + "." * bool(notes)
        by = "" if len(alongs) > 1 else f"-{alongs[0]}"
        yield (
            f"curves-{metric}{by}{page.suffix}",
            ink.picture(
                page.title(),
                rows,
                [text[:1].upper() + text[1:], *_notes(page.ds)],
                size=(2.7, 2.0) if len(rows[0]) > 1 else (4.4, 2.6),
                heads=page.scene.panel is not None,
                gaps=(0.42, 0.62),  # room for the last number of a panel and the first of the next
            ),
        )


def _panel(page: Page, part: xarray.Dataset, metric: str, along: str, band: str) -> Panel:
    scale, unit = (1.0, "") if along == "round" else prefix(page.ds[along].values, "")
    unit = f"{unit}bit" if along == "uplink_bits" else THOUSANDS.get(unit, unit)
    flat = cells(part, metric, "uplink_bits", "gradients")
    ran = flat["uplink_bits"].notnull().all("seed").values
    values = flat[metric].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        mean, error = over_seeds(values)
        around = (error, error)
        if band == "range":
            around = (mean - values.min("seed"), values.max("seed") - mean)
    x = flat[along].mean("seed") if along != "round" else flat[along].broadcast_like(mean)
    lines = [
        Line(
            x=(x.values / scale)[i, live],
            y=mean.values[i, live],
            error=[side.values[i, live] for side in around],
            width=1.6,
            **look,
        )
        for i, (look, live) in enumerate(zip(page.looks(flat), ran, strict=True))
    ]
    # the planned rounds, also where no run reached them
    until = float(page.ds["round"][-1]) if along == "round" else math.nan
    across, up = ALONG[along] + f" ({unit})" * bool(unit), name_of(metric).replace(" (", "\n(")
    return Panel("", across, up, lines, None if along != "round" else False, until=until)


# --- heat maps: the final value over two axes, one panel per algorithm ---------------------------


def _maps(ds: xarray.Dataset, rule: Criterion) -> Iterator[tuple[str, Figure]]:
    """The first two axes, or one axis against the algorithms; one picture for each value of others."""
    names = _free(ds)
    if not names:
        return
    across, up = (names[0], names[1]) if len(names) > 1 else (names[0], "algorithm")
    for page in _pages(ds, Scene(None, None, tuple(_without(names, [across, up])))):
        yield f"map-{rule.metric}{page.suffix}", _map(page.ds, across, up, rule)


def _map(ds: xarray.Dataset, across: str, up: str, rule: Criterion) -> Figure:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm, Normalize

    ran = (ds["complete"] > 0).all("seed")
    if "found" in ds:
        ran = ran.where(ds["found"] > 0, ds["candidates"] > 0)
    values = over_seeds(final(ds, rule.metric))[0]
    squares = ds.drop_vars(list(ds)).assign(value=values, ran=ran, shown=distinct(ds, axes(ds)))
    known = values.values[np.isfinite(values.values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    norm: Any = LogNorm(low, high) if ink.logarithmic(known) else Normalize(low, high)
    colors = ScalarMappable(norm, colormaps["viridis_r" if rule.sign > 0 else "viridis"])
    names = ds["algorithm"].values.tolist()
    parts = [names] if up == "algorithm" else [[name] for name in names]
    rows = _grid(parts, COLUMNS)
    seeds = ds.sizes["seed"]
    first = f"Final values, means over {seeds} seeds." if seeds > 1 else "Final values."
    long = max(map(len, _ticks(ds, up)))
    figure, grid = ink.frame(
        len(rows),
        len(rows[0]),
        size=(max(LEAST, CELL[0] * ds.sizes[across]), CELL[1] * max(2, ds.sizes[up])),
        title=heading(ds),
        notes=[first, *_notes(ds)],
        heads=up != "algorithm",
        right=1.25,
        left=0.3 + 0.3 * (up != "algorithm") + 0.085 * max(long, 5),
        gaps=(0.25 if applying(ds, up).all() else 0.6, 0.85),
    )
    for i, (ax, part) in enumerate(itertools.zip_longest(grid.flat, parts)):
        ax.set_visible(part is not None)
        if part is None:
            continue
        here = squares.sel(algorithm=part)
        _squares(
            ax, here.squeeze([n for n in axes(ds) if n not in (across, up)]), (up, across), colors
        )
        for axis, name, named in (
            (ax.xaxis, across, True),
            (ax.yaxis, up, i % len(rows[0]) == 0),
        ):
            has = bool(applying(ds, name).sel(algorithm=part).any())
            _ticked(axis, name, _ticks(ds, name) if has else [], named)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set_title(part[0] if up != "algorithm" else "", fontsize=10.5)
    width = figure.get_size_inches()[0]
    places = [ax.get_position() for ax in grid.flat[: len(parts)]]
    bottom, top = min(place.y0 for place in places), max(place.y1 for place in places)
    bar = figure.add_axes((1 - 1.05 / width, bottom, 0.16 / width, top - bottom))
    figure.colorbar(colors, cax=bar)
    better = "lower" if rule.sign > 0 else "higher"
    bar.set_ylabel(f"{name_of(rule.metric).split(' (')[0]}\n({better} is better)", fontsize=9)
    bar.tick_params(labelsize=8.5)
    if ink.logarithmic(known):
        ink.powers(bar.yaxis, low, high)
    return figure


def _squares(ax: Axes, table: xarray.Dataset, dims: Sequence[str], colors: Any) -> None:
    """A square for each cell: its value, or hatched with the reason for a missing one."""
    from matplotlib.patches import Rectangle

    shown, ran, values = (table[name].transpose(*dims).values for name in ("shown", "ran", "value"))
    ax.set_xlim(-0.5, shown.shape[1] - 0.5)
    ax.set_ylim(-0.5, shown.shape[0] - 0.5)
    for y, x in np.argwhere(shown):
        if math.isnan(value := float(values[y, x])):
            look: dict[str, Any] = {"facecolor": "#F2F2F2", "edgecolor": "#BBBBBB", "hatch": "///"}
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
            reason = "diverged" if ran[y, x] else "not run"
            words: dict[str, Any] = {"s": reason, "fontsize": 8, "color": GREY, "bbox": box}
        else:
            face = colors.to_rgba(value)
            look = {"facecolor": face, "edgecolor": "white"}
            dark = np.array(face[:3]) @ LUMINANCE < DARK
            words = {"s": _digits(value), "fontsize": 9, "color": "white" if dark else "black"}
        ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, linewidth=0.8, **look))
        ax.text(x, y, ha="center", va="center", **words)


def _digits(value: float) -> str:
    """Three digits, trailing zeros included, which makes values easier to compare."""
    text = f"{value:#.3g}"
    return number(value, 3) if "e" in text else text.rstrip(".")


def _ticks(ds: xarray.Dataset, name: str) -> list[str]:
    return [v if isinstance(v, str) else number(v) for v in ds[name].values.tolist()]


def _ticked(axis: Axis, name: str, words: list[str], named: bool) -> None:
    """Label an axis; one that does not apply has no words, and a single place."""
    if not words:
        axis.set_ticks([0], [f"no {name_of(name)}"], fontsize=9)
        return
    axis.set_ticks(range(len(words)), words if named else [""] * len(words), fontsize=9)
    if named and name != "algorithm":
        axis.set_label_text(name_of(name))
        if axis is axis.axes.yaxis and len(name_of(name)) == 1:  # a letter that lies is another one
            axis.label.set(rotation=0, ha="right", va="center")


# --- fronts: a metric against bits, and the settings that no other dominates ---------------------


def front(bits: npt.ArrayLike, values: npt.ArrayLike, sign: int = 1) -> list[int]:
    """Points that no other point dominates in bits and value.

    In ascending order of bits; ``sign`` is 1 where small values are good, else -1.
    """
    losses = sign * np.asarray(values, np.float64)
    order = np.lexsort((losses, np.asarray(bits)))
    before = np.minimum.accumulate(np.append(np.inf, losses[order]))[:-1]
    return [int(i) for i in order[losses[order] < before]]


def _points(part: xarray.Dataset, rule: Criterion) -> xarray.Dataset:
    """The settings of one panel that ended with a value: means with errors, those on the front first.

    Settings without noise are on the front only where there are no others.
    """
    flat = ends(part, rule.metric, "uplink_bits")
    (bits, spread), (value, error) = (
        over_seeds(flat[name]) for name in ("uplink_bits", rule.metric)
    )
    out = flat.drop_vars(list(flat)).assign(
        bits=bits, spread=spread, value=value, error=error, noisy=flat["noisy"]
    )
    out = out.isel(cell=np.isfinite(bits.values + value.values))
    rivals = np.flatnonzero((out["noisy"] > 0) | ~(out["noisy"] > 0).any())
    best = rivals[front(out["bits"].values[rivals], out["value"].values[rivals], rule.sign)]
    return out.assign_attrs(best=best)


def _front(page: Page, rule: Criterion) -> Figure | None:
    """None where no setting ended with a value."""
    found = [(title, _points(part, rule)) for title, part in page.panels()]
    costs = np.concatenate([points["bits"].values for _, points in found])
    if not costs.size:
        return None
    scale, unit = prefix(costs, "bit")
    seeds = page.ds.sizes["seed"]
    mixed = len({noisy for _, points in found for noisy in points["noisy"].values.tolist()}) > 1
    whose, other = ("private settings", "other of them") if mixed else ("settings", "other")
    first = f"Grey: the {whose} that no {other} beats in both bits and value"
    first += f"; bars: standard error over {seeds} seeds." if seeds > 1 else "."
    across = f"uplink of all clients ({unit})"
    up = f"final {name_of(rule.metric)}".replace(" (", "\n(")
    panels = []
    for title, points in found:
        best = points.isel(cell=points.attrs["best"])
        x, y = best["bits"].values / scale, best["value"].values
        grey = Line("", x, y, color="#CCCCCC", width=4, steps="steps-post")
        marks = [
            Line(
                x=[bits / scale],
                y=[value],
                error=[error],
                style="none",
                spread=spread / scale if spread > 0 else None,
                **look,
            )
            for look, bits, value, error, spread in zip(
                page.looks(points, points=True),
                *(points[name].values for name in ("bits", "value", "error", "spread")),
                strict=True,
            )
        ]
        panels.append(Panel(title, across, up, [grey, *marks], None))
    rows = _grid(panels, 3)
    figure = ink.picture(
        heading(page.ds),
        rows,
        [first, *_notes(page.ds)],
        size=(3.3, 2.5) if len(rows[0]) > 1 else (4.8, 3.2),
        heads=page.scene.panel is not None,
        gaps=(0.25, 0.85),
        margins=(0.12, 0.13),  # for the labels of points
    )
    drawn = [ax for ax in figure.axes if ax.has_data()]
    limits = np.array([ax.get_xlim() for ax in drawn])
    for ax in drawn:  # the same costs in every panel
        ax.set_xlim(limits[:, 0].min(), limits[:, 1].max())
    for ax, (_, points) in zip(figure.axes, found, strict=False):
        _name_points(ax, page.scene.line, points.isel(cell=points.attrs["best"]), scale, rule.sign)
    return figure


def _name_points(ax: Axes, line: str | None, best: xarray.Dataset, scale: float, sign: int) -> None:
    """Label the points on the front, on its better side, where no point lies.

    Of two labels that would overlap the second is left out where the marker tells it.
    """
    boxes: list[Any] = []
    names = best["algorithm" if line is None else line].values.tolist()
    places = zip(best["bits"].values / scale, best["value"].values, strict=True)
    for value, at in zip(names, places, strict=True):
        if value is None:
            continue  # the marker tells it
        inner = ax.transAxes.inverted().transform(ax.transData.transform(at))[0] > ROOM
        text = ax.annotate(
            value if line is None else label(line, value),
            at,
            (-5 if inner else 5, -7 * sign),
            textcoords="offset points",
            ha="right" if inner else "left",
            va="top" if sign > 0 else "bottom",
            fontsize=8,
            zorder=4,
        )
        boxes.append(text.get_window_extent())
        if line is not None and any(boxes[-1].overlaps(box) for box in boxes[:-1]):
            text.remove()
            boxes.pop()
