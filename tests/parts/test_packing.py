"""Rows read one client after the other: every live row once, whatever the strips."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import a_problem

import jaxfl
from jaxfl.core.types import Draw
from jaxfl.rounds import Federated
from jaxfl.rounds.estimates import strip, strips


@pytest.mark.parametrize("length", [1, 2, 7, 64])
@pytest.mark.parametrize("counts", [(3, 0, 5, 1), (0, 0, 0, 0), (5, 5, 5, 5), (0, 0, 0, 1)])
def test_every_live_row_once(length, counts):
    counts = np.array(counts)
    slots = np.arange(5)
    live = slots < counts[:, None]
    index = np.where(live, 10 * np.arange(4)[:, None] + slots, 99)
    rows = Draw(jnp.array(index), jnp.array(np.where(live, 0.5 + index, 0.0), jnp.float32))

    def f(who, rows):
        assert rows.index is not None
        hits = jnp.zeros((4, 100)).at[who, rows.index].add(jnp.where(rows.weight > 0, 1.0, 0.0))
        return jnp.concatenate([hits.reshape(-1), jnp.sum(rows.weight)[None]])

    found = jax.jit(lambda: strips(rows, length, f, jnp.zeros(401)))()
    expected = np.zeros((4, 100))
    for i, m in enumerate(counts):
        expected[i, 10 * i : 10 * i + m] = 1
    np.testing.assert_array_equal(found[:-1].reshape(4, 100), expected)
    np.testing.assert_allclose(found[-1], np.where(live, 0.5 + index, 0).sum(), rtol=1e-6)


def test_a_strip_nearly_always_suffices():
    rng = np.random.default_rng(0)
    totals = rng.binomial(60_000, 128 / 6000, 10_000)
    length = strip(1280, 10 * 226)
    assert np.mean(totals > length) < 1e-3
    assert length < 1.2 * 1280
    assert strip(3.0, 4) == 4  # no more than the slots that there are


@pytest.mark.parametrize("name", ["ldp_sgd", "ldp_svrg"])
@pytest.mark.parametrize("cohort", [None, 3])
def test_packed_runs_are_those_of_padded_slots(name, cohort, key, monkeypatch):
    problem = a_problem()  # clients of different sizes
    numbers = {"lr": 0.1, "clip": 0.5, "sigma": 0.1, "batch": 6}
    who = jaxfl.sampling.everyone() if cohort is None else jaxfl.sampling.uniform()
    if cohort is not None:
        numbers["cohort"] = cohort
    parts = {"sampler": jaxfl.sampling.poisson(), "participation": who}
    algorithm = jaxfl.algorithm(name, **parts)
    packed = jaxfl.simulate(algorithm, problem, key, 30, **numbers)
    monkeypatch.setattr(Federated, "packs", False)
    jax.clear_caches()
    padded = jaxfl.simulate(algorithm, problem, key, 30, **numbers)
    np.testing.assert_allclose(packed.x, padded.x, rtol=2e-5, atol=1e-6)
    np.testing.assert_array_equal(packed.totals["gradients"], padded.totals["gradients"])


def test_packed_sweeps_are_their_runs(key):
    """Seeds draw different numbers of rows, and wait for one another."""
    problem = a_problem()
    given = {"clip": 0.5, "sigma": 0.1}
    algorithm = jaxfl.algorithm("ldp_sgd", sampler=jaxfl.sampling.poisson())
    grid = {"lr": [0.1, 0.3], "batch": [2, 6]}
    ds = jaxfl.sweep(algorithm, grid, problem, key, rounds=12, seeds=3, numbers=given)
    for seed in range(3):
        for lr in grid["lr"]:
            for b in grid["batch"]:
                run = jaxfl.simulate(
                    algorithm, problem, jax.random.fold_in(key, seed), 12, lr=lr, batch=b, **given
                )
                cell = ds["loss"].sel(lr=lr, batch=b).isel(seed=seed).squeeze()
                np.testing.assert_allclose(cell[-1], run.metrics["loss"][-1], rtol=2e-5)
