"""The noise has the law of a normal number, its tails included, and is the same however it is drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxfl.core.normals import LAST, normal, quantile
from jaxfl.core.threefry import straight

CHUNK = 1 << 22
JAX_ENDS = 5.42  # where jax.random.normal of float32 does
KEY = jax.random.key(40)


@jax.jit
def _chunk(t):
    x = normal(jax.random.fold_in(KEY, t), (CHUNK,))
    size = jnp.abs(x)
    return x[::64], jnp.array([jnp.sum(size > c) for c in (3.0, 4.5, JAX_ENDS)]), jnp.max(size)


def _check_tails(chunks):
    """Counts beyond 3, 4.5 and 5.42, within five deviations of what the law has there."""
    parts = [jax.device_get(_chunk(t)) for t in range(chunks)]
    found = sum(counts.astype(int) for _, counts, _ in parts)
    expected = 2 * stats.norm.sf([3.0, 4.5, JAX_ENDS]) * CHUNK * chunks
    assert (np.abs(found - expected) < 5 * np.sqrt(expected)).all(), (found, expected)
    assert max(most for *_, most in parts) > JAX_ENDS
    assert found[-1] > 0
    return np.concatenate([x for x, *_ in parts]).astype(float)


def test_noise_has_the_law_of_a_normal_number():
    x = _check_tails(8)
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3), (6, 15)):
        error = np.std(x**power) / np.sqrt(x.size)
        assert abs(np.mean(x**power) - moment) < 4 * error, power
    assert stats.kstest(x, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 4 / np.sqrt(x.size)
    assert abs(np.mean(x > 0) - 0.5) < 2 / np.sqrt(x.size)


@pytest.mark.full  # 10^9 numbers
def test_noise_beyond_the_tail_of_jax_by_count():
    _check_tails(256)


def test_the_quantiles_are_those_of_the_normal_law():
    p = np.concatenate([2.0 ** np.linspace(-62.9, -0.01, 20_000), 1 - 2.0 ** -np.arange(2, 24)])
    p = p.astype(np.float32)
    exact = stats.norm.isf(p.astype(float) / 2)
    assert np.abs(np.asarray(quantile(jnp.asarray(p))) / exact - 1).max() < 1e-6
    assert exact.max() < LAST
    assert quantile(jnp.float32(1)) == 0
    assert quantile(jnp.float32(2**-63)) < LAST
    with jax.enable_x64(True):
        wide = np.asarray(quantile(jnp.asarray(p, jnp.float64)))
        np.testing.assert_allclose(wide, exact, rtol=1e-10)
        y = np.asarray(normal(KEY, (9,), jnp.float64))
        np.testing.assert_allclose(y, normal(KEY, (9,)), atol=1e-6)
        assert (y != y.astype(np.float32)).any()


@pytest.mark.optimized
def test_a_draw_is_the_same_however_it_is_made():
    keys = jax.random.split(straight(KEY), 5)
    for shape in ((), (3,), (124,), (1001,), (7, 130)):
        alone = np.stack([np.asarray(normal(key, shape)) for key in keys])
        for draw in (
            jax.jit(jax.vmap(lambda key, shape=shape: normal(key, shape))),
            jax.jit(lambda keys, shape=shape: jax.lax.map(lambda key: normal(key, shape), keys)),
            jax.vmap(lambda key, shape=shape: normal(key, shape)),
        ):
            np.testing.assert_array_equal(draw(keys), alone)
    plain = jax.vmap(lambda key: normal(key, (124,)))(jax.random.split(KEY, 5))
    np.testing.assert_array_equal(plain[:, :7], jax.vmap(lambda key: normal(key, (7,)))(keys))
    assert 0.9 < np.std(normal(jax.random.key(0, impl="rbg"), (1000,))) < 1.1
    with jax.threefry_partitionable(False):
        assert 0.9 < np.std(normal(KEY, (1000,))) < 1.1
