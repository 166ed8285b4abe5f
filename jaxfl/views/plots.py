"""The pictures of results: fronts of a metric and bits, heat maps, and curves of sweeps and runs."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from jaxfl.views.cells import IN_SHORT, WORTH, Grid, at, is_sweep, over_seeds, relabelled
from jaxfl.views.ink import GREY, Line, Look, Panel, Sheet
from jaxfl.views.selection import AUTO, CRITERIA, Criterion, criterion_of, select
from jaxfl.views.tables import LEFT_OUT, remarks
from jaxfl.views.words import FEW, listed, number, prefix

if TYPE_CHECKING:
    import pandas
    import xarray
    from matplotlib.figure import Figure

__all__ = ["OF_CLIENTS", "Scene", "curves", "draw", "figures", "front", "lines", "panel", "scene"]

PANELS = 12  # in one picture
COLUMNS = 4  # of panels, at most
LINES = 15  # in one panel
BRIEF = 140  # characters of a note that has a place under a picture
STYLED = 4  # values that line styles tell apart
SHADED = 24  # values that colours tell apart where there is one algorithm
SAME = 0.02  # relative difference up to which settings have the same gradients in a round
FRONT = "Pareto front"
CELL = (0.36, 0.24)  # inches of a square of a map
# what is drawn against, of all clients so far
ALONG = {"round": "round", "uplink_bits": "uplink", "gradients": "gradients"}
OF_CLIENTS = "Line: median over clients; band: from the first to the ninth decile."
WHOLE = "The {} of a curve is that of its last round; up to an earlier one it has spent less."
# of a single result the name of a metric, what is drawn behind it, and the words for each
ROWS = {
    "loss": ("worst_client_loss", "training", "worst client"),
    "test_accuracy": ("accuracy", "test", "training"),
    "accuracy": ("worst_client_accuracy", "training", "worst client"),
    "grad_norm_sq": ("utility", "at this round", "mean so far"),
}
PLACES = ("training", "worst", "test", "eps", "mean")  # of colours, in the order of the palette
# beside the loss, the first there
SECOND = ("test_accuracy", "accuracy", "test_loss", "grad_norm_sq")

NOTHING = "a map takes an axis of several values, and a front final values: leave it out"


def draw(
    ds: xarray.Dataset, folder: str | Path, *, formats: Sequence[str] = ("png",), **options: Any
) -> list[Path]:
    """Write the :func:`figures`, which take the ``options``; returns the files' names.

    A picture has its name, and beside it is a text with its notes in full.
    """
    for name in formats or [""]:
        choice("format", name, ink.FORMATS)
    files, place = list[Path](), Path(folder)
    for name, figure in figures(ds, **options).items():
        files += ink.save(figure, place, name, formats)
        notes = "".join(f"{plain(note)}\n" for note in str(figure.get_label()).splitlines())
        files.append(files[-1].with_suffix(".txt"))
        replace(files[-1], lambda out, notes=notes: out.write(notes.encode()))
    return files


def figures(
    ds: xarray.Dataset,
    *,
    choose_by: str = AUTO,
    metrics: Sequence[str] | None = None,
    labels: Mapping[str, str] | None = None,
    only: str | Sequence[str] | None = None,
    **look: Unpack[Look],
) -> dict[str, Figure]:
    """The pictures of a sweep, or of a run, by name, each a matplotlib figure that a notebook shows.

    ``front-METRIC``: final values against uplink bits; ``map-METRIC``: final values over the first
    two axes; ``curves-METRIC``: values against rounds, uplink bits and gradients, means over seeds
    with standard errors, in which a seed that a rule stopped keeps its last value until all have ended.
    First the best step size is chosen as in :func:`select`, by ``choose_by`` (``"none"``: show all); what
    is to be chosen otherwise is chosen before, as in ``figures(select(ds, over=["clip"]).ds)``.
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
    if choose_by != "none" and {*TUNED} & {*grid.axes}:
        grid, choose_by = Grid.of(select(ds, choose_by).ds), AUTO
    chosen = criterion_of(grid, AUTO if choose_by == "none" else choose_by)
    on = ink.sheet(grid.heading(), look)
    named = {
        f"{kind}-{rule.metric}": functools.partial(make, grid, rule, *on)
        for rule in _rules(grid, chosen, metrics)
        for kind, make in (("front", _front), ("map", _map), ("curves", _curves))
        if kind == "curves" or not grid.per_client(rule.metric)
    }
    drawn = {name: named[name]() for name in _only(only, [*named])}
    fine = {name: figure for name, figure in drawn.items() if figure is not None}
    require(fine or only is None, "shows nothing of this result", NOTHING, only=only)
    return fine


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
        """The cells of the panels after their titles."""
        out, names = [], [name for name in (self.panel, self.row) if name is not None]
        for row in self.values(self.row) or [None]:
            cells = at(self.cells, self.row, row)
            parts = [at(cells, self.panel, v) for v in self.values(self.panel) or [None]]
            out += on.rows([(", ".join(self.grid.labels(part, names)), part) for part in parts])
        return out

    def whose(self, part: pandas.DataFrame) -> str:
        """The problem of a panel, where there are several: their values do not compare."""
        spans, names = self.grid.about["axes"], (self.panel, self.row)
        apart = [n for n in names if n is not None and spans[n].get("problem")]
        return "".join(f", {words}" for words in self.grid.labels(part, apart))

    def label(self, name: str) -> str:
        """The name of an algorithm, with what its eps protects where that differs."""
        own = self.cells[self.cells["algorithm"] == name]
        if not own["noisy"].any():  # of all the notes say it
            return name + " (no noise)" * bool(self.cells["noisy"].any())
        worth = own["protects"].unique()
        differ = len(self.protections()) > 1 == len(worth)
        return name + f" ({IN_SHORT[worth[0]]})" * differ

    def looks(self, cells: pandas.DataFrame, *, points: bool = False) -> list[dict[str, Any]]:
        """Colour and style, or marker, of each cell, by algorithm and second axis, with their meaning.

        The colour of an algorithm is the same in all pictures of a sweep.
        """
        from matplotlib import colormaps

        names, known = self.grid.ds["algorithm"].values.tolist(), self.values(self.line)
        shades = colormaps["viridis"](np.linspace(0.0, 0.8, len(known)))  # from dark to light
        line, marks = str(self.line), {"style": "none", "marker": "o"} if points else {}

        def look(name: str, value: Any) -> dict[str, Any]:
            i, place = names.index(name), known.index(value) if value in known else -1
            kind = self.grid.label(line, value) if place >= 0 else f"no {self.grid.name(line)}"
            out, many = {"label": self.label(name), "color": i, **marks}, len(ink.MARKERS)
            if not known:
                return out | ({"marker": ink.MARKERS[i % many]} if points else {"style": i})
            if points and place < 0:
                return out | {"marker": ink.APART}
            if points:  # more values than markers are not told apart
                own = {"marker": ink.MARKERS[place % many], "kind": kind}
                return out | own if len(known) <= many else out
            if self.alone:
                return {"label": kind, "color": shades[place] if place >= 0 else "black"}
            return out | {"style": place if place >= 0 else ink.OTHER, "kind": kind}

        pairs = zip(cells["algorithm"], cells[self.line or "algorithm"], strict=True)
        return [look(*pair) for pair in pairs]

    def legend(self, *, points: bool = False) -> list[Line]:
        """All entries of the legend, in the order of the cells."""
        return [Line(x=[], y=[], **look) for look in self.looks(self.cells, points=points)]


