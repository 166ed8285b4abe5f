"""A competent PyTorch loop: ``torch.func`` vmap(grad), or closed-form norms ("ghost" clipping)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.func import grad, vmap

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protocol import serve
from workloads import WORKLOADS, Workload, data

NUMBERS_AT_ONCE = 1 << 25  # in the largest array of a chunk of clients
F = torch.nn.functional


def split(w: Workload, x: torch.Tensor) -> list[torch.Tensor]:
    if w.kind == "logistic":
        return [x]
    p, h = w.features, 64
    parts = x.split([p * h, h, h * 10, 10])
    return [parts[0].view(p, h), parts[1], parts[2].view(h, 10), parts[3]]


def loss(w: Workload, x: torch.Tensor, a: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of one example."""
    if w.kind == "logistic":
        z = a @ x
        return F.softplus(z) - y * z
    w1, b1, w2, b2 = split(w, x)
    return F.cross_entropy(torch.sigmoid(a @ w1 + b1) @ w2 + b2, y)


def by_vmap(w: Workload) -> Callable[..., torch.Tensor]:
    """(x, a (c, q, p), y, squares) -> (c, d): each sum of clipped gradients, over b."""
    each = vmap(grad(lambda x, a, y: loss(w, x, a, y)), in_dims=(None, 0, 0))

    def sums(x: Any, a: Any, y: Any, squares: Any) -> torch.Tensor:
        c, q = y.shape
        g = each(x, a.reshape(c * q, -1), y.reshape(-1))
        scale = (w.G / (g.norm(dim=1) + 1e-12)).clamp(max=1.0) / w.b
        return torch.bmm(scale.view(c, 1, q), g.view(c, q, -1))[:, 0]

    return sums


def closed_form(w: Workload) -> Callable[..., torch.Tensor]:
    def logistic(x: Any, a: Any, y: Any, squares: Any) -> torch.Tensor:
        s = torch.sigmoid(a @ x) - y
        s = s * (w.G / (s.abs() * squares.sqrt() + 1e-12)).clamp(max=1.0) / w.b
        return torch.bmm(s[:, None, :], a)[:, 0]

    def network(x: Any, a: Any, y: Any, squares: Any) -> torch.Tensor:
        w1, b1, w2, b2 = split(w, x)
        u = torch.sigmoid(a @ w1 + b1)
        d2 = torch.softmax(u @ w2 + b2, 2) - F.one_hot(y, 10)
        d1 = (d2 @ w2.T) * u * (1 - u)
        norms = (squares + 1) * (d1 * d1).sum(2) + ((u * u).sum(2) + 1) * (d2 * d2).sum(2)
        scale = ((w.G / (norms.sqrt() + 1e-12)).clamp(max=1.0) / w.b)[..., None]
        d1, d2 = d1 * scale, d2 * scale
        parts = [torch.bmm(a.mT, d1), d1.sum(1), torch.bmm(u.mT, d2), d2.sum(1)]
        return torch.cat([part.reshape(len(y), -1) for part in parts], 1)

    return logistic if w.kind == "logistic" else network


def make(w: Workload, how: str, noise: str, k: int | None = None) -> Callable[[int], float]:
    torch.manual_seed(0)
    a, y = map(torch.from_numpy, data(w))
    rows, labels = a.view(w.n * w.m, -1), y.reshape(-1).long()
    squares = torch.einsum("ij,ij->i", rows, rows)
    sums = by_vmap(w) if how == "vmap" else closed_form(w)
    largest = max(w.b * (w.d if how == "vmap" else w.features), w.d)
    clients_at_once = max(1, NUMBERS_AT_ONCE // largest)
    start = torch.randn(w.d) / w.features**0.5 if w.kind == "network" else torch.zeros(w.d)
    held = {"x": start}

    def message(total: torch.Tensor, g: torch.Tensor) -> None:
        if noise == "chosen":
            for row in g:  # a permutation's beginning is a uniform subset
                keep = torch.randperm(w.d)[:k]
                sent = row[keep] + w.sigma * torch.randn(k)
                total.index_add_(0, keep, sent * (w.d / k))
            return
        g = g + w.sigma * torch.randn_like(g)
        if k:
            keep = torch.rand_like(g).topk(k, dim=1, sorted=False).indices
            sent = g.gather(1, keep) * (w.d / k)
            total.index_add_(0, keep.view(-1), sent.view(-1))
        else:
            total += g.sum(0)

    @torch.no_grad()
    def one_round() -> None:
        x = held["x"]
        total = torch.zeros(w.d)
        r = 0.4 * x / (1 + x * x) ** 2 if w.kind == "logistic" else torch.zeros(())
        for first in range(0, w.n, clients_at_once):
            who = torch.arange(first, min(first + clients_at_once, w.n))
            index = who[:, None] * w.m + torch.randint(w.m, (len(who), w.b))
            batch = rows[index], labels[index], squares[index]
            if noise == "aggregate":
                flat = [part.reshape(1, -1, *part.shape[2:]) for part in batch]
                total += sums(x, *flat)[0]
            else:
                message(total, sums(x, *batch) + r)
        if noise == "aggregate":
            total += w.n * r + w.sigma * w.n**0.5 * torch.randn(w.d)
        held["x"] = x - w.eta / w.n * total

    def run(rounds: int) -> float:
        for _ in range(rounds):
            one_round()
        return float(held["x"].sum())

    return run


def contenders(w: Workload) -> dict[str, Callable[[], Any]]:
    k = max(1, w.d // 20)
    found = {
        "PyTorch, noise per client": lambda: make(w, "ghost", "client"),
        "PyTorch, aggregate noise": lambda: make(w, "ghost", "aggregate"),
        "PyTorch, random-k": lambda: make(w, "ghost", "client", k),
        "PyTorch, random-k, chosen first": lambda: make(w, "ghost", "chosen", k),
    }
    if w.d < 10**6:
        found["PyTorch, vmap(grad), noise per client"] = lambda: make(w, "vmap", "client")
        found["PyTorch, vmap(grad), random-k"] = lambda: make(w, "vmap", "client", k)
    return found


if __name__ == "__main__":
    serve(contenders(WORKLOADS[sys.argv[1]]), {"torch": torch.__version__})
