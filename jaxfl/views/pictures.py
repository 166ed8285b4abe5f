"""The pictures of a sweep: fronts of a metric and bits, heat maps, and curves."""

from __future__ import annotations

import functools
import itertools
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import require
from jaxfl.core.files import replace
from jaxfl.core.params import choice
from jaxfl.core.progress import plural
from jaxfl.engine import results
from jaxfl.engine.sweeps.grid import TUNED
from jaxfl.views import ink
from jaxfl.views.cells import (
    applying,
    axes,
    cells,
    check_metric,
    claimed,
    ends,
    final,
    heading,
    is_sweep,
    one_delta,
    over_seeds,
    relabelled,
)
from jaxfl.views.cells import (
    metrics as measured,
)
from jaxfl.views.ink import CHARACTER, COLUMN, FULL, GREY, MARKERS, OTHER, SMALL, TEXT, Line, Panel
from jaxfl.views.plots import ALONG, across, curves, lines
from jaxfl.views.rows import criterion_used
from jaxfl.views.selection import AUTO, CRITERIA, Criterion, criterion_of, select
from jaxfl.views.words import label, name_of, number, renamed, span

if TYPE_CHECKING:
    import xarray
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["NOTES", "Scene", "draw", "figures", "front", "scene"]

KINDS = 3  # of pictures of a metric
PANELS = 12  # in one picture
COLUMNS = 4  # of panels
LINES = 12  # in one panel
STYLED = 4  # values that line styles tell apart
SHADED = 24  # values that colours tell apart where there is one algorithm
BANDS = {"error": "standard error", "range": "smallest to largest"}
SAME = 0.02  # relative difference up to which settings have the same gradients in a round
CROSS = "A cross: the first of the seeds diverged."
NOTES = "notes.txt"
OWN = re.compile(r"\d+-(front|map|curves)-.*")  # the names of pictures, in their folder
CELL = (0.36, 0.24)  # inches of a square of a map
DARK = 0.5  # luminance below which words are white
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])

Drawing: TypeAlias = tuple[str, Callable[[str], "Figure"]]  # its name; draws it under a title


def draw(
    ds: xarray.Dataset,
    folder: str | Path,
    *,
    formats: Sequence[str] = ("png",),
    **options: Any,
) -> list[Path]:
    """Write the :func:`figures`, which take the ``options``; returns the files' names.

    The names begin with numbers, the headline's with 1; ``notes.txt`` has the notes in full.
    Pictures of these formats that an earlier call left in the folder are replaced.
    """
    require(formats, "No formats are given", f"name at least one of {', '.join(ink.FORMATS)}")
    for name in formats:
        choice("format", name, ink.FORMATS)
    drawn, place, files = figures(ds, **options), Path(folder), list[Path]()
    for i, (name, figure) in enumerate(drawn.items(), 1):
        files += ink.save(figure, place, f"{i}-{name}" if is_sweep(ds) else name, formats)
    for path in place.glob("[0-9]*-*"):
        if OWN.fullmatch(path.name) and path.suffix[1:] in formats and path not in files:
            path.unlink()
    if is_sweep(ds):
        notes = {f"{i}-{name}": f.get_label() for i, (name, f) in enumerate(drawn.items(), 1)}
        text = f"{_text(notes)}\n".encode()
        files.append(place / NOTES)
        replace(place / NOTES, lambda file: file.write(text))
    return files


def _text(notes: Mapping[str, Any]) -> str:
    """The notes of each picture; those that all share stand once."""
    lines = {name: str(text).splitlines() for name, text in notes.items()}
    first = next(iter(lines.values()))
    shared = [line for line in first if all(line in text for text in lines.values())]
    parts = {name: [line for line in text if line not in shared] for name, text in lines.items()}
    return "\n\n".join(
        "\n".join([head, *(textwrap.indent(textwrap.fill(line, 96), "  ") for line in text)])
        for head, text in {**parts, "All pictures": shared}.items()
    )


