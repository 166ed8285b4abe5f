"""Rounds at one commit after another, beside a NumPy loop that stays the same.

A value is the median, over turns, of jaxfl's rounds per second over the loop's in the same turn, so
that machines and hours matter little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "peers")]

import numpy_loop  # noqa: E402
import ours  # noqa: E402
from workloads import WORKLOADS  # noqa: E402

__all__ = ["Rounds"]

SECONDS, TURNS = 0.5, 7


class Rounds:
    params = (["W1", "W2", "W3"], ["SGD", "SGD, random-k, shifted"])
    param_names = ("workload", "algorithm")
    unit = "times the NumPy loop"
    timeout = 300

    def setup(self, workload: str, algorithm: str) -> None:
        w = WORKLOADS[workload]
        compiled, _ = ours.contenders(w)[f"jaxfl, {algorithm}"]()
        self.runs = compiled, numpy_loop.contenders(w)["NumPy, aggregate noise"]()

    def track_speed(self, workload: str, algorithm: str) -> float:
        counts = [enough(run) for run in self.runs]
        ratios = []
        for _ in range(TURNS):
            mine, loop = (k / seconds(run, k) for run, k in zip(self.runs, counts, strict=True))
            ratios.append(mine / loop)
        return median(ratios)


def seconds(run: Callable[[int], float], rounds: int) -> float:
    began = time.perf_counter()
    run(rounds)
    return time.perf_counter() - began


def enough(run: Callable[[int], float]) -> int:
    """Rounds that take about :data:`SECONDS`."""
    run(1)
    rounds = 1
    while (taken := seconds(run, rounds)) < SECONDS / 4:
        rounds *= 2
    return max(1, round(rounds * SECONDS / taken))
