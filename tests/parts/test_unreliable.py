"""Clients that are called and do not answer: who is heard, what is summed, what the sum hides."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import planned
from rows import a_problem, a_quadratic
from scipy import stats
from told import mistakes, refused

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.core.types import Hyper
from jaxfl.engine.ledger import turns
from jaxfl.parts.aggregations import encode, secure_sum
from jaxfl.parts.dropouts import enrol
from jaxfl.parts.sampling import (
    PARTICIPATIONS,
    balanced,
    everyone,
    participation,
    sampler,
    uniform,
    unreliable,
)
from jaxfl.privacy.gaussian import gdp_mu

pytestmark = pytest.mark.once

N = 7
NUMBERS = {"lr": 0.2, "clip": 0.7, "batch": 4, "sigma": 0.05, "local_steps": 2}


def drawn(base, key: jax.Array, rounds: int, **numbers: float) -> np.ndarray:
    """Weights of all clients in all rounds."""
    values = {"cohort": 5, **numbers}
    caps = tuple(base.capacity(values, jaxfl.types.ProblemFacts(N, 9, 9, 3, rounds, None)).items())
    hp = Hyper({name: jnp.asarray(value) for name, value in values.items()}, caps)

    def one(t: jax.Array) -> jax.Array:
        draw = base.draw(key, t, N, hp)
        index = jnp.arange(N) if draw.index is None else draw.index
        return jnp.zeros(N).at[index].set(draw.weight, mode="drop")

    return np.asarray(jax.jit(jax.vmap(one))(jnp.arange(rounds)))


@pytest.mark.parametrize("base", [uniform, balanced, everyone])
def test_each_client_that_was_called_fails_by_its_own_coin(base, key: jax.Array) -> None:
    called = drawn(base(), key, 4000) > 0
    weights = drawn(unreliable(base()), key, 4000, dropout=0.3, threshold=3)
    heard = weights > 0
    assert not (heard & ~called).any()
    count = heard.sum(1)
    assert set(np.unique(count)) == {0, *range(3, called.sum(1)[0] + 1)}
    np.testing.assert_allclose(weights.sum(1), count > 0, atol=1e-6)
    np.testing.assert_allclose(weights.max(1)[count > 0], 1 / count[count > 0], rtol=1e-6)
    # without a threshold nothing but the coins decides: two thirds and all but one are told apart
    alone = drawn(unreliable(base()), key, 4000, dropout=0.3, threshold=1) > 0
    rate = alone.sum(0) / called.sum(0)
    assert np.abs(rate - 0.7).max() < 5 * np.sqrt(0.21 / called.sum(0).min())
    both = called[:, 0] & called[:, 1]
    together = (alone[:, 0] & alone[:, 1])[both].mean()
    assert abs(together - 0.49) < 5 * np.sqrt(0.25 / both.sum())
    lost = called.sum(1)[0]
    assert (count == 0).mean() == pytest.approx(stats.binom.cdf(2, lost, 0.7), abs=0.03)


def test_clients_that_always_answer_change_nothing(key: jax.Array) -> None:
    ends = []
    for who, more in (("uniform", {}), ("unreliable", {"dropout": 0.0, "threshold": 1})):
        algorithm = jaxfl.algorithm("private_local_sgd", participation=participation(who))
        run = jaxfl.simulate(algorithm, a_problem(), key, 5, cohort=3, **NUMBERS, **more)
        ends.append(run.x)
    np.testing.assert_array_equal(*ends)


def test_the_mean_is_over_those_who_answered(key: jax.Array) -> None:
    """theta_i = w_i + (I - eta H_i)^tau (x - w_i) of the survivors; a lost round changes nothing."""
    problem, eta, tau, T = a_quadratic(n=6), 0.2, 3, 12
    part = unreliable(everyone())
    algorithm = jaxfl.algorithm("fedavg", sampler=sampler("full"), participation=part)
    numbers = {"lr": eta, "local_steps": tau, "dropout": 0.5, "threshold": 3}
    run = jaxfl.simulate(algorithm, problem, key, T, eval_every=1,
                         metrics={"point": lambda problem, x: x}, **numbers)  # fmt: skip
    a, y = (np.asarray(leaf, float) for leaf in problem.train)
    hp = build(algorithm, run.values, run.facts, problem.x0.dtype)
    x, lost = np.asarray(problem.x0, float), 0
    for t in range(T):
        draw = algorithm.cohort(key, jnp.int32(t), 6, hp)
        here = np.asarray(draw.index)[np.asarray(draw.weight) > 0]
        ends = []
        for i in here:
            H, w = a[i].T @ a[i] / len(a[i]), np.linalg.lstsq(a[i], y[i], rcond=None)[0]
            ends.append(w + np.linalg.matrix_power(np.eye(3) - eta * H, tau) @ (x - w))
        x, lost = (np.mean(ends, axis=0), lost) if len(here) else (x, lost + 1)
        np.testing.assert_allclose(run.metrics["point"][t + 1], x, rtol=5e-5, atol=2e-5)
    assert 0 < lost < T
    np.testing.assert_array_equal(turns(run), run.state.local[0])
    assert turns(run).sum() == run.totals["clients"]


@pytest.mark.parametrize("who", PARTICIPATIONS)
@pytest.mark.parametrize("name", ["scaffold", "soteriafl_gd"])
def test_a_server_keeps_the_mean_of_what_clients_keep(name: str, who: str, key: jax.Array) -> None:
    """Also with cohorts of random size, and after rounds in which nobody was heard."""
    part = participation(who)
    wanted = {"cohort": 3, "dropout": 0.4, "threshold": 2}
    numbers = {param.name: wanted[param.name] for param in part.params}
    numbers |= {"k": 2, "sigma": 0.1} if name == "soteriafl_gd" else {"batch": 4, "local_steps": 2}
    algorithm = jaxfl.algorithm(name, participation=part)
    run = jaxfl.simulate(algorithm, a_problem(), key, 12, lr=0.1, **numbers)
    assert run.totals["coordinates"] == numbers.get("k", 0) * run.totals["clients"]
    state = run.state
    one, each = (
        (state.link, state.links) if name == "soteriafl_gd" else (state.shared, state.local[1])
    )
    assert np.abs(one).max() > 1e-2
    np.testing.assert_allclose(one, np.mean(each, axis=0), atol=1e-5)


def test_it_is_what_the_protocol_recovers(key: jax.Array) -> None:
    """The words that the round adds up are those that the survivors' shares unmask."""
    hp = Hyper({"range": jnp.float32(4.0), "precision": jnp.float32(2.0**-20)})
    vectors = np.random.default_rng(0).normal(size=(N, 6)).astype(np.float32)
    weights = drawn(unreliable(uniform()), key, 20, dropout=0.3, threshold=3)
    t = int(np.flatnonzero((weights > 0).sum(1) == 4)[0])
    alive = np.flatnonzero(weights[t] > 0)
    words = {int(i): encode(vectors[i], hp["range"], hp["precision"])[0] for i in range(N)}
    group = enrol(range(N), threshold=3, seed=1)
    sent = {int(i): group.message(int(i), words[int(i)], t) for i in alive}
    total = jnp.asarray(group.unmask(sent, t))
    mean = weights[t].max() * secure_sum().recover(total, jnp.zeros(6), hp)
    np.testing.assert_allclose(mean, vectors[alive].mean(0), atol=2e-6)


