"""The round as one writes it first: ``vmap(grad)`` per example, ``random.choice`` for masks."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from workloads import Workload, data

import jaxfl

__all__ = ["make"]


def make(w: Workload, k: int | None) -> Callable[[int], float]:
    """``rounds -> some number of the model``; per-example clipping, noise per client, random-k."""
    a, y = map(jnp.asarray, data(w))
    if w.kind == "logistic":
        model = jaxfl.models.logistic(w.features, regularizer=jaxfl.models.nonconvex(0.2))
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
        v = jax.vmap(client, (0, None, 0, 0))(jax.random.split(key, w.n), x, a, y)
        return x - w.eta * v.mean(0)

    state = {"x": x, "t": 0}

    def run(rounds: int) -> float:
        for _ in range(rounds):
            key = jax.random.fold_in(jax.random.key(1), state["t"])
            state["x"], state["t"] = one_round(key, state["x"], a, y), state["t"] + 1
        return float(state["x"][0])

    return run
