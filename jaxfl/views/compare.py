"""Two sweeps, or two runs, side by side."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxfl import results
from jaxfl.errors import InputError
from jaxfl.views.cells import Array, Cell, Index, axes, cells, final, over_seeds
from jaxfl.views.rows import shown_metrics
from jaxfl.views.tables import Column, Estimate, Table, Value
from jaxfl.views.words import SYMBOLS, label, number, prefix

if TYPE_CHECKING:
    import xarray

__all__ = ["as_sweep", "compare"]

SETTINGS = ("problem", "model", "data", "objective", "dtype")  # that make numbers comparable
# of these a result keeps fingerprints, which say nothing to a reader
PRINTS = {
    "data": "They learn from different data.",
    "objective": "Their objectives differ (loss, regularizer or constraint).",
}
SAME_BY_EPS = {"used_eps", "used_delta", "used_noise_constant"}  # the proven eps says it
DIGITS = 9  # of a number that names a place on an axis
LISTED = 4  # cells of one side alone that a note names


def compare(
    a: xarray.Dataset,
    b: xarray.Dataset,
    *,
    names: tuple[str, str] = ("A", "B"),
    metrics: Sequence[str] | None = None,
) -> Table:
    """Final values where two sweeps (or two runs) have the same cells, and ``b - a``.

    The difference has a standard error: of the differences per seed where both sweeps share their
    draws and have the same seeds, else from the errors of both.  An axis that only one has may
    hold one value.  What is on one side alone, and settings that differ, are said below.
    """
    single = [results.config(ds).get("kind") != "sweep" for ds in (a, b)]
    if any(single) and not all(single):
        raise InputError(
            f"{names[single.index(True)]} is a single run and {names[single.index(False)]} a sweep: "
            "compare two of a kind."
        )
    first, second = (
        as_sweep(ds) if alone else ds for ds, alone in zip((a, b), single, strict=True)
    )
    common = [name for name in axes(first) if name in axes(second)]
    notes = _alone(first, common, names[0]) + _alone(second, common, names[1])
    measured = shown_metrics(second, metrics)
    shown = [name for name in shown_metrics(first, metrics) if name in measured]
    cells_a, cells_b = _keyed(first, common), _keyed(second, common)
    both = [key for key in cells_a if key in cells_b]
    if not both:
        raise InputError(
            f"{names[0]} and {names[1]} have no cell in common: their values of "
            f"{', '.join(common)} differ."
        )
    paired = _paired(first, second)
    varied = [name for name in common if len({key[common.index(name)] for key in both}) > 1]
    columns = [
        *(Column(name, SYMBOLS.get(name, name)) for name in varied),
        Column("metric", "metric"),
        *(Column(f"{side} {name}", name) for side, name in zip("ab", names, strict=True)),
        Column("difference", "difference"),
    ]
    lines = _measured(first, second, shown, paired)
    rows = [
        (*(cells_a[key].labels[name] for name in varied), *line)
        for key in both
        for line in lines(cells_a[key].at, cells_b[key].at)
    ]
    for cells_of, others, name in ((cells_a, cells_b, names[0]), (cells_b, cells_a, names[1])):
        left = [key for key in cells_of if key not in others]
        if left:
            notes.append(f"Only in {name}: {_listed(left, common)}.")
    pairs = [(cells_a[key].at, cells_b[key].at) for key in both]
    for ds, name, side in zip((first, second), names, zip(*pairs, strict=True), strict=True):
        notes += _lost(ds, name, side, alone=all(single))
    notes += _differing(first, second, names)
    notes += _unlike(first, second, pairs, names)
    if first.sizes["seed"] > 1 or second.sizes["seed"] > 1:
        how = "paired by seed" if paired else "of unpaired seeds"
        notes.append(f"± standard error over seeds; differences are {how}.")
    title = f"{names[0]} and {names[1]}"
    if not all(single):
        title += f": {len(both)} common cell" + "s" * (len(both) > 1)
    return Table(title, tuple(columns), tuple(rows), notes=tuple(notes))


def as_sweep(ds: xarray.Dataset) -> xarray.Dataset:
    """A single run as a sweep with one cell and one seed, to be read by the same functions."""
    about = results.config(ds)
    found = about["privacy"]
    series = [str(name) for name, v in ds.data_vars.items() if v.dims == ("round",)]
    out = ds[series].expand_dims(["algorithm", "seed"])
    rounds = ds["round"].values
    loss = np.isfinite(ds["loss"].values)
    lost = math.nan if loss.all() else float(rounds[loss.argmin()])
    both, one = ("algorithm", "seed"), ("algorithm",)
    out = out.assign(
        last_round=(both, np.array([[rounds[-1]]], np.int32)),
        diverged_at=(both, np.array([[lost]])),
        complete=(both, np.ones((1, 1), np.int8)),
        proven_eps=(one, np.array([float(found["proven"]) if found else math.inf])),
        claimed_eps=(one, np.array([_claim(found)])),
        delta=(one, np.array([float(found["delta"]) if found else math.nan])),
        flag=(one, np.array([bool(found and found["flag"])], np.int8)),
        noisy=(one, np.array([bool(found)], np.int8)),
        n=(one, np.array([about["facts"]["n"]], np.int32)),
        broken=(one, np.array([math.nan])),
    )
    used = {f"used_{name}": (one, np.array([value])) for name, value in _numbers(about).items()}
    out = out.assign(used).assign_coords(algorithm=["run"], seed=np.zeros(1, np.int32))
    config = {
        **{name: about[name] for name in ("format", "settings", "facts", "values", "ended")},
        "kind": "sweep",
        "axes": {"algorithm": {"values": ["run"], "static": True}},
        "paired": False,
    }
    return out.assign_attrs(config=json.dumps(config))


# --- pieces --------------------------------------------------------------------------------------


def _numbers(about: dict[str, Any]) -> dict[str, float]:
    """The numbers that a run used; schedules left out."""
    out = {}
    for name, told in about["values"].items():
        with contextlib.suppress(TypeError, ValueError):
            out[name] = float(told)
    return out


def _claim(found: dict[str, Any] | None) -> float:
    return float(found["claimed"]) if found and found["claimed"] is not None else math.nan


def _alone(ds: xarray.Dataset, common: list[str], name: str) -> list[str]:
    """Axes of one side alone, which may not vary."""
    notes = []
    for axis in axes(ds):
        if axis in common:
            continue
        values = ds[axis].values.tolist()
        if len(values) > 1:
            raise InputError(
                f"Only {name} has the axis {axis}, with {len(values)} values: keep one of them, as with "
                f"--where {axis}={values[0]}, or choose over it."
            )
        notes.append(f"{label(axis, values[0])} in {name}.")
    return notes


def _keyed(ds: xarray.Dataset, common: list[str]) -> dict[tuple[Any, ...], Cell]:
    """Cells by their labels on the common axes, numbers rounded as names."""

    def name(value: Any) -> Any:
        return float(f"{value:.{DIGITS}g}") if isinstance(value, int | float) else value

    return {tuple(name(cell.labels[axis]) for axis in common): cell for cell in cells(ds)}


def _measured(
    a: xarray.Dataset, b: xarray.Dataset, shown: list[str], paired: bool
) -> Callable[[Index, Index], list[tuple[Value, ...]]]:
    """For two places: each metric, what it cost and what is proven, on both sides."""
    values: list[tuple[str, Array, Array]] = [
        (m.replace("_", " "), final(a, m).values, final(b, m).values) for m in shown
    ]
    bits = [final(ds, "uplink_bits").values for ds in (a, b)]
    scale, unit = prefix(np.concatenate([x.ravel() for x in bits]), "bit")
    values.append((f"uplink ({unit})", bits[0] / scale, bits[1] / scale))
    proven = [ds["proven_eps"].transpose(*axes(ds)).values for ds in (a, b)]
    noisy = [ds["noisy"].transpose(*axes(ds)).values.astype(bool) for ds in (a, b)]

    def lines(at_a: Index, at_b: Index) -> list[tuple[Value, ...]]:
        out: list[tuple[Value, ...]] = []
        for name, one, two in values:
            x, y = one[at_a], two[at_b]
            sides = [Estimate(*map(float, over_seeds(v))) for v in (x, y)]
            out.append((name, *sides, _difference(x, y, paired)))
        at = (at_a, at_b)
        if any(mask[i] for mask, i in zip(noisy, at, strict=True)):
            eps = [
                "no noise" if not mask[i] else "none" if math.isinf(p[i]) else float(p[i])
                for mask, p, i in zip(noisy, proven, at, strict=True)
            ]
            known = [e for e in eps if isinstance(e, float)]
            out.append(("proven ε", *eps, known[1] - known[0] if len(known) == 2 else None))
        return out

    return lines


def _paired(a: xarray.Dataset, b: xarray.Dataset) -> bool:
    """Whether a seed means the same draws on both sides."""
    one, two = (results.config(ds) for ds in (a, b))
    shared = one["paired"] and two["paired"] and one["settings"]["key"] == two["settings"]["key"]
    return bool(shared) and a["seed"].values.tolist() == b["seed"].values.tolist()


def _difference(x: Any, y: Any, paired: bool) -> Estimate:
    if paired:
        return Estimate(*map(float, over_seeds(y - x)))
    (a, error_a), (b, error_b) = over_seeds(x), over_seeds(y)
    return Estimate(float(b - a), math.hypot(error_a, error_b))


def _listed(keys: list[tuple[Any, ...]], common: list[str]) -> str:
    words = [
        ", ".join(label(name, v) for name, v in zip(common, key, strict=True) if v is not None)
        for key in keys[:LISTED]
    ]
    more = len(keys) - LISTED
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


def _unlike(
    a: xarray.Dataset, b: xarray.Dataset, pairs: list[tuple[Index, Index]], names: tuple[str, str]
) -> list[str]:
    """Numbers that the common cells used and that are not the same on both sides."""
    notes = []
    # last_round says the rounds, also where they were none of the numbers
    skip = {f"used_{name}" for name in axes(a) if name in axes(b)} | SAME_BY_EPS | {"used_rounds"}
    wanted = [str(name) for name in a.data_vars if str(name).startswith("used_") and name in b]
    for name in ["last_round", *(name for name in wanted if name not in skip)]:
        one, two = (_at(ds, name) for ds in (a, b))
        unlike = [
            (one[i], two[j])
            for i, j in pairs
            if not np.isclose(one[i], two[j], 1e-6, 0, equal_nan=True)
        ]
        if not unlike:
            continue
        words = "Their rounds differ"
        if name != "last_round":
            words = f"{name.removeprefix('used_')} differs"
        if len(set(unlike)) == 1:
            x, y = (number(value) for value in unlike[0])
            where = "" if len(unlike) == len(pairs) else f" in {len(unlike)} of {len(pairs)} cells"
            notes.append(f"{words}{where}: {x} in {names[0]}, {y} in {names[1]}.")
        else:
            notes.append(f"{words} in {len(unlike)} of {len(pairs)} cells.")
    return notes


def _lost(ds: xarray.Dataset, name: str, places: Sequence[Index], alone: bool) -> list[str]:
    """Why some of the compared values are missing: "-" alone could mean anything."""
    first = ds["diverged_at"].transpose(*axes(ds), "seed").values
    complete = ds["complete"].transpose(*axes(ds), "seed").values
    lost = [float(np.nanmin(first[at])) for at in places if np.isfinite(first[at]).any()]
    if alone:
        return [f"{name} diverged: its loss is not finite from round {v:.0f} on." for v in lost]
    left = sum(not complete[at].all() for at in places)
    many = f"of {len(places)} compared cells"
    notes = [f"In {name} {len(lost)} {many} diverged and {_have(len(lost))} no value."] * bool(lost)
    return notes + [f"In {name} {left} {many} {_have(left)} not run."] * bool(left)


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _at(ds: xarray.Dataset, name: str) -> Array:
    """A number of every cell, of its first seed."""
    values = ds[name].isel(seed=0) if "seed" in ds[name].dims else ds[name]
    out: Array = values.transpose(*axes(ds)).values.astype(np.float64)
    return out


def _differing(a: xarray.Dataset, b: xarray.Dataset, names: tuple[str, str]) -> list[str]:
    """What makes the comparison one of different things."""
    whole = [results.config(ds) for ds in (a, b)]
    one, two = ({**about["settings"], "noise": about.get("noise")} for about in whole)
    return [
        PRINTS.get(key, f"{key} differs: {one[key]} in {names[0]}, {two[key]} in {names[1]}.")
        for key in ("algorithm", *SETTINGS, "noise")
        if one.get(key) and two.get(key) and one[key] != two[key]
    ]
