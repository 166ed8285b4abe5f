"""Whole clients: what they send is clipped as a whole, and all of their records are protected together."""

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from loops import LAM, Draws, regularizer, shrunk
from planned import planned
from rows import a_problem
from told import refusals

import jaxfl
from jaxfl import audit
from jaxfl.privacy import Event, Mean, Phases, Sampling, of_group
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.events import RING_NOISES, OnRing, protects, svrg
from jaxfl.privacy.pld import Part, compose
from jaxfl.privacy.profiles import Pair
from jaxfl.privacy.reports import report

T, C = 12, 0.3
MOVES = Mean(C, over_b=2.0, mean=2.0, whole=C)  # by 2C, whatever is replaced, added or removed
ONE = Event(Sampling("full", 10, 10), Mean(1.0), 1.0, 9)
GIVEN: dict[str, Any] = {"clip": C, "sigma": 0.2, "lr": 0.5}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "soteriafl_sgd": ("soteriafl_sgd", {}, {"k": 4, "batch": 4}),
    "soteriafl_saga": ("soteriafl_saga", {}, {"k": 4, "batch": 4}),
    "ldp_svrg": ("ldp_svrg", {}, {"batch": 4, "refresh": 0.3}),
    "ldp_gd": ("ldp_gd", {"clipping": "smooth"}, {}),
    "epochs": ("ldp_sgd", {"sampler": "shuffled"}, {"batch": 4}),
    "q_dpsgd_1": ("q_dpsgd_1", {}, {"batch": 4, "quantum": 1e-3}),
    "sdm_dsgd": ("sdm_dsgd", {}, {"k": 4, "batch": 4}),
    "porter_dp": ("porter_dp", {}, {"k": 4, "batch": 4}),
    "dice_sgd": ("dice_sgd", {}, {"clip": C / 3, "error_clip": 2 * C / 3, "batch": 4}),
}


@pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.plain) for c in CASES])
def test_no_estimate_is_longer_than_the_bound_of_its_event(case: str) -> None:
    """Of records a thousand times as long, in every round, whatever the client remembers."""
    name, parts, numbers = CASES[case]
    numbers = {**GIVEN, **numbers}
    algorithm = jaxfl.algorithm(name, clip="client", **parts)
    problem = a_problem(
        0.0 if name == "dice_sgd" else 0.01, n=4, m=9
    )  # it adds what is public later
    rows, labels = problem.train
    problem = jaxfl.Problem(problem.model, (1e3 * np.asarray(rows), labels), x0=problem.x0)
    run = planned(algorithm, problem, T, **numbers)
    whole = Event(Sampling("full", 1, 1), MOVES, 0.2, T, unit="client")
    assert run.event == whole
    assert run.claim is None
    quiet = jaxfl.functions(algorithm, problem, T, **{**numbers, "sigma": 0.0})
    now, norms = quiet.init(run.key), []
    for _ in range(4):
        seen = quiet.view(now)
        norms.append(np.linalg.norm(seen.estimates, axis=1))
        now, _ = quiet.round(now)
    assert np.max(norms) <= C * (1 + 1e-5)
    assert np.max(norms) > 0.9 * C


def test_a_sum_of_clients_hides_one_of_them() -> None:
    sizes: Any = {"clip": C, "sigma": 0.2, "batch": 4}
    summed = jaxfl.algorithm("ldp_sgd", clip="client", aggregation="secure_sum")
    run = planned(summed, a_problem(n=4), T, **sizes)
    assert (run.event.unit, run.event.trust) == ("client", "secure_sum")
    assert run.event.sigma == pytest.approx(0.4)
    few = planned(summed, a_problem(n=4), T, **sizes, colluding=3).event
    assert few.sigma == pytest.approx(0.2)
    turns = jaxfl.algorithm("ldp_sgd", clip="client", participation="balanced")
    assert planned(turns, a_problem(n=4), T, **sizes, cohort=1).event.releases == T // 4


RING = {"graph": "ring"}
ATTACKED: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "ldp_sgd": ({}, {}),
    "soteriafl_saga": ({}, {"k": 1}),
    "dp_dsgd": (RING, {"clients": 4}),
    "porter_dp": (RING, {"clients": 4, "k": 1}),
    "decor": (RING, {"clients": 4, "coupling": 2.0}),
}


@pytest.mark.parametrize("name", ATTACKED)
def test_an_attack_with_all_records_of_a_client(name: str) -> None:
    """It comes close to the proof."""
    parts, numbers = ATTACKED[name]
    made = jaxfl.algorithm(name, clip="client", **parts)
    given: Any = dict(rounds=8, m=8, runs=1500, delta=1e-3, eps=4.0, batch=4, **numbers)
    found = audit(made, confidence=0.999, key=jax.random.key(2), **given)
    assert found.proven == pytest.approx(4.0, rel=1e-3)
    assert 0.5 * found.proven <= found.lower <= found.proven


