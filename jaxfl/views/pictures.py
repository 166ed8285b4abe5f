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
from jaxfl.engine.grid import TUNED
from jaxfl.views import ink
from jaxfl.views.cells import (
    Grid,
    axes,
    check_metric,
    is_sweep,
    over_seeds,
    per_client,
    relabelled,
)
from jaxfl.views.ink import Line, Panel
from jaxfl.views.plots import ALONG, OF_CLIENTS, across, curves, lines, scaled
from jaxfl.views.rows import criterion_used
from jaxfl.views.selection import AUTO, CRITERIA, Criterion, criterion_of, publishing, select
from jaxfl.views.words import number, span

if TYPE_CHECKING:
    import pandas
    import xarray
    from matplotlib.axes import Axes
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
    shared = [line for line in min(each.values()) if all(line in own for own in each.values())]
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
    if not is_sweep(ds):
        return {"curves": curves(relabelled(ds, labels or {}), title=title, metrics=metrics)}
    ds = relabelled(ds, labels or {})
    rule = criterion_used(Grid.of(ds))
    if choose_by != "none" and (over is not None or {*TUNED} & {*axes(ds)}):
        ds, rule, *_ = select(ds, choose_by, over=over, allow_test=allow_test)
    elif choose_by not in (AUTO, "none"):
        rule = criterion_of(ds, choose_by)
    grid = Grid.of(ds)
    head = grid.heading() if title is None else title
    drawn = {}
    for shown in _rules(ds, rule, metrics):
        if not per_client(ds, shown.metric):
            drawn[f"front-{shown.metric}"] = _front(grid, shown, head)
            drawn[f"map-{shown.metric}"] = _map(grid, shown, head)
        drawn[f"curves-{shown.metric}"] = _curves(grid, shown, head)
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
    """The cells of a grid that one picture shows, and the roles of its axes.

    Axes with one value have no role.  Those without room for all values have fewer in ``cells``.
    """

    panel: str | None  # one panel for each value
    line: str | None  # lines of one algorithm differ in it
    row: str | None  # one row of panels for each value
    grid: Grid
    cells: pandas.DataFrame

    def values(self, name: str | None) -> list[Any]:
        return [] if name is None else self.cells[name].dropna().unique().tolist()

    def rows(self) -> list[list[tuple[str, pandas.DataFrame]]]:
        """The cells of the panels after their titles; an eps that is not proven is only claimed."""
        out = []
        for row in self.values(self.row) or [None]:
            cells = self._at(self.cells, self.row, row)
            parts = [self._at(cells, self.panel, v) for v in self.values(self.panel) or [None]]
            size = math.ceil(len(parts) / math.ceil(len(parts) / COLUMNS))
            titled = [(self._title(part), part) for part in parts]
            out += [titled[i : i + size] for i in range(0, len(titled), size)]
        return out

    @staticmethod
    def _at(cells: pandas.DataFrame, name: str | None, value: Any) -> pandas.DataFrame:
        """Those with this value, or without the axis."""
        return cells if name is None else cells[(cells[name] == value) | cells[name].isna()]

    def _title(self, part: pandas.DataFrame) -> str:
        names = [name for name in (self.panel, self.row) if name is not None]
        words = [self.grid.label(n, v) for n in names for v in part[n].dropna().unique()]
        return ", ".join(words) + " (asked for)" * ("eps" in names and not _meets(part))

    def notes(self, points: bool = False) -> list[str]:
        """On values that have no place, or no marker, of their own."""
        out = _held(self.grid, self.cells)
        known = self.values(self.line)
        if points and len(known) > len(ink.MARKERS):
            low, high = (self.grid.label(str(self.line), known[i]) for i in (0, -1))
            out.append(f"Points of a line: {low} to {high}.")
        return out

    def looks(self, cells: pandas.DataFrame, *, points: bool = False) -> list[dict[str, Any]]:
        """Colour and style, or marker, of each cell, by algorithm and second axis, with their meaning.

        The colour of an algorithm is the same in all pictures of a sweep.
        """
        from matplotlib import colormaps

        every, line, known = (
            self.grid.ds["algorithm"].values.tolist(),
            self.line,
            self.values(self.line),
        )
        alone = len(every) == 1 or self.row == "algorithm"
        shades = colormaps["viridis"](np.linspace(0.0, 0.85, len(known)))  # from dark to light
        noisy = self.cells.groupby("algorithm")["noisy"].any()
        out = []
        for name, value in zip(cells["algorithm"], cells[line or "algorithm"], strict=True):
            look = {"label": name + " (no noise)" * (not noisy[name]), "color": every.index(name)}
            place = known.index(value) if value in known else -1
            kind = (
                self.grid.label(str(line), value)
                if place >= 0
                else f"no {self.grid.name(str(line))}"
            )
            if points and known and place < 0:  # the legend has the star with the algorithm
                look |= {"marker": "*", "size": 8.0}
            elif points:
                look |= {"marker": "o", "size": 5.0}
                if 0 < len(known) <= len(ink.MARKERS):
                    look |= {"marker": ink.MARKERS[place], "kind": kind}
            elif known and alone:
                look = {"label": kind, "color": shades[place] if place >= 0 else "black"}
            elif known:
                look |= {"style": place if place >= 0 else ink.OTHER, "kind": kind}
            out.append(look)
        return out


