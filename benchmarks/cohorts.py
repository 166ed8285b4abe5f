"""What a round of private local SGD costs where r = 10 of n clients take part: it follows r, not n.

    python benchmarks/cohorts.py [--clients 16 1000 10000] [--cohort 10]

Repetitions take turns, so that a machine whose speed drifts is the same for all; the figure is the
median, and the ratio is the median of the ratios within a turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.engine.loop import advance
from jaxfl.problems.facts import facts_of

ROUNDS, TURNS, SAMPLES, FEATURES = 200, 9, 100, 108


def seconds(n: int, r: int, tau: int, batch: int) -> Callable[[], float]:
    """A call that does :data:`ROUNDS` rounds of a compiled program and says how long they took."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((n, SAMPLES, FEATURES), np.float32)
    problem = jaxfl.Problem(jaxfl.models.logistic(FEATURES), (a, rng.integers(0, 2, (n, SAMPLES))))
    algorithm = jaxfl.algorithm(
        "private_local_sgd", participation=jaxfl.parts.sampling.participation("uniform")
    )
    given = {"cohort": r, "local_steps": tau, "batch": batch, "sigma": 0.1, "lr": 0.01}
    facts = facts_of(problem, ROUNDS)
    values = jaxfl.algorithms.resolution.resolve(algorithm, given, facts).values
    hp = build(algorithm, values, facts, jnp.dtype(jnp.float32))
    key = jax.random.key(0)
    state, _ = algorithm.init(key, problem, hp)
    held = {"state": jax.tree.map(jnp.copy, state)}
    run = jax.jit(advance, static_argnums=0, donate_argnums=2)

    def call() -> float:
        began = time.perf_counter()
        stop = held["state"].t + ROUNDS
        held["state"], _ = run(algorithm, key, held["state"], stop, problem, hp)
        jax.block_until_ready(held["state"])
        return time.perf_counter() - began

    call()  # compiles
    return call


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, nargs="+", default=[16, 1000, 10_000])
    parser.add_argument("--cohort", type=int, default=10)
    parser.add_argument("--local-steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=20)
    asked = parser.parse_args()
    calls = [seconds(n, asked.cohort, asked.local_steps, asked.batch) for n in asked.clients]
    turns = [[call() for call in calls] for _ in range(TURNS)]
    for n, times in zip(asked.clients, zip(*turns, strict=True), strict=True):
        ratio = statistics.median(t / turn[0] for t, turn in zip(times, turns, strict=True))
        speed = ROUNDS / statistics.median(times)
        print(f"n = {n:>6}: {speed:8.0f} rounds/s, {ratio:.2f} times n = {asked.clients[0]}")


if __name__ == "__main__":
    main()
