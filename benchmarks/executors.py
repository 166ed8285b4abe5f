#!/usr/bin/env python3
"""Sweeps by executors: kills at random instants, overhead, many chunks.

    python benchmarks/executors.py kills dask 5       # also: ray, processes
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
import sys
import tempfile
import threading
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
from jaxfl.engine.executors import processes, read  # noqa: E402

EXACT = ("messages", "coordinates", "gradients", "uplink_bits", "downlink_bits")


def job(executor: Any = None, rounds: int = 6_000, **options: Any) -> Any:
    """Twelve chunks of two programs, each of some seconds."""
    data = jaxfl.data.split("digits", clients=5)
    problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
    return jaxfl.sweep(
        ["ldp_sgd", "soteriafl_sgd"],
        {"lr": [0.05, 0.1, 0.2]},
        problem,
        rounds=rounds,
        seeds=2,
        numbers={"clip": 2.0, "sigma": 0.05, "batch": 16},
        **{"runs_at_once": 1, "eval_every": 1000, "executor": executor, **options},
    )


class Here(processes):
    """Local processes, to be killed like the nodes of a cluster."""

    on: Any
    add = staticmethod(lambda: None)

    @property
    def nodes(self) -> list[Any]:
        return [process for process in self.running.values() if process.poll() is None]

    def kill(self, i: int) -> None:
        os.kill(self.nodes[i].pid, signal.SIGKILL)


@contextlib.contextmanager
def nodes(kind: str, count: int) -> Iterator[Any]:
    if kind != "processes":
        with cluster(kind, count) as made:
            yield made
        return
    made = Here(count)
    made.on = made
    yield made


def kills(kind: str, count: int) -> None:
    """Sweeps on two workers; three times in each a worker is killed, and another takes its place."""
    began = time.perf_counter()
    whole = job()
    alone = time.perf_counter() - began
    print(f"one machine: {alone:.0f} s", flush=True)
    draw = random.Random(22)
    for i in range(count):
        killed, over = 0, threading.Event()
        with nodes(kind, 2) as made, tempfile.TemporaryDirectory() as folder:

            def compute() -> None:
                found.append(job(executor, out=Path(folder) / "sweep"))  # noqa: B023
                over.set()  # noqa: B023

            found: list[Any] = []
            began = time.perf_counter()
            with read(made.on) if isinstance(made.on, str) else made as executor:
                thread = threading.Thread(target=compute)
                thread.start()  # nodes of Ray begin in the main thread
                while killed < 3 and not over.wait(draw.uniform(2, 8)):
                    if there := made.nodes:
                        made.kill(draw.randrange(len(there)))
                        killed += 1
                        made.add()
                thread.join()
        assert found, "the sweep has failed"
        (ds,) = found
        equal = [name for name in whole if np.array_equal(whole[name], ds[name], equal_nan=True)]
        assert set(EXACT) <= set(equal)
        for name in whole:
            np.testing.assert_allclose(ds[name], whole[name], 1e-5, err_msg=str(name))
        print(
            f"{kind} {i}: {killed} killed, {time.perf_counter() - began:.0f} s, bit for bit equal: "
            f"{len(equal)} of {len(whole)} variables",
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
                {"lr": [0.1]},
                problem,
                rounds=1,
                seeds=count,
                runs_at_once=1,
                executor=Trivial(),
                out=Path(place) / "sweep" if folder else None,
                progress=lambda now: seen.append(time.perf_counter()),  # noqa: B023
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
    call: Any = {"kills": kills, "overhead": overhead, "chunks": chunks}[sys.argv[1]]
    call(*(int(word) if word.isdecimal() else word for word in sys.argv[2:]))