def scene(grid: Grid, *, shaded: bool = True) -> Scene:
    """Panels by eps, lines by algorithm and omega, or by the next axes.

    Where lines would be too many to be told apart, there is one row of panels for each algorithm
    (if ``shaded``, with colours for the second axis), or else for each value of the second axis.
    Problems of different names have a row each; unless ``shaded``, so have all problems.  Of too many
    values those that are evenly spread are shown, and the first of an axis without a role.
    """
    free, spans, sizes = _free(grid), grid.about["axes"], {None: 0, **grid.ds.sizes}
    apart = [n for n in free if spans[n].get("problem") and not (shaded and _numeric(grid, n))]
    rest = [n for n in free if n not in apart]
    panel = "eps" if "eps" in rest else rest[1] if len(rest) > 1 else None
    line = next((n for n in rest if n != panel), None)
    others = [*apart, *(n for n in rest if n not in (panel, line))]
    algorithms, values = sizes["algorithm"], sizes[line]
    if shaded and algorithms > 1 and (values > STYLED or values * algorithms > LINES):
        others = ["algorithm", *others]
    if panel is None and others and sizes[others[0]] <= PANELS:
        panel = others.pop(0)
    columns = sizes[panel] or 1
    room = PANELS // columns if 1 < columns <= COLUMNS else 0
    row = next((name for name in others if sizes[name] <= room), None)
    most = {panel: PANELS, row: PANELS, line: SHADED if shaded else values}
    return Scene(panel, line, row, grid, _thinned(grid, {name: most.get(name, 1) for name in free}))


def _free(grid: Grid) -> list[str]:
    """Axes with more than one value that some algorithm has, eps and omega first, then numbers."""
    several = [name for name in grid.several() if name != "algorithm"]
    first = [name for name in ("eps", "omega") if name in several]
    return first + sorted(
        {*several} - {*first}, key=lambda n: (not _numeric(grid, n), grid.axes.index(n))
    )


def _numeric(grid: Grid, name: str | None) -> bool:
    return name is not None and grid.ds[name].dtype.kind in "iuf"


def _thinned(grid: Grid, most: Mapping[str, int]) -> pandas.DataFrame:
    """The cells at ``most[axis]`` values or fewer of each axis, evenly spaced."""
    cells = grid.cells
    for name, count in most.items():
        places = np.linspace(0, grid.ds.sizes[name] - 1, count).round().astype(int)
        kept = grid.ds[name].values[places].tolist()
        if count < grid.ds.sizes[name]:
            cells = cells[cells[name].isna() | cells[name].isin(kept)]
    return cells


