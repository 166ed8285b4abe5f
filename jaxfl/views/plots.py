"""The pictures of results: fronts of a metric and bits, heat maps, and curves of sweeps and runs."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from jaxfl.algorithms.bounds import Bound
from jaxfl.core.display import greek, plain
from jaxfl.core.errors import printable, require
from jaxfl.core.files import replace
from jaxfl.core.params import choice
from jaxfl.core.progress import plural
from jaxfl.engine import results
from jaxfl.engine.grid import TUNED
from jaxfl.views import ink
from jaxfl.views.cells import IN_SHORT, WORTH, Grid, is_sweep, over_seeds, relabelled, used
from jaxfl.views.ink import CAP, GREY, Line, Look, Panel, Sheet
from jaxfl.views.selection import AUTO, CRITERIA, Criterion, criterion_of, select
from jaxfl.views.tables import remarks
from jaxfl.views.words import number, prefix, span

if TYPE_CHECKING:
    import pandas
    import xarray
    from matplotlib.figure import Figure

__all__ = ["OF_CLIENTS", "Scene", "curves", "draw", "figures", "front", "lines", "scene"]

PANELS = 12  # in one picture
COLUMNS = 4  # of panels, at most
LINES = 15  # in one panel
BRIEF = 140  # characters of a note that has a place under a picture
STYLED = 4  # values that line styles tell apart
SHADED = 24  # values that colours tell apart where there is one algorithm
SAME = 0.02  # relative difference up to which settings have the same gradients in a round
FRONT = "Pareto front"
ALL = "All pictures"  # of notes
CROSS = "A cross: the first of the seeds diverged."
ABREAST = 2.3  # inches: panels of one eps stand side by side where each has as many
NOISE = ("eps", "delta", "sigma", "noise_constant")  # of which other notes tell
CELL = (0.36, 0.24)  # inches of a square of a map
# what is drawn against, of all clients so far
ALONG = {"round": "round", "uplink_bits": "uplink", "gradients": "gradients"}
LOST = f"A cross: from the next evaluation on infinite, or {CAP:g} times what it began with"
OF_CLIENTS = "Line: median over clients; band: from the first to the ninth decile."
# of a single result the name of a metric, what is drawn behind it, and the words for each
ROWS = {
    "loss": ("training loss", "worst_client_loss", "all clients", "worst client"),
    "test_accuracy": ("accuracy", "accuracy", "test", "training"),
    "accuracy": ("training accuracy", "worst_client_accuracy", "all clients", "worst client"),
    "grad_norm_sq": ("squared gradient norm", "utility", "at this round", "mean so far"),
}
PLACES = ("training", "worst", "test", "eps", "mean")  # of colours, in the order of the palette
# beside the loss, the first there
SECOND = ("test_accuracy", "accuracy", "test_loss", "grad_norm_sq")


def draw(
    ds: xarray.Dataset, folder: str | Path, *, formats: Sequence[str] = ("png",), **options: Any
) -> list[Path]:
    """Write the :func:`figures`, which take the ``options``; returns the files' names.

    The names begin with numbers, those that they have without ``only``, the headline's with 1;
    ``notes.txt`` has the notes in full, those of all pictures once, at its end.
    Pictures of these formats that an earlier call left in the folder are replaced; with ``only`` those of
    other names stay, with their notes.
    """
    for name in formats or [""]:
        choice("format", name, ink.FORMATS)
    drawn, place, files = figures(ds, **options), Path(folder), list[Path]()
    only, sweep = options.get("only"), is_sweep(ds)
    every = figures(ds, **{**options, "only": None}) if sweep and only is not None else drawn
    number = {name: f"{i}-{name}" if sweep else name for i, name in enumerate(every, 1)}
    for name, figure in drawn.items():
        files += ink.save(figure, place, number[name], formats)
    again = {path.name.partition("-")[2] for path in files}
    for path in place.glob("[0-9]*-*"):
        own = re.fullmatch(r"\d+-((front|map|curves)-.*)", path.name)
        gone = own and path.suffix[1:] in formats and path not in files
        if own and gone and (only is None or own[1] in again):
            path.unlink()
    if sweep:
        said = {
            number[name]: [*map(plain, str(figure.get_label()).splitlines())]
            for name, figure in drawn.items()
        }
        files.append(place / "notes.txt")
        _write_notes(files[-1], said if only is None else _others(files[-1]) | said)
    return files


def _write_notes(file: Path, said: Mapping[str, Sequence[str]]) -> None:
    """Write the notes of pictures, those of all of them once, at the end."""
    said = dict(sorted(said.items(), key=lambda item: int(item[0].partition("-")[0])))
    every = set.intersection(*map(set, said.values())) if len(said) > 1 else set()
    parts = [(name, [note for note in own if note not in every]) for name, own in said.items()]
    parts += [(ALL, [note for note in said.popitem()[1] if note in every])] * bool(every)
    text = "\n".join("\n".join([name, *own, ""]) for name, own in parts)
    replace(file, lambda out: out.write(text.encode()))


def _others(file: Path) -> dict[str, list[str]]:
    """The notes that an earlier call wrote of pictures that are still there."""
    text = file.read_text("utf-8") if file.exists() else ""
    said = {name: own for name, *own in (part.splitlines() for part in text.split("\n\n") if part)}
    every = said.pop(ALL, [])
    there = {path.stem for path in file.parent.glob("[0-9]*-*")}
    return {name: own + every for name, own in said.items() if name in there}


def figures(
    ds: xarray.Dataset,
    *,
    choose_by: str = AUTO,
    over: Sequence[str] | None = None,
    allow_test: bool = False,
    metrics: Sequence[str] | None = None,
    labels: Mapping[str, str] | None = None,
    only: str | Sequence[str] | None = None,
    **look: Unpack[Look],
) -> dict[str, Figure]:
    """The pictures of a sweep, or of a run, by name, each a matplotlib figure that a notebook shows.

    ``front-METRIC``: final values against uplink bits; ``map-METRIC``: final values over the first
    two axes; ``curves-METRIC``: values against rounds, uplink bits and gradients, means over seeds
    with standard errors, in which a seed that a rule stopped keeps its last value until all have ended.
    First the best step size is chosen as in :func:`select`, by ``choose_by`` (``"none"``: show all).
    ``metrics`` are what is drawn, by default what was chosen by and an accuracy (or the loss); a
    criterion on validation data draws its metric on test data.  ``labels`` renames algorithms, axes,
    their values, and metrics.  ``only`` names the pictures to draw.

    ``medium="paper"``, ``"slides"`` or ``"notebook"``, ``width``, ``title`` and ``note`` are those of
    :class:`.ink.Look`.  Under a picture stands what its marks mean and what is not proven.  ``get_label()``
    of a figure is its notes in full: how settings were chosen, which eps is proven and what it protects,
    and the values of axes that have no room.  A run has one picture, ``curves``, of :func:`.curves`.

    >>> import jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.Problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> ds = jaxfl.sweep("ldp_gd", problem, rounds=5, eps=[1, 8], lr=[0.1, 0.3])
    >>> list(figures(ds, choose_by="loss", metrics=["test_accuracy"]))
    ['front-test_accuracy', 'map-test_accuracy', 'curves-test_accuracy']
    """
    ds, alone = relabelled(ds, labels or {}), not is_sweep(ds)
    if alone:
        return {name: curves(ds, metrics=metrics, **look) for name in _only(only, ["curves"])}
    grid = Grid.of(ds)
    if choose_by != "none" and (over is not None or {*TUNED} & {*grid.axes}):
        grid = Grid.of(select(ds, choose_by, over=over, allow_test=allow_test).ds)
        choose_by = AUTO
    chosen = criterion_of(grid, AUTO if choose_by == "none" else choose_by)
    on = ink.sheet(grid.heading(), look)
    named = {
        f"{kind}-{rule.metric}": functools.partial(make, grid, rule, *on)
        for rule in _rules(grid, chosen, metrics)
        for kind, make in (("front", _front), ("map", _map), ("curves", _curves))
        if kind == "curves" or not grid.per_client(rule.metric)
    }
    drawn = {name: named[name]() for name in _only(only, [*named])}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _only(names: str | Sequence[str] | None, known: Sequence[str]) -> Sequence[str]:
    """Those of the pictures, or all."""
    names = [names] if isinstance(names, str) else names
    for name in names or ():
        choice("only", name, known)
    return [name for name in known if names is None or name in names]


def _rules(grid: Grid, chosen: Criterion, names: Sequence[str] | None) -> list[Criterion]:
    """The metrics to draw, with the sign of what is good, 0 where nothing says it."""
    if names is None:
        first = chosen.drawn(grid.ds)
        accuracy = next(iter(grid.besides(("test_accuracy", "accuracy"))), "loss")
        names = [first, "loss" if first.endswith("accuracy") else accuracy]

    def rule(name: str) -> Criterion:
        if name == chosen.metric:
            return chosen
        if ":" in name or name in CRITERIA:
            return criterion_of(grid, name)
        grid.check(name, clients=True)
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
    alone: bool  # the lines of a panel are of one algorithm, which colours tell apart
    grid: Grid
    cells: pandas.DataFrame
    rest: Sequence[str] = ()  # axes without a role of which all values are in the cells

    def values(self, name: str | None) -> list[Any]:
        return [] if name is None else self.cells[name].dropna().unique().tolist()

    def protections(self) -> list[Any]:
        """The units that an eps of these cells may protect."""
        noisy = self.cells[self.cells["noisy"]]
        return [*(noisy if len(noisy) else self.cells)["protects"].unique()]

    def rows(self, on: Sheet) -> list[list[tuple[str, pandas.DataFrame]]]:
        """The cells of the panels after their titles; an eps that is not proven is only claimed."""
        out = []
        for row in self.values(self.row) or [None]:
            cells = self._at(self.cells, self.row, row)
            parts = [self._at(cells, self.panel, v) for v in self.values(self.panel) or [None]]
            size = on.columns(len(parts))
            titled = [(self._title(part), part) for part in parts]
            out += [titled[i : i + size] for i in range(0, len(titled), size)]
        return out

    def whose(self, part: pandas.DataFrame) -> str:
        """The problem of a panel, where there are several: their values do not compare."""
        spans, names = self.grid.about["axes"], (self.panel, self.row)
        apart = [n for n in names if n is not None and spans[n].get("problem")]
        return "".join(
            f", {self.grid.label(n, v)}" for n in apart for v in part[n].dropna().unique()
        )

    @staticmethod
    def _at(cells: pandas.DataFrame, name: str | None, value: Any) -> pandas.DataFrame:
        """Those with this value, or without the axis."""
        return cells if name is None else cells[(cells[name] == value) | cells[name].isna()]

    def _title(self, part: pandas.DataFrame) -> str:
        names = [name for name in (self.panel, self.row) if name is not None]
        words = [self.grid.label(n, v) for n in names for v in part[n].dropna().unique()]
        return ", ".join(words) + " (asked for)" * ("eps" in names and not _meets(part))

    def looks(self, cells: pandas.DataFrame, *, points: bool = False) -> list[dict[str, Any]]:
        """Colour and style, or marker, of each cell, by algorithm and second axis, with their meaning.

        The colour of an algorithm is the same in all pictures of a sweep.
        """
        from matplotlib import colormaps

        every, known = self.grid.ds["algorithm"].values.tolist(), self.values(self.line)
        shades = colormaps["viridis"](np.linspace(0.0, 0.8, len(known)))  # from dark to light
        by_name, several = self.cells.groupby("algorithm"), len(self.protections()) > 1
        quiet = "no noise" * bool(self.cells["noisy"].any())  # else the notes say it of all

        def look(name: str, value: Any) -> dict[str, Any]:
            own, line = by_name.get_group(name), str(self.line)
            worth = [IN_SHORT[what] for what in own["protects"].unique()] * several
            words = quiet if not own["noisy"].any() else worth[0] if len(worth) == 1 else ""
            out = {"label": name + f" ({words})" * bool(words), "color": (i := every.index(name))}
            place = known.index(value) if value in known else -1
            kind = self.grid.label(line, value) if place >= 0 else f"no {self.grid.name(line)}"
            if points:
                marker = "o" if known else ink.MARKERS[i % len(ink.MARKERS)]
                out |= {"style": "none", "marker": marker}
                if known and place < 0:  # the legend has the star with the algorithm
                    return out | {"marker": "*"}
                few = 0 < len(known) <= len(ink.MARKERS)
                return out | ({"marker": ink.MARKERS[place], "kind": kind} if few else {})
            if self.alone and known:
                return {"label": kind, "color": shades[place] if place >= 0 else "black"}
            style = {"style": place if place >= 0 else ink.OTHER, "kind": kind}
            return out | (style if known else {"style": i})

        pairs = zip(cells["algorithm"], cells[self.line or "algorithm"], strict=True)
        return [look(*pair) for pair in pairs]


def scene(grid: Grid, *, shaded: bool = True, whole: bool = False) -> Scene:
    """Panels by eps, lines by algorithm and omega, or by the next axes.

    Where lines would be too many to be told apart, there is one row of panels for each algorithm
    (if ``shaded``, with colours for the second axis), or else for each value of the second axis.
    Problems of different names have a row each; unless ``shaded``, so have all problems.  Of too many
    values those that are evenly spread are shown, and of an axis without a role the first.  With ``whole``
    all of such an axis are, unless it is one of problems.
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
    alone = algorithms == 1 or "algorithm" in (row, panel)
    most = {panel: PANELS, row: PANELS, line: (SHADED if alone else STYLED) if shaded else values}
    rest = [n for n in others if whole and n not in (row, "algorithm", *apart)]
    cells = _thinned(grid, {n: most.get(n, 1) for n in free if n not in rest})
    return Scene(panel, line, row, alone, grid, cells, rest)


