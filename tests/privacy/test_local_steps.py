"""What local steps release: events, claims, the ledger of each client, and attacks on them."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from planned import planned
from rows import a_problem

import jaxfl
from jaxfl import privacy
from jaxfl.core.types import Clients, ProblemFacts
from jaxfl.engine.ledger import turns
from jaxfl.privacy.events import Event, LocalSteps, Mean
from jaxfl.privacy.gaussian import gdp_eps, zcdp_eps

pytestmark = pytest.mark.once

DELTA = 1e-3
NUMBERS = {"lr": 0.1, "clip": 0.7, "batch": 4, "sigma": 1.5}


def event_of(
    name: str, problem: jaxfl.Problem, rounds: int = 12, noise: str = "calibrated", **more
):
    roles = ("participation", "sampler", "aggregation", "convex", "fresh")
    algorithm = jaxfl.algorithm(name, **{k: more.pop(k) for k in roles if k in more})
    plan = planned(algorithm, problem, rounds, noise, **{**NUMBERS, **more})
    return plan.event, plan.claim


@functools.cache
def equal() -> jaxfl.Problem:
    """Clients of one size."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(6, 12, 4)).astype(np.float32)
    return jaxfl.Problem(jaxfl.models.logistic(4), (a, rng.integers(0, 2, (6, 12))))


def test_what_private_local_sgd_says_of_itself() -> None:
    found, claim = event_of("private_local_sgd", equal(), local_steps=3)
    assert found.sensitivity == LocalSteps(0.7, 3, devices=6)
    assert (found.sampling.scheme, found.sampling.m, found.sampling.b) == ("shuffled", 12, 4)
    assert (found.sigma, found.releases, found.trust) == (1.5, 12, "secure_sum")
    a = 2 * 12 * 3 * 0.7**2 / (6 * 12 * 4 * 1.5**2)
    assert claim.eps == pytest.approx(a + 2 * math.sqrt(a * math.log(1 / DELTA)))
    parts = {"local_steps": 3, "aggregation": "plain_sum"}
    seen, alone = event_of("private_local_sgd", equal(), **parts)
    assert seen.sensitivity == LocalSteps(0.7, 3)
    assert seen.trust == "local_transcript"
    a *= 6
    assert alone.eps == pytest.approx(a + 2 * math.sqrt(a * math.log(1 / DELTA)))


@pytest.mark.plain
@pytest.mark.parametrize(
    ("part", "devices", "releases"),
    [("everyone", 6, 12), ("uniform", 4, 12), ("balanced", 4, 8), ("poisson", 1, 12)],
)
def test_who_takes_part_decides_what_a_sum_hides(part: str, devices: int, releases: int) -> None:
    more = {} if part == "everyone" else {"cohort": 4}
    found, _ = event_of("private_local_sgd", equal(), participation=part, local_steps=1, **more)
    assert (found.sensitivity.devices, found.releases) == (devices, releases)
    if part == "balanced":  # the baseline claims what the paper prints
        found, claim = event_of("local_dp_sgd", equal(), participation=part, cohort=4)
        assert (found.sensitivity, found.releases) == (LocalSteps(0.7, 1), 8)
        a = 2 * 8 * 0.7**2 / (6 * 4**2 * 1.5**2)
        assert claim.eps == pytest.approx(float(zcdp_eps(a, DELTA)))


def test_epochs_are_counted_in_rounds_and_not_in_turns() -> None:
    """4 of 6 clients each, in turn: a client is asked in 8 of 12 rounds, and its epochs go on in all."""
    for rows, releases in (("poisson", 8), ("shuffled", 12)):
        parts = {"sampler": rows, "participation": "balanced"}
        found, _ = event_of("ldp_sgd", equal(), cohort=4, **parts)
        assert found.releases == releases


def test_other_samplers_release_every_step() -> None:
    for tau, hides in ((1, True), (3, False)):
        parts = {"sampler": "without_replacement", "local_steps": tau}
        found, claim = event_of("private_local_sgd", equal(), **parts)
        assert found.sampling.scheme == "without_replacement"
        assert found.releases == 12 * tau
        assert found.sensitivity == Mean(0.7)
        assert found.sigma == pytest.approx(1.5 * math.sqrt(6) if hides else 1.5)
        assert claim is None