def _held(grid: Grid, cells: pandas.DataFrame) -> list[str]:
    """Notes on the axes of which a picture shows a part."""
    out = []
    for name in grid.axes:
        some, every = cells[name].dropna().unique(), grid.cells[name].nunique()
        if len(some) == 1 < every:
            first = grid.label(name, some[0])
            out.append(f"Drawn is {first}, of {every} values (choose with --where).")
        elif len(some) < every:
            out.append(f"Drawn are {len(some)} of {every} values of {grid.name(name)}.")
    return out


# --- notes ---------------------------------------------------------------------------------------


def _notes(grid: Grid, cells: pandas.DataFrame, spread: str, *more: str) -> list[str]:
    """What has to stand under a picture: its privacy, what it says of seeds, and what was chosen."""
    by_user = cells["noisy"] & cells["stated"]
    proven = cells["proven_eps"].where(cells["noisy"] & ~by_user)
    user, unproven = (cells["algorithm"][rows].unique() for rows in (by_user, np.isinf(proven)))
    known, delta = proven[np.isfinite(proven)], grid.delta()
    alone = f" {publishing(grid)[0]}".rstrip()
    sure = not (len(unproven) or len(user)) and "eps" in grid.axes and _meets(cells)
    stated = f"Each ε is proven{alone}, at " * sure
    if len(known) and "eps" not in grid.axes:
        stated = f"ε = {span(known)} is proven{alone}, at "
    seeds = grid.ds.sizes["seed"]
    out = [
        f"No ε is proven of {', '.join(unproven)}." * (len(unproven) > 0),
        f"The ε of {', '.join(user)} is stated by the user, not checked." * (len(user) > 0),
        f"{stated}δ = {delta}." * bool(delta),
        f"{spread} over {seeds} seeds." * (bool(spread) and seeds > 1),
        *more,
        _chosen(grid, "note").partition(". ")[0].removesuffix(".") + ".",
    ]
    return [note for note in out if note.strip(".")]


def _finished(figure: Figure, what: str, grid: Grid, cells: pandas.DataFrame) -> Figure:
    """The figure with its notes in full, one on each line: those under it, then what all settings share,
    missing values, the selection, and the privacy of each algorithm."""
    _, _, more = _chosen(grid, "note").partition(". ")
    out = [what, str(figure.get_label()), _common(grid, cells), more, _chosen(grid, "warning")]
    gone = ((cells["lost"] > 0) | (cells["ran"] < grid.ds.sizes["seed"])).sum().item()
    if gone:
        out.append(f"No final value: {plural(gone, 'setting')} diverged or did not run.")
    worth: dict[str, list[str]] = {}
    for name, own in cells.groupby("algorithm", sort=False):
        worth.setdefault(_worth(own, "eps" in grid.axes), []).append(name)
    for words, who in worth.items():
        whose = "" if len(worth) == 1 < len(who) else f"{', '.join(who)}: "
        out.append(f"{whose}{words}." * bool(words))
    out += grid.proofs()
    if (several := publishing(grid)[1].replace(" eps ", " ε ")) not in more:
        out.append(several)
    figure.set_label("\n".join(filter(None, out)))
    return figure


def _common(grid: Grid, cells: pandas.DataFrame) -> str:
    """The hyper-parameters that are no axes and have one value in all settings that have them."""
    left_out = {*grid.axes, *grid.about.get("selection", {}).get("over", ()), *NOISE}
    held = {name.removeprefix("used_"): name for name in cells if name.startswith("used_")}
    said = [
        grid.label(name, cells[column].dropna().unique()[0])
        for name, column in {"rounds": "last_round", **held}.items()
        if cells[column].nunique() == 1 and name not in left_out
    ]
    return f"In all settings: {', '.join(said)}." if said else ""


def _chosen(grid: Grid, name: str) -> str:
    """The note or the warning of a selection."""
    said: str = grid.about.get("selection", {}).get(name, "")
    return said.replace(" eps ", " ε ")