def _free(grid: Grid) -> list[str]:
    """Axes with more than one value that some algorithm has: eps, sizes of messages, other numbers."""
    several = [name for name in grid.several() if name != "algorithm"]
    return sorted(
        several, key=lambda n: (n != "eps", n not in ("omega", "share"), not _numeric(grid, n))
    )


def _numeric(grid: Grid, name: str | None) -> bool:
    return name is not None and grid.ds[name].dtype.kind in "iuf"


def _thinned(grid: Grid, most: Mapping[str, int]) -> pandas.DataFrame:
    """The cells at ``most[axis]`` values or fewer of each axis, evenly spaced."""
    cells = grid.cells
    for name, count in most.items():
        values = grid.ds[name].values
        kept = values[np.linspace(0, len(values) - 1, count).round().astype(int)].tolist()
        if count < len(values):
            cells = cells[cells[name].isna() | cells[name].isin(kept)]
    return cells


def _held(grid: Grid, cells: pandas.DataFrame) -> list[str]:
    """Notes on the axes of which a picture shows a part."""
    out = []
    for name in grid.axes:
        some, every = cells[name].dropna().unique(), grid.cells[name].nunique()
        if len(some) < every:
            what = grid.label(name, some[0]) if len(some) == 1 else f"{len(some)} {grid.name(name)}"
            out.append(f"Drawn: {what}, of {every} values (choose with --where).")
    return out


