"""Two results side by side, of sweeps or of runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxfl.core.errors import require
from jaxfl.core.progress import plural
from jaxfl.views.cells import Grid, is_sweep
from jaxfl.views.rows import shown_metrics
from jaxfl.views.tables import Estimate, Table, Value, by_rows, eps_words, estimates
from jaxfl.views.words import number, prefix, span

if TYPE_CHECKING:
    import pandas
    import xarray

__all__ = ["compare"]

SETTINGS = ("algorithm", "problem", "model", "dtype", "noise")
OBJECTIVE = (
    "the loss of the first record",
    "the regularizer",
    "the constraint or the model's size",
)
# the proven eps follows from the first three, and last_round holds the rounds
LEFT_OUT = {"used_eps", "used_delta", "used_noise_constant", "used_rounds"}
LISTED = 4  # cells of one side alone that a note names


def compare(
    a: xarray.Dataset,
    b: xarray.Dataset,
    *,
    names: tuple[str, str] = ("A", "B"),
    metrics: Sequence[str] | None = None,
) -> Table:
    """Final values where two results have the same settings, and ``b - a``.

    The difference has a standard error: of the differences per seed where both sweeps share their
    draws and have the same seeds, else from the errors of both.  An axis that only one has may
    hold one value.  Two runs are compared whatever their algorithms are.  Notes below list settings of
    one side alone, and what else differs.
    """
    alone = not (is_sweep(a) or is_sweep(b))
    both = [Grid.of(ds, "run" * alone) for ds in (a, b)]
    sides = list(zip(both, names, strict=True))
    common = [axis for axis in both[0].axes if axis in both[1].axes]
    notes = [note for grid, name in sides for note in _alone(grid, common, name)]
    first, second = (shown_metrics(grid, metrics) for grid in both)
    shown = [name for name in first if name in second]
    keys = [_keys(grid, common) for grid in both]
    shared = keys[0][keys[0].isin(keys[1])]
    none = f"{names[0]} and {names[1]} have no setting in common"
    require(len(shared), none, lambda: f"their values of {', '.join(common)} differ")
    for (grid, name), key in zip(sides, keys, strict=True):
        if len(left := grid.cells[~key.isin(shared).to_numpy()]):
            notes.append(f"Only in {name}: {_listed(grid, left, common)}.")
    one, two = (_aligned(grid, key, shared) for grid, key in zip(both, keys, strict=True))
    varied = [axis for axis in common if one.cells[axis].nunique(dropna=False) > 1]
    heads = {axis: one.short(axis) for axis in varied} | {"metric": "metric"}
    heads |= {f"{side} {name}": name for side, name in zip("ab", names, strict=True)}
    heads |= {"difference": "difference"}
    paired = _paired(*both)
    lines = [_measured(one, two, name, paired) for name in [*shown, "uplink_bits"]]
    lines.append(_proven(one.cells, two.cells))
    places = one.cells[varied].itertuples(index=False, name=None)
    rows = [
        (*place, *line)
        for place, cell in zip(places, zip(*lines, strict=True), strict=True)
        for line in cell
        if line
    ]
    notes += _lost(one, names[0]) + _lost(two, names[1])
    for what, *values in (*_settings(*both), *_values(one.cells, two.cells, common)):
        said = [f"{value} in {name}" for value, name in zip(values, names, strict=False)]
        notes.append(f"Different {': '.join(filter(None, [what, ', '.join(said)]))}.")
    if max(grid.ds.sizes["seed"] for grid in both) > 1:
        how = "paired by seed" if paired else "of unpaired seeds"
        notes.append(f"± standard error over seeds; differences are {how}.")
    notes.append(f"A difference is {names[1]} minus {names[0]}.")
    title = f"{names[0]} and {names[1]}"
    title += f": {plural(len(shared), 'common setting')}" * (not alone)
    return Table(title, by_rows(heads, rows), tuple(notes))


# --- settings ------------------------------------------------------------------------------------


def _alone(grid: Grid, common: list[str], name: str) -> Iterator[str]:
    """Notes on axes of one side alone; raises if one varies."""
    for axis in (axis for axis in grid.axes if axis not in common):
        values = grid.ds[axis].values.tolist()
        require(
            len(values) == 1,
            f"Only {name} has the axis {axis}, with {len(values)} values",
            f"keep one of them, as with --where {axis}={values[0]}, or choose over it",
        )
        yield f"{grid.label(axis, values[0])} in {name}."


def _keys(grid: Grid, common: list[str]) -> pandas.Series:
    """The names of cells, by their labels on the common axes; numbers are rounded."""
    labels = grid.cells[common].map(lambda v: f"{v:.9g}" if isinstance(v, int | float) else str(v))
    return labels.agg("; ".join, axis="columns")


def _aligned(grid: Grid, keys: pandas.Series, shared: pandas.Series) -> Grid:
    """The cells with the shared names, in their order."""
    places = keys.reset_index().set_index(0).loc[shared]["index"]
    return dataclasses.replace(grid, cells=grid.cells.loc[places])


def _listed(grid: Grid, left: pandas.DataFrame, common: list[str]) -> str:
    words = [
        ", ".join(grid.label(name, v) for name, v in labels.items() if v is not None)
        for labels in left[common][:LISTED].to_dict("records")
    ]
    more = len(left) - LISTED
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


# --- values --------------------------------------------------------------------------------------


def _measured(a: Grid, b: Grid, name: str, paired: bool) -> list[tuple[Value, ...]]:
    """Of every cell the metric's name, both sides and the difference."""
    words, by = name.replace("_", " "), 1.0
    first, second = a.ends(name), b.ends(name)
    if name == "uplink_bits":
        by, unit = prefix([first.max(), second.max()], "bit")
        words = f"uplink ({unit})"
    one, two = estimates(first / by), estimates(second / by)
    pairs = zip(one, two, strict=True)
    differ = [Estimate(y.mean - x.mean, math.hypot(x.error, y.error)) for x, y in pairs]
    if paired:
        differ = estimates((second - first.values) / by)
    return [(words, *line) for line in zip(one, two, differ, strict=True)]


