"""The pictures of a sweep: fronts of a metric and bits, heat maps, and curves."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import require
from jaxfl.core.files import replace
from jaxfl.core.params import choice
from jaxfl.core.progress import plural
from jaxfl.engine import results
from jaxfl.engine.grid import TUNED
from jaxfl.views import ink
from jaxfl.views.cells import (
    Array,
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
    per_client,
    proofs,
    relabelled,
)
from jaxfl.views.cells import stated as said_only
from jaxfl.views.ink import CHARACTER, COLUMN, FULL, GREY, MARKERS, OTHER, SMALL, TEXT, Line, Panel
from jaxfl.views.plots import ALONG, OF_CLIENTS, across, curves, lines, scaled
from jaxfl.views.rows import criterion_used
from jaxfl.views.selection import AUTO, CRITERIA, Criterion, criterion_of, publishing, select
from jaxfl.views.words import label, name_of, number, renamed, span

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

__all__ = ["NOTES", "Scene", "draw", "figures", "front", "scene"]

PANELS = 12  # in one picture
COLUMNS = 4  # of panels
LINES = 15  # in one panel
STYLED = 4  # values that line styles tell apart
SHADED = 24  # values that colours tell apart where there is one algorithm
SAME = 0.02  # relative difference up to which settings have the same gradients in a round
CROSS = "A cross: the first of the seeds diverged."
FEWER = "Points: evaluated rounds, of which a smaller --eval-every makes more."
NOTES = "notes.txt"
NOISE = ("eps", "delta", "sigma", "noise_constant")  # of which other notes tell
OWN = re.compile(r"\d+-(front|map|curves)-.*")  # the names of pictures, in their folder
CELL = (0.36, 0.24)  # inches of a square of a map
DARK = 0.5  # luminance below which words are white
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


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
    require(
        formats, "No formats are given", lambda: f"name at least one of {', '.join(ink.FORMATS)}"
    )
    for name in formats:
        choice("format", name, ink.FORMATS)
    drawn, place, files = figures(ds, **options), Path(folder), list[Path]()
    if is_sweep(ds):
        drawn = {f"{i}-{name}": figure for i, (name, figure) in enumerate(drawn.items(), 1)}
    for name, figure in drawn.items():
        files += ink.save(figure, place, name, formats)
    for path in place.glob("[0-9]*-*"):
        if OWN.fullmatch(path.name) and path.suffix[1:] in formats and path not in files:
            path.unlink()
    if is_sweep(ds):
        text = _written({name: str(figure.get_label()) for name, figure in drawn.items()})
        files.append(place / NOTES)
        replace(place / NOTES, lambda file: file.write(text.encode()))
    return files


def _written(notes: Mapping[str, str]) -> str:
    """The notes of all pictures in full: each picture's own, then once those that all share."""
    each = {name: text.splitlines() for name, text in notes.items()}
    shared = [
        line for line in next(iter(each.values()), []) if all(line in o for o in each.values())
    ]
    if len(each) > 1:
        each = {name: [line for line in own if line not in shared] for name, own in each.items()}
        each["all pictures"] = shared
    parts = (
        "\n".join([name, *(textwrap.indent(textwrap.fill(line, 98), "  ") for line in lines)])
        for name, lines in each.items()
    )
    return "\n\n".join(parts) + "\n"


