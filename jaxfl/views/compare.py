"""Two sweeps, or two runs, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxfl.core.errors import InputError, require
from jaxfl.core.progress import plural
from jaxfl.engine import results
from jaxfl.views.cells import as_sweep, axes, ends, is_sweep, stated
from jaxfl.views.rows import shown_metrics
from jaxfl.views.tables import Estimate, Table, Value, by_rows, eps_words, estimates
from jaxfl.views.words import SYMBOLS, label, number, prefix

if TYPE_CHECKING:
    import xarray

__all__ = ["compare"]

SETTINGS = ("algorithm", "problem", "model", "data", "objective", "dtype")
PRINTS = ("data", "objective")  # of which results keep fingerprints, which mean nothing to a reader
SAME_BY_EPS = {"used_eps", "used_delta", "used_noise_constant"}  # the proven eps follows from them
DIGITS = 9  # of a number that names a place on an axis
LISTED = 4  # cells of one side alone that a note names


def compare(
    a: xarray.Dataset,
    b: xarray.Dataset,
    *,
    names: tuple[str, str] = ("A", "B"),
    metrics: Sequence[str] | None = None,
) -> Table:
    """Final values where two sweeps (or two runs) have the same settings, and ``b - a``.

    The difference has a standard error: of the differences per seed where both sweeps share their
    draws and have the same seeds, else from the errors of both.  An axis that only one has may
    hold one value.  Notes below list settings of one side alone, and what else differs.
    """
    import xarray

    single = [not is_sweep(ds) for ds in (a, b)]
    alone = all(single)
    if any(single) and not alone:
        run, sweep = names[single.index(True)], names[single.index(False)]
        raise InputError(f"{run} is a single run and {sweep} a sweep", "compare two of a kind")
    both = [as_sweep(ds) if alone else ds for ds in (a, b)]
    common = [name for name in axes(both[0]) if name in axes(both[1])]
    notes = [
        note for ds, name in zip(both, names, strict=True) for note in _alone(ds, common, name)
    ]
    first, second = (shown_metrics(ds, metrics) for ds in both)
    shown = [name for name in first if name in second]
    flats = [_keyed(ends(ds, *shown, "uplink_bits"), common) for ds in both]
    one, two = xarray.align(*flats, join="inner", exclude=["seed"])
    none = f"{names[0]} and {names[1]} have no setting in common"
    require(one.sizes["cell"], none, lambda: f"their values of {', '.join(common)} differ")
    varied = [name for name in common if len(set(one[name].values)) > 1]
    heads = {name: SYMBOLS.get(name, name) for name in varied} | {"metric": "metric"}
    heads |= {f"{side} {name}": name for side, name in zip("ab", names, strict=True)}
    heads |= {"difference": "difference"}
    paired = _paired(*both)
    lines = [*_measured(one, two, [*shown, "uplink_bits"], paired), _proven(one, two)]
    places = zip(*(one[name].values for name in varied), strict=True) if varied else iter([()])
    rows = [
        (*place, *line)
        for place, cell in zip(places, zip(*lines, strict=True), strict=True)
        for line in cell
        if line
    ]
    for flat, name in zip(flats, names, strict=True):
        if (left := flat.drop_sel(cell=one["cell"])).sizes["cell"]:
            notes.append(f"Only in {name}: {_listed(left, common)}.")
    notes += _lost(one, names[0]) + _lost(two, names[1])
    for what, differ in {**_settings(*both), **_values(one, two, common)}.items():
        sides = f": {differ[0]} in {names[0]}, {differ[1]} in {names[1]}" if differ else ""
        notes.append(f"Different {what}{sides}.")
    if max(ds.sizes["seed"] for ds in both) > 1:
        how = "paired by seed" if paired else "of unpaired seeds"
        notes.append(f"± standard error over seeds; differences are {how}.")
    notes.append(f"A difference is {names[1]} minus {names[0]}.")
    title = f"{names[0]} and {names[1]}"
    if not alone:
        title += f": {plural(one.sizes['cell'], 'common setting')}"
    return Table(title, by_rows(heads, rows), tuple(notes))


# --- pieces --------------------------------------------------------------------------------------


def _alone(ds: xarray.Dataset, common: list[str], name: str) -> list[str]:
    """Notes on axes of one side alone; raises if one varies."""
    notes = []
    for axis in axes(ds):
        if axis in common:
            continue
        values = ds[axis].values.tolist()
        if len(values) > 1:
            raise InputError(
                f"Only {name} has the axis {axis}, with {len(values)} values",
                f"keep one of them, as with --where {axis}={values[0]}, or choose over it",
            )
        notes.append(f"{label(axis, values[0])} in {name}.")
    return notes


def _keyed(flat: xarray.Dataset, common: list[str]) -> xarray.Dataset:
    """The cells, named by their labels on the common axes; numbers are rounded as names."""
    keys = [
        "; ".join(f"{v:.{DIGITS}g}" if isinstance(v, int | float) else str(v) for v in labels)
        for labels in zip(*(flat[axis].values for axis in common), strict=True)
    ]
    return flat.assign_coords(cell=keys)


def _measured(
    a: xarray.Dataset, b: xarray.Dataset, shown: list[str], paired: bool
) -> list[list[tuple[Value, ...]]]:
    """For each metric and every cell: its name, both sides and the difference."""
    out: list[list[tuple[Value, ...]]] = []
    for name in shown:
        words, by = name.replace("_", " "), 1.0
        if name == "uplink_bits":
            by, unit = prefix([ds[name].max() for ds in (a, b)], "bit")
            words = f"uplink ({unit})"
        one, two = (estimates(ds[name] / by) for ds in (a, b))
        differ = (
            estimates((b[name] - a[name].values) / by) if paired else map(_difference, one, two)
        )
        out.append([(words, *line) for line in zip(one, two, differ, strict=True)])
    return out


def _difference(a: Estimate, b: Estimate) -> Estimate:
    return Estimate(b.mean - a.mean, math.hypot(a.error, b.error))


def _proven(a: xarray.Dataset, b: xarray.Dataset) -> list[tuple[Value, ...]]:
    """The proven eps of every cell; nothing where neither side has noise."""
    sides = [
        list(map(eps_words, ds["noisy"].values > 0, ds["proven_eps"].values, stated(ds).values))
        for ds in (a, b)
    ]
    out: list[tuple[Value, ...]] = []
    for x, y in zip(*sides, strict=True):
        known = isinstance(x, float) and isinstance(y, float)
        noise = (x, y) != ("no noise", "no noise")
        out.append(("proven ε", x, y, y - x if known else None) if noise else ())
    return out


def _paired(a: xarray.Dataset, b: xarray.Dataset) -> bool:
    """Whether both sides share the draws of each seed."""
    one, two = (results.config(ds) for ds in (a, b))
    shared = one["paired"] and two["paired"] and one["settings"]["key"] == two["settings"]["key"]
    return bool(shared) and a["seed"].values.tolist() == b["seed"].values.tolist()


def _listed(left: xarray.Dataset, common: list[str]) -> str:
    words = [
        ", ".join(label(name, v) for name, v in zip(common, labels, strict=True) if v is not None)
        for labels in zip(*(left[name].values[:LISTED] for name in common), strict=True)
    ]
    more = left.sizes["cell"] - LISTED
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


def _settings(a: xarray.Dataset, b: xarray.Dataset) -> dict[str, tuple[str, ...]]:
    """The settings that differ, on both sides where a reader knows them."""
    whole = [results.config(ds) for ds in (a, b)]
    one, two = ({**about["settings"], "noise": about.get("noise")} for about in whole)
    return {
        name: () if name in PRINTS else (one[name], two[name])
        for name in (*SETTINGS, "noise")
        if one.get(name) and two.get(name) and one[name] != two[name]
    }


def _values(a: xarray.Dataset, b: xarray.Dataset, common: list[str]) -> dict[str, tuple[str, ...]]:
    """The hyper-parameters of the common cells that differ, on both sides where all differ alike."""
    out = {}
    # last_round holds the rounds, also where they are no hyper-parameter
    skip = {f"used_{name}" for name in common} | SAME_BY_EPS | {"used_rounds"}
    used = [str(name) for name in a if str(name).startswith("used_") and name in b]
    for name in ["last_round", *(name for name in used if name not in skip)]:
        x, y = (np.asarray(ds.isel(seed=0)[name].values, np.float64) for ds in (a, b))
        unlike = ~np.isclose(x, y, 1e-6, 0, equal_nan=True)
        pairs = {*zip(x[unlike].tolist(), y[unlike].tolist(), strict=True)}
        what = "rounds" if name == "last_round" else name.removeprefix("used_")
        if pairs:
            differ = tuple(map(number, pairs.pop())) if len(pairs) == 1 else ()
            out[f"{what} in {unlike.sum()} of {unlike.size} settings"] = differ
    return out


def _lost(flat: xarray.Dataset, name: str) -> list[str]:
    """The reasons why compared values are missing."""
    first = flat["diverged_at"].min("seed").dropna("cell").values
    missing = int((flat["complete"] == 0).any("seed").sum())
    of = f"of {plural(flat.sizes['cell'], 'compared setting')}"
    out = []
    if len(first):
        out += [f"In {name} {len(first)} {of} diverged, the first by round {min(first):.0f}."]
    if missing:
        out += [f"In {name} {missing} {of} did not run."]
    return out
