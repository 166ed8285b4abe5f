"""Accountants against closed forms, against an independent library, and against each other."""

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant, pld_pmf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm
from told import refusals, refused
from vectors import UNASKED, answers, question

from jaxfl.privacy.accountants import delta, epsilon
from jaxfl.privacy.calibration import sigma_for
from jaxfl.privacy.events import (
    Event,
    Increments,
    LocalSteps,
    Mean,
    NoClaim,
    Phases,
    Sampling,
    Sequence,
    batch_clipped,
    saga,
    scaled,
    svrg,
    until,
)
from jaxfl.privacy.gaussian import gdp_delta, gdp_eps, gdp_mu, zcdp_eps
from jaxfl.privacy.mixtures import FIXED, Chain, coins_delta, coins_eps
from jaxfl.privacy.pld import Part, compose
from jaxfl.privacy.profiles import (
    Gaussian,
    Pair,
    Shown,
    Split,
    WithoutReplacement,
    WithReplacement,
    poisson,
    poisson_add_remove,
    theorem_k,
)
from jaxfl.privacy.releases import releases
from jaxfl.privacy.selection import best_of

pytestmark = pytest.mark.once


def event(scheme: str = "poisson", m: int = 1000, b: float = 50, T: int = 60, **more: Any) -> Event:
    numbers = {"sigma": 0.06, "clip": 1.0} | more
    b = m if scheme == "full" else b
    return Event(Sampling(scheme, m, b), Mean(numbers["clip"]), numbers["sigma"], T)


# --- the Gaussian mechanism ----------------------------------------------------------------------


@pytest.mark.plain
@pytest.mark.parametrize(
    ("mu", "eps", "value"),  # 30 digits of mpmath, rounded
    [
        (1.0, 1.0, 0.12693673750664394),
        (0.5, 2.0, 9.43916863494720e-06),
        (0.01, 0.05, 5.48144263537226e-10),
        (5.0, 30.0, 1.31325918943646e-04),
        (30.0, 400.0, 0.948702974155246),
        (2.0, 0.0, 0.682689492137086),
    ],
)
def test_delta_of_a_gaussian(mu: float, eps: float, value: float) -> None:
    assert gdp_delta(mu, eps) == pytest.approx(value, rel=1e-5)


@given(st.floats(1e-3, 20), st.floats(-25, -1))
@settings(max_examples=40)
def test_eps_mu_and_delta_of_a_gaussian_invert_each_other(mu: float, log_delta: float) -> None:
    d = math.exp(log_delta)
    eps = gdp_eps(mu, d)
    assert gdp_delta(mu, eps) <= d * (1 + 1e-12)
    if eps > 0:
        assert gdp_delta(mu, eps) == pytest.approx(d, rel=1e-6)
        assert gdp_mu(eps, d) == pytest.approx(mu, rel=1e-6)


def test_conversions_are_ordered() -> None:
    """Limits of a Gaussian; zCDP is looser."""
    assert gdp_delta(0.0, 0.0) == gdp_eps(0.0, 1e-5) == 0
    assert gdp_delta(math.inf, 10.0) == 1
    assert gdp_eps(math.inf, 1e-5) == math.inf
    assert gdp_delta(1e-7, 0.0) == pytest.approx(1e-7 / math.sqrt(2 * math.pi), rel=1e-6)
    for rho in (0.01, 0.5, 5.0):
        assert gdp_eps(math.sqrt(2 * rho), 1e-5) < zcdp_eps(rho, 1e-5)


# --- privacy loss distributions ------------------------------------------------------------------


@pytest.mark.parametrize("d", [0.3, 1e-3, 1e-6, 1e-10, 1e-20])
@pytest.mark.parametrize(("mu", "T"), [(1.0, 1), (0.1, 100), (0.003, 10_000), (1.0, 300)])
def test_pld_equals_the_closed_form(mu: float, T: int, d: float) -> None:
    exact = gdp_eps(mu * math.sqrt(T), d)
    eps = float(compose([Part(Gaussian(mu), T)], delta=d).eps(d))
    assert exact <= eps <= exact * (1 + 2e-4) + 1e-3 * mu * math.sqrt(T)
    back = float(compose([Part(Gaussian(mu), T)], eps=exact).delta(exact))
    target = gdp_delta(mu * math.sqrt(T), exact)
    assert target <= back <= target * 1.01


