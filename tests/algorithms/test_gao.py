"""ISRL-DP: transcriptions of the paper's algorithms, phases and their privacy, smoothing, and what is
refused."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import Draws
from papers.gao import tables
from planned import Planned, planned
from rows import a_convex_problem, a_network, a_problem
from scipy.optimize import minimize_scalar
from told import refusals, refused

import jaxfl
from jaxfl import privacy
from jaxfl.algorithms.gao import theory
from jaxfl.algorithms.gao.claims import gao
from jaxfl.core.types import Problem, ProblemFacts, Server
from jaxfl.parts import localization as phases
from jaxfl.parts import smoothing
from jaxfl.problems import public
from jaxfl.problems.clipping import evaluate
from jaxfl.problems.custom import custom
from jaxfl.rounds.blocks import client_keys

pytestmark = pytest.mark.once

L2, RADIUS = 0.05, 4.0  # of a_convex_problem
NOISE = ("calibrated", "paper")


def moves(D: Draws, t: int, i: int) -> np.ndarray:
    """By how much each drawn row's point is displaced."""

    def draw(t: jax.Array, i: jax.Array, hp: Any) -> jax.Array:
        size, x, now = D.weighted_rows(0, 0)[1].size, D.p.x0, hp.at(t)
        points = client_keys([D.keys.points], i[None], t)[0, 0]
        jitter = D.body.estimator.gradient.jitter
        return jnp.zeros((size, D.d)) if jitter is None else jitter(points, size, x, now)

    return D.grid("moves", draw)[t, i]


def wide(problem: Problem, model: Any = None) -> Problem:
    """In double precision."""
    a, y = jax.tree.map(np.asarray, problem.train)
    clients = [(a[i, :c], y[i, :c]) for i, c in enumerate(np.asarray(problem.count))]
    data = jaxfl.data.from_clients(clients, classes=2)
    model, x0 = model or problem.model, np.asarray(problem.x0)
    return jaxfl.Problem(model, data, x0=x0, dtype="float64")


# --- the algorithms again, in NumPy ----------------------------------------------------------------


def logistic(a: np.ndarray, s: float, w: np.ndarray, run: Planned) -> np.ndarray:
    return -s * a / (1 + np.exp(s * (a @ w)))


def hinge_envelope(a: np.ndarray, s: float, w: np.ndarray, run: Planned) -> np.ndarray:
    """beta (w - prox), prox = w + s a clip((1 - s a.w)/|a|^2, 0, 1/beta)."""
    beta = run.values["moreau"]
    prox = w + s * a * np.clip((1 - s * (a @ w)) / (a @ a), 0, 1 / beta)
    return beta * (w - prox)


def message(run: Planned, D: Draws, t: int, w: np.ndarray, slope: Callable) -> np.ndarray:
    """mean_i ((1/K) sum_j clip grad f(w + v_ij, x_ij) + u_i), client by client."""
    v, p = run.values, run.problem
    sigma = v["sigma"] * v["noise_t"].over(v["rounds"])[t]
    total, (features, labels) = np.zeros_like(w), (np.asarray(leaf) for leaf in p.train)
    for i in range(p.n):
        for j, weight, moved in zip(*D.weighted_rows(t, i), moves(D, t, i), strict=True):
            if weight > 0:
                a, s = features[i, j], 2.0 * float(labels[i, j]) - 1
                g = slope(a, s, w + moved, run)
                total += weight * g * min(1, v["clip"] / max(np.linalg.norm(g), 1e-300))
        total += sigma * D.noise(t, i)
    return total / p.n + (L2 * w if p.model.name == "logistic" else 0)


def nearest(z: np.ndarray, c: np.ndarray | None, radius: float) -> np.ndarray:
    """On the ball of RADIUS at 0 and the one at c both, by Dykstra's algorithm."""

    def ball(x: np.ndarray, c: Any, r: float) -> np.ndarray:
        far = np.linalg.norm(x - c)
        return x if far <= r else c + (x - c) * r / far

    if c is None:
        return ball(z, 0, RADIUS)
    x, p, q = z, 0 * z, 0 * z
    for _ in range(3000):
        y = ball(x + p, c, radius)
        p = x + p - y
        x_new = ball(y + q, 0, RADIUS)
        q = y + q - x_new
        if np.linalg.norm(x_new - x) < 1e-15 * (1 + np.linalg.norm(x)):
            return x_new
        x = x_new
    return x