def scene(grid: Grid, *, points: bool = False) -> Scene:
    """Panels by eps, lines by algorithm and omega, or by the next axes.

    Where lines would be too many to be told apart, there is one row of panels for each algorithm, with
    colours for the second axis, or else for each value of the second axis.  Problems of different names
    have a row each.  Of too many values those that are evenly spread are shown, and of an axis without a
    role the first.  With ``points`` in place of lines there is no such row of an algorithm, all problems
    have rows, and of axes without a role all values are shown.
    """
    free, spans, sizes = _free(grid), grid.about["axes"], {None: 0, **grid.ds.sizes}
    apart = [n for n in free if spans[n].get("problem") and (points or not grid.numeric(n))]
    rest = [n for n in free if n not in apart]
    panel = "eps" if "eps" in rest else rest[1] if len(rest) > 1 else None
    line = next((n for n in rest if n != panel), None)
    others = [*apart, *(n for n in rest if n not in (panel, line))]
    algorithms, values = sizes["algorithm"], sizes[line]
    if not points and algorithms > 1 and (values > STYLED or values * algorithms > LINES):
        others = ["algorithm", *others]
    if panel is None and others and sizes[others[0]] <= PANELS:
        panel = others.pop(0)
    columns = sizes[panel] or 1
    room = PANELS // columns if 1 < columns <= COLUMNS else 0
    row = next((name for name in others if sizes[name] <= room), None)
    alone = algorithms == 1 or "algorithm" in (row, panel)
    most = {panel: PANELS, row: PANELS, line: values if points else SHADED if alone else STYLED}
    rest = [n for n in others if points and n not in (row, "algorithm", *apart)]
    cells = _thinned(grid, {n: most.get(n, 1) for n in free if n not in rest})
    return Scene(panel, line, row, alone, grid, cells, rest)