# --- notes ---------------------------------------------------------------------------------------


def _notes(
    grid: Grid, cells: pandas.DataFrame, setting: list[str], spread: str, *more: str
) -> list[str]:
    """The notes under a picture: settings that no title has, what is not proven, the meaning of marks."""
    spread = f"{spread}." * bool(spread and grid.ds.sizes["seed"] > 1)
    alarms = [words for words, fine in _privacy(grid, cells) if not fine]
    alarms += [words for words in _chosen(grid, cells) if len(words) < BRIEF]
    return [note for note in (*setting, *alarms, spread, *more) if note]


def _chosen(grid: Grid, cells: pandas.DataFrame) -> Iterator[str]:
    """The values that were chosen, of each algorithm."""
    for axis in grid.about.get("selection", {}).get("over", ()):
        of, several = dict[str, list[str]](), ""
        for name, own in cells.groupby("algorithm", sort=False)[f"chosen_{axis}"]:
            if values := [v for v in own.unique() if v == v and v != ""]:
                words = all(isinstance(v, str) for v in values)
                of.setdefault(", ".join(values) if words else span(values), []).append(name)
                several = several or ", by setting: see the table" * (len(values) > 1)
        said = (text + f" ({', '.join(who)})" * (len(of) > 1) for text, who in of.items())
        metric = grid.name(criterion_of(grid).metric).split(" (")[0]
        yield f"Best {grid.name(axis)} by {metric}: {', '.join(said)}{several}."