def test_pld_equals_the_mean_over_coins() -> None:
    shown = Shown((0.9, 0.1), (0.05, 0.8))
    for mu in (1e9, 1e12):  # no loss of it is finite on a grid that the other part fits on
        parts = [Part(Gaussian(mu), 2), Part(poisson(1.0, 0.1), 50)]
        assert compose(parts, delta=1e-5).eps(1e-5) == math.inf
    for d in (1e-3, 1e-6, 1e-9):
        exact = coins_eps(0.1, 0.8, 0.05, 50, d)
        assert coins_delta(0.1, 0.8, 0.05, 50, exact) == pytest.approx(d, rel=1e-6)
        eps = float(compose([Part(shown, 50)], delta=d).eps(d))
        assert exact <= eps * (1 + 1e-9)
        assert eps == pytest.approx(exact, rel=3e-4)


def hockey_stick(P: Any, Q: Any, eps: float) -> float:
    """By brute force on a fine grid of outcomes."""
    x = np.linspace(-30, 30, 600_001)
    p, q = (
        sum(w * np.exp(-0.5 * (x - a) ** 2) for w, a in law) / math.sqrt(2 * math.pi)
        for law in (P, Q)
    )
    return float(np.maximum(p - math.exp(eps) * q, 0).sum() * (x[1] - x[0]))


@pytest.mark.parametrize(
    ("profile", "P", "Q"),
    [
        (poisson(0.1, 0.7), [(0.9, 0), (0.1, 0.7)], [(0.9, 0), (0.1, -0.7)]),
        (poisson(0.01, 4.0), [(0.99, 0), (0.01, 4.0)], [(0.99, 0), (0.01, -4.0)]),
        (poisson_add_remove(0.2, 1.5), [(0.8, 0), (0.2, 1.5)], [(1, 0)]),
        (theorem_k(0.3, 1.2, 0.4), [(0.7, 0.4), (0.3, 1.2)], [(0.7, -0.4), (0.3, -1.2)]),
        (Split(0.2, 1.5), [(0.8, -0.3), (0.2, 1.2)], [(1, 0)]),
        (Split(0.01, 6.0), [(0.99, -0.06), (0.01, 5.94)], [(1, 0)]),
        (Pair((0.5, 0.5), (1, 2), (1,), (0,)), [(0.5, 1), (0.5, 2)], [(1, 0)]),
    ],
)
def test_profiles_by_brute_force(profile: Any, P: Any, Q: Any) -> None:
    eps = np.array([0.0, 1e-4, 0.01, 0.05, 0.3, 1.0, 3.0])
    forward, backward = profile(eps)
    for i, e in enumerate(eps):
        assert forward[i] == pytest.approx(hockey_stick(P, Q, e), abs=2e-8)
        assert backward[i] == pytest.approx(hockey_stick(Q, P, e), abs=2e-8)


def test_one_draw_with_replacement_is_one_without() -> None:
    eps = np.linspace(0, 6, 50)
    one = WithReplacement(1, 100, 0.8)(eps)[0]
    assert one == pytest.approx(WithoutReplacement(0.01, 0.8)(eps)[0], rel=1e-9)


# --- an independent library ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("relation", "m", "b", "T", "sigma", "d"),
    [
        ("replace_one", 1000, 50, 60, 0.03, 1e-5),
        ("replace_one", 3256, 10, 25, 0.05, 1e-3),
        ("replace_one", 1000, 500, 40, 0.02, 1e-6),
        pytest.param("add_remove", 1000, 50, 60, 0.03, 1e-5, marks=pytest.mark.plain),
        ("add_remove", 500, 100, 20, 0.02, 1e-6),
    ],
)
def test_poisson_against_the_library(
    relation: str, m: int, b: int, T: int, sigma: float, d: float
) -> None:
    names = {"replace_one": "REPLACE_ONE", "add_remove": "ADD_OR_REMOVE_ONE"}
    accountant = PLDAccountant(dp.NeighboringRelation[names[relation]])
    accountant.compose(dp.PoissonSampledDpEvent(b / m, dp.GaussianDpEvent(sigma * b)), T)
    ours = dataclasses.replace(event(m=m, b=b, T=T, sigma=sigma), adjacency=relation)
    assert epsilon(ours, d).eps == pytest.approx(accountant.get_epsilon(d), rel=1e-3)


