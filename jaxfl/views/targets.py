"""The cost of reaching a target: rounds, bits, gradients, and seconds on given links."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from jaxfl.core.errors import InputError, require
from jaxfl.core.params import nonnegative, number, numbers
from jaxfl.views.cells import Array, as_sweep, axes
from jaxfl.views.selection import criterion_of

if TYPE_CHECKING:
    import xarray

__all__ = ["Links", "expected_slowest", "to_target"]

SPENT = ("messages", "uplink_bits", "downlink_bits", "gradients")

Speed: TypeAlias = float | Sequence[float] | str


def to_target(
    ds: xarray.Dataset,
    metric: str = "loss",
    *,
    target: float,
    links: Links | None = None,
) -> xarray.Dataset:
    """Rounds, uplink bits, gradients and seconds until ``metric`` first reaches ``target``, as
    ``rounds_to_target`` and so on.

    Looked at are the evaluated rounds of the mean over seeds; NaN where the target is never
    reached.  ``metric`` is read as in :func:`select`: at most the target where the smallest is best,
    else at least.  Seconds are there with ``links``: the expected time of the rounds, computation
    left out.
    """
    import xarray

    ds = as_sweep(ds)
    rule = criterion_of(ds, metric)
    target = number("target", target, above=-math.inf, below=math.inf)
    dims = axes(ds)
    series = ds[[rule.metric, *SPENT]].astype(np.float64).mean("seed", skipna=False)
    reached = rule.sign * series[rule.metric] <= rule.sign * target  # False for NaN
    ever, first = reached.any("round"), reached.argmax("round")
    spent = series.isel(round=first).where(ever)
    rounds = spent["round"].where(ever)
    costs = {  # with their names in words, and their units
        "rounds": (rounds, "rounds", "round"),
        "uplink_bits": (spent["uplink_bits"], "uplink", "bit"),
        "gradients": (spent["gradients"], "gradients", "gradient"),
    }
    if links is not None:
        seconds = _seconds(series.where(ds["round"] <= rounds), ds["n"], links)
        costs["seconds"] = (seconds, "time", "s")
    words = f"{rule.metric.replace('_', ' ')} {'≤' if rule.sign > 0 else '≥'} {target:.4g}"
    out = xarray.Dataset(coords={dim: ds[dim] for dim in dims})
    for name, (values, what, unit) in costs.items():
        about = {"units": unit, "long_name": f"{what} to {words}"}
        values = values.drop_vars("round", errors="ignore").transpose(*dims)
        out[f"{name}_to_target"] = values.assign_attrs(about)
    return out


def _seconds(series: xarray.Dataset, clients: xarray.DataArray, links: Links) -> xarray.DataArray:
    """The time of these rounds; between two evaluations all messages are taken to be equal."""
    import xarray

    length = functools.cache(links.round_seconds)  # most rounds of a sweep are equal

    def total(rounds: Array, n: Array, messages: Array, *bits: Array) -> float:
        seen = ~np.isnan(messages)
        if not seen.any():
            return math.nan
        out = 0.0
        steps = (np.diff(values[seen]) for values in (rounds, messages, *bits))
        for step, sent, *each in zip(*steps, strict=True):
            out += step * length(int(n), sent / step, *(b / sent if sent else 0.0 for b in each))
        return out

    along = ["round"]
    given = (series["round"], clients, *(series[name] for name in SPENT[:3]))
    dims = [along, [], along, along, along]
    out: xarray.DataArray = xarray.apply_ufunc(total, *given, input_core_dims=dims, vectorize=True)
    return out


@dataclasses.dataclass(frozen=True)
class Links:
    """Bandwidths and latency between clients and server.

    ``bandwidth`` (uplink) and ``downlink`` are bits per second: one number for all, one per
    client, or ``"lognormal:MEDIAN,SIGMA"``, drawn for each client from ``seed``.  Without
    ``downlink`` a client receives as fast as it sends; ``math.inf`` makes it free.  ``latency`` is
    in seconds, once per round.

    A round lasts latency + max over the clients that take part of up/bandwidth_i + down/downlink_i.
    """

    bandwidth: Speed
    latency: float = 0.0
    downlink: Speed | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        nonnegative("latency", self.latency)
        for name, speed in (("bandwidth", self.bandwidth), ("downlink", self.downlink)):
            if isinstance(speed, str):
                _lognormal(name, speed)
            elif speed is not None:
                values = numbers(name, speed)
                above = values.ndim < 2 and bool((values > 0).all())
                require(above, "must be above 0 (bits per second)", **{name: speed})

    def round_seconds(self, clients: int, cohort: float, uplink: float, downlink: float) -> float:
        """Expected length of a round in which a uniformly drawn ``cohort`` of ``clients`` takes part.

        ``uplink`` and ``downlink`` are the bits of one message.  A cohort that is not whole (an
        average over rounds) lies between its neighbours in proportion.
        """
        number("cohort", cohort, least=0, most=clients)
        up = self._speeds("bandwidth", self.bandwidth, clients)
        down = up if self.downlink is None else self._speeds("downlink", self.downlink, clients)
        times = uplink / up + downlink / down
        low = math.floor(cohort)
        part = cohort - low
        slowest = expected_slowest(times, low) * (1 - part)
        if part > 0:
            slowest += expected_slowest(times, low + 1) * part
        return self.latency + slowest

    def _speeds(self, name: str, speed: Speed, clients: int) -> Array:
        if isinstance(speed, str):
            median, sigma = _lognormal(name, speed)
            rng = np.random.default_rng([self.seed, int(name == "downlink")])
            return median * np.exp(sigma * rng.standard_normal(clients))
        values = np.asarray(speed, np.float64)
        require(
            not values.ndim or len(values) == clients,
            lambda: f"{name} has {values.size} values for {clients} clients",
            "give one number, or one per client",
        )
        return np.broadcast_to(values, clients)


def expected_slowest(times: Array, cohort: int) -> float:
    """``E max_{i in S} t_i`` for a uniform S of ``cohort`` clients: order statistics, no sampling.

    With t sorted upwards, P(max <= t_j) = C(j, r) / C(n, r), so each factor to the one before is
    (j - r) / j.
    """
    if cohort == 0:
        return 0.0
    ordered = np.sort(np.asarray(times, np.float64))
    n = len(ordered)
    j = np.arange(n, 1, -1)
    below = np.concatenate([[1.0], np.cumprod(np.maximum(j - cohort, 0) / j), [0.0]])
    return float(np.sum((below[:-1] - below[1:]) * ordered[::-1]))


def _lognormal(name: str, text: str) -> tuple[float, float]:
    kind, _, ends = text.partition(":")
    try:
        median, sigma = map(float, ends.split(","))
        if kind != "lognormal" or not (0 < median < math.inf and 0 <= sigma < math.inf):
            raise ValueError
    except ValueError:
        ranges = "MEDIAN is above 0, in bits per second, and SIGMA at least 0"
        problem = "must read 'lognormal:MEDIAN,SIGMA'"
        raise InputError(problem, ranges, **{name: text}) from None
    return median, sigma
