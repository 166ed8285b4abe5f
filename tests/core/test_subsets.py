"""Subsets: distinct always, every one equally likely, the same whatever the number of slots."""

from functools import partial
from math import perm

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxfl.core.subsets import _network, coin_slots, coin_tail, coins, subset, uniform

TINY = 1e-5  # p-value below which a fixed-seed draw is called non-uniform
one = jax.jit(subset, static_argnums=2)
one_coins = jax.jit(coins, static_argnums=3)


@partial(jax.jit, static_argnums=2)
def many(keys, size, slots):
    return jax.vmap(lambda key: subset(key, size, slots))(keys)


@partial(jax.jit, static_argnums=3)
def many_coins(keys, size, expected, slots):
    return jax.vmap(lambda key: coins(key, size, expected, slots))(keys)


@pytest.mark.full
def test_full_permutation_then_dead(key):
    sizes = jnp.arange(65)
    draw = jax.jit(jax.vmap(jax.vmap(lambda k, n: subset(k, n, 64), (0, None)), (None, 0)))
    for n, rows in zip(sizes, np.asarray(draw(jax.random.split(key, 20), sizes)), strict=True):
        np.testing.assert_array_equal(np.sort(rows[:, :n]), np.tile(np.arange(n), (20, 1)))
        assert (rows[:, n:] == n).all()
    np.testing.assert_array_equal(np.sort(one(key, 65537, 65537)), np.arange(65537))


def test_largest_sizes(key):
    """Around squares, where the root is most easily off by one, and at the limit."""
    roots = np.array([2, 3, 100, 4096, 46340])
    sizes = np.concatenate([roots**2 + i for i in (-1, 0, 1)] + [[2**31 - 1, 2**31 - 2, 2**30]])
    draw = jax.jit(jax.vmap(lambda n: subset(key, n, 1000)))
    for n, row in zip(sizes, np.asarray(draw(jnp.asarray(sizes, jnp.int32))), strict=True):
        live = row[:n]
        assert len(set(live.tolist())) == len(live)
        assert 0 <= live.min() <= live.max() < n
        if n > 10**9:
            assert abs(live.mean() / n - 0.5) < 5 / np.sqrt(12 * 1000)


PAIRS = [(size, 2) for size in (9, 2, 3, 4, 5, 6, 7, 12, 16, 17, 20, 30)]


@pytest.mark.parametrize(("size", "k"), [*PAIRS, (6, 3), (9, 3), (300, 1)])
def test_every_ordered_pair_is_equally_likely(key, size, k):
    """And every ordered triple, and every number."""
    x = np.asarray(many(jax.random.split(key, 100_000), size, 3)[:, :k])
    seen = np.unique(x.astype(np.int64) @ size ** np.arange(k), return_counts=True)[1]
    cells = perm(size, k)
    assert len(seen) <= cells
    assert stats.chisquare(np.pad(seen, (0, cells - len(seen)))).pvalue > TINY


def test_marginals_and_joint_law_of_a_mask(key):
    """2,544 of 50,890: hits of every coordinate, and of blocks as a hypergeometric count."""
    d, k, N = 50890, 2544, 400
    mask = np.zeros((N, d), bool)
    np.put_along_axis(mask, np.asarray(many(jax.random.split(key, N), d, k)), True, axis=1)
    assert (mask.sum(1) == k).all()
    p = k / d
    chi2 = ((mask.sum(0) - N * p) ** 2).sum() / (N * p * (1 - p))
    assert abs(chi2 - d) < 5 * np.sqrt(2 * d)
    for block in (mask[:, :50000].reshape(N, -1, 500), mask[:, :50850].reshape(N, 225, 226)):
        for axis in (1, 2):  # of neighbours, and of coordinates that share a remainder
            hits, size = block.sum(axis), block.shape[axis]
            variance = stats.hypergeom(d, size, k).var()
            assert abs(hits.mean() - size * p) < 5 * np.sqrt(variance / hits.size)
            assert abs(hits.var() / variance - 1) < 5 * np.sqrt(3 / hits.size)


def test_a_slot_knows_neither_the_slots_nor_the_start(key):
    """Nor whether it is drawn alone, in a batch, or in double precision."""
    long = np.asarray(one(key, 1000, 64))
    np.testing.assert_array_equal(one(key, 1000, 8), long[:8])
    np.testing.assert_array_equal(one(key, 1000, 8, 5), long[5:13])
    np.testing.assert_array_equal(one(key, 1000, 8, 996)[4:], 1000)
    sizes = jnp.array([1, 3, 40, 1000, 50890, 7])
    keys = jax.random.split(key, len(sizes))
    batched = jax.jit(jax.vmap(lambda key, size: subset(key, size, 5)))(keys, sizes)
    for row, k, size in zip(batched, keys, sizes, strict=True):
        np.testing.assert_array_equal(row, one(k, size, 5))
    np.testing.assert_array_equal(batched[4], one(keys[4], 50890, 5))
    expected = one_coins(key, 1000, 5, 9)
    with jax.enable_x64(True):
        pairs = (one(key, 1000, 9), long[:9]), (one_coins(key, 1000, 5, 9), expected)
        for x, y in pairs:
            assert x.dtype == jnp.int32
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("size", [301, 3, 7, 11, 57, 1000, 50890])
def test_a_known_size_draws_the_same(key, size):
    """Its few numbers past the end walk alone; of 300 keys some never come back from there."""
    keys, slots = jax.random.split(key, 300), min(size, 999)
    known = jax.jit(jax.vmap(lambda k, start: subset(k, size, slots, start), (0, None)))
    traced = jax.jit(jax.vmap(lambda k, n, start: subset(k, n, slots, start), (0, None, None)))
    for start in (0, 2, size - 1):
        np.testing.assert_array_equal(known(keys, start), traced(keys, size, start))


