"""Networks without a server: graphs, the round body, and what it has to agree with."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import LAM, Draws, gradient, largest, regularizer, shrunk, softened
from planned import planned
from rows import ROWS, a_problem
from told import refusals

import jaxfl
from jaxfl.core.types import Hyper
from jaxfl.parts import graphs
from jaxfl.privacy.events import NoClaim
from jaxfl.rounds.blocks import client_keys

ROUNDS = 12
NUMBERS = {"lr": 0.2, "clip": 0.6, "sigma": 0.05, "batch": 5}


def porter(compressor: str, name: str = "porter_dp", **how: str) -> jaxfl.parts.Algorithm:
    part = jaxfl.parts.compressors.compressor(compressor)
    return jaxfl.algorithm(name, graph="ring", compressor=part, **how)


def test_known_matrices() -> None:
    W = graphs.ring().matrix(12)
    assert graphs.second_eigenvalue(W) == pytest.approx((1 + 2 * np.cos(2 * np.pi / 12)) / 3)
    assert graphs.second_eigenvalue(graphs.complete().matrix(7)) == pytest.approx(0, abs=1e-12)
    grid = graphs.grid().matrix(6)  # 2 x 3
    assert (grid > 0).sum(1).tolist() == [3, 4, 3, 3, 4, 3]
    path = graphs.metropolis([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    np.testing.assert_allclose(path, np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3)
    links = graphs.erdos_renyi(0.5, 1).matrix(30) > 0
    assert 0.4 < (links.sum() - 30) / (30 * 29) < 0.6
    assert graphs.erdos_renyi(0.5, 1) is graphs.graph("erdos_renyi:0.5,1")


test_mistakes_are_explained = refusals(
    (lambda: graphs.graph("rings"), "did you mean 'ring'"),
    (lambda: graphs.graph("ring:3"), "must read complete, ring, grid or erdos_renyi"),
    (lambda: graphs.mixing([[0.5, 0.4], [0.5, 0.6]]), "misses it by 0.1"),
    (lambda: graphs.mixing(np.ones((2, 3))), "is square"),
    (lambda: graphs.mixing(np.roll(np.eye(3), 1, 0)), "differs from its transpose by 1:"),
    (lambda: graphs.mixing(np.eye(3)).matrix(2), "of 3 clients, and there are 2"),
    (lambda: graphs.erdos_renyi(0.0), "p = 0.0 must be above 0"),
    (lambda: graphs.erdos_renyi(1e-6).matrix(50), "no connected graph"),
    (
        lambda: planned(porter("random_k"), a_problem(), 2, k=2),
        r"omega = 3\.0 of random_k must be below 1",
    ),
)


def transcribed(run: jaxfl.Run, name: str) -> np.ndarray:
    """The three rules, client by client, with the same rows, noise and masks."""
    v, n, D = run.values, run.problem.n, Draws(run)
    W = D.body.graph.matrix(n)
    x = np.tile(D.x0, (n, 1))

    def coins(t: jax.Array, i: jax.Array, hp: Hyper) -> jax.Array:
        return jax.random.uniform(client_keys([D.keys.mask], i[None], t)[0, 0], (D.d,))

    def sent(u: np.ndarray, t: int) -> np.ndarray:
        if name == "q_dpsgd_1":
            low = np.floor(u / v["quantum"])
            up = D.grid("coins", coins)[t] < u / v["quantum"] - low
            return v["quantum"] * (low + up)
        return np.array([D.mask(t, i) for i in range(n)]) * u

    def pairs(t: jax.Array, i: jax.Array, hp: Hyper) -> jax.Array:
        """z_ij of each j, from a seed of both."""

        def one(j: jax.Array) -> jax.Array:
            key = jax.random.fold_in(D.keys.pairs, t)
            low, high = jnp.minimum(i, j), jnp.maximum(i, j)
            return D.normal(jax.random.fold_in(jax.random.fold_in(key, low), high))

        return jax.vmap(one)(jnp.arange(n))

    for t in range(ROUNDS):
        g = np.empty_like(x)
        for i in range(n):
            g[i] = D.slope(t, i, x[i], v["clip"]) + regularizer(x[i])
            if D.body.clip == "client":
                g[i] = shrunk(D.slope(t, i, x[i]) + regularizer(x[i]), v["clip"])
            g[i] += v["sigma"] * D.noise(t, i)
            if name == "decor":
                shared = v["coupling"] * v["sigma"] * D.grid("pairs", pairs)[t, i].astype(float)
                g[i] += sum(np.sign(j - i) * shared[j] for j in range(n) if j != i and W[i, j] > 0)
        new = np.empty_like(x)
        if name == "q_dpsgd_1":
            z, k = sent(x, t), v["consensus"]
            for i in range(n):
                near = sum(W[i, j] * z[j] for j in range(n) if j != i)
                new[i] = (1 - k + k * W[i, i]) * x[i] + k * near - v["lr"] * k * g[i]
        elif name == "sdm_dsgd":
            th = v["theta"]
            y = [(1 - th) * x[i] + th * (W[i] @ x - v["lr"] * g[i]) for i in range(n)]
            new = x + sent(np.array(y) - x, t)
        else:
            new = W @ (x - v["lr"] * g)
        x = new
    return x


@pytest.mark.parametrize(
    ("name", "clip"),
    [
        ("q_dpsgd_1", "example"),
        pytest.param("sdm_dsgd", "example", marks=pytest.mark.plain),
        ("dp_dsgd", "example"),
        pytest.param("decor", "example", marks=pytest.mark.plain),
        ("decor", "client"),
    ],
)
def test_transcription(name: str, clip: str, key: jax.Array) -> None:
    more: dict[str, Any] = {"q_dpsgd_1": {"quantum": 0.05, "consensus": 0.8}}
    more |= {"sdm_dsgd": {"k": 4, "theta": 0.7}, "decor": {"coupling": 3.0}}
    algorithm = jaxfl.algorithm(name, graph="ring", clip=clip)
    numbers = {**NUMBERS, **more.get(name, {})}
    run = jaxfl.simulate(algorithm, a_problem(LAM), key, ROUNDS, eval_every=0, **numbers)
    expected = transcribed(run, name)
    assert expected.std(0).max() > 0.01  # clients do not agree
    if name == "sdm_dsgd":  # each of 5 clients sends 4 of 8 coordinates on average
        messages = ROUNDS * run.problem.n
        assert abs(run.totals["coordinates"] - 4 * messages) < 5 * np.sqrt(2 * messages)
    # a rounded coordinate may fall to the other side of a multiple of the quantum
    close = np.isclose(np.asarray(run.state.x), expected, rtol=1e-4, atol=1e-5)
    assert close.mean() == 1 if name != "q_dpsgd_1" else close.mean() > 0.9


def porter_by_hand(run: jaxfl.Run, private: bool, cut: Any) -> tuple[np.ndarray, np.ndarray]:
    """x_i and v_i after the run; two messages a round, each with a mask of its own."""
    D, v = Draws(run), run.values
    n, k, tau, select = D.n, v["consensus"], v["clip"], D.body.compressor.select
    W, x = D.body.graph.matrix(n), np.tile(D.x0, (D.n, 1))
    at = x.copy()  # what neighbours know of x
    slope = q = before = np.zeros((n, D.d))

    def second(t: jax.Array, i: jax.Array, hp: Hyper) -> jax.Array:
        key = jax.random.fold_in(client_keys([D.keys.mask], i[None], t)[0, 0], 1)
        chosen = select(key, D.d, hp)
        return jnp.zeros(D.d).at[chosen.index].add(chosen.weight, mode="drop")

    def sent(u: np.ndarray, masks: Any) -> np.ndarray:
        return np.array([largest(one, v["k"]) for one in u]) if select is None else masks * u

    for t in range(D.T):
        g = np.empty_like(x)
        for i in range(n):
            each = (gradient(D.p, i, j, x[i]) for j in D.rows(t, i))
            each = (cut(slope_j, tau) for slope_j in each) if private else each
            g[i] = sum(each, 0 * x[i]) / v["batch"] + regularizer(x[i])
            g[i] = g[i] + v["sigma"] * D.noise(t, i) if private else cut(g[i], tau)
        slope = slope + k * (W @ q - q) + g - before
        q = q + sent(slope - q, np.array([D.mask(t, i) for i in range(n)]))
        x = x + k * (W @ at - at) - v["lr"] * slope
        at = at + sent(x - at, select and D.grid("second", second)[t])
        before = g
    return x, slope


@pytest.mark.parametrize(
    ("name", "compressor", "k", "how"),
    [
        ("porter_dp", "random_k", 6, {}),
        pytest.param("porter_dp", "top_k", 4, {}, marks=pytest.mark.plain),
        ("porter_gc", "top_k", 4, {}),
        ("porter_dp", "top_k", 4, {"clipping": "hard"}),
        ("porter_gc", "top_k", 4, {"clipping": "hard"}),
    ],
)
def test_porter_by_hand(
    name: str, compressor: str, k: int, how: dict[str, str], key: jax.Array
) -> None:
    private, algorithm = name == "porter_dp", porter(compressor, name, **how)
    numbers = {**NUMBERS, "clip": 0.3, "consensus": 0.3, "k": k}
    if not private:
        del numbers["sigma"]
    run = jaxfl.simulate(algorithm, a_problem(LAM), key, 2 * ROUNDS, eval_every=0, **numbers)
    x, v = porter_by_hand(run, private, shrunk if how else softened)
    assert x.std(0).max() > 0.01  # clients do not agree
    np.testing.assert_allclose(np.asarray(run.state.x), x, rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(np.asarray(run.state.links[0]), v, rtol=1e-5, atol=2e-6)
    if compressor == "top_k":  # two messages a round
        assert run.totals["uplink_bits"] == 2 * ROUNDS * run.problem.n * 2 * k * (32 + 3)


def test_a_round_of_porter_releases_one_noised_gradient() -> None:
    """Both messages are made of it; without noise nothing is claimed."""
    given = {"clip": 0.3, "batch": 5}
    events = {
        name: planned(name, a_problem(m=40), 20, **given, **more).event
        for name, more in (
            ("porter_dp", {"k": 2, "sigma": 1.0}),
            ("dp_dsgd", {"sigma": 1.0}),
            ("porter_gc", {"k": 2}),
        )
    }
    assert events["porter_dp"] == events["dp_dsgd"]
    assert isinstance(events["porter_gc"], NoClaim)


def test_models_stay_in_the_constraint_set(key: jax.Array) -> None:
    a = np.random.default_rng(0).normal(size=(4, 6, 3)).astype(np.float32)
    model = jaxfl.models.least_squares(3, constraint="ball:0.1")
    problem = jaxfl.Problem(model, (a, np.full((4, 6), 9, np.float32)), x0=np.zeros(3))
    run = jaxfl.simulate("dp_dsgd", problem, key, 20, lr=0.5, clip=5.0, sigma=0.1, eval_every=0)
    norms = np.linalg.norm(np.asarray(run.state.x), axis=1)
    assert norms.max() < 0.1 * (1 + 1e-6)
    assert norms.max() > 0.09


@pytest.mark.plain
@pytest.mark.parametrize("name", ["dp_dsgd", "sdm_dsgd", "porter_dp"])
def test_what_neighbours_see_is_what_the_round_sends(name: str, key: jax.Array) -> None:
    row = next(row for row in ROWS if row.name == name)
    f = jaxfl.functions(name, row.problem, rounds=3, **row.numbers)
    run, _ = f.round(f.init(key))
    seen, (after, _) = f.view(run), f.round(run)
    x, now = np.asarray(run.state.x), np.asarray(after.state.x)
    W, sent = np.asarray(run.state.W), np.asarray(seen.messages)
    if name == "dp_dsgd":
        np.testing.assert_allclose(now, W @ sent, rtol=1e-5, atol=1e-6)
    elif name == "sdm_dsgd":
        np.testing.assert_allclose(now, x + sent, rtol=1e-5, atol=1e-6)
    else:  # two messages in a round
        assert sent.shape == (row.problem.n, 2 * x.shape[1])
