"""jaxfl's own contenders, as a worker of `rounds.py`: compiled rounds, a sweep, the matmul ceiling."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tables
from flax import linen as nn
from protocol import serve
from workloads import CLASSES, WORKLOADS, Workload, data, sample

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.data.samples import measured
from jaxfl.engine.loop import LONGEST, advance
from jaxfl.engine.memory import check_room, remembered
from jaxfl.problems.facts import facts_of

__all__ = ["CEILING", "Rounds", "algorithms", "contenders", "posed_for", "problem", "rounds_of"]

SIDE = 2048
CEILING = f"matrix product {SIDE}^3"
SIMULATED = {"W1": 10_000, "W2": 10_000}
SWEPT = 1000  # rounds of a sweep's call; its evaluation at the end is timed with them


class Images(nn.Module):
    """The network of FedJAX's and TensorFlow Federated's EMNIST studies, without dropout."""

    @nn.compact
    def __call__(self, a: jax.Array) -> Any:
        z = nn.relu(nn.Conv(32, (3, 3), padding="VALID")(a))
        z = nn.relu(nn.Conv(64, (3, 3), padding="VALID")(z))
        z = nn.max_pool(z, (2, 2), strides=(2, 2)).reshape(len(z), -1)
        return nn.Dense(62)(nn.relu(nn.Dense(128)(z)))


def problem(w: Workload) -> jaxfl.Problem:
    regularizer = "nonconvex:0.2"
    if w.kind == "logistic":
        model = jaxfl.models.logistic(w.features, regularizer=regularizer)
    elif w.kind == "images":
        model = jaxfl.models.flax_model(Images(), (28, 28, 1))
    else:
        model = jaxfl.models.mlp(w.features, hidden=(64,), classes=10)
    classes = CLASSES[w.kind]
    if w.generated:
        clients = jaxfl.data.generated(make, w.n, w.m, source=jnp.uint32(0), classes=classes)
    else:
        clients = jaxfl.data.from_clients(data(w), classes=classes, stacked=True)
    return jaxfl.Problem(model, clients, name=w.name, eval_records="all")


def make(source: jax.Array, i: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array]:
    a, y = sample(jnp, source, i, j)
    return a, y


def posed_for(
    w: Workload, posed: jaxfl.Problem, name: str, numbers: dict[str, Any], parts: dict[str, Any]
) -> tuple[jaxfl.parts.Algorithm, jaxfl.Problem, Any]:
    """The algorithm, the problem as rounds read it, and the hyper-parameters of a workload."""
    if w.cohort is not None:
        parts = {"participation": jaxfl.parts.sampling.participation("uniform"), **parts}
        numbers = {"cohort": w.cohort, **numbers}
    parts = {"sampler": jaxfl.parts.sampling.sampler("with_replacement"), **parts}
    chosen = jaxfl.algorithm(name, **parts)
    given = {"lr": w.eta, "clip": w.G, "sigma": w.sigma, "batch": w.b, **numbers}
    facts = facts_of(posed, 1000)
    values = jaxfl.algorithms.resolution.resolve(chosen, given, facts).values
    return chosen, measured(posed), build(chosen, values, facts, jnp.float32)


class Rounds:
    """``rounds -> some number of the model``, by the compiled rounds of ``simulate``."""

    def __init__(
        self,
        w: Workload,
        posed: jaxfl.Problem,
        name: str,
        numbers: dict[str, Any],
        parts: dict[str, Any],
    ) -> None:
        self.chosen, self.problem, self.hp = posed_for(w, posed, name, numbers, parts)
        check_room(self.chosen, self.problem, self.hp)
        self.key = jax.random.key(0)
        self.state, _ = jax.jit(self.chosen.init)(self.key, self.problem, self.hp)
        began = time.perf_counter()
        program = jax.jit(advance, static_argnums=0, donate_argnums=2)
        lowered = program.lower(
            self.chosen, self.key, self.state, self.state.t, self.problem, self.hp
        )
        traced = time.perf_counter()
        self.program = lowered.compile()
        done = time.perf_counter()
        taken = self.program.memory_analysis()
        state = remembered(self.chosen, self.problem, self.hp)
        self.told = {
            "trace_s": traced - began,
            "compile_s": done - traced,
            "scratch_mib": taken.temp_size_in_bytes / 2**20 if taken is not None else None,
            "state_mib": sum(state.values()) / 2**20,
        }

    def __call__(self, rounds: int) -> float:
        while rounds:
            k = min(rounds, LONGEST)
            stop = self.state.t + k
            self.state, _ = self.program(self.key, self.state, stop, self.problem, self.hp)
            rounds -= k
        return float(self.chosen.output(self.state).sum())


def rounds_of(
    w: Workload, posed: jaxfl.Problem, name: str, numbers: dict[str, Any], parts: dict[str, Any]
) -> tuple[Rounds, dict[str, Any]]:
    """The rounds, and what their compilation took."""
    rounds = Rounds(w, posed, name, numbers, parts)
    return rounds, rounds.told


def ceiling() -> Callable[[int], float]:
    a = jnp.ones((SIDE, SIDE), jnp.float32)
    dot = jax.jit(jnp.matmul)

    def run(times: int) -> float:
        for _ in range(times):
            found = dot(a, a)
        return float(found[0, 0])

    return run


def sweep() -> tuple[Callable[[int], float], dict[str, Any]]:
    """A call is :data:`SWEPT` rounds of 64 cells."""
    import sweeps

    axes = {"sigma": sweeps.SIGMA[::2], "lr": sweeps.LR[::2]}
    grid = sweeps.Program(sweeps.laid_out(sweeps.problem(), "ldp_sgd", "with_replacement", axes))

    def run(calls: int) -> float:
        return sum(grid.seconds(SWEPT) for _ in range(calls))

    return run, {"rounds_per_call": SWEPT * grid.cells, "cells": grid.cells}


def simulated(
    w: Workload, posed: jaxfl.Problem, every: int | None
) -> tuple[Callable[[int], tuple[float, float]], dict[str, Any]]:
    """A call is a run of :data:`SIMULATED` rounds, and counts what follows its compilation."""
    algorithm = jaxfl.algorithm("ldp_sgd", sampler=jaxfl.parts.sampling.sampler("with_replacement"))
    numbers = {"lr": w.eta, "clip": w.G, "sigma": w.sigma, "batch": w.b}
    rounds = SIMULATED.get(w.name, 100)
    key = jax.random.key(0)

    def run(calls: int) -> tuple[float, float]:
        seconds = 0.0
        for _ in range(calls):
            run = jaxfl.simulate(algorithm, posed, key, rounds, eval_every=every, **numbers)
            seconds += run.seconds - run.compile_seconds
        return float(run.x[0]), seconds

    return run, {"rounds_per_call": rounds}


def algorithms(w: Workload) -> dict[str, tuple[str, dict[str, Any], dict[str, Any]]]:
    """The algorithm of each contender, its hyper-parameters and its parts."""
    random_k = {"k": max(1, w.d // 20)}
    qsgd = {"compressor": jaxfl.parts.compressors.compressor("qsgd")}
    levels = {"levels": 16}
    plain = {"compressor": jaxfl.parts.compressors.compressor("identity")}
    each = {"noise": "per_client"}
    fixed = {"smoothness": 1.0}  # asked for by theory that is not used here
    return {
        "SGD": ("ldp_sgd", {}, {}),
        "SGD, Poisson batches": ("ldp_sgd", {}, {"sampler": jaxfl.parts.sampling.poisson()}),
        "SGD, noise per client": ("ldp_sgd", {}, each),
        "SGD, random-k": ("cdp_sgd", random_k, {}),
        "SGD, random-k, shifted": ("soteriafl_sgd", {**random_k, **fixed}, {}),
        "SGD, QSGD": ("cdp_sgd", levels, qsgd),
        "SVRG": ("ldp_svrg", fixed, {}),
        "SVRG, noise per client": ("ldp_svrg", fixed, each),
        "SVRG, random-k, shifted": ("soteriafl_svrg", {**random_k, **fixed}, {}),
        "SVRG, QSGD, shifted": ("soteriafl_svrg", {**levels, **fixed}, qsgd),
        "SAGA, shifted": ("soteriafl_saga", fixed, plain),
        "SAGA, noise per client, shifted": ("soteriafl_saga", fixed, {**plain, **each}),
        "SAGA, random-k, shifted": ("soteriafl_saga", {**random_k, **fixed}, {}),
        "SAGA, QSGD, shifted": ("soteriafl_saga", {**levels, **fixed}, qsgd),
    }


def contenders(w: Workload) -> dict[str, Callable[[], Any]]:
    held: dict[str, jaxfl.Problem] = {}

    def posed() -> jaxfl.Problem:
        if not held:  # once for all
            held["problem"] = problem(w)
        return held["problem"]

    def entry(what: tuple[str, dict[str, Any], dict[str, Any]]) -> Callable[[], Any]:
        return lambda: rounds_of(w, posed(), *what)

    found = {f"jaxfl, {who}": entry(what) for who, what in algorithms(w).items()}
    found[CEILING] = ceiling
    if w.generated:  # rounds of seconds: one of each kind
        for who in list(found):
            if not who.startswith(tables.OURS) and ("per client" in who or "QSGD" in who):
                del found[who]
    if w.kind == "images":  # rounds of seconds
        kept = (
            tables.OURS,
            tables.PER_CLIENT,
            tables.RANDOM_K,
            f"{tables.RANDOM_K}, shifted",
            CEILING,
        )
        found = {who: found[who] for who in kept}
    if w.name in ("W1", "W2"):
        every = SIMULATED.get(w.name, 100) // 100
        found[tables.EVALUATED] = lambda: simulated(w, posed(), every)
        found[tables.UNSEEN] = lambda: simulated(w, posed(), 0)
    if w.name == "W1":
        found[tables.SWEEP] = sweep
    return found


if __name__ == "__main__":
    versions = {
        "python": sys.version.split()[0],
        "jaxfl": jaxfl.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "device": jax.devices()[0].device_kind,
    }
    serve(contenders(WORKLOADS[sys.argv[1]]), versions)