def _privacy(grid: Grid, cells: pandas.DataFrame) -> list[tuple[str, bool]]:
    """The privacy of the algorithms, a sentence for all that share it, and whether it is proven."""
    worth: dict[tuple[str, bool], list[str]] = {}
    for name, own in cells.groupby("algorithm", sort=False):
        worth.setdefault(_worth(own, "eps" in grid.axes and _meets(own)), []).append(name)
    shared = len(worth) == 1 < cells["algorithm"].nunique()
    each = [(words, fine, ", ".join(who)) for (words, fine), who in worth.items()]
    return [(f"{words}." if shared else f"{who}: {words}.", fine) for words, fine, who in each]


def _worth(cells: pandas.DataFrame, by_eps: bool) -> tuple[str, bool]:
    """The privacy of one algorithm, and whether it is proven; its eps is not named where the title of the
    panel states it."""
    cells = cells[cells["noisy"]]
    if not len(cells):
        return "Not private, no noise", False
    proven, unproven = cells["proven_eps"], bool(np.isinf(cells["proven_eps"]).any())
    said = ["proven", "stated by the user, not proven", "proven if parts are as declared"]
    how = next((said[i] for i in (1, 2) if (cells["stated"] == i).any()), said[0])
    words = (
        f"ε {how}"
        if by_eps or proven.isna().all()
        else f"ε = {span(proven.dropna(), bounds=3)} {how}"
    )
    words = "no ε proven" if unproven else words
    red = (cells["flag"] | unproven) & np.isfinite(cells["claimed_eps"])
    if red.any():
        at = "" if unproven else f" for ε = {span(proven[red], bounds=3)}"
        words += f"; its paper's formula gives {span(cells['claimed_eps'][red])}{at}"
    return words, how == said[0] and not unproven


def _finished(figure: Figure, what: str, grid: Grid, cells: pandas.DataFrame) -> Figure:
    """The figure with its notes in full, one on each line: those under it, its privacy, what all settings
    share, the selection, missing values, and why an eps is not proven."""
    more = [*map(greek, remarks(grid))]
    under = [note for note in str(figure.get_label()).splitlines() if note not in " ".join(more)]
    every = [f"{grid.heading()}.", *(words for words, _ in _privacy(grid, cells))]
    every += _chosen(grid, cells)
    under += [words for words in every if words not in (*under, *more)]
    gone = ((cells["lost"] > 0) | (cells["ran"] < grid.ds.sizes["seed"])).sum().item()
    lost = f"No final value: {plural(gone, 'setting')} diverged or did not run." * bool(gone)
    # the hyper-parameters that are no axes and have one value in all settings that have them
    left_out = {*grid.axes, *grid.about.get("selection", {}).get("over", ()), *NOISE}
    each = used(cells).drop(columns=left_out, errors="ignore")
    same = each.loc[:, each.nunique() == 1]
    held = ", ".join(grid.label(str(n), v.dropna().iloc[0]) for n, v in same.items())
    some = " that have them" * bool(same.isna().any(axis=None))
    common = f"In all settings{some}: {held}." * bool(held)
    figure.set_label("\n".join(filter(None, [what, *under, common, lost, *more])))
    return figure


def _meets(cells: pandas.DataFrame) -> bool:
    """Whether every eps on the axis is proven for the noise that was made for it."""
    own = cells[cells["noisy"]]
    return not (own["proven_eps"] > own["eps"].astype(float) * (1 + 1e-6)).any()


# --- fronts: a metric against bits, and the settings that no other dominates ---------------------


def front(bits: Any, values: Any, sign: int = 1) -> list[int]:
    """Points that no other point dominates in bits and value.

    In ascending order of bits; ``sign`` is 1 where small values are good, else -1.
    """
    losses = sign * np.asarray(values, np.float64)
    order = np.lexsort((losses, np.asarray(bits)))
    before = np.minimum.accumulate(np.append(np.inf, losses[order]))[:-1]
    return [int(i) for i in order[losses[order] < before]]


