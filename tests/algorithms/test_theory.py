"""Formulas against numbers worked out by hand or published."""

import math

import numpy as np
import pytest
from planned import planned
from rows import a_problem

from jaxfl.algorithms.hu.theory import (
    LocalSetting,
    local_bound,
    local_bound_convex,
    local_condition,
    local_step,
)
from jaxfl.algorithms.reshef.theory import (
    AnytimeSetting,
    anytime_bound,
    anytime_regret,
    anytime_sigma,
    anytime_step,
)
from jaxfl.algorithms.soteriafl import theory
from jaxfl.algorithms.soteriafl.claims import compressed_gd
from jaxfl.problems.facts import facts_of

pytestmark = pytest.mark.once

# SoteriaFL on a9a: n = 10, m = 3256, d = 124, k = 6, G = 0.5, delta = 1e-3, L = 1 in b.
A9A = theory.Setting(10, 3256, 124, 124 / 6 - 1, 1.0, 0.5, 1.0, 1e-3)


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
    assert theory.cdp_step(s) == pytest.approx(
        min(0.5, math.sqrt(4 * 3 * 8 * 10 * l) / (2000 * math.sqrt(8)))
    )
    first = 2000 * math.sqrt(4 * 2 * 3) / math.sqrt(4 * 8 * 10 * l)
    assert theory.cdp_rounds(s) == pytest.approx(max(first, 2000**2 / (8 * 10 * l)))
    order = math.sqrt(8) * 2000 / math.sqrt(4 * 10 * l)
    assert theory.sgd_rounds(s) == pytest.approx(3 * order)
    assert theory.svrg_rounds(s) == pytest.approx(4 * order)


@pytest.mark.parametrize(
    ("n", "omega"), [(7, 0.0), (10, 3.0), (1, 19.0), (10, 19.0), (10_000, 3.0)]
)
def test_corollaries_are_cases_of_theorem_3(n: int, omega: float) -> None:
    """Their steps are allowed at their beta, and no beta allows steps 8 times as long."""
    s = theory.Setting(n, 8000, 50, omega, 2.0, 1.0, 1.0, 1e-3)
    b, p = 100, 100 / 8000
    for e, beta, eta in (
        (theory.sgd(s, 200), theory.sgd_beta(s), theory.sgd_step(s)),
        (theory.svrg(s, b, p), theory.svrg_beta(s, b, p), theory.svrg_step(s, b, p)),
        (theory.saga(s, 1200), theory.saga_beta(s), theory.saga_step(s)),
    ):
        assert eta <= theory.shifted_step(s, e, beta) * (1 + 1e-9)
        least, most = theory.least_beta(s, e, eta), theory.longest_step(s, e)
        assert least <= beta * (1 + 1e-9)
        assert theory.shifted_step(s, e, least) == pytest.approx(eta, rel=1e-6)
        assert theory.shifted_step(s, e, least * 0.9) < eta
        assert eta <= most * (1 + 1e-9) < 8 * eta
        grid = np.geomspace(1e-12, 1e6, 4000)
        assert theory.shifted_step(s, e, grid).max() == pytest.approx(most, rel=0.01)
        assert np.isnan(theory.least_beta(s, e, 1.01 * most))


def test_corollary_2_asks_for_some_clients() -> None:
    """Its step breaks (62), the condition of its own proof, without compression and with few clients."""
    s = theory.Setting(1, 8000, 50, 0.0, 2.0, 1.0, 1.0, 1e-3)
    e, eta = theory.svrg(s, 100, 100 / 8000), theory.svrg_step(s, 100, 100 / 8000)
    assert theory.shifted_step(s, e, theory.svrg_beta(s, 100, 100 / 8000)) < eta / 5
    assert theory.longest_step(s, e) < 0.9 * eta
    assert np.isnan(theory.least_beta(s, e, eta))