@pytest.mark.parametrize("name", ["dp_sgd", "ldp_sgd"])
def test_by_hand(name: str, key: jax.Array) -> None:
    """Batches are averaged, the regularizer is added, and then each client clips."""
    numbers: dict[str, Any] = {"clip": 0.3, "sigma": 0.05, "lr": 0.4, "batch": 5}
    algorithm = jaxfl.algorithm(name, clip="client")
    run = jaxfl.simulate(algorithm, a_problem(LAM), key, T, eval_every=0, **numbers)
    D = Draws(run)
    x, cut = D.x0, 0
    for t in range(T):
        g = [D.slope(t, i, x) + regularizer(x) for i in range(D.n)]
        cut += sum(np.linalg.norm(one) > 0.3 for one in g)
        noise = [D.central(t)] if name == "dp_sgd" else [D.noise(t, i) for i in range(D.n)]
        mean = np.mean([shrunk(one, 0.3) for one in g], axis=0)
        x = x - 0.4 * (mean + 0.05 * np.mean(noise, axis=0))
    assert 0 < cut < T * D.n
    np.testing.assert_allclose(run.x, x, rtol=1e-4, atol=1e-5)


SERVER: dict[str, tuple[str, dict[str, str], dict[str, Any], Event]] = {
    "everyone": (
        "dp_sgd",
        {},
        {},
        Event(Sampling("full", 4, 4), Mean(C), 0.2, T, adjacency="zero_out"),
    ),
    "uniform": (
        "dp_sgd",
        {"participation": "uniform"},
        {"cohort": 2},
        Event(Sampling("without_replacement", 4, 2), Mean(C), 0.2, T),
    ),
    "balanced": (
        "dp_sgd",
        {"participation": "balanced"},
        {"cohort": 2},
        Event(Sampling("full", 4, 4), Mean(2 * C), 0.2, T // 2, adjacency="zero_out"),
    ),
    "full": (
        "dp_gd",
        {},
        {},
        Event(Sampling("full", 4, 4), Mean(C), 0.2, T, adjacency="zero_out"),
    ),
}


@pytest.mark.plain
@pytest.mark.parametrize("case", SERVER)
def test_a_trusted_server_noises_the_mean_of_clipped_clients(case: str) -> None:
    name, parts, numbers, expected = SERVER[case]
    algorithm = jaxfl.algorithm(name, clip="client", **parts)
    given = {**GIVEN, "batch": 3, **numbers} if name == "dp_sgd" else GIVEN
    run = planned(algorithm, a_problem(n=4), T, **given)
    assert run.event == replace(expected, unit="client", trust="trusted_server")
    assert run.claim is None


@pytest.mark.parametrize("name", ["dp_sgd", "dp_gd", "local_dp_fedavg"])
def test_an_attack_on_whole_clients_of_a_server(name: str) -> None:
    made = jaxfl.algorithm(name) if "local" in name else jaxfl.algorithm(name, clip="client")
    given: Any = dict(rounds=8, m=8, runs=1500, delta=1e-3, eps=4.0, confidence=0.999)
    given |= {} if name == "dp_gd" else {"batch": 4}
    given |= {"clients": 1, "local_steps": 1} if "local" in name else {"clients": 3}
    found = audit(made, key=jax.random.key(2), **given)
    assert found.proven == pytest.approx(4.0, rel=1e-3)
    assert 0.5 * found.proven <= found.lower <= found.proven


@pytest.mark.plain
@pytest.mark.parametrize("size", [2, 3, 7])
def test_group_privacy(size: int) -> None:
    """Of full batches exactly what so many records move; of drawn ones a bound on such a group."""
    found = of_group(ONE, size, 1e-3)
    assert found.eps == pytest.approx(epsilon(replace(ONE, sigma=1.0 / size), 1e-3).eps)
    assert found.method.startswith(f"group privacy of {size} records: ")
    wide = of_group(ONE, 11, 1e-3).method
    assert wide.startswith(
        "group privacy of 11 records, more than the 10 that the event draws from: "
    )
    drawn = replace(ONE, sampling=Sampling("poisson", 10, 2.0), sigma=3.0)
    loose = of_group(drawn, size, 1e-3)
    told = report(drawn, None, 1e-3)
    assert told.of_group(size) == loose
    assert ".of_group(k)" in str(told)
    assert ".of_group(k)" not in str(report(replace(drawn, unit="client"), None, 1e-3))
    # records of which each is drawn by its own coin
    counts, shifts = np.arange(size + 1), np.arange(size + 1) / 2 / 3.0
    mixed = tuple(math.comb(size, k) * 0.2**k * 0.8 ** (size - k) for k in counts)
    coins = Pair(mixed, tuple(shifts), mixed, tuple(-shifts))
    exact = float(compose([Part(coins, 9)], delta=1e-3).eps(1e-3))
    assert exact <= loose.eps < 1.05 * exact
    # one of whose phases has no say: as if the other were alone, by another way
    quiet, strong = replace(drawn, sigma=1e3), replace(ONE, sigma=3.0)
    phases = of_group(Phases((strong, quiet), together=True), size, 1e-3)
    assert "one after the other" in phases.method
    assert of_group(strong, size, 1e-3).eps <= phases.eps < 1.001 * of_group(strong, size, 1e-3).eps
    # of two closed forms the larger
    two = of_group(Phases((ONE, replace(ONE, sigma=2.0))), size, 1e-3)
    assert two.eps == pytest.approx(found.eps)


@pytest.mark.plain
def test_groups_of_ordinary_runs() -> None:
    """Of eps = 2, 4 and 8 of one record; where none is found, the reason and a way out."""
    drawn = Event(Sampling("without_replacement", 100, 20), Mean(1.0), 1.0, 50)
    for sigma, size, most in ((0.26354, 8, 31.0), (0.16195, 4, 27.0), (0.10585, 3, 42.0)):
        event = replace(drawn, sigma=sigma)
        assert size * epsilon(event, 2.5e-4).eps < of_group(event, size, 2.5e-4).eps < most
    none = of_group(event, 8, 2.5e-4)
    assert (none.eps, none.status) == (math.inf, "")
    for words in (
        "as the bounds on the delta of one record end at 1e-20, where eps is",
        'take noise for whole clients (clip="client")',
    ):
        assert words in none.method


def ring(noise: Any) -> Event:
    law = OnRing(100.0, 100, noise, 500.0, 10, 1)
    return Event(Sampling("full", 100, 100), law, 500 * 10**0.5, 10, adjacency="zero_out")


DRAWN = Event(Sampling("poisson", 100, 10), svrg(1.0), 1.0, 50)
SHARP: dict[str, tuple[Event, int, float]] = {  # and the most that the group has at delta = 1e-5
    **{name: (ring(name), 2, 1.715) for name in RING_NOISES},  # whose delta grows at large eps
    "few points": (DRAWN, 2, 1.375),  # of a curve that takes long
    "small eps": (  # at which a curve down to 1e-20 has numerical noise
        replace(DRAWN, sampling=Sampling("with_replacement", 100, 10), sensitivity=Mean(1.0)),
        8,
        6.465,
    ),
    "no eps": (replace(DRAWN, sensitivity=Mean(1.0), sigma=1e9), 2, 1e-9),
}


@pytest.mark.plain
@pytest.mark.parametrize("name", SHARP)
def test_group_privacy_is_sharp(name: str) -> None:
    event, size, most = SHARP[name]
    assert size * epsilon(event, 1e-5).eps <= of_group(event, size, 1e-5).eps < most


@pytest.mark.plain
def test_statements_say_that_clients_are_protected() -> None:
    made = jaxfl.algorithm("ldp_sgd", clip="client")
    run = jaxfl.simulate(made, a_problem(), jax.random.key(0), 3, eps=2.0)
    said = run.privacy()
    assert protects(said.event).startswith("all records of one client")
    assert said.proven == pytest.approx(2.0, rel=1e-3)
    assert said.claimed is None
    assert run.values["delta"] == 1e-3
    assert epsilon(run.event(3), 1e-3).eps == said.proven


test_mistakes_are_explained = refusals(
    *(
        (lambda name=name: jaxfl.algorithm(name, clip="client"), why)
        for name, why in {
            "dp_srm": "does not apply to dp_srm, which bounds differences of gradients",
            "ldp_spider": "of one record: take ldp_sgd, or jaxfl.privacy.of_group of a run",
            "mu2_untrusted": "a record is used once, and a client is in every round: take",
            "localized_mbsgd": "phases on disjoint records, and a client is in all of them: take",
            "adaptive_sgd": "which takes sampler, mechanism",
        }.items()
    ),
    (lambda: jaxfl.algorithm("dice_sgd", clip="batch"), "clips examples or clients"),
    (
        lambda: jaxfl.algorithm("porter_dp", clip="batch"),
        "clips examples or clients: take porter_gc",
    ),
    (
        lambda: of_group(replace(ONE, unit="client"), 2, 1e-3),
        "protects whole clients already: read its own eps",
    ),
)