def _meets(cells: pandas.DataFrame) -> bool:
    """Whether every eps on the axis is proven for the noise that was made for it."""
    own = cells[cells["noisy"]]
    return not (own["proven_eps"] > own["eps"].astype(float) * (1 + 1e-6)).any()


def _worth(cells: pandas.DataFrame, by_eps: bool) -> str:
    """The privacy of one algorithm; empty where the title of the panel states it."""
    cells = cells[cells["noisy"]]
    if not len(cells):
        return "not private, no noise"
    proven, formula = cells["proven_eps"], cells["claimed_eps"]
    if np.isinf(proven).any():
        some = formula[np.isfinite(formula)]
        gives = f", where its paper's formula gives {span(some)}" if len(some) else ""
        return f"no ε proven{gives}"
    if (red := cells["flag"]).any():
        gives = f"where its paper's formula gives {span(formula[red])}"
        return f"proven is ε = {span(proven[red])}, {gives}"
    how = "stated by the user" if cells["stated"].any() else "proven"
    return "" if by_eps or proven.isna().all() else f"ε = {span(proven.dropna())} {how}"


# --- fronts: a metric against bits, and the settings that no other dominates ---------------------


def front(bits: npt.ArrayLike, values: npt.ArrayLike, sign: int = 1) -> list[int]:
    """Points that no other point dominates in bits and value.

    In ascending order of bits; ``sign`` is 1 where small values are good, else -1.
    """
    losses = sign * np.asarray(values, np.float64)
    order = np.lexsort((losses, np.asarray(bits)))
    before = np.minimum.accumulate(np.append(np.inf, losses[order]))[:-1]
    return [int(i) for i in order[losses[order] < before]]


def _front(grid: Grid, rule: Criterion, title: str) -> Figure | None:
    """None where no setting ended with a value, or nothing says what is good."""
    found = scene(grid, shaded=False)
    scale, axis = across(grid.ds, "uplink_bits")
    bits, spread = over_seeds(grid.ends("uplink_bits") / scale)
    value, error = over_seeds(grid.ends(rule.metric))
    ends = found.grid.cells.assign(bits=bits, spread=spread, value=value, error=error)
    ends = ends.loc[found.cells.index].dropna(subset=["bits", "value"])
    if not (rule.sign and len(ends)):
        return None
    up = f"final {grid.name(rule.metric)}"
    panels = [
        [
            Panel(name, axis, up, _marks(found, ends, part, rule.sign), None, scaled(rule.metric))
            for name, part in row
        ]
        for row in found.rows()
    ]
    notes = _notes(grid, found.cells, "Bars: standard error", *found.notes(points=True))
    figure = ink.picture(title, panels, notes)
    whose = "private settings" if found.cells["noisy"].nunique() > 1 else "settings"
    what = (
        "The final value of each setting against the bits that all clients sent.\n"
        f"Grey: the {whose} that no other of these beats in both bits and value."
    )
    return _finished(figure, what, grid, found.cells)


def _marks(found: Scene, ends: pandas.DataFrame, part: pandas.DataFrame, sign: int) -> list[Line]:
    """The front, a line through the settings of each algorithm, and a point for each setting.

    Settings without noise are on the front only where there are no others.
    """
    own = ends.loc[part.index.intersection(ends.index)]
    rivals = own[own["noisy"]] if own["noisy"].any() else own
    best = rivals.iloc[front(rivals["bits"], rivals["value"], sign)]
    looks = found.looks(own, points=True)
    out = [Line("", best["bits"], best["value"], color="#DDDDDD", width=4, steps="steps-post")]
    colors = {look["label"]: look["color"] for look in looks}
    for label, color in colors.items():
        some = own[[look["label"] == label for look in looks]].sort_values("bits")
        if len(some) > 1 and _numeric(found.grid, found.line):
            out.append(Line("", some["bits"], some["value"], color=color, width=0.8))
    for look, point in zip(looks, own.itertuples(), strict=True):
        spread = point.spread if point.spread > 0 else None
        marked = {"style": "none", "spread": spread, **look}
        out.append(Line(x=[point.bits], y=[point.value], error=[point.error], **marked))
    return out


