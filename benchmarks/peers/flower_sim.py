"""Flower's simulation (Ray, two actors): FedAvg, a NumPy client, noise by its LocalDpMod."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0")
HERE = str(Path(__file__).resolve().parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")])
sys.path.insert(0, HERE)

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from protocol import serve
from workloads import WORKLOADS, Workload

DELTA = 1e-3


def client_app(w: Workload) -> ClientApp:
    eps = w.G * np.sqrt(2 * np.log(1.25 / DELTA)) / w.sigma  # LocalDpMod then adds sigma
    app = ClientApp(mods=[LocalDpMod(w.G, w.G, eps, DELTA)])

    def shard(i: int) -> Any:
        cache = globals().setdefault("_shards", {})  # of the actor
        if i not in cache:
            rng = np.random.default_rng(i)
            a = rng.random((w.m, w.features), dtype=np.float32)
            cache[i] = a, rng.integers(0, 10 if w.kind == "network" else 2, w.m)
        return cache[i]

    def gradient(x: Any, a: Any, y: Any) -> Any:
        if w.kind == "logistic":
            return (1 / (1 + np.exp(-a @ x)) - y) @ a / len(y) + 0.4 * x / (1 + x * x) ** 2
        p, h = w.features, 64
        w1, b1 = x[: p * h].reshape(p, h), x[p * h : p * h + h]
        w2, b2 = x[p * h + h : -10].reshape(h, 10), x[-10:]
        u = 1 / (1 + np.exp(-(a @ w1 + b1)))
        z = np.exp(u @ w2 + b2)
        d2 = (z / z.sum(1, keepdims=True) - np.eye(10, dtype=np.float32)[y]) / len(y)
        d1 = (d2 @ w2.T) * u * (1 - u)
        parts = (a.T @ d1).ravel(), d1.sum(0), (u.T @ d2).ravel(), d2.sum(0)
        return np.concatenate(parts)

    @app.train()
    def train(message: Any, context: Any) -> Any:
        from flwr.app import Message

        a, y = shard(int(context.node_config["partition-id"]))
        x = message.content["arrays"].to_numpy_ndarrays()[0]
        index = np.random.default_rng().integers(0, w.m, w.b)
        new = (x - gradient(x, a[index], y[index])).astype(np.float32)
        told = {"arrays": ArrayRecord([new]), "metrics": MetricRecord({"num-examples": w.b})}
        return Message(content=RecordDict(told), reply_to=message)

    return app


def make(w: Workload) -> Callable[[int], float]:
    """The simulation runs in the main thread, and waits before each round for a request."""
    asked.put(w)

    def run(rounds: int) -> float:
        for _ in range(rounds):
            turns.put(None)
            done.get()
        return held["x"]

    done.get()  # the simulation stands before its first round
    return run


asked: queue.Queue[Any] = queue.Queue()
turns: queue.Queue[None] = queue.Queue()
done: queue.Queue[None] = queue.Queue()
held = {"x": 0.0}


class Waiting(FedAvg):
    def configure_train(self, *args: Any, **kwargs: Any) -> Any:
        done.put(None)
        turns.get()
        return super().configure_train(*args, **kwargs)

    def aggregate_train(self, *args: Any, **kwargs: Any) -> Any:
        arrays, metrics = super().aggregate_train(*args, **kwargs)
        held["x"] = float(arrays.to_numpy_ndarrays()[0].sum())
        return arrays, metrics


def simulate(w: Workload) -> None:
    server = ServerApp()

    @server.main()
    def main(grid: Any, context: Any) -> None:
        strategy = Waiting(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=w.n,
            min_evaluate_nodes=0,
            min_available_nodes=w.n,
        )
        x = (np.random.default_rng(0).standard_normal(w.d) / 28).astype(np.float32)
        strategy.start(grid, ArrayRecord([x]), num_rounds=10**6, timeout=600)

    init = {"num_cpus": 2, "logging_level": "ERROR", "log_to_driver": False}
    run_simulation(
        server,
        client_app(w),
        num_supernodes=w.n,
        backend_name="ray",
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": init,
        },
    )


def answer(w: Workload) -> None:
    names = ("flwr", "ray", "numpy")
    found = {name: importlib.metadata.version(name) for name in names}
    serve({"Flower (Ray), clip of the update": lambda: make(w)}, found)
    import ray

    with contextlib.suppress(Exception):
        ray.shutdown()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=answer, args=(WORKLOADS[sys.argv[1]],), daemon=True).start()
    simulate(asked.get())
