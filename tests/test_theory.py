"""Formulas against numbers worked out by hand or published."""

import math

import numpy as np
import pytest
from rows import a_problem

import jaxfl
from jaxfl import theory

# SoteriaFL on a9a: n = 10, m = 3256, d = 124, k = 6, G = 0.5, delta = 1e-3, L = 1 in b.
A9A = theory.Setting(10, 3256, 124, 124 / 6 - 1, 1.0, 0.5, 1.0, 1e-3)


@pytest.mark.parametrize(("eps", "b"), [(1, 10), (5, 51), (10, 103)])
def test_published_batch_sizes(eps: float, b: int) -> None:
    assert theory.sgd_batch(A9A._replace(eps=eps)) == b


def test_formulas_by_hand() -> None:
    assert theory.shift(0.0) == pytest.approx(math.sqrt(0.5))
    assert theory.shift(19.0) == pytest.approx(math.sqrt(39 / 16000))
    s = theory.Setting(n=4, m=1000, d=10, omega=3.0, L=2.0, G=1.0, eps=2.0, delta=1e-2, gap=3.0)
    assert theory.tau(s) == pytest.approx(4.0)
    assert theory.sgd_step(s) == pytest.approx(1 / 18)
    assert theory.svrg_step(s, 25, 0.025) == pytest.approx(1 / 64)
    assert theory.svrg_step(s, 1, 0.001) == pytest.approx(0.01 / 16)
    assert theory.saga_step(s) == pytest.approx(1 / 24)
    assert theory.svrg_batch(s) == 25
    assert theory.saga_batch(s) == 300
    assert theory.saga_batch(s._replace(m=20)) == 20
    l = math.log(100)
    assert theory.paper_sigma(12, s, 50) == pytest.approx(math.sqrt(12 * 50 * l) / 2000)
    assert theory.paper_eps(12, s, 50, theory.paper_sigma(12, s, 50)) == pytest.approx(2.0)
    assert theory.cdp_step(s) == pytest.approx(
        min(0.5, math.sqrt(4 * 3 * 8 * 10 * l) / (2000 * math.sqrt(8)))
    )
    first = 2000 * math.sqrt(4 * 2 * 3) / math.sqrt(4 * 8 * 10 * l)
    assert theory.cdp_rounds(s) == pytest.approx(max(first, 2000**2 / (8 * 10 * l)))
    order = math.sqrt(8) * 2000 / math.sqrt(4 * 10 * l)
    assert theory.sgd_rounds(s) == pytest.approx(3 * order)
    assert theory.svrg_rounds(s) == pytest.approx(4 * order)


def test_local_steps_by_hand() -> None:
    s = theory.LocalSetting(
        eta=0.01, tau=3, rounds=20, r=4, batch=5, d=7, L=2.0, sigma=0.5, variance=3.0, gap=1.5
    )
    assert s.K == 60
    assert theory.local_condition(s) == pytest.approx(5 * 0.02 + 3 * 9 * 0.0004)
    # (tau-1)(2 tau-1) = 10, d sigma^2 = 1.75
    assert theory.local_bound(s) == pytest.approx(
        3 / 0.6 + 0.02 * 3 / 10 + 0.02 * 1.75 / 8 + 10 * 0.0004 * (6 / 15 + 1.75 * 5 / 12)
    )
    assert theory.local_bound_convex(s, 0.5) == pytest.approx(
        0.995 / 0.3 * 1.5
        + 0.02 * 3 / (4 * 0.5 * 5)
        + 0.02 * 1.75 / (4 * 4 * 0.5)
        + 0.0004 * 10 * (3 / (3 * 0.5 * 5) + 1.75 * 5 / (6 * 4 * 0.5))
    )
    for L, tau in ((2.0, 1), (0.3, 40)):
        eta = theory.local_step(L, tau)
        assert theory.local_condition(s._replace(L=L, tau=tau, eta=eta)) == pytest.approx(1.0)
    many = theory.local_bound(s._replace(tau=np.array([1, 5, 10])))
    assert many.shape == (3,)


@pytest.mark.parametrize("tau", [1, 4])
def test_measured_gradients_stay_below_the_bound(tau: int) -> None:
    """Strongly convex quadratics, noise that dominates; the bound is not 100 times too large."""
    import jax

    rng = np.random.default_rng(0)
    a = np.linalg.qr(rng.normal(size=(32, 4)))[0].astype(np.float32) * np.sqrt(32)
    clients, sigma, T = np.stack([a] * 4), 0.3, 60
    problem = jaxfl.make_problem(
        jaxfl.models.least_squares(4), (clients, np.zeros((4, 32), np.float32)), x0=np.ones(4)
    )
    L = 1.0  # of every client: a.T a / 32 = I, every batch is the whole
    eta = float(theory.local_step(L, tau))
    algorithm = jaxfl.algorithm("private_local_sgd", sampler=jaxfl.sampling.sampler("full"))
    numbers = {
        "lr": eta,
        "local_steps": tau,
        "sigma": sigma,
        "clip": 1e3,
        "range": 1e4,
        "precision": 1e-4,
    }
    runs = [
        jaxfl.simulate(algorithm, problem, jax.random.key(s), T, eval_every=1, **numbers)
        for s in range(4)
    ]
    measured = np.mean([run.metrics["grad_norm_sq"][:-1].mean() for run in runs])
    s = theory.LocalSetting(eta, tau, T, 4, 32, 4, L, sigma, 0.0, gap=2.0)
    assert measured < theory.local_bound(s) < 20 * measured
    gap = np.mean([run.metrics["loss"][:-1].mean() for run in runs])
    assert gap < theory.local_bound_convex(s, 1.0) < 20 * gap


def test_they_broadcast() -> None:
    eps = np.array([1.0, 5.0, 10.0])
    np.testing.assert_array_equal(theory.sgd_batch(A9A._replace(eps=eps)), [10, 51, 103])


def test_defaults_come_from_the_theorems() -> None:
    problem = a_problem(0.2)
    facts = jaxfl.hyper.facts_of(problem, None)
    L = max(float(np.sum(np.square(a), -1).max()) for a in problem.train[:1]) / 4 + 2 * 0.2
    assert facts.smoothness == pytest.approx(L, rel=1e-5)
    algorithm = jaxfl.algorithm("soteriafl_svrg")
    values, sources = jaxfl.hyper.resolve(algorithm, {"eps": 2.0, "omega": 3.0}, facts, "paper")
    s = theory.Setting(5, 10, 8, 3.0, L, 1.0, 2.0, 1e-3)
    assert values["k"] == 2
    assert values["lr"] == pytest.approx(theory.svrg_step(s, 1, 0.1), rel=1e-5)
    assert values["batch"] == theory.svrg_batch(s) == 1
    assert values["refresh"] == pytest.approx(0.1)
    assert values["rounds"] == max(1, round(float(theory.svrg_rounds(s))))
    assert values["sigma"] == pytest.approx(theory.paper_sigma(96, s, values["rounds"]))
    assert sources["lr"] == "Corollary 2"
    assert sources["eps"] == "given"
