"""Every bound, schedule and noise level grows as its paper says: exponents on logarithmic axes.

Each row is taken far from where cases of a formula meet.  ``w`` is 1 + omega, ``l`` is ln(1/delta).  A
row that passes would not with the same formula and an exponent wrong by an eighth.
"""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from jaxfl import theory, theory_isrl, theory_shifted
from jaxfl.privacy import formulas

pytestmark = pytest.mark.once

Point = dict[str, float]


class Rate(NamedTuple):
    """A function of the numbers in ``at``, and its exponents; those not named are 0."""

    name: str
    f: Callable[[Point], Any]
    at: Point
    exponents: Mapping[str, float]


def rate(name: str, f: Callable[[Point], Any], at: Point, **exponents: float) -> Rate:
    return Rate(name, f, at, exponents)


def soteria(p: Point) -> theory.Setting:
    delta = math.exp(-p["l"])
    return theory.Setting(p["n"], p["m"], p["d"], p["w"] - 1, p["L"], p["G"], p["eps"], delta, 2.0)


def local(p: Point) -> theory.LocalSetting:
    return theory.LocalSetting(**{"tau": 1.0, **p})


def isrl(p: Point) -> theory.IsrlSetting:
    given = {k: v for k, v in p.items() if k not in ("l", "R")}
    return theory.IsrlSetting(**given, delta=math.exp(-p.get("l", 5.0)))


def anytime(p: Point, trusted: bool = False) -> theory.AnytimeSetting:
    return theory.AnytimeSetting(**p, trusted=trusted)


# --- SoteriaFL -----------------------------------------------------------------------------------

BASE = {"n": 100.0, "m": 1e6, "d": 50.0, "w": 2.0, "L": 1.0, "G": 1.0, "eps": 1.0, "l": 5.0}
FEW = {**BASE, "n": 1e24, "w": 100.0}  # tau << 1
MANY = {**BASE, "n": 10.0, "w": 1e6, "m": 1e12}  # tau >> 1
ORDER = {"m": 1, "eps": 1, "G": -1, "d": -1 / 2, "l": -1 / 2, "L": 1 / 2}
GAIN = {"m": -1, "eps": -1, "G": 1, "d": 1 / 2, "l": 1 / 2, "L": 1 / 2}  # of utilities


def general(
    make: Callable[[theory.Setting], tuple[Any, Any, Any]], f: str
) -> Callable[[Point], Any]:
    """A function of Theorem 3 at a corollary's estimator, beta and eta."""

    def call(p: Point) -> Any:
        s = soteria(p)
        e, beta, eta = make(s)
        more = (eta,) if f == "shifted_utility" else ()
        return getattr(theory, f)(s, e, beta, *more)

    return call


def svrg(s: theory.Setting) -> tuple[Any, Any, Any]:
    b = s.m ** (2 / 3) / 4
    return (
        theory_shifted.svrg(s, b, b / s.m),
        theory.svrg_beta(s, b, b / s.m),
        theory.svrg_step(s, b, b / s.m),
    )


def paper_step(p: Point) -> Any:
    b = p["m"] ** (2 / 3) / 4
    return theory.svrg_step(soteria(p), b, b / p["m"])


