#!/usr/bin/env python3
"""Sweeps by executors: kills at random instants, overhead, many chunks.

    python benchmarks/executors.py kills dask 30             # also: ray, processes
    python benchmarks/executors.py kills dask 30 checkpoint  # in the middle of chunks that have one
    python benchmarks/executors.py overhead
    python benchmarks/executors.py chunks 10000

Clusters are started on this machine, bound to 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.append(str(TESTS))
os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))

import numpy as np  # noqa: E402
from clusters import cluster  # noqa: E402

import jaxfl  # noqa: E402
from jaxfl.engine import driver  # noqa: E402
from jaxfl.engine.executors import processes  # noqa: E402

EXACT = ("messages", "coordinates", "gradients", "uplink_bits", "downlink_bits")


LONG: dict[str, Any] = {"rounds": 30_000, "seeds": 1, "eval_every": 100}  # of half as many chunks


def job(executor: Any = None, rounds: int = 6_000, **options: Any) -> Any:
    """Twelve chunks of two programs, each of some seconds."""
    data = jaxfl.data.split("digits", clients=5)
    problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
    return jaxfl.sweep(
        ["ldp_sgd", "soteriafl_sgd"],
        problem,
        rounds=rounds,
        **{"lr": [0.05, 0.1, 0.2], "clip": 2.0, "sigma": 0.05, "batch": 16},
        **{"seeds": 2, "runs_at_once": 1, "eval_every": 1000, "executor": executor, **options},
    )


class Here:
    """Local processes of a driver, to be killed like the nodes of a cluster."""

    def __init__(self, count: int) -> None:
        self.on, self.driver = f"processes:{count}", 0

    def add(self) -> None:
        """Another takes its place by itself."""

    @property
    def nodes(self) -> list[int]:
        with contextlib.suppress(OSError):
            tasks = Path(f"/proc/{self.driver}/task").glob("*/children")
            return [int(word) for task in tasks for word in task.read_text().split()]
        return []

    def kill(self, i: int) -> None:
        _kill(self.nodes[i])


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


@contextlib.contextmanager
def nodes(kind: str, count: int) -> Iterator[Any]:
    if kind != "processes":
        with cluster(kind, count) as made:
            yield made
        return
    yield Here(count)


def drive(on: str, folder: str, checkpoint: str) -> None:
    """Begin a sweep, or resume it: the driver, in a process of its own."""
    if checkpoint:
        driver.SAVE_EVERY, driver.SHARE = 0.5, 1e9
    resume = (Path(folder) / "planned.jsonl").exists()
    job(on, out=folder, resume=resume, **(LONG if checkpoint else {}))


def kills(kind: str, count: int, checkpoint: str = "") -> None:
    """Sweeps on two workers; in each three workers and once the driver are killed at random instants.

    With `checkpoint` workers return after half a second, so that kills hit checkpoints of chunks.
    """
    began = time.perf_counter()
    whole = job(**(LONG if checkpoint else {}))
    print(f"one machine: {time.perf_counter() - began:.0f} s", flush=True)
    draw = random.Random(22)
    for i in range(count):
        victims = draw.sample(["worker"] * 3 + ["driver"], 4)
        killed, continued, began = 0, 0, time.perf_counter()
        with nodes(kind, 2) as made, tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "sweep"
            command = [sys.executable, __file__, "drive", made.on, str(folder), checkpoint]
            while not (folder / "result.nc").exists():
                process = subprocess.Popen(command)
                made.driver = process.pid
                while victims and process.poll() is None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(draw.uniform(3, 8))
                        break
                    if victims.pop() == "driver":
                        process.kill()
                        continued = len([*folder.glob("chunks/state-*.npz")])
                    elif there := made.nodes:
                        made.kill(draw.randrange(len(there)))
                        made.add()
                    killed += 1
                assert process.wait() in (0, -signal.SIGKILL), "the sweep has failed"
            ds = jaxfl.load(folder / "result.nc")
        equal = [name for name in whole if np.array_equal(whole[name], ds[name], equal_nan=True)]
        assert set(EXACT) <= set(equal)
        for name in whole:
            np.testing.assert_allclose(ds[name], whole[name], 1e-5, err_msg=str(name))
        print(
            f"{kind} {i}: {killed} killed, {time.perf_counter() - began:.0f} s, {continued} checkpoints "
            f"when the driver died, bit for bit equal: {len(equal)} of {len(whole)} variables",
            flush=True,
        )


def overhead() -> None:
    """Four workers on this machine, which have computed before, against its chunks one after the other."""
    with processes(4) as executor:
        for rounds in (1_000, 100_000):  # the first to compile and to start
            took = {}
            for name, where in (("local", None), ("executor", executor)):
                began = time.perf_counter()
                job(where, rounds)
                took[name] = time.perf_counter() - began
            print(rounds, {name: f"{seconds:.1f} s" for name, seconds in took.items()}, flush=True)


class Trivial:
    """Answers at once with the arrays of the first chunk: what is left is the driver."""

    def __init__(self) -> None:
        self.reply: Any = None

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        self.reply = self.reply or function(*arguments)
        future: Future[Any] = Future()
        future.set_result(self.reply)
        return future


def chunks(count: int) -> None:
    for folder in (False, True):
        with tempfile.TemporaryDirectory() as place:
            began, before = time.perf_counter(), _memory()
            data = jaxfl.data.split("digits", clients=2)
            problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
            seen: list[float] = []
            jaxfl.sweep(
                "fedgd",
                problem,
                rounds=1,
                lr=[0.1],
                seeds=count,
                runs_at_once=1,
                executor=Trivial(),
                out=Path(place) / "sweep" if folder else None,
                progress=lambda now: seen.append(time.perf_counter()),
            )
            whole = time.perf_counter() - began
            drive = seen[-1] - seen[0]
            print(
                f"{count:,} chunks {'to a disk' if folder else 'in memory'}: {count / drive:,.0f}/s; "
                f"{whole:.0f} s with planning and the result; {_memory() - before:.0f} MiB more",
                flush=True,
            )


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    call: Any = {"kills": kills, "drive": drive, "overhead": overhead, "chunks": chunks}[
        sys.argv[1]
    ]
    call(*(int(word) if word.isdecimal() else word for word in sys.argv[2:]))
