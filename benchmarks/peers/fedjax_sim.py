"""FedJAX's federated averaging with one local step, its gradient clipped and noised by hand."""

from __future__ import annotations

import importlib.metadata
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fedjax
import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protocol import serve
from workloads import WORKLOADS, Workload, data


def pieces(w: Workload) -> tuple[Any, Callable[..., Any]]:
    """Where the model starts, and the loss of one example."""
    if w.kind == "logistic":

        def loss(p: Any, a: Any, y: Any) -> Any:
            z = a @ p["w"]
            return jax.nn.softplus(z) - y * z + 0.2 * (p["w"] ** 2 / (1 + p["w"] ** 2)).sum()

        return {"w": jnp.zeros(w.d)}, loss
    if w.kind == "images":
        return convolutions()
    one, two = jax.random.split(jax.random.PRNGKey(5))
    start = {
        "w1": jax.random.normal(one, (w.features, 64)) / w.features**0.5,
        "b1": jnp.zeros(64),
        "w2": jax.random.normal(two, (64, 10)) / 8,
        "b2": jnp.zeros(10),
    }

    def entropy(p: Any, a: Any, y: Any) -> Any:
        z = jax.nn.sigmoid(a @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
        return -jax.nn.log_softmax(z)[y]

    return start, entropy


def convolutions() -> tuple[Any, Callable[..., Any]]:
    shapes = {"k1": (3, 3, 1, 32), "k2": (3, 3, 32, 64), "w1": (9216, 128), "w2": (128, 62)}
    keys = jax.random.split(jax.random.PRNGKey(5), len(shapes))
    start = {}
    for key, (name, shape) in zip(keys, shapes.items(), strict=True):
        start[name] = jax.random.normal(key, shape) / math.prod(shape[:-1]) ** 0.5
        start[f"b{name}"] = jnp.zeros(shape[-1])

    def convolved(p: Any, name: str, a: Any) -> Any:
        z = jax.lax.conv_general_dilated(
            a, p[name], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jax.nn.relu(z + p[f"b{name}"])

    def entropy(p: Any, a: Any, y: Any) -> Any:
        z = convolved(p, "k2", convolved(p, "k1", a[None]))
        z = jax.lax.reduce_window(z, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        z = jax.nn.relu(z.reshape(-1) @ p["w1"] + p["bw1"]) @ p["w2"] + p["bw2"]
        return -jax.nn.log_softmax(z)[y]

    return start, entropy


def make(w: Workload, clip: str) -> Callable[[int], float]:
    a, y = data(w)
    start, loss = pieces(w)
    clients = {str(i).encode(): {"x": a[i], "y": y[i]} for i in range(w.n)}

    def clipped(g: Any) -> Any:
        norm = jnp.sqrt(sum((v * v).sum() for v in jax.tree_util.tree_leaves(g)))
        return jax.tree_util.tree_map(lambda v: v * jnp.minimum(1.0, w.G / (norm + 1e-12)), g)

    def gradient(p: Any, batch: Any, key: Any) -> Any:
        if clip == "batch":
            each = jax.vmap(loss, (None, 0, 0))
            g = clipped(jax.grad(lambda p: each(p, batch["x"], batch["y"]).mean())(p))
        else:
            each = jax.vmap(lambda a, y: clipped(jax.grad(loss)(p, a, y)))
            g = jax.tree_util.tree_map(lambda v: v.mean(0), each(batch["x"], batch["y"]))
        leaves, treedef = jax.tree_util.tree_flatten(g)
        pairs = zip(leaves, jax.random.split(key, len(leaves)), strict=True)
        noised = [v + w.sigma * jax.random.normal(key, v.shape) for v, key in pairs]
        return jax.tree_util.tree_unflatten(treedef, noised)

    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        gradient,
        fedjax.optimizers.sgd(1.0),
        fedjax.optimizers.sgd(w.eta),
        fedjax.ShuffleRepeatBatchHParams(batch_size=w.b, num_steps=1, num_epochs=None),
    )
    crowd = fedjax.InMemoryFederatedData(clients)
    sampler = fedjax.client_samplers.UniformGetClientSampler(crowd, w.n, seed=0)
    held = {"state": algorithm.init(start)}

    def run(rounds: int) -> float:
        for _ in range(rounds):
            held["state"], _ = algorithm.apply(held["state"], sampler.sample())
        return float(sum(v.sum() for v in jax.tree_util.tree_leaves(held["state"].params)))

    return run


def contenders(w: Workload) -> dict[str, Callable[[], Any]]:
    return {
        "FedJAX, clip of the mean": lambda: make(w, "batch"),
        "FedJAX, clip per example": lambda: make(w, "example"),
    }


if __name__ == "__main__":
    found = {name: importlib.metadata.version(name) for name in ("fedjax", "jax")}
    serve(contenders(WORKLOADS[sys.argv[1]]), found)