def test_sums_of_single_estimates_hide_as_much() -> None:
    """The same event, with all noise sqrt(6) times as large, for SoteriaFL's one-shot algorithms."""

    def eps(sigma: float = 1.5, **parts: Any) -> float:
        algorithm = jaxfl.algorithm("ldp_sgd", **parts)
        given = {"batch": 12, "sigma": sigma} | ({"k": 2} if "compressor" in parts else {})
        return planned(algorithm, equal(), 5, lr=0.1, clip=0.7, **given).eps(DELTA)

    assert eps(aggregation="secure_sum") == pytest.approx(eps(1.5 * 6**0.5), rel=1e-4)
    assert eps(aggregation="secure_sum") < 0.5 * eps(aggregation="plain_sum")
    assert eps(aggregation="secure_sum", compressor="random_k") == pytest.approx(eps(), rel=1e-6)


def test_convexity_is_used_only_where_it_was_stated_and_fits() -> None:
    """And only with eta <= 2/L."""
    problem = equal()
    for convex, lr, expected in ((False, 0.1, False), (True, 0.1, True), (True, 50.0, False)):
        found, _ = event_of("private_local_sgd", problem, convex=convex, local_steps=3, lr=lr)
        assert found.sensitivity.convex is expected
    stated, _ = event_of("private_local_sgd", problem, convex=True, local_steps=3)
    plain, _ = event_of("private_local_sgd", problem, local_steps=3)
    assert privacy.epsilon(stated, DELTA).eps < 0.6 * privacy.epsilon(plain, DELTA).eps


def test_sums_of_unequal_weights_hide_no_more_of_several_steps_than_a_message() -> None:
    """Amplification by iteration is proved for equal weights alone.  Otherwise the proof is that of
    a message: in each of 12 passes a record moves it by 2G/gamma, and only its client's noise counts."""
    weights = np.array([0.5, 0.5, 0.5, 1.5, 1.5, 1.5], np.float32)
    unequal = dataclasses.replace(equal(), weights=weights)
    message = float(gdp_eps(2 * 0.7 / 4 / 1.5 * math.sqrt(12), DELTA))
    for problem, hides in ((unequal, False), (equal(), True)):
        found, _ = event_of("private_local_sgd", problem, convex=True, local_steps=3)
        assert (privacy.epsilon(found, DELTA).eps < message) is hides


def test_noise_is_calibrated_and_the_papers_noise_is_flagged() -> None:
    more = {"local_steps": 3, "batch": 4, "lr": 0.1, "clip": 0.7, "eps": 4.0}
    plan = planned("private_local_sgd", equal(), 6, **more)
    assert plan.eps(plan.values["delta"]) == pytest.approx(4.0, rel=1e-3)
    paper = planned("private_local_sgd", equal(), 6, "paper", **more)
    assert paper.claim.eps == pytest.approx(4.0)
    assert paper.eps(paper.values["delta"]) > 5
    # six whole passes, in each of which a record moves one message by 2G/gamma
    mu = float(privacy.gaussian.gdp_mu(4.0, plan.values["delta"]))
    assert plan.values["sigma"] == pytest.approx(2 * 0.7 / 4 * math.sqrt(6) / mu, rel=1e-6)


@pytest.mark.plain
@pytest.mark.parametrize("part", ["everyone", "uniform", "balanced", "poisson"])
def test_dp_fedavg_protects_clients(part: str) -> None:
    """S/r beside sigma, by hand; Poisson sampling amplifies."""
    more = {} if part == "everyone" else {"cohort": 3}
    r, turned = (6, 12) if part == "everyone" else (3, 6 if part == "balanced" else 12)
    numbers = {"update_clip": 0.5, "clip": 5.0, "local_steps": 2, **more}
    found, _ = event_of("dp_fedavg", equal(), participation=part, **numbers)
    assert (found.unit, found.trust) == ("client", "trusted_server")
    proven = privacy.epsilon(found, DELTA).eps
    both = 2 if part == "uniform" else 1
    mu = both * 0.5 / r / 1.5 * math.sqrt(turned)
    whole = float(privacy.gaussian.gdp_eps(mu, DELTA))
    if part == "poisson":
        assert proven < 0.8 * whole
    else:  # epochs that go on remember who took part, which hides nobody in a cohort of fixed size
        assert proven == pytest.approx(whole, rel=1e-9)


def test_uniform_cohorts_hide_clients_that_remember_nothing() -> None:
    numbers = {"update_clip": 0.5, "clip": 5.0, "local_steps": 2, "cohort": 3}
    for rows in ("fresh", "poisson", "without_replacement", "single_pass"):
        parts = {"fresh": True} if rows == "fresh" else {"sampler": rows}
        found, _ = event_of("dp_fedavg", equal(), participation="uniform", **parts, **numbers)
        hidden = found.sampling.scheme == "without_replacement"
        assert hidden == (rows != "single_pass")
        assert found.adjacency == "replace_one"