SOTERIAFL = (
    rate("tau", lambda p: theory.tau(soteria(p)), BASE, w=3 / 2, n=-1 / 2),
    rate("shift", lambda p: theory.shift(p["w"] - 1), MANY, w=-1),
    rate(
        "Theorem 2, sigma",
        lambda p: theory.paper_sigma(12, soteria(p), p["T"]),
        {**BASE, "T": 10.0},
        m=-1, eps=-1, G=1, l=1 / 2, T=1 / 2,
    ),
    rate(
        "Theorem 2, claim",
        lambda p: formulas.compressed_gd(
            12, p["G"], int(p["m"]), 100, int(p["T"]), math.exp(-p["l"]), eps=p["eps"]
        ).sigma,
        {**BASE, "T": 10.0},
        m=-1, eps=-1, G=1, l=1 / 2, T=1 / 2,
    ),
    rate(
        "Theorem 2, any estimator",
        lambda p: theory.shifted_sigma(soteria(p), svrg(soteria(p))[0], p["T"]),
        {**BASE, "T": 10.0},
        m=-1, eps=-1, G=1, l=1 / 2, T=1 / 2,
    ),
    rate("Theorem 1, step", lambda p: theory.cdp_step(soteria(p)), {**BASE, "m": 1e12},
         n=1 / 2, m=-1, eps=-1, G=-1, w=-1 / 2, L=-1 / 2, d=1 / 2, l=1 / 2),
    rate("Theorem 1, short", lambda p: theory.cdp_step(soteria(p)), {**BASE, "n": 1e20}, L=-1),
    rate("Theorem 1, few rounds", lambda p: theory.cdp_rounds(soteria(p)), {**BASE, "n": 1e20},
         n=1 / 2, w=-1 / 2, **ORDER),
    rate("Theorem 1, many rounds", lambda p: theory.cdp_rounds(soteria(p)), {**BASE, "m": 1e9},
         m=2, eps=2, d=-1, l=-1),
    rate("Theorem 1, utility", lambda p: theory.cdp_utility(soteria(p)), BASE,
         n=-1 / 2, w=1 / 2, **GAIN),
    rate("Corollary 1, step", lambda p: theory.sgd_step(soteria(p)), FEW, L=-1),
    rate("Corollary 1, shorter step", lambda p: theory.sgd_step(soteria(p)), MANY,
         L=-1, n=1 / 2, w=-3 / 2),
    rate("Corollary 1, batch", lambda p: theory.sgd_batch(soteria(p)), {**FEW, "m": 1e16, "d": 1e8},
         n=-1 / 4, w=-1 / 4, m=1, eps=1, G=1, d=-1 / 2, l=-1 / 2, L=-1 / 2),
    rate("Corollary 1, rounds", lambda p: theory.sgd_rounds(soteria(p)), FEW,
         n=1 / 2, w=-1 / 2, **ORDER),
    rate("Corollary 1, more rounds", lambda p: theory.sgd_rounds(soteria(p)), MANY,
         n=1 / 4, w=1 / 4, **ORDER),
    rate("Corollary 1, utility", lambda p: theory.sgd_utility(soteria(p)), FEW,
         n=-1 / 2, w=1 / 2, **GAIN),
    rate("Corollary 1, worse utility", lambda p: theory.sgd_utility(soteria(p)), MANY,
         n=-3 / 4, w=5 / 4, **GAIN),
    rate("Corollary 2, step", paper_step, FEW, L=-1),
    rate("Corollary 2, shorter step", paper_step, MANY, L=-1, n=1 / 2, w=-3 / 2),
    rate("Corollary 2, batch", lambda p: theory.svrg_batch(soteria(p)), MANY, m=2 / 3),
    rate("Corollary 2, rounds", lambda p: theory.svrg_rounds(soteria(p)), FEW,
         n=1 / 2, w=-1 / 2, **ORDER),
    rate("Corollary 2, more rounds", lambda p: theory.svrg_rounds(soteria(p)), MANY, w=1, **ORDER),
    rate("Corollaries 2 and 3, utility", lambda p: theory.svrg_utility(soteria(p)), MANY,
         n=-1 / 2, w=1 / 2, **GAIN),
    rate("Corollary 3, step", lambda p: theory.saga_step(soteria(p)), FEW, L=-1),
    rate("Corollary 3, shorter step", lambda p: theory.saga_step(soteria(p)), MANY,
         L=-1, n=1 / 2, w=-3 / 2),
    rate("Corollary 3, batch", lambda p: theory.saga_batch(soteria(p)), MANY, m=2 / 3),
    # Theorem 3 at a corollary's choices grows as the corollary says
    rate("Theorem 3, utility of SVRG", general(svrg, "shifted_utility"), FEW,
         n=-1 / 2, w=1 / 2, **GAIN),
    rate("Theorem 3, rounds of SVRG", general(svrg, "shifted_rounds"), FEW,
         n=1 / 2, w=-1 / 2, **ORDER),
)  # fmt: skip

# --- Hu, Guo, Gong -------------------------------------------------------------------------------

