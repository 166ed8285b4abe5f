"""Throughput of grids beside the machine's own limits and beside single runs, in one run.

    python benchmarks/sweeps.py [--out benchmarks/results/sweeps.json]

On data of the shape of a9a (W1: n = 10, m = 3256, d = 124, b = 128).  A rate is that of the rounds
alone: what 200 rounds take beyond what 100 take, so that the evaluation at the end, which costs as
much as a few dozen rounds, is in neither; it is reported beside.  Repetitions take turns, figures
are medians, ratios medians of the ratios within a turn.
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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from workloads import WORKLOADS, data

import jaxfl
from jaxfl.engine import program as engine
from jaxfl.engine.grid import Grid, lay_out
from jaxfl.engine.plan import Options, chunks, programs
from jaxfl.engine.planned import keys_of
from jaxfl.problems.public import nonconvex

TURNS = 5
W = WORKLOADS["W1"]
T = 100
MOST = 4096  # cells of a call
LR = np.geomspace(0.01, 1.0, 16).tolist()
SIGMA = np.geomspace(0.01, 0.3, 16).tolist()


def problem() -> jaxfl.Problem:
    a, y = data(W)
    model = jaxfl.models.logistic(W.features, regularizer=nonconvex(0.2))
    return jaxfl.Problem(model, jaxfl.data.from_clients((a, y), classes=2, stacked=True), name="W1")


def laid_out(
    posed: jaxfl.Problem,
    algorithm: str,
    sampler: str,
    axes: dict[str, list[float]],
    seeds: int = 1,
    storage: str = "exact",
    **numbers: float,
) -> Grid:
    """The cells of a sweep."""
    draws = jaxfl.parts.sampling.sampler(sampler)
    made = jaxfl.algorithm(algorithm, sampler=draws, storage=storage)
    spans = {name: tuple(values) for name, values in axes.items()}
    fixed = {"clip": W.G, "batch": W.b, "rounds": 10 * T, **numbers}
    return lay_out(made, posed, spans, fixed, seeds, "calibrated", "train")


class Program:
    """One compiled chunk of a grid: ``seconds(rounds)`` of a call from round 0."""

    def __init__(self, grid: Grid) -> None:
        self.program = programs(grid)[0]
        here = [jax.local_devices()[0]]
        chunk, *_ = chunks(0, self.program, range(len(grid.seeds)), MOST)
        self.run = engine.compiled(self.program, chunk.shape, Options(), here)
        keys = keys_of(jax.random.key(0), grid.seeds)
        self.keys, self.hp = engine.inputs(self.program, chunk, self.run, keys, True)
        self.problem = engine.placed(self.program, self.run)
        self.cells = len(chunk.cells) * len(chunk.seeds)
        self.state = self.start()

    def call(self, state: Any, first: bool, start: int, stop: int) -> Any:
        out = self.run.call(
            self.keys,
            state,
            self.hp,
            jnp.bool_(first),
            jnp.int32(start),
            jnp.int32(stop),
            jnp.bool_(True),
            jnp.ones(self.run.shape, bool),
            self.problem,
        )
        return jax.block_until_ready(out)[0]

    def start(self) -> Any:
        return self.call(engine.blank(self.run), True, 0, 0)

    def seconds(self, rounds: int) -> float:
        began = time.perf_counter()
        self.state = self.call(self.state, False, 0, rounds)
        return time.perf_counter() - began

    def rate(self, rounds: int = T) -> float:
        """Cell-rounds per second of the rounds alone."""
        return self.cells * rounds / (self.seconds(2 * rounds) - self.seconds(rounds))

    def rate_with_end(self) -> float:
        return self.cells * T / self.seconds(T)


def product(columns: int) -> Callable[[], float]:
    """Operations per second of one matrix product of the grid's shape."""
    rows = W.n * W.b
    A = jnp.asarray(np.random.default_rng(0).random((rows, W.features), np.float32))
    X = jnp.asarray(np.random.default_rng(1).random((W.features, columns), np.float32))
    dot = jax.jit(jnp.matmul)
    dot(A, X).block_until_ready()

    def rate() -> float:
        times = []
        for _ in range(20):
            began = time.perf_counter()
            dot(A, X).block_until_ready()
            times.append(time.perf_counter() - began)
        return 2.0 * rows * W.features * columns / statistics.median(times)

    return rate


def anew(posed: jaxfl.Problem) -> float:
    """Cell-rounds per second where every cell is compiled for itself, evaluated at both ends."""
    engine._compiled.cache_clear()
    jax.clear_caches()
    began = time.perf_counter()
    jaxfl.simulate(
        jaxfl.algorithm("ldp_sgd", sampler=jaxfl.parts.sampling.sampler("with_replacement")),
        posed,
        jax.random.key(0),
        T,
        eval_every=0,
        clip=W.G,
        batch=W.b,
        sigma=0.05,
        lr=0.1,
    )
    return T / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    posed = problem()
    fixed = "with_replacement"
    recompiled = [anew(posed) for _ in range(3)]
    wide = Program(laid_out(posed, "ldp_sgd", fixed, {"sigma": SIGMA, "lr": LR}))
    padded = Program(laid_out(posed, "ldp_sgd", "poisson", {"sigma": SIGMA, "lr": LR}))
    sparse = Program(laid_out(posed, "soteriafl_sgd", fixed, {"sigma": SIGMA, "lr": LR}, k=6))
    single = Program(laid_out(posed, "ldp_sgd", fixed, {"lr": [0.1]}, sigma=0.05))
    svrg = {"sigma": 0.05, "refresh": W.b / W.m}
    alone = [Program(laid_out(posed, "ldp_svrg", fixed, {"lr": [0.1]}, **svrg))]
    seeds = Program(laid_out(posed, "ldp_svrg", fixed, {"lr": [0.1]}, 5, **svrg))
    peak = product(wide.cells)

    per_round = 4.0 * W.n * W.b * W.features  # one product forth, one back
    rows: dict[str, list[float]] = {}

    def note(name: str, value: float) -> float:
        rows.setdefault(name, []).append(value)
        return value

    for _ in range(TURNS):
        limit = note("matrix product, GFLOP/s", peak() / 1e9)
        grid = note("grid of 256, uncompressed, cell-rounds/s", wide.rate())
        note("  its arithmetic / that of the product", grid * per_round / 1e9 / limit)
        ends = note("  with the evaluation after 100 rounds", wide.rate_with_end())
        note("grid of 256, Poisson batches, cell-rounds/s", padded.rate())
        note("grid of 256, SoteriaFL-SGD, k = 6, cell-rounds/s", sparse.rate())
        one = note("single run, cell-rounds/s", single.rate(5 * T))
        note("  grid / single run", grid / one)
        note("  both with the evaluation after 100 rounds", ends / single.rate_with_end())
        note("  grid / compiling each cell anew", ends / statistics.median(recompiled))
        lone = note("LDP-SVRG alone, cell-rounds/s", alone[0].rate(5 * T))
        note("  5 seeds at once / alone", seeds.rate(5 * T) / lone)

    device = jax.devices()[0].device_kind
    result = {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "device": device,
        "versions": {"jax": jax.__version__, "jaxfl": jaxfl.__version__},
        "load": load,
        "medians": {name.strip(): statistics.median(values) for name, values in rows.items()},
        "turns": {name.strip(): values for name, values in rows.items()},
        "compiled_anew": recompiled,
    }
    print(f"{result['machine']}, {device}, {result['versions']}, load {load:.1f}")
    for name, values in rows.items():
        print(f"{name:52s}{statistics.median(values):14,.2f}")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