@pytest.mark.parametrize(
    ("profile", "T"), [(WithoutReplacement(0.02, 0.6), 80), (WithReplacement(30, 500, 0.4), 40)]
)
def test_profiles_composed_by_the_library(profile: Any, T: int) -> None:
    d, h, K = 1e-5, 2e-3, 6000
    steps = np.arange(-K, K + 1)
    positive = profile(h * np.arange(K + 1))[0]
    negative = 1 - np.exp(-h * np.arange(K, 0, -1)) * (1 - positive[:0:-1])
    law = np.concatenate([negative, positive])
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(h, steps, law)
    theirs = pmf.self_compose(T, tail_mass_truncation=1e-12).get_epsilon_for_delta(d)
    ours = float(compose([Part(profile, T)], delta=d).eps(d))
    assert ours == pytest.approx(theirs, rel=1e-3)


# --- orders --------------------------------------------------------------------------------------

SLACK = 1 + 1e-3  # the grids' precision


def test_all_records_in_every_batch_is_the_full_gradient() -> None:
    full = epsilon(event("full"), 1e-5)
    for scheme in ("poisson", "without_replacement", "shuffled", "cyclic"):
        assert epsilon(event(scheme, b=1000), 1e-5).eps == full.eps
    assert epsilon(event("poisson", b=999.999), 1e-5).eps == pytest.approx(full.eps, rel=1e-3)
    assert full.status == "E"
    assert full.method.endswith("closed form")


@pytest.mark.plain
@pytest.mark.parametrize(("b", "m", "T"), [(40, 500, 50), (40, 40, 5)])
def test_realisable_attacks_stay_below_the_bounds(b: int, m: int, T: int) -> None:
    """With replacement: an outlier among opposite ones, N(2kg) mixed over its k draws of b, cannot be
    told apart better.  b = m draws are no full batch: they may hold a record several times, or not."""
    d = 1e-5
    e = event("with_replacement", m=m, b=b, T=T, sigma=0.05)
    k = np.arange(b + 1)
    attack = Pair(tuple(binom.pmf(k, b, 1 / m)), tuple(2 * k / (b * 0.05)), (1.0,), (0.0,))
    realised = float(compose([Part(attack, T)], delta=d).eps(d))
    proven = epsilon(e, d).eps
    assert 0.5 * proven < realised <= proven * SLACK


# --- events --------------------------------------------------------------------------------------


def test_lost_records_of_padded_batches_are_added_to_delta() -> None:
    plain = event()
    rows = [Sampling("poisson", 1000, 50, slots=slots) for slots in (110, 87, 60)]
    loose, tight, never = (dataclasses.replace(plain, sampling=some) for some in rows)
    eta = tight.sampling.overflow(60)
    assert 0 < eta < 1e-4
    at = epsilon(plain, 1e-3).eps
    assert delta(tight, at).delta == pytest.approx(delta(plain, at).delta + eta, rel=1e-3)
    assert at <= epsilon(loose, 1e-3).eps <= epsilon(tight, 1e-3).eps
    assert epsilon(tight, 1e-3).eps > at
    assert epsilon(never, 1e-3).eps == math.inf  # eta is 1 and more
    assert "batches of bounded size" in epsilon(tight, 1e-3).method


ADJACENCY = ("replace_one", "add_remove")


