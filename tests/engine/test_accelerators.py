"""Rounds on a GPU beside those on the CPU: the same draws, and the same numbers up to rounding."""

import jax
import numpy as np
import pytest
from rows import ROWS, Row

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.data.samples import measured
from jaxfl.engine.loop import advance, initial
from jaxfl.problems.facts import facts_of
from jaxfl.problems.identity import dtype

ROUNDS = 5


@pytest.mark.gpu
@pytest.mark.parametrize("row", [row for row in ROWS if row.quick], ids=lambda row: row.name)
def test_a_gpu_computes_what_a_cpu_does(row: Row) -> None:
    same_numbers(row, jax.devices()[0], jax.devices("cpu")[0])


def same_numbers(row: Row, *devices: jax.Device) -> None:
    algorithm, problem = jaxfl.algorithm(row.name), row.problem
    facts = facts_of(problem, ROUNDS)
    values = jaxfl.algorithms.resolution.resolve(algorithm, row.numbers, facts).values
    found = []
    for device in devices:
        with jax.default_device(device), jax.default_matmul_precision("highest"):
            samples = jax.device_put(measured(problem), device)
            hp = jax.device_put(build(algorithm, values, facts, dtype(problem)), device)
            key = jax.device_put(jax.random.key(0), device)
            state, begun = jax.jit(initial, static_argnums=0)(algorithm, key, samples, hp)
            state, counts = jax.jit(advance, static_argnums=0)(
                algorithm, key, state, state.t + ROUNDS, samples, hp
            )
            x = algorithm.output(state)
            assert x.devices() == {device}
            found.append((np.asarray(x), jax.tree.map(np.asarray, (begun, counts))))
    (x, counts), (y, others) = found
    np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)
    jax.tree.map(np.testing.assert_array_equal, counts, others)
