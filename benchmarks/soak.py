#!/usr/bin/env python3
"""Hours of mixed work in one process: do memory, file handles, threads, processes or files add up?

    python benchmarks/soak.py --minutes 120

Each cycle takes the same tasks with other numbers and seeds: runs, sweeps on this machine and on workers,
an interruption with a resumption, an extension, tables and pictures, statements of privacy, the user's own
`vmap`, and mistakes. The first cycles compile and fill the caches of JAX; after them nothing may grow. The
last line compares the last quarter with the second; the exit status is 1 if something grew.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import statistics
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "Agg")

import jax
import numpy as np
import psutil

import jaxfl

ROUNDS = 60
EVERY = 8  # cycles from one use of worker processes to the next
MIB = 2.0**20
MAY_GROW = {"memory_mib": 64.0, "handles": 0, "threads": 0, "processes": 0, "temporary": 0}
Rng = np.random.Generator


def problem(rng: Rng) -> jaxfl.Problem:
    """New data of one shape."""
    x = rng.normal(size=(5, 40, 12)).astype(np.float32)
    y = (x[..., 0] + rng.normal(size=(5, 40)) > 0).astype(np.int32)
    data = jaxfl.data.from_clients(list(zip(x, y, strict=True)))
    return jaxfl.Problem(jaxfl.models.softmax_regression(12, 2), data)


def numbers(rng: Rng) -> dict[str, Any]:
    return {"rounds": ROUNDS, "clip": 1.0, "batch": 8, "eps": float(rng.uniform(1, 8))}


def runs(rng: Rng, folder: Path) -> None:
    data, seed = problem(rng), int(rng.integers(2**31))
    for name, more in (("ldp_sgd", {}), ("soteriafl_saga", {"omega": 3.0}), ("dp_sgd", {})):
        jaxfl.simulate(
            name, data, lr=float(rng.uniform(0.01, 0.3)), seed=seed, **numbers(rng), **more
        )
    jaxfl.simulate("fedavg", data, rounds=ROUNDS, local_steps=3, lr=0.1, seed=seed)


class Interruption(Exception):
    """What ends a run in the middle."""


class After:
    """Interrupts at the third evaluation."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, *_: Any, **__: Any) -> None:
        self.seen += 1
        if self.seen == 3:
            raise Interruption


def interruptions(rng: Rng, folder: Path) -> None:
    data, given = problem(rng), {"lr": 0.1, "seed": 1, "eval_every": 10, **numbers(rng)}
    with contextlib.suppress(Interruption):
        jaxfl.simulate("ldp_sgd", data, out=folder / "run", progress=After(), **given)
    jaxfl.simulate("ldp_sgd", data, out=folder / "run", resume=True, **given)
    jaxfl.load(folder / "run")


def sweeps(rng: Rng, folder: Path) -> None:
    data, given = problem(rng), {"lr": [0.05, float(rng.uniform(0.1, 0.5))], **numbers(rng)}
    names, place = ["ldp_sgd", "soteriafl_sgd"], folder / "sweep"
    jaxfl.sweep(names, data, out=place, omega=3, seeds=2, **given)
    ds = jaxfl.sweep(names, data, out=place, omega=3, seeds=3, extend=True, **given)
    jaxfl.views.table(ds)
    jaxfl.views.draw(ds, folder / "pictures")


def workers(rng: Rng, folder: Path) -> None:
    with jaxfl.engine.executors.processes(2) as executor:
        jaxfl.sweep(
            "ldp_sgd", problem(rng), lr=[0.1, 0.2], seeds=2, executor=executor, **numbers(rng)
        )


def statements(rng: Rng, folder: Path) -> None:
    given = {
        "clients": 10,
        "samples": int(rng.integers(500, 5000)),
        "rounds": 100,
        "batch": 50,
        "clip": 1.0,
    }
    jaxfl.calibrate("ldp_sgd", eps=float(rng.uniform(1, 8)), delta=1e-5, **given)
    jaxfl.account("ldp_sgd", sigma=float(rng.uniform(0.1, 1)), delta=1e-5, **given)


def transformations(rng: Rng, folder: Path) -> None:
    f = jaxfl.functions("ldp_sgd", problem(rng), lr=0.1, **numbers(rng))
    keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), 4)
    jax.block_until_ready(jax.vmap(lambda key: f.round(f.init(key)))(keys))


def mistakes(rng: Rng, folder: Path) -> None:
    data = problem(rng)
    wrong: list[dict[str, Any]] = [
        {"lr": -1.0},
        {"clip": float("nan")},
        {"batch": 10**6},
        {"epz": 3},
    ]
    for one in wrong:
        with contextlib.suppress(ValueError, TypeError):
            jaxfl.simulate("ldp_sgd", data, **{"lr": 0.1, **numbers(rng), **one})


TASKS: list[Callable[[Rng, Path], None]] = [
    runs,
    interruptions,
    sweeps,
    statements,
    transformations,
    mistakes,
]


def measured() -> dict[str, float]:
    me = psutil.Process()
    gc.collect()
    return {
        "memory_mib": me.memory_info().rss / MIB,
        "handles": me.num_fds(),
        "threads": threading.active_count(),
        "processes": len(me.children(recursive=True)),
        "temporary": len(os.listdir(tempfile.gettempdir())),
    }


def soak(minutes: float, seed: int) -> list[dict[str, float]]:
    found: list[dict[str, float]] = []
    began, spent = time.monotonic(), dict.fromkeys((task.__name__ for task in TASKS), 0.0)
    while (now := time.monotonic() - began) < 60 * minutes:
        rng = np.random.default_rng([seed, len(found)])
        for task in [*TASKS, *([workers] if len(found) % EVERY == 0 else [])]:
            start = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                task(rng, Path(folder))
            spent[task.__name__] = spent.get(task.__name__, 0.0) + time.monotonic() - start
        found.append({"minute": now / 60, **measured()})
        if len(found) < 4 or len(found) % 10 == 0:
            print(json.dumps({name: round(v, 1) for name, v in found[-1].items()}), flush=True)
    print({name: f"{seconds:.0f} s" for name, seconds in spent.items()})
    return found


def grown(found: list[dict[str, float]]) -> dict[str, float]:
    """By how much medians of the last quarter exceed those of the second, where more than they may."""
    quarter = len(found) // 4
    second, last = found[quarter : 2 * quarter], found[-quarter:]
    more = {
        name: statistics.median(one[name] for one in last)
        - statistics.median(one[name] for one in second)
        for name in MAY_GROW
    }
    print(f"{len(found)} cycles; last quarter less second: {more}")
    return {name: by for name, by in more.items() if by > MAY_GROW[name]}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # noise may win
    with tempfile.TemporaryDirectory() as place:
        tempfile.tempdir = os.environ["TMPDIR"] = place
        return 1 if grown(soak(options.minutes, options.seed)) else 0


if __name__ == "__main__":
    raise SystemExit(main())
