"""Keys with written-out rounds give JAX's bits, and what keeps the compiler from fusing changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.core.fusion import in_own_loop, materialized
from jaxfl.core.keys import at
from jaxfl.core.threefry import straight

DRAWS = (
    lambda key: jax.random.normal(key, (1001,)),
    lambda key: jax.random.randint(key, (77,), 0, 3256),
    lambda key: jax.random.bits(key, (3, 5), jnp.uint8),
    lambda key: jax.random.bits(key, (7,), jnp.uint32),
    lambda key: jax.random.key_data(jax.random.split(key, (3, 4))),
    lambda key: jax.random.key_data(jax.vmap(jax.random.fold_in, (None, 0))(key, COUNTS)),
    lambda key: jax.random.uniform(key, ()),
)
COUNTS = jnp.array([0, 1, 2**31 - 1])


@pytest.mark.parametrize("seed", [12345, 0, 2**32 - 1])
def test_the_bits_are_those_of_jax(seed):
    key = jax.random.key(seed)
    for draw in DRAWS:
        np.testing.assert_array_equal(jax.jit(draw)(straight(key)), draw(key))
    with jax.enable_x64(True):
        for draw in (
            lambda key: jax.random.bits(key, (9,), jnp.uint64),
            lambda key: jax.random.normal(key, (9,), jnp.float64),
            lambda key: jax.random.key_data(jax.random.fold_in(key, 3)),
        ):
            np.testing.assert_array_equal(draw(straight(key)), draw(key))


def test_other_generators_and_counters_are_left_to_jax():
    keys = jax.random.key(0), jax.random.key(0, impl="rbg"), jax.random.PRNGKey(0)
    for key in keys[1:]:
        assert straight(key) is key
    with jax.threefry_partitionable(False):
        assert straight(keys[0]) is keys[0]


def test_nothing_changes_under_the_compiler(key):
    @jax.jit
    def f(t):
        rows = materialized(jnp.arange(-3, 5), t)
        made = in_own_loop(lambda: jnp.arange(5000.0) + t, t)
        return rows, made, jax.random.key_data(at(straight(key), t))

    for t in (0, 1, 10**6):
        rows, made, words = f(jnp.int32(t))
        np.testing.assert_array_equal(rows, np.arange(-3, 5))
        np.testing.assert_array_equal(made, np.arange(5000, dtype=np.float32) + np.float32(t))
        np.testing.assert_array_equal(words, jax.random.key_data(jax.random.fold_in(key, t)))