def test_a_sum_hides_what_the_fewest_answers_hide() -> None:
    """Proven and claimed as for ``threshold`` devices, not for all that are called."""
    found = {}
    for who, more in (("uniform", {"cohort": 2}), ("unreliable", {"cohort": 5, "threshold": 2})):
        algorithm = jaxfl.algorithm("private_local_sgd", participation=participation(who))
        given = {**NUMBERS, "local_steps": 1, **more}
        given |= {"dropout": 0.2} if who == "unreliable" else {}
        plan = planned(algorithm, a_problem(), 6, **given)
        found[who] = plan.eps(1e-3), plan.claim.eps
    assert found["uniform"] == pytest.approx(found["unreliable"])


def test_a_trusted_server_divides_by_the_fewest_answers() -> None:
    algorithm = jaxfl.algorithm("dp_fedavg", participation=participation("unreliable"))
    given = {"lr": 0.1, "batch": 4, "cohort": 5, "dropout": 0.2, "threshold": 2, "sigma": 1.0}
    mu = float(gdp_mu(planned(algorithm, a_problem(), 6, **given).eps(1e-3), 1e-3))
    assert mu == pytest.approx(1.0 / 2 * np.sqrt(6), rel=1e-6)


def deaf(**numbers: float) -> jaxfl.Run:
    algorithm = jaxfl.algorithm("fedavg", participation=participation("unreliable"))
    given = {"lr": 0.1, "batch": 4, "cohort": 3, **numbers}
    return jaxfl.simulate(algorithm, a_problem(), jax.random.key(0), 3, **given)


@mistakes(
    (lambda: deaf(dropout=0.1, threshold=4), "threshold = 4 exceeds the 3 clients"),
    (lambda: deaf(dropout=1.0, threshold=2), "at least 0 and below 1"),
    (lambda: deaf(threshold=2), "needs dropout"),
)
def test_mistakes(call: Any, words: str) -> None:
    refused(call, words)