def algorithm_2(w0, g, first, R, mu, v, c, radius, lam):
    """AC-SA with a_r = 2/(r+1), h_r = 4 v/(r(r+1)), from round ``first`` on."""
    w = ag = w0
    for r in range(1, R + 1):
        a, h = 2 / (r + 1), 4 * v / (r * (r + 1))
        md = ((1 - a) * (mu + h) * ag + a * ((1 - a) * mu + h) * w) / (h + (1 - a * a) * mu)
        step = g(first + r - 1, md) + (0 if c is None else lam * (md - c))
        w = nearest((a * mu * md + ((1 - a) * mu + h) * w - a * step) / (mu + h), c, radius)
        ag = a * w + (1 - a) * ag
    return ag


def algorithm_5(w0, g, first, R, mu, beta, V2, Delta, c, radius, lam):
    q, k, left = w0, 1, R
    while left:
        R_k = math.ceil(
            max(4 * (2 * beta / mu) ** 0.5, 128 * V2 / (3 * mu * Delta * 2.0 ** -(k + 1)))
        )
        R_k = min(R_k, left)
        cube = R_k * (R_k + 1) * (R_k + 2)
        v = max(2 * beta, (mu * V2 * cube / (3 * Delta * 2.0 ** -(k - 1))) ** 0.5)
        q = algorithm_2(q, g, first + R - left, R_k, mu, v, c, radius, lam)
        left, k = left - R_k, k + 1
    return q


def algorithm_3(w0, g, first, R, mu, c, radius, lam):
    w, total = w0, 0 * w0
    for r in range(R):
        step = g(first + r, w) + (0 if c is None else lam * (w - c))
        w = nearest(w - 2 / (mu * (r + 1)) * step, c, radius)
        total = total + (r + 1) * w
    return 2 / (R * (R + 1)) * total


def noise_of(run: Planned, n_i: int, K: int, sigma: float) -> float:
    """V^2, everybody taking part."""
    N, d, L = run.problem.n, run.problem.x0.size, run.values["clip"]
    return 4 * L * L / (N * K) * (n_i > K) + d * sigma**2 / N


def averaged_subgradients(run: Planned, g: Callable) -> np.ndarray:
    x0, v = np.asarray(run.problem.x0), run.values
    return algorithm_3(x0, g, 0, v["rounds"], v["mu"], None, 0, 0)


