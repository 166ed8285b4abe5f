"""Seconds from the start of a process to its results, compilation cache cold and warm.

``first_s`` ends where the loss after the first evaluated round is shown, ``process_s`` after 100
rounds, each of them evaluated, and the end of the process.

python benchmarks/start.py W1      # one such process, by hand
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["measure"]

ROUNDS = 100
WARM = 3


def measure(workloads: tuple[str, ...] = ("W1", "W2")) -> dict[str, Any]:
    """Of each workload: cold once, then warm a few times, whole processes and their parts."""
    found: dict[str, Any] = {}
    load = os.getloadavg()[0]
    for name in workloads:
        with tempfile.TemporaryDirectory() as cache:
            env = {
                **os.environ,
                "JAX_COMPILATION_CACHE_DIR": cache,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
                "PYTHONPATH": os.pathsep.join(sys.path),
            }
            runs = []
            for _ in range(1 + WARM):
                began = time.perf_counter()
                command = [sys.executable, str(Path(__file__).resolve()), name]
                told = subprocess.run(command, env=env, capture_output=True, text=True)
                whole = time.perf_counter() - began
                if told.returncode:
                    lines = told.stderr.strip().splitlines() or ["it failed"]
                    return {"start": found, "skipped": {name: lines[-1][:200]}}
                parts = json.loads(told.stdout.splitlines()[-1])
                first = whole - parts.pop("rest_s")
                runs.append({"first_s": first, "process_s": whole, **parts})
        warm = sorted(runs[1:], key=lambda run: run["process_s"])[WARM // 2]
        found[f"{name} cold"], found[f"{name} warm"] = runs[0], warm
    return {"start": found, "load": [load, os.getloadavg()[0]]}


def main() -> None:
    began = time.perf_counter()
    import jax

    import jaxfl

    imported = time.perf_counter()
    from ours import problem
    from workloads import WORKLOADS

    w = WORKLOADS[sys.argv[1]]
    posed = problem(w)
    ready = time.perf_counter()
    algorithm = jaxfl.algorithm("ldp_sgd", sampler=jaxfl.parts.sampling.sampler("with_replacement"))
    numbers = {"lr": w.eta, "clip": w.G, "batch": w.b, "sigma": w.sigma}
    shown: list[float] = []
    run = jaxfl.simulate(
        algorithm,
        posed,
        jax.random.key(0),
        ROUNDS,
        progress=lambda _: shown.append(time.perf_counter()),
        **numbers,
    )
    done = time.perf_counter()
    told = {
        "import_s": imported - began,
        "data_s": ready - imported,
        "simulate_s": done - ready,
        "compile_s": run.compile_seconds,
        "rest_s": done - shown[0],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
