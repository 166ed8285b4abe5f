"""Balanced participation: events count the most turns of any client, and attacks stay below."""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import planned
from scipy.stats import beta, norm

import jaxfl
from jaxfl.algorithms.resolution import build, resolve
from jaxfl.core.types import Hyper
from jaxfl.parts import sampling
from jaxfl.privacy import Event, Phases, epsilon
from jaxfl.privacy.gaussian import gdp_eps
from jaxfl.problems.facts import facts_of

pytestmark = pytest.mark.once

DELTA = 1e-3


def even(n: int, m: int) -> jaxfl.Problem:
    return jaxfl.Problem(jaxfl.models.logistic(2), (np.ones((n, m, 2)), np.ones((n, m), int)))


@functools.cache
def drawn(n: int, r: int, T: int) -> np.ndarray:
    """Whom 600 balanced orders call: (orders, T, n)."""
    hp, part = Hyper({"cohort": jnp.int32(r)}, (("cohort", r),)), sampling.balanced()

    def called(key: jax.Array) -> jax.Array:
        index = jax.vmap(lambda t: part.draw(key, t, n, hp).index)(jnp.arange(T))
        return jnp.zeros((T, n), bool).at[jnp.arange(T)[:, None], index].set(True)

    return np.asarray(jax.jit(jax.vmap(called))(jax.random.split(jax.random.key(0), 600)))


@pytest.mark.plain
@pytest.mark.parametrize(("n", "r"), [(4, 1), (5, 2), (4, 3)])
def test_the_most_turns_among_some_rounds_are_those_of_a_drawn_order(n: int, r: int) -> None:
    T, part, orders = 9, sampling.balanced(), drawn(n, r, 9)
    windows = [range(*ends) for ends in itertools.combinations(range(T + 1), 2)]
    chosen = [range(4, 4), range(0, T, 3), range(1, T, 2), [0, 1, 5, 8], []]
    for some in (*windows, *chosen):
        assert part.most(some, n, {"cohort": r}) == orders[:, list(some)].sum(1).max(), some