def _front(grid: Grid, rule: Criterion, on: Sheet, setting: list[str]) -> Figure | None:
    """None where no setting ended with a value, or nothing says what is good."""
    found = scene(grid, shaded=False, whole=True)
    scale, axis = across(grid.ds, "uplink_bits")
    bits, (value, error) = grid.ends("uplink_bits"), over_seeds(grid.ends(rule.metric))
    ends = grid.cells.assign(bits=over_seeds(bits / scale)[0], value=value, error=error)
    ends = ends.loc[found.cells.index].dropna(subset=["bits", "value"])
    if not (rule.sign and len(ends)):
        return None
    top = ink.beyond(ends["value"].to_numpy(), start := _start(grid, rule.metric))
    kept = [name for name in grid.axes if name not in found.rest]
    alike = ends.groupby([*kept, *WORTH], dropna=False, sort=False)
    best = [some.index[front(some["bits"], some["value"], rule.sign)] for _, some in alike]
    ends = ends.loc[sorted(itertools.chain(*best))]

    def panel(head: str, part: pandas.DataFrame) -> Panel:
        drawn = _marks(found, ends, part, rule.sign, top, start)
        up = f"final {grid.name(rule.metric)}"
        return Panel(head, axis, up + found.whose(part), drawn, None, scaled(rule.metric), start)

    rows = found.rows(on)
    panels = [[panel(*each) for each in row] for row in rows]
    each = (part[part["noisy"]].drop_duplicates(WORTH) for row in rows for _, part in row)
    rest = " and ".join(map(grid.name, found.rest))
    over = f"Of {rest}: all that no other beats in bits and value."
    several = "A front for each protection and ε." * (max(map(len, each)) > 1)
    held = _held(grid, found.cells)
    held = [over] * bool(found.rest) + held
    notes = _notes(grid, found.cells, setting, "Bars: standard error", several, *held)
    whose = "private settings" if found.cells["noisy"].nunique() > 1 else "settings"
    whose += " of one protection and ε" * bool(several)
    grey = f"{FRONT}, in grey: the {whose} that no other of these beats in both bits and value."
    grey += " What ends above its start is on none." * bool((ends["value"] > start).any())
    what = f"The final value of each setting against the bits that all clients sent.\n{grey}"
    return _finished(ink.picture(on, panels, notes), what, grid, found.cells)


def _marks(
    found: Scene,
    ends: pandas.DataFrame,
    part: pandas.DataFrame,
    sign: int,
    top: float,
    start: float,
) -> list[Line]:
    """A front of each protection and eps, a line through each algorithm's settings, and a point for each.

    Settings without noise are on a front only where there are no others; what is above ``top``, or the
    ``start``, is on none.
    """
    own, out = ends[ends.index.isin(part.index)], list[Line]()
    near = own[own["value"] <= top]
    rivals = near[near["noisy"]] if near["noisy"].any() else near
    rivals = rivals[~(rivals["value"] > start)]
    styles = {what: i for i, what in enumerate(found.protections())}
    for (what, *_), some in rivals.groupby(WORTH, dropna=False, sort=False):
        best, style = some.iloc[front(some["bits"], some["value"], sign)], styles.get(what, 0)
        kind = FRONT + f" ({IN_SHORT[what]})" * (len(styles) > 1)
        step = Line("", best["bits"], best["value"], None, "#DDDDDD", style, width=2.5)
        out.append(step._replace(steps="steps-post", kind=kind * (len(best) > 1)))
    looks = found.looks(own, points=True)
    through = [(look["color"], look.get("kind") if found.rest else None) for look in looks]
    for what in dict.fromkeys(through):
        some = own[[each == what for each in through]].sort_values("bits")
        some = some[some["value"] <= top]
        apart = some["bits"].is_unique  # a line between points of equal bits would look like a bar
        if len(some) > 1 and apart and (found.rest or _numeric(found.grid, found.line)):
            out.append(Line("", some["bits"], some["value"], color=what[0], width=0.8))
    points = [
        Line(x=[at.bits], y=[at.value], error=[at.error], **look)
        for look, at in zip(looks, own.itertuples(), strict=True)
    ]
    along = sorted(zip(own["bits"], own["value"], looks, strict=True), key=lambda each: each[:2])
    ends_at = {look["label"]: value for _, value, look in along}  # of each, its rightmost point
    legend = [Line(x=[], y=[], **look) for look in looks]  # as at the right edge, from above
    legend.sort(key=lambda line: -ends_at[line.label])
    return [*out, *legend, *sorted(points, key=lambda point: -sign * point.y[0])]  # the best on top


# --- heat maps: the final value over two axes, one panel per algorithm ---------------------------