def figures(
    ds: xarray.Dataset,
    *,
    choose_by: str = AUTO,
    over: Sequence[str] | None = None,
    allow_test: bool = False,
    metrics: Sequence[str] | None = None,
    title: str | None = None,
    labels: Mapping[str, str] | None = None,
    band: str = "error",
) -> dict[str, Figure]:
    """The pictures of a sweep, or of a run, by name, each a matplotlib figure that a notebook shows.

    ``front-METRIC``: final values against uplink bits; ``map-METRIC``: final values over the first
    two axes; ``curves-METRIC``: values against rounds, uplink bits and gradients.  First the best
    step size is chosen as in :func:`select`, by ``choose_by`` (``"none"``: show all).  ``metrics``
    are what is drawn, by default what was chosen by and an accuracy (or the loss); a criterion on
    validation data draws its metric on test data.  By default there are at most six pictures, with
    ``metrics`` at most three of each.  ``labels`` renames algorithms, axes, their values, and
    metrics.  Bands are means with standard errors (``band="error"``) or from the smallest to the
    largest seed (``"range"``).  ``get_label()`` of a figure is its notes in full.  A run has one
    picture, ``curves``, of :func:`jaxfl.plots.curves`.

    >>> import jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> ds = jaxfl.sweep("ldp_gd", {"eps": [1, 8], "lr": [0.1, 0.3]}, problem, rounds=5)
    >>> list(figures(ds, choose_by="loss", metrics=["test_accuracy"]))
    ['front-test_accuracy', 'map-test_accuracy', 'curves-test_accuracy']
    """
    choice("band", band, BANDS)
    labels = labels or {}
    if not is_sweep(ds):
        with renamed(labels):
            return {"curves": curves(ds, title=title, metrics=metrics)}
    ds = relabelled(ds, labels)
    rule = criterion_used(ds)
    if choose_by != "none" and (over is not None or set(TUNED) & set(axes(ds))):
        ds, rule, *_ = select(ds, choose_by, over=over, allow_test=allow_test)
    elif choose_by not in (AUTO, "none"):
        rule = criterion_of(ds, choose_by)
    with renamed(labels):
        rules = _rules(ds, rule, metrics)
        kinds = [
            list(kind)
            for r in rules
            for kind in (_fronts(ds, r), _maps(ds, r), _curves(ds, r, band))
        ]
        pages = itertools.zip_longest(*kinds)  # of each kind the first page, then the second ones
        every = [pair for page in pages for pair in page if pair is not None]
        head, most = heading(ds) if title is None else title, KINDS * len(rules)
        drawn = {name: page(head) for name, page in every[:most]}
    if left := [name for name, _ in every[most:]]:
        way = "name metrics with --metric, or keep fewer values of an axis with --where"
        for figure in drawn.values():
            more = f"Not drawn: {len(left)} more ({', '.join(left)}); {way}."
            figure.set_label(f"{figure.get_label()}\n{more}")
    return drawn


def _rules(ds: xarray.Dataset, chosen: Criterion, names: Sequence[str] | None) -> list[Criterion]:
    """The metrics to draw, with the sign of what is good, 0 where nothing says it."""
    known = measured(ds)
    if names is None:
        accuracies = [n for n in ("test_accuracy", "accuracy") if n in known]
        first = chosen.drawn(ds)
        second = "loss" if first.endswith("accuracy") else next(iter(accuracies), "loss")
        names = [n for n in (first, second) if n in known]
    out: dict[str, Criterion] = {}
    for name in names:
        if name == chosen.metric:
            rule = chosen
        elif ":" in name or name in CRITERIA:
            rule = criterion_of(ds, name)
        else:
            check_metric(ds, name)
            rule = Criterion(name, 0)
        out.setdefault(rule.metric, rule)
    return list(out.values())


# --- axes as panels, lines and pages -------------------------------------------------------------


