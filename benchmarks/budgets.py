"""Kernels, waits and bytes of a round on accelerators, held against budgets.  No device is needed.

    python benchmarks/budgets.py [WORD ...] [--devices h200 v5e] [--out FILE]

Compiles the cases of `budgets.toml` (with WORDs, those with all of them in their names) for the
description of a device, and reads the programs (`hlo.py`).  Ends with status 1 and a line for each
budget that is exceeded.  Skips a device whose compiler is not installed.  See README.md here.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import hlo
import jax
import numpy as np
import ours
import sweeps
from jax.experimental import topologies
from tables import largest
from workloads import WORKLOADS, Workload

import jaxfl
from jaxfl.engine import program as engine
from jaxfl.engine.loop import advance
from jaxfl.engine.plan import Options, Program, programs

__all__ = [
    "DEVICES",
    "Device",
    "commit",
    "exceeded",
    "flops",
    "least",
    "main",
    "missing",
    "seconds",
]

HERE = Path(__file__).resolve().parent
TABLE = tomllib.loads((HERE / "budgets.toml").read_text())
LOCAL = 5  # local steps
LARGEST = 3  # operations whose bytes are shown
MORE: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "SGD, without replacement": ("ldp_sgd", {}, {"sampler": "without_replacement"}),
    "SGD, secure sum": ("ldp_sgd", {}, {"aggregation": "secure_sum"}),
    "local steps": ("dp_fedavg", {"local_steps": LOCAL}, {}),
    "gossip": ("dp_dsgd", {}, {}),
}
SWEEP = re.compile(r"sweep of ([\d,]+), (\w+)")
STORED = ", bfloat16"  # ends the names of cases that store shifts and tables in it


class Device(NamedTuple):
    """A round takes the time of its launches, waits, bytes, draws and unavoidable arithmetic, added up."""

    name: str
    launch: float  # seconds a kernel, beside its work: assumed, see accelerator.py
    turn: float  # seconds a wait: assumed too
    bandwidth: float  # bytes per second, as its maker states it
    arithmetic: float  # float32 operations per second; of a TPU, a sixth of those of bfloat16
    draw: float  # seconds for 32 random bits: the integer operations of Threefry over those per second
    package: str  # that compiles for it
    install: str


DEVICES = {
    "h200": Device(
        *("NVIDIA H200", 2.5e-6, 12e-6, 4.8e12, 67e12, 75 / (67e12 / 4)),
        *("jax_plugins.xla_cuda13", "pip install 'jaxfl[gpu]'"),
    ),
    "v5e": Device(
        *("TPU v5e", 0.5e-6, 1e-6, 0.82e12, 197e12 / 6, 115 / (4 * 1024 * 1.5e9)),
        *("libtpu", "pip install 'jax[tpu]'"),
    ),
}


def missing(name: str) -> str:
    """Why nothing can be compiled for a device, or an empty string."""
    device = DEVICES[name]
    if jax.__version__ != TABLE["jax"]:
        return f"budgets are those of JAX {TABLE['jax']}, and JAX {jax.__version__} is installed"
    parent = device.package.split(".")[0]
    if not find_spec(parent) or not find_spec(device.package):
        return f"the compiler for {device.name} is not installed: {device.install}"
    return ""


def described(name: str) -> Any:
    """A device of that kind that is not here."""
    if name == "v5e":
        return topologies.get_topology_desc("v5e:2x2", "tpu").devices[0]
    facts = (HERE / f"{name}.txtpb").read_text()
    made = topologies.get_topology_desc(platform="cuda", target_config=facts, topology="1x1x1")
    return made.devices[0]


@functools.lru_cache(maxsize=1)
def problem(workload: str) -> jaxfl.Problem:
    return ours.problem(WORKLOADS[workload])


@functools.lru_cache
def planned(algorithm: str, cells: int, storage: str = "exact") -> tuple[Program, int | None]:
    """A square grid of W1, and the coordinates of its messages."""
    side, k = round(math.sqrt(cells)), None if algorithm == "ldp_sgd" else sweeps.W.d // 20
    sigma, lr = (np.geomspace(0.01, most, side).tolist() for most in (0.3, 1.0))
    numbers = {"k": k} if k else {}
    axes = {"sigma": sigma, "lr": lr}
    grid = sweeps.laid_out(
        problem("W1"), algorithm, "with_replacement", axes, storage=storage, **numbers
    )
    return programs(grid)[0], k


def compiled(case: str, device: Any) -> tuple[Any, float, float]:
    """The program of a case; the least bytes and the operations of a round."""
    name, kind = case.removesuffix(STORED).split(" ", 1)
    stored = {"storage": "bfloat16"} if case.endswith(STORED) else {}
    w, posed = WORKLOADS[name], problem(name)
    if found := SWEEP.fullmatch(kind):
        cells = int(found[1].replace(",", ""))
        program, k = planned(found[2], cells, **stored)
        made = engine.compiled(program, (1, cells), Options(), [device])
        return made.call, least(w, made.state, k), cells * flops(w, None)
    algorithm, numbers, parts = {**ours.algorithms(w), **MORE}[kind]
    chosen, read, hp = ours.posed_for(w, posed, algorithm, numbers, {**parts, **stored})
    key = jax.eval_shape(jax.random.key, 0)
    state = jax.eval_shape(lambda *args: chosen.init(*args)[0], key, read, hp)
    home = jax.sharding.SingleDeviceSharding(device)
    arguments = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=home),
        (key, state, state.t, read, hp),
    )
    program = jax.jit(advance, static_argnums=0, donate_argnums=2).lower(chosen, *arguments)
    steps = LOCAL if "local_steps" in hp.values else 1
    follows = steps == 1 and chosen.body.estimator.memory.follow is not None
    drawn = least(w, state, hp.caps.get("k"), steps, follows)
    return program.compile(), drawn, steps * flops(w, chosen)


def least(w: Workload, state: Any, k: int | None, steps: int = 1, follows: bool = False) -> float:
    """Bytes of the drawn samples, and twice those of the state: a round reads and writes it.

    Of clients' vectors (n, d) a sparse message touches k coordinates, each in a sector of its own, and of a
    table (n, m, ...) of records the drawn ones.  What is added to estimates (``bases``) is read at these
    coordinates, and written only where it ``follows`` each gradient.
    """
    total = 4.0 * steps * w.r * w.b * (w.features + 1)
    bases = getattr(state, "bases", None)
    for leaf in jax.tree.leaves(state):
        share, times = 1.0, 2.0
        if leaf.shape[-2:] == (w.n, w.d) and not (leaf is bases and follows):
            share = min(1.0, (k or w.d) / w.d * hlo.SECTOR / leaf.dtype.itemsize)
            times = 1.0 if leaf is bases else 2.0
        elif leaf.shape[:2] == (w.n, w.m):
            share = w.b / w.m
        total += times * share * leaf.size * leaf.dtype.itemsize
    return total


def flops(w: Workload, chosen: jaxfl.parts.Algorithm | None) -> float:
    """The least operations of a round: those of one gradient, at each point that the estimator needs."""
    return w.flops * (chosen.body.estimator.points if chosen else 1)


def seconds(device: Device, cost: hlo.Cost, operations: float) -> float:
    """The model of a round."""
    return (
        device.launch * sum(cost.kernels.values())
        + device.turn * cost.waits
        + cost.bytes / device.bandwidth
        + device.draw * cost.draws
        + operations / device.arithmetic
    )


def measure(case: str, name: str, here: Any) -> dict[str, Any]:
    """What one round of a case takes."""
    program, needed, operations = compiled(case, here)
    round = hlo.Program(program.as_text(), LOCAL, scalars=here.platform != "tpu").round()
    kernels, device = float(sum(round.kernels.values())), DEVICES[name]
    return {
        "kernels": kernels,
        "rare_kernels": round.most - kernels,
        "waits": round.waits,
        "draws": round.draws,
        "loops": round.loops,
        "bytes": round.bytes,
        "least_bytes": needed,
        "bytes_over_least": round.bytes / needed,
        "model_us": 1e6 * seconds(device, round, operations),
        "scratch_mib": program.memory_analysis().temp_size_in_bytes / 2**20,
        "by_operation": {_short(where): n for where, n in round.kernels.most_common()},
        "largest": {_short(where): moved for where, moved in round.moved.most_common(LARGEST)},
    }


def exceeded(name: str, case: str, row: dict[str, Any], budget: Sequence[float]) -> list[str]:
    """A line for each budget of a case (kernels, waits, bytes over the least) that is exceeded."""
    lines = []
    for what, most in zip(("kernels", "waits", "bytes_over_least"), budget, strict=True):
        if row[what] > most:
            told = ", ".join(f"{n:g} {where}" for where, n in row["by_operation"].items())
            line = f"{name}, {case}: {row[what]:.4g} {what.replace('_', ' ')}, budget {most:g}"
            lines.append(f"{line} ({told})" if what == "kernels" else line)
    return lines


def commit() -> str:
    """The last commit that changed the package, with a plus if it differs now; empty without git."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(HERE.parent), *words, "--", "jaxfl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return git("log", "-1", "--format=%h") + "+" * bool(git("status", "--porcelain"))


