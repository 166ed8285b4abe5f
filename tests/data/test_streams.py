"""Samples that are made or read where they are needed: the same runs as with samples that are held."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import planned
from told import refusals

import jaxfl
from jaxfl.problems import models
from jaxfl.problems.public import l2

FEATURES = 5
COUNT = np.array([4, 9, 6], np.int32)


def make(key: jax.Array, i: jax.Array, j: jax.Array) -> Any:
    a = jax.random.normal(jax.random.fold_in(jax.random.fold_in(key, i), j), (FEATURES,))
    return a, (jnp.sum(a) > 0).astype(jnp.int32)


def held(n: int = 3, m: int = 9) -> Any:
    """What ``make`` makes, as arrays."""
    i, j = jnp.meshgrid(jnp.arange(n), jnp.arange(m), indexing="ij")
    every = jax.jit(jax.vmap(jax.vmap(make, (None, 0, 0)), (None, 0, 0)))
    return jax.tree.map(np.asarray, every(jax.random.key(3), i, j))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    arrays, folder = held(), tmp_path_factory.mktemp("data")
    live = np.arange(9) < COUNT[:, None]
    for k, a in enumerate(arrays):  # what lies beyond a client's samples must not be seen
        np.save(folder / f"{k}.npy", np.where(live.reshape(3, 9, *(1,) * (a.ndim - 2)), a, 7))
    files = tuple(np.load(folder / f"{k}.npy", mmap_mode="r") for k in range(2))
    return {
        "held": jaxfl.data.from_clients(arrays, count=COUNT, classes=2, stacked=True),
        "made": jaxfl.data.generated(make, 3, 9, source=jax.random.key(3), count=COUNT, classes=2),
        "mapped": jaxfl.data.mapped(files, count=COUNT, classes=2),
    }


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("ldp_gd", "mapped"),
        ("soteriafl_svrg", "mapped"),
        ("private_local_sgd", "made"),
        ("soteriafl_saga", "made"),
    ],
)
def test_a_run_is_the_same(name, how, data):
    numbers: dict[str, Any] = {"sigma": 0.1, "lr": 0.2, "clip": 0.7}
    numbers |= {"batch": 3} if name != "ldp_gd" else {}
    numbers |= {"smoothness": 1.0} if name.startswith("soteriafl") else {}
    model = models.logistic(FEATURES, regularizer=l2(0.1))
    problems = (jaxfl.Problem(model, data[kind], np.full(FEATURES, 0.3)) for kind in ("held", how))
    held, run = (jaxfl.simulate(name, one, jax.random.key(1), 4, **numbers) for one in problems)
    np.testing.assert_allclose(run.x, held.x, rtol=1e-5, atol=1e-6)
    assert run.totals == held.totals
    for metric, series in held.metrics.items():
        np.testing.assert_allclose(run.metrics[metric], series, rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_cohorts_of_a_crowd_read_only_their_own():
    """A million clients take no memory: nothing of size n * m * features is ever made."""
    n, m = 1_000_000, 8
    data = jaxfl.data.generated(make, n, m, source=jax.random.key(3), classes=2)
    problem = jaxfl.Problem(models.logistic(FEATURES), data, np.zeros(FEATURES))
    assert sum(a.nbytes for a in jax.tree.leaves(problem)) < 5 * n
    rows = jaxfl.parts.sampling.sampler("with_replacement")
    who = jaxfl.parts.sampling.participation("uniform")
    algorithm = jaxfl.algorithm("ldp_sgd", sampler=rows, participation=who)
    given = {"lr": 0.1, "clip": 10.0, "sigma": 0.0, "batch": 1, "cohort": 100}
    plan = planned(algorithm, problem, 1, **given)
    key, hp, state, program = plan.key, plan.hp, plan.start(), plan.round()
    assert program.memory_analysis().temp_size_in_bytes < 1e6
    _, info = program(key, state, problem, hp)
    assert int(info.gradients) == 100


def made(**change: Any) -> Any:
    given = {"make": make, "clients": 3, "samples": 9, "source": jax.random.key(0), "classes": 2}
    model = models.logistic(FEATURES)
    return lambda: jaxfl.Problem(model, jaxfl.data.generated(**given | change))


NAN, SIX = jnp.full(FEATURES, jnp.nan), jnp.zeros(FEATURES + 1)
UNLIKE = np.zeros((3, 9, 5)), np.zeros((2, 9))


test_mistakes_get_one_sentence = refusals(
    (made(count=[9, 9, 10]), r"count = .* must lie in 1\.\.9"),
    (made(make=lambda key, i: i), "cannot be made"),
    (made(make=lambda key, i, j: (NAN, 1)), "NaN"),
    (made(make=lambda key, i, j: (SIX, 1)), "features"),
    (lambda: jaxfl.data.mapped(UNLIKE), r"\(clients, samples, ...\)"),
)
