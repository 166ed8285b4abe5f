"""Each algorithm against an independent NumPy loop, client by client and sample by sample, that is
fed the same draws: samples, noise, masks and coins."""

import jax
import numpy as np
import pytest
from loops import LAM, Draws, clipped, regularizer
from rows import a_problem

import jaxfl

ROUNDS = 20
NUMBERS = {"lr": 0.3, "clip": 0.6, "sigma": 0.05}


def direct_sgd(run: jaxfl.Run, D: Draws) -> np.ndarray:
    x, n, v = np.asarray(run.problem.x0, float), run.problem.n, run.values
    for t in range(ROUNDS):
        total = 0
        for i in range(n):
            g = D.slope(t, i, x, v["clip"]) + regularizer(x)
            total += D.mask(t, i) * (g + v["sigma"] * D.noise(t, i))
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
            c = D.mask(t, i) * (g + regularizer(x) + v["sigma"] * D.noise(t, i) - s_i[i])
            s_i[i] = s_i[i] + v["shift"] * c
            total = total + c
            if kind == "saga":
                for j in rows:
                    table[i][j] = new[j]
        if kind == "svrg" and D.coin("refresh", t) < v["refresh"]:
            table = [[clipped(p, i, j, x, G) for j in range(m[i])] for i in range(n)]
        x, s = x - v["lr"] * (s + total / n), s + v["shift"] * total / n
    return x


LOOPS = {
    **dict.fromkeys(("cdp_gd", "cdp_sgd", "ldp_sgd"), direct_sgd),
    **dict.fromkeys(("soteriafl_gd", "soteriafl_sgd"), lambda run, D: shifted(run, D, "sgd")),
    "soteriafl_svrg": lambda run, D: shifted(run, D, "svrg"),
    "soteriafl_saga": lambda run, D: shifted(run, D, "saga"),
}


CASES = (
    *(("ldp_sgd", "poisson"), ("soteriafl_gd", "full")),
    *(("soteriafl_svrg", "poisson"), ("soteriafl_saga", "poisson")),
    ("soteriafl_saga", "with_replacement"),  # one row twice in a batch
)
OTHERS = (  # whose parts are seen in these
    *(("ldp_sgd", "without_replacement"), ("cdp_gd", "full"), ("cdp_sgd", "poisson")),
    *(("soteriafl_sgd", "poisson"), ("soteriafl_svrg", "shuffled")),
)


@pytest.mark.parametrize(
    ("name", "sampler"), [*(pytest.param(*row, marks=pytest.mark.plain) for row in CASES), *OTHERS]
)
def test_transcription(name: str, sampler: str, key: jax.Array) -> None:
    problem, given = a_problem(LAM), {"batch": 5, "refresh": 0.3, "k": 4}
    algorithm = jaxfl.algorithm(name, sampler=sampler, noise="per_client")
    numbers = NUMBERS | {p.name: given[p.name] for p in algorithm.params if p.name in given}
    run = jaxfl.simulate(algorithm, problem, key, ROUNDS, eval_every=0, **numbers)
    expected = LOOPS[name](run, Draws(run))
    assert np.linalg.norm(expected - np.asarray(problem.x0)) > 0.1
    np.testing.assert_allclose(run.x, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
