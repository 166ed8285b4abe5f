"""PORTER: the loop client by client, one eps for two messages a round, and what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import LAM, clipped, regularizer
from rows import a_problem

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.privacy.events import Mean, NoClaim
from jaxfl.rounds.blocks import client_keys, streams

pytestmark = pytest.mark.once
ROUNDS = 12
NUMBERS: dict[str, Any] = {"lr": 0.2, "clip": 0.3, "batch": 5, "consensus": 0.3}


def largest(u: np.ndarray, k: int) -> np.ndarray:
    kept = np.argsort(-np.abs(u), kind="stable")[:k]
    return np.where(np.isin(np.arange(u.size), kept), u, 0)


def transcribed(run: jaxfl.Run, private: bool) -> tuple[np.ndarray, np.ndarray]:
    """x_i and v_i after the run, with the same rows, noise and masks."""
    p, values, body = run.problem, run.values, run.algorithm.body
    hp = build(run.algorithm, values, run.facts, jnp.float32)
    n, d, k = p.n, p.x0.size, values["consensus"]
    W, keys = body.graph.matrix(n), streams(run.key)
    x = np.tile(np.asarray(p.x0, float), (n, 1))
    at, tau, b = x.copy(), values["clip"], values["batch"]  # at: what neighbours know of x
    v = q = before = np.zeros((n, d))

    @jax.jit
    def drawn(t: jax.Array, i: jax.Array) -> tuple[jax.Array, ...]:
        stream = jax.random.fold_in(keys.rows, i)
        rows = body.estimator.sampler.draw(stream, t, p.count[i], p.m_max, hp)
        noise, mask = client_keys([keys.noise, keys.mask], i[None], t)[:, 0]
        kept = [jnp.zeros(d)] * 2
        if body.compressor.select is not None:
            masks = mask, jax.random.fold_in(mask, 1)
            draws = [body.compressor.select(key, d, hp) for key in masks]
            kept = [jnp.zeros(d).at[a.index].add(a.weight, mode="drop") for a in draws]
        return rows.index, rows.weight > 0, jax.random.normal(noise, (d,)), *kept

    def sent(u: np.ndarray, masks: list[np.ndarray]) -> np.ndarray:
        if body.compressor.select is None:
            return np.array([largest(one, values["k"]) for one in u])
        return np.array(masks) * u

    for t in range(ROUNDS):
        draws = [[np.asarray(a) for a in drawn(jnp.int32(t), jnp.int32(i))] for i in range(n)]
        g = np.empty_like(x)
        for i, (index, live, xi, *_) in enumerate(draws):
            most = tau if private else np.inf
            total = sum((clipped(p, i, j, x[i], most) for j in index[live]), 0 * x[i])
            g[i] = total / b + regularizer(x[i])
            if private:
                g[i] += values["sigma"] * xi
            else:
                g[i] *= min(1, tau / np.linalg.norm(g[i]))
        v = v + k * (W @ q - q) + g - before
        q = q + sent(v - q, [draw[3] for draw in draws])
        x = x + k * (W @ at - at) - values["lr"] * v
        at = at + sent(x - at, [draw[4] for draw in draws])
        before = g
    return x, v


@pytest.mark.parametrize(
    ("name", "compressor", "numbers"),
    [
        ("porter_dp", "top_k", {"k": 4, "sigma": 0.05}),
        ("porter_dp", "random_k", {"k": 6, "sigma": 0.05}),
        ("porter_gc", "top_k", {"k": 4}),
    ],
)
def test_transcription(name: str, compressor: str, numbers: dict[str, Any], key: jax.Array) -> None:
    made = jaxfl.compressors.compressor(compressor)
    algorithm = jaxfl.algorithm(name, graph="ring", compressor=made)
    run = jaxfl.simulate(algorithm, a_problem(LAM), key, ROUNDS, eval_every=0, **NUMBERS, **numbers)
    x, v = transcribed(run, name == "porter_dp")
    assert x.std(0).max() > 0.01  # clients do not agree
    np.testing.assert_allclose(np.asarray(run.state.server), x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(run.state.links[0]), v, rtol=1e-4, atol=1e-5)


def test_two_messages_a_round_are_billed(key: jax.Array) -> None:
    run = jaxfl.simulate("porter_gc", a_problem(), key, 7, eval_every=0, **NUMBERS, k=2)
    assert run.totals["uplink_bits"] == 7 * run.problem.n * 2 * 2 * (32 + 3)


def test_the_mean_of_what_is_tracked_is_that_of_the_gradients(key: jax.Array) -> None:
    """W is doubly stochastic, so that no consensus step and no compression moves the mean of the v_i."""
    algorithm = jaxfl.algorithm("porter_dp", graph="ring")
    run = jaxfl.simulate(
        algorithm, a_problem(), key, ROUNDS, eval_every=0, **NUMBERS, k=2, sigma=0.1
    )
    v, _, _, before = (np.asarray(a) for a in run.state.links)
    np.testing.assert_allclose(v.mean(0), before.mean(0), atol=1e-5)


def test_a_round_releases_one_noised_gradient() -> None:
    """Both messages are made of it; without noise nothing is claimed."""
    values = {"clip": 0.3, "sigma": 1.0, "batch": 5, "k": 2}
    facts = jaxfl.types.ProblemFacts(5, 40, 40, 8, 20, 1.0, (40,))
    events = {}
    for name in ("porter_dp", "porter_gc", "dp_dsgd"):
        made = jaxfl.algorithm(name)
        given = {k: v for k, v in values.items() if k in {p.name for p in made.params}}
        events[name] = made.event(jaxfl.algorithms.resolve(made, given, facts).values, facts)
    assert events["porter_dp"] == events["dp_dsgd"]
    assert events["porter_dp"].releases == 20
    assert events["porter_dp"].sensitivity == Mean(0.3)
    assert isinstance(events["porter_gc"], NoClaim)


def test_a_compressor_has_to_contract(key: jax.Array) -> None:
    made = jaxfl.compressors.compressor("random_k")
    with pytest.raises(jaxfl.InputError, match=r"omega = 3\.0 of random_k must be below 1"):
        jaxfl.simulate(jaxfl.algorithm("porter_dp", compressor=made), a_problem(), key, 2, k=2)