def _free(grid: Grid) -> list[str]:
    """Axes with more than one value that some algorithm has: eps, sizes of messages, other numbers."""
    several, sizes = [n for n in grid.several() if n != "algorithm"], ("omega", "share")
    return sorted(several, key=lambda n: (n != "eps", n not in sizes, not grid.numeric(n)))


def _thinned(grid: Grid, most: Mapping[str, int]) -> pandas.DataFrame:
    """The cells at ``most[axis]`` values or fewer of each axis, evenly spaced."""
    cells = grid.cells
    for name, count in most.items():
        values = grid.ds[name].values
        kept = values[np.linspace(0, len(values) - 1, count).round().astype(int)].tolist()
        if count < len(values):
            cells = cells[cells[name].isna() | cells[name].isin(kept)]
    return cells


def _held(grid: Grid, cells: pandas.DataFrame) -> Iterator[str]:
    """Notes on the axes of which a picture shows a part."""
    for name in grid.axes:
        some, every = cells[name].dropna().unique(), grid.cells[name].nunique()
        if len(some) < every:
            what = grid.label(name, some[0]) if len(some) == 1 else f"{len(some)} {grid.name(name)}"
            yield f"Drawn: {what}, of {every} values (choose with --where)."


# --- notes ---------------------------------------------------------------------------------------


def _finished(
    make: Callable[[list[str]], Figure],
    what: str,
    grid: Grid,
    cells: pandas.DataFrame,
    setting: list[str],
    spread: str,
    *more: str,
) -> Figure:
    """A figure with its short notes: settings that no title has, what is not proven, the meaning of marks.

    Its label has all notes, one on each line: also the privacy of each algorithm, what all settings share,
    the selection, missing values, and why an eps is not proven.
    """
    privacy = _privacy(grid, cells)
    own = [*_sent(grid, cells), *_chosen(grid, cells), *_idle(grid, cells)]
    alarms = [words for words, fine in privacy if not fine]
    alarms += [words for words in own if len(words) < BRIEF]
    spread = f"{spread}." * bool(spread and grid.ds.sizes["seed"] > 1)
    notes = (*setting, *alarms, spread, *more, *_held(grid, cells))
    figure = make([note for note in notes if note])
    # the hyper-parameters that are no axes and have one value in all settings that have them; noise and
    # step sizes, which other notes have, follow from what is left out
    left_out = grid.swept | {*grid.work(), *LEFT_OUT, "sigma", "gap"}
    each = grid.used.loc[cells.index].drop(columns=left_out, errors="ignore")
    same = each.loc[:, each.nunique() == 1]
    held = ", ".join(grid.label(str(n), v.dropna().iloc[0]) for n, v in same.items())
    some = " that have them" * bool(same.isna().any(axis=None))
    gone = ((cells["lost"] > 0) | (cells["ran"] < grid.ds.sizes["seed"])).sum().item()
    every = [what, *str(figure.get_label()).splitlines(), f"{grid.heading()}."]
    every += [*(words for words, _ in privacy), *own]
    every += [f"In all settings{some}: {held}."] * bool(held)
    every += [f"No final value: {plural(gone, 'setting')} diverged or did not run."] * bool(gone)
    every += map(greek, remarks(grid))
    figure.set_label("\n".join(dict.fromkeys(filter(None, every))))
    return figure


