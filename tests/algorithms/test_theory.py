"""Formulas of the theory: values in two of their cases each, and how they follow from one another."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from papers.gao import tables
from planned import planned
from rows import a_problem

import jaxfl
from jaxfl.algorithms.compressed import theory as compressed
from jaxfl.algorithms.curator import theory as curator
from jaxfl.algorithms.gao import theory as gao
from jaxfl.algorithms.hu import theory as hu
from jaxfl.algorithms.lowy.theory import spider_rounds
from jaxfl.algorithms.reshef import theory as reshef
from jaxfl.algorithms.soteriafl import theory
from jaxfl.algorithms.soteriafl.claims import compressed_gd
from jaxfl.problems.facts import facts_of

pytestmark = pytest.mark.once


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


def test_the_papers_noise_is_that_of_theorem_2() -> None:
    """For each of the constants that the authors' code has; Theorem 1's utility is its bound there."""
    s = theory.Setting(n=4, m=1000, d=10, omega=3.0, L=2.0, G=1.5, eps=2.0, delta=1e-2, gap=3.0)
    assert theory.svrg(s, 25, 0.2) == theory.Estimator(3.0, 1.5, 4 / 25, 0.0, 8.0, 1.0, 0.1)
    assert theory.saga(s, 25) == theory.Estimator(3.0, 1.5, 4 / 25, 0.0, 78.0, 1.0, 0.0125)
    of = (theory.sgd(s, 25), 12), (theory.svrg(s, 25, 0.2), 96), (theory.saga(s, 25), 96)
    for estimator, constant in of:
        assert theory.CONSTANT * estimator.size == pytest.approx(constant * s.G**2)
        claim = compressed_gd(constant, 1.5, 1000, 25, 50, 1e-2, eps=2.0)
        assert claim.sigma == pytest.approx(theory.paper_sigma(constant, s, 50))
    many = s._replace(m=100_000)
    T, eta = theory.cdp_rounds(many), theory.cdp_step(many)
    worst = theory.cdp_bound(many, eta, T, theory.paper_sigma(8, many, T), 2.25)
    assert worst <= theory.cdp_utility(many) < 3 * worst


def test_the_proof_of_theorem_5_2_gives_its_bound() -> None:
    """At the theorem's own step and noise; a tenth of the step gives more."""
    for trusted in (False, True):
        for rho in (0.1, 4.0, 1e3):
            s = reshef.AnytimeSetting(2.0, 3.0, 0.5, 40, 600, 10, rho, trusted)
            eta, sigma = reshef.anytime_step(s), reshef.anytime_sigma(s)
            most = reshef.anytime_bound(s, 2.0, 2.0, 3.0)
            found = reshef.anytime_regret(s, eta, sigma, 2.0, 2.0, 3.0)
            assert most / 3 < found <= most
            assert reshef.anytime_regret(s, eta / 10, sigma, 2.0, 2.0, 3.0) > found


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


# Many clients and little compression, and the other way round: tau << 1 and tau >> 1.
SOTERIA = tuple(
    theory.Setting(n, 10**6, 50, omega, 2.0, 0.5, 1.5, 1e-3, 2.0)
    for n, omega in ((10**7, 4.0), (10, 1e3))
)
SHIFTED = tuple((s, theory.svrg(s, 2500.0, 0.0025), 0.01) for s in SOTERIA)
# Samples decide, and privacy does.
GAO = tuple(
    gao.IsrlSetting(N=20, n=n, d=d, eps=0.5, delta=1e-5, L=2.0, D=3.0, beta=4.0)
    for n, d in ((10**6, 2), (10**4, 10**7))
)
# A set that decides the step, and noise that does; a server that is trusted, and one that is not.
RESHEF = tuple(
    reshef.AnytimeSetting(G=2.0, L=3.0, D=D, d=40, T=600, M=10, rho=rho, trusted=trusted)
    for D, rho, trusted in ((9.0, 50.0, True), (0.5, 0.1, False))
)

LOCAL = tuple(
    hu.LocalSetting(
        eta=eta, tau=tau, rounds=20, r=4, batch=5, d=7, L=2.0, sigma=0.5, variance=3.0, gap=1.5
    )
    for eta, tau in ((0.01, 3), (0.1, 7))
)