def localization(run: Planned, g: Callable) -> np.ndarray:
    """Algorithms 1 and 4 with the run's own lambda, R_i and K_i."""
    v, n = run.values, int(run.problem.count.min())
    T = v["rounds"]
    level, K, noise = (v[name].over(T) for name in ("level_t", "batch_t", "noise_t"))
    w, t, L, D = np.asarray(run.problem.x0), 0, v["clip"], v["diameter"]
    p = max(0.5 * math.log(run.problem.n, n) + 1, 3)
    for i in range(1, v["phases"] + 1):
        R, n_i = int((level == i).sum()), n // 2**i
        lam = v["lam"] * 2 ** ((i - 1) * p)
        if run.algorithm.name == "localized_subgradient":
            lam *= (n // 2) / n_i
            w = algorithm_3(w, g, t, R, lam, w, 2 * L / lam, lam)
        else:
            V2 = noise_of(run, n_i, int(K[t]), v["sigma"] * noise[t])
            beta = {"localized_nesterov": "moreau"}.get(run.algorithm.name, "smoothness")
            beta = v[beta] if beta in v else L * w.size**0.5 / v["spread"]
            Delta = min(L * D, L * L / (2 * lam))
            w = algorithm_5(w, g, t, R, lam, beta + lam, V2, Delta, w, 2 * L / lam, lam)
        t += R
    return w


def accelerated_once(run: Planned, g: Callable) -> np.ndarray:
    v, R, n = run.values, run.values["rounds"], int(run.problem.count.min())
    V2 = noise_of(run, n, v["batch"], v["sigma"])
    step = max(2 * v["smoothness"], (2 * V2 * R * (R + 1) * (R + 2) / 3) ** 0.5 / v["diameter"])
    return algorithm_2(np.asarray(run.problem.x0), g, 0, R, 0.0, step, None, 0, 0)


def all_stages(run: Planned, g: Callable) -> np.ndarray:
    v, n, mu = run.values, int(run.problem.count.min()), run.values["mu"]
    V2 = noise_of(run, n, v["batch"], v["sigma"])
    Delta = min(v["clip"] * v["diameter"], v["clip"] ** 2 / (2 * mu))
    x0 = np.asarray(run.problem.x0)
    return algorithm_5(x0, g, 0, v["rounds"], mu, v["smoothness"], V2, Delta, None, 0, 0)


def plain_steps(run: Planned, g: Callable) -> np.ndarray:
    w, v = np.asarray(run.problem.x0), run.values
    total = 0 * w
    for t in range(v["rounds"]):
        w = nearest(w - v["lr"] * g(t, w), None, 0)
        total = total + (t + 1) * w
    return 2 * total / (v["rounds"] * (v["rounds"] + 1))


CASES: dict[str, tuple[Callable, dict[str, Any]]] = {
    "localized_accelerated_mbsgd": (localization, {"lam": 0.3}),
    "localized_nesterov": (localization, {"lam": 0.3, "moreau": 3.0}),
    "localized_convolution": (localization, {"lam": 0.3, "spread": 1.0}),
    "localized_subgradient": (localization, {"lam": 0.3}),
    "multistage_accelerated": (all_stages, {"mu": 0.4}),
    "accelerated_mbsgd": (accelerated_once, {}),
    "mb_subgradient": (averaged_subgradients, {"mu": 0.4}),
    "one_pass_mbsgd": (plain_steps, {"lr": 0.4}),
}


# Servers and phases are those of the others, with another estimator.
SLOW = ("localized_nesterov", "one_pass_mbsgd", "localized_accelerated_mbsgd", "mb_subgradient")


@pytest.mark.plain
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.full if n in SLOW else ()) for n in CASES]
)
def test_transcription(name: str, x64: None) -> None:
    """Paper noise for eps = 3, so that every sigma_i, V and stage enters."""
    smooth = jaxfl.models.hinge(4, constraint=f"ball:{RADIUS}")
    small = a_convex_problem(n=3, m=20, d=4)
    problem = wide(small, smooth if name == "localized_nesterov" else None)
    algorithm = jaxfl.algorithm(name, noise="per_client")
    loop, numbers = CASES[name]
    numbers = {"clip": 0.8, "eps": 3.0, "delta": 1e-3, **numbers}
    if name.startswith("localized"):
        numbers |= {"phases": 3, "batch": 6}
    run = planned(algorithm, problem, 18, "paper", **numbers)
    D = Draws(run)
    slope = hinge_envelope if name == "localized_nesterov" else logistic
    expected = loop(run, lambda t, w: message(run, D, t, w, slope))
    assert np.linalg.norm(expected - np.asarray(problem.x0)) > 0.05
    end = algorithm.output(run.states(18)[0])
    np.testing.assert_allclose(end, expected, rtol=1e-6, atol=1e-7)


# --- phases ----------------------------------------------------------------------------------------


def test_no_round_releases_nothing() -> None:
    made = run("localized_mbsgd", rounds=9, phases=2, lr=0.1, clip=1.0, eps=1.0, delta=1e-3)
    assert privacy.epsilon(made.event(0), 1e-3).eps == 0


