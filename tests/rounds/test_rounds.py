"""The round body: every way through it computes the same, and its noise has the stated law."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import forget
from probe import scale_is, steps
from rows import a_network, a_problem
from scipy.stats import kstest

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.core.types import Compressor, Draw
from jaxfl.parts.mechanisms import gaussian, normal
from jaxfl.parts.sampling import participation, sampler
from jaxfl.problems.metrics import full_gradient
from jaxfl.rounds import federated as rounds
from jaxfl.rounds.blocks import client_keys, streams

NUMBERS = {"lr": 0.2, "clip": 0.6}


@pytest.mark.parametrize(
    ("name", "clients"),
    [
        ("ldp_sgd", "everyone"),
        ("soteriafl_saga", "uniform"),
        ("private_local_sgd", "everyone"),  # whose words add up
    ],
)
def test_blocks_of_clients_change_no_draw(
    name: str, clients: str, key: jax.Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five clients at once, or two at a time with one left over."""
    problem = a_network(n=5)
    ends = []
    for rows in (1000, 2):
        monkeypatch.setattr(rounds, "ON_CPUS", (rows * 10, 1 << 20))
        algorithm = jaxfl.algorithm(name, participation=participation(clients))
        numbers = {**NUMBERS, "sigma": 0.02, "batch": 4}
        if clients == "uniform":
            numbers["cohort"] = 5
        forget()
        run = jaxfl.simulate(algorithm, problem, key, 6, **numbers)
        ends.append((run.x, run.totals))
    np.testing.assert_allclose(ends[0][0], ends[1][0], rtol=1e-4, atol=1e-6)
    assert ends[0][1] == ends[1][1]