class Scene(NamedTuple):
    """The roles of the axes; those with one value have none."""

    panel: str | None  # one panel for each value
    line: str | None  # lines of one algorithm differ in it
    row: str | None  # one row of panels for each value
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

    Where lines would be too many to be told apart, there is one row of panels for each algorithm
    (if ``shaded``, with colours for the second axis), or else for each value of the second axis.
    Problems of different names have a row each; unless ``shaded``, so have all problems.  What has no
    room in one picture has a picture for each of its values.
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
    others = [*apart, *_without(rest, [panel, line])]
    if line is not None and shaded:
        flat = cells(ds)
        drawn = len({*zip(flat["algorithm"].values, flat[line].values, strict=True)})
        if ds.sizes[line] > SHADED:
            others, line = [*others, line], None
        elif ds.sizes["algorithm"] > 1 and (ds.sizes[line] > STYLED or drawn > LINES):
            others = ["algorithm", *others]
    if panel is None and others and ds.sizes[others[0]] <= PANELS:
        panel = others.pop(0)
    columns = 1 if panel is None else ds.sizes[panel]
    room = PANELS // columns if 1 < columns <= COLUMNS else 0
    row = next((name for name in others if ds.sizes[name] <= room), None)
    return Scene(panel, line, row, tuple(_without(others, [row])))


class Page(NamedTuple):
    """The part of a sweep that one picture shows."""

    whole: xarray.Dataset
    ds: xarray.Dataset
    scene: Scene
    suffix: str  # of its name: the values that it holds

    def rows(self) -> list[list[tuple[str, xarray.Dataset]]]:
        """The parts of the panels after their titles; an eps that is not proven is only claimed."""
        found = [
            [(self._title(part), part) for part in self._parts(row, self.scene.panel)]
            for row in self._parts(self.ds, self.scene.row)
        ]
        size = len(found[0])
        columns = math.ceil(size / math.ceil(size / COLUMNS))
        return [row[i : i + columns] for row in found for i in range(0, size, columns)]

    def _parts(self, ds: xarray.Dataset, name: str | None) -> list[xarray.Dataset]:
        """One for each value; of too many values those that are evenly spread."""
        if name is None:
            return [ds]
        size = ds.sizes[name]
        places = np.linspace(0, size - 1, min(size, PANELS)).round().astype(int)
        return [ds.isel({name: [i]}) for i in places]

    def _title(self, part: xarray.Dataset) -> str:
        names = [name for name in (self.scene.panel, self.scene.row) if name is not None]
        words = [
            label(name, part[name].values.tolist()[0])
            for name in names
            if applying(part, name).any()
        ]
        return ", ".join(words) + " (claimed)" * ("eps" in names and not _meets(part))

    def crowded(self, points: bool = False) -> list[str]:
        """Notes on values that have no panel, or no marker, of their own."""
        out, (panel, line) = [], self.scene[:2]
        if panel is not None and (size := self.ds.sizes[panel]) > PANELS:
            out.append(f"Drawn are {PANELS} of {size} values of {name_of(panel)}.")
        if points and line is not None and self.ds.sizes[line] > len(MARKERS):
            low, *_, high = self.ds[line].values.tolist()
            out.append(f"Points of a line: {label(line, low)} to {label(line, high)}.")
        return out

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
                look |= {"marker": "*", "size": 8} if known else {"marker": "o", "size": 5.0}
            elif points:
                look |= {"marker": "o", "size": 5.0}
                if len(known) <= len(MARKERS):
                    look |= {"marker": MARKERS[place], "kind": kind}
            elif known and (self.ds.sizes["algorithm"] == 1 or self.scene.row == "algorithm"):
                look = {"label": kind, "color": shades[place] if place >= 0 else "black"}
            elif known:
                look["color"] = ink.shade(look["color"], max(place, 0))
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
        words = [
            f"-{v}" if isinstance(v, str) else f"-{name}-{number(v)}"
            for name in names
            for v in part[name].values.tolist()
        ]
        yield Page(ds, part, scene, ink.plain_name("".join(words)))