def _proven(a: pandas.DataFrame, b: pandas.DataFrame) -> list[tuple[Value, ...]]:
    """The proven eps of every cell; nothing where neither side has noise."""
    sides = [map(eps_words, c["noisy"], c["proven_eps"], c["stated"]) for c in (a, b)]
    out: list[tuple[Value, ...]] = []
    for x, y in zip(*sides, strict=True):
        known = isinstance(x, float) and isinstance(y, float)
        noise = (x, y) != ("no noise", "no noise")
        out.append(("proven ε", x, y, y - x if known else None) if noise else ())
    return out


def _paired(a: Grid, b: Grid) -> bool:
    """Whether both sides share the draws of each seed."""
    keys = [grid.about["settings"]["key"] for grid in (a, b)]
    shared = a.about["paired"] and b.about["paired"] and keys[0] == keys[1]
    return bool(shared) and a.ds["seed"].values.tolist() == b.ds["seed"].values.tolist()


# --- what else differs ---------------------------------------------------------------------------


def _settings(a: Grid, b: Grid) -> Iterator[tuple[str, ...]]:
    """The settings that differ, with their values or words for both."""
    one, two = ({**grid.about["settings"], "noise": grid.about.get("noise")} for grid in (a, b))
    differ = {name for name in one if one[name] and two.get(name) and one[name] != two[name]}
    yield from ((name, one[name], two[name]) for name in SETTINGS if name in differ)
    if "data" in differ:
        words = [_data(grid) for grid in (a, b)]
        if words[0] == words[1]:  # as of another seed of the split
            words = [f"{words[0]} of checksum {side['data']}" for side in (one, two)]
        yield "data", *words
    elif "objective" in differ:
        parts = zip(OBJECTIVE, one["objective"].split(), two["objective"].split(), strict=True)
        yield (f"objective, in {' and '.join(part for part, x, y in parts if x != y)}",)


def _data(grid: Grid) -> str:
    """The data set, and how it is split."""
    named, facts = grid.about["settings"], grid.about["facts"]
    records = f"{span([facts['m'], facts['m_max']])} records each" if "m_max" in facts else ""
    split = (named.get("partition"), f"{span(grid.cells['n'])} clients", records)
    return f"{named['problem']} ({', '.join(filter(None, split))})"


def _values(
    a: pandas.DataFrame, b: pandas.DataFrame, common: list[str]
) -> Iterator[tuple[str, ...]]:
    """The hyper-parameters of the common cells that differ, with both values where all differ alike."""
    skip = {f"used_{name}" for name in common} | LEFT_OUT
    used = [name for name in a if name.startswith("used_") and name in b and name not in skip]
    for name in ["last_round", *used]:
        x, y = (cells[name].to_numpy(np.float64) for cells in (a, b))
        unlike = ~np.isclose(x, y, 1e-6, 0, equal_nan=True)
        what = "rounds" if name == "last_round" else name.removeprefix("used_")
        pairs = {*zip(x[unlike].tolist(), y[unlike].tolist(), strict=True)}
        if pairs:
            values = map(number, pairs.pop()) if len(pairs) == 1 else ()
            yield f"{what} in {unlike.sum()} of {unlike.size} settings", *values


def _lost(grid: Grid, name: str) -> list[str]:
    """The reasons why compared values are missing."""
    lost = grid.flat(grid.ds[["diverged_at"]])["diverged_at"].min("seed").dropna("cell").values
    missing = (grid.cells["ran"] < grid.ds.sizes["seed"]).sum()
    of = f"of {plural(len(grid.cells), 'compared setting')}"
    out = [f"In {name} {missing} {of} did not run."] * bool(missing)
    if lost.size:
        out += [f"In {name} {lost.size} {of} diverged, the first by round {lost.min():.0f}."]
    return out
