"""The workloads that every contender runs: same shapes, same random data, NumPy only."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["CLASSES", "GROUPS", "TINY", "WORKLOADS", "Workload", "data", "sample"]


class Workload(NamedTuple):
    """n clients of m samples; each round draws b per client, clips at G, adds noise, steps by eta."""

    name: str
    # "logistic" (nonconvex regularizer, strength 0.2), "network" (784-64-10, sigmoid) or "images"
    # (two convolutions of 3 x 3 with 32 and 64 channels, max pooling, dense layers of 128 and 62)
    kind: str
    n: int
    m: int
    b: int
    features: int
    d: int
    G: float
    sigma: float
    eta: float
    cohort: int | None = None  # clients that take part in a round; None: all
    generated: bool = False  # samples are made where a round reads them

    @property
    def r(self) -> int:
        return self.cohort or self.n

    @property
    def flops(self) -> float:
        """Arithmetic that a round cannot avoid: its products forth and back, nothing else."""
        rows = self.r * self.b
        if self.kind == "logistic":
            return 4.0 * rows * self.features
        if self.kind == "images":
            last = 12 * 12 * 64 * 128 + 128 * 62
            return rows * (4.0 * 26 * 26 * 9 * 32 + 6.0 * (24 * 24 * 9 * 32 * 64 + last))
        return rows * (4.0 * self.features * 64 + 6.0 * 64 * 10)


CLASSES = {"logistic": 2, "network": 10, "images": 62}
HUGE = ("logistic", 1_000_000, 8)
WORKLOADS = {
    w.name: w
    for w in (
        Workload("W1", "logistic", 10, 3256, 128, 124, 124, 0.5, 0.05, 0.1),
        Workload("W2", "network", 10, 6000, 128, 784, 50_890, 1.0, 0.01, 0.3),
        Workload("W3", "network", 1000, 60, 20, 784, 50_890, 1.0, 0.01, 0.3),
        Workload("W4", "logistic", 100, 8, 4, 10**6, 10**6, 1.0, 0.001, 0.01),
        Workload("W5 b=1 all", *HUGE, 1, 124, 124, 0.5, 0.05, 0.1, None, True),
        Workload("W5 b=4 all", *HUGE, 4, 124, 124, 0.5, 0.05, 0.1, None, True),
        Workload("W5 b=1 r=100", *HUGE, 1, 124, 124, 0.5, 0.05, 0.1, 100, True),
        Workload("W5 b=4 r=100", *HUGE, 4, 124, 124, 0.5, 0.05, 0.1, 100, True),
        Workload("W6", "images", 100, 100, 20, 784, 1_206_590, 1.0, 0.001, 0.1),
    )
}
GROUPS = {f"W{k}": [name for name in WORKLOADS if name.startswith(f"W{k}")] for k in range(1, 7)}

# For tests of the benchmarks themselves.
TINY = {
    w.name: w
    for w in (
        Workload("tiny", "logistic", 3, 20, 4, 6, 6, 0.5, 0.05, 0.1),
        Workload("tiny-network", "network", 3, 20, 4, 784, 50_890, 1.0, 0.01, 0.3),
        Workload("tiny-images", "images", 3, 20, 4, 784, 1_206_590, 1.0, 0.001, 0.1),
        Workload("tiny-crowd", "logistic", 50, 8, 2, 124, 124, 0.5, 0.05, 0.1, 10, True),
    )
}
WORKLOADS.update(TINY)


def data(w: Workload, seed: int = 0) -> tuple[Any, Any]:
    """Features (n, m, p), of images (n, m, 28, 28, 1), float32, and labels (n, m)."""
    assert not w.generated, "its samples are made one by one, by `sample`"
    rng = np.random.default_rng(seed)
    if w.kind != "logistic" or w.features > 10_000:
        shape = (28, 28, 1) if w.kind == "images" else (w.features,)
        a = rng.random((w.n, w.m, *shape), dtype=np.float32)
        classes = CLASSES[w.kind]
        return a, rng.integers(0, classes, (w.n, w.m)).astype(np.int32)
    a = (rng.random((w.n, w.m, w.features), dtype=np.float32) < 0.11).astype(np.float32)
    a[..., -1] = 1
    return a, (rng.random((w.n, w.m)) < 0.24).astype(np.int32)


def sample(xp: Any, seed: Any, i: Any, j: Any) -> tuple[Any, Any]:
    """Sample j of client i (integers, any shape) for xp = numpy or jax.numpy: 124 features and a label.

    Features are 0 or 1, as in a9a: 1 with probability 1/8 (the AND of three bits), the last one
    always; labels are 1 with probability 1/4.  Bits are a hash of i, j and the place.
    """
    u = xp.uint32
    i, j = xp.asarray(i).astype(u), xp.asarray(j).astype(u)
    one = (1,) * i.ndim  # ranks are equal everywhere
    h = ((i * u(8) + j) * u(16))[..., None] + xp.arange(13, dtype=u).reshape(*one, 13) + seed
    for factor in (
        0x7FEB352D,
        0x846CA68B,
    ):  # a finalizer with few biases [Wellons, hash-prospector]
        h = (h ^ (h >> u(16))) * u(factor)
    h = h ^ (h >> u(15))
    words = h[..., :4] & h[..., 4:8] & h[..., 8:12]
    if xp is np:  # the fast way there; words are little-endian
        raw = np.ascontiguousarray(words).astype("<u4").view(np.uint8)
        bits = np.unpackbits(raw, axis=-1, bitorder="little")
    else:
        bits = (words[..., None] >> xp.arange(32, dtype=u).reshape(*one, 1, 32)) & u(1)
    a = bits.reshape(*i.shape, 128)[..., :124].astype(np.float32)
    last = xp.asarray(np.arange(124) == 123).reshape(*one, 124)
    return xp.where(last, np.float32(1), a), (h[..., 12] & u(3) == u(0)).astype(np.int32)