def figures(
    ds: xarray.Dataset,
    *,
    choose_by: str = AUTO,
    over: Sequence[str] | None = None,
    allow_test: bool = False,
    metrics: Sequence[str] | None = None,
    title: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Figure]:
    """The pictures of a sweep, or of a run, by name, each a matplotlib figure that a notebook shows.

    ``front-METRIC``: final values against uplink bits; ``map-METRIC``: final values over the first
    two axes; ``curves-METRIC``: values against rounds, uplink bits and gradients, means over seeds
    with standard errors.  First the best step size is chosen as in :func:`select`, by ``choose_by``
    (``"none"``: show all).  ``metrics`` are what is drawn, by default what was chosen by and an
    accuracy (or the loss); a criterion on validation data draws its metric on test data.  ``labels``
    renames algorithms, axes, their values, and metrics.  ``get_label()`` of a figure is its notes in
    full; they name the values of axes that have no room in the picture.  A run has one picture,
    ``curves``, of :func:`jaxfl.plots.curves`.

    >>> import jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> ds = jaxfl.sweep("ldp_gd", {"eps": [1, 8], "lr": [0.1, 0.3]}, problem, rounds=5)
    >>> list(figures(ds, choose_by="loss", metrics=["test_accuracy"]))
    ['front-test_accuracy', 'map-test_accuracy', 'curves-test_accuracy']
    """
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
    kinds = {"front": _front, "map": _map, "curves": _curves}
    with renamed(labels):
        head = heading(ds) if title is None else title
        drawn = {
            f"{kind}-{shown.metric}": answer(ds, shown, head)
            for shown in _rules(ds, rule, metrics)
            for kind, answer in kinds.items()
            if kind == "curves" or not per_client(ds, shown.metric)
        }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _rules(ds: xarray.Dataset, chosen: Criterion, names: Sequence[str] | None) -> list[Criterion]:
    """The metrics to draw, with the sign of what is good, 0 where nothing says it."""
    if names is None:
        first = chosen.drawn(ds)
        accuracy = next((n for n in ("test_accuracy", "accuracy") if n in ds), "loss")
        names = [first, "loss" if first.endswith("accuracy") else accuracy]

    def rule(name: str) -> Criterion:
        if name == chosen.metric:
            return chosen
        if ":" in name or name in CRITERIA:
            return criterion_of(ds, name)
        if not per_client(ds, name):
            check_metric(ds, name)
        return Criterion(name, 0)

    return list(dict.fromkeys(map(rule, names)))


# --- axes as panels and lines --------------------------------------------------------------------


class Scene(NamedTuple):
    """The part of a sweep that one picture shows, and the roles of its axes.

    Axes with one value have no role.  Those without room for all values have fewer in ``ds``.
    """

    panel: str | None  # one panel for each value
    line: str | None  # lines of one algorithm differ in it
    row: str | None  # one row of panels for each value
    whole: xarray.Dataset
    ds: xarray.Dataset

    def rows(self) -> list[list[tuple[str, xarray.Dataset]]]:
        """The parts of the panels after their titles; an eps that is not proven is only claimed."""
        found = [
            [(self._title(part), part) for part in _parts(row, self.panel)]
            for row in _parts(self.ds, self.row)
        ]
        size = len(found[0])
        columns = math.ceil(size / math.ceil(size / COLUMNS))
        return [row[i : i + columns] for row in found for i in range(0, size, columns)]

    def _title(self, part: xarray.Dataset) -> str:
        names = [name for name in (self.panel, self.row) if name is not None]
        words = [
            label(name, part[name].values.tolist()[0])
            for name in names
            if applying(part, name).any()
        ]
        return ", ".join(words) + " (asked for)" * ("eps" in names and not _meets(part))

    def notes(self, points: bool = False) -> list[str]:
        """On values that have no place, or no marker, of their own."""
        out = _held(self.whole, self.ds)
        if points and self.line is not None and self.ds.sizes[self.line] > len(MARKERS):
            low, *_, high = self.ds[self.line].values.tolist()
            out.append(f"Points of a line: {label(self.line, low)} to {label(self.line, high)}.")
        return out

    def looks(self, flat: xarray.Dataset, *, points: bool = False) -> list[dict[str, Any]]:
        """Colour and style, or marker, of each cell, by algorithm and second axis, with their meaning.

        The colour of an algorithm is the same in all pictures of a sweep.
        """
        from matplotlib import colormaps

        every, line = self.whole["algorithm"].values.tolist(), str(self.line)
        known = [] if self.line is None else self.ds[line].values.tolist()
        alone = self.ds.sizes["algorithm"] == 1 or self.row == "algorithm"
        shades = colormaps["viridis"](np.linspace(0.0, 0.85, len(known)))  # from dark to light
        out = []
        for i, name in enumerate(flat["algorithm"].values.tolist()):
            noisy = bool(self.ds["noisy"].sel(algorithm=name).any())
            look = {"label": name + " (no noise)" * (not noisy), "color": every.index(name)}
            value = flat[line].values.tolist()[i] if known else None
            kind = f"no {name_of(line)}" if value is None else label(line, value)
            place = known.index(value) if value is not None else -1
            if points and known and place < 0:  # the legend has the star with the algorithm
                look |= {"marker": "*", "size": 8.0}
            elif points:
                look |= {"marker": "o", "size": 5.0}
                if 0 < len(known) <= len(MARKERS):
                    look |= {"marker": MARKERS[place], "kind": kind}
            elif known and alone:
                look = {"label": kind, "color": shades[place] if place >= 0 else "black"}
            elif known:
                look["color"] = ink.shade(look["color"], max(place, 0))
                look |= {"style": place if place >= 0 else OTHER, "kind": kind}
            out.append(look)
        return out