def _map(grid: Grid, rule: Criterion, on: Sheet, setting: list[str]) -> Figure | None:
    """The first two axes, one panel per algorithm, or one axis against the algorithms.

    Squares have their values where there is room, and are hatched where one is missing, with the
    reason.  Those of an algorithm without an axis are equal along it.
    """
    from matplotlib.colors import LogNorm, Normalize

    if not (free := _free(grid)):
        return None
    along, up, *_ = [*free, "algorithm"]
    rest = [name for name in grid.axes if name not in (along, up, "algorithm")]
    ds, cells = grid.ds, _thinned(grid, dict.fromkeys(rest, 1))
    value, lost = over_seeds(grid.final(rule.metric))[0], ds["diverged_at"].notnull().any("seed")
    squares = ds[[]].assign(value=value, lost=lost).isel(dict.fromkeys(rest, 0))
    known = squares["value"].values[squares["value"].notnull().values]
    top = ink.beyond(known.ravel(), _start(grid, rule.metric))  # what diverges is no colour
    cut, known = bool((known > top).any()), known[known <= top]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    log = scaled(rule.metric) is None and ink.logarithmic(known)
    norm = LogNorm(low, high) if log else Normalize(low, high)
    heads = {}
    for name, own in cells.groupby("algorithm", sort=False):
        lacks = [f"no {grid.name(axis)}" for axis in (along, up) if own[axis].isna().all()]
        heads[name] = printable(name) + (f"\n({', '.join(lacks)})" if lacks else "")
    words = [
        [number(v) if not isinstance(v, str) else heads.get(v, printable(v)) for v in values]
        for values in (ds[axis].values.tolist() for axis in (along, up))
    ]
    single, wide, tall = up == "algorithm", len(words[0]), len(words[1])
    panels = [""] if single else [*heads]
    around = 1.0 + ink.CHARACTER * ink.SMALL * max(map(len, words[1]))  # of words and colour bar
    width = on.width or ink.FULL
    columns = min(len(panels), max(1, int((width - around) / (CELL[0] * wide + 0.1))))
    rows, square = math.ceil(len(panels) / columns), (width - around) / columns / wide  # in inches
    every = math.ceil(ink.CHARACTER * ink.SMALL * (max(map(len, words[0])) + 1) / square)
    notes = _notes(grid, cells, setting, "Means over seeds", ink.ARROW * cut, *_held(grid, cells))
    figure = ink.frame(on, rows * (CELL[1] * max(3, tall) + 0.45), {}, notes)
    axs = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel().tolist()
    for i, (ax, name) in enumerate(itertools.zip_longest(axs, panels)):
        ax.set_visible(name is not None)
        ax.patch.set(facecolor="#F2F2F2", edgecolor="#BBBBBB", hatch="///")
        ax.tick_params(length=0, pad=2, labelsize=ink.SMALL)
        ax.spines[:].set_visible(False)
        ax.set_xticks(np.arange(0, wide, every) + 0.5, words[0][::every], parse_math=False)
        ax.set_yticks(np.arange(tall) + 0.5, words[1], parse_math=False)
        ax.set_xlabel(grid.name(along), fontsize=ink.TEXT)
        if i % columns == 0 and not single:  # a letter that lies is another one
            letter: Any = (
                {"rotation": 0, "va": "center", "ha": "right"} if len(grid.name(up)) == 1 else {}
            )
            ax.set_ylabel(grid.name(up), fontsize=ink.TEXT, **letter)
        if name is not None:
            title = ink.fitted(heads.get(name, ""), (width - around) / columns, "label")
            ax.set_title(**title, pad=3)
            here = (squares.sel(algorithm=name) if name else squares).transpose(up, along)
            mesh = _squares(ax, here, norm, rule.sign, square)
    if single:  # the first algorithm on top, as in legends
        axs[0].invert_yaxis()
    end: Any = "max" if cut else "neither"
    bar = figure.colorbar(
        mesh, ax=axs[: len(panels)], fraction=0.08, aspect=12, pad=0.02, extend=end
    )
    better = {1: "\n(lower is better)", -1: "\n(higher is better)", 0: ""}[rule.sign]
    what = f"{grid.name(rule.metric).split(' (')[0]}{better}"
    longest = max(map(len, what.splitlines()))  # two lines, in smaller type where the bar is short
    size = rows * CELL[1] * max(3, tall) / (ink.CHARACTER * longest)
    bar.set_label(what, fontsize=min(ink.SMALL, max(ink.SMALL - 2, size)))
    bar.ax.tick_params(labelsize=ink.SMALL, length=2, pad=2)
    bar.outline.set_visible(False)
    if log:
        ink.powers(bar.ax.yaxis, low, high)
    return _finished(figure, f"The final {grid.name(rule.metric)} of each setting.", grid, cells)


def _spent(rows: Any, alongs: Sequence[str]) -> list[str]:
    """A note where private curves of one panel are drawn against what they spend at unequal rates."""
    each = (own[own["noisy"] & np.isfinite(own["proven_eps"])] for row in rows for _, own in row)
    lengths = [own["last_round"].nunique() for own in each if len(own) > 1]
    equal = [ALONG[n] for n in alongs[1:] if lengths] or ["round"] * (max(lengths, default=1) > 1)
    note = f"ε is of whole curves: at equal {' or '.join(equal)} they may have spent unequal ε."
    return [note] * bool(equal)


def _squares(ax: Any, here: xarray.Dataset, norm: Any, sign: int, inches: float) -> Any:
    """The squares of one panel, with their values where there is room."""
    colors = "viridis_r" if sign > 0 else "viridis"
    mesh = ax.pcolormesh(here["value"], norm=norm, cmap=colors, edgecolors="white", linewidth=0.8)
    for (k, j), value in np.ndenumerate(here["value"].values):
        words, color = "diverged" if here["lost"].values[k, j] else "not run", ink.GREY
        look: dict[str, Any] = {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.2}}
        if not math.isnan(value):
            dark = (value > norm.vmax or norm(value) > 0.5) == (sign > 0)
            words, color, look = f"{value:#.3g}".rstrip("."), "white" if dark else "black", {}
        if len(words) * ink.CHARACTER * ink.SMALL <= inches:
            look |= {"ha": "center", "va": "center", "fontsize": ink.SMALL, "color": color}
            ax.text(j + 0.5, k + 0.5, words, **look)
    return mesh


# --- curves: a metric against rounds, bits and gradients, means over seeds with bands ------------