def test_phases_share_no_record_and_use_their_own() -> None:
    """n_i = floor(n/2^i) distinct rows of each silo, its own n; every round stays within."""
    problem = a_convex_problem(m=67)
    algorithm = jaxfl.algorithm("localized_mbsgd", sampler="without_replacement")
    run = planned(algorithm, problem, 60, lr=0.1, batch=8, sigma=1.0)
    D, level = Draws(run), run.values["level_t"].over(60)
    batch = run.values["batch_t"].over(60)
    for i, m in enumerate(problem.count.tolist()):
        seen: set[int] = set()
        for phase in range(1, int(level.max()) + 1):
            here = {t: set(D.rows(t, i)) for t in np.flatnonzero(level == phase)}
            used = set.union(*here.values())
            assert len(used) <= m >> phase
            assert all(len(rows) == batch[t] for t, rows in here.items())
            assert not used & seen
            assert max(used) < m
            seen |= used
    assert len(D.rows(0, 0)) == 8


def test_single_passes_use_every_record_once() -> None:
    D = Draws(planned("one_pass_mbsgd", a_convex_problem(m=67), 9, lr=0.1))
    for i in range(5):
        rows = [set(D.rows(t, i)) for t in range(9)]
        assert all(len(r) == 7 for r in rows)
        assert len(set.union(*rows)) == 63


@pytest.mark.parametrize("seed", range(4))
def test_projection_onto_two_sets(seed: int, x64: None) -> None:
    """Against Dykstra's algorithm, from inside, from one set and from outside both."""
    rng = np.random.default_rng(seed)
    c = nearest(4.5 * rng.normal(size=3), None, 0)
    ball = public.ball(RADIUS).project
    for scale in (0.1, 1.0, 6.0):
        for radius in (0.05, 1.5):
            z = c + scale * rng.normal(size=3)
            found = phases.within(ball, jnp.asarray(c), jnp.float64(radius))(jnp.asarray(z))
            np.testing.assert_allclose(found, nearest(z, c, radius), atol=2e-7)


# --- what one record can do, and the noise -----------------------------------------------------------


@pytest.mark.parametrize("scheme", ["with_replacement", "poisson", "without_replacement"])
def test_a_record_moves_one_phase_and_no_further_than_stated(scheme: str) -> None:
    """2L/K_i for each time that it is drawn, and nothing in any other phase."""
    problem, keys = a_convex_problem(m=30), jax.random.split(jax.random.key(2), 40)
    problem = dataclasses.replace(problem, x0=jnp.zeros(8))
    algorithm = jaxfl.algorithm("localized_accelerated_mbsgd", sampler=scheme)
    run = planned(algorithm, problem, 24, clip=0.7, batch=4, phases=3, sigma=0.0)
    keep = lambda key, state, v, project, hp: (state[0], v)  # noqa: E731
    show = Server("probe", lambda x, hp: (x, x), lambda s: s[0], keep, lambda s: s[1])
    body, hp = run.body._replace(server=show), run.hp

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def received(key: jax.Array, problem: Problem) -> jax.Array:
        """The mean message of every round, at the same point in all of them."""
        state, _ = body.init(key, problem, hp)
        at = lambda t: body.round(key, state._replace(t=t), problem, hp)[0].server[1]  # noqa: E731
        return jax.lax.map(at, jnp.arange(24))

    a, y = (np.array(leaf) for leaf in problem.train)
    worlds = []
    for label in (0, 1):
        a[0, 0], y[0, 0] = 100.0, label
        other = dataclasses.replace(problem, train=(jnp.asarray(a), jnp.asarray(y)))
        worlds.append(np.asarray(received(keys, other), float))
    moved = np.linalg.norm(worlds[1] - worlds[0], axis=-1) * problem.n
    K, level = run.values["batch_t"].over(24), run.values["level_t"].over(24)
    times = moved * K / 1.4
    np.testing.assert_allclose(times, np.round(times), atol=2e-3)
    if scheme != "with_replacement":
        assert times.max() == pytest.approx(1, abs=1e-3)
    touched = [set(level[row > 0.5]) for row in times]
    assert max(map(len, touched)) == 1
    assert set.union(*touched) >= {1, 2}


