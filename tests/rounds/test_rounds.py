"""The round body: every way through it computes the same, and its noise has the stated law."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import forget, planned
from probe import scale_is, steps
from rows import a_network, a_problem
from scipy.stats import kstest

import jaxfl
from jaxfl.core import normals
from jaxfl.core.types import Compressor, Draw
from jaxfl.parts.mechanisms import gaussian, normal
from jaxfl.parts.sampling import sampler
from jaxfl.rounds import estimates
from jaxfl.rounds import federated as rounds
from jaxfl.rounds.blocks import client_keys, streams

NUMBERS = {"lr": 0.2, "clip": 0.6}


@pytest.mark.full  # compiles each round three times; the record has the numbers of one way
@pytest.mark.parametrize(
    ("name", "parts", "numbers"),
    [
        ("ldp_sgd", {"sampler": "poisson"}, {}),
        ("ldp_sgd", {"sampler": "with_replacement"}, {}),
        ("cdp_sgd", {"sampler": "shuffled"}, {"k": 9}),
        ("soteriafl_saga", {"participation": "uniform"}, {"k": 9, "cohort": 5}),
        ("soteriafl_svrg", {}, {"k": 9, "refresh": 0.5}),
        ("private_local_sgd", {"participation": "poisson"}, {"local_steps": 2, "cohort": 3}),
    ],
)
def test_blocks_and_accelerators_draw_the_same(name, parts, numbers, key, monkeypatch):
    """On CPUs seven clients at once or one by one; in place of these on accelerators all clients at
    once, no packed rows, no walks, no loops."""
    problem, ends = a_network(n=7), []
    monkeypatch.setattr(estimates, "EVEN", 8)
    monkeypatch.setattr(estimates, "WASTE", 1.0)
    given = {**NUMBERS, "sigma": 0.02, "batch": 4, **numbers}
    for rows, platform in ((8, "cpu"), (8, "default"), (10_000, "cpu")):
        monkeypatch.setattr(rounds, "ON_CPUS", (rows, 1 << 20))
        monkeypatch.setattr(
            jax.lax, "platform_dependent", lambda *args, use=platform, **ways: ways[use](*args)
        )
        forget()
        f = jaxfl.functions(jaxfl.algorithm(name, **parts), problem, 6, **given)
        end, counts = jax.lax.scan(f.round, f.init(key), length=6)
        ends.append((f.output(end), counts))
    for x, counts in ends[1:]:
        np.testing.assert_allclose(x, ends[0][0], rtol=1e-4, atol=1e-6)
        jax.tree.map(np.testing.assert_array_equal, counts, ends[0][1])


WAYS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "some clients": ("ldp_gd", {"participation": "uniform"}, {"cohort": 3}),
    "fused": ("ldp_gd", {}, {}),
    "per client": ("ldp_gd", {"noise": "per_client"}, {}),
    "messages": ("cdp_gd", {}, {"k": 8}),
    "shifted": ("soteriafl_gd", {}, {"k": 8, "shift": 0.3}),
}


@pytest.mark.parametrize("way", WAYS)
def test_noise_has_the_stated_scale(way):
    """The step's noise is N(0, eta^2 sigma^2 / r) on every coordinate, of r clients that take part,
    independent across rounds and coordinates; other scales are told apart."""
    name, parts, more = WAYS[way]
    problem, sigma, lr = a_problem(), 0.7, 0.5
    keys = jax.random.split(jax.random.key(3), 500)
    algorithm, r = jaxfl.algorithm(name, **parts), more.get("cohort", problem.n)
    noisy = steps(algorithm, problem, keys, lr=lr, clip=1.0, sigma=sigma, **more)
    quiet = steps(algorithm, problem, keys, lr=lr, clip=1.0, sigma=0.0, **more)
    noise, std = noisy - quiet, lr * sigma / np.sqrt(r)
    assert scale_is(noise, std)
    for wrong in (2 / 3, 3 / 2, 1 / np.sqrt(r), np.sqrt(r), np.sqrt(3 / 5)):
        assert not scale_is(noise, wrong * std)
    correlation = np.corrcoef(noise.T) - np.eye(noise.shape[1])
    assert np.abs(correlation).max() < 5 / np.sqrt(len(keys))


ALONE = {
    "of the mean": ("ldp_gd", {}, {}),
    "per client": ("ldp_gd", {"noise": "per_client"}, {}),
    "message": ("cdp_gd", {}, {"k": 8}),
    "server": ("dp_sgd", {}, {"batch": 4}),
}


@pytest.mark.plain
@pytest.mark.parametrize("way", ALONE)
def test_no_noise_comes_twice(way, key):
    """Whatever the period: of 300 rounds of one client no two have the same noise."""
    name, parts, more = ALONE[way]
    numbers = {"lr": 1.0, "clip": 1e-6, "sigma": 1.0, **more}
    xs = {"point": lambda problem, x: x}
    run = jaxfl.simulate(
        jaxfl.algorithm(name, **parts), a_problem(0.0, n=1), key, 300, eval_every=1, metrics=xs,
        **numbers,
    )  # fmt: skip
    moves = np.sort(np.diff(run.metrics["point"], axis=0), axis=1)  # a mask may reorder them
    assert len(np.unique(moves.round(3), axis=0)) == 300


@pytest.mark.plain
@pytest.mark.parametrize("name", ["cdp_gd", "sdm_dsgd"])
def test_noise_does_not_know_the_mask(name):
    """Weights are drawn as noise is, and multiply it: one key for both would give their squares."""

    def select(key: jax.Array, d: int, hp: jaxfl.parts.Hyper) -> Draw:
        return Draw(jnp.arange(d), normals.normal(key, (d,)))

    marked = Compressor("marked", lambda d, v: 0.0, lambda d, v: (0.0, 32.0), select, unbiased=True)
    numbers = {"lr": 1.0, "clip": 1e-6, "sigma": 1.0}
    numbers |= {"theta": 1.0, "batch": 4} if name == "sdm_dsgd" else {}
    algorithm, keys = jaxfl.algorithm(name, compressor=marked), jax.random.split(jax.random.key(5))
    moves = steps(algorithm, a_problem(0.0), jax.random.split(keys[0], 300), **numbers)
    assert np.abs(moves).mean() > 0.1
    assert abs(moves.mean()) < 0.05


def test_noise_has_the_tails_of_a_gaussian(key):
    """Neither cut off nor on a grid, which would show what it was added to."""
    z = np.asarray(normal(key, gaussian(), jnp.zeros(100_000), {"sigma": jnp.float32(2.0)})) / 2
    assert kstest(z, "norm").pvalue > 1e-3
    assert np.abs(z).max() > 3.8
    assert len(np.unique(z)) > 0.98 * z.size


def test_no_key_serves_twice(key):
    """Streams, and the keys of noise and mask of all clients over some rounds, all differ."""
    keys = streams(key)
    clients, every = jnp.arange(5), jnp.arange(100)
    made = jax.vmap(lambda t: client_keys([keys.noise, keys.mask], clients, t))(every)
    words = np.concatenate([jax.random.key_data(k).reshape(-1, 2) for k in (made, *keys)])
    assert len(np.unique(words, axis=0)) == len(words)


def test_every_release_is_accounted_for(key):
    """The event counts as many releases as each client sent messages, in the slots that they have."""
    run = jaxfl.simulate("ldp_sgd", a_problem(), key, 13, sigma=1.0, lr=0.1, batch=4)
    parts = run.algorithm.event(run.values, run.facts).events
    assert all(part.releases == run.totals["clients"] / run.problem.n == 13 for part in parts)
    slots = run.algorithm.capacity(run.values, run.facts)["batch"]
    assert {part.sampling.slots for part in parts} == {slots}


def test_masks_are_independent_of_noise_and_of_each_other():
    """One key for noise and mask, or one mask for all clients, would show as correlation."""
    problem = a_problem()
    keys = jax.random.split(jax.random.key(4), 4000)
    move = steps(jaxfl.algorithm("cdp_gd"), problem, keys, lr=1.0, clip=1e-6, sigma=1.0, k=2)
    # Var = (d/k) sigma^2 / n on every coordinate, whatever the masks.
    d, k, n = problem.x0.size, 2, problem.n
    ratio = move.var(0) / (d / k / n)
    assert (np.abs(ratio - 1) < 0.15).all()
    zero = (np.abs(move) < 1e-3).mean()
    np.testing.assert_allclose(zero, (1 - k / d) ** n, atol=0.02)  # a shared mask: 1 - k/d


def test_new_snapshots_cost_a_pass():
    rows = sampler("without_replacement")
    algorithm, problem = jaxfl.algorithm("ldp_svrg", sampler=rows), a_problem()
    plan = planned(algorithm, problem, 3, lr=0.1, sigma=0.1, batch=4, refresh=1.0)
    whole = int(np.sum(problem.count))
    start, info = jax.jit(algorithm.init)(plan.key, problem, plan.hp)
    assert int(info.gradients) == whole
    _, info = jax.jit(algorithm.round)(plan.key, start, problem, plan.hp)
    assert int(info.gradients) == 2 * 4 * problem.n + whole