def _curves(grid: Grid, rule: Criterion, on: Sheet, setting: list[str]) -> Figure:
    """Against rounds alone where there are several rows of panels."""
    found, name = scene(grid), grid.name(rule.metric)
    rows, alongs, notes = found.rows(on), list(ALONG), _held(grid, found.cells)
    if len(rows) > 1:
        alongs = alongs[:1]
    for along in alongs[1:]:  # what is the same in each round would show the rounds again
        ended = grid.flat(grid.ended.to_dataset(name="ended"))["ended"]
        rate = (grid.ends(along) / ended).mean("seed").values
        if _spread(rate) <= SAME * np.nanmax(rate, initial=0):
            alongs.remove(along)
    drawn = {along: lines(grid, rule.metric, along) for along in alongs}
    cut = any(line.live().ends and np.isfinite(line.y[0]) for line in drawn["round"].values())

    def curves_of(along: str, head: str, part: pandas.DataFrame) -> Panel:
        looks = zip(part.index, found.looks(part), strict=True)
        own = [drawn[along][i]._replace(**look) for i, look in looks]
        out = _panel(grid, rule.metric, along, own, head)
        return out._replace(up=out.up + found.whose(part))

    panels = [[curves_of(along, *each) for each in row] for along in alongs for row in rows]
    abreast = (on.width or ink.FULL) >= ABREAST * len(alongs)
    if len(panels[0]) == len(rows) == 1 and abreast:
        panels = [[*itertools.chain(*panels)]]
    spread = "" if grid.per_client(rule.metric) else "Bands: standard error"
    notes += [OF_CLIENTS] * (not spread) + _spent(rows, alongs)
    notes = _notes(grid, found.cells, setting, spread, CROSS * cut, *notes)
    what = f"The {name} against {' and '.join(called(grid.ds, one) for one in alongs)} so far."
    return _finished(ink.picture(on, panels, notes), what, grid, found.cells)


# --- lines, and the figure of runs -----------------------------------------------------------------


def across(ds: xarray.Dataset, along: str) -> tuple[float, str]:
    """The factor and the label of a horizontal axis."""
    if along == "round":
        return 1.0, along
    scale, unit = prefix(ds[along].values, "bit" if along == "uplink_bits" else "")
    return scale, called(ds, along) + f" ({unit})" * bool(unit)


def called(ds: xarray.Dataset, along: str) -> str:
    """The words for what is drawn against, or the user's."""
    return str(results.config(ds).get("labels", {}).get(along) or ALONG[along])


def scaled(metric: str) -> bool | None:
    """Whether the vertical axis is logarithmic; None: the values decide."""
    return False if metric == "eps_spent" or metric.endswith("accuracy") else None


def _start(grid: Grid, metric: str) -> float:
    """Where a metric begins of which small values are good, else NaN."""
    known = CRITERIA.get(metric) == "min"
    return float(grid.ds[metric].isel(round=0).max()) if known else math.nan


def _panel(grid: Grid, metric: str, along: str, drawn: list[Line], head: str = "") -> Panel:
    """Lines of a metric in a panel of their own."""
    axis, log = across(grid.ds, along)[1], False if along == "round" else None
    start = _start(grid, metric)
    return Panel(head, axis, grid.name(metric), drawn, log, scaled(metric), start)


def lines(grid: Grid, metric: str, along: str) -> dict[int, Line]:
    """The means over seeds of each cell, with bands, up to its last round or to where it diverged.

    A seed that a rule stopped keeps its last value until the last one has ended.
    Of a metric of each client, the median, with a band from the first decile to the ninth.
    """
    names = {metric, "uplink_bits", along} - {"round"}
    ds = grid.kept(names).assign(last=grid.ended.max("seed"))
    flat, scale = grid.flat(ds[[*sorted(names), "diverged_at", "last"]]), across(ds, along)[0]
    seen = flat["uplink_bits"].notnull() | (flat["round"] == flat["diverged_at"])
    seen = seen & (flat["round"] <= flat["last"])
    values = flat[metric].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        mean, error = (_clients if grid.per_client(metric) else over_seeds)(values)
    at = flat[along] if along == "round" else flat[along].mean("seed")
    x = (at / scale).broadcast_like(mean).to_numpy()
    y, band = mean.to_numpy(), error.to_numpy()
    each = enumerate(zip(grid.cells.index, seen.all("seed").to_numpy(), strict=True))
    return {at: Line("", x[i, live], y[i, live], band[..., i, live]) for i, (at, live) in each}


def _clients(values: xarray.DataArray) -> tuple[xarray.DataArray, xarray.DataArray]:
    """The median over clients, and how far the first and the ninth decile are from it."""
    import xarray

    values, shares = values.mean("seed"), [0.1, 0.5, 0.9]
    if "client" in values.dims:
        values = values.quantile(shares, "client")
    low, median, high = (values.sel(quantile=q, method="nearest", drop=True) for q in shares)
    return median, xarray.concat([median - low, high - median], "side")