def _chosen(grid: Grid, cells: pandas.DataFrame) -> Iterator[str]:
    """The unequal work of a round, and the values that were chosen, of each algorithm that has them."""
    heads = {f"used_{name}": grid.name(str(name)) for name in grid.work()}
    if "candidates" in cells and cells["candidates"].max() > 1:
        by = f"by {grid.name(criterion_of(grid).metric).split(' (')[0]}"
        over = grid.about["selection"]["over"]
        heads |= {f"chosen_{axis}": f"Best {grid.name(axis)} {by}" for axis in over}
    for name, head in heads.items():
        known = cells[cells[name].notna() & (cells[name] != "")]
        of = _sharing(known, functools.partial(_by_setting, grid, name), "algorithm")
        apart = len(of) > 1 or known["algorithm"].nunique() < cells["algorithm"].nunique()
        said = (text + f" ({', '.join(who)})" * apart for text, who in of.items())
        yield f"{head[:1].upper()}{head[1:]}: {'; '.join(said)}."


def _by_setting(grid: Grid, name: str, own: pandas.DataFrame) -> str:
    """The values of a column, each with its place where an axis of few values decides them."""
    if len(values := own[name].unique()) > 1:
        for axis in grid.several():
            each = {grid.label(axis, at): some.unique() for at, some in own.groupby(axis)[name]}
            if 1 < len(each) <= FEW and all(len(some) == 1 for some in each.values()):
                return ", ".join(f"{listed(some)} at {at}" for at, some in each.items())
    return listed(values, " or ") + ", by setting" * (len(values) > 1)


def _sent(grid: Grid, cells: pandas.DataFrame) -> Iterator[str]:
    """The compression of each algorithm, or of each compressor, where no axis says it."""

    def sizes(own: pandas.DataFrame) -> str:
        each = grid.sizes().loc[own.index].dropna(axis="columns", how="all")
        return ", ".join(f"{grid.name(str(n))} = {listed(v.dropna())}" for n, v in each.items())

    of = _sharing(cells, sizes, "compressor" if "compressor" in grid.several() else "algorithm")
    said = [f"{', '.join(who)} ({words})" for words, who in of.items() if words]
    yield from [f"Compression: {'; '.join(said)}."] * bool(said)


def _idle(grid: Grid, cells: pandas.DataFrame) -> Iterator[str]:
    """The settings whose loss did not fall."""
    names = dict.fromkeys(["algorithm", *grid.several()])
    idle = cells.loc[cells.index.isin(grid.idle().index), [*names]]
    yield from [f"The loss did not fall: {grid.listed(idle)}."] * bool(len(idle))


def _privacy(grid: Grid, cells: pandas.DataFrame) -> list[tuple[str, bool]]:
    """The privacy of the algorithms, a sentence for all that share it, and whether it is proven."""
    worth = _sharing(cells[cells.get("found", cells["ran"]) > 0], _worth, "algorithm")
    alike = len(next(iter(worth.values()), ()))
    apart = not len(worth) == 1 < alike == cells["algorithm"].nunique()
    return [(f"{', '.join(who)}: " * apart + f"{w}.", fine) for (w, fine), who in worth.items()]


def _sharing(cells: pandas.DataFrame, say: Callable[..., Any], by: str) -> dict[Any, list[str]]:
    """The values of the column ``by``, grouped by what ``say`` returns for their cells."""
    of = dict[Any, list[str]]()
    for who, own in cells.groupby(by, sort=False):
        of.setdefault(say(own), []).append(str(who))
    return of