def scene(ds: xarray.Dataset, *, shaded: bool = True) -> Scene:
    """Panels by eps, lines by algorithm and omega, or by the next axes.

    Where lines would be too many to be told apart, there is one row of panels for each algorithm
    (if ``shaded``, with colours for the second axis), or else for each value of the second axis.
    Problems of different names have a row each; unless ``shaded``, so have all problems.  Of too many
    values those that are evenly spread are shown, and the first of an axis without a role.
    """
    free, spans = _free(ds), results.config(ds)["axes"]
    apart = [n for n in free if spans[n].get("problem") and not (shaded and _numeric(ds, n))]
    rest = _without(free, apart)
    panel = "eps" if "eps" in rest else rest[1] if len(rest) > 1 else None
    line = next(iter(_without(rest, [panel])), None)
    others = [*apart, *_without(rest, [panel, line])]
    algorithms = ds.sizes["algorithm"]
    values = 0 if line is None else ds.sizes[line]
    if shaded and algorithms > 1 and (values > STYLED or values * algorithms > LINES):
        others = ["algorithm", *others]
    if panel is None and others and ds.sizes[others[0]] <= PANELS:
        panel = others.pop(0)
    columns = 1 if panel is None else ds.sizes[panel]
    room = PANELS // columns if 1 < columns <= COLUMNS else 0
    row = next((name for name in others if ds.sizes[name] <= room), None)
    most = {panel: PANELS, row: PANELS, line: SHADED if shaded else values}
    return Scene(panel, line, row, ds, _thinned(ds, {name: most.get(name, 1) for name in free}))


def _free(ds: xarray.Dataset) -> list[str]:
    """Axes with more than one value that some algorithm has, eps and omega first, then numbers."""
    several = [
        n for n in axes(ds) if n != "algorithm" and ds.sizes[n] > 1 and applying(ds, n).any()
    ]
    first = [n for n in ("eps", "omega") if n in several]
    return first + sorted(_without(several, first), key=lambda n: not _numeric(ds, n))


def _without(names: Sequence[str], taken: Sequence[str | None]) -> list[str]:
    return [name for name in names if name not in taken]


def _numeric(ds: xarray.Dataset, name: str | None) -> bool:
    return name is not None and ds[name].dtype.kind in "iuf"


def _thinned(ds: xarray.Dataset, most: Mapping[str, int]) -> xarray.Dataset:
    """At most ``most[axis]`` values of each axis, evenly spaced."""
    return ds.isel(
        {
            name: np.linspace(0, ds.sizes[name] - 1, count).round().astype(int)
            for name, count in most.items()
            if ds.sizes[name] > count
        }
    )


