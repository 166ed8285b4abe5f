"""How long a synchronous round lasts on given links: from bits to seconds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from jaxfl.errors import InputError
from jaxfl.views.cells import Array

__all__ = ["Links", "expected_slowest"]

Speed: TypeAlias = float | Sequence[float] | str


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
        if not 0 <= self.latency < math.inf:
            raise InputError(f"latency = {self.latency!r} has to be a number of seconds from 0 on.")
        for name, speed in (("bandwidth", self.bandwidth), ("downlink", self.downlink)):
            if isinstance(speed, str):
                _lognormal(name, speed)
            elif speed is not None:
                _check(name, speed)

    def round_seconds(self, clients: int, cohort: float, uplink: float, downlink: float) -> float:
        """Expected length of a round in which a uniformly drawn ``cohort`` of ``clients`` takes part.

        ``uplink`` and ``downlink`` are the bits of one message.  A cohort that is not whole (an
        average over rounds) lies between its neighbours in proportion.
        """
        if not 0 <= cohort <= clients:
            raise InputError(f"cohort = {cohort:g} has to lie between 0 and {clients} clients.")
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
            stream = np.random.default_rng([self.seed, int(name == "downlink")])
            return median * np.exp(sigma * stream.standard_normal(clients))
        values = np.asarray(speed, np.float64)
        if values.ndim and len(values) != clients:
            raise InputError(
                f"{name} has {len(values)} values for {clients} clients: give one number, or one "
                "per client."
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


def _check(name: str, speed: float | Sequence[float]) -> None:
    try:
        values = np.atleast_1d(np.asarray(speed, np.float64))
    except (TypeError, ValueError):
        values = np.array([math.nan])
    if values.ndim != 1 or not values.size or not (values > 0).all():
        bad = next((v for v in values.ravel().tolist() if not v > 0), speed)
        raise InputError(f"{name} = {bad!r} has to be above 0 (bits per second).")


def _lognormal(name: str, text: str) -> tuple[float, float]:
    kind, _, numbers = text.partition(":")
    try:
        median, sigma = map(float, numbers.split(","))
        if kind != "lognormal" or not (0 < median < math.inf and 0 <= sigma < math.inf):
            raise ValueError
    except ValueError:
        raise InputError(
            f"{name} = {text!r} has to read 'lognormal:MEDIAN,SIGMA', with MEDIAN above 0 in bits per "
            "second and SIGMA from 0 on."
        ) from None
    return median, sigma