def _worth(cells: pandas.DataFrame) -> tuple[str, bool]:
    """The privacy of one algorithm, and whether it is proven."""
    cells = cells[cells["noisy"]]
    if not len(cells):
        return "Not private, no noise", False
    unproven, stated = bool(np.isinf(cells["proven_eps"]).any()), cells["stated"]
    ways = {1: "stated by the user, not proven", 2: "proven if parts are as declared", 0: "proven"}
    how = next(words for code, words in ways.items() if code == 0 or (stated == code).any())
    words = "no ε proven" if unproven else f"ε = {listed(cells['proven_eps'], bounds=True)} {how}"
    red = cells[(cells["flag"] | unproven) & np.isfinite(cells["claimed_eps"])]
    if len(red):
        words += f"; its paper's formula gives {listed(red['claimed_eps'])}"
    return words, how == ways[0] and not unproven


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
    found, start = scene(grid, points=True), _start(grid, rule.metric)
    bits, value = grid.ends("uplink_bits"), over_seeds(grid.ends(rule.metric))
    bits = over_seeds(bits / across(grid.ds, "uplink_bits")[0])[0]
    ends = grid.cells.assign(bits=bits, value=value[0], error=value[1])
    ends = ends.loc[found.cells.index].dropna(subset=["bits", "value"])
    if not (rule.sign and len(ends)):
        return None
    # no line and no front goes to what has no place, or ends worse than it began
    fine = ends["value"] <= ink.beyond(ends["value"].to_numpy(), start)
    above, idle = ends["value"] > start, ends.index.isin(grid.idle().index)
    none = {"ends above its start": above, "has a loss that did not fall": idle & ~above}
    none |= {"has no proven ε": ~ends["competes"]}
    ends = ends.assign(fine=fine, rival=fine & ~np.any([*none.values()], axis=0))
    kept = [name for name in grid.axes if name not in found.rest]
    alike = ends.groupby([*kept, *WORTH], dropna=False, sort=False)
    best = [some.index[front(some["bits"], some["value"], rule.sign)] for _, some in alike]
    ends = ends.loc[sorted(itertools.chain(*best))]

    def shown(head: str, part: pandas.DataFrame) -> Panel:
        drawn = _marks(found, ends[ends.index.isin(part.index)], rule.sign)
        out = panel(grid, rule.metric, "uplink_bits", drawn, head)
        return out._replace(up=f"final {out.up}{found.whose(part)}")

    rows, noisy, ran = found.rows(on), found.cells["noisy"], found.cells["last_round"]
    each = (part[part["noisy"]].drop_duplicates(WORTH) for row in rows for _, part in row)
    several, rest = max(map(len, each)) > 1, " and ".join(map(grid.name, found.rest))
    whose = "private " * (noisy.nunique() > 1) + "settings" + " of one protection and ε" * several
    what = "The final value of each setting against the bits that all clients sent.\n"
    what += f"{FRONT}, in grey: the {whose} that no other of these beats in both bits and value."
    left = " or ".join(words for words, held in none.items() if held.any())
    what += f" What {left} is on none." * bool(left)
    more = [
        "A front for each protection and ε." * several,
        f"Of {rest}: all that no other beats in bits and value." * bool(rest),
        f"All ran {ran.iloc[0]:,.0f} rounds, whatever their bits." * (ran.nunique() == 1),
    ]
    make = functools.partial(ink.picture, on, [[shown(*each) for each in row] for row in rows])
    return _finished(make, what, grid, found.cells, setting, "Bars: standard error", *more)


