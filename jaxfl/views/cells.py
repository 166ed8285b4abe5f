"""The axes of a sweep, its cells, and their values at their last rounds.

A cell is one setting with all its seeds.  Along an axis that an algorithm does not have, its runs are
copies of each other: only the first is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import InputError, require
from jaxfl.core.params import closest
from jaxfl.engine import results

if TYPE_CHECKING:
    import xarray

__all__ = [
    "Array",
    "applying",
    "axes",
    "cells",
    "check_axis",
    "check_metric",
    "claimed",
    "deltas",
    "distinct",
    "ends",
    "final",
    "groups",
    "is_sweep",
    "metrics",
    "over_seeds",
    "restrict",
]

Array: TypeAlias = npt.NDArray[Any]

CLOSE = 1e-9  # relative difference up to which two numbers name the same place on an axis
TOTALS = ("messages", "coordinates", "gradients", "clamped", "uplink_bits", "downlink_bits")


def is_sweep(ds: xarray.Dataset) -> bool:
    """Whether a result is of a sweep, and not of a single run."""
    return results.config(ds).get("kind") == "sweep"


def axes(ds: xarray.Dataset) -> tuple[str, ...]:
    """The axes of the cells, in order: all but seeds and rounds."""
    require(is_sweep(ds), "This result is of a single run", "give that of a sweep")
    return tuple(str(dim) for dim in ds["last_round"].dims if dim != "seed")


def groups(ds: xarray.Dataset) -> list[str]:
    """Axes whose values are not compared with each other: those of the problem, and eps."""
    spans = results.config(ds)["axes"]
    return [name for name in axes(ds) if name == "eps" or spans[name].get("problem")]


def applying(ds: xarray.Dataset, axis: str) -> xarray.DataArray:
    """Whether the algorithm of each cell has this axis."""
    import xarray

    everywhere = xarray.ones_like(ds["last_round"].isel(seed=0, drop=True), bool)
    name = f"applies_{axis}"
    return (everywhere & (ds[name] == 1) if name in ds else everywhere).transpose(*axes(ds))


def distinct(ds: xarray.Dataset, names: Iterable[str]) -> xarray.DataArray:
    """The cells that are no copies of others along those of these axes that do not apply."""
    out = applying(ds, "algorithm")
    for name in names:
        out = out & (applying(ds, name) | (ds[name] == ds[name][0]))
    return out


def cells(ds: xarray.Dataset, *names: str) -> xarray.Dataset:
    """The different settings, along one dimension ``cell``, in the order of the axes.

    It holds the variables ``names``, or all that are no series.  The axes are its coordinates, with
    None where an axis does not apply.
    """
    dims = axes(ds)
    places = np.indices([ds.sizes[dim] for dim in dims]).reshape(len(dims), -1)
    has = [applying(ds, dim).values.ravel() for dim in dims]
    none = np.array(None)
    labels = {
        dim: ("cell", np.where(mask, ds[dim].values.astype(object)[i], none))
        for dim, mask, i in zip(dims, has, places, strict=True)
    }
    held = ds[list(names)] if names else ds.drop_dims("round")
    flat = held.stack(cell=dims, create_index=False).drop_vars(dims).assign_coords(labels)
    return flat.isel(cell=distinct(ds, dims).values.ravel()).transpose(
        "cell", "seed", "round", missing_dims="ignore"
    )


def ends(ds: xarray.Dataset, *names: str) -> xarray.Dataset:
    """The cells, with the values of :func:`final` for these metrics."""
    return cells(ds.assign({name: final(ds, name) for name in names}))


def metrics(ds: xarray.Dataset) -> list[str]:
    """The measured metrics, without totals of messages and bits."""
    return [str(n) for n, v in ds.data_vars.items() if "round" in v.dims and n not in TOTALS]


def check_metric(ds: xarray.Dataset, name: str) -> None:
    """Raise unless the sweep has measured it."""
    if name not in (known := metrics(ds)):
        raise InputError(closest("metric in this sweep named", name, known))


def check_axis(ds: xarray.Dataset, name: str, *more: str) -> None:
    """Raise unless the sweep has this axis."""
    if name not in (known := [*axes(ds), *more]):
        raise InputError(closest("axis in this sweep named", name, known))


def claimed(ds: xarray.Dataset) -> xarray.DataArray:
    """The claimed eps, NaN where the paper of no algorithm claims any."""
    return ds["claimed_eps"] if "claimed_eps" in ds else ds["proven_eps"].where(False)


def final(ds: xarray.Dataset, name: str) -> xarray.DataArray:
    """The value of each cell and seed at its last round; NaN where it diverged or has not run."""
    if name not in ds or name not in TOTALS:
        check_metric(ds, name)
    last = (ds["round"] == ds["last_round"]) & ds["diverged_at"].isnull()
    values = ds[name].astype(np.float64).where(last).max("round", keep_attrs=True)
    return values.where(np.isfinite(values)).transpose(*axes(ds), "seed")


def deltas(ds: xarray.Dataset) -> xarray.DataArray:
    """The delta of the claimed and the proven eps, NaN without noise."""
    name = "delta_of_eps" if "delta_of_eps" in ds else "delta"
    return (ds[name] if name in ds else ds["proven_eps"] * np.nan).where(ds["noisy"] > 0)


def over_seeds(values: xarray.DataArray) -> tuple[xarray.DataArray, xarray.DataArray]:
    """Mean over seeds and its standard error, NaN for a single seed.

    Both are NaN if a seed diverged: the mean of the others would be biased.  Equal seeds have the error
    0, without rounding.
    """
    first, count = values.isel(seed=0, drop=True), values.sizes["seed"]
    if count == 1:
        return first, first * np.nan
    mean = values.mean("seed", skipna=False)
    error = values.std("seed", ddof=1, skipna=False) / np.sqrt(count)
    differ = values.max("seed", skipna=False) != values.min("seed", skipna=False)
    return mean.where(differ, first), error.where(differ, 0.0)


def restrict(ds: xarray.Dataset, where: Mapping[str, Sequence[Any] | Any]) -> xarray.Dataset:
    """The part of a sweep with these values on these axes, in the sweep's order."""
    for name, wanted in where.items():
        check_axis(ds, name, "seed")
        known = ds[name].values.tolist()
        listed = isinstance(wanted, Iterable) and not isinstance(wanted, str)
        places = sorted({_place(name, known, value) for value in (wanted if listed else [wanted])})
        require(places, f"There are no values of {name}", "name at least one")
        ds = ds.isel({name: places})
    return ds


def _place(name: str, known: Sequence[Any], value: Any) -> int:
    if str(value) in (texts := [str(other) for other in known]):
        return texts.index(str(value))
    with contextlib.suppress(TypeError, ValueError):
        near = np.isclose(np.asarray(known, np.float64), float(value), CLOSE, 0)
        if near.any():
            return int(near.argmax())
    listed = ", ".join(f"{other:g}" if isinstance(other, float) else str(other) for other in known)
    raise InputError(f"{name} = {value} is not in this sweep, where {name} is one of {listed}")