VALUES: list[tuple[Callable[..., Any], Any, tuple[float, ...]]] = [
    (theory.tau, SOTERIA, (0.003535533906, 10015.00375)),
    (theory.cdp_step, SOTERIA, (0.09911792504, 7.005193971e-06)),
    (theory.cdp_rounds, SOTERIA, (814302153.6, 814302153.6)),
    (theory.cdp_utility, SOTERIA, (1.238974063e-07, 0.001753049791)),
    (theory.sgd_step, SOTERIA, (0.4964892906, 2.496130063e-05)),
    (theory.sgd_batch, SOTERIA, (239, 2017)),
    (theory.sgd_beta, SOTERIA, (0.0003535533906, 5.002499375)),
    (theory.sgd_rounds, SOTERIA, (342044401.9, 2306266.282)),
    (theory.svrg_batch, SOTERIA, (2500, 2500)),
    (theory.svrg_rounds, SOTERIA, (322847759.3, 228516127.7)),
    (theory.saga_step, SOTERIA, (0.1666666667, 1.664169788e-05)),
    (theory.saga_beta, SOTERIA, (8.333333333e-07, 0.000333000333)),
    (theory.saga_batch, SOTERIA, (30000, 30000)),
    (lambda s: theory.svrg_step(s, 2500.0, 0.0025), SOTERIA, (0.0625, 6.240636705e-06)),
    (lambda s: theory.svrg_beta(s, 2500.0, 0.0025), SOTERIA, (1.5625e-07, 6.243756244e-05)),
    (theory.shifted_rounds, SHIFTED, (601779.248, 8514697.899)),
    (
        lambda s: theory.shifted_rounds(s, theory.sgd(s, 1), 1e9),
        SOTERIA,
        (542867559.5, 542867559.5),
    ),
    (theory.shift, (0.0, 19.0), (0.7071067812, 0.04937104415)),
    (lambda s: theory.paper_sigma(12, s, 50), SOTERIA, (2.145966026e-05, 2.145966026e-05)),
    (lambda s: theory.cdp_bound(s, 0.01, 50, 0.3, 0.7), SOTERIA, (8.000000054, 18.9104)),
    (theory.shifted_step, SHIFTED, (0.1828768727, 2.465654381e-05)),
    (lambda *a: theory.shifted_bound(*a, 0.01, 50, 0.3), SHIFTED, (9.355, 8.011743257)),
    (lambda s: curator.srm_numbers(s).n0, SOTERIA, (16.0, 16.0)),
    (lambda s: curator.srm_numbers(s).zeta, SOTERIA, (0.0006746079814, 0.0006746079814)),
    (lambda s: curator.srm_numbers(s).gamma, SOTERIA, (8.432599768e-05, 8.432599768e-05)),
    (lambda s: curator.srm_numbers(s).batch, SOTERIA, (46.32319934, 46.32319934)),
    (curator.srm_rounds, SOTERIA, (140629691.4, 140629691.4)),
    (curator.gd_rounds, SOTERIA, (228287.8399, 228287.8399)),
    (lambda s: spider_rounds(s, 9), SOTERIA, (3062802770.0, 3062802.77)),
    (hu.local_condition, LOCAL, (0.1108, 6.88)),
    (hu.local_bound, LOCAL, (5.014891667, 3.841035714)),
    (lambda s: hu.local_bound_convex(s, 0.5), LOCAL, (4.989891667, 3.830321429)),
    (hu.local_step, ((2.0, 1), (0.3, 40)), (0.09023021086, 0.04640772439)),
    (gao.excess_risk, GAO, (0.001354516583, 2.892531955)),
    (gao.smooth_rounds, GAO, (163.8072518, 3.536076915)),
    (tables.smooth_gradients, GAO, (2.17147241e11, 71092.97886)),
    (tables.subgradient_gradients, GAO, (4.513135957e10, 808126.7812)),
    (gao.nesterov_rounds, GAO, (4472.135955, 2.083973325)),
    (gao.convolution_rounds, GAO, (10857.36205, 117.1904321)),
    (gao.subgradient_communication, GAO, (20000001, 51)),
    (gao.localization_lam, GAO, (0.0001490711985, 0.3199017275)),
    (gao.subgradient_eta, GAO, (0.006708203932, 0.0003125959987)),
    (gao.nesterov_smoothness, GAO, (2981.42397, 1.38931555)),
    (gao.convolution_radius, GAO, (0.0006772582913, 1.446265978)),
    (gao.localization_power, GAO, (3.0, 3.0)),
    (lambda s: gao.localization_power(s._replace(M=1734**5)), GAO, (3.0, 3.024405683)),
    (lambda s: gao.least_batch(s, s.n // 2, 50), GAO, (1788.924625, 17.88924625)),
    (lambda s: gao.variance(s, s.n, 40, 2.0), GAO, (0.42, 2000000.02)),
    (lambda s: gao.variance(s._replace(M=8), s.n, 40, 2.0), GAO, (1.365789474, 5000000.366)),
    (lambda s: gao.subgradient_rounds(s, 100), GAO, (2001.0, 2.0)),
    (lambda s: gao.isrl_sigma(s, s.n, 40), GAO, (0.005677469492, 0.5677469492)),
    (reshef.anytime_sigma, RESHEF, (5.486857024, 2449.489743)),
    (lambda s: reshef.anytime_rho(s, 5.0), RESHEF, (54.86857024, 48.98979486)),
    (lambda s: reshef.minibatch_step(s, 0.5), RESHEF, (0.1643167673, 0.009128709292)),
    (reshef.anytime_step, RESHEF, (0.0001388888889, 4.166666667e-06)),
    (lambda s: reshef.anytime_bound(s, 2.0, 2.0, 3.0), RESHEF, (29.47145011, 0.8124327782)),
]


@pytest.mark.plain
@pytest.mark.parametrize(
    ("f", "settings", "values"),
    VALUES,
    ids=[f"{k}-{row[0].__name__}" for k, row in enumerate(VALUES)],
)
def test_values(f: Callable[..., Any], settings: Any, values: tuple[float, ...]) -> None:
    found = [f(*s) if type(s) is tuple else f(s) for s in settings]
    assert found == pytest.approx(values, rel=1e-8)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("omega", "n", "p", "b"), [(0.5, 3, 0.3, 2), (9, 10, 0.02, 32), (0.01, 1, 0.001, 1)]
)
def test_estimates_of_dasha_err_by_less_than_their_steps_allow(
    omega: float, n: float, p: float, b: float
) -> None:
    """The recursions of the proof, after one step of length 1; L = 1."""
    a = 1 / (2 * omega + 1)
    for kept, twice, step in (
        (1 - p, 1, compressed.page_step(1.0, omega, n, p, b)),
        ((1 - p) ** 2, 2, compressed.mvr_step(1.0, omega, n, p, b)),
    ):
        own = mean = each = error = total = (
            0.0  # |h_i - grad f_i|^2, of the mean; |g_i - h_i|^2, ditto
        )
        for t in range(5000):
            R, V = float(t == 0), kept / b * (t == 0)
            H = 2 * R + 2 * (p if twice == 1 else p**2) * own + twice * V
            own, mean = kept * own + twice * V, kept * mean + twice * V / n
            error = (1 - a) ** 2 * error + 2 * omega / n * (H + a**2 * each)
            each = (1 - a) * each + 2 * omega * H
            total += 2 * mean + 2 * error
        assert (1 / step - 1) ** 2 / total < 13  # more than the constants of both halves are worth
        assert 1 / step**2 - 1 / step > total


@pytest.mark.full
@pytest.mark.parametrize("data", ["a9a", "mushrooms"])
@pytest.mark.parametrize("name", ["dasha", "ef21_sgdm"])
def test_runs_keep_the_rates_of_their_theorems(
    name: str, data: str, data_dir: Path, key: jax.Array
) -> None:
    """By label, a tenth of the coordinates, the theorem's step; what the run gained stands for the gap."""
    rows, n, T = jaxfl.data.load(data, directory=data_dir), 10, 200
    d = rows.train[0].shape[1]
    problem = jaxfl.Problem(
        jaxfl.models.logistic(d), jaxfl.data.split(rows, n, "by_label"), eval_records="all"
    )
    (a, y), m = (np.asarray(leaf, float) for leaf in problem.train), np.asarray(problem.count)
    squares = [a[i, : m[i]].T @ a[i, : m[i]] / (4 * m[i]) for i in range(n)]  # bounds of Hessians
    slopes = [(0.5 - y[i, : m[i]]) @ a[i, : m[i]] / m[i] for i in range(n)]  # at x_0 = 0
    L = np.linalg.norm(np.mean(squares, axis=0), 2)
    each, first = (
        np.mean(np.linalg.norm(squares, 2, (1, 2)) ** 2) ** 0.5,
        np.sum(np.square(slopes)) / n,
    )
    k, how = d // 10, {"sampler": "full", "k": d // 10}
    if name == "dasha":
        step = compressed.dasha_step(L, each, d / k - 1, n)
        rate = lambda gap: compressed.dasha_rate(gap, first, step, T, d / k - 1, n)  # noqa: E731
    else:
        step, how = compressed.sgdm_step(L, each, k / d, 0.3), {**how, "momentum": 0.3}
        rate = lambda gap: compressed.sgdm_rate(gap, first, step, T, k / d)  # noqa: E731
    run = jaxfl.simulate(name, problem, key, T, eval_every=1, lr=step, **how)
    ds = run.dataset()
    loss, found = ds["loss"].values, float(ds["grad_norm_sq"].values[:T].mean())
    assert loss[0] - loss[-1] > 0.02
    assert 1 < rate(loss[0] - loss[-1]) / found < 10