def _marks(found: Scene, own: pandas.DataFrame, sign: int) -> list[Line]:
    """A front of each protection and eps, a line through each algorithm's settings, and a point for each.

    Settings without noise are on a front only where there are no others.
    """
    out, near = found.legend(points=True), own[own["fine"]]
    rivals = own[own["rival"] & (own["noisy"] | (not near["noisy"].any()))]
    styles = {what: i for i, what in enumerate(found.protections())}
    for (what, *_), some in rivals.groupby(WORTH, dropna=False, sort=False):
        best, style = some.iloc[front(some["bits"], some["value"], sign)], styles.get(what, 0)
        kind = FRONT + f" ({IN_SHORT[what]})" * (len(styles) > 1)
        step = Line("", best["bits"], best["value"], None, "#DDDDDD", style, width=2.5)
        out.append(step._replace(steps="steps-post", kind=kind * (len(best) > 1)))
    looks = found.looks(own, points=True)
    if found.rest or (found.line and found.grid.numeric(found.line)):
        names = found.grid.ds["algorithm"].values.tolist()
        by = ["algorithm", *[found.line] * bool(found.rest and found.line)]
        for (name, *_), some in near.sort_values("bits").groupby(by, dropna=False, sort=False):
            # a line between points of equal bits would look like a bar
            if len(some) > 1 and some["bits"].is_unique:
                line = Line("", some["bits"], some["value"], color=names.index(name), width=0.8)
                out.append(line)
    each = zip(looks, own.itertuples(), strict=True)
    points = [Line(x=[p.bits], y=[p.value], error=[p.error], **look) for look, p in each]
    return [*out, *sorted(points, key=lambda point: -sign * point.y[0])]  # the best on top


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
    unmet = along == "eps" and grid.unmet(grid.cells) != ""
    proven = f"{'; '.join(grid.labels(grid.cells, [along]))}." * unmet
    rest = dict.fromkeys((name for name in grid.axes if name not in (along, up, "algorithm")), 1)
    ds, cells, heads = grid.ds, _thinned(grid, rest), dict[str, str]()
    for name, own in cells.groupby("algorithm", sort=False):
        lacks = [f"no {grid.name(axis)}" for axis in (along, up) if own[axis].isna().all()]
        heads[name] = printable(name) + f"\n({', '.join(lacks)})" * bool(lacks)
    value, lost = over_seeds(grid.final(rule.metric))[0], ds["diverged_at"].notnull().any("seed")
    squares = ds[[]].assign(value=value, lost=lost).isel(dict.fromkeys(rest, 0))
    known = squares["value"].values[squares["value"].notnull().values]
    top = ink.beyond(known, _start(grid, rule.metric))  # what diverges is no colour
    cut, known = bool((known > top).any()), known[known <= top]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    log = scaled(rule.metric) is None and ink.logarithmic(known)
    norm = LogNorm(low, high) if log else Normalize(low, high)
    name = grid.name(rule.metric)

    def make(notes: list[str]) -> Figure:
        each = (ds[axis].values.tolist() for axis in (along, up))
        names, sides = ([heads.get(v) or printable(number(v)) for v in values] for values in each)
        many = up != "algorithm"
        panels = {head: squares.sel(algorithm=name) for name, head in heads.items()}
        panels = panels if many else {"": squares}
        axes = {grid.name(along) + " (asked for)" * unmet: names, grid.name(up) * many: sides}
        panels = {head: here.transpose(up, along) for head, here in panels.items()}
        figure, mesh = _squares(on, panels, axes, norm, rule.sign, notes)
        end: Any = "max" if cut else "neither"
        bar = figure.colorbar(mesh, ax=figure.axes, fraction=0.08, aspect=12, pad=0.02, extend=end)
        better = {1: "\n(lower is better)", -1: "\n(higher is better)", 0: ""}[rule.sign]
        bar.set_label(name.split(" (")[0] + better, fontsize=ink.SMALL - 1)
        bar.ax.tick_params(labelsize=ink.SMALL, length=2, pad=2)
        bar.outline.set_visible(False)
        if log:
            ink.powers(bar.ax.yaxis, low, high)
        return figure

    more = [f"All values above {number(high)} have one colour." * cut, proven]
    what = f"The final {name} of each setting."
    return _finished(make, what, grid, cells, setting, "Means over seeds", *more)


