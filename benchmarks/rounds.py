"""Rounds per second of jaxfl beside what a user would write instead, in one run.

    python benchmarks/rounds.py [W1 W2 W3] [--out benchmarks/results/rounds.json]

Repetitions take turns, so that a machine whose speed drifts is the same for all; the figure is the
median, and the ratio is the median of the ratios within a turn.  Compilation is timed apart.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import naive_jax
import numpy as np
import numpy_loop
from workloads import WORKLOADS, Workload, data

import jaxfl
from jaxfl import run as runs

TURNS = 5


def ours(w: Workload, algorithm: str, k: int | None, **parts: object) -> Callable[[int], float]:
    """``rounds -> some number of the model`` by the compiled rounds of ``simulate``."""
    a, y = data(w)
    if w.kind == "logistic":
        model = jaxfl.models.logistic(w.features, regularizer=jaxfl.models.nonconvex(0.2))
    else:
        model = jaxfl.models.mlp(w.features, hidden=(64,), classes=10)
    clients = jaxfl.data.from_clients(
        (a, y), classes=2 if w.kind == "logistic" else 10, stacked=True
    )
    problem = jaxfl.make_problem(model, clients)
    sampler = jaxfl.sampling.sampler("with_replacement")
    chosen = jaxfl.algorithm(algorithm, sampler=sampler, **parts)
    facts = jaxfl.hyper.facts_of(problem, w.rounds)
    numbers = {"lr": w.eta, "clip": w.G, "sigma": w.sigma, "batch": w.b} | ({"k": k} if k else {})
    values = jaxfl.hyper.resolve(chosen, numbers, facts).values
    hp = jaxfl.hyper.build(chosen, values, facts, jnp.float32)
    key = jax.random.key(0)
    state, _ = runs._start(chosen, key, problem, hp)
    held = {"state": state}

    def run(rounds: int) -> float:
        stop = held["state"].t + rounds
        held["state"], _ = runs._advance(chosen, 1024, key, held["state"], stop, problem, hp)
        return float(chosen.output(held["state"])[0])

    return run


def contenders(w: Workload) -> dict[str, Callable[[], Callable[[int], float]]]:
    k = w.d // 20
    return {
        "jaxfl, fused noise": lambda: ours(w, "ldp_sgd", None),
        "jaxfl, noise per client": lambda: ours(w, "ldp_sgd", None, noise="per_client"),
        "NumPy, clip per example": lambda: numpy_loop.make(w, "example", None),
        "naive JAX": lambda: naive_jax.make(w, None),
        "jaxfl, random-k": lambda: ours(w, "cdp_sgd", k),
        "jaxfl, random-k, shifted": lambda: ours(w, "soteriafl_sgd", k),
        "NumPy, random-k, clip per example": lambda: numpy_loop.make(w, "example", k),
        "NumPy, random-k, clip of the mean": lambda: numpy_loop.make(w, "batch", k),
        "naive JAX, random-k": lambda: naive_jax.make(w, k),
    }


def measure(w: Workload) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    ready: dict[str, tuple[Callable[[int], float], int]] = {}
    for name, make in contenders(w).items():
        began = time.perf_counter()
        run = make()
        run(1)
        first = time.perf_counter() - began
        began = time.perf_counter()
        run(1)
        once = time.perf_counter() - began
        ready[name] = run, max(1, min(w.rounds, int(2.0 / once)))
        table[name] = {"first_round_s": first}
    rates: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(TURNS):
        for name, (run, rounds) in ready.items():
            began = time.perf_counter()
            run(rounds)
            rates[name].append(rounds / (time.perf_counter() - began))
    for name, series in rates.items():
        table[name]["rounds_per_s"] = statistics.median(series)
        table[name]["rates"] = series
    return table


def ratio(table: dict[str, dict[str, float]], over: str, under: str) -> float:
    pairs = zip(table[over]["rates"], table[under]["rates"], strict=True)
    return statistics.median(a / b for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=["W1", "W2"], choices=list(WORKLOADS))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    result = {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "device": jax.devices()[0].device_kind,
        "versions": {"jax": jax.__version__, "numpy": np.__version__, "jaxfl": jaxfl.__version__},
        "load": os.getloadavg()[0],
        "workloads": {},
    }
    print(
        f"{result['machine']}, {result['device']}, {result['versions']}, load {result['load']:.1f}"
    )
    for name in args.workloads:
        w = WORKLOADS[name]
        table = measure(w)
        result["workloads"][name] = table
        print(f"\n{name}: n={w.n} m={w.m} d={w.d} b={w.b}")
        for who, row in table.items():
            print(
                f"  {who:36s}{row['rounds_per_s']:12.1f} rounds/s   first {row['first_round_s']:5.1f} s"
            )
        for over, under in (
            ("jaxfl, fused noise", "NumPy, clip per example"),
            ("jaxfl, fused noise", "naive JAX"),
            ("jaxfl, random-k", "NumPy, random-k, clip of the mean"),
            ("jaxfl, random-k", "naive JAX, random-k"),
        ):
            print(f"  {over} / {under}: {ratio(table, over, under):.1f}x")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
