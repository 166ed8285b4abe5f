"""Clip21-SGD2M: the loop in NumPy, and how far a client's data move what it sends."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import LAM, clipped, regularizer
from probe import sent, steep
from rows import a_problem

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.gaussian import gdp_eps
from jaxfl.problems.facts import facts_of
from jaxfl.rounds.blocks import client_keys, streams

pytestmark = pytest.mark.once
ROUNDS = 12
NUMBERS: dict[str, Any] = {
    "lr": 0.2, "clip": 0.15, "sigma": 0.05, "batch": 5, "momentum": 0.6, "shift": 0.4,
}  # fmt: skip


def transcribed(run: jaxfl.Run) -> tuple[np.ndarray, np.ndarray, int]:
    """x and g after the run, and how often something was clipped."""
    p, values, body = run.problem, run.values, run.algorithm.body
    hp = build(run.algorithm, values, run.facts, jnp.float32)
    n, keys = p.n, streams(run.key)
    beta, gamma, tau = values["momentum"], values["shift"], values["clip"]
    x = np.asarray(p.x0, float)
    v, mine, g, shortened = np.zeros((n, x.size)), np.zeros((n, x.size)), 0 * x, 0

    @jax.jit
    def drawn(t: jax.Array, i: jax.Array) -> tuple[jax.Array, ...]:
        stream = jax.random.fold_in(keys.rows, i)
        rows = body.estimator.sampler.draw(stream, t, p.count[i], p.m_max, hp)
        noise = client_keys([keys.noise], i[None], t)[0, 0]
        index = jnp.arange(p.m_max) if rows.index is None else rows.index
        return index, rows.weight > 0, jax.random.normal(noise, x.shape)

    for t in range(ROUNDS):
        total = 0 * x
        for i in range(n):
            index, live, xi = (np.asarray(a) for a in drawn(jnp.int32(t), jnp.int32(i)))
            b = values.get("batch", live.sum())
            slope = sum((clipped(p, i, j, x, np.inf) for j in index[live]), 0 * x) / b
            v[i] = (1 - beta) * v[i] + beta * (slope + regularizer(x))
            c = v[i] - mine[i]
            shortened += np.linalg.norm(c) > tau
            c = c * min(1, tau / np.linalg.norm(c))
            mine[i] = mine[i] + gamma * c
            total = total + c + values["sigma"] * xi
        g = g + gamma / n * total
        x = x - values["lr"] * g
    return x, g, shortened


@pytest.mark.parametrize("full", [False, True], ids=["momentum", "clip21"])
def test_transcription(full: bool, key: jax.Array) -> None:
    numbers = dict(NUMBERS)
    parts: dict[str, Any] = {}
    if full:
        del numbers["batch"]
        numbers |= {"momentum": 1.0, "shift": 1.0}
        parts = {"sampler": jaxfl.sampling.full()}
    algorithm = jaxfl.algorithm("clip21_sgd2m", **parts)
    run = jaxfl.simulate(algorithm, a_problem(LAM), key, ROUNDS, eval_every=0, **numbers)
    x, g, shortened = transcribed(run)
    assert 0 < shortened < ROUNDS * run.problem.n  # some messages were clipped, and some were not
    np.testing.assert_allclose(np.asarray(run.x), x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(run.state.link), g, rtol=1e-4, atol=1e-5)


def test_a_client_moves_its_message_by_two_tau_at_most_and_does() -> None:
    """One record of one turned around, in every round, with memory that saw it too."""
    algorithm = jaxfl.algorithm("clip21_sgd2m", sampler=jaxfl.sampling.full())
    numbers = {"clip": 0.5, "sigma": 0.0, "lr": 1.0, "momentum": 1.0, "shift": 1e-3}
    path = np.zeros((4, 3), np.float32)
    worlds = [steep(np.array([[sign], [1.0]])) for sign in (1.0, -1.0)]
    a, b = sent(algorithm, worlds, path, **numbers)
    moved = np.linalg.norm(a - b, axis=1) * 2  # of the mean over two clients
    np.testing.assert_allclose(moved, 2 * 0.5, rtol=1e-5)


def test_the_event_is_two_tau_in_every_round_whatever_is_drawn() -> None:
    facts = facts_of(a_problem(), 25)
    made = jaxfl.algorithm("clip21_sgd2m")
    for batch in (2, 5):
        given = {"clip": 0.5, "sigma": 4.0, "batch": batch, "shift": 0.3}
        values = jaxfl.algorithms.resolve(made, given, facts).values
        for rule in ("replace_one", "add_remove"):
            event = dataclasses.replace(made.event(values, facts), adjacency=rule)
            expected = float(gdp_eps(2 * 0.5 * 25**0.5 / 4.0, 1e-4))
            assert epsilon(event, 1e-4).eps == pytest.approx(expected, rel=1e-6)


def test_clipping_has_no_bias_in_the_end(key: jax.Array) -> None:
    """Two clients whose clipped gradients do not cancel where their gradients do."""
    signs = np.array([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])
    a = np.ones((2, 3, 1), np.float32) * signs[..., None].astype(np.float32)
    a[1] *= 3
    y = np.array([[1.0] * 3, [3.0] * 3], np.float32)
    data = jaxfl.data.from_clients((a, y), stacked=True)
    problem = jaxfl.make_problem(jaxfl.models.least_squares(1), data, x0=np.zeros(1))
    best = float((1 * 1 - 9 * 1) / 10)  # (x - 1)^2 and 9 (x + 1)^2
    algorithm = jaxfl.algorithm("clip21_sgd2m", sampler=jaxfl.sampling.full())
    run = jaxfl.simulate(
        algorithm,
        problem,
        key,
        400,
        eval_every=0,
        lr=0.02,
        clip=0.2,
        sigma=0.0,
        momentum=1.0,
        shift=1.0,
    )
    assert float(run.x[0]) == pytest.approx(best, abs=1e-3)
