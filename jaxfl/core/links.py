"""The expected length of a round on links of given bandwidths and latency."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import require
from jaxfl.core.params import nonnegative, number, numbers

__all__ = ["Links", "expected_slowest"]

Array: TypeAlias = npt.NDArray[Any]
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
        nonnegative("latency", self.latency)
        for name, speed in (("bandwidth", self.bandwidth), ("downlink", self.downlink)):
            if speed is not None:
                self._speeds(name, speed)

    def round_seconds(self, clients: int, cohort: float, uplink: float, downlink: float) -> float:
        """Expected length of a round in which a uniformly drawn ``cohort`` of ``clients`` takes part.

        ``uplink`` and ``downlink`` are the bits of one message.  A cohort that is not whole (an
        average over rounds) lies between its neighbours in proportion.
        """
        number("cohort", cohort, least=0, most=clients)
        up = self._speeds("bandwidth", self.bandwidth, clients)
        down = up if self.downlink is None else self._speeds("downlink", self.downlink, clients)
        times = uplink / up + downlink / down
        ends = [expected_slowest(times, end) for end in (math.floor(cohort), math.ceil(cohort))]
        return self.latency + ends[0] + cohort % 1 * (ends[1] - ends[0])

    def _speeds(self, name: str, speed: Speed, clients: int | None = None) -> Array:
        """The speed of each of the clients, or what is given where nobody asks for their number."""
        if isinstance(speed, str):
            median, sigma = _lognormal(name, speed)
            rng = np.random.default_rng([self.seed, int(name == "downlink")])
            return median * np.exp(sigma * rng.standard_normal(clients or 1))
        values = numbers(name, speed)
        above = values.ndim < 2 and bool((values > 0).all())
        require(above, "must be above 0 (bits per second)", **{name: speed})
        require(
            clients is None or values.size in (1, clients),
            lambda: f"{name} has {values.size} values for {clients} clients",
            "give one number, or one per client",
        )
        return np.broadcast_to(values, clients or values.size)


def expected_slowest(times: Array, cohort: int) -> float:
    """``E max_{i in S} t_i`` for a uniform S of ``cohort`` clients: order statistics, no sampling.

    With t sorted upwards, P(max <= t_j) = C(j, r) / C(n, r), so each factor to the one before is
    (j - r) / j.
    """
    if cohort == 0:
        return 0.0
    ordered = np.sort(np.asarray(times, np.float64))
    j = np.arange(len(ordered), 1, -1)
    below = np.concatenate([[1.0], np.cumprod(np.maximum(j - cohort, 0) / j), [0.0]])
    return float(np.sum((below[:-1] - below[1:]) * ordered[::-1]))


def _lognormal(name: str, text: str) -> tuple[float, float]:
    try:
        median, sigma = map(float, text.removeprefix("lognormal:").split(","))
    except ValueError:
        median = sigma = math.nan
    valid = text.startswith("lognormal:") and 0 < median < math.inf and 0 <= sigma < math.inf
    ranges = "MEDIAN is above 0, in bits per second, and SIGMA at least 0"
    require(valid, "must read 'lognormal:MEDIAN,SIGMA'", ranges, **{name: text})
    return median, sigma
