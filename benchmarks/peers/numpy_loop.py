"""A competent NumPy loop: vectorised over clients, closed-form gradients and norms, chunks in cache.

With noise per client, each client's gradient is formed and noised.  With one aggregate draw of the
same law, no client's gradient is needed, and the chunk is one matrix product.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protocol import serve
from workloads import WORKLOADS, Workload, data, sample

__all__ = ["contenders"]

NUMBERS_AT_ONCE = 1 << 21  # in the largest array of a chunk of clients: it stays in cache
f32 = np.float32


def make(w: Workload, noise: str, k: int | None = None) -> Callable[[int], float]:
    """``noise`` is "aggregate", "client", or "chosen" (only on the coordinates that are sent)."""
    rng = np.random.Generator(np.random.SFC64(1))
    read = _read(w)
    gradient = _logistic(w) if w.kind == "logistic" else _network(w)
    largest = max(w.b * w.features, 1 if noise == "aggregate" else w.d)
    clients_at_once = max(1, NUMBERS_AT_ONCE // largest)
    x = np.zeros(w.d, f32)
    if w.kind == "network":
        x[:] = np.random.default_rng(3).standard_normal(w.d) / np.sqrt(w.features)

    def message(total: np.ndarray, g: np.ndarray) -> None:
        """Add the noised, perhaps compressed, gradients of a chunk."""
        if noise == "chosen":
            for row in g:
                keep = rng.choice(w.d, k, replace=False, shuffle=False)
                sent = row[keep] + f32(w.sigma) * rng.standard_normal(k, dtype=f32)
                total[keep] += sent * f32(w.d / k)
            return
        xi = rng.standard_normal(g.shape, dtype=f32)
        xi *= f32(w.sigma)
        g += xi
        if k:
            keep = np.argpartition(rng.random(g.shape, dtype=f32), k, axis=1)[:, :k]
            sent = np.take_along_axis(g, keep, 1) * f32(w.d / k)
            np.add.at(total, keep.ravel(), sent.ravel())
        else:
            total += g.sum(0)

    def one_round() -> None:
        total = np.zeros(w.d, f32)
        r = f32(0.4) * x / (1 + x * x) ** 2 if w.kind == "logistic" else f32(0)
        cohort = np.arange(w.n) if w.cohort is None else rng.choice(w.n, w.cohort, replace=False)
        for start in range(0, w.r, clients_at_once):
            who = cohort[start : start + clients_at_once]
            batch = read(who[:, None], rng.integers(0, w.m, (len(who), w.b)))
            if noise == "aggregate":
                flat = [part.reshape(1, -1, *part.shape[2:]) for part in batch]
                total += gradient(x, *flat)[0]
            else:
                message(total, gradient(x, *batch) + r)
        if noise == "aggregate":
            total += f32(w.r) * r
            total += f32(w.sigma * w.r**0.5) * rng.standard_normal(w.d, dtype=f32)
        x[:] -= f32(w.eta / w.r) * total

    def run(rounds: int) -> float:
        for _ in range(rounds):
            one_round()
        return float(x.sum())

    return run


def _read(w: Workload) -> Callable[..., list[np.ndarray]]:
    """Features, labels and squared norms of samples j of clients i."""
    if w.generated:

        def made(i: np.ndarray, j: np.ndarray) -> list[np.ndarray]:
            a, y = sample(np, np.uint32(0), i, j)
            return [a, y, a.sum(-1)]

        return made
    a, y = data(w)
    rows, labels = a.reshape(w.n * w.m, -1), y.reshape(-1)
    squares = np.einsum("ij,ij->i", rows, rows)

    def read(i: np.ndarray, j: np.ndarray) -> list[np.ndarray]:
        index = i * w.m + j
        return [rows[index], labels[index], squares[index]]

    return read


def _logistic(w: Workload) -> Callable[..., np.ndarray]:
    """(x, a (c, q, p), y, squares) -> (c, d): each sum of clipped gradients, over b."""

    def gradient(x: Any, a: Any, y: Any, squares: Any) -> np.ndarray:
        s = 1 / (1 + np.exp(-(a.reshape(-1, w.features) @ x).reshape(y.shape))) - y
        s = s * np.minimum(1, w.G / np.maximum(np.abs(s) * np.sqrt(squares), 1e-12)) / w.b
        return np.matmul(s[:, None, :].astype(f32), a)[:, 0]

    return gradient


def _network(w: Workload, hidden: int = 64, classes: int = 10) -> Callable[..., np.ndarray]:
    p, h = w.features, hidden
    eye = np.eye(classes, dtype=f32)

    def gradient(x: Any, a: Any, y: Any, squares: Any) -> np.ndarray:
        c, b = y.shape
        W1, b1 = x[: p * h].reshape(p, h), x[p * h : p * h + h]
        W2, b2 = x[p * h + h : -classes].reshape(h, classes), x[-classes:]
        u = 1 / (1 + np.exp(-(a.reshape(-1, p) @ W1 + b1)))
        z = u @ W2 + b2
        z -= z.max(1, keepdims=True)
        np.exp(z, out=z)
        z /= z.sum(1, keepdims=True)
        d2 = z - eye[y.reshape(-1)]
        d1 = (d2 @ W2.T) * u * (1 - u)
        # norms of dense layers are products of norms [Goodfellow, 2015]
        norms = (squares.reshape(-1) + 1) * (d1 * d1).sum(1)
        norms += ((u * u).sum(1) + 1) * (d2 * d2).sum(1)
        scale = np.minimum(1, w.G / np.sqrt(norms))[:, None].astype(f32) / f32(w.b)
        d1, d2 = d1 * scale, d2 * scale
        d1, d2, u = d1.reshape(c, b, h), d2.reshape(c, b, classes), u.reshape(c, b, h)
        g = np.empty((c, w.d), f32)
        g[:, : p * h] = np.matmul(a.transpose(0, 2, 1), d1).reshape(c, -1)
        g[:, p * h : p * h + h] = d1.sum(1)
        g[:, p * h + h : -classes] = np.matmul(u.transpose(0, 2, 1), d2).reshape(c, -1)
        g[:, -classes:] = d2.sum(1)
        return g

    return gradient


def product(side: int = 2048) -> Callable[[int], float]:
    a = np.ones((side, side), f32)

    def run(times: int) -> float:
        return sum(float((a @ a)[0, 0]) for _ in range(times))

    return run


def contenders(w: Workload) -> dict[str, Callable[[], Any]]:
    k = max(1, w.d // 20)
    return {
        "NumPy, noise per client": lambda: make(w, "client"),
        "NumPy, aggregate noise": lambda: make(w, "aggregate"),
        "NumPy, random-k": lambda: make(w, "client", k),
        "NumPy, random-k, chosen first": lambda: make(w, "chosen", k),
        "NumPy, matrix product 2048^3": product,
    }


if __name__ == "__main__":
    serve(contenders(WORKLOADS[sys.argv[1]]), {"numpy": np.__version__})
