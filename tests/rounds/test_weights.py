"""Clients that differ in weight: f = mean_i w_i f_i."""

import dataclasses
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import Draws
from rows import ROWS, Row
from told import refusals

import jaxfl
from jaxfl.algorithms.resolution import build, resolve
from jaxfl.privacy.events import LocalSteps, Mean, plain_events
from jaxfl.problems.facts import facts_of
from jaxfl.problems.metrics import evaluate_metrics

ROUNDS = 6
KEY = jax.random.key(0)
MEANS = ("soteriafl_saga", "ldp_svrg", "isrl_svrg", "distributed_dp_srm", "scaffold")
MESSAGES = ("soteriafl_saga", "ldp_svrg")


def repeated(row: Row, clients: list[int], weights: Any = "equal") -> jaxfl.Problem:
    """Clients of the row's problem, each with one record many times, so that every draw is the same."""
    problem, who = row.problem, jnp.array(clients)
    train = jax.tree.map(lambda a: jnp.broadcast_to(a[who, :1], a[who].shape), problem.train)
    count = jnp.full(len(clients), problem.count.min())
    w = None if weights == "equal" else jnp.asarray(weights) / np.mean(weights)
    return dataclasses.replace(problem, train=train, count=count, weights=w)


def run(made: jaxfl.parts.Algorithm, problem: jaxfl.Problem, hp: Any) -> jax.Array:
    step = lambda _, state: made.round(KEY, state, problem, hp)[0]  # noqa: E731
    end = jax.lax.fori_loop(0, ROUNDS, step, made.init(KEY, problem, hp)[0])
    return made.body.server.view(end.server)


