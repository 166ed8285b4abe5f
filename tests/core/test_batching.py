"""Rare work in a batch: done for those whose coin shows heads, and for nobody else."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import a_problem

from jaxfl import algorithm, sweep
from jaxfl.core.batching import cond_any
from jaxfl.parts import estimators, sampling
from jaxfl.problems import metrics

CALLS: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    CALLS.clear()
    yield
    jax.effects_barrier()


def move(x: jax.Array, c: jax.Array) -> dict[str, jax.Array]:
    """Counts, on the host, how often the device comes here."""
    jax.debug.callback(lambda x: CALLS.append(np.asarray(x)), x)
    return {"a": 2 * x + c, "b": jnp.sum(x)}


STATE = {"a": -jnp.ones(3), "b": jnp.float32(-1)}
C = jnp.float32(0.5)


def step(coin: jax.Array, x: jax.Array, c: jax.Array) -> dict[str, jax.Array]:
    return cond_any(coin, move, STATE, x, c)


def check(found: dict[str, jax.Array], heads: np.ndarray, x: jax.Array) -> None:
    """One call for each of heads; a select would call for all every time."""
    jax.effects_barrier()
    a = np.where(heads[..., None], 2 * np.asarray(x) + 0.5, -1)
    np.testing.assert_allclose(found["a"], a, 1e-6)
    np.testing.assert_allclose(found["b"], np.where(heads, np.asarray(x).sum(-1), -1), 1e-6)
    assert sorted(row.tolist() for row in CALLS) == np.asarray(x)[heads].tolist()


def test_shared_operands_and_state_in_a_batch():
    """What members share they are given whole; a batched state goes through untouched."""
    coins, x = jnp.array([True, False, True]), jnp.arange(3.0)
    states = {"a": jnp.arange(9.0).reshape(3, 3), "b": jnp.arange(3.0)}
    found = jax.jit(jax.vmap(lambda coin, state: cond_any(coin, move, state, x, C)))(coins, states)
    jax.effects_barrier()
    np.testing.assert_array_equal(found["a"], [2 * x + 0.5, states["a"][1], 2 * x + 0.5])
    assert len(CALLS) == 2


@pytest.mark.parametrize("whose", ["runs", "seeds", "cells"])
def test_cells_in_seeds(whose):
    """As a sweep nests them: a coin per seed, which its cells share, per cell, or per run; or none."""
    coins = np.array([[True, False], [False, False], [True, True]])
    x = jnp.arange(18.0).reshape(3, 2, 3)
    given = {"seeds": coins[:, 0], "cells": coins[0], "runs": coins}[whose]
    over_cells = jax.vmap(step, (None if whose == "seeds" else 0, 0, None))
    over_seeds = jax.vmap(over_cells, (None if whose == "cells" else 0, 0, None))
    every = np.broadcast_to(given[:, None] if whose == "seeds" else given, (3, 2))
    run = jax.jit(over_seeds)
    check(run(jnp.asarray(given), x, C), every, x)
    CALLS.clear()
    check(run(jnp.zeros(given.shape, bool), x, C), np.zeros((3, 2), bool), x)


@pytest.mark.full
def test_svrg_pays_for_its_own_passes(monkeypatch):
    """As many full gradients as its runs count, where a select would take one in every round."""
    honest = metrics.mean_gradient

    def counted(problem: Any, x: jax.Array, bound: jax.Array) -> jax.Array:
        jax.debug.callback(lambda x: CALLS.append(np.asarray(x)), x)
        return honest(problem, x, bound)

    monkeypatch.setattr(estimators, "mean_gradient", counted)
    problem = a_problem(n=3, m=7, d=5)  # shapes of its own: no compiled program is found
    total, rounds = int(np.sum(problem.count)), 12
    svrg = algorithm("ldp_svrg", sampler=sampling.sampler("without_replacement"))
    given = {"refresh": [0.1, 0.3], "lr": [0.1, 0.2], "clip": 2.0, "sigma": 0.01, "batch": 2}
    ds = sweep(svrg, problem, rounds=rounds, seeds=3, eval_every=1, **given)
    jax.effects_barrier()
    each = ds["gradients"].isel(algorithm=0).diff("round").values
    passes = (each - 2 * 2 * 3) / total  # two points of two rows of three clients
    assert set(np.unique(passes)) == {0, 1}
    heads, runs = int(passes.sum()), 2 * 2 * 3
    np.testing.assert_array_equal(passes[:, 0], passes[:, 1])  # the steps share their seed's coins
    assert (passes[0] != passes[1]).any()
    assert heads < len(CALLS) <= heads + runs  # and one at the start of each run, at most
    assert len(CALLS) < runs * rounds / 2