def curves(
    data: xarray.Dataset | Sequence[tuple[str, xarray.Dataset]],
    path: str | Path | None = None,
    *,
    metrics: Sequence[str] | None = None,
    bounds: Sequence[Bound] = (),
    **look: Unpack[Look],
) -> Figure:
    """The loss of a run against rounds, and its accuracy, or what else is known on test data; if it is
    private, also the eps that is proven for what was released so far, against the bits of its uplink.

    Of several runs, as pairs (label, result), each is a line, and where they send unequal bits all is
    drawn against these, too.  Of a single one also the worst client, the accuracy on training data and
    ``bounds``, from :func:`jaxfl.views.bounds.bounds`.  ``metrics`` replaces both metrics.  A run that
    diverged ends in a cross.  ``path`` ends in .png, .pdf or .svg; the other options are those of
    :class:`.ink.Look`.  Returns the figure.
    """
    import xarray

    pairs = [("", data)] if isinstance(data, xarray.Dataset) else list(data)
    runs = {label: Grid.of(ds, label) for label, ds in pairs}
    way = "give at least one, each with a label of its own"
    require(
        len(runs) == len(pairs) > 0,
        lambda: f"There are {len(runs)} labels for {len(pairs)} results",
        way,
    )
    each = [run.ds for run in runs.values()]
    grid = Grid.of(xarray.concat(each, "algorithm", join="outer", combine_attrs="override"))
    second = next(iter(grid.besides(SECOND)), "loss")
    drawn = {bound.metric for bound in bounds if bound.values is not None}
    shown = list(dict.fromkeys(["loss", second, *drawn] if metrics is None else metrics))
    grid.check(*shown, clients=True)
    brief = [f"{words}." for words in _said(runs, shown, claim=False, whom=False)]
    more = [f"{bound.note.rstrip('.')}." for bound in bounds if bound.note] + [OF_CLIENTS] * any(
        map(grid.per_client, shown)
    )
    rate = [float(run.ds["uplink_bits"].max() / run.ds["round"].max()) for run in runs.values()]
    alongs = ["round", "uplink_bits"] if max(rate) > min(rate) else ["round"]
    where = dict.fromkeys(shown, alongs)
    if metrics is None and "eps_spent" in grid.ds:
        sent = "uplink_bits" if grid.cells["n"].max() > 1 else "round"  # one client sends nothing
        where["eps_spent"] = alongs if len(runs) > 1 else [sent]
        more.append("ε: of all that was released up to the next evaluated round.")
    elif len(runs) > 1:
        more += _spent([[("", grid.cells)]], alongs)
    setting, *others = ([*run.setting()] for run in runs.values())
    common = ", ".join(words for words in setting if all(words in other for other in others))
    name = common if others else f"{grid.cells['algorithm'].item()}: {common}"
    on, heading = ink.sheet(name, look)

    def panel(n: str, along: str) -> Panel:
        found = _panel(grid, n, along, _drawn(grid, n, along, bounds))
        up = ROWS.get(n, [found.up])[0].replace("training", grid.on)
        return found._replace(up=up) if len(runs) == 1 else found

    rows = [[panel(n, along) for along in alongs] for n, alongs in where.items()]
    if len(runs) == 1:  # as many beside each other as there is room for
        panels, size = [*itertools.chain(*rows)], max(1, int((on.width or ink.FULL) / ABREAST))
        rows = [panels[i : i + size] for i in range(0, len(panels), size)]
    figure = ink.picture(on, rows, [*heading, *brief, *more])
    full = [f"{words}." for words in _said(runs, shown)]
    figure.set_label("\n".join([f"{name}.", *full, *str(figure.get_label()).splitlines()]))
    if path is not None:
        ink.write(figure, Path(path))
    return figure


def _said(runs: Mapping[str, Grid], shown: Sequence[str], **how: bool) -> Iterator[str]:
    """The privacy of each run, and how it ended unless as planned."""
    for label, run in runs.items():
        start = f"{label}: " * bool(label)
        words = results.privacy(run.about, **how)
        yield start + greek(words)
        if run.about["ended"] != "finished":
            yield start + run.about["ended"]
        if not all(np.isfinite(run.ds[name]).all() for name in shown):
            yield start + LOST


def _drawn(grid: Grid, name: str, along: str, bounds: Sequence[Bound]) -> list[Line]:
    """The line of each run; of a single one a second metric behind it, and its bounds."""
    line, *others = lines(grid, name, along).values()
    # between two values of eps the later holds
    steps = "steps-pre" if name == "eps_spent" else "default"
    if others:
        labels = enumerate(zip([line, *others], grid.cells["algorithm"], strict=True))
        return [o._replace(label=l, color=i, style=i, steps=steps) for i, (o, l) in labels]
    _, behind, own, other = ROWS.get(name, ("", "", "", ""))
    if behind not in grid.ds or (grid.cells["n"].max() == 1 and "client" in behind):
        return [line._replace(steps=steps, **_look(name))]
    (second,) = lines(grid, behind, along).values()
    second = second._replace(label=other.replace("training", grid.on), width=1.0, **_look(other))
    out = [second, line._replace(label=own, **_look(own))]
    scale = across(grid.ds, along)[0]
    for bound in bounds:
        if bound.metric == name and bound.values is not None:
            x = grid.ds[along].squeeze().sel(round=bound.rounds).values / scale
            look = {"style": 2} if len(x) > 1 else {"style": "none", "marker": "_"}
            out.append(Line(bound.label, x, bound.values, color=GREY, **look))
    return out


def _look(what: str) -> dict[str, Any]:
    """The colour and the style in all panels of a run: the first ones are of all clients' data."""
    place = next((i for i, word in enumerate(PLACES) if what.startswith(word)), 0)
    return {"color": place, "style": place % 3}


def _spread(values: Any) -> float:
    known = values[np.isfinite(values)]
    return float(np.ptp(known)) if known.size else 0.0
