"""The axes of a sweep, its cells, and their values at their last rounds.

A cell is one setting with all its seeds.  Along an axis that an algorithm does not have, its runs are
copies of each other: only the first is read.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import InputError, require
from jaxfl.core.params import closest
from jaxfl.engine import results
from jaxfl.views.words import label, number

if TYPE_CHECKING:
    import xarray

__all__ = [
    "Array",
    "applying",
    "as_sweep",
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
    "heading",
    "is_sweep",
    "metrics",
    "one_delta",
    "over_seeds",
    "per_client",
    "proofs",
    "relabelled",
    "restrict",
    "setting",
    "stated",
]

Array: TypeAlias = npt.NDArray[Any]

CLOSE = 1e-9  # relative difference up to which two numbers name the same place on an axis
PER_CLIENT = ("client", "quantile")  # dimensions of metrics of each client, or of their deciles
TOTALS = ("messages", "coordinates", "gradients", "clamped", "uplink_bits", "downlink_bits")


def is_sweep(ds: xarray.Dataset) -> bool:
    """Whether a result is of a sweep, and not of a single run."""
    return results.config(ds).get("kind") == "sweep"


def as_sweep(ds: xarray.Dataset, called: str = "run") -> xarray.Dataset:
    """A single run as a sweep with one cell of this name and one seed."""
    about = results.config(ds)
    report = about["privacy"] or {"proven": "inf", "claimed": None, "delta": "nan", "flag": False}
    series = [str(name) for name, v in ds.data_vars.items() if v.dims[:1] == ("round",)]
    series = [name for name in series if {*ds[name].dims} <= {"round", "client"}]
    used = {}
    for name, value in about["values"].items():  # schedules left out
        with contextlib.suppress(TypeError, ValueError):
            used[f"used_{name}"] = float(value)
    facts = {
        "proven_eps": float(report["proven"]),
        "claimed_eps": math.nan if report["claimed"] is None else float(report["claimed"]),
        "delta": float(report["delta"]),
        "flag": np.int8(report["flag"]),
        "noisy": np.int8(about["privacy"] is not None),
        "stated": np.int8(report.get("status") == "U"),
        "n": np.int32(about["facts"]["n"]),
        "broken": math.nan,
        **used,
    }
    lost = ds["round"].where(~np.isfinite(ds["loss"])).min().item()  # NaN where it never is
    each = {"last_round": ds["round"].values[-1], "diverged_at": lost, "complete": np.int8(1)}
    out = ds[series].assign(each).expand_dims(algorithm=[called], seed=np.zeros(1, np.int32))
    kind, why = about["settings"].get("proof", ("proven", ""))
    config = {
        "proofs": [{"place": [0], "kind": kind, "why": why}] if why else [],
        **{name: about[name] for name in ("format", "settings", "facts", "values", "ended")},
        "kind": "sweep",
        "axes": {"algorithm": {"values": [called], "static": True}},
        "paired": False,
    }
    given = {name: ("algorithm", [value]) for name, value in facts.items()}
    return out.assign(given).assign_attrs(config=json.dumps(config))


def stated(ds: xarray.Dataset) -> xarray.DataArray:
    """Which cells have an eps that is the user's word; older files hold none."""
    return ds["stated"] > 0 if "stated" in ds else ds["noisy"] < 0


def proofs(ds: xarray.Dataset) -> list[str]:
    """Why nothing is proven of some runs, and whose word an eps is, a sentence for each reason."""
    about = results.config(ds)
    names = about["axes"]["algorithm"]["values"]
    found = (f"{names[one['place'][0]]}: {one['why']}." for one in about.get("proofs", ()))
    return list(dict.fromkeys(found))


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
        "cell", "seed", "round", ..., missing_dims="ignore"
    )


def ends(ds: xarray.Dataset, *names: str) -> xarray.Dataset:
    """The cells, with the values of :func:`final` for these metrics."""
    return cells(ds.assign({name: final(ds, name) for name in names}))


def setting(ds: xarray.Dataset) -> list[str]:
    """The problem, and the axes that have one value, in words."""
    named, spans = results.config(ds)["settings"], set(axes(ds))
    words = [named["model"]] if "model" in named and "model" not in spans else []
    if isinstance(named.get("problem"), str) and not {"problem", "data"} & spans:
        words.append(f"on {named['problem']}")
    out = [" ".join(words)] if words else []
    each = {*ds["n"].values.ravel().tolist()}
    if len(each) == 1 and "clients" not in spans:
        out.append(f"{min(each)} client" + "s" * (min(each) > 1))
    if named.get("partition") and not {"problem", "partition", "alpha"} & spans:
        out.append(named["partition"])
    if named.get("weights", "equal") != "equal":
        out.append("weighted clients")
    for name in axes(ds):
        if ds.sizes[name] == 1 and name != "algorithm" and applying(ds, name).any():
            out.append(label(name, ds[name].values.tolist()[0]))
    return out


def heading(ds: xarray.Dataset) -> str:
    """The setting of a sweep, and how many seeds it has."""
    seeds = ds.sizes["seed"]
    return ", ".join([*setting(ds), f"{seeds} seed" + "s" * (seeds > 1)])


def metrics(ds: xarray.Dataset) -> list[str]:
    """The measured metrics of all clients together, without totals of messages and bits."""
    series = [name for name, v in ds.data_vars.items() if "round" in v.dims]
    return [str(name) for name in series if name not in TOTALS and not per_client(ds, str(name))]


def per_client(ds: xarray.Dataset, name: str) -> bool:
    """Whether the metric has a value for each client."""
    return name in ds and not {*PER_CLIENT}.isdisjoint(ds[name].dims)


def relabelled(ds: xarray.Dataset, labels: Mapping[str, str]) -> xarray.Dataset:
    """The sweep with other names of algorithms, and other texts on axes."""
    texts = [name for name in axes(ds) if ds[name].dtype.kind not in "iuf"]
    values = [str(value) for name in texts for value in ds[name].values.tolist()]
    known = [*values, *axes(ds), *metrics(ds)]
    for old in labels:
        require(old in known, closest("algorithm, axis or metric in this sweep named", old, known))
    new = {name: [labels.get(v, v) for v in ds[name].values.tolist()] for name in texts}
    for name, called in new.items():
        alike = f"Two values of {name} cannot have one label"
        require(len({*called}) == len(called), alike, "give each one of its own")
    return ds.assign_coords(new)


def check_metric(ds: xarray.Dataset, name: str) -> None:
    """Raise unless the sweep has measured it."""
    if name not in (known := metrics(ds)):
        raise InputError(closest("metric in this result named", name, known))


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


def one_delta(ds: xarray.Dataset) -> str:
    """The delta of every eps; empty where they differ, or nothing has noise."""
    each = deltas(ds).to_series().dropna().unique()
    return number(each[0]) if len(each) == 1 else ""


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
        require(places, lambda: f"There are no values of {name}", "name at least one")
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
