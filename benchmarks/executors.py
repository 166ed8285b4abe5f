#!/usr/bin/env python3
"""Sweeps by executors: overhead, many chunks.

    python benchmarks/executors.py overhead
    python benchmarks/executors.py chunks 10000

`python tests/engine/kills.py executors` kills their drivers and workers.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jaxfl


def job(executor: Any = None, rounds: int = 6_000) -> Any:
    """Twelve chunks of two programs, each of some seconds."""
    data = jaxfl.data.split("digits", clients=5)
    problem = jaxfl.Problem(jaxfl.models.softmax_regression(64, 10), data)
    return jaxfl.sweep(
        ["ldp_sgd", "soteriafl_sgd"],
        problem,
        rounds=rounds,
        lr=[0.05, 0.1, 0.2],
        seeds=2,
        clip=2.0,
        sigma=0.05,
        batch=16,
        runs_at_once=1,
        eval_every=1000,
        executor=executor,
    )


def overhead() -> None:
    """Four workers on this machine, which have computed before, against its chunks one after the other."""
    with jaxfl.engine.executors.processes(4) as executor:
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
            problem = jaxfl.Problem(jaxfl.models.softmax_regression(64, 10), data)
            seen: list[float] = []
            jaxfl.sweep(
                "fedgd",
                problem,
                rounds=1,
                lr=0.1,
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
    call: Any = {"overhead": overhead, "chunks": chunks}[sys.argv[1]]
    call(*map(int, sys.argv[2:]))
