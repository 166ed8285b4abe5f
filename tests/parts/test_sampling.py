"""Samplers and participations: one row each in a table, every property for every row."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from told import refused

from jaxfl.core.types import Draw, Hyper, ProblemFacts
from jaxfl.parts import sampling
from jaxfl.privacy.events import Sampling
from jaxfl.rounds.estimates import strips

M_MAX = 20
FACTS = ProblemFacts(n=15, m=7, m_max=M_MAX, d=3, rounds=50, smoothness=None)
DRAWN = ["with_replacement", "without_replacement", "poisson", "shuffled", "cyclic"]
PART = ["uniform", "balanced", "poisson"]
N = 10_000


def hyper(name, value, caps):
    return Hyper({name: jnp.asarray(value, jnp.int32)}, (() if caps is None else ((name, caps),)))


def capacity(part, name, value):
    return part.capacity({name: value}, FACTS).get(name)


@partial(jax.jit, static_argnums=0)
def draws(sampler, keys, t, count, hp):
    """Of that many keys; tests share their number and the caps, hence the compiled program."""
    return jax.vmap(lambda key: sampler.draw(key, t, count, M_MAX, hp))(keys)


@partial(jax.jit, static_argnums=(0, 3))
def cohorts(part, keys, t, n, hp):
    return jax.vmap(lambda key: part.draw(key, t, n, hp))(keys)


def scatter(draw, size):
    """Total weight per member, one row per draw; dead slots land one past the end."""
    weight = np.asarray(draw.weight, dtype=np.float64)
    if draw.index is None:
        return weight
    total = np.zeros((len(weight), size + 1))
    np.add.at(total, (np.arange(len(weight))[:, None], np.asarray(draw.index)), weight)
    assert (total[:, size] == 0).all()
    return total[:, :size]


def check_mean(total, expected):
    """The mean over draws is what it should be, within 5 standard errors."""
    error = np.abs(total.mean(0) - expected)
    allowed = 5 * total.std(0) / np.sqrt(len(total)) + 1e-7
    assert (error <= allowed).all(), (error / allowed).max()


def check_slots(draw, weight, end):
    """Live slots weigh exactly that and lie inside, dead ones nothing and one past the end."""
    index, got = np.asarray(draw.index), np.asarray(draw.weight)
    live = got != 0
    np.testing.assert_allclose(got[live], weight, rtol=1e-6)
    assert ((index >= 0) & (index < end))[live].all()
    return live


@pytest.mark.parametrize("count", [12, 7, 20])
@pytest.mark.parametrize(
    "name", ["full", *DRAWN[:2], "shuffled", pytest.param("poisson", marks=pytest.mark.plain)]
)
def test_every_row_has_mean_weight_one_over_m(key, name, count):
    sampler = sampling.sampler(name)
    draw = draws(sampler, jax.random.split(key, N), 3, count, hyper("batch", 5, M_MAX))
    total = scatter(draw, M_MAX)
    assert (total[:, count:] == 0).all()
    check_mean(total, np.where(np.arange(M_MAX) < count, 1 / count, 0.0))
    if draw.index is not None:
        live = check_slots(draw, 1 / 5, count)
        assert (np.asarray(draw.index)[~live] == M_MAX).all()
        assert name == "poisson" or (live.sum(1) == 5).all()
        assert sampler.distinct == (total.max() < 1.5 / 5)


@pytest.mark.parametrize(("b", "m"), [(5, 20), (5, 12), (3, 7)])
def test_epochs_are_disjoint_batches_of_a_new_permutation(key, b, m):
    per_epoch, T = m // b, 3 * (m // b)
    draw = jax.jit(jax.vmap(lambda t: sampling.shuffled().draw(key, t, m, M_MAX, hp)))
    hp = hyper("batch", b, 8)
    rows = np.asarray(draw(jnp.arange(T)).index)[:, :b].reshape(3, per_epoch * b)
    for epoch in rows:
        assert len(set(epoch.tolist())) == per_epoch * b
        assert epoch.max() < m
    assert not np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[1], rows[2])


@pytest.mark.plain
@pytest.mark.parametrize(("b", "m"), [(5, 20), (5, 12), (3, 7), (7, 7)])
def test_cycles_repeat_one_partition(key, b, m):
    """Every row in every epoch once, in rounds that many apart; another partition for another key."""
    s, found, hp = math.ceil(m / b), [], hyper("batch", b, 8)
    for stream in jax.random.split(key):
        draw = partial(sampling.cyclic().draw, stream, count=m, m_max=M_MAX, hp=hp)
        drawn = jax.jit(jax.vmap(lambda t, draw=draw: draw(t=t)))(jnp.arange(3 * s))
        weight = scatter(drawn, M_MAX)
        check_slots(drawn, 1 / b, m)
        np.testing.assert_allclose(weight[:s].sum(0), np.where(np.arange(M_MAX) < m, 1 / b, 0))
        np.testing.assert_array_equal(weight, np.tile(weight[:s], (3, 1)))
        found.append(weight[:s])
    assert b == m or not np.array_equal(*found)


@pytest.mark.parametrize("name", ["everyone", *PART])
def test_every_client_has_mean_weight_one_over_n(key, name):
    part, n, r = sampling.participation(name), 15, 4
    hp = hyper("cohort", r, 15)
    draw = cohorts(part, jax.random.split(key, N), 3, n, hp)
    total = scatter(draw, n)
    check_mean(total, np.full(n, 1 / n))
    assert part.everyone == (draw.index is None) == (name == "everyone")
    rate = 1.0 if part.everyone else r / n
    assert (total > 0).mean() == pytest.approx(rate, abs=5 * np.sqrt(rate / (N * n)))
    if draw.index is not None:
        live = check_slots(draw, 1 / r, n)
        assert (np.asarray(draw.index)[~live] == n).all()
        assert total.max() < 1.5 / r
        if name != "poisson":
            assert (live.sum(1) == r).all()


@pytest.mark.plain
@pytest.mark.parametrize(("n", "r"), [(16, 10), (15, 4), (5, 5), (7, 1)])
def test_balanced_cohorts_call_all_equally_often(key, n, r):
    part, T = sampling.participation("balanced"), 40
    draw = jax.jit(jax.vmap(lambda t: part.draw(key, t, n, hyper("cohort", r, n))))(jnp.arange(T))
    drawn = scatter(draw, n) > 0
    assert (drawn.sum(1) == r).all()
    turns = drawn.cumsum(0)
    assert (np.ptp(turns, axis=1) <= 1).all()
    most = [part.most(range(t), n, {"cohort": r}) for t in range(1, T + 1)]
    np.testing.assert_array_equal(turns.max(1), most)
    if n % r == 0:  # another order in every pass
        first, second = np.asarray(draw.index)[: 2 * n // r, :r].reshape(2, n)
        assert (first != second).any()
    refused(lambda: part.capacity({"cohort": 2**12}, FACTS._replace(n=2**20)), r"2\^31")


def test_numbers_of_slots():
    for name in DRAWN:
        sampler = sampling.sampler(name)
        for batch in (0, [4, 0], float("nan")):
            refused(lambda s=sampler, b=batch: capacity(s, "batch", b), "batch =")
        if sampler.distinct:
            refused(lambda s=sampler: capacity(s, "batch", [3, 8]), "8 exceeds the 7 samples")
        if name != "poisson":
            assert capacity(sampler, "batch", np.array([2, 6, 3])) == 6
    assert capacity(sampling.with_replacement(), "batch", 8) == 8
    assert capacity(sampling.uniform(), "cohort", 15) == 15
    for part in (sampling.uniform(), sampling.poisson_clients()):
        refused(lambda p=part: capacity(p, "cohort", 16), "16 exceeds the 15 clients")
    makers = (
        (sampling.SAMPLERS, sampling.sampler),
        (sampling.PARTICIPATIONS, sampling.participation),
    )
    for table, make in makers:
        assert all(make(name).name == name and make(name) is make(name) for name in table)
        refused(lambda make=make: make("poison"), "did you mean 'poisson'")


def overflow(b, m, rounds, slots):
    return Sampling("poisson", m, b, slots=slots).overflow(rounds)


def test_poisson_slots_and_what_overflow_costs():
    facts = ProblemFacts(n=1, m=3256, m_max=3256, d=1, rounds=100, smoothness=None)
    slots = sampling.poisson().capacity({"batch": [3, 162.8]}, facts)["batch"]
    assert 250 < slots < 280
    assert overflow(162.8, 3256, 100, slots) < 1e-12
    assert overflow(162.8, 3256, 100, slots - 1) >= 1e-12
    # the other 19 fill 15 slots: then whether the record is drawn decides who else is read
    assert overflow(10, 20, 7, 15) == pytest.approx(7 * stats.binom.sf(14, 19, 0.5))
    assert overflow(10, 20, 10**6, 12) == 1
    assert overflow(20, 20, 10**6, 20) == overflow(0.5, 1, 10**6, 1) == 0
    longer = sampling.poisson().capacity({"batch": 162.8}, facts._replace(rounds=None))["batch"]
    assert slots < longer < 350
    one = facts._replace(m=1, m_max=1)
    assert sampling.poisson().capacity({"batch": 0.5}, one)["batch"] == 1


@pytest.mark.parametrize("length", [2, 7])
@pytest.mark.parametrize("counts", [(3, 0, 5, 1), (0, 0, 0, 0), (5, 5, 5, 5)])
def test_every_live_row_once(length, counts):
    """Whatever the strips: client i has rows 10 i, 10 i + 1, ..., of unequal weights."""
    live = np.arange(5) < np.array(counts)[:, None]
    index = np.where(live, 10 * np.arange(4)[:, None] + np.arange(5), 99)
    rows = Draw(jnp.array(index), jnp.array(np.where(live, 0.5 + index, 0.0), jnp.float32))

    def f(who, rows):
        hits = jnp.zeros((4, 100)).at[who, rows.index].add(jnp.where(rows.weight > 0, 1.0, 0.0))
        return jnp.append(hits, jnp.sum(rows.weight))

    found = jax.jit(lambda rows: strips(rows, length, f, jnp.zeros(401)))(rows)
    expected = np.zeros((4, 100))
    np.put_along_axis(expected, index, 1.0, axis=1)
    expected[:, 99] = 0
    np.testing.assert_array_equal(found[:-1].reshape(4, 100), expected)
    np.testing.assert_allclose(found[-1], rows.weight.sum(), rtol=1e-6)