# --- heat maps: the final value over two axes, one panel per algorithm ---------------------------


def _map(grid: Grid, rule: Criterion, title: str) -> Figure | None:
    """The first two axes, one panel per algorithm, or one axis against the algorithms.

    Squares have their values where there is room, and are hatched where one is missing, with the
    reason.  An algorithm without an axis has one square for all its values.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm, Normalize

    if not (free := _free(grid)):
        return None
    along, up, *rest = free if len(free) > 1 else [*free, "algorithm"]
    shown = _thinned(grid, dict.fromkeys(rest, 1))
    ended = over_seeds(grid.ends(rule.metric))[0].values
    cells = grid.cells.assign(value=ended).loc[shown.index]
    known = cells["value"].dropna().to_numpy()
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    log = scaled(rule.metric) is None and ink.logarithmic(known)
    norm = LogNorm(low, high) if log else Normalize(low, high)
    shades = ScalarMappable(norm, "viridis_r" if rule.sign > 0 else "viridis")
    heads = {}
    for name, own in cells.groupby("algorithm", sort=False):
        lacks = [f"no {grid.name(axis)}" for axis in (along, up) if own[axis].isna().all()]
        heads[name] = f"{name} ({', '.join(lacks)})" if lacks else name
    places = {axis: grid.ds[axis].values.tolist() for axis in (along, up)}
    single = up == "algorithm"
    words = {axis: [_tick(heads.get(v, v)) for v in values] for axis, values in places.items()}
    wide, tall, panels = len(words[along]), len(words[up]), 1 if single else len(heads)
    around = 1.0 + ink.CHARACTER * ink.SMALL * max(map(len, words[up]))  # of words and colour bar
    columns = min(panels, max(1, int((ink.FULL - around) / (CELL[0] * wide + 0.1))))
    width = ink.COLUMN if around + columns * (CELL[0] * wide + 0.1) <= ink.COLUMN else ink.FULL
    rows, square = math.ceil(panels / columns), (width - around) / columns / wide  # in inches
    notes = _notes(grid, cells, "Means", *_held(grid, cells))
    figure = ink.frame(title, rows * (CELL[1] * max(3, tall) + 0.45), {}, notes, width)
    axs = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel().tolist()
    for i, ax in enumerate(axs):
        ax.set_visible(i < panels)
        ax.tick_params(length=0, pad=2, labelsize=ink.SMALL)
        ax.spines[:].set_visible(False)
        ax.set_xticks(range(wide), words[along])
        ax.set_yticks(range(tall), words[up])
        ax.set_xlabel(grid.name(along), fontsize=ink.TEXT)
        if i % columns == 0 and not single:
            ax.set_ylabel(grid.name(up), fontsize=ink.TEXT)
    for i, (name, head) in enumerate(heads.items()):
        ax = axs[0 if single else i]
        if not single:
            room = int(square * wide / (ink.CHARACTER * ink.TEXT))
            ax.set_title(textwrap.fill(head, room), fontsize=ink.TEXT, pad=3)
        for cell in cells[cells["algorithm"] == name].to_dict("records"):
            _square(
                ax, [_span(places[axis], cell[axis]) for axis in (along, up)], cell, shades, square
            )
        ax.autoscale(tight=True)
        if single and not ax.yaxis_inverted():  # the first algorithm on top, as in legends
            ax.invert_yaxis()
    bar = figure.colorbar(shades, ax=axs[:panels], fraction=0.08, aspect=12, pad=0.02)
    better = {1: "\n(lower is better)", -1: "\n(higher is better)", 0: ""}[rule.sign]
    bar.set_label(f"{grid.name(rule.metric).split(' (')[0]}{better}", fontsize=ink.SMALL)
    bar.ax.tick_params(labelsize=ink.SMALL, length=2, pad=2)
    bar.outline.set_visible(False)
    if log:
        ink.powers(bar.ax.yaxis, low, high)
    return _finished(figure, f"The final {grid.name(rule.metric)} of each setting.", grid, cells)


def _tick(value: Any) -> str:
    return value.replace(" (", "\n(") if isinstance(value, str) else number(value)


def _span(values: list[Any], value: Any) -> tuple[float, float]:
    """From where to where a square goes: over all values of an axis that does not apply."""
    first, last = (0, len(values) - 1) if value is None else [values.index(value)] * 2
    return first - 0.5, last + 0.5


def _square(
    ax: Axes, spans: list[tuple[float, float]], cell: dict[str, Any], shades: Any, inches: float
) -> None:
    """One cell with its value where there is room for it."""
    from matplotlib.patches import Rectangle

    (left, right), (low, high) = spans
    value, look = cell["value"], {"facecolor": "#F2F2F2", "edgecolor": "#BBBBBB", "hatch": "///"}
    words, color = "diverged" if cell["lost"] else "not run", ink.GREY
    box: Any = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
    if not math.isnan(value):
        look = {"facecolor": shades.to_rgba(value), "edgecolor": "white"}
        dark = np.array(look["facecolor"][:3]) @ LUMINANCE < DARK
        words, color, box = f"{value:#.3g}".rstrip("."), "white" if dark else "black", None
    ax.add_patch(Rectangle((left, low), right - left, high - low, linewidth=0.8, **look))
    if len(words) * ink.CHARACTER * ink.SMALL <= inches * (right - left):
        at = {"ha": "center", "va": "center", "fontsize": ink.SMALL}
        ax.text((left + right) / 2, (low + high) / 2, words, color=color, bbox=box, **at)


# --- curves: a metric against rounds, bits and gradients, means over seeds with bands ------------


def _curves(grid: Grid, rule: Criterion, title: str) -> Figure:
    """Against rounds alone where there are several rows of panels."""
    found = scene(grid)
    rows, alongs, notes = found.rows(), list(ALONG), found.notes()
    notes += [FEWER] * (1 < grid.ds.sizes["round"] <= ink.SPARSE)
    if len(rows) > 1:
        alongs = alongs[:1]
        notes.append("Fewer values (--where) leave room for bits and gradients.")
    spent = grid.flat(grid.ds[["gradients"]])["gradients"].mean("seed")
    rate = spent.sum("round") / spent["round"].where(spent.notnull()).sum("round")
    if float(rate.max() - rate.min()) <= SAME * float(rate.max()):
        alongs = alongs[:2]  # gradients would show the rounds again
    panels, name = [], grid.name(rule.metric)
    for along in alongs:
        axis, drawn = across(grid.ds, along)[1], lines(grid, rule.metric, along)
        drawn = dict(zip(grid.cells.index, drawn, strict=True))
        # the planned rounds, also where no run reached them
        until = float(grid.ds["round"][-1]) if along == "round" else math.nan
        log = None if along != "round" else False
        for row in rows:
            panels.append([])
            for head, part in row:
                looks = zip(part.index, found.looks(part), strict=True)
                own = [drawn[i]._replace(**look) for i, look in looks]
                panels[-1].append(Panel(head, axis, name, own, log, scaled(rule.metric), until))
    if len(panels[0]) == 1 and len(alongs) > 1:  # its pictures side by side
        panels = [[row[0] for row in panels]]
    every = [line for row in panels for panel in row for line in panel.lines]
    cross = CROSS * any(line.cut and np.isfinite(line.y[0]) for line in every)
    spread = "" if per_client(grid.ds, rule.metric) else "Bands: standard error"
    notes = _notes(grid, found.cells, spread, cross, *notes, OF_CLIENTS * (not spread))
    figure = ink.picture(title, panels, notes)
    what = f"{name} against {' and '.join(ALONG[along][1] for along in alongs)}."
    return _finished(figure, what[:1].upper() + what[1:], grid, found.cells)