def shown(name: str, turns: np.ndarray) -> set[tuple[int, ...]]:
    """The differences and full gradients that turns of clients show, (clients, T), or their releases."""
    begins = np.arange(turns.shape[1]) % (4 if name != "dp_srm" else 99) == 0
    full, later = (turns & begins).sum(1), (turns & ~begins).sum(1)
    if name == "isrl_svrg":  # one full gradient for each epoch with a turn
        full = (np.add.reduceat(turns, np.flatnonzero(begins), axis=1) > 0).sum(1)
    if name in ("dp_gd", "dp_sgd"):
        later, full = turns.sum(1), 0 * full
    if name == "localized_mbsgd":  # a phase counts for itself: two of 2/3 and 1/3 of the rounds
        return {(int(k), 0) for k in turns[:, : 2 * turns.shape[1] // 3].sum(1)}
    return set(zip(later.tolist(), full.tolist(), strict=True))


def counted(event: Any) -> set[tuple[int, ...]]:
    """The releases that an event composes, of each kind; of several clients one for each."""
    if isinstance(event, Phases):
        return set.union(*map(counted, event.events))
    if isinstance(event, Event):
        return {(event.releases, 0)}
    return {tuple(part.releases for part in event.events)}


CASES: dict[str, dict[str, Any]] = {
    "dp_gd": {},
    "dp_sgd": {"batch": 2},
    "dp_srm": {"batch": 2},
    "isrl_svrg": {"batch": 2, "epoch": 4},
    "ldp_spider": {"period": 4},
    "localized_mbsgd": {"batch": 2, "phases": 2, "lam": 1.0, "diameter": 2.0, "lr": 0.1},
}


@pytest.mark.plain
@pytest.mark.parametrize("name", list(CASES))
def test_events_count_the_releases_of_the_worst_client(name: str) -> None:
    """No order shows more, by any weights of the two kinds, and some order shows as much."""
    for n, r, T in ((5, 2, 12), (4, 1, 9), (5, 2, 3), (4, 3, 12)):
        problem = even(n, 8)
        algorithm = jaxfl.algorithm(name, participation="balanced")
        event = planned(algorithm, problem, T, sigma=1.0, cohort=r, **CASES[name]).event
        seen = shown(name, np.swapaxes(drawn(n, r, T), 1, 2).reshape(-1, T))
        for weights in ((1, 0), (0, 1), (1, 1), (3, 1), (1, 3)):
            most, claimed = (
                max(a * weights[0] + b * weights[1] for a, b in kinds)
                for kinds in (seen, counted(event))
            )
            assert most <= claimed, (n, r, T, weights)
            assert most == claimed or (name == "isrl_svrg" and n == 5), (n, r, T, weights)


@pytest.mark.parametrize("who", ["uniform", "balanced"])
def test_the_ledger_counts_the_turns_of_each_client(who: str) -> None:
    algorithm, m, G, sigma = jaxfl.algorithm("dp_gd", participation=who), 6, 1.0, 0.3
    problem = even(5, m)
    run = jaxfl.simulate(
        algorithm, problem, jax.random.key(2), 7, cohort=2, clip=G, sigma=sigma, delta=DELTA
    )
    book = run.ledger()
    assert book.turns.min() < book.turns.max()
    mu = 2 * G / (2 * m * sigma) * np.sqrt(book.turns)
    np.testing.assert_allclose(book.proven, gdp_eps(mu, DELTA), rtol=1e-6)
    assert book.proven.max() <= run.privacy().proven


@pytest.mark.parametrize(("name", "more"), [("dp_gd", {}), ("ldp_sgd", {"batch": 100})])
def test_the_most_rounds_are_found_where_clients_take_turns(
    name: str, more: dict[str, Any]
) -> None:
    given = {"samples": 1000, "clip": 1.0, "sigma": 0.02, "delta": 1e-5, "clients": 5, "cohort": 2}
    given |= {"participation": "balanced", **more}
    found = jaxfl.calibrate(name, find="rounds", eps=2.0, **given)
    for rounds, fits in ((found["rounds"], True), (found["rounds"] + 1, False)):
        assert (jaxfl.account(name, rounds=rounds, **given)["eps"] <= 2.0) == fits
    assert found["eps"] == jaxfl.account(name, rounds=found["rounds"], **given)["eps"]


def test_rounds_draw_no_less_noise_than_is_proven() -> None:
    """Of 200 values of eps many give a sigma that the nearest float32 is below."""
    algorithm, facts, below = jaxfl.algorithm("ldp_gd"), facts_of(even(2, 9), 9), 0
    for eps in np.random.default_rng(0).uniform(0.1, 10, 200).tolist():
        values = resolve(algorithm, {"eps": eps, "delta": DELTA}, facts).values
        hp, exact = build(algorithm, values, facts, jnp.dtype(jnp.float32)), values["sigma"]
        read = float(hp["sigma"])
        below += float(np.float32(exact)) < exact
        assert exact <= read <= exact * (1 + 2.0**-22)
        assert epsilon(algorithm.event({**values, "sigma": read}, facts), DELTA).eps <= eps
    assert below > 50


# --- attacks -------------------------------------------------------------------------------------

N, R, T, G = 4, 1, 8, 1.0
TICK = 1e3  # by which a public regularizer moves the second coordinate, in units of lr
L = {"smoothness": 1e6}
GIVEN: dict[str, dict[str, Any]] = {
    "dp_gd": L,
    "dp_sgd": {"batch": 4},
    "dp_srm": {
        "batch": 4,
        "anchor_batch": 4,
        "momentum": 0.5,
        "difference_clip": 2.0,
        "step_limit": 1e9,
        **L,
    },
    "ldp_spider": {"period": 2, "noise_ratio": 1.0, **L},
    "isrl_svrg": {
        "batch": 4,
        "epoch": 4,
        "noise_ratio": 0.3,
        "sampler": "without_replacement",
        **L,
    },
    "localized_mbsgd": {"batch": 2, "phases": 1, "lam": 1e-6, "diameter": 1e6},
}


def loss(x: jax.Array, row: Any) -> jax.Array:
    """``a x_1``, whose sign turns with the clock x_2."""
    turned = jax.lax.stop_gradient(jnp.round(x[1])) % 2 > 0
    return row[0] * x[0] * jnp.where(turned, 1.0, -1.0)


def messages(name: str, runs: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """The functions; what client 0 is seen to send in both worlds, (2, runs, T), with noise and without."""
    given = dict(GIVEN[name])
    parts = {role: given.pop(role) for role in ("sampler",) if role in given}
    linear = name in ("dp_gd", "dp_sgd", "localized_mbsgd")
    local = name in ("ldp_spider", "isrl_svrg", "localized_mbsgd")
    clock = jaxfl.problems.public.Regularizer("clock", lambda x: -TICK * x[1], 0.0)
    model = jaxfl.models.custom(np.zeros(2), loss, regularizer=None if linear else clock)
    problem = jaxfl.Problem(model, (np.zeros((N, 4), np.float32),))
    given |= {"eps": 2.0, "delta": DELTA, "clip": G, "lr": 1 / TICK, "cohort": R}
    algorithm = jaxfl.algorithm(name, participation="balanced", **parts)
    f = jaxfl.functions(algorithm, problem, T, messages=local, **given)
    keys = jax.random.split(jax.random.key(1), runs)

    @jax.jit
    def seen(f: Any, a: jax.Array, sigma: jax.Array) -> jax.Array:
        posed = dataclasses.replace(problem, train=(problem.train[0].at[0, 0].set(a),))
        hp = Hyper({**f.hp.values, "sigma": sigma}, f.hp.capacity)
        f = dataclasses.replace(f, problem=posed, hp=hp)
        point = lambda run: f.algorithm.body.points(run.state)[0, 0]  # noqa: E731

        def step(run: Any, _: None) -> Any:
            after, _info = f.round(run)
            if not local:
                return after, (point(run) - point(after)) * TICK
            view = f.view(run)
            own = (view.clients == 0) & (view.weight > 0)
            return after, jnp.sum(jnp.where(own, view.messages[:, 0], 0))

        return jax.vmap(lambda key: jax.lax.scan(step, f.init(key), length=T)[1])(keys)

    sigma = f.hp["sigma"]
    out = np.asarray([[seen(f, a, s) for a in (10 * G, -10 * G)] for s in (sigma, 0 * sigma)])
    if name == "dp_srm":  # the server's estimate, as the messages that made it
        out[..., 1:] -= 0.5 * out[..., :-1].copy()
    return f, *out


def certified(P: np.ndarray, Q: np.ndarray) -> float:
    """The least eps of a Gaussian mechanism that errs so rarely, at 95 % [Clopper, Pearson]."""
    rates = [
        beta.ppf(0.975, k + 1, x.size - k) for x, k in ((P, (P <= 0).sum()), (Q, (Q > 0).sum()))
    ]
    mu = -norm.ppf(rates).sum()
    return float(gdp_eps(max(mu, 1e-9), DELTA))


@pytest.mark.parametrize("name", list(GIVEN))
def test_an_attack_that_knows_the_turns_stays_below(name: str) -> None:
    """The likelihood ratio of client 0's messages; it certifies more than one turn less would prove."""
    f, noisy, exact = messages(name, 8000)
    signal = exact[0] - exact[1]
    power = (signal**2).sum(-1)
    worst = power > 0.99 * power.max()  # whose turns are, and when, does not depend on data
    found = certified(*(signal * (noisy - exact.mean(0))).sum(-1)[:, worst])
    assert found < f.privacy(T).proven <= 2.0
    assert found > f.privacy(T // 2).proven or name == "isrl_svrg"  # which shows sums of releases
