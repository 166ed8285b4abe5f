"""Each algorithm against an independent NumPy loop, client by client and sample by sample, that is
fed the same draws: samples, noise, masks and coins."""

import jax
import numpy as np
import pytest
from rows import a_problem

import jaxfl
from jaxfl.rounds import client_keys, streams
from jaxfl.types import Problem

ROUNDS = 20
NUMBERS = {"lr": 0.3, "clip": 0.6, "sigma": 0.05}
LAM = 0.2


class Draws:
    """What the JAX round draws, as NumPy arrays: rows, noise, masks (as a dense d/k multiplier), coin."""

    def __init__(self, run: jaxfl.Run) -> None:
        self.body, self.problem = run.algorithm.round.__self__, run.problem
        self.hp = jaxfl.hyper.build(run.algorithm, run.values, run.facts, run.problem.x0.dtype)
        self.keys, self.v = streams(run.key), run.values

    def rows(self, t: int, i: int) -> np.ndarray:
        key = jax.random.fold_in(self.keys.rows, i)
        sampler, count = self.body.estimator.sampler, self.problem.count[i]
        rows = sampler.draw(key, t, count, self.problem.m_max, self.hp)
        if rows.index is None:
            return np.arange(int(count))
        return np.asarray(rows.index)[np.asarray(rows.weight) > 0]

    def key(self, stream: jax.Array, t: int, i: int) -> jax.Array:
        return client_keys(stream, np.array([i]), t)[0]

    def mask(self, t: int, i: int) -> np.ndarray:
        d, mask = self.problem.x0.size, np.zeros(self.problem.x0.size + 1)
        if self.body.compressor.select is None:
            return np.ones(d)
        pick, _ = jax.random.split(self.key(self.keys.mask, t, i))
        chosen = self.body.compressor.select(pick, d, self.hp)
        np.add.at(mask, np.asarray(chosen.index), np.asarray(chosen.weight))
        return mask[:d]

    def noise(self, t: int, i: int) -> np.ndarray:
        """The client's noise where its message has coordinates; elsewhere it was never drawn."""
        d, out = self.problem.x0.size, np.zeros(self.problem.x0.size + 1)
        key = self.key(self.keys.noise, t, i)
        if self.body.compressor.select is None:
            return self.v["sigma"] * np.asarray(jax.random.normal(key, (d,)))
        pick, _ = jax.random.split(self.key(self.keys.mask, t, i))
        index = np.asarray(self.body.compressor.select(pick, d, self.hp).index)
        out[index] = self.v["sigma"] * np.asarray(jax.random.normal(key, index.shape))
        return out[:d]

    def coin(self, t: int) -> bool:
        key = jax.random.fold_in(self.keys.refresh, t)
        return bool(jax.random.uniform(key) < self.v["refresh"])


def clipped(problem: Problem, i: int, j: int, x: np.ndarray, G: float) -> np.ndarray:
    a, s = np.asarray(problem.train[0][i, j], float), 2 * float(problem.train[1][i, j]) - 1
    g = -s * a / (1 + np.exp(s * (a @ x)))
    return g * min(1, G / max(np.linalg.norm(g), 1e-300))


def regularizer(x: np.ndarray) -> np.ndarray:
    return LAM * 2 * x / (1 + x**2) ** 2


def direct_sgd(run: jaxfl.Run, D: Draws) -> np.ndarray:
    x, n, v = np.asarray(run.problem.x0, float), run.problem.n, run.values
    for t in range(ROUNDS):
        total = 0
        for i in range(n):
            rows = D.rows(t, i)
            b = v.get("batch", len(rows))
            g = sum((clipped(run.problem, i, j, x, v["clip"]) for j in rows), 0 * x) / b
            total += D.mask(t, i) * (g + regularizer(x) + D.noise(t, i))
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
            c = D.mask(t, i) * (g + regularizer(x) + D.noise(t, i) - s_i[i])
            s_i[i] = s_i[i] + v["shift"] * c
            total = total + c
            if kind == "saga":
                for j in rows:
                    table[i][j] = new[j]
        if kind == "svrg" and D.coin(t):
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


@pytest.mark.parametrize("sampler", ["poisson", "with_replacement", "without_replacement"])
@pytest.mark.parametrize("name", LOOPS)
def test_transcription(name: str, sampler: str, key: jax.Array) -> None:
    if name.endswith("_gd") and sampler != "poisson":
        pytest.skip("a full pass has no sampler")
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
