"""A competent NumPy competitor: vectorised over clients, closed-form gradients, in-place noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from workloads import Workload, data

__all__ = ["make"]

CLIENTS_AT_ONCE = 25  # keeps the (clients, d) gradients in cache


def make(w: Workload, clip: str, k: int | None) -> Callable[[int], float]:
    """``rounds -> some number of the model``; ``clip`` is "example" or "batch", ``k`` of random-k."""
    a, y = data(w)
    rng = np.random.Generator(np.random.SFC64(1))
    rows = a.reshape(w.n * w.m, -1)
    labels = y.reshape(-1)
    squares = np.einsum("ij,ij->i", rows, rows)
    first = (np.arange(w.n) * w.m)[:, None]
    gradient = _logistic(w) if w.kind == "logistic" else _network(w)
    x = np.zeros(w.d, np.float32)
    if w.kind == "network":
        x[:] = np.random.default_rng(3).standard_normal(w.d) / np.sqrt(w.features)

    def compress(g: np.ndarray) -> np.ndarray:
        keep = np.argpartition(rng.random(g.shape, dtype=np.float32), k, axis=1)[:, :k]
        out = np.zeros_like(g)
        values = np.take_along_axis(g, keep, 1) * np.float32(w.d / k)
        np.put_along_axis(out, keep, values, 1)
        return out

    def one_round() -> None:
        total = np.zeros(w.d, np.float32)
        for start in range(0, w.n, CLIENTS_AT_ONCE):
            stop = min(start + CLIENTS_AT_ONCE, w.n)
            index = rng.integers(0, w.m, (stop - start, w.b)) + first[start:stop]
            g = gradient(x, rows[index], labels[index], squares[index], clip)
            noise = rng.standard_normal(g.shape, dtype=np.float32)
            noise *= np.float32(w.sigma)
            g += noise
            total += (compress(g) if k else g).sum(0)
        x[:] -= np.float32(w.eta / w.n) * total

    def run(rounds: int) -> float:
        for _ in range(rounds):
            one_round()
        if not np.isfinite(x).all():
            raise FloatingPointError("the NumPy loop diverged")
        return float(x[0])

    return run


def _shrink(g: np.ndarray, G: float) -> np.ndarray:
    g *= np.minimum(1, G / np.linalg.norm(g, axis=1, keepdims=True)).astype(np.float32)
    return g


def _logistic(w: Workload) -> Callable[..., np.ndarray]:
    def gradient(x, a, y, squares, clip):
        r = np.float32(0.4) * x / (1 + x * x) ** 2
        s = 1 / (1 + np.exp(-(a @ x))) - y
        if clip == "example":
            s = s * np.minimum(1, w.G / np.maximum(np.abs(s) * np.sqrt(squares), 1e-12))
        g = np.matmul(s[:, None, :].astype(np.float32), a)[:, 0] / w.b + r
        return _shrink(g, w.G) if clip == "batch" else g

    return gradient


def _network(w: Workload, hidden: int = 64, classes: int = 10) -> Callable[..., np.ndarray]:
    p, h = w.features, hidden
    eye = np.eye(classes, dtype=np.float32)

    def gradient(x, a, y, squares, clip):
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
        if clip == "example":  # norms of dense layers are products of norms [Goodfellow, 2015]
            norms = (squares.reshape(-1) + 1) * (d1 * d1).sum(1)
            norms += ((u * u).sum(1) + 1) * (d2 * d2).sum(1)
            scale = np.minimum(1, w.G / np.sqrt(norms))[:, None].astype(np.float32)
            d1, d2 = d1 * scale, d2 * scale
        d1, d2, u = d1.reshape(c, b, h), d2.reshape(c, b, classes), u.reshape(c, b, h)
        g = np.empty((c, w.d), np.float32)
        g[:, : p * h] = np.matmul(a.transpose(0, 2, 1), d1).reshape(c, -1)
        g[:, p * h : p * h + h] = d1.sum(1)
        g[:, p * h + h : -classes] = np.matmul(u.transpose(0, 2, 1), d2).reshape(c, -1)
        g[:, -classes:] = d2.sum(1)
        g /= b
        return _shrink(g, w.G) if clip == "batch" else g

    return gradient