@pytest.mark.parametrize("size", [257, 1, 2, 3, 5, 13, 124, 200, 3256, 16385, 50890])
def test_accelerators_draw_the_same_without_a_walk(key, size):
    """Of a known size, of a traced one with a bound, and with a bound far above it."""
    traced, places = jnp.int32(size), jnp.arange(size, dtype=jnp.uint32)
    for given in ((size,), (traced, size), (traced, 9 * size)):
        network = _network(key, *given)
        np.testing.assert_array_equal(jax.jit(network.jump)(places), jax.jit(network.walk)(places))


@pytest.mark.parametrize("mean", [3.0, 0.3, 10.0, 17.0, 19.9])
def test_coins_are_independent(key, mean):
    m, N, q = 20, 40_000, mean / 20
    x = np.asarray(many_coins(jax.random.split(key, N), m, mean, m))
    assert (np.diff(x, axis=1)[x[:, 1:] < m] > 0).all()
    mask = np.zeros((N, m + 1))
    np.put_along_axis(mask, x, 1.0, axis=1)
    mask = mask[:, :m]
    assert (np.abs(mask.mean(0) - q) < 5 * np.sqrt(q * (1 - q) / N)).all()
    pairs = (mask.T @ mask / N)[~np.eye(m, dtype=bool)]
    assert (np.abs(pairs - q * q) < 5 * np.sqrt(q * q * (1 - q * q) / N)).all()
    # q = 1e-5: a uniform number of 24 bits would already be too coarse close to 1
    rare = np.asarray(many_coins(jax.random.split(key, 20_000), 10**6, 10.0 * q, 40))
    count = (rare < 10**6).sum(1)
    assert abs(count.mean() - 10 * q) < 5 * np.sqrt(10 * q / 20_000)
    assert stats.kstest(rare[rare < 10**6] / 10**6, "uniform").pvalue > TINY


def test_extreme_coins(key):
    """Certain ones, impossible ones, of a huge size, where 64 gaps of about 2^31 would wrap; and
    none knows how many slots there are."""
    np.testing.assert_array_equal(one_coins(key, 50, 50, 50), np.arange(50))
    np.testing.assert_array_equal(one_coins(key, 1000, 0, 10), 1000)
    np.testing.assert_array_equal(one_coins(key, 0, 1, 10), 0)
    np.testing.assert_array_equal(one_coins(key, 3, 5, 10), [0, 1, 2] + [3] * 7)
    x = np.asarray(one_coins(key, 2**31 - 1, 0.5, 64)).astype(np.int64)
    assert (np.diff(x) >= 0).all()
    assert (x[16:] == 2**31 - 1).all()
    keys = jax.random.split(key, 1000)
    long = np.asarray(many_coins(keys, 500, 20.0, 64))
    np.testing.assert_array_equal(many_coins(keys, 500, 20.0, 8), long[:, :8])
    np.testing.assert_array_equal(one_coins(keys[7], 500, 20.0, 8), long[7, :8])


@pytest.mark.plain
@pytest.mark.parametrize(
    ("mean", "size", "draws"),
    [(162.8, 3256, 100), (1, 10, 5), (0.01, 1000, 10), (2544, 50890, 10**6)],
)
def test_slots_are_the_fewest_that_suffice(mean, size, draws):
    slots = coin_slots(mean, size, draws)
    tail = [draws * stats.binom.sf(s, size, mean / size) for s in (slots - 1, slots)]
    assert tail[1] < 1e-12 <= tail[0]
    assert coin_tail(mean, size, slots) == pytest.approx(tail[1] / draws, rel=1e-6)
    assert coin_slots(50, 50, 10) == 50


@pytest.mark.parametrize("size", [3256, 1, 7, 2**31 - 1])
def test_independent_positions_are_the_fractions_of_64_bits(key, size):
    """In whole numbers: floor(size W / 2^64); and a slot does not know how many there are."""
    words = np.asarray(jax.random.bits(key, (200, 2), jnp.uint32)).astype(object)
    exact = [((int(high) << 32) + int(low)) * size >> 64 for high, low in words]
    np.testing.assert_array_equal(uniform(key, size, 200), exact)
    np.testing.assert_array_equal(uniform(key, jnp.int32(size), 50), exact[:50])