@pytest.mark.full  # compiles two runs; the next test is quick
@pytest.mark.parametrize(
    ("name", "messages"), [*((name, False) for name in MEANS), *((name, True) for name in MESSAGES)]
)
def test_a_client_of_twice_the_weight_is_two_clients(name, messages):
    row = next(row for row in ROWS if row.name == name)
    parts = {"compressor": "identity"} if "k" in row.numbers else {}
    made = jaxfl.algorithm(name, **parts)
    if made.body.estimator.sampler.scheme == "poisson":
        made = jaxfl.algorithm(name, sampler="without_replacement", **parts)
    body = made.body._replace(messages=messages)
    made = made._replace(init=body.init, round=body.round)
    numbers = {name: value for name, value in row.numbers.items() if name != "k"}
    numbers |= {"batch": 10} if name == "soteriafl_saga" else {}  # which rows it has drawn matters
    many, few = repeated(row, [0, 0, 1, 2]), repeated(row, [0, 1, 2], [2.0, 1.0, 1.0])
    facts = facts_of(many, ROUNDS)
    values = resolve(made, numbers, facts).values
    values = {n: np.zeros_like(v) if n == "sigma" else v for n, v in values.items()}
    ends = []
    for problem in (many, few):
        hp = build(made, values, facts, jnp.float32)
        x = jax.jit(run, static_argnums=0)(made, problem, hp)
        ends.append((x, jax.jit(evaluate_metrics)(problem, x)))
    (x, metrics), (y, weighted) = ends
    assert np.linalg.norm(x - many.x0) > 1e-3
    np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-6)
    for name in ("loss", "grad_norm_sq", "accuracy", "worst_client_loss"):
        np.testing.assert_allclose(weighted[name], metrics[name], rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("r", [2, 3])
def test_federated_averaging_by_the_numbers_of_records(r):
    """Against a NumPy loop: theta_i after 3 steps of the full gradient, x = sum_i n_i theta_i / N.
    Where r of the n = 3 clients take part: x += (n/r) sum_S n_i/N (theta_i - x)."""
    problem = dataclasses.replace(weighted("samples"), x0=jnp.zeros(3))
    rounds, lr, given = 4, 0.3, {} if r == 3 else {"participation": "uniform", "cohort": r}
    run = jaxfl.simulate(
        "fedavg", problem, KEY, rounds, sampler="full", local_steps=3, lr=lr, **given
    )
    clients, x, draws = records(problem), np.zeros(3), Draws(run)
    N = sum(len(y) for _, y in clients)
    for t in range(rounds):
        new = x.copy()
        for a, y in (clients[i] for i in draws.cohort(t)):
            theta = x.copy()
            for _ in range(3):
                theta -= lr * a.T @ (1 / (1 + np.exp(-a @ theta)) - y) / len(y)
            new += 3 / r * len(y) / N * (theta - x)
        x = new
    np.testing.assert_allclose(run.x, x, atol=1e-6)
    assert run.settings["weights"] == "given"
    whole = np.concatenate([a for a, _ in clients]), np.concatenate([y for _, y in clients])
    losses = np.log1p(np.exp(-(2 * whole[1] - 1) * (whole[0] @ x)))
    gradient = whole[0].T @ (1 / (1 + np.exp(-whole[0] @ x)) - whole[1]) / N
    np.testing.assert_allclose(run.metrics["loss"][-1], losses.mean(), rtol=1e-5)
    np.testing.assert_allclose(run.metrics["grad_norm_sq"][-1], gradient @ gradient, rtol=1e-4)


def weighted(weights: Any, sizes: tuple[int, ...] = (4, 10, 30)) -> jaxfl.Problem:
    rng = np.random.default_rng(1)
    clients = [(rng.normal(size=(m, 3)), rng.integers(0, 2, m)) for m in sizes]
    data = jaxfl.data.from_clients(clients, classes=2)
    return jaxfl.Problem(jaxfl.models.logistic(3), data, weights=weights)


def records(problem: jaxfl.Problem) -> list[tuple[np.ndarray, np.ndarray]]:
    a, y = map(np.asarray, problem.train)
    return [
        (a[i, :m].astype(np.float64), y[i, :m]) for i, m in enumerate(np.asarray(problem.count))
    ]


SIZES, WEIGHTS, G = (4, 10, 30, 30), (2.0, 0.5, 1.0, 1.5), 1.5
CASES = {
    "dp_gd": {"clip": G},
    "dp_fedavg": {"update_clip": G, "batch": 4, "local_steps": 1},
    "private_local_sgd": {"clip": G, "batch": 4, "local_steps": 1},
}


@pytest.mark.parametrize("name", CASES)
def test_noise_covers_the_change_by_any_record_or_client(name):
    """One record of each client is replaced by its negation, or all: the ratio to the noise."""
    problem, whole = weighted(WEIGHTS, SIZES), name == "dp_fedavg"
    made = jaxfl.algorithm(name)
    facts = facts_of(problem, 1)
    values = resolve(made, {**CASES[name], "lr": 1.0, "sigma": 1.0}, facts).values
    event = made.event(values, facts)
    quiet = build(made, {**values, "sigma": 0.0}, facts, jnp.float32)
    w = np.array(WEIGHTS) / np.mean(WEIGHTS)
    deviation = np.linalg.norm(w) / len(w) if made.body.aggregation else 1.0  # of the mean's noise

    @jax.jit
    def after(problem: jaxfl.Problem) -> jax.Array:
        state, _ = made.round(KEY, made.init(KEY, problem, quiet)[0], problem, quiet)
        return made.body.server.view(state.server)

    worst: dict[int, float] = {}
    for i, m in enumerate(SIZES):
        ends = []
        for size in (1e4, -1e4):
            a, y = problem.train
            a = a.at[i, slice(None) if whole else 0].set(jnp.array([size, 0.0, 0.0]))
            y = y.at[i].set(0) if whole else y
            ends.append(after(dataclasses.replace(problem, train=(a, y), x0=jnp.zeros(3))))
        moved = float(np.linalg.norm(ends[0] - ends[1])) / deviation
        worst[m] = max(worst.get(m, 0.0), moved)
    bounds = [_bound(part) for part in plain_events(event)]
    found = [max(worst.values())] if whole else list(worst.values())
    if name == "private_local_sgd":  # a draw of 4 records, which may be without the one exchanged
        bounds, found = bounds[:1], found[:1]
    np.testing.assert_allclose(found, bounds, rtol=1e-3)


@pytest.mark.plain
@pytest.mark.parametrize("r", range(1, 6))
def test_the_least_noise_of_a_sum_is_that_of_the_lightest_cohort(r):
    """``min_S sum_S w_j^2 / w_i^2`` over all sets S of r clients with a client i of m records."""
    sizes, weights = (4, 10, 10, 30, 30), (2.0, 0.5, 1.0, 1.5, 1.5)
    problem = weighted(weights, sizes)
    facts, w = facts_of(problem, 1), np.asarray(problem.weights, float)
    cohorts = [list(S) for S in itertools.combinations(range(5), r)]
    for m in set(sizes):
        least = min(np.sum(w[S] ** 2) / w[i] ** 2 for S in cohorts for i in S if sizes[i] == m)
        assert facts.noises(r, m) == pytest.approx(least)


def _bound(event: Any) -> float:
    """The most by which a record moves a release, in standard deviations of its noise."""
    how = event.sensitivity
    share = how.clip / how.devices**0.5 if isinstance(how, LocalSteps) else how.clip
    assert isinstance(how, LocalSteps | Mean)
    return float(2 * share / event.sampling.b / event.sigma)


ONE = "one positive number for each of the 3 clients"
test_wrong_weights = refusals(
    (lambda: weighted([1, -1, 2]), ONE),
    (lambda: weighted([1, math.nan, 2]), ONE),
    (lambda: weighted([0, 0, 0]), "leave out clients that shall not count"),
    (lambda: weighted([1, 2]), ONE),
    (lambda: weighted("sample"), "did you mean 'samples'"),
    (
        lambda: jaxfl.simulate("dp_dsgd", weighted("samples"), KEY, 2, clip=1.0, sigma=1.0),
        "dp_dsgd has no server that weighs its clients",
    ),
)