@pytest.mark.parametrize("adjacency", ADJACENCY)
def test_what_padding_adds_is_enough(adjacency: str) -> None:
    """The law of one release of five records in three slots, written down whole."""
    m, b, slots, sigma = 5, 2.5, 3, 0.2
    rng, z = np.random.default_rng(0), np.linspace(-4, 4, 4001)
    described = [
        Event(Sampling("poisson", m, b, slots=s), Mean(1.0), sigma, 1, adjacency=adjacency)  # type: ignore[arg-type]
        for s in (slots, None)
    ]
    losses = (0.0, 0.5, 1.0, 3.0, 8.0, 10.0, 12.0)
    most = np.zeros(len(losses))

    def law(values: np.ndarray, there: np.ndarray) -> np.ndarray:
        p = np.zeros_like(z)
        for coins in itertools.product((0, 1), repeat=m):
            drawn = [v for v, c, here in zip(values, coins, there, strict=True) if c * here][:slots]
            p += norm.pdf(z, sum(drawn) / b, sigma) / 2**m
        return p

    for place in range(m):
        for _ in range(8):
            values, there = rng.choice([-1.0, 1.0], m), np.ones(m)
            other, less = values.copy(), there.copy()
            if adjacency == "replace_one":
                other[place] *= -1
            else:
                less[place] = 0
            P, Q = law(values, there), law(other, less)
            for A, B in ((P, Q), (Q, P)):
                over = [np.trapezoid(np.maximum(A - np.exp(e) * B, 0), z) for e in losses]
                most = np.maximum(most, over)
    stated, unpadded = (np.array([delta(e, eps).delta for eps in losses]) for e in described)
    assert (most <= stated + 1e-6).all()
    assert (most > 2 * unpadded).any()  # without what is added it would be false


def test_each_part_of_a_sequence_may_lose_records() -> None:
    plain = event(T=30)
    tight = dataclasses.replace(plain, sampling=Sampling("poisson", 1000, 50, slots=85))
    eta = tight.sampling.overflow(30)
    assert 0 < eta < 1e-4
    at = epsilon(Sequence((plain, plain)), 1e-3).eps
    both, without = (delta(Sequence((one, one)), at).delta for one in (tight, plain))
    assert both == pytest.approx(without + 2 * eta, rel=1e-3)


def test_a_proof_is_as_established_as_its_weakest_part() -> None:
    plain = event("full", T=2)
    assert epsilon(plain, 1e-5).status == "E"
    both = Sequence((plain, event("without_replacement", T=2)))
    assert epsilon(both, 1e-5).status == "D"


def test_disjoint_phases_cost_the_worst_of_them_and_sequences_more() -> None:
    one, two = event(T=20), event(T=60)
    alone = [epsilon(e, 1e-5).eps for e in (one, two)]
    assert epsilon(Phases((one, two)), 1e-5).eps == max(alone)
    together = epsilon(Sequence((one, two)), 1e-5).eps
    assert max(alone) < together == pytest.approx(epsilon(event(T=80), 1e-5).eps, rel=1e-3)
    full = Sequence((event("full", T=10), event("full", T=15)))
    assert epsilon(full, 1e-5).eps == pytest.approx(epsilon(event("full", T=25), 1e-5).eps)


def test_shuffled_epochs() -> None:
    g = 2 / (50 * 0.06)
    whole = epsilon(event("shuffled", T=60), 1e-5)  # 20 rounds an epoch
    assert whole.eps == pytest.approx(gdp_eps(g * math.sqrt(3), 1e-5))
    assert whole.status == "E"
    part, more = epsilon(event("shuffled", T=70), 1e-5), epsilon(event("shuffled", T=80), 1e-5)
    assert whole.eps < part.eps < more.eps
    assert epsilon(event("shuffled", T=70), 1e-5, "ceil").eps == more.eps
    assert part.status == "D"
    ragged = epsilon(event("shuffled", m=1001, T=20), 1e-5)  # one record is left out each time
    assert ragged.eps <= gdp_eps(g, 1e-5) * SLACK
    assert epsilon(event("single_pass", T=20), 1e-5).eps == pytest.approx(gdp_eps(g, 1e-5))
    refused(lambda: epsilon(event("single_pass", T=21), 1e-5), "ask for at most 20")


