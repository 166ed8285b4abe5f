"""The cost of reaching a target: rounds, bits, gradients, and seconds on given links."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from jaxfl.core.links import Links
from jaxfl.core.params import number
from jaxfl.views.cells import Array, Grid
from jaxfl.views.selection import criterion_of

if TYPE_CHECKING:
    import xarray

__all__ = ["to_target"]

SPENT = ("messages", "uplink_bits", "downlink_bits", "gradients")


def to_target(
    ds: xarray.Dataset, metric: str = "loss", *, target: float, links: Links | None = None
) -> xarray.Dataset:
    """Rounds, uplink bits, gradients and seconds until ``metric`` first reaches ``target``, as
    ``rounds_to_target`` and so on.

    Looked at are the evaluated rounds of the mean over seeds; NaN where the target is never
    reached.  ``metric`` is read as in :func:`select`: at most the target where the smallest is best,
    else at least.  Seconds are there with ``links``: the expected time of the rounds, computation
    left out.
    """
    import xarray

    grid = Grid.of(ds)
    ds, rule = grid.ds, criterion_of(grid, metric)
    target = number("target", target, above=-math.inf, below=math.inf)
    series = ds[[rule.metric, *SPENT]].astype(np.float64).mean("seed", skipna=False)
    reached = rule.sign * series[rule.metric] <= rule.sign * target  # False for NaN
    spent = series.isel(round=reached.argmax("round")).where(reached.any("round"))
    rounds = spent["round"].where(reached.any("round"))
    costs = {  # with their names in words, and their units
        "rounds": (rounds, "rounds", "round"),
        "uplink_bits": (spent["uplink_bits"], "uplink", "bit"),
        "gradients": (spent["gradients"], "gradients", "gradient"),
    }
    if links is not None:
        seconds = _seconds(series.where(ds["round"] <= rounds), ds["n"], links)
        costs["seconds"] = (seconds, "time", "s")
    words = f"{rule.metric.replace('_', ' ')} {'≤' if rule.sign > 0 else '≥'} {target:.4g}"
    out = xarray.Dataset(coords={axis: ds[axis] for axis in grid.axes})
    for name, (values, what, unit) in costs.items():
        about = {"units": unit, "long_name": f"{what} to {words}"}
        values = values.drop_vars("round", errors="ignore").transpose(*grid.axes)
        out[f"{name}_to_target"] = values.assign_attrs(about)
    return out


def _seconds(series: xarray.Dataset, clients: xarray.DataArray, links: Links) -> xarray.DataArray:
    """The time of these rounds; between two evaluations all messages are taken to be equal."""
    import xarray

    length = functools.cache(links.round_seconds)  # most rounds of a sweep are equal

    def total(rounds: Array, n: Array, messages: Array, *bits: Array) -> float:
        seen = ~np.isnan(messages)
        steps = (np.diff(values[seen]) for values in (rounds, messages, *bits))
        each = (
            step * length(int(n), sent / step, *(b / sent if sent else 0.0 for b in sizes))
            for step, sent, *sizes in zip(*steps, strict=True)
        )
        return sum(each, 0.0) if seen.any() else math.nan

    given = (series["round"], clients, *(series[name] for name in SPENT[:3]))
    dims = [["round"], [], *[["round"]] * 3]
    out: xarray.DataArray = xarray.apply_ufunc(total, *given, input_core_dims=dims, vectorize=True)
    return out
