"""Reading a sweep: its axes, its cells, and the values at their last rounds.

A cell is one setting, all seeds together.  Along an axis that an algorithm does not have, its
runs are copies of each other: they are read once, at the first place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl import results
from jaxfl.errors import InputError
from jaxfl.params import closest

if TYPE_CHECKING:
    import xarray

__all__ = [
    "Cell",
    "Index",
    "applying",
    "axes",
    "cells",
    "deltas",
    "final",
    "groups",
    "metrics",
    "over_seeds",
    "restrict",
]

Array: TypeAlias = npt.NDArray[Any]
Index: TypeAlias = tuple[int, ...]

CLOSE = 1e-9  # two numbers that name the same place on an axis differ by less, relatively
TOTALS = ("messages", "coordinates", "gradients", "clamped", "uplink_bits", "downlink_bits")


class Cell(NamedTuple):
    """Where a cell lies, and its label on every axis: None where the axis does not apply."""

    at: Index
    labels: dict[str, Any]


def axes(ds: xarray.Dataset) -> tuple[str, ...]:
    """The axes of the cells, in order: all but seeds and rounds."""
    if results.config(ds).get("kind") != "sweep":
        raise InputError("This result is of a single run, and a sweep is needed here.")
    return tuple(str(dim) for dim in ds["last_round"].dims if dim != "seed")


def groups(ds: xarray.Dataset) -> list[str]:
    """Axes whose values are not set against each other: those of the problem, and eps."""
    spans = results.config(ds)["axes"]
    return [name for name in axes(ds) if name == "eps" or spans[name].get("problem")]


def applying(ds: xarray.Dataset, axis: str) -> Array:
    """For every cell, whether its algorithm has this axis."""
    names = axes(ds)
    shape = tuple(ds.sizes[name] for name in names)
    if f"applies_{axis}" not in ds:
        return np.ones(shape, bool)
    mask = ds[f"applies_{axis}"].astype(bool)
    here = [name for name in names if name in mask.dims]
    places = [slice(None) if name in here else None for name in names]
    return np.broadcast_to(mask.transpose(*here).values[tuple(places)], shape)


def cells(ds: xarray.Dataset) -> list[Cell]:
    """All cells that differ, in the order of the axes."""
    names = axes(ds)
    has = [applying(ds, name) for name in names]
    values = [ds[name].values.tolist() for name in names]
    out = []
    for index in itertools.product(*(range(ds.sizes[name]) for name in names)):
        if all(mask[index] or i == 0 for mask, i in zip(has, index, strict=True)):
            labels = {
                name: value[i] if mask[index] else None
                for name, value, mask, i in zip(names, values, has, index, strict=True)
            }
            out.append(Cell(index, labels))
    return out


def metrics(ds: xarray.Dataset) -> list[str]:
    """Everything that was measured, totals of messages and bits apart."""
    return [str(n) for n, v in ds.data_vars.items() if "round" in v.dims and n not in TOTALS]


def final(ds: xarray.Dataset, name: str) -> xarray.DataArray:
    """The value of each cell and seed at its last round; NaN where it diverged or has not run."""
    import xarray

    known = [*metrics(ds), *TOTALS]
    if name not in known or name not in ds:
        raise InputError(closest("metric in this sweep named", name, metrics(ds)))
    dims = (*axes(ds), "seed")
    last, rounds = ds["last_round"].transpose(*dims).values, ds["round"].values
    place = np.searchsorted(rounds, last).clip(max=len(rounds) - 1)
    values = ds[name].transpose(*dims, "round").values.astype(np.float64)
    out = np.take_along_axis(values, place[..., None], -1)[..., 0]
    good = (rounds[place] == last) & np.isnan(ds["diverged_at"].transpose(*dims).values)
    good &= np.isfinite(out)
    coords = {dim: ds[dim] for dim in dims}
    return xarray.DataArray(np.where(good, out, np.nan), coords, dims, name, ds[name].attrs)


def deltas(ds: xarray.Dataset) -> str:
    """The variable that holds the delta of both eps: an axis has that name where it is spanned."""
    return "delta_of_eps" if "delta_of_eps" in ds else "delta"


def over_seeds(values: Array) -> tuple[Array, Array]:
    """Mean over the last axis and its standard error, NaN for a single seed.

    A seed that diverged makes both NaN: the mean of the others would flatter its cell.  Seeds that
    agree have no error, and rounding makes none.
    """
    count, first = values.shape[-1], values[..., 0]
    if count == 1:
        return first, np.full(values.shape[:-1], np.nan)
    alike = values.max(-1) == values.min(-1)
    mean, error = values.mean(-1), values.std(-1, ddof=1) / np.sqrt(count)
    return np.where(alike, first, mean), np.where(alike, 0.0, error)


def restrict(ds: xarray.Dataset, where: Mapping[str, Sequence[Any] | Any]) -> xarray.Dataset:
    """The part of a sweep with these values on these axes, in the sweep's order."""
    names = [*axes(ds), "seed"]
    for name, wanted in where.items():
        if name not in names:
            raise InputError(closest("axis in this sweep named", name, names))
        known = ds[name].values.tolist()
        listed = isinstance(wanted, Iterable) and not isinstance(wanted, str)
        chosen = list(wanted) if listed else [wanted]
        places = sorted({_place(name, known, value) for value in chosen})
        if not places:
            raise InputError(f"No values of {name} are asked for: name at least one.")
        ds = ds.isel({name: places})
    return ds


def _place(name: str, known: list[Any], value: Any) -> int:
    for i, other in enumerate(known):
        if str(value) == str(other) or _same(value, other):
            return i
    listed = ", ".join(f"{other:g}" if isinstance(other, float) else str(other) for other in known)
    raise InputError(f"{name} = {value} is not in this sweep, where {name} is one of {listed}.")


def _same(value: Any, other: Any) -> bool:
    try:
        a, b = float(value), float(other)
    except (TypeError, ValueError):
        return False
    return a == b or abs(a - b) <= CLOSE * max(abs(a), abs(b))
