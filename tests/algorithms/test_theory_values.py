"""Formulas of the theory at two settings each, which lie in two of their cases: the values, whose
growth in every number was checked against the papers.  What has a test by hand is not repeated."""

from collections.abc import Callable
from typing import Any

import pytest

from jaxfl.algorithms.gao import theory as gao
from jaxfl.algorithms.reshef import theory as reshef
from jaxfl.algorithms.soteriafl import theory

pytestmark = pytest.mark.once

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

VALUES: list[tuple[Callable[..., Any], Any, tuple[float, float]]] = [
    (theory.tau, SOTERIA, (0.003535533906, 10015.00375)),
    (theory.cdp_step, SOTERIA, (0.09911792504, 7.005193971e-06)),
    (theory.cdp_rounds, SOTERIA, (814302153.6, 814302153.6)),
    (theory.cdp_utility, SOTERIA, (1.238974063e-07, 0.001753049791)),
    (theory.sgd_step, SOTERIA, (0.4964892906, 2.496130063e-05)),
    (theory.sgd_batch, SOTERIA, (239, 2017)),
    (theory.sgd_beta, SOTERIA, (0.0003535533906, 5.002499375)),
    (theory.sgd_rounds, SOTERIA, (342044401.9, 2306266.282)),
    (theory.sgd_utility, SOTERIA, (6.563219507e-09, 0.008859474561)),
    (theory.svrg_batch, SOTERIA, (2500, 2500)),
    (theory.svrg_rounds, SOTERIA, (322847759.3, 228516127.7)),
    (theory.svrg_utility, SOTERIA, (6.194870315e-09, 8.765248957e-05)),
    (theory.saga_step, SOTERIA, (0.1666666667, 1.664169788e-05)),
    (theory.saga_beta, SOTERIA, (8.333333333e-07, 0.000333000333)),
    (theory.saga_batch, SOTERIA, (30000, 30000)),
    (lambda s: theory.svrg_step(s, 2500.0, 0.0025), SOTERIA, (0.0625, 6.240636705e-06)),
    (lambda s: theory.svrg_beta(s, 2500.0, 0.0025), SOTERIA, (1.5625e-07, 6.243756244e-05)),
    (
        lambda s, e, beta: theory.shifted_utility(s, e, beta, 0.01),
        SHIFTED,
        (2.770430227e-05, 1.958011239e-06),
    ),
    (theory.shifted_rounds, SHIFTED, (601779.248, 8514697.899)),
    (gao.excess_risk, GAO, (0.001354516583, 2.892531955)),
    (gao.smooth_rounds, GAO, (163.8072518, 3.536076915)),
    (gao.smooth_gradients, GAO, (2.17147241e11, 71092.97886)),
    (gao.matched_gradients, GAO, (275977690.3, 1640485.921)),
    (gao.nesterov_rounds, GAO, (4472.135955, 2.083973325)),
    (gao.convolution_rounds, GAO, (10857.36205, 117.1904321)),
    (gao.convolution_gradients, GAO, (7524034613, 13464248.82)),
    (gao.subgradient_communication, GAO, (20000001, 51)),
    (gao.subgradient_gradients, GAO, (4.513135957e10, 808126.7812)),
    (lambda s: gao.rounds_lower_bound(s, 1e9), GAO, (163.8072518, 3.536076915)),
    (lambda s: gao.rounds_lower_bound(s, 1e-9), GAO, (1.365060431e-08, 2.946730763e-10)),
    (gao.localization_lam, GAO, (0.0001490711985, 0.3199017275)),
    (gao.subgradient_eta, GAO, (0.006708203932, 0.0003125959987)),
    (gao.nesterov_smoothness, GAO, (2981.42397, 1.38931555)),
    (gao.convolution_radius, GAO, (0.0006772582913, 1.446265978)),
    (lambda s: gao.isrl_sigma(s, s.n, 40), GAO, (0.005677469492, 0.5677469492)),
    (reshef.anytime_sigma, RESHEF, (5.486857024, 2449.489743)),
    (reshef.anytime_step, RESHEF, (0.0001388888889, 4.166666667e-06)),
    (lambda s: reshef.anytime_bound(s, 2.0, 2.0, 3.0), RESHEF, (29.47145011, 0.8124327782)),
]


@pytest.mark.parametrize(
    ("f", "settings", "values"),
    VALUES,
    ids=[f"{k}-{row[0].__name__}" for k, row in enumerate(VALUES)],
)
def test_values(f: Callable[..., Any], settings: Any, values: tuple[float, float]) -> None:
    found = [f(*s) if type(s) is tuple else f(s) for s in settings]
    assert found == pytest.approx(values, rel=1e-8)