LOCAL = {"eta": 1e-3, "rounds": 1.0, "r": 4.0, "batch": 5.0, "d": 7.0, "L": 1.0,
         "sigma": 1e-6, "variance": 1e-9}  # fmt: skip
NOISY = {**LOCAL, "sigma": 1e6, "rounds": 1e6}
DRIFTING = {**NOISY, "tau": 1e4, "eta": 1.0, "r": 1e6}
VARYING = {**LOCAL, "variance": 1e9, "rounds": 1e6}

HU = (
    rate("Theorem 2, start", lambda p: theory.local_bound(local(p)), {**LOCAL, "tau": 1.0},
         eta=-1, rounds=-1, tau=-1),
    rate("Theorem 2, gradients", lambda p: theory.local_bound(local(p)), VARYING,
         eta=1, L=1, variance=1, batch=-1),
    rate("Theorem 2, noise", lambda p: theory.local_bound(local(p)), NOISY,
         eta=1, L=1, d=1, sigma=2, r=-1),
    rate("Theorem 2, drift", lambda p: theory.local_bound(local(p)), DRIFTING,
         eta=2, L=2, tau=2, d=1, sigma=2),
    rate("Theorem 2, step", lambda p: theory.local_step(p["L"], p["tau"]), DRIFTING, L=-1, tau=-1),
    rate("Lemma 6, start", lambda p: theory.local_bound_convex(local(p), 0.1), LOCAL,
         eta=-1, rounds=-1),
    rate("Lemma 6, noise", lambda p: theory.local_bound_convex(local(p), 0.1), NOISY,
         eta=1, L=1, d=1, sigma=2, r=-1),
    rate("Lemma 6, drift", lambda p: theory.local_bound_convex(local(p), 0.1), DRIFTING,
         eta=2, L=2, tau=2, d=1, sigma=2),
)  # fmt: skip

# --- Gao, Lowy, Zhou, Wright ---------------------------------------------------------------------

SAMPLES = {"N": 1e4, "n": 1e12, "d": 1e-3, "eps": 1.0, "L": 1.0, "D": 1.0, "beta": 1.0, "l": 1.0}
PRIVATE = {**SAMPLES, "d": 1e18, "N": 1e12, "n": 1e12}  # noise decides, and n < d
MATCHED = {"N": 1e8, "n": 1e8, "L": 1.0, "D": 1.0, "beta": 1.0, "d": 1e8, "eps": 1.0, "l": 1.0}