def _squares(
    on: Sheet,
    panels: Mapping[str, xarray.Dataset],
    axes: Mapping[str, Sequence[str]],
    norm: Any,
    sign: int,
    notes: Sequence[str],
) -> tuple[Figure, Any]:
    """A panel of squares under each title, with their values where there is room."""
    (across, names), (up, sides) = axes.items()
    width = (on.width or ink.FULL) - 1.0 - ink.CHARACTER * ink.SMALL * max(map(len, sides))
    columns = min(len(panels), max(1, int(width / (CELL[0] * len(names) + 0.1))))
    rows, square = math.ceil(len(panels) / columns), width / columns / len(names)  # in inches
    every = math.ceil(ink.CHARACTER * ink.SMALL * (max(map(len, names)) + 1) / square)
    figure = ink.frame(on, rows * (CELL[1] * max(3, len(sides)) + 0.45), {}, notes)
    axs = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    letter: Any = {"rotation": 0, "va": "center", "ha": "right"}  # one that lies is another one
    for ax in axs[len(panels) :]:
        ax.remove()
    for i, (ax, (head, here)) in enumerate(zip(axs, panels.items(), strict=False)):
        ax.patch.set(facecolor="#F2F2F2", edgecolor="#BBBBBB", hatch="///")
        ax.tick_params(length=0, pad=2, labelsize=ink.SMALL)
        ax.spines[:].set_visible(False)
        ax.set_xticks(np.arange(0, len(names), every) + 0.5, names[::every], parse_math=False)
        ax.set_yticks(np.arange(len(sides)) + 0.5, sides, parse_math=False)
        ax.set_xlabel(across, fontsize=ink.TEXT)
        ax.set_ylabel(up * (i % columns == 0), fontsize=ink.TEXT, **letter if len(up) == 1 else {})
        ax.set_title(**ink.fitted(head, width / columns, "label"), pad=3)
        look: Any = {"norm": norm, "edgecolors": "white", "linewidth": 0.8}
        mesh = ax.pcolormesh(here["value"], cmap="viridis" + "_r" * (sign > 0), **look)
        for (k, j), value in np.ndenumerate(here["value"].values):
            words, color = "diverged" if here["lost"].values[k, j] else "not run", ink.GREY
            box: Any = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
            if not math.isnan(value):
                dark = (value > norm.vmax or norm(value) > 0.5) == (sign > 0)
                words, color, box = f"{value:#.3g}".rstrip("."), "white" if dark else "black", None
            if len(words) * ink.CHARACTER * ink.SMALL <= square:
                place: Any = {"ha": "center", "va": "center", "fontsize": ink.SMALL}
                ax.text(j + 0.5, k + 0.5, words, color=color, bbox=box, **place)
    if not up:  # the first algorithm on top, as in legends
        ax.invert_yaxis()
    return figure, mesh


# --- curves: a metric against rounds, bits and gradients, means over seeds with bands ------------


def _curves(grid: Grid, rule: Criterion, on: Sheet, setting: list[str]) -> Figure:
    """Against rounds alone where there are several rows of panels."""
    found, name = scene(grid), grid.name(rule.metric)
    rows, alongs = found.rows(on), list(ALONG)
    if len(rows) > 1:
        alongs = alongs[:1]
    for along in alongs[1:]:  # what is the same in each round would show the rounds again
        ended = grid.flat(grid.ended.to_dataset(name="ended"))["ended"]
        rate = (grid.ends(along) / ended).mean("seed")
        if not rate.max() - rate.min() > SAME * rate.max():
            alongs.remove(along)
    drawn = {along: lines(grid, rule.metric, along) for along in alongs}

    def curves_of(along: str, head: str, part: pandas.DataFrame) -> Panel:
        looks = zip(part.index, found.looks(part), strict=True)
        own = [drawn[along][i]._replace(**look) for i, look in looks]
        out = panel(grid, rule.metric, along, [*found.legend(), *own], head)
        return out._replace(up=out.up + found.whose(part))

    panels = [[curves_of(along, *each) for each in row] for along in alongs for row in rows]
    if len(panels[0]) == len(rows) == 1:
        panels = on.rows([*itertools.chain(*panels)])
    clients = grid.per_client(rule.metric)
    spread = "" if clients else "Bands: standard error"
    more = OF_CLIENTS * clients, _whole(grid, [part for row in rows for _, part in row])
    what = f"The {name} against {' and '.join(called(grid.ds, one) for one in alongs)} so far."
    make = functools.partial(ink.picture, on, panels)
    return _finished(make, what, grid, found.cells, setting, spread, *more)


def _whole(grid: Grid, parts: Iterable[pandas.DataFrame]) -> str:
    """A note where a panel has several curves whose eps is known."""
    return WHOLE.format(grid.name("eps_spent")) * any(part["proven"].sum() > 1 for part in parts)


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


