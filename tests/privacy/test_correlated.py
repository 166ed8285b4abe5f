"""Noise that is correlated over rounds: what it is worth, and what rounds draw."""

import itertools
from typing import Any

import numpy as np
import pytest
from planned import federated, planned
from rows import a_problem
from told import mistakes, refused

import jaxfl
from jaxfl import estimators, mechanisms, sampling
from jaxfl.algorithms import compose, plain
from jaxfl.algorithms.standing import standing
from jaxfl.core.types import Mechanism
from jaxfl.parts import compressors
from jaxfl.privacy import Event, Mean, Sampling
from jaxfl.privacy.accountants import closed_form
from jaxfl.privacy.events import Kind, NoClaim, Stated
from jaxfl.privacy.releases import strategy_norm

pytestmark = [pytest.mark.once, pytest.mark.plain]

D, T = 3000, 6
NUMBERS = {"clip": 1.0, "lr": 1e-6, "sigma": 0.5}
WEIGHTS = {bands: mechanisms.banded(bands).weights for bands in (1, 2, 3, 8)}


def strategy(weights: tuple[float, ...], rounds: int) -> np.ndarray:
    """C, from the definition of its inverse."""
    inverse = np.zeros((rounds, rounds))
    for t, j in itertools.product(range(rounds), range(len(weights))):
        if j <= t:
            inverse[t, t - j] = weights[j]
    return np.linalg.inv(inverse)


@pytest.mark.parametrize("apart", [1, 2, 3, 7])
@pytest.mark.parametrize("bands", WEIGHTS)
def test_the_norm_is_the_largest_of_all_patterns(bands: int, apart: int) -> None:
    """Over all sets of rounds so far apart, and signs and directions of what a record moves in each."""
    rounds, largest = 7, 0.0
    C = strategy(WEIGHTS[bands], rounds)
    rng = np.random.default_rng(0)
    for chosen in itertools.product([0, 1], repeat=rounds):
        where = np.flatnonzero(chosen)
        if (np.diff(where) < apart).any():
            continue
        moves = [np.ones((rounds, 1)), *rng.normal(size=(5, rounds, 2))]
        for move in moves:
            unit = move / np.linalg.norm(move, axis=1, keepdims=True) * np.array(chosen)[:, None]
            largest = max(largest, float(np.linalg.norm(C @ unit)))
    assert strategy_norm(WEIGHTS[bands], rounds, apart) == pytest.approx(largest, rel=1e-12)


def test_one_band_is_independent_noise() -> None:
    event = Event(Sampling("full", 10, 10), Mean(1.0), 2.0, 9)
    one = Event(Sampling("full", 10, 10), Mean(1.0), 2.0, 9, correlation=(1.0,))
    assert closed_form(one) == pytest.approx(closed_form(event), rel=1e-12)


def body_of(mechanism: Mechanism, **parts: Any) -> Any:
    usual = {"estimator": estimators.minibatch(sampling.full()), "mechanism": mechanism}
    return federated(**{**usual, **parts})


def nothing_to_see() -> jaxfl.Problem:
    data = np.zeros((2, 6, D), np.float32), np.zeros((2, 6), np.int32)
    clients = jaxfl.data.from_clients(data, classes=2, stacked=True)
    return jaxfl.make_problem(jaxfl.models.logistic(D), clients)


def messages_of(body: Any, key: Any, **more: Any) -> tuple[Any, np.ndarray]:
    """The event, and the first client's messages in T rounds, (T, D): noise alone."""
    algorithm = compose("mine", "", "", body, plain(omega=0.0, **NUMBERS, **more))
    f = jaxfl.functions(algorithm, nothing_to_see(), rounds=T)
    run, found = f.init(key), []
    for _ in range(T):
        found.append(np.asarray(f.view(run).messages[0]))
        run, _ = f.round(run)
    return algorithm.event(f.about.values, f.about.facts), np.stack(found)


def whitened(messages: np.ndarray, weights: tuple[float, ...], sigma: float) -> float:
    """The largest error of the covariance over rounds of C times the messages, in standard errors."""
    z = strategy(weights, T) @ messages / sigma
    return float(np.abs(z @ z.T / D - np.eye(T)).max() * np.sqrt(D / 2))