@pytest.mark.parametrize("scheme", ["with_replacement", "poisson"])
def test_every_phase_is_calibrated(scheme: str) -> None:
    """Each spends all of eps on its own records, and the paper's noise spends far less."""
    algorithm = jaxfl.algorithm("localized_subgradient", sampler=scheme)
    numbers = {"eps": 2.0, "delta": 1e-5, "batch": 9, "phases": 3}
    run, paper = (planned(algorithm, a_convex_problem(), 40, noise, **numbers) for noise in NOISE)
    assert len(run.event.events) == 3  # clients of three sizes
    for part in run.event.events[0].events:
        assert part.sampling.scheme in (scheme, "full")
        assert part.sampling.m in (64, 32, 16)
        assert privacy.epsilon(part, 1e-5).eps == pytest.approx(2, rel=1e-3)
    assert run.eps(1e-5) == pytest.approx(2, rel=1e-3)
    assert paper.claim.eps == pytest.approx(2)
    assert paper.eps(1e-5) < 0.2
    T = int((paper.values["level_t"].over(40) == 1).sum()) + 2  # in the second phase
    two = algorithm.event({**paper.values, "rounds": T}, paper.facts).events[0].events
    assert [part.releases for part in two] == [T - 2, 2]


def test_numbers_of_silos_of_two_sizes() -> None:
    """n of delta = 1/n^2 is the largest silo's; of phases at one noise the formula says the most."""
    sizes = {"n": 3, "m": 50, "m_max": 100, "sizes": (50, 100)}
    facts = ProblemFacts(d=3, rounds=None, smoothness=None, diameter=1.0, **sizes)
    values = planned("localized_subgradient", facts, sigma=0.1).values
    assert values["delta"] == pytest.approx(1e-4)
    these = phases.phases_of(values)
    each = [gao(1.0, p.size(50), p.batch, p.rounds, 1e-4, sigma=0.1 * p.noise).eps for p in these]
    assert values["eps"] == pytest.approx(max(each))
    assert max(each) > 1.01 * each[0]


PLANS = {
    "localized_mbsgd": {"lr": 0.3},
    "localized_accelerated_mbsgd": {"smoothness": 1.0},
    "accelerated_mbsgd": {"smoothness": 1.0},
    "one_pass_accelerated": {"smoothness": 1.0, "batch": 2},
}


@pytest.mark.full
@pytest.mark.parametrize("name", PLANS)
def test_a_plan_cannot_be_extended(name: str, tmp_path: Any) -> None:
    """Beyond it every round would end a phase, with records that the last one has used."""
    done = run(name, rounds=8, sigma=0.3, eval_every=0, out=tmp_path / "run", **PLANS[name])
    refused(lambda: done.extend(9), "^rounds = 9 go beyond the 8 that")
    assert int(done.extend(8).state.t) == 8
    assert done.privacy().proven < float("inf")


# --- what is refused -----------------------------------------------------------------------------------


CONVEX, PART = a_convex_problem(), jaxfl.algorithm
SAME = jax.tree.map(np.asarray, CONVEX.train)
UNBOUNDED = jaxfl.Problem(jaxfl.models.logistic(8), SAME)
NONSMOOTH = jaxfl.Problem(jaxfl.models.hinge(8, constraint="ball:1"), SAME)
SINGLE = a_convex_problem(n=2, m=2)
DEAF = PART("multi_pass_mbsgd", participation="unreliable")
FIRST = ("localized_accelerated_mbsgd", "mb_subgradient", "one_pass_mbsgd")


def run(name: Any, problem: Problem = CONVEX, rounds: int = 20, **numbers: Any) -> jaxfl.Run:
    return jaxfl.simulate(name, problem, jax.random.key(0), rounds, **numbers)


