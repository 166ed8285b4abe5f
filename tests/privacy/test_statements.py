"""Cards: mu, the power of attacks and the profile, against closed forms, brute force and other grids."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from rows import a_problem
from scipy.stats import norm
from told import Shell

import jaxfl
from jaxfl import InputError
from jaxfl.privacy import Event, Mean, NoClaim, Phases, Sampling, Sequence, best_of, delta, epsilon
from jaxfl.privacy.accountants import Bound, _joined, profile
from jaxfl.privacy.decisions import FPR
from jaxfl.privacy.events import Probed, Stated, Status, Unproven, svrg
from jaxfl.privacy.gaussian import gdp_delta, gdp_eps
from jaxfl.privacy.statements import (
    IN_SHORT,
    _up,
    card,
    gaussian_above,
    in_short,
    power,
    regret,
    trade_off,
)

pytestmark = pytest.mark.once


def event(scheme: str = "poisson", sigma: float = 0.3, b: int = 10, **more: Any) -> Event:
    return Event(Sampling(scheme, 100, b), Mean(1.0), sigma, 20, **more)


FULL, COINS = event("full", 0.03, 100), event()
PADDED = Event(Sampling("poisson", 100, 10, 28), Mean(1.0), 0.3, 20)
EVENTS = {
    "coins": COINS,
    "one more": event(adjacency="add_remove"),
    "subsets": event("without_replacement"),
    "sequence": Sequence((COINS, FULL)),
    "phases": Phases((COINS, event(sigma=0.4))),
    "snapshots": Event(Sampling("poisson", 100, 10), svrg(1.0), 1.0, 5),
    "padded": PADDED,
}


@pytest.mark.plain
@pytest.mark.parametrize("sigma", [0.02, 0.1, 2.0])
def test_a_gaussian_is_its_own_card(sigma: float) -> None:
    mu = 2 / 100 * 20**0.5 / sigma
    found = card(event("full", sigma, 100), 1e-5)
    assert (found.mu, found.regret) == (pytest.approx(mu, rel=1e-12), 0.0)
    for fpr, rate in found.rates.items():
        assert rate == pytest.approx(norm.cdf(norm.ppf(fpr) + mu), rel=1e-12)
    # and by its curve, as if nobody knew
    curve = profile(event("full", sigma, 100), 1e-9)
    top = epsilon(event("full", sigma, 100), 1e-9).eps
    assert mu <= gaussian_above(curve, top) <= mu * (1 + 2e-4)
    for fpr, rate in found.rates.items():
        assert power(curve, top, fpr) == pytest.approx(rate, rel=1e-6)
    alpha = np.array([1e-3, 0.2, 0.7])
    np.testing.assert_allclose(
        trade_off(curve, top, alpha), norm.cdf(norm.ppf(1 - alpha) - mu), atol=1e-4
    )
    assert regret(curve, top, mu) < 1e-3
    # of a stronger Gaussian: largest where both error rates are the same
    more = norm.cdf(-mu / 2) - norm.cdf(-mu)
    assert regret(curve, top, 2 * mu) == pytest.approx(more, rel=1e-2)


def test_nothing_but_a_gaussian_mechanism_is_said_to_be_one() -> None:
    """Also where an eps of hundreds leaves no difference between the curves that floats tell from 0."""
    event = Event(Sampling("poisson", 100, 25), Mean(1.0), sigma=0.008, releases=100)
    found = card(event, 1e-4)
    assert found.eps > 100
    assert "exactly" not in str(found)


@pytest.mark.plain
@pytest.mark.parametrize("name", [*EVENTS])
def test_mu_covers_the_profile_down_to_its_floor_and_is_the_least(name: str) -> None:
    found, floor = card(EVENTS[name], 1e-4), 1e-4
    top, curve = epsilon(EVENTS[name], floor).eps, profile(EVENTS[name], floor)
    places = np.linspace(0.0, top, 4001)
    proven = np.asarray(curve(places))
    assert (gdp_delta(found.mu, places) >= proven * (1 - 1e-9)).all()
    assert (gdp_delta(0.97 * found.mu, places) < proven).any()
    for eps, level in zip(places[::800], proven[::800], strict=True):  # as the accountant proves it
        assert epsilon(EVENTS[name], float(level)).eps <= 1.002 * eps + 1e-3
    # what the card carries is an upper bound, also between its points and beyond
    eps, carried = np.array(found.profile).T
    assert (np.interp(np.exp(places), np.exp(eps), carried) >= proven * (1 - 1e-9)).all()
    assert delta(EVENTS[name], 1.1 * top).delta <= carried[-1]


def attack(P: np.ndarray, Q: np.ndarray, fpr: float) -> float:
    """The power of the best test of a finite mechanism: Neyman and Pearson, with a coin at the edge."""
    order = np.argsort(-P / np.maximum(Q, 1e-300))
    fp, tp = np.cumsum(Q[order]), np.cumsum(P[order])
    return float(np.interp(fpr, np.append(0.0, fp), np.append(0.0, tp)))


def test_power_is_that_of_the_best_test_of_finite_mechanisms() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        P = rng.dirichlet(np.ones(5))
        Q = P[::-1]  # a symmetric pair, as profiles of the worse direction are

        def curve(eps: np.ndarray, P: np.ndarray = P, Q: np.ndarray = Q) -> np.ndarray:
            return np.maximum(P - np.exp(eps)[:, None] * Q, 0).sum(axis=1)

        top = float(np.log(P / Q).max())
        for fpr in (0.3, *FPR):
            best = attack(P, Q, fpr)
            assert best - 1e-9 <= power(curve, top, fpr) <= best + 1e-4
            np.testing.assert_allclose(1 - trade_off(curve, top, [fpr])[0], best, atol=2e-3)
        mu = gaussian_above(curve, top)
        alpha = np.linspace(0.01, 0.99, 99)
        f = np.array([1 - attack(P, Q, a) for a in alpha])
        assert (norm.cdf(norm.ppf(1 - alpha) - mu) <= f + 1e-6).all()
        shift = regret(curve, top, mu)
        ends = np.array([1 - attack(P, Q, min(a + shift, 1.0)) for a in alpha]) - shift
        assert (ends <= norm.cdf(norm.ppf(1 - alpha) - mu) + 2e-3).all()


@pytest.mark.plain
def test_under_sampling_mu_grows_to_that_of_all_records_as_the_floor_falls() -> None:
    rare, floors = (
        Event(Sampling("poisson", 1000, 5), Mean(1.0), 0.2, 20),
        (1e-2, 1e-4, 1e-8, 1e-12),
    )
    mus = [card(rare, 1e-4, floor=floor).mu for floor in floors]
    whole = 2 / 5 * 20**0.5 / 0.2
    assert mus == sorted(mus)
    assert mus[0] < 0.6 * mus[-1] < 0.6 * whole
    # an overflow of batches never falls below its delta
    lost = PADDED.sampling.overflow(20)
    assert lost > 0
    assert card(PADDED, 1e-4, floor=lost / 2).mu == np.inf
    assert card(PADDED, 1e-4).mu < np.inf


@pytest.mark.plain
def test_one_rule_says_where_mu_is_quoted() -> None:
    """Cards, tables, pictures, JSON and sweeps: where its regret is at most 0.01."""
    tight = Event(Sampling("poisson", 1000, 5), Mean(1.0), 0.2, 20)
    for event, quoted in ((tight, True), (replace(tight, sigma=0.1, releases=5), False)):
        found = card(event, 1e-4)
        assert (found.regret <= 0.01) == quoted
        assert found.quoted == found.facts()["mu"] == (found.mu if quoted else None)
        assert (in_short(event, 1e-4)["mu"] == found.mu) == quoted
        table, figure = jaxfl.views.cards({"mine": found}), jaxfl.views.trade_off(found)
        assert table.facts()["rows"][0]["mu"] == found.quoted
        assert any("bounds nothing below the δ" in note for note in table.notes) == quoted
        assert any("no μ is quoted" in note for note in table.notes) != quoted
        drawn = [text.get_text() for key in figure.legends for text in key.get_texts()]
        assert any("down to δ = " in text for text in drawn) == quoted
        assert ("mu says nothing of smaller deltas" in str(found)) == quoted
        assert ("not quoted: it loses" in str(found)) != quoted
    assert "none: delta(eps) never falls" in str(card(PADDED, 1e-4, floor=1e-13))


def test_a_bound_of_few_points_is_joined_by_upper_bounds() -> None:
    """A Gaussian, and randomized response with a coin that tells all, whose points are those of one eps."""
    mu = 1.5
    sparse = Bound(lambda d: max(1.0, float(gdp_eps(mu, d))), lambda eps: 1.0, "", Status.NONE)
    curve, eps = _joined(sparse, 1e-6), np.linspace(0.0, float(gdp_eps(mu, 1e-6)), 500)
    exact = gdp_delta(mu, eps)
    assert (curve(eps) >= exact * (1 - 1e-9)).all()
    assert (curve(eps[eps > 1]) <= 1.6 * exact[eps > 1] + 1e-6).all()
    for lost, far in ((0.1, 2.0), (1e-4, 0.5)):
        response = lambda d, lost=lost, far=far: far if d >= lost else np.inf  # noqa: E731
        curve = _joined(Bound(response, lambda eps: 1.0, "", Status.NONE), lost)
        eps = np.linspace(0.0, far, 100)
        exact = lost + (1 - lost) * (np.exp(far) - np.exp(eps)) / (1 + np.exp(far))
        np.testing.assert_allclose(curve(eps), exact, rtol=1e-9)


def test_a_profile_composes_as_others_read_it() -> None:
    """Twice the carried curve, as a pair of finite laws that it dominates, is above the proof and near."""
    eps, carried = np.array(card(COINS, 1e-4, floor=1e-8).profile).T
    slope = -np.diff(carried) / np.diff(np.exp(eps))  # Q-mass above each interval
    above = np.append(0.0, -np.diff(np.append(slope, 0.0)))
    losses, Q = [], []
    for loss, mass in zip(eps, above, strict=True):
        losses += [loss, -loss]
        Q += [mass, mass * np.exp(loss)]
    losses, Q = np.array(losses), np.array(Q)
    losses, Q = np.append(losses, 0.0), np.append(Q, max(0.0, 1 - carried[-1] - Q.sum()))
    P = Q * np.exp(losses)
    pairs = np.array(
        [
            (a + b, p * q)
            for (a, p), (b, q) in itertools.product(zip(losses, P, strict=True), repeat=2)
        ]
    )
    twice = epsilon(Sequence((COINS, COINS)), 1e-4).eps
    lost = 2 * carried[-1]
    for at, least, most in ((0.98 * twice, 1e-4, np.inf), (1.05 * twice, 0.0, 1e-4)):
        found = lost + float((pairs[:, 1] * np.maximum(1 - np.exp(at - pairs[:, 0]), 0)).sum())
        assert least <= found <= most


@pytest.mark.plain
def test_a_card_says_what_it_rests_on(key: jax.Array, shell: Shell) -> None:
    text = str(card(COINS, 1e-4))
    assert "protects" in text and "one record of one client, replaced by another" in text  # noqa: PT018
    assert "rests on" in text and "no part of yours" in text  # noqa: PT018
    hers = Stated(COINS, "stated by the user, and not attacked: it fails")
    proof = card(COINS, 1e-4).eps
    for share, words in (
        (0.985, "it promises MORE privacy than is {}: do not rely on it"),
        (0.995, "as is {}, up to rounding"),  # by the rule of a report's flag
        (1.0, "as is {}, up to rounding"),
        (1.001, "a larger eps than is {}, which holds too"),
    ):
        for event, how in ((COINS, "proven"), (Probed(COINS), "proven"), (hers, "stated")):
            said = dict(card(event, 1e-4, claimed=share * proof).lines())
            assert said["claimed"].endswith(": " + words.format(how))
            assert said[how].startswith("eps at most ")
    told = dict(card(hers, 1e-4).lines())
    assert all("not attacked: it fails" in told[name] for name in ("by", "rests on"))
    assert "not all records of a client" in text
    shown = [_up(x) for x in (1.2151, 13.3001, 3.99945, 4.0, 0.0, 2.50011e-4, 99999.0)]
    assert shown == ["1.216", "13.31", "4", "4", "0", "0.0002501", "1e+05"]
    assert "where delta is 0.0001 or more: there the mechanism is at least as private" in text
    assert "declared and probed" in str(card(Probed(COINS), 1e-4))
    assert str(card(NoClaim("its noise depends on data"), 1e-4)).startswith(
        "proven  none at delta 0.0001"
    )
    unproven = card(Unproven(COINS, "mine is not checked"), 1e-4)
    assert (unproven.mu, unproven.rates, unproven.rests_on) == (
        np.inf,
        dict.fromkeys(FPR, 1.0),
        ("mine is not checked",),
    )
    run = jaxfl.simulate("ldp_gd", a_problem(), key, 3, eps=2.0, lr=0.1)
    found = run.privacy().card()
    assert found.eps == run.privacy().proven == pytest.approx(2.0)
    assert "the noise's key or seed is secret" in str(found)
    left = dict(found.lines())["leaves out"]
    for words in ("tuning included", "metrics of the training data, which are exact", "rounding"):
        assert words in left
    facts = json.loads(json.dumps(found.facts()))
    assert facts["profile"]["eps"][-1] == pytest.approx(2.0)
    words = (
        "account ldp_sgd --samples 100 --batch 10 --rounds 20 --sigma 0.3 --as card --delta 1e-4"
    )
    answer = json.loads(shell(words, "--json").out)
    assert answer["mu"] == pytest.approx(card(COINS, 1e-4).mu, rel=1e-6)
    assert answer["rates"]["0.01"] == pytest.approx(card(COINS, 1e-4).rates[0.01], rel=1e-6)
    assert len(answer["profile"]["eps"]) == 129
    assert re.search(rf"^mu +{answer['mu']:.8g}$", shell(words).out, re.MULTILINE)
    chosen = json.loads(shell(words, "--runs 6 --json").out)
    best = best_of(COINS, 6, 1e-4).eps
    assert (chosen["mu"], chosen["eps_of_selection"]) == (answer["mu"], pytest.approx(best))
    assert "the best of 6 runs has eps_of_selection" in chosen["card_of"]
    assert "card_of" not in answer
    assert "needs delta" in shell.refused(words.replace("--delta 1e-4", "--eps 1"))


@pytest.mark.parametrize(
    ("unit", "adjacency", "words"),
    [
        ("client", "zero_out", "a client's update took part"),
        ("client", "add_remove", "a client is in the data"),
        ("client", "replace_one", "a client's records were changed"),
        ("record", "add_remove", "a record is in the data"),
    ],
)
def test_attacks_tell_neighbours_apart_and_no_more(unit: Any, adjacency: Any, words: str) -> None:
    """A client that leaves moves a sum by C, and one that changes by 2 C."""
    said = str(card(replace(FULL, unit=unit, adjacency=adjacency), 1e-4))
    assert said.count(f"detecting whether {words} has a true positive rate of at most") == 2


def test_a_card_takes_an_audit_of_its_own_mechanism_alone(key: jax.Array) -> None:
    numbers: dict[str, Any] = dict(rounds=3, lr=0.1, delta=1e-3)
    problem = a_problem()
    report = jaxfl.simulate("ldp_gd", problem, key, eps=4.0, **numbers).privacy()
    m = int(min(problem.count))
    attack: dict[str, Any] = dict(rounds=3, m=m, runs=400, delta=1e-3, key=key)
    same = jaxfl.audit("ldp_gd", eps=4.0, **attack)
    found = report.card(audited=same)
    assert f"eps at least {same.lower:.4g}" in str(found)
    for lower in (same.plain, same.plain + 0.1):  # what no condition limits, and what one does
        condition = (
            ", if only the amount of noise differs"
            in report.card(audited=same._replace(lower=lower)).audit()
        )
        assert condition == (lower > same.plain)
    assert "REFUTES" not in str(found)
    better = report.card(audited=same._replace(needed=5.0))
    assert "it REFUTES the eps that is proven" in better.audit()
    for other in (dict(eps=20.0), dict(eps=4.0, delta=1e-2)):
        with pytest.raises(InputError, match="attacked another mechanism: its proven eps is"):
            report.card(audited=jaxfl.audit("ldp_gd", **attack | other))
    for wrong in (1.3, report):
        with pytest.raises(InputError, match="is no result of jaxfl"):
            report.card(audited=wrong)
    with pytest.raises(InputError, match=r"^floor = 2 "):
        report.card(floor=2)


def test_sweeps_have_mu_and_power_in_their_tables(tmp_path: Path, shell: Shell) -> None:
    given: dict[str, Any] = {
        "rounds": 4,
        "eps": [1.0, 8.0],
        "lr": [0.1],
        "batch": [6],
        "out": tmp_path / "grid",
    }
    ds = jaxfl.sweep(["ldp_sgd", "fedsgd"], a_problem(), progress=False, **given)
    (row, *_) = jaxfl.views.table(ds, card=True).facts()["rows"]
    for name, eps in itertools.product(IN_SHORT, given["eps"]):
        run = jaxfl.simulate("ldp_sgd", a_problem(), jax.random.key(0), 4, eps=eps, lr=0.1, batch=6)
        found = run.privacy().card()
        expected = dict(zip(IN_SHORT, (found.mu, *found.rates.values()), strict=True))[name]
        assert float(ds[name].sel(algorithm="ldp_sgd", eps=eps).squeeze()) == pytest.approx(
            expected, rel=1e-6
        )
        assert np.isnan(ds[name].sel(algorithm="fedsgd")).all()
    assert row["mu"] == pytest.approx(float(ds["mu"].sel(algorithm="ldp_sgd", eps=1.0).squeeze()))
    assert "TPR at 0.1 % FPR" in shell(f"show {tmp_path / 'grid'} --card").out
    assert "TPR" not in shell(f"show {tmp_path / 'grid'}").out
    long = Event(Sampling("poisson", 100, 10), svrg(1.0), 1.0, 5)
    assert in_short(long, 1e-4) == in_short(NoClaim("none"), 1e-4) == {}