@pytest.mark.plain
@pytest.mark.parametrize("sigma", [1.0, 1e-3])
@pytest.mark.parametrize("T", [1, 2, 3])
def test_part_of_an_epoch_uses_a_record_by_the_share_of_its_places(T: int, sigma: float) -> None:
    """T batches of 2 hold 2T of the 8 places of a shuffled order, all equally likely.  With almost no
    noise an attack sees whether the record is used, and delta is the share."""
    used = [place // 2 < T for place in range(8)]
    p, eps = np.mean(used), 0.5
    exact = p * gdp_delta(2 / (2 * sigma), math.log1p(math.expm1(eps) / p))
    assert sigma == 1 or exact == p
    part = event("shuffled", m=8, b=2, T=T, sigma=sigma)
    assert delta(part, eps).delta == pytest.approx(exact, rel=1e-3)


def test_svrg_and_saga() -> None:
    def make(estimator: Mean, scheme: str = "poisson", m: int = 1000, b: int = 50) -> Event:
        return Event(Sampling(scheme, m, b), estimator, 0.06, 40)

    default = epsilon(make(svrg(1.0)), 1e-5)
    chain, reveal, new, best = (
        epsilon(make(svrg(1.0)), 1e-5, m) for m in ("chain", "reveal", "theorem_k", "best")
    )
    assert default.eps == min(chain.eps, reveal.eps)
    assert best.eps == min(default.eps, new.eps)
    assert (chain.status, reveal.status, new.status) == ("D", "D", "N")
    hidden = epsilon(make(saga(1.0)), 1e-5)
    assert hidden.eps == reveal.eps  # what a table hides is revealed, and nothing new is used
    assert epsilon(make(saga(1.0)), 1e-5, "theorem_k").eps == new.eps
    fixed = make(saga(1.0), "without_replacement")
    refused(lambda: epsilon(fixed, 1e-5, "theorem_k"), "leave the method out")
    for scheme in ("without_replacement", "with_replacement", "shuffled"):
        assert default.eps < epsilon(make(svrg(1.0), scheme), 1e-5).eps < math.inf
    whole = Sampling("full", 1000, 1000)
    full, mean = (Event(whole, kind, 0.01, 40) for kind in (svrg(1.0), Mean(1.0)))
    assert epsilon(full, 1e-5).eps == epsilon(mean, 1e-5).eps
    for b in (
        5,
        15,
        60,
    ):  # from an undrawn record, 2G/m, to one that is all draws, also where b > m
        shown = releases(make(svrg(1.0), "with_replacement", 10, b)).parts[0].profile
        assert list(shown.mu) == sorted(shown.mu)
        ends = pytest.approx((2 / 10 / 0.06, 2 * (2 - 1 / 10) / 0.06))
        assert ((shown.mu[0], shown.mu[-1]), sum(shown.w)) == (ends, pytest.approx(1))
    # epochs of 3 rounds: 40 rounds use a record 14 times
    mu = math.sqrt(14 * (2 * (2 / 30 - 1 / 100)) ** 2 + 26 * (2 / 100) ** 2) / 0.06
    epochs = epsilon(make(svrg(1.0), "shuffled", 100, 30), 1e-5, "reveal")
    assert epochs.eps == pytest.approx(gdp_eps(mu, 1e-5))


def test_hidden_states_stay_below_theorem_k() -> None:
    """Two random rounds, by quadrature: each world's shift is at most X if the record is drawn and Y if
    not, and in round 2 depends on the first output and on the first coin, which is not shown."""
    rng, x = np.random.default_rng(0), np.linspace(-9.0, 9.0, 181)

    def world(coins: Any) -> np.ndarray:
        law = np.zeros((x.size, x.size))
        for w1, most1 in coins:
            first = w1 * norm.pdf(x - rng.uniform(-most1, most1))
            turn = np.cos(rng.uniform(0, 3) * x + rng.uniform(0, 2 * math.pi))[:, None]
            law += first[:, None] * sum(w2 * norm.pdf(x - most2 * turn) for w2, most2 in coins)
        return law

    for _ in range(100):
        q, X = rng.uniform(0.05, 0.95), rng.uniform(0.2, 2.0)
        coins = (1 - q, rng.uniform(0.0, X)), (q, X)
        sides = (sum(w * norm.pdf(x - s * m) for w, m in coins) for s in (1, -1))
        actual, bound = (world(coins), world(coins)), [np.outer(side, side) for side in sides]
        for eps in (0.0, 0.3, 1.0, 2.0, 4.0):
            found, most = (np.maximum(p - math.exp(eps) * r, 0).sum() for p, r in (actual, bound))
            assert found <= most * (1 + 1e-9)


@pytest.mark.plain
@pytest.mark.parametrize("fixed", [False, True])
def test_the_chain_spends_no_more_than_delta(fixed: bool) -> None:
    """``d1 + e^{e1} d2 + e^{e1+e2} d3 = delta``: at the best of the shares tried here, or the fixed
    ones, eps is what the chain says."""
    d, chain = 1e-5, Chain(0.5, 0.4, 0.1, 20, fixed)
    found, part = chain.eps(d), [Part(Split(chain.q, chain.V), chain.rounds)]
    there = compose(part, delta=d / 3)
    back = compose(part, delta=d / 3 * math.exp(-found), reverse=True, scale=found)
    tried = np.exp(np.linspace(-6, 2, 60))
    first, last = np.array(FIXED).T if fixed else (tried[:, None], tried[None])
    whole = 1.0 if fixed else 1 + first + last
    first, last = np.broadcast_arrays(first / whole, last / whole)
    e1 = there.eps(first * d)
    mu = 2 * chain.M * math.sqrt(chain.rounds)
    e2 = gdp_eps(mu, (1 - first - last) * d * np.exp(-e1))
    e3 = back.eps(last * d * np.exp(-e1 - e2))
    assert found == pytest.approx(np.min(e1 + e2 + e3), rel=2e-3)


def test_the_chain_without_replacement_counts_both_records() -> None:
    """The one that is drawn takes another one's place, whose share moves too: V doubles."""
    made = Event(Sampling("without_replacement", 1000, 50), svrg(1.0), 0.06, 40)
    doubled = Chain(0.05, 2 * 2 / 50 / 0.06, 1 / 1000 / 0.06, 40)
    eps = epsilon(made, 1e-5, "chain").eps
    assert eps == pytest.approx(doubled.eps(1e-5), rel=1e-9)
    assert delta(made, eps, "chain").delta == pytest.approx(1e-5, rel=2e-3)  # and back


def test_local_steps() -> None:
    def make(rounds: int = 20, **numbers: Any) -> float:
        rows = Sampling("shuffled", 2400, 240)
        return epsilon(Event(rows, LocalSteps(1.0, **numbers), 0.02, rounds), 1e-4).eps

    alone = make(tau=10)
    assert make(tau=10, devices=10) == alone  # nothing is known of several steps without convexity
    summed = make(tau=10, devices=10, convex=True)
    assert summed == pytest.approx(gdp_eps(2 / (240 * 0.02) * math.sqrt(20 / 10), 1e-4))
    assert summed < make(tau=10, devices=10, convex=True, colluding=3) < alone
    assert make(tau=10, devices=10, convex=True, colluding=9) == alone
    assert make(tau=20, devices=10, convex=True) == make(tau=20)  # two passes a round
    assert make(tau=1, devices=10, rounds=200) == summed  # one step needs no convexity
    partial = make(tau=4, fresh=True)
    assert partial < make(tau=10, fresh=True) == alone


def test_what_claims_nothing_proves_nothing_and_nothing_released_costs_nothing() -> None:
    assert epsilon(event(T=0), 1e-5).eps == delta(event(T=0), 0.0).delta == 0
    unclipped = Event(Sampling("poisson", 100, 10), batch_clipped(), 1.0, 5)
    none = NoClaim("no event")
    for e in (none, unclipped, Sequence((event(), none)), event(sigma=0.0)):
        assert epsilon(e, 1e-5)[0] == math.inf
        assert epsilon(e, 1e-5).status == ""
        assert delta(e, 1.0).delta == 1
    bounded = Event(Sampling("poisson", 100, 10), batch_clipped(bound=3.0), 1.0, 5)
    assert 0 < epsilon(bounded, 1e-5).eps < math.inf


def test_events_can_be_cut_short_and_scaled() -> None:
    phases = Phases((event(T=20), event(T=30)))
    assert [e.releases for e in until(phases, 25).events] == [20, 5]
    both = Sequence((event(T=20), event("full", T=40)))
    assert [e.releases for e in until(both, 30).events] == [10, 20]
    uneven = Sequence((event(T=9), event(T=1)))  # a part that has begun is spent
    assert [e.releases for e in until(uneven, 5).events] == [5, 1]
    assert scaled(both, 2.0).events[1].sigma == 0.12
    assert hash(both) == hash(Sequence((event(T=20), event("full", T=40))))


SAMPLE = Sampling("poisson", 100, 10)
NO_EVENT: Any = (
    (epsilon, (1e-5,)),
    (delta, (1.0,)),
    (best_of, (3, 1e-5)),
    (sigma_for, (1.0, 1e-5)),
)


test_mistakes_are_named = refusals(
    (lambda: Sampling("poison", 10, 2), "poison"),
    (lambda: Sampling("poisson", 10, 20), "at most 10"),
    (lambda: Sampling("without_replacement", 10, 2.5), "2.5"),
    (lambda: Sampling("full", 10, 2), "leave it out"),
    (lambda: Sampling("poisson", 100, 10, slots=0), "slots = 0"),
    (lambda: Mean(-1.0), "clip = -1.0"),
    (lambda: Increments(1.0, smoothness=-1.0), "smoothness = -1.0"),
    (lambda: LocalSteps(1.0, 5, 3, 3), "colluding = 3"),
    (lambda: LocalSteps(1.0, 2.5), "local_steps = 2.5"),  # type: ignore[arg-type]
    (lambda: event(T=-1), "rounds = -1"),
    (lambda: Event(SAMPLE, Mean(1.0), 1.0, 5, adjacency="one"), "adjacency = 'one'"),  # type: ignore[arg-type]
    (lambda: epsilon(event(), 0.0), "delta = 0.0"),
    (lambda: epsilon(event(), 1e-5, "magic"), "magic"),
    (
        lambda: epsilon(Sequence((Phases((event(),)),)), 1e-5),
        "no accountant inside a Sequence: add up the eps of the parts",
    ),
    (
        lambda: epsilon(
            dataclasses.replace(event("with_replacement"), adjacency="add_remove"), 1e-5
        ),
        "replace_one",
    ),
    (lambda: delta(event(), -1.0), "eps = -1.0"),
    (lambda: epsilon(Sequence((Phases((event(),)),)), 1e-5), "Phases"),
    *((lambda f=f, more=more: f(None, *more), "event = None must be a") for f, more in NO_EVENT),
)


# --- every vector of `vectors/privacy.json` within its own tolerance ---

Vector = dict[str, Any]

# What a vector states that this package computes; the rest describes how it was made.
NUMBERS = """
paper_sigma tight_sigma eps eps_at_paper_sigma delta_at_claimed_eps_paper_sigma delta mu
mu_exact_at_paper_sigma sigma_pair sigma_chain eps_pair_at_paper eps_chain_at_paper sigma_for_100
rho eps_no_secagg_same_sigma eps_simple per_phase_eps
""".split()  # noqa: SIM905


def check(vector: Vector) -> int:
    """Compare all numbers, and say how many there were."""
    found, tolerance, compared = answers(vector), vector["tolerance_rel"], 0
    for name in NUMBERS:
        stated = vector.get(name)
        if stated is None or stated == math.inf:  # infinity: the vector's accountant gave up
            continue
        of = f"{name} of {vector['id']}"
        assert found[name] == pytest.approx(stated, rel=tolerance, abs=1e-9), of
        compared += 1
    return compared


@pytest.mark.full
def test_vectors(shared_dir: Path) -> None:
    file = shared_dir / "vectors" / "privacy.json"
    if not file.is_file():
        pytest.skip(f"needs {file.name}, which is not in {file.parent}")
    vectors = json.loads(file.read_text())["vectors"]
    assert len(vectors) >= 69
    for vector in vectors:
        assert question(vector)[0] in UNASKED or check(vector) > 0, vector["id"]
