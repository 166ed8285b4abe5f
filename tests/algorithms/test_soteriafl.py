"""Each algorithm against an independent NumPy loop, client by client and sample by sample, that is
fed the same draws: samples, noise, masks and coins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import LAM, clipped, regularizer
from rows import a_problem

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.rounds.blocks import client_keys, streams

ROUNDS = 20
NUMBERS = {"lr": 0.3, "clip": 0.6, "sigma": 0.05}


class Draws:
    """What the JAX rounds draw, as NumPy arrays indexed by round and client: rows with their
    weights, noise, masks (as a dense multiplier d/k or 0) and coins."""

    def __init__(self, run: jaxfl.Run) -> None:
        body, problem, v = run.algorithm.body, run.problem, run.values
        hp = build(run.algorithm, v, run.facts, problem.x0.dtype)
        keys, d = streams(run.key), problem.x0.size

        def at(t: jax.Array, i: jax.Array) -> tuple[jax.Array, ...]:
            stream = jax.random.fold_in(keys.rows, i)
            rows = body.estimator.sampler.draw(stream, t, problem.count[i], problem.m_max, hp)
            index = jnp.arange(problem.m_max) if rows.index is None else rows.index
            noise, pick = client_keys([keys.noise, keys.mask], i[None], t)[:, 0]
            if body.compressor.select is None:
                return index, rows.weight > 0, jax.random.normal(noise, (d,)), jnp.ones(d)
            chosen = body.compressor.select(pick, d, hp)
            place = jnp.zeros(d).at[chosen.index]
            xi = jax.random.normal(noise, chosen.index.shape)
            return (
                index,
                rows.weight > 0,
                place.add(xi, mode="drop"),
                place.add(chosen.weight, mode="drop"),
            )

        def coin(t: jax.Array) -> jax.Array:
            return jax.random.uniform(jax.random.fold_in(keys.refresh, t))

        t, i = jnp.arange(ROUNDS), jnp.arange(problem.n)
        grid = jax.jit(jax.vmap(jax.vmap(at, (None, 0)), (0, None)))(t, i)
        self.index, self.live, noise, self.mask = map(np.asarray, grid)
        self.noise = v["sigma"] * noise.astype(float)
        self.coin = np.asarray(jax.vmap(coin)(t)) < v.get("refresh", 0)

    def rows(self, t: int, i: int) -> np.ndarray:
        return self.index[t, i][self.live[t, i]]


def direct_sgd(run: jaxfl.Run, D: Draws) -> np.ndarray:
    x, n, v = np.asarray(run.problem.x0, float), run.problem.n, run.values
    for t in range(ROUNDS):
        total = 0
        for i in range(n):
            rows = D.rows(t, i)
            b = v.get("batch", len(rows))
            g = sum((clipped(run.problem, i, j, x, v["clip"]) for j in rows), 0 * x) / b
            total += D.mask[t, i] * (g + regularizer(x) + D.noise[t, i])
        x = x - v["lr"] * total / n
    return x


def shifted(run: jaxfl.Run, D: Draws, kind: str) -> np.ndarray:
    p, v, n = run.problem, run.values, run.problem.n
    x, s, G = np.asarray(p.x0, float), 0.0, v["clip"]
    s_i = [0 * x for _ in range(n)]
    m = [int(c) for c in p.count]
    table = [[clipped(p, i, j, x, G) for j in range(m[i])] for i in range(n)]
    for t in range(ROUNDS):
        total, old = 0, [list(row) for row in table]
        for i in range(n):
            rows = D.rows(t, i)
            b = v.get("batch", len(rows))
            new = {j: clipped(p, i, j, x, G) for j in rows}
            g = sum((new[j] - (kind != "sgd") * old[i][j] for j in rows), 0 * x) / b
            if kind != "sgd":
                g = g + sum(old[i]) / m[i]
            c = D.mask[t, i] * (g + regularizer(x) + D.noise[t, i] - s_i[i])
            s_i[i] = s_i[i] + v["shift"] * c
            total = total + c
            if kind == "saga":
                for j in rows:
                    table[i][j] = new[j]
        if kind == "svrg" and D.coin[t]:
            table = [[clipped(p, i, j, x, G) for j in range(m[i])] for i in range(n)]
        x, s = x - v["lr"] * (s + total / n), s + v["shift"] * total / n
    return x


LOOPS = {
    "cdp_gd": direct_sgd,
    "cdp_sgd": direct_sgd,
    "ldp_sgd": direct_sgd,
    "soteriafl_gd": lambda run, D: shifted(run, D, "sgd"),
    "soteriafl_sgd": lambda run, D: shifted(run, D, "sgd"),
    "soteriafl_svrg": lambda run, D: shifted(run, D, "svrg"),
    "soteriafl_saga": lambda run, D: shifted(run, D, "saga"),
}


CASES = [(name, "full" if name.endswith("_gd") else "poisson") for name in LOOPS] + [
    ("soteriafl_saga", "with_replacement"),  # one row twice in a batch
    ("soteriafl_svrg", "shuffled"),
    ("ldp_sgd", "without_replacement"),
]


@pytest.mark.parametrize(("name", "sampler"), CASES)
def test_transcription(name: str, sampler: str, key: jax.Array) -> None:
    problem = a_problem(LAM)
    algorithm = jaxfl.algorithm(name, sampler=jaxfl.sampling.sampler(sampler), noise="per_client")
    numbers = dict(NUMBERS)
    if not name.endswith("_gd"):
        numbers["batch"] = 5
    if "svrg" in name:
        numbers["refresh"] = 0.3
    if not name.startswith("ldp"):
        numbers["k"] = 4
    run = jaxfl.simulate(algorithm, problem, key, ROUNDS, eval_every=0, **numbers)
    expected = LOOPS[name](run, Draws(run))
    assert np.linalg.norm(expected - np.asarray(problem.x0)) > 0.1
    np.testing.assert_allclose(run.x, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
