"""Measure everything on a GPU or a TPU, in at most 8 minutes, and compare it with the model.

    python benchmarks/accelerator.py [--out FILE] [--quick]

Launches and waits, rounds of W1 to W5 beside their roofline, sweeps of 64, 1,024 and 4,096 cells,
memory, and the tests of the results against those of a CPU (`pytest -m gpu`).  The result names what
was skipped for lack of time.  `--quick` tries the script on tiny workloads, on any machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import budgets
import hlo
import jax
import jax.numpy as jnp
import numpy as np
import ours
import sweeps
from workloads import GROUPS, TINY, WORKLOADS

import jaxfl
from jaxfl.engine.runs import device_name

__all__ = ["main"]

SIDE = 2048  # of the matrices whose product sets the ceiling
TURNS = 5


def timed(calls: Sequence[Callable[[], Any]], turns: int = TURNS) -> list[float]:
    """Median seconds of each call, measured in turns after a first call that may compile."""
    for call in calls:
        jax.block_until_ready(call())
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(turns):
        for call, row in zip(calls, seconds, strict=True):
            began = time.perf_counter()
            jax.block_until_ready(call())
            row.append(time.perf_counter() - began)
    return [statistics.median(row) for row in seconds]


ROOT = Path(__file__).resolve().parents[1]
LIMIT = 480.0  # seconds of everything
TURN = 0.2  # seconds of one timed call, about
KINDS = ("SGD", "SGD, random-k, shifted", "SGD, random-k", "SGD, QSGD", "SAGA, random-k, shifted")
FEW = KINDS[:2]  # of W4, W5 and the tiny workloads
CELLS = (64, 1024, 4096)


def constants(quick: bool) -> dict[str, float]:
    """Seconds of a launch, of a wait and of 32 random bits, operations and bytes per second."""
    few, many = (8, 64) if quick else (64, 512)

    def chain(n: int) -> Callable[[], Any]:
        def run(x: jax.Array) -> jax.Array:
            for _ in range(n):
                x = jax.lax.optimization_barrier(x * 1.5 + 1.0)  # one kernel each
            return x

        program = jax.jit(run)
        return lambda: program(jnp.ones(8))

    loop = jax.jit(lambda n: jax.lax.fori_loop(0, n, lambda _, x: x * 1.5 + 1.0, jnp.ones(8)))
    a, b = jnp.ones((SIDE, SIDE)), jnp.ones(1 << (20 if quick else 27))
    dot, copy = jax.jit(jnp.matmul), jax.jit(lambda b: b + 1)
    key, draw = jax.random.key(0), jax.jit(lambda key: jax.random.bits(key, b.shape).sum())
    short, long, once, often, dots, copies, draws = timed(
        [
            *(chain(few), chain(many), lambda: loop(few), lambda: loop(20 * many)),
            lambda: [dot(a, a) for _ in range(few)],  # the host runs ahead
            lambda: [copy(b) for _ in range(few)],
            lambda: [draw(key) for _ in range(few)],
        ]
    )
    launch = max(0.0, (long - short) / (many - few))
    turn = (often - once) / (20 * many - few)
    return {
        "launch": launch,
        "turn": max(0.0, turn - 3 * launch),  # its body, its counter and its condition
        "bandwidth": few * 2 * b.nbytes / copies,
        "arithmetic": few * 2 * SIDE**3 / dots,
        "draw": draws / (few * b.size),
    }


def compared(
    program: Any, seconds: float, needed: float, operations: float, now: dict[str, float]
) -> dict[str, Any]:
    """A round beside the model with measured constants, and beside the roofline."""
    scalars = jax.default_backend() != "tpu"
    cost = hlo.Program(program.as_text(), scalars=scalars).round()
    model = budgets.Device("", **now, package="", install="")
    roof = max(needed / now["bandwidth"], operations / now["arithmetic"])
    return {
        "us": 1e6 * seconds,
        "model_us": 1e6 * budgets.seconds(model, cost, operations),
        "roofline_us": 1e6 * roof,
        "of_roofline": roof / seconds,
        "kernels": float(sum(cost.kernels.values())),
        "waits": cost.waits,
        "bytes": cost.bytes,
    }


def rounds(name: str, kind: str, posed: jaxfl.Problem, now: dict[str, float]) -> dict[str, Any]:
    """One workload and algorithm."""
    w = WORKLOADS[name]
    run = ours.Rounds(w, posed, *ours.algorithms(w)[kind])
    run(1)
    began = time.perf_counter()
    run(2)
    k = max(1, min(20_000, int(2 * TURN / (time.perf_counter() - began))))
    (each,) = timed([lambda: run(k)], 3)
    follows = run.chosen.body.estimator.memory.follow is not None
    needed = budgets.least(w, run.state, run.hp.caps.get("k"), follows=follows)
    found = compared(run.program, each / k, needed, budgets.flops(w, run.chosen), now)
    return {**found, **run.told, "peak_mib": peak()}


def sweep(cells: int, now: dict[str, float]) -> dict[str, Any]:
    """A grid of W1; a model's time is that of the cells that fit into one call."""
    side = round(cells**0.5)
    sigma, lr = (np.geomspace(0.01, most, side).tolist() for most in (0.3, 1.0))
    began = time.perf_counter()
    axes = {"sigma": sigma, "lr": lr}
    grid = sweeps.Program(sweeps.laid_out(sweeps.problem(), "ldp_sgd", "with_replacement", axes))
    planned, rate = time.perf_counter() - began, grid.rate()
    needed = budgets.least(sweeps.W, grid.state, None)
    operations = grid.cells * budgets.flops(sweeps.W, None)
    found = compared(grid.run.call, grid.cells / rate, needed, operations, now)
    return {**found, "cells": grid.cells, "cell_rounds_per_s": rate, "planned_s": planned}


