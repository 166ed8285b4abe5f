"""A round written with jax_privacy's clipped gradients and an optax optimizer."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax_privacy
import optax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protocol import serve
from workloads import WORKLOADS, Workload, data

CLIENTS_AT_ONCE = 20


def pieces(w: Workload) -> tuple[Any, Callable[..., Any]]:
    """Where the model starts, and the loss of one example."""
    if w.kind == "logistic":

        def loss(p: Any, a: Any, y: Any) -> Any:
            z = a @ p["w"]
            return jax.nn.softplus(z) - y * z + 0.2 * (p["w"] ** 2 / (1 + p["w"] ** 2)).sum()

        return {"w": jnp.zeros(w.d)}, loss
    one, two = jax.random.split(jax.random.key(5))
    start = {
        "w1": jax.random.normal(one, (w.features, 64)) / w.features**0.5,
        "b1": jnp.zeros(64),
        "w2": jax.random.normal(two, (64, 10)) / 8,
        "b2": jnp.zeros(10),
    }

    def entropy(p: Any, a: Any, y: Any) -> Any:
        z = jax.nn.sigmoid(a @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
        return optax.softmax_cross_entropy_with_integer_labels(z, y)

    return start, entropy


def make(w: Workload, microbatch: int | None) -> Callable[[int], float]:
    a, y = map(jnp.asarray, data(w))
    start, loss = pieces(w)
    clipped = jax_privacy.clipped_grad(
        loss,
        argnums=0,
        batch_argnums=(1, 2),
        keep_batch_dim=False,
        l2_clip_norm=w.G,
        normalize_by=float(w.b),
        microbatch_size=microbatch,
    )
    optimizer = optax.sgd(w.eta)

    def client(p: Any, a: Any, y: Any, key: Any) -> Any:
        rows, noise = jax.random.split(key)
        index = jax.random.randint(rows, (w.b,), 0, w.m)
        leaves, treedef = jax.tree.flatten(clipped(p, a[index], y[index]))
        keys = jax.random.split(noise, len(leaves))
        pairs = zip(leaves, keys, strict=True)
        noised = [g + w.sigma * jax.random.normal(key, g.shape, g.dtype) for g, key in pairs]
        return jax.tree.unflatten(treedef, noised)

    def mean(p: Any, keys: Any) -> Any:
        each = jax.vmap(client, (None, 0, 0, 0))
        if w.n <= CLIENTS_AT_ONCE:
            return jax.tree.map(lambda g: g.mean(0), each(p, a, y, keys))

        def chunk(total: Any, these: Any) -> Any:
            return jax.tree.map(lambda s, g: s + g.sum(0), total, each(p, *these)), None

        parts = [v.reshape(-1, CLIENTS_AT_ONCE, *v.shape[1:]) for v in (a, y, keys)]
        total, _ = jax.lax.scan(chunk, jax.tree.map(jnp.zeros_like, p), tuple(parts))
        return jax.tree.map(lambda s: s / w.n, total)

    @jax.jit
    def one_round(p: Any, state: Any, key: Any) -> Any:
        key, now = jax.random.split(key)
        updates, state = optimizer.update(mean(p, jax.random.split(now, w.n)), state)
        return optax.apply_updates(p, updates), state, key

    held = {"now": (start, optimizer.init(start), jax.random.key(0))}

    def run(rounds: int) -> float:
        for _ in range(rounds):
            held["now"] = one_round(*held["now"])
        return float(sum(leaf.sum() for leaf in jax.tree.leaves(held["now"][0])))

    return run


def contenders(w: Workload) -> dict[str, Callable[[], Any]]:
    found = {"jax_privacy + optax": lambda: make(w, None)}
    if w.kind == "network":
        small = min(4, w.b)
        found[f"jax_privacy + optax, microbatch {small}"] = lambda: make(w, small)
    return found


if __name__ == "__main__":
    names = ("jax_privacy", "jax", "optax")
    found = {name: importlib.metadata.version(name) for name in names}
    serve(contenders(WORKLOADS[sys.argv[1]]), found)