def _held(whole: xarray.Dataset, ds: xarray.Dataset) -> list[str]:
    """Notes on the axes of which a picture shows a part."""
    out = []
    for name in axes(ds):
        some, every = ds.sizes[name], whole.sizes[name]
        if some == 1 < every:
            first = label(name, ds[name].values.tolist()[0])
            out.append(f"Drawn is {first}, of {every} values (choose with --where).")
        elif some < every:
            out.append(f"Drawn are {some} of {every} values of {name_of(name)}.")
    return out


def _parts(ds: xarray.Dataset, name: str | None) -> list[xarray.Dataset]:
    """One for each value of an axis."""
    return [ds] if name is None else [ds.isel({name: [i]}) for i in range(ds.sizes[name])]


# --- notes ---------------------------------------------------------------------------------------


def _notes(ds: xarray.Dataset, spread: str, *more: str) -> list[str]:
    """What has to stand under a picture: its privacy, what it says of seeds, and what was chosen."""
    noisy, dims = ds["noisy"] > 0, [name for name in axes(ds) if name != "algorithm"]
    proven = ds["proven_eps"].where(noisy & ~said_only(ds))
    user = ds["algorithm"][(noisy & said_only(ds)).any(dims)].values.tolist()
    unproven = ds["algorithm"][(proven == np.inf).any(dims)].values.tolist()
    delta, known = one_delta(ds), proven.values[np.isfinite(proven.values)]
    alone = f" {publishing(ds)[0]}".rstrip()
    sure = not unproven and not user and "eps" in axes(ds) and _meets(ds)
    stated = f"Each ε is proven{alone}, at " * sure
    if known.size and "eps" not in axes(ds):
        stated = f"ε = {span(known)} is proven{alone}, at "
    out = [
        f"No ε is proven of {', '.join(unproven)}." if unproven else "",
        f"The ε of {', '.join(user)} is stated by the user, not checked." if user else "",
        f"{stated}δ = {delta}." if delta else "",
        f"{spread} over {ds.sizes['seed']} seeds." if spread and ds.sizes["seed"] > 1 else "",
        *more,
        _chosen(ds, "note").partition(". ")[0].removesuffix(".") + ".",
    ]
    return [note for note in out if note.strip(".")]


def _finished(figure: Figure, what: str, ds: xarray.Dataset) -> Figure:
    """The figure with its notes in full, one on each line: those under it, then what all settings share,
    missing values, the selection, and the privacy of each algorithm."""
    _, _, more = _chosen(ds, "note").partition(". ")
    out = [what, str(figure.get_label()), _common(ds), more, _chosen(ds, "warning")]
    lost = int(ends(ds, "uplink_bits")["uplink_bits"].isnull().any("seed").sum())
    if lost:
        out.append(f"No final value: {plural(lost, 'setting')} diverged or did not run.")
    worth: dict[str, list[str]] = {}
    for name in ds["algorithm"].values.tolist():
        worth.setdefault(_worth(ds.sel(algorithm=name), "eps" in axes(ds)), []).append(name)
    for words, who in worth.items():
        whose = "" if len(who) == ds.sizes["algorithm"] > 1 else f"{', '.join(who)}: "
        out.append(f"{whose}{words}." if words else "")
    out += proofs(ds)
    if (several := publishing(ds)[1].replace(" eps ", " ε ")) not in more:
        out.append(several)
    figure.set_label("\n".join(filter(None, out)))
    return figure


def _common(ds: xarray.Dataset) -> str:
    """The hyper-parameters that are no axes and have one value in all settings that have them."""
    held = {"rounds": ds["last_round"]}
    held |= {
        str(name).removeprefix("used_"): v for name, v in ds.items() if str(name)[:5] == "used_"
    }
    left_out = {*axes(ds), *results.config(ds).get("selection", {}).get("over", ()), *NOISE}
    each = {name: np.unique(v.values[np.isfinite(v.values)]) for name, v in held.items()}
    said = [
        label(name, values[0])
        for name, values in each.items()
        if len(values) == 1 and name not in left_out
    ]
    return f"In all settings: {', '.join(said)}." if said else ""


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
        return "no ε proven" + (
            f", where its paper's formula gives {span(some)}" if some.size else ""
        )
    if flag.any():
        return f"proven is ε = {span(proven[flag])}, where its paper's formula gives {span(stated[flag])}"
    how = "stated by the user" if said_only(ds).any() else "proven"
    return "" if by_eps or not known.size else f"ε = {span(known)} {how}"