test_bad_input_gets_one_sentence = refusals(
    *((lambda name=name: run(name, a_problem(0.1)), f"{name} needs convex") for name in FIRST),
    (lambda: run("mb_subgradient", a_network()), "needs convex losses"),
    (lambda: run("localized_accelerated_mbsgd", UNBOUNDED), "needs the diameter"),
    (lambda: run("one_pass_mbsgd", UNBOUNDED), "needs the diameter"),
    (lambda: run("localized_mbsgd", rounds=6), "give 7, or phases|at least 7"),
    (lambda: run("localized_mbsgd", phases=8), "phases = 8 leave phase 8 without"),
    (lambda: run("localized_subgradient", SINGLE), "halves the records"),
    (lambda: run("localized_accelerated_mbsgd", eps=50.0, delta=1e-5), "exceeds 2 ln"),
    (lambda: run("accelerated_mbsgd", NONSMOOTH), "needs a smooth loss"),
    (lambda: run("one_pass_mbsgd", rounds=200), "more than one pass"),
    (lambda: run("one_pass_mbsgd", batch=20), "more than one pass"),
    (lambda: run("mb_subgradient", mu=0.1, lam=0.1), "both given"),
    (lambda: run("localized_mbsgd", batch=65), "exceeds the 64 records of a phase"),
    (lambda: run(DEAF), "'unreliable' needs dropout and threshold, which nothing sets"),
    (lambda: PART("localized_mbsgd", sampler="shuffled"), "from the records of a phase"),
    (lambda: PART("localized_mbsgd", compressor="identity"), "localized_mbsgd named 'compressor'"),
    (lambda: PART("one_pass_mbsgd", sampler="poisson"), "uses every record once"),
)


# --- smoothing ---------------------------------------------------------------------------------------


def distance(w: Any, example: Any) -> Any:
    return jnp.abs(jnp.dot(w, example[0]) - example[1])