def peak() -> float | None:
    """The most memory in use on the device so far, in MiB."""
    told = jax.local_devices()[0].memory_stats() or {}
    return told["peak_bytes_in_use"] / 2**20 if "peak_bytes_in_use" in told else None


def tests(quick: bool) -> dict[str, Any]:
    """The tests that need a GPU."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
    command += ["tests/engine/test_accelerators.py"] if quick else ["tests"]
    beside = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # this process has memory too
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=beside,
        capture_output=True,
        text=True,
        timeout=LIMIT / 2,
        check=False,
    )
    return {"passed": done.returncode == 0, "told": (done.stdout.splitlines() or [""])[-1]}


def main(argv: list[str] | None = None) -> int:
    began = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="where results go, as JSON")
    parser.add_argument("--quick", action="store_true", help="tiny workloads, on any machine")
    asked = parser.parse_args(argv)
    if jax.default_backend() == "cpu" and not asked.quick:
        parser.error("JAX sees no GPU or TPU here: --quick tries the script on a CPU")
    result: dict[str, Any] = {
        "device": device_name(jax.local_devices()[0]),
        "commit": budgets.commit(),
        "jax": jax.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "quick": asked.quick,
        "assumed": {name: device._asdict() for name, device in budgets.DEVICES.items()},
        "skipped": {},
    }

    def measure(part: str, what: str, work: Callable[[], Any]) -> None:
        """Record what ``work`` measures, or why it failed or came too late."""
        try:
            if time.perf_counter() - began > LIMIT:
                raise TimeoutError(f"{LIMIT:.0f} s are over")
            result.setdefault(part, {})[what] = row = work()
            print(f"{part}, {what}: {row}", flush=True)
        except Exception as error:
            result["skipped"][f"{part}, {what}"] = f"{type(error).__name__}: {error}"[:300]
            print(f"{part}, {what}: skipped, {error}", flush=True)
        if asked.out:
            asked.out.write_text(json.dumps(result, indent=1) + "\n")

    measure("constants", "measured", lambda: constants(asked.quick))
    now = result["constants"]["measured"]
    measure("tests", "gpu", lambda: tests(asked.quick))
    groups = {"tiny": list(TINY)} if asked.quick else GROUPS
    for group, names in groups.items():
        for name in names:
            posed = ours.problem(WORKLOADS[name])
            for kind in KINDS if group in ("W1", "W2", "W3") else FEW:
                measure(
                    "rounds",
                    f"{name} {kind}",
                    lambda name=name, kind=kind, posed=posed: rounds(name, kind, posed, now),
                )
    for cells in (4,) if asked.quick else CELLS:
        measure("sweeps", f"{cells:,} cells", lambda cells=cells: sweep(cells, now))
    result["seconds"] = time.perf_counter() - began
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if result.get("tests", {}).get("gpu", {}).get("passed") else 1


if __name__ == "__main__":
    sys.exit(main())