@pytest.mark.parametrize("plainly", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_covariance_over_rounds_is_that_of_the_event(
    sparse: bool, plainly: bool, key: Any
) -> None:
    """Its covariance over rounds is that of the event; nine tenths of it, or independent noise, is not."""
    parts = {"compressor": compressors.random_k()} if sparse else {}
    body = body_of(mechanisms.banded(3), **parts)._replace(messages=True)
    if plainly:
        body = jaxfl.rounds.Plain(*body)
    event, messages = messages_of(body, key, **({"k": D} if sparse else {}))
    assert (event.correlation, event.sigma, event.releases) == (WEIGHTS[3], 0.5, T)
    assert whitened(messages, WEIGHTS[3], 0.5) < 5
    assert whitened(0.9 * messages, WEIGHTS[3], 0.5) > 5
    assert whitened(messages, WEIGHTS[2], 0.5) > 5
    assert whitened(messages, (1.0,), 0.5) > 5


@pytest.mark.parametrize("central", [False, True])
def test_the_noise_of_the_mean_is_correlated_alike(central: bool, key: Any) -> None:
    """The server's steps show it: the fused draw of the clients' noises, or its own."""
    made = mechanisms.banded(3, central=central)
    event = (lambda *_: NoClaim("")) if central else None
    numbers = {**NUMBERS, "lr": 1.0, "sigma": 1e-4}
    algorithm = compose("mine", "", "", body_of(made), plain(omega=0.0, **numbers), event=event)
    f = jaxfl.functions(algorithm, nothing_to_see(), rounds=T)
    run, x = f.init(key), []
    for _ in range(T + 1):
        x.append(np.asarray(f.output(run), np.float64))
        run, _ = f.round(run)
    std = 1e-4 / (1 if central else np.sqrt(2))
    steps = -np.diff(np.stack(x), axis=0)
    assert whitened(steps, WEIGHTS[3], std) < 5
    assert whitened(steps, WEIGHTS[2], std) > 5


def stated(mechanism: Mechanism, name: str = "ldp_gd", rounds: int = T, **numbers: Any) -> Any:
    algorithm = jaxfl.algorithm(name, mechanism=mechanism)
    return planned(algorithm, a_problem(n=3, m=12), rounds, sigma=0.5, clip=1.0, lr=0.1, **numbers)


def test_a_correlated_mechanism_is_proven_and_calibrated() -> None:
    """One pass costs the norm of C's first column more noise than independent noise; sums have less."""
    asked = {"eps": 2.0, "delta": 1e-3, "clip": 1.0, "lr": 0.1, "diameter": 1.0}
    sigma, problem = {}, a_problem(n=3, m=12)
    for name, mechanism in (("no", mechanisms.gaussian()), ("yes", mechanisms.banded(4))):
        algorithm = jaxfl.algorithm("noisy_sgd", mechanism=mechanism)
        assert standing(algorithm).kind == Kind.PROVEN
        run = planned(algorithm, problem, 8, **asked)
        assert run.eps(1e-3) == pytest.approx(2.0, rel=1e-3)
        sigma[name] = run.values["sigma"]
    C = strategy(WEIGHTS[8][:4], 8)
    assert sigma["yes"] / sigma["no"] == pytest.approx(np.linalg.norm(C[:, 0]), rel=1e-6)
    sums = [np.linalg.norm(np.tril(np.ones((8, 8))) @ M) for M in (np.eye(8), np.linalg.inv(C))]
    assert sums[1] * sigma["yes"] < sums[0] * sigma["no"]


def test_where_nothing_is_known_nothing_is_claimed() -> None:
    made = mechanisms.banded(3)
    assert isinstance(stated(made, "ldp_sgd", batch=4).event.events[0], NoClaim)  # Poisson batches
    assert isinstance(stated(made._replace(event=None)).event.events[0], NoClaim)
    half = federated(
        estimator=estimators.minibatch(sampling.full()),
        mechanism=made,
        participation=sampling.uniform(),
    )
    algorithm = compose("mine", "", "", half, plain(omega=0.0, cohort=1, **NUMBERS))
    assert isinstance(planned(algorithm, nothing_to_see(), T).event, NoClaim)
    fewer = stated(made)
    ones = strategy(made.weights, T) @ np.ones(T)
    assert closed_form(fewer.event.events[2]) == pytest.approx(2 / 12 / 0.5 * np.linalg.norm(ones))
    now = fewer.algorithm.event({**fewer.values, "rounds": 2}, fewer.facts).events[0]
    assert (now.releases, now.correlation) == (2, made.weights)


def test_an_event_of_a_users_own_is_stated_and_not_proven() -> None:
    """A part's word: the accountant answers for it, with the status of a statement."""
    mine = mechanisms.gaussian()._replace(event=lambda event, T: event)
    run = stated(mine)
    assert standing(run.algorithm).kind == Kind.DECLARED  # until a probe has attacked it
    assert isinstance(run.event.events[0], Stated)
    changed = mechanisms.banded(3)._replace(weights=(1.0, -0.9))
    assert isinstance(stated(changed).event.events[0], Stated)


@mistakes(
    (lambda: strategy_norm((1.0, 0.5), 5, 1), "negative or increase"),
    (lambda: strategy_norm((1.0, -1.5), 5, 1), "negative or increase"),
    (lambda: mechanisms.banded(0), "bands"),
    (
        lambda: jaxfl.algorithm("isrl_svrg", mechanism=mechanisms.banded(2)),
        "anchors are noised apart",
    ),
    (lambda: stated(mechanisms.banded(2), "mu2_untrusted", diameter=1.0).event, "event of its own"),
    (
        lambda: stated(mechanisms.banded(2), "dp_dsgd", batch=4).round(),
        "local steps and of networks",
    ),
)
def test_what_has_no_place_is_refused(call: Any, words: str) -> None:
    refused(call, words)