def _short(where: str) -> str:
    return re.sub(r".*/while/(body/)?", "", where)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="WORD", help="of the names of cases")
    parser.add_argument("--devices", nargs="+", choices=DEVICES, default=list(DEVICES))
    parser.add_argument("--out", type=Path, help="where results go, as JSON")
    asked = parser.parse_args(argv)
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"  # there is no TPU to ask about
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0"
    jax.config.update("jax_platforms", "cpu")
    result: dict[str, Any] = {"constants": {}, "devices": {}, "skipped": {}}
    if asked.out and asked.out.exists():  # what is not measured now stays
        result = json.loads(asked.out.read_text())
    stamp = {"commit": commit(), "jax": jax.__version__, "date": time.strftime("%Y-%m-%d")}
    over: list[str] = []
    for name in asked.devices:
        result["skipped"].pop(name, None)
        if why := missing(name):
            print(f"{name} is skipped: {why}")
            result["skipped"][name] = why
            continue
        here, rows = described(name), result["devices"].setdefault(name, {})
        result["constants"][name] = DEVICES[name]._asdict()
        for case, budget in TABLE[name].items():
            if all(word in case for word in asked.words):
                rows[case] = row = {**measure(case, name, here), **stamp}
                over += exceeded(name, case, row, budget)
                show(name, case, row, budget)
                if asked.out:
                    asked.out.write_text(json.dumps(result, indent=1) + "\n")
    for line in over:
        print(line)
    return 1 if over else 0


def show(name: str, case: str, row: dict[str, Any], budget: Sequence[float]) -> None:
    kernels, waits, times = budget
    print(
        f"{name} {case:34s}{row['kernels']:6g} kernels (at most {kernels:g}; {row['rare_kernels']:g} "
        f"more rarely), {row['waits']:g} waits ({waits:g}), {row['draws']:,.0f} draws, "
        f"{row['bytes'] / 1e6:,.2f} MB, {row['bytes_over_least']:.1f} of the least ({times:g}), "
        f"{row['model_us']:,.0f} us; {largest(row)}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