def test_theorems_1_and_3_by_hand() -> None:
    s = theory.Setting(n=4, m=1000, d=10, omega=3.0, L=2.0, G=1.5, eps=2.0, delta=1e-2, gap=3.0)
    l, T, eta, sigma = math.log(100), 50, 0.01, 0.3
    assert theory.cdp_bound(s, eta, T, sigma, 0.7) == pytest.approx(
        6 / 0.5 + 0.02 / 4 * (3 * 2.25 + 4 * (0.7 + 0.9))
    )
    e = theory.svrg(s, 25, 0.2)
    assert e == theory.Estimator(3.0, 1.5, 4 / 25, 0.0, 8.0, 1.0, 0.1)
    assert e.size == pytest.approx(2 * 1.5**2)
    assert theory.saga(s, 25) == theory.Estimator(3.0, 1.5, 4 / 25, 0.0, 78.0, 1.0, 0.0125)
    small = theory.sgd(s, 25)
    assert math.isclose(small.C2, 975 * 2.25 / 25_000)
    beta, alpha = 0.01, 3 * 0.01 * 0.16 / (2 * 4 * 0.1 * 4)
    A = 1 + 2 * alpha + 0.16
    assert theory.shifted_step(s, e, beta) == pytest.approx(
        min(1 / ((A + 16 * alpha) * 2), math.sqrt(0.04) / (math.sqrt(A) * 8))
    )
    phi = 3 + 0.005 * 2.25
    assert theory.shifted_bound(s, e, beta, eta, T, sigma) == pytest.approx(
        2 * phi / 0.5 + 0.03 / (4 * 2 * eta) * 0.9
    )
    assert theory.shifted_rounds(s, e, beta) == pytest.approx(
        2000 * math.sqrt(16 * phi) / math.sqrt(0.03 * 48 * 10 * 4.5 * l)
    )
    small = theory.sgd(s, 1)
    assert theory.shifted_rounds(s, small, 1e9) == pytest.approx(
        max(
            2000 * math.sqrt(16 * (3 + 0.5e9 * 2.25)) / math.sqrt(3e9 * 48 * 10 * 0.5625 * l),
            small.C2 * 4e6 / (48 * 10 * 0.5625 * l),
        )
    )
    # with the paper's noise, Theorem 2, for each of the constants that the authors' code has
    for estimator, constant in ((small, 12), (e, 96), (theory.saga(s, 25), 96)):
        sigma = theory.shifted_sigma(s, estimator, T)
        assert sigma == pytest.approx(theory.paper_sigma(constant, s, T))
        claim = compressed_gd(constant, 1.5, 1000, 25, T, 1e-2, eps=2.0)
        assert claim.sigma == pytest.approx(sigma)
    # Theorem 1's utility is what its bound comes to at its own step, rounds and noise
    many = s._replace(m=100_000)
    T, eta = theory.cdp_rounds(many), theory.cdp_step(many)
    worst = theory.cdp_bound(many, eta, T, theory.paper_sigma(8, many, T), 2.25)
    assert worst <= theory.cdp_utility(many) < 3 * worst


def test_the_proof_of_theorem_5_2_gives_its_bound() -> None:
    """At the theorem's own step and noise; a tenth of the step gives more."""
    for trusted in (False, True):
        for rho in (0.1, 4.0, 1e3):
            s = AnytimeSetting(2.0, 3.0, 0.5, 40, 600, 10, rho, trusted)
            eta, sigma = anytime_step(s), anytime_sigma(s)
            most = anytime_bound(s, 2.0, 2.0, 3.0)
            found = anytime_regret(s, eta, sigma, 2.0, 2.0, 3.0)
            assert most / 3 < found <= most
            assert anytime_regret(s, eta / 10, sigma, 2.0, 2.0, 3.0) > found


def test_local_steps_by_hand() -> None:
    s = LocalSetting(
        eta=0.01, tau=3, rounds=20, r=4, batch=5, d=7, L=2.0, sigma=0.5, variance=3.0, gap=1.5
    )
    assert s.K == 60
    assert local_condition(s) == pytest.approx(5 * 0.02 + 3 * 9 * 0.0004)
    # (tau-1)(2 tau-1) = 10, d sigma^2 = 1.75
    assert local_bound(s) == pytest.approx(
        3 / 0.6 + 0.02 * 3 / 10 + 0.02 * 1.75 / 8 + 10 * 0.0004 * (6 / 15 + 1.75 * 5 / 12)
    )
    assert local_bound_convex(s, 0.5) == pytest.approx(
        0.995 / 0.3 * 1.5
        + 0.02 * 3 / (4 * 0.5 * 5)
        + 0.02 * 1.75 / (4 * 4 * 0.5)
        + 0.0004 * 10 * (3 / (3 * 0.5 * 5) + 1.75 * 5 / (6 * 4 * 0.5))
    )
    for L, tau in ((2.0, 1), (0.3, 40)):
        eta = local_step(L, tau)
        assert local_condition(s._replace(L=L, tau=tau, eta=eta)) == pytest.approx(1.0)
    many = local_bound(s._replace(tau=np.array([1, 5, 10])))
    assert many.shape == (3,)


def test_published_batch_sizes() -> None:
    """In one call: formulas broadcast."""
    eps = np.array([1.0, 5.0, 10.0])
    np.testing.assert_array_equal(theory.sgd_batch(A9A._replace(eps=eps)), [10, 51, 103])


def test_defaults_come_from_the_theorems() -> None:
    problem = a_problem(0.2)
    facts = facts_of(problem, None)
    L = max(float(np.sum(np.square(a), -1).max()) for a in problem.train[:1]) / 4 + 2 * 0.2
    assert facts.smoothness == pytest.approx(L, rel=1e-5)
    plan = planned("soteriafl_svrg", facts, None, "paper", eps=2.0, omega=3.0)
    values, sources = plan.values, plan.sources
    s = theory.Setting(5, 10, 8, 3.0, L, 1.0, 2.0, 1e-3)
    assert values["k"] == 2
    assert values["lr"] == pytest.approx(theory.svrg_step(s, 1, 0.1), rel=1e-5)
    assert values["batch"] == theory.svrg_batch(s) == 1
    assert values["refresh"] == pytest.approx(0.1)
    assert values["rounds"] == max(1, round(float(theory.svrg_rounds(s))))
    assert values["sigma"] == pytest.approx(theory.paper_sigma(96, s, values["rounds"]))
    assert sources["lr"] == "Corollary 2"
    assert sources["eps"] == "given"