# --- notes ---------------------------------------------------------------------------------------


def _notes(ds: xarray.Dataset, spread: str, *more: str) -> list[str]:
    """What has to stand under a picture: its privacy, what it says of seeds, and what was chosen."""
    noisy, dims = ds["noisy"] > 0, [name for name in axes(ds) if name != "algorithm"]
    unproven = ds["algorithm"][(noisy & np.isinf(ds["proven_eps"])).any(dims)].values.tolist()
    delta, every = one_delta(ds), "eps" in axes(ds) and not unproven and _meets(ds)
    out = [
        f"No ε is proven of {', '.join(unproven)}." if unproven else "",
        f"{'Each ε is proven, at ' * every}δ = {delta}." if delta else "",
        f"{spread} over {ds.sizes['seed']} seeds." if ds.sizes["seed"] > 1 else "",
        *more,
        _chosen(ds, "note").partition(". ")[0].removesuffix(".") + ".",
    ]
    return [note for note in out if note.strip(".")]


def _finished(figure: Figure, what: str, ds: xarray.Dataset) -> Figure:
    """The figure with its notes in full, one on each line: those under it, then missing values, the
    selection, and the privacy of each algorithm."""
    _, _, more = _chosen(ds, "note").partition(". ")
    out = [what, str(figure.get_label()), more, _chosen(ds, "warning")]
    lost = int(ends(ds, "uplink_bits")["uplink_bits"].isnull().any("seed").sum())
    if lost:
        out.append(f"No final value: {plural(lost, 'setting')} diverged or did not run.")
    worth: dict[str, list[str]] = {}
    for name in ds["algorithm"].values.tolist():
        worth.setdefault(_worth(ds.sel(algorithm=name), "eps" in axes(ds)), []).append(name)
    for words, who in worth.items():
        whose = "" if len(who) == ds.sizes["algorithm"] > 1 else f"{', '.join(who)}: "
        out.append(f"{whose}{words}." if words else "")
    figure.set_label("\n".join(filter(None, out)))
    return figure


def _chosen(ds: xarray.Dataset, name: str) -> str:
    """The note or the warning of a selection."""
    said: str = results.config(ds).get("selection", {}).get(name, "")
    return said.replace(" eps ", " ε ")


def _meets(ds: xarray.Dataset) -> bool:
    """Whether every eps on the axis is proven for the noise that was made for it."""
    short = ds["proven_eps"] > ds["eps"].astype(float) * (1 + 1e-6)
    return not bool((short & (ds["noisy"] > 0)).any())


def _worth(ds: xarray.Dataset, by_eps: bool) -> str:
    """The privacy of one algorithm; empty where the title of the panel states it."""
    noisy = ds["noisy"].values.astype(bool)
    if not noisy.any():
        return "not private, no noise"
    proven, stated = ds["proven_eps"].values[noisy], claimed(ds).values[noisy]
    flag, known = ds["flag"].values[noisy] > 0, proven[np.isfinite(proven)]
    if np.isinf(proven).any():
        some = stated[np.isfinite(stated)]
        return "no ε proven" + (f", where its paper claims {span(some)}" if some.size else "")
    if flag.any():
        return f"proven is ε = {span(proven[flag])}, where its paper claims {span(stated[flag])}"
    return "" if by_eps or not known.size else f"ε = {span(known)} proven"


# --- fronts: a metric against bits, and the settings that no other dominates ---------------------


def front(bits: npt.ArrayLike, values: npt.ArrayLike, sign: int = 1) -> list[int]:
    """Points that no other point dominates in bits and value.

    In ascending order of bits; ``sign`` is 1 where small values are good, else -1.
    """
    losses = sign * np.asarray(values, np.float64)
    order = np.lexsort((losses, np.asarray(bits)))
    before = np.minimum.accumulate(np.append(np.inf, losses[order]))[:-1]
    return [int(i) for i in order[losses[order] < before]]