@pytest.mark.parametrize(
    ("name", "parts", "numbers"),
    [
        ("ldp_sgd", {"sampler": "poisson"}, {}),
        ("cdp_sgd", {"sampler": "shuffled"}, {"k": 9}),
        ("soteriafl_saga", {"participation": "uniform"}, {"k": 9, "cohort": 5}),
        ("soteriafl_svrg", {}, {"k": 9, "refresh": 0.5}),
        ("private_local_sgd", {"participation": "poisson"}, {"local_steps": 2, "cohort": 3}),
    ],
)
def test_accelerators_draw_the_same(
    name: str,
    parts: dict[str, str],
    numbers: dict[str, Any],
    key: jax.Array,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What they compute in place of CPUs: all clients at once, no packed rows, no walks, no loops."""
    problem, ends = a_network(n=7), []
    given = {**NUMBERS, "sigma": 0.02, "batch": 4, **numbers}
    monkeypatch.setattr(rounds, "ON_CPUS", (8, 1 << 20))
    for platform in ("cpu", "default"):
        monkeypatch.setattr(
            jax.lax, "platform_dependent", lambda *args, use=platform, **ways: ways[use](*args)
        )
        algorithm = jaxfl.algorithm(name, **parts)
        forget()
        run = jaxfl.simulate(algorithm, problem, key, 6, **given)
        ends.append((run.x, run.totals))
    np.testing.assert_allclose(*(x for x, _ in ends), rtol=1e-4, atol=1e-6)
    assert ends[0][1] == ends[1][1]


WAYS = {
    "fused": ("ldp_gd", {}, {}),
    "per client": ("ldp_gd", {"noise": "per_client"}, {}),
    "messages": ("cdp_gd", {}, {"k": 8}),
    "shifted": ("soteriafl_gd", {}, {"k": 8, "shift": 0.3}),
}


@pytest.mark.parametrize("way", WAYS)
def test_noise_has_the_stated_scale(way: str) -> None:
    """The step's noise is N(0, eta^2 sigma^2 / n) on every coordinate, independent across rounds
    and coordinates; two thirds and three halves of it are told apart."""
    name, parts, more = WAYS[way]
    problem, sigma, lr = a_problem(), 0.7, 0.5
    keys = jax.random.split(jax.random.key(3), 500)
    algorithm = jaxfl.algorithm(name, **parts)
    noisy = steps(algorithm, problem, keys, lr=lr, clip=1.0, sigma=sigma, **more)
    quiet = steps(algorithm, problem, keys, lr=lr, clip=1.0, sigma=0.0, **more)
    noise = noisy - quiet
    std = lr * sigma / np.sqrt(problem.n)
    assert scale_is(noise, std)
    for wrong in (2 / 3, 3 / 2, 1 / np.sqrt(problem.n), np.sqrt(problem.n)):
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
def test_no_noise_comes_twice(way: str, key: jax.Array) -> None:
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
def test_noise_does_not_know_the_mask(name: str) -> None:
    """Weights are drawn as noise is, and multiply it: one key for both would give their squares."""

    def select(key: jax.Array, d: int, hp: jaxfl.types.Hyper) -> Draw:
        return Draw(jnp.arange(d), jax.random.normal(key, (d,)))

    marked = Compressor("marked", lambda d, v: 0.0, lambda d, v: (0.0, 32.0), select)
    numbers = {"lr": 1.0, "clip": 1e-6, "sigma": 1.0}
    numbers |= {"theta": 1.0, "batch": 4} if name == "sdm_dsgd" else {}
    algorithm, keys = jaxfl.algorithm(name, compressor=marked), jax.random.split(jax.random.key(5))
    moves = steps(algorithm, a_problem(0.0), jax.random.split(keys[0], 300), **numbers)
    assert np.abs(moves).mean() > 0.1
    assert abs(moves.mean()) < 0.05


def test_noise_has_the_tails_of_a_gaussian(key: jax.Array) -> None:
    """Neither cut off nor on a grid, which would show what it was added to."""
    z = np.asarray(normal(key, gaussian(), jnp.zeros(100_000), {"sigma": jnp.float32(2.0)})) / 2
    assert kstest(z, "norm").pvalue > 1e-3
    assert np.abs(z).max() > 3.8
    assert len(np.unique(z)) > 0.98 * z.size


def test_no_key_serves_twice(key: jax.Array) -> None:
    """Streams, and the keys of noise and mask of all clients over some rounds, all differ."""
    keys = streams(key)
    clients, every = jnp.arange(5), jnp.arange(100)
    made = jax.vmap(lambda t: client_keys([keys.noise, keys.mask], clients, t))(every)
    words = np.concatenate([jax.random.key_data(k).reshape(-1, 2) for k in (made, *keys)])
    assert len(np.unique(words, axis=0)) == len(words)


def test_every_release_is_accounted_for(key: jax.Array) -> None:
    """The event counts as many releases as each client sent messages, in the slots that they have."""
    run = jaxfl.simulate("ldp_sgd", a_problem(), key, 13, sigma=1.0, lr=0.1, batch=4)
    parts = run.algorithm.event(run.values, run.facts).events
    assert all(part.releases == run.totals["clients"] / run.problem.n == 13 for part in parts)
    slots = run.algorithm.capacity(run.values, run.facts)["batch"]
    assert {part.sampling.slots for part in parts} == {slots}


def test_masks_are_independent_of_noise_and_of_each_other() -> None:
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


def test_noise_under_client_sampling_is_that_of_the_cohort() -> None:
    problem, sigma = a_problem(), 0.7
    keys = jax.random.split(jax.random.key(3), 500)
    algorithm = jaxfl.algorithm("ldp_gd", participation=participation("uniform"))
    numbers = {"lr": 1.0, "clip": 1.0, "cohort": 3}
    quiet, noisy = (steps(algorithm, problem, keys, sigma=s, **numbers) for s in (0.0, sigma))
    noise = noisy - quiet
    assert scale_is(noise, sigma / np.sqrt(3))
    assert not scale_is(noise, sigma / np.sqrt(5))


def test_the_regularizer_is_not_clipped(key: jax.Array) -> None:
    """With a tiny bound on examples what remains is the regularizer's own step, in every path."""
    problem = a_problem(0.5)
    grad = np.asarray(jax.grad(problem.model.regularizer)(problem.x0))
    paths = {"ldp_gd": {}, "cdp_gd": {"k": 8}, "soteriafl_saga": {"k": 8, "batch": 4}}
    for name, more in paths.items():
        run = jaxfl.simulate(name, problem, key, 1, lr=1.0, clip=1e-9, sigma=0.0, **more)
        np.testing.assert_allclose(np.asarray(problem.x0) - run.x, grad, rtol=1e-4, atol=1e-6)


def test_batch_clipping_is_another_thing_and_says_so(key: jax.Array) -> None:
    """The whole estimate, regularizer included, has norm at most G; examples are not clipped."""
    problem, G = a_problem(0.5), 0.05
    algorithm = jaxfl.algorithm("ldp_gd", clip="batch")
    run = jaxfl.simulate(algorithm, problem, key, 1, lr=1.0, clip=G, sigma=0.0)
    assert not algorithm.per_record
    assert run.settings["per_record"] is False
    assert np.linalg.norm(run.x - np.asarray(problem.x0)) <= G * 1.001
    x, total = problem.x0, 0.0
    for i in range(problem.n):
        rows = jax.tree.map(lambda a: a[i, : int(problem.count[i])], problem.train)
        losses = lambda x: jax.vmap(problem.model.loss, (None, 0))(x, rows).mean()  # noqa: E731
        g = np.asarray(jax.grad(losses)(x) + jax.grad(problem.model.regularizer)(x))
        total = total + g * min(1, G / np.linalg.norm(g))
    np.testing.assert_allclose(np.asarray(x) - run.x, total / problem.n, rtol=1e-4, atol=1e-7)


# --- estimators ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("soteriafl_sgd", "shuffled"),
        ("soteriafl_svrg", "without_replacement"),
        ("soteriafl_saga", "poisson"),
        ("soteriafl_saga", "with_replacement"),
    ],
)
def test_estimators_are_unbiased(name: str, draw: str) -> None:
    """After some rounds, when their memories differ from the present gradients, the mean over rows
    drawn is still the clipped full gradient; shuffled epochs are uniform over first draws."""
    problem = a_problem()
    whole = jaxfl.compressors.identity()
    algorithm = jaxfl.algorithm(name, sampler=sampler(draw), compressor=whole)
    numbers = {"lr": 0.5, "clip": 0.6, "sigma": 0.0, "batch": 3, "shift": 0.5}
    if "svrg" in name:
        numbers["refresh"] = 0.2
    run = jaxfl.simulate(algorithm, problem, jax.random.key(0), 8, **numbers)
    hp = build(algorithm, run.values, run.facts, jnp.float32)
    keys = jax.random.split(jax.random.key(1), 4000)
    x = jnp.asarray(run.x)
    step = lambda k: algorithm.output(algorithm.round(k, run.state, problem, hp)[0])  # noqa: E731
    after = jax.jit(jax.vmap(step))(keys)
    moved = (np.asarray(x)[None] - np.asarray(after, float)) / 0.5
    h = full_gradient(problem, x, jnp.float32(0.6)).mean(0)
    expected = np.asarray(h + jax.grad(problem.model.regularizer)(x))
    error = moved.std(0) / np.sqrt(len(keys)) + 1e-6
    assert (np.abs(moved.mean(0) - expected) < 5 * error).all()
    assert moved.std(0).max() > 1e-3


def test_new_snapshots_cost_a_pass(key: jax.Array) -> None:
    problem, rows = a_problem(), sampler("without_replacement")
    algorithm = jaxfl.algorithm("ldp_svrg", sampler=rows)
    run = jaxfl.simulate(algorithm, problem, key, 3, lr=0.1, sigma=0.1, batch=4, refresh=1.0)
    whole = int(np.sum(problem.count))
    assert run.totals["gradients"] == whole + 3 * (2 * 4 * problem.n + whole)