# --- fronts: a metric against bits, and the settings that no other dominates ---------------------


def front(bits: npt.ArrayLike, values: npt.ArrayLike, sign: int = 1) -> list[int]:
    """Points that no other point dominates in bits and value.

    In ascending order of bits; ``sign`` is 1 where small values are good, else -1.
    """
    losses = sign * np.asarray(values, np.float64)
    order = np.lexsort((losses, np.asarray(bits)))
    before = np.minimum.accumulate(np.append(np.inf, losses[order]))[:-1]
    return [int(i) for i in order[losses[order] < before]]


def _front(ds: xarray.Dataset, rule: Criterion, title: str) -> Figure | None:
    """None where no setting ended with a value, or nothing says what is good."""
    found = scene(ds, shaded=False)
    scale, axis = across(found.ds, "uplink_bits")
    rows = [[(name, _points(part, rule, scale)) for name, part in row] for row in found.rows()]
    if not (rule.sign and any(points.sizes["cell"] for row in rows for _, points in row)):
        return None
    up, powers = f"final {name_of(rule.metric)}", scaled(rule.metric)
    panels = [
        [Panel(t, axis, up, _marks(found, points), None, powers) for t, points in row]
        for row in rows
    ]
    notes = _notes(found.ds, "Bars: standard error", *found.notes(points=True))
    figure = ink.picture(title, panels, notes)
    whose = "private settings" if len(np.unique(found.ds["noisy"])) > 1 else "settings"
    what = (
        "The final value of each setting against the bits that all clients sent.\n"
        f"Grey: the {whose} that no other of these beats in both bits and value."
    )
    return _finished(figure, what, found.ds)


def _points(part: xarray.Dataset, rule: Criterion, scale: float) -> xarray.Dataset:
    """The settings of one panel that ended with a value: means with errors, and ``best`` on the front.

    Settings without noise are on the front only where there are no others.
    """
    out = ends(part, rule.metric, "uplink_bits")
    out["bits"], out["spread"] = over_seeds(out["uplink_bits"] / scale)
    out["value"], out["error"] = over_seeds(out[rule.metric])
    out = out.isel(cell=np.isfinite((out["bits"] + out["value"]).values))
    rivals = np.flatnonzero((out["noisy"] > 0) | ~(out["noisy"] > 0).any())
    best = rivals[front(out["bits"].values[rivals], out["value"].values[rivals], rule.sign)]
    return out.assign(best=("cell", np.isin(np.arange(out.sizes["cell"]), best)))


def _marks(found: Scene, points: xarray.Dataset) -> list[Line]:
    """The front, a line through the settings of each algorithm, and a point for each setting."""

    def through(some: Array, **look: Any) -> Line:
        own = points.isel(cell=some).sortby("bits")
        return Line("", own["bits"].values, own["value"].values, **look)

    looks = found.looks(points, points=True)
    names = np.array([look["label"] for look in looks])
    out = [through(points["best"].values, color="#DDDDDD", width=4, steps="steps-post")]
    for look in {look["label"]: look for look in looks}.values():
        own = names == look["label"]
        if own.sum() > 1 and _numeric(found.ds, found.line):
            out.append(through(own, color=look["color"], width=0.8))
    for i, look in enumerate(looks):
        bits, spread, value, error = (
            points[name].values[[i]] for name in ("bits", "spread", "value", "error")
        )
        point = Line(look["label"], bits, value, error, style="none")
        out.append(point._replace(spread=spread if spread > 0 else None, **look))
    return out