LOSSES: dict[str, tuple[Any, Callable[[np.ndarray, np.ndarray, float], float]]] = {
    "hinge": (jaxfl.models.hinge(3), lambda w, a, y: max(0.0, 1 - (2 * y - 1) * (a @ w))),
    "absolute": (jaxfl.models.absolute(3), lambda w, a, y: abs(a @ w - y)),
    "logistic": (jaxfl.models.logistic(3), lambda w, a, y: np.logaddexp(0, (1 - 2 * y) * (a @ w))),
    "solver": (custom(np.zeros(3), distance), lambda w, a, y: abs(a @ w - y)),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("beta", [0.5, 20.0])
def test_moreau_gradients_are_those_of_the_envelope(name: str, beta: float, x64: None) -> None:
    """Finite differences of ``min_v f(v) + beta/2 |w - v|^2``, minimised along a by brute force."""
    model, f = LOSSES[name]
    rng = np.random.default_rng(0)
    kernel = smoothing.moreau_kernel(model, jnp.float64(beta))
    for scale in (0.2, 1.0, 4.0):
        w, a, y = scale * rng.normal(size=3), rng.normal(size=3), float(rng.integers(0, 2))

        def envelope(w: np.ndarray, a: np.ndarray = a, y: float = y) -> float:
            reach = 2 / beta + 1e-3
            found = minimize_scalar(
                lambda s: f(w - s * a, a, y) + beta / 2 * s * s * (a @ a),
                bounds=(-reach, reach),
                method="bounded",
                options={"xatol": 1e-13, "maxiter": 5000},
            )
            return float(found.fun)

        batch = (jnp.asarray(a)[None], jnp.asarray([y]))
        g = np.asarray(kernel.contract(jnp.ones(1), kernel.factors(jnp.asarray(w), batch), batch))
        h, steps = 1e-3, np.eye(3)
        numeric = [(envelope(w + h * e) - envelope(w - h * e)) / (2 * h) for e in steps]
        np.testing.assert_allclose(g, numeric, atol=0.03 if name == "solver" else 5e-5)
        assert np.linalg.norm(g) <= np.linalg.norm(a) * (1 + 0.02)


def test_convolution_is_unbiased(key: jax.Array) -> None:
    """Of ``|a.w - y|`` in three dimensions: ``E sign(z + s|a| u) = (3q - q^3)/2``, q = z/(s|a|)."""
    estimator = smoothing.convolution(jaxfl.parts.estimators.minibatch(jaxfl.parts.sampling.full()))
    jitter = estimator.gradient.jitter
    assert jitter is not None
    s, n = 0.7, 200_000
    hp = jaxfl.parts.Hyper({"spread": jnp.float32(s)})
    v = np.asarray(jitter(key, n, jnp.zeros(3), hp), float)
    assert np.linalg.norm(v, axis=1).max() <= s * (1 + 1e-6)
    assert (v**2).sum(1).mean() == pytest.approx(s * s * 3 / 5, rel=0.01)
    np.testing.assert_allclose(jitter(key, 5, jnp.zeros(3), hp), v[:5], rtol=1e-5)
    model, a = jaxfl.models.absolute(3), np.array([1.0, -2.0, 0.5])
    for z in (-2.0, -0.5, 0.1, 1.2):
        w = z * a / (a @ a)
        batch = (jnp.broadcast_to(jnp.asarray(a, jnp.float32), (n, 3)), jnp.zeros(n))
        term = jaxfl.core.types.Term(
            1.0, (jnp.asarray(w + v, jnp.float32),), (1.0,), jnp.float32(9)
        )
        g, _ = evaluate(model.kernel, (term,), jnp.full(n, 1 / n), batch)
        q = np.clip(z / (s * np.linalg.norm(a)), -1, 1)
        assert abs(np.asarray(g) - (3 * q - q**3) / 2 * a).max() < 5 * np.abs(a).max() / n**0.5


# --- the theorems' numbers -----------------------------------------------------------------------------


def test_tables_are_those_of_the_paper() -> None:
    """M = N, d = n, eps = L = beta = D = 1 and ln(1/delta) = 1, each row as printed."""
    N, n = 16.0, 1e4
    s = theory.IsrlSetting(N=N, n=n, d=n, eps=1.0, delta=math.exp(-1))
    assert [row.rounds for row in tables.table1(s)] == pytest.approx(
        [N * n, (N * n) ** 0.2, (N * n) ** 0.25]
    )
    assert [row.rounds for row in tables.table2(s)] == pytest.approx(
        [N * n, (N * n) ** (1 / 3), (N * n) ** 0.5, N * n + 1, N**0.5 * n**0.75 * 2**-0.5], rel=0.5
    )
    printed = N**2 * n + (N * n) ** 1.5
    assert tables.table1(s)[0].gradients == pytest.approx(printed)
    assert tables.table2(s)[3].gradients == pytest.approx(printed, rel=0.01)
    assert tables.table1(s)[1].gradients == N * n
    ours = tables.table1(s)[2].gradients
    assert ours == pytest.approx(N**1.25 * n**0.25 + (N * n) ** (9 / 8), rel=0.1)
    assert [row.optimal for row in tables.table2(s)] == [True, False, True, True, True]
    for row in (tables.table1(s)[2], *tables.table2(s)[2:]):
        assert row.risk == pytest.approx(2 / (N * n) ** 0.5)


def test_stages_as_printed_and_as_they_should_be() -> None:
    sound, printed = (theory.stages(2.0, 0.5, 3.0, 4.0, 4000, 1.0, *w) for w in ((), ("paper",)))
    assert sum(R for R, _ in sound) == 4000
    assert [R for R, _ in sound[:2]] == [256, 512]
    assert sound[0][1] == pytest.approx((0.5 * 3 * 256 * 257 * 258 / (3 * 4)) ** 0.5)
    assert printed[0] == (86, 4.0)


@pytest.mark.parametrize(("total", "wanted"), [(7, [5, 1, 1]), (3, [9, 0.1, 0.1]), (40, [3, 2, 1])])
def test_rounds_are_shared(total: int, wanted: list[float]) -> None:
    found = phases.share(total, wanted)
    assert (sum(found), min(found) >= 1) == (total, True)
    assert found == sorted(found, reverse=True)
    # what is left over goes to the largest remainders
    assert phases.share(5, [3, 1, 1]) == [2, 2, 1]