def _fronts(ds: xarray.Dataset, rule: Criterion) -> Iterator[Drawing]:
    """Nothing where no setting ended with a value, or nothing says what is good."""
    for page in _pages(ds, scene(ds, shaded=False)):
        scale, axis = across(page.ds, "uplink_bits")
        rows = [[(title, _points(part, rule, scale)) for title, part in row] for row in page.rows()]
        if rule.sign and any(points.sizes["cell"] for row in rows for _, points in row):
            drawn = functools.partial(_front, page, rows, axis, rule)
            yield f"front-{rule.metric}{page.suffix}", drawn


def _points(part: xarray.Dataset, rule: Criterion, scale: float) -> xarray.Dataset:
    """The settings of one panel that ended with a value: means with errors, those on the front first.

    Settings without noise are on the front only where there are no others.
    """
    flat = ends(part, rule.metric, "uplink_bits")
    out = flat.drop_vars(list(flat)).assign(noisy=flat["noisy"])
    out["bits"], out["spread"] = over_seeds(flat["uplink_bits"] / scale)
    out["value"], out["error"] = over_seeds(flat[rule.metric])
    out = out.isel(cell=np.isfinite((out["bits"] + out["value"]).values))
    rivals = np.flatnonzero((out["noisy"] > 0) | ~(out["noisy"] > 0).any())
    best = rivals[front(out["bits"].values[rivals], out["value"].values[rivals], rule.sign)]
    return out.assign_attrs(best=best)


def _front(
    page: Page, rows: list[list[tuple[str, xarray.Dataset]]], axis: str, rule: Criterion, title: str
) -> Figure:
    mixed = len(np.unique(page.ds["noisy"])) > 1
    whose = "private settings" if mixed else "settings"
    grey = f"Grey: the {whose} that no other of these beats in both bits and value."
    up, powers = f"final {name_of(rule.metric)}", _powers(rule.metric)
    panels = [
        [Panel(t, axis, up, _marks(page, points), None, powers, key=t) for t, points in row]
        for row in rows
    ]
    notes = _notes(page.ds, "Bars: standard error", *page.crowded(points=True))
    figure = ink.picture(title, panels, notes, margins=(0.08, 0.1))
    what = "The final value of each setting against the bits that all clients sent."
    return _finished(figure, f"{what}\n{grey}", page.ds)


def _marks(page: Page, points: xarray.Dataset) -> list[Line]:
    """The front, a line through the settings of each algorithm, and a point for each setting."""
    best, looks = points.isel(cell=points.attrs["best"]), page.looks(points, points=True)
    names = np.array([look["label"] for look in looks])
    x, y = best["bits"].values, best["value"].values
    out = [Line("", x, y, color="#DDDDDD", width=4, steps="steps-post")]
    numeric = page.scene.line is not None and page.ds[page.scene.line].dtype.kind in "iuf"
    for look in {look["label"]: look for look in looks if numeric}.values():
        own = points.isel(cell=names == look["label"]).sortby("bits")
        if own.sizes["cell"] > 1:
            x, y = own["bits"].values, own["value"].values
            out.append(Line("", x, y, color=look["color"], width=0.8))
    for i, look in enumerate(looks):
        bits, spread, value, error = (
            points[name].values[[i]] for name in ("bits", "spread", "value", "error")
        )
        point = Line(look["label"], bits, value, error, style="none")
        out.append(point._replace(spread=spread if spread > 0 else None, **look))
    return out


# --- heat maps: the final value over two axes, one panel per algorithm ---------------------------


def _maps(ds: xarray.Dataset, rule: Criterion) -> Iterator[Drawing]:
    """The first two axes, or one axis against the algorithms; one picture for each value of others."""
    names = _free(ds)
    if not names:
        return
    across, up, *rest = names if len(names) > 1 else [*names, "algorithm"]
    for page in _pages(ds, Scene(None, None, None, tuple(rest))):
        drawn = functools.partial(_map, page.ds, across, up, rule)
        yield f"map-{rule.metric}{page.suffix}", drawn


