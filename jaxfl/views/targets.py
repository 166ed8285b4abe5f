"""What it takes to reach a target: rounds, bits, gradients, seconds."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from jaxfl.errors import InputError
from jaxfl.views.cells import Array, axes
from jaxfl.views.links import Links
from jaxfl.views.selection import Criterion, criterion_of

if TYPE_CHECKING:
    import xarray

__all__ = ["to_target"]

SPENT = ("messages", "uplink_bits", "downlink_bits", "gradients")
BY = ("mean", "each")


def to_target(
    ds: xarray.Dataset,
    metric: str = "loss",
    *,
    target: float,
    by: str = "mean",
    links: Links | None = None,
) -> xarray.Dataset:
    """Rounds, uplink bits, gradients and seconds until ``metric`` first reaches ``target``.

    Looked at are the evaluated rounds of the mean over seeds (``by="mean"``), or of every seed
    (``by="each"``); NaN where the target is never reached.  ``metric`` is read as in
    :func:`select`: at most the target where the smallest is best, else at least.  ``seconds`` is
    there with ``links``: the expected time of the rounds, computation left out.  Where an axis has
    one of these names, as ``rounds`` may, it is that name with ``_to_target``.
    """
    rule = criterion_of(ds, metric)
    if by not in BY:
        raise InputError(f"by = {by!r} has to be one of {', '.join(BY)}.")
    if not math.isfinite(target):
        raise InputError(f"target = {target!r} has to be a finite number.")
    names = axes(ds)
    dims = (*names, "seed")
    series = {key: _series(ds, key, dims, by) for key in (rule.metric, *SPENT)}
    reached = np.asarray(rule.sign * series[rule.metric] <= rule.sign * target)  # False for NaN
    ever, first = np.asarray(reached.any(-1)), reached.argmax(-1)

    def there(values: Array) -> Array:
        return np.where(ever, np.take_along_axis(values, first[..., None], -1)[..., 0], np.nan)

    rounds = ds["round"].values.astype(np.float64)
    out = {
        "rounds": there(np.broadcast_to(rounds, reached.shape)),
        "uplink_bits": there(series["uplink_bits"]),
        "gradients": there(series["gradients"]),
    }
    kept = names if by == "mean" else dims
    if links is not None:
        out["seconds"] = _seconds(
            series, rounds, ever, first, _clients(ds, kept, ever.shape), links
        )
    return _labelled(out, ds, kept, rule, target)


# --- pieces --------------------------------------------------------------------------------------


def _series(ds: xarray.Dataset, name: str, dims: tuple[str, ...], by: str) -> Array:
    values: Array = ds[name].transpose(*dims, "round").values.astype(np.float64)
    return values.mean(-2) if by == "mean" else values


def _clients(ds: xarray.Dataset, dims: tuple[str, ...], shape: tuple[int, ...]) -> Array:
    """The number of clients of each cell."""
    n = ds["n"].transpose(*axes(ds)).values
    return np.broadcast_to(n[..., None] if "seed" in dims else n, shape)


def _seconds(
    series: dict[str, Array], rounds: Array, ever: Array, first: Array, clients: Array, links: Links
) -> Array:
    """Sum over the rounds before the target; between two evaluations messages are alike."""
    out = np.full(ever.shape, np.nan)
    known: dict[tuple[float, ...], float] = {}  # most rounds of a sweep are alike
    for index in itertools.product(*map(range, ever.shape)):
        if not ever[index]:
            continue
        until = slice(None, int(first[index]) + 1)
        seen = ~np.isnan(series["messages"][index][until])
        steps = np.diff(rounds[until][seen])
        sent, up, down = (np.diff(series[name][index][until][seen]) for name in SPENT[:3])
        total = 0.0
        for step, messages, *bits in zip(steps, sent, up, down, strict=True):
            each = [b / messages if messages else 0.0 for b in bits]
            key = (float(clients[index]), messages / step, *each)
            if key not in known:
                known[key] = links.round_seconds(int(clients[index]), *key[1:])
            total += step * known[key]
        out[index] = total
    return out


def _labelled(
    values: dict[str, Array],
    ds: xarray.Dataset,
    dims: tuple[str, ...],
    rule: Criterion,
    target: float,
) -> xarray.Dataset:
    import xarray

    sign = "≤" if rule.sign > 0 else "≥"
    words = f"{rule.metric.replace('_', ' ')} {sign} {target:.4g}"
    units = {"rounds": "round", "uplink_bits": "bit", "gradients": "gradient", "seconds": "s"}
    free = {name: f"{name}_to_target" if name in dims else name for name in values}
    out = xarray.Dataset(
        {free[name]: (dims, array) for name, array in values.items()},
        {dim: ds[dim] for dim in dims},
        {"target": words},
    )
    for name in values:
        what = "expected seconds" if name == "seconds" else name.replace("_", " ")
        out[free[name]].attrs.update(units=units[name], long_name=f"{what} to {words}")
    return out
