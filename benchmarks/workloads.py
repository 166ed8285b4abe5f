"""The workloads that every competitor runs: same shapes, same random data, NumPy only."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["WORKLOADS", "Workload", "data"]


class Workload(NamedTuple):
    """n clients of m samples; each round draws b per client, clips at G, adds noise, steps by eta."""

    name: str
    kind: str  # "logistic" (nonconvex regularizer, strength 0.2) or "network" (784-64-10, sigmoid)
    n: int
    m: int
    b: int
    features: int
    d: int
    G: float
    sigma: float
    eta: float
    rounds: int  # per timed repetition


WORKLOADS = {
    w.name: w
    for w in (
        Workload("W1", "logistic", 10, 3256, 128, 124, 124, 0.5, 0.05, 0.1, 1000),
        Workload("W2", "network", 10, 6000, 128, 784, 50_890, 1.0, 0.01, 0.3, 100),
        Workload("W3", "network", 1000, 60, 20, 784, 50_890, 1.0, 0.01, 0.3, 10),
    )
}


def data(w: Workload, seed: int = 0) -> tuple[Any, Any]:
    """Features (n, m, p) float32 and labels (n, m)."""
    rng = np.random.default_rng(seed)
    if w.kind == "logistic":
        a = (rng.random((w.n, w.m, w.features), dtype=np.float32) < 0.11).astype(np.float32)
        a[..., -1] = 1
        return a, (rng.random((w.n, w.m)) < 0.24).astype(np.int32)
    a = rng.random((w.n, w.m, w.features), dtype=np.float32)
    return a, rng.integers(0, 10, (w.n, w.m)).astype(np.int32)
