"""The round as one writes it first: ``vmap(grad)`` per example, ``random.choice`` for masks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protocol import serve
from workloads import WORKLOADS, Workload, data

import jaxfl
from jaxfl.problems.public import nonconvex

CLIENTS_AT_ONCE = 20  # of the many of W3, whose per-example gradients would not fit


def make(w: Workload, k: int | None) -> Callable[[int], float]:
    """Per-example clipping, noise per client, random-k."""
    a, y = map(jnp.asarray, data(w))
    if w.kind == "logistic":
        model = jaxfl.models.logistic(w.features, regularizer=nonconvex(0.2))
    else:
        model = jaxfl.models.mlp(w.features, hidden=(64,), classes=10)
    x = model.init(jax.random.key(0))

    def client(key: jax.Array, x: jax.Array, a: jax.Array, y: jax.Array) -> jax.Array:
        rows, noise, mask = jax.random.split(key, 3)
        index = jax.random.randint(rows, (w.b,), 0, w.m)
        each = jax.vmap(jax.grad(model.loss), (None, 0))(x, (a[index], y[index]))
        each *= jnp.minimum(1, w.G / jnp.linalg.norm(each, axis=1, keepdims=True))
        g = each.mean(0) + jax.grad(model.regularizer)(x)
        g += w.sigma * jax.random.normal(noise, g.shape)
        if k is None:
            return g
        keep = jax.random.choice(mask, w.d, (k,), replace=False)
        return jnp.zeros_like(g).at[keep].set(g[keep] * (w.d / k))

    @jax.jit
    def one_round(key: jax.Array, x: jax.Array, a: jax.Array, y: jax.Array) -> jax.Array:
        keys = jax.random.split(key, w.n)
        if w.n <= CLIENTS_AT_ONCE:
            v = jax.vmap(client, (0, None, 0, 0))(keys, x, a, y).mean(0)
        else:

            def chunk(total: jax.Array, these: Any) -> tuple[jax.Array, None]:
                keys, a, y = these
                return total + jax.vmap(client, (0, None, 0, 0))(keys, x, a, y).sum(0), None

            parts = jax.tree.map(
                lambda v: v.reshape(-1, CLIENTS_AT_ONCE, *v.shape[1:]), (keys, a, y)
            )
            v = jax.lax.scan(chunk, jnp.zeros_like(x), parts)[0] / w.n
        return x - w.eta * v

    state = {"x": x, "t": 0}

    def run(rounds: int) -> float:
        for _ in range(rounds):
            key = jax.random.fold_in(jax.random.key(1), state["t"])
            state["x"], state["t"] = one_round(key, state["x"], a, y), state["t"] + 1
        return float(state["x"].sum())

    return run


def contenders(w: Workload) -> dict[str, Callable[[], Any]]:
    found = {"naive JAX": lambda: make(w, None)}
    if w.d < 10**6:  # a round would take a minute or more: `choice` sorts
        found["naive JAX, random-k"] = lambda: make(w, w.d // 20 or 1)
    return found


if __name__ == "__main__":
    serve(contenders(WORKLOADS[sys.argv[1]]), {"jax": jax.__version__})