def test_slots_of_a_poisson_cohort_are_part_of_what_is_proven() -> None:
    algorithm = jaxfl.algorithm("dp_fedavg", participation="poisson")
    facts = ProblemFacts(n=1000, m=5, m_max=5, d=3, rounds=50, smoothness=None)
    plan = planned(algorithm, facts, sigma=0.1, cohort=20)
    slots = algorithm.capacity(plan.values, plan.facts)["cohort"]
    assert plan.event.sampling.slots == slots < 1000


@pytest.mark.full
@pytest.mark.parametrize("part", ["balanced", "poisson"])
def test_turns_are_those_that_clients_counted(part: str, key: jax.Array) -> None:
    algorithm = jaxfl.algorithm("private_local_sgd", participation=part)
    run = jaxfl.simulate(algorithm, a_problem(), key, 9, local_steps=2, cohort=2, **NUMBERS)
    np.testing.assert_array_equal(turns(run), run.state.local[0])
    longer = run.extend(1100)  # more than is drawn at once
    np.testing.assert_array_equal(turns(longer), longer.state.local[0])


def test_every_device_has_its_own_eps(key: jax.Array) -> None:
    """Theorem 1 with C_i and m_i, by hand; who never took part lost nothing; the worst is no better
    than the run's own guarantee, which has to hold before anybody is drawn."""
    algorithm = jaxfl.algorithm("private_local_sgd", participation="uniform")
    problem = a_problem()
    run = jaxfl.simulate(
        algorithm, problem, key, 4, eval_every=0, local_steps=2, cohort=1, **NUMBERS
    )
    book, m = run.ledger(DELTA), np.asarray(problem.count)
    np.testing.assert_array_equal(book.turns, run.state.local[0])
    a = 2 * book.turns * 2 * 0.7**2 / (m * 4 * 1.5**2)
    np.testing.assert_allclose(book.claimed, a + 2 * np.sqrt(a * math.log(1 / DELTA)), rtol=1e-6)
    assert (book.turns == 0).any()
    assert ((book.proven == 0) == (book.turns == 0)).all()
    assert len(np.unique(book.turns)) > 2
    order = np.argsort(book.turns, kind="stable")
    assert book.proven[order[-1]] > book.proven[order[0]]
    assert book.proven.max() <= run.privacy(DELTA).proven * (1 + 1e-9)
    assert f"client {book.worst}" in str(book)
    for i in np.flatnonzero(book.turns):
        rows = privacy.Sampling("shuffled", int(m[i]), 4)
        alone = Event(rows, LocalSteps(0.7, 2), 1.5, int(book.turns[i]))
        assert book.proven[i] == pytest.approx(privacy.epsilon(alone, DELTA).eps)


def test_a_ledger_names_clients_and_the_eps_to_publish(key: jax.Array, tmp_path: Path) -> None:
    """Clients are no part of a program: others do not compile it again."""
    rng = np.random.default_rng(0)
    rows = {name: (rng.normal(size=(8, 4)), rng.integers(0, 2, 8)) for name in ("bern", "oslo")}
    problem = jaxfl.Problem(jaxfl.models.logistic(4), jaxfl.data.from_clients(rows))
    given = {"participation": "uniform", "cohort": 1, "sigma": 1.0, "batch": 4, "lr": 0.1}
    given |= {"eval_every": 0}
    run = jaxfl.simulate("ldp_sgd", problem, key, 5, **given)
    book = run.ledger()
    first = ("bern", "oslo")[book.worst]
    assert f"client {first} with {book.turns.max()} rounds" in str(book)
    assert "publish this largest eps, which holds for every client (the rounds of a" in str(book)
    assert run.clients()["eps"].to_dict() == dict(zip(rows, book.proven, strict=True))
    ds = jaxfl.load(run.save(tmp_path / "run.nc"))
    assert float(ds["client_eps"].sel(client=first)) == book.proven.max()
    other = dataclasses.replace(problem, clients=Clients(("a", "b")))
    assert jax.tree.structure(other) == jax.tree.structure(problem)


@pytest.mark.parametrize("part", ["uniform", "poisson"])
def test_whole_clients_spend_where_they_were_not_called(part: str, key: jax.Array) -> None:
    """Being called shows in the sum, and is what is protected; those drawn by coins are hidden."""
    algorithm = jaxfl.algorithm("dp_fedavg", participation=part)
    given = {"lr": 0.1, "sigma": 1.0, "batch": 4, "local_steps": 1, "cohort": 2, "update_clip": 1.0}
    run = jaxfl.simulate(algorithm, a_problem(), key, 1, eval_every=0, **given)
    book = run.ledger(DELTA)
    assert 0 in book.turns
    assert (book.proven > 0).all()
    if part == "poisson":
        np.testing.assert_allclose(book.proven, run.privacy(DELTA).proven)