GAO = (
    rate("risk, samples", lambda p: theory.excess_risk(isrl(p)), SAMPLES,
         N=-1 / 2, n=-1 / 2, L=1, D=1),
    rate("risk, privacy", lambda p: theory.excess_risk(isrl(p)), PRIVATE,
         N=-1 / 2, n=-1, d=1 / 2, eps=-1, l=1 / 2, L=1, D=1),
    rate("Theorem 2.1, samples", lambda p: theory.smooth_rounds(isrl(p)), SAMPLES,
         N=1 / 4, n=1 / 4, beta=1 / 2, D=1 / 2, L=-1 / 2),
    rate("Theorem 2.1, privacy", lambda p: theory.smooth_rounds(isrl(p)), PRIVATE,
         N=1 / 4, n=1 / 2, d=-1 / 4, eps=1 / 2, l=-1 / 4, beta=1 / 2, D=1 / 2, L=-1 / 2),
    rate("Theorem 2.1, gradients at d = n", lambda p: theory.matched_gradients(isrl(p)), MATCHED,
         N=9 / 8, n=9 / 8, beta=1 / 4, D=1 / 4, L=-1 / 4),
    rate("Theorem 2.4, samples", lambda p: theory.rounds_lower_bound(isrl(p), 1e9), SAMPLES,
         N=1 / 4, n=1 / 4, beta=1 / 2, D=1 / 2, L=-1 / 2),
    rate("Theorem 2.4, privacy", lambda p: theory.rounds_lower_bound(isrl(p), 1e9), PRIVATE,
         N=1 / 4, n=1 / 2, d=-1 / 4, eps=1 / 2, l=-1 / 4, beta=1 / 2, D=1 / 2, L=-1 / 2),
    rate("Theorem 2.4, silos alike", lambda p: theory.rounds_lower_bound(isrl(p), 1e-9), PRIVATE,
         N=1 / 4, n=1 / 2, d=-1 / 4, eps=1 / 2, l=-1 / 4, beta=-1 / 2, D=-1 / 2, L=-1 / 2),
    rate("Theorem 3.1, samples", lambda p: theory.nesterov_rounds(isrl(p)), SAMPLES,
         N=1 / 2, n=1 / 2),
    rate("Theorem 3.1, privacy", lambda p: theory.nesterov_rounds(isrl(p)), PRIVATE,
         N=1 / 2, n=1, d=-1 / 2, eps=1, l=-1 / 2),
    rate("Theorem 3.2, privacy", lambda p: theory.convolution_rounds(isrl(p)), PRIVATE,
         N=1 / 2, n=1, d=-1 / 4, eps=1, l=-1 / 2),
    rate("Theorem 3.2, batches", lambda p: theory.convolution_rounds(isrl(p)), SAMPLES,
         n=1, d=-1, eps=2, l=-1),
    rate("Theorem 3.2, gradients", lambda p: theory.convolution_gradients(isrl(p)), MATCHED,
         N=5 / 4, n=11 / 8),
    rate("Theorem 3.5, samples", lambda p: theory.subgradient_communication(isrl(p)), SAMPLES,
         N=1, n=1),
    rate("Theorem 3.5, privacy", lambda p: theory.subgradient_communication(isrl(p)), PRIVATE,
         N=1, n=2, d=-1, eps=2),
    rate("Theorem 3.5, gradients", lambda p: theory.subgradient_gradients(isrl(p)),
         {**PRIVATE, "N": 1e3, "n": 1e15, "d": 1e20}, N=3 / 2, n=2, d=-1 / 2, eps=2),
    rate("lambda, privacy", lambda p: theory_isrl.localization_lam(isrl(p)), PRIVATE,
         N=-1 / 2, n=-1, d=1 / 2, eps=-1, l=1 / 2, L=1, D=-1),
    rate("Theorem G.1, eta", lambda p: theory_isrl.subgradient_eta(isrl(p)), PRIVATE,
         N=1 / 2, d=-1 / 2, eps=1, l=-1 / 2, L=-1, D=1),
    rate("Theorem E.2, beta", lambda p: theory_isrl.nesterov_smoothness(isrl(p)), PRIVATE,
         N=1 / 2, n=1, d=-1 / 2, eps=1, l=-1 / 2, L=1, D=-1),
    rate("noise of a phase", lambda p: theory_isrl.isrl_sigma(isrl(p), p["n"], p["R"]),
         {"N": 9.0, "n": 1e3, "d": 9.0, "eps": 1.0, "L": 1.0, "R": 1e99}, n=-1, eps=-1, L=1, R=1 / 2),
    rate("noise of a phase, claim",
         lambda p: formulas.gao(p["L"], int(p["n"]), 1, int(p["R"]), 1e-5, eps=p["eps"]).sigma,
         {"L": 1.0, "n": 1e4, "R": 1e99, "eps": 1.0}, n=-1, eps=-1, L=1, R=1 / 2),
)  # fmt: skip

# --- Reshef, Levy --------------------------------------------------------------------------------

ANYTIME = {"G": 1.0, "L": 1.0, "D": 1e-9, "d": 1e3, "T": 1e3, "M": 10.0, "rho": 1.0}
NOISE = {**ANYTIME, "d": 1e18}
SPREAD = {**ANYTIME, "rho": 1e9, "T": 1e12}


def excess(p: Point, trusted: bool = False) -> Any:
    return theory.anytime_bound(anytime(p, trusted), p["G"], p["G"], p["L"])


def regret(p: Point, trusted: bool = False) -> Any:
    s = anytime(p, trusted)
    eta, sigma = theory.anytime_step(s), theory.anytime_sigma(s)
    return theory.anytime_regret(s, eta, sigma, p["G"], p["G"], p["L"])