def panel(grid: Grid, metric: str, along: str, drawn: list[Line], head: str = "") -> Panel:
    """Lines of a metric in a panel of their own."""
    axis, log = across(grid.ds, along)[1], False if along == "round" else None
    return Panel(head, axis, grid.name(metric), drawn, log, scaled(metric), _start(grid, metric))


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
    unlike = f"There are {len(runs)} labels for {len(pairs)} results"
    require(len(runs) == len(pairs) > 0, unlike, "give at least one, each with a label of its own")
    each = [run.ds for run in runs.values()]
    grid = Grid.of(xarray.concat(each, "algorithm", join="outer", combine_attrs="override"))
    second = next(iter(grid.besides(SECOND)), "loss")
    drawn = {bound.metric for bound in bounds if bound.values is not None}
    shown = list(dict.fromkeys(["loss", second, *drawn] if metrics is None else metrics))
    grid.check(*shown, clients=True)
    more = [f"{bound.note.rstrip('.')}." for bound in bounds if bound.note]
    more += [*_sent(grid, grid.cells), *[OF_CLIENTS] * any(map(grid.per_client, shown))]
    rates = {float(run.ds["uplink_bits"].max() / run.ds["round"].max()) for run in runs.values()}
    alongs = ["round", "uplink_bits"] if len(rates) > 1 else ["round"]
    where = dict.fromkeys(shown, alongs)
    if metrics is None and "eps_spent" in grid.ds:
        sent = "uplink_bits" if grid.cells["n"].max() > 1 else "round"  # one client sends nothing
        where["eps_spent"] = alongs if len(runs) > 1 else [sent]
        last = any("loss" in rule for rule in grid.about["settings"].get("stop") or ())
        said = "ε: of all that was released up to the next round for which it is computed"
        more.append(said + ", and at the end of all planned rounds" * last + ".")
    else:
        more += filter(None, [_whole(grid, [grid.cells])])
    setting, *others = ([*run.setting()] for run in runs.values())
    common = ", ".join(words for words in setting if all(words in other for other in others))
    name = common if others else f"{grid.cells['algorithm'].item()}: {common}"
    on, heading = ink.sheet(name, look)
    rows = [[_drawn(grid, n, along, bounds) for along in alongs] for n, alongs in where.items()]
    if len(runs) == 1:
        rows = on.rows([*itertools.chain(*rows)])
    brief = [*heading, *_said(runs, claim=False, whom=False)]
    figure = ink.picture(on, rows, [*brief, *more])
    rest = str(figure.get_label()).splitlines()[len(brief) :]
    figure.set_label("\n".join([f"{name}.", *_said(runs), *rest]))
    if path is not None:
        ink.write(figure, Path(path))
    return figure


def _said(runs: Mapping[str, Grid], **how: bool) -> Iterator[str]:
    """The privacy of each run, and how it ended unless as planned."""
    for label, run in runs.items():
        ended = [run.about["ended"]] * (run.about["ended"] != "finished")
        for words in (greek(results.privacy(run.about, **how)), *ended):
            yield f"{label}: " * bool(label) + f"{words}."


def _drawn(grid: Grid, name: str, along: str, bounds: Sequence[Bound]) -> Panel:
    """The line of each run; of a single one a second metric behind it, and its bounds."""
    drawn = [*lines(grid, name, along).values()]
    if name == "eps_spent":  # between two values of eps the later holds
        drawn = [line._replace(steps="steps-pre") for line in drawn]
    if len(drawn) > 1:
        labels = enumerate(zip(drawn, grid.cells["algorithm"], strict=True))
        drawn = [line._replace(label=l, color=i, style=i) for i, (line, l) in labels]
        return panel(grid, name, along, drawn)
    behind, own, other = ROWS.get(name, ("", "", ""))
    out = panel(grid, name, along, [drawn[0]._replace(**_look(name))])
    if behind not in grid.ds or (grid.cells["n"].max() == 1 and "client" in behind):
        return out
    (second,) = lines(grid, behind, along).values()
    pairs = (second._replace(width=1.0), other), (drawn[0], own)
    drawn = [line._replace(label=l.replace("training", grid.on), **_look(l)) for line, l in pairs]
    drawn.insert(0, drawn[1]._replace(x=[], y=[], error=None))  # the first in the legend
    for bound in bounds:
        if bound.metric == name and bound.values is not None:
            at = grid.ds[along].squeeze().sel(round=bound.rounds).values
            look = {"style": 2} if len(at) > 1 else {"style": "none", "marker": "_"}
            x = at / across(grid.ds, along)[0]
            drawn.append(Line(bound.label, x, bound.values, color=GREY, **look))
    # the axis of both accuracies has the name of neither
    return out._replace(lines=drawn, up=out.up.removeprefix("test ") if own == "test" else out.up)


def _look(what: str) -> dict[str, Any]:
    """The colour and the style in all panels of a run: the first ones are of all clients' data."""
    place = next((i for i, word in enumerate(PLACES) if what.startswith(word)), 0)
    return {"color": place, "style": place % 3}