# --- heat maps: the final value over two axes, one panel per algorithm ---------------------------


def _map(ds: xarray.Dataset, rule: Criterion, title: str) -> Figure | None:
    """The first two axes, one panel per algorithm, or one axis against the algorithms.

    Squares have their values where there is room, and are hatched where one is missing, with the
    reason.  An algorithm without an axis has one square for all its values.
    """
    from matplotlib.colors import LogNorm, Normalize

    if not (free := _free(ds)):
        return None
    along, up, *rest = free if len(free) > 1 else [*free, "algorithm"]
    part = _thinned(ds, dict.fromkeys(rest, 1))
    values, ran = over_seeds(final(part, rule.metric))[0], (part["complete"] > 0).all("seed")
    if "found" in part:
        ran = ran.where(part["found"] > 0, part["candidates"] > 0)
    squares = values.to_dataset(name="value").assign(ran=ran)
    squares = squares.squeeze([n for n in axes(ds) if n not in (along, up, "algorithm")])
    known = values.values[np.isfinite(values.values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    log = scaled(rule.metric) is None and ink.logarithmic(known)
    norm: Any = LogNorm(low, high) if log else Normalize(low, high)
    names = ds["algorithm"].values.tolist()
    lacks = {
        name: [n for n in (along, up) if not applying(ds, n).sel(algorithm=name).any()]
        for name in names
    }
    heads = [
        name + f" (no {', no '.join(map(name_of, lack))})" * bool(lack)
        for name, lack in lacks.items()
    ]
    ticks = {
        name: [v if isinstance(v, str) else number(v) for v in ds[name].values.tolist()]
        for name in (along, up)
    }
    if single := up == "algorithm":
        ticks[up] = [head.replace(" (", "\n(") for head in heads]
    wide, tall, panels = ds.sizes[along], ds.sizes[up], 1 if single else len(names)
    around = 1.0 + CHARACTER * SMALL * max(map(len, ticks[up]))  # inches of words and colour bar
    each = CELL[0] * wide + 0.1
    columns = min(panels, max(1, int((FULL - around) / each)))
    width = COLUMN if around + columns * each <= COLUMN else FULL
    square = (width - around) / columns / wide  # inches
    rows = math.ceil(panels / columns)
    notes = _notes(part, "Means", *_held(ds, part))
    figure = ink.frame(title, rows * (CELL[1] * max(3, tall) + 0.45), {}, notes, width)
    axs = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel().tolist()
    for i, ax in enumerate(axs):
        ax.set_visible(i < panels)
        ax.patch.set(facecolor="#F2F2F2", edgecolor="#BBBBBB", hatch="///")
        ax.tick_params(length=0, pad=2, labelsize=SMALL)
        ax.spines[:].set_visible(False)
        ax.set_xticks(range(wide), ticks[along])
        ax.set_yticks(range(tall), ticks[up])
        ax.set_xlabel(name_of(along), fontsize=TEXT)
        if i % columns == 0 and not single:  # a letter that lies is another one
            upright = (
                {"rotation": 0, "ha": "right", "va": "center"} if len(name_of(up)) == 1 else {}
            )
            ax.set_ylabel(name_of(up), fontsize=TEXT, **upright)
    look = {"cmap": "viridis_r" if rule.sign > 0 else "viridis", "edgecolors": "white"}
    # a row, or a panel, for each algorithm
    for i, (name, head) in enumerate(zip(names, heads, strict=True)):
        ax, here = axs[0 if single else i], squares.sel(algorithm=[name] if single else name)
        if not single:
            room = int(square * wide / (CHARACTER * TEXT))
            ax.set_title(textwrap.fill(head, room), fontsize=TEXT, pad=3)
        edges = {n: np.arange(ds.sizes[n] + 1) - 0.5 for n in (along, up)}
        for n in lacks[name]:
            here, edges[n] = here.isel({n: [0]}), edges[n][[0, -1]]
        if single:
            edges[up] = edges[up][i : i + 2]
        here = here.transpose(up, along)
        mesh = ax.pcolormesh(*edges.values(), here["value"], norm=norm, linewidth=0.8, **look)
        x, y = ((ends[:-1] + ends[1:]) / 2 for ends in edges.values())
        for (k, j), value in np.ndenumerate(here["value"].values):
            if math.isnan(value):
                words = "diverged" if here["ran"].values[k, j] else "not run"
                color, box = GREY, {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
            else:
                dark = np.array(mesh.cmap(norm(value))[:3]) @ LUMINANCE < DARK
                words, color, box = _digits(value), "white" if dark else "black", None
            if len(words) * CHARACTER * SMALL <= square * np.diff(edges[along])[j]:
                at = {"ha": "center", "va": "center", "fontsize": SMALL}
                ax.text(x[j], y[k], words, color=color, bbox=box, **at)
    bar = figure.colorbar(mesh, ax=axs[:panels], fraction=0.08, aspect=12, pad=0.02)
    better = {1: "\n(lower is better)", -1: "\n(higher is better)", 0: ""}[rule.sign]
    bar.set_label(f"{name_of(rule.metric).split(' (')[0]}{better}", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL, length=2, pad=2)
    bar.outline.set_visible(False)
    if single:  # the first algorithm on top, as in legends
        axs[0].invert_yaxis()
    if log:
        ink.powers(bar.ax.yaxis, low, high)
    return _finished(figure, f"The final {name_of(rule.metric)} of each setting.", part)


def _digits(value: float) -> str:
    """Three digits, trailing zeros included, which makes values easier to compare."""
    text = f"{value:#.3g}"
    return number(value, 3) if "e" in text else text.rstrip(".")


# --- curves: a metric against rounds, bits and gradients, means over seeds with bands ------------


def _curves(ds: xarray.Dataset, rule: Criterion, title: str) -> Figure:
    """Against rounds alone where there are several rows of panels."""
    found = scene(ds)
    rows, alongs = found.rows(), list(ALONG)
    notes = found.notes()
    notes += [FEWER] * (1 < found.ds.sizes["round"] <= ink.SPARSE)
    if len(rows) > 1:
        alongs = alongs[:1]
        notes.append("Fewer values (--where) leave room for bits and gradients.")
    spent = cells(found.ds, "gradients")["gradients"].mean("seed")
    rate = spent.sum("round") / spent["round"].where(spent.notnull()).sum("round")
    if float(rate.max() - rate.min()) <= SAME * float(rate.max()):
        alongs = alongs[:2]  # gradients would show the rounds again
    panels = [
        [_panel(found, name, part, rule.metric, along) for name, part in row]
        for along in alongs
        for row in rows
    ]
    if len(panels[0]) == 1 and len(alongs) > 1:  # its pictures side by side
        panels = [[row[0] for row in panels]]
    lines = [line for row in panels for panel in row for line in panel.lines]
    cross = CROSS * any(line.cut and np.isfinite(line.y[0]) for line in lines)
    spread = "" if per_client(found.ds, rule.metric) else "Bands: standard error"
    notes = _notes(found.ds, spread, cross, *notes, OF_CLIENTS * (not spread))
    figure = ink.picture(title, panels, notes)
    what = f"{name_of(rule.metric)} against {' and '.join(ALONG[along][1] for along in alongs)}."
    return _finished(figure, what[:1].upper() + what[1:], found.ds)


def _panel(found: Scene, title: str, part: xarray.Dataset, metric: str, along: str) -> Panel:
    flat = cells(part, metric, "uplink_bits", "gradients", "diverged_at")
    scale, axis = across(found.ds, along)
    drawn = lines(flat, metric, along, scale, found.looks(flat))
    # the planned rounds, also where no run reached them
    until = float(found.ds["round"][-1]) if along == "round" else math.nan
    log = None if along != "round" else False
    return Panel(title, axis, name_of(metric), drawn, log, scaled(metric), until)