RESHEF = (
    rate("Theorem 5.1, sigma", lambda p: theory.anytime_sigma(anytime(p)), ANYTIME,
         T=1 / 2, rho=-1, G=1),
    rate("Theorem 6.1, sigma", lambda p: theory.anytime_sigma(anytime(p, True)), ANYTIME,
         T=1 / 2, rho=-1, M=-1, G=1),
    rate("Theorem 5.2, step", lambda p: theory.anytime_step(anytime(p)), NOISE,
         rho=1, D=1, M=1 / 2, G=-1, T=-1, d=-1 / 2),
    rate("Theorem 6.2, step", lambda p: theory.anytime_step(anytime(p, True)), NOISE,
         rho=1, D=1, M=1, G=-1, T=-1, d=-1 / 2),
    rate("Theorem 5.2, wide set", lambda p: theory.anytime_step(anytime(p)),
         {**ANYTIME, "D": 1e9, "d": 1e9}, L=-1, T=-1, rho=1, M=1 / 2, d=-1 / 2),
    rate("Theorem 5.2, little noise", lambda p: theory.anytime_step(anytime(p)),
         {**ANYTIME, "rho": 1e99}, L=-1, T=-1),
    rate("Theorem 5.2, noise", excess, NOISE, D=1, G=1, d=1 / 2, rho=-1, T=-1, M=-1 / 2),
    rate("Theorem 6.2, noise", lambda p: excess(p, True), NOISE,
         D=1, G=1, d=1 / 2, rho=-1, T=-1, M=-1),
    rate("Theorem 5.2, samples", excess, SPREAD, D=1, G=1, T=-1 / 2, M=-1 / 2),
    rate("Theorem 6.2, samples", lambda p: excess(p, True), SPREAD, D=1, G=1, T=-1 / 2, M=-1 / 2),
    rate("Theorem 5.2, its proof", regret, NOISE, D=1, G=1, d=1 / 2, rho=-1, T=-1, M=-1 / 2),
    rate("Theorem 6.2, its proof", lambda p: regret(p, True), NOISE,
         D=1, G=1, d=1 / 2, rho=-1, T=-1, M=-1),
)  # fmt: skip

# --- the checks ----------------------------------------------------------------------------------

CLOSE = 0.03
WRONG = 1 / 8


def slopes(f: Callable[[Point], Any], at: Point) -> dict[str, float]:
    """The exponent of each number, by a fit over a factor of 16 from ``at`` on."""
    factors = np.array([1.0, 4.0, 16.0])
    return {
        name: float(
            np.polyfit(
                np.log(factors), [math.log(f({**at, name: at[name] * c})) for c in factors], 1
            )[0]
        )
        for name in at
    }


def grows(f: Callable[[Point], Any], row: Rate) -> bool:
    found = slopes(f, row.at)
    return all(abs(found[name] - row.exponents.get(name, 0.0)) < CLOSE for name in row.at)


@pytest.mark.parametrize(
    "row", [*SOTERIAFL, *HU, *GAO, *RESHEF], ids=lambda row: row.name.replace(" ", "_")
)
def test_growth(row: Rate) -> None:
    """The stated exponents are found, and planted ones that are wrong by an eighth are refused."""
    assert set(row.exponents) <= set(row.at)
    assert grows(row.f, row), slopes(row.f, row.at)
    for name in row.at:
        for sign in (1, -1):
            assert not grows(lambda p, n=name, k=sign * WRONG: row.f(p) * p[n] ** k, row)


def test_nothing_is_left_out() -> None:
    """Every public formula of the theory has a row here, or is looked at elsewhere."""
    source = Path(__file__).read_text("utf-8")
    elsewhere = {  # in test_theory, test_isrl_theory and test_mu2
        "anytime_rdp", "anytime_rho", "cdp_bound", "least_beta", "local_condition", "longest_step",
        "minibatch_sigma", "minibatch_step", "paper_eps", "shifted_bound", "shifted_step",
        "smooth_gradients", "table1", "table2", "unit_sigma",
    }  # fmt: skip
    names = {name for name in theory.__all__ if name[0].islower()} - elsewhere
    assert not {name for name in names if not re.search(rf"theory\.{name}\(|\"{name}\"", source)}