def _map(ds: xarray.Dataset, across: str, up: str, rule: Criterion, title: str) -> Figure:
    """Squares with their values, hatched where one is missing, with the reason.

    Words have no room in squares that are too narrow.
    """
    from matplotlib.colors import LogNorm, Normalize

    names = ds["algorithm"].values.tolist()
    values, ran = over_seeds(final(ds, rule.metric))[0], (ds["complete"] > 0).all("seed")
    if "found" in ds:
        ran = ran.where(ds["found"] > 0, ds["candidates"] > 0)
    squares = ds.drop_vars(list(ds)).assign(value=values, ran=ran)
    known = values.values[np.isfinite(values.values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    log = _powers(rule.metric) is None and ink.logarithmic(known)
    norm: Any = LogNorm(low, high) if log else Normalize(low, high)
    parts = [names] if up == "algorithm" else [[name] for name in names]
    ticks = {
        name: [v if isinstance(v, str) else number(v) for v in ds[name].values.tolist()]
        for name in (across, up)
    }
    if up == "algorithm":  # the value of one without the axis holds for its whole row
        lacks = [not applying(ds.sel(algorithm=[name]), across).any() for name in names]
        bare = f"\n(no {name_of(across)})"
        ticks[up] = [name + bare * lack for name, lack in zip(names, lacks, strict=True)]
    around = 1.0 + CHARACTER * SMALL * max(map(len, ticks[up]))  # inches of words and colour bar
    each = CELL[0] * ds.sizes[across] + 0.1
    columns = min(len(parts), max(1, int((FULL - around) / each)))
    width = COLUMN if around + columns * each <= COLUMN else FULL
    cell = (width - around) / columns / ds.sizes[across]  # inches
    rows = math.ceil(len(parts) / columns)
    tall = CELL[1] * max(3, ds.sizes[up]) + 0.45
    figure = ink.frame(title, rows * tall, {}, _notes(ds, "Means"), width)
    axs = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for ax in axs[len(parts) :]:
        ax.set_visible(False)
    for i, (ax, part) in enumerate(zip(axs, parts, strict=False)):
        here = squares.sel(algorithm=part)
        here = here.squeeze([name for name in axes(ds) if name not in (across, up)])
        for axis, name, named in ((ax.xaxis, across, True), (ax.yaxis, up, i % columns == 0)):
            if applying(ds, name).sel(algorithm=part).any():
                _ticked(axis, name, ticks[name] if named else [""] * len(ticks[name]), named)
            else:
                here = here.isel({name: [0]})
                axis.set_ticks([0], [f"no {name_of(name)}"], fontsize=SMALL)
        here = here.transpose(up, across, ...)
        edges = [np.arange(here.sizes[name] + 1) - 0.5 for name in (across, up)]
        look = {"cmap": "viridis_r" if rule.sign > 0 else "viridis", "edgecolors": "white"}
        mesh = ax.pcolormesh(*edges, here["value"], norm=norm, linewidth=0.8, **look)
        ax.patch.set(facecolor="#F2F2F2", edgecolor="#BBBBBB", hatch="///")
        ax.tick_params(length=0, pad=2)
        ax.spines[:].set_visible(False)
        ax.set_title(part[0] if up != "algorithm" else "", fontsize=TEXT, pad=3)
        for (y, x), value in np.ndenumerate(here["value"].values):
            if math.isnan(value):
                words = "diverged" if here["ran"].values[y, x] else "not run"
                color, box = GREY, {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
            else:
                dark = np.array(mesh.cmap(norm(value))[:3]) @ LUMINANCE < DARK
                words, color, box = _digits(value), "white" if dark else "black", None
            if len(words) * CHARACTER * SMALL <= cell:
                at = {"ha": "center", "va": "center", "fontsize": SMALL}
                ax.text(x, y, words, color=color, bbox=box, **at)
    bar = figure.colorbar(mesh, ax=axs[: len(parts)], fraction=0.08, aspect=12, pad=0.02)
    better = {1: "\n(lower is better)", -1: "\n(higher is better)", 0: ""}[rule.sign]
    bar.set_label(f"{name_of(rule.metric).split(' (')[0]}{better}", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL, length=2, pad=2)
    bar.outline.set_visible(False)
    if log:
        ink.powers(bar.ax.yaxis, low, high)
    return _finished(figure, f"The final {name_of(rule.metric)} of each setting.", ds)


def _digits(value: float) -> str:
    """Three digits, trailing zeros included, which makes values easier to compare."""
    text = f"{value:#.3g}"
    return number(value, 3) if "e" in text else text.rstrip(".")


def _ticked(axis: Axis, name: str, words: list[str], named: bool) -> None:
    axis.set_ticks(range(len(words)), words, fontsize=SMALL)
    if named and name != "algorithm":
        axis.set_label_text(name_of(name), fontsize=TEXT)
        if axis is axis.axes.yaxis and len(name_of(name)) == 1:  # a letter that lies is another one
            axis.label.set(rotation=0, ha="right", va="center")


# --- curves: a metric against rounds, bits and gradients, means over seeds with bands ------------


def _curves(ds: xarray.Dataset, rule: Criterion, band: str) -> Iterator[Drawing]:
    """One picture, or one for each cost where its panels would be too many."""
    for page in _pages(ds, scene(ds)):
        rows = page.rows()
        alongs = list(ALONG)
        spent = cells(page.ds, "gradients")["gradients"].mean("seed")
        rate = spent.sum("round") / spent["round"].where(spent.notnull()).sum("round")
        if float(rate.max() - rate.min()) <= SAME * float(rate.max()):
            alongs.remove("gradients")  # they would show the rounds again
        together = [alongs] if len(rows) == 1 else [[along] for along in alongs]
        for each in together:
            by = f"-{each[0]}" * (len(each) == 1)
            drawn = functools.partial(_curve, page, rows, each, rule.metric, band)
            yield f"curves-{rule.metric}{by}{page.suffix}", drawn


def _curve(
    page: Page,
    rows: list[list[tuple[str, xarray.Dataset]]],
    alongs: Sequence[str],
    metric: str,
    band: str,
    title: str,
) -> Figure:
    panels = [
        [_panel(page, name, part, metric, along, band) for name, part in row]
        for along in alongs
        for row in rows
    ]
    lines = [line for row in panels for panel in row for line in panel.lines]
    if len(panels[0]) == 1 and len(alongs) > 1:  # its pictures side by side
        panels = [[row[0] for row in panels]]
    cross = CROSS * any(line.cut and np.isfinite(line.y[0]) for line in lines)
    figure = ink.picture(
        title, panels, _notes(page.ds, f"Bands: {BANDS[band]}", cross, *page.crowded())
    )
    what = f"{name_of(metric)} against {' and '.join(ALONG[along][1] for along in alongs)}."
    return _finished(figure, what[:1].upper() + what[1:], page.ds)


def _panel(
    page: Page, title: str, part: xarray.Dataset, metric: str, along: str, band: str
) -> Panel:
    flat = cells(part, metric, "uplink_bits", "gradients", "diverged_at")
    scale, axis = across(page.ds, along)
    drawn = lines(flat, metric, along, scale, page.looks(flat), band)
    # the planned rounds, also where no run reached them
    until = float(page.ds["round"][-1]) if along == "round" else math.nan
    log = None if along != "round" else False
    powers = _powers(metric)
    return Panel(title, axis, name_of(metric), drawn, log, powers, until=until, key=title)


def _powers(metric: str) -> bool | None:
    """Shares have linear axes; the values of other metrics decide."""
    return False if metric.endswith("accuracy") else None
