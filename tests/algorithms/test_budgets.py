"""A budget of privacy for each client: the noise that rounds draw, and what is proven of each."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import planned
from rows import a_problem
from told import refusals

import jaxfl
from jaxfl import audit
from jaxfl.parts import mechanisms, with_budgets

D, OWN = 3000, (1.0, 2.0, 5.0)
GIVEN: dict[str, Any] = {"clip": 1.0, "sigma": 0.5, "lr": 1e-6}
BUDGETS = (1.0, 4.0, 2.0, 1.0, 4.0)


def quiet() -> jaxfl.Problem:
    data = np.zeros((3, 6, D), np.float32), np.zeros((3, 6), np.int32)
    clients = jaxfl.data.from_clients(data, classes=2, stacked=True)
    return jaxfl.Problem(jaxfl.models.logistic(D), clients)


@pytest.mark.plain
@pytest.mark.parametrize("plainly", [False, True])
@pytest.mark.parametrize("name", ["ldp_gd", "ef", "dp_dsgd"])
def test_each_client_adds_its_own_noise(name: str, plainly: bool, key: jax.Array) -> None:
    """In messages of a server's clients, of a network's, and of a channel that keeps what is not sent."""
    parts: Any = {"mechanism": mechanisms.gaussian(OWN)}
    numbers = dict(GIVEN)
    if name == "dp_dsgd":
        parts["sampler"], numbers["lr"] = "full", 1.0
    made = jaxfl.algorithm("ldp_gd" if name == "ef" else name, **parts)
    if name == "ef":
        body = made.body._replace(channel=jaxfl.parts.channels.error_feedback())
        made = jaxfl.parts.compose("ef", "", "", body, jaxfl.parts.plain(omega=0.0))
    how = {"plain": True} if plainly else {"messages": True}
    f = jaxfl.functions(made, quiet(), 2, **how, **numbers)
    seen = f.view(f.init(key))
    found = np.asarray(seen.messages, np.float64).std(axis=1) / 0.5
    np.testing.assert_allclose(found, OWN, rtol=5 / math.sqrt(2 * D))
    assert f.privacy(2).proven > 0


@pytest.mark.plain
def test_the_noise_of_the_mean_is_that_of_all(key: jax.Array) -> None:
    """Drawn at once, or for each client: the deviation of the server's step."""
    for noise in ("fused", "per_client"):
        made = jaxfl.algorithm("ldp_gd", mechanism=mechanisms.gaussian(OWN), noise=noise)
        run = jaxfl.simulate(made, quiet(), key, 1, eval_every=0, **{**GIVEN, "lr": 1.0})
        expected = 0.5 * math.sqrt(sum(m * m for m in OWN)) / 3
        assert np.std(run.x) == pytest.approx(expected, rel=5 / math.sqrt(2 * D))


@pytest.mark.plain
@pytest.mark.parametrize("clip", ["example", "client"])
def test_every_client_has_its_own_statement(clip: str) -> None:
    problem = a_problem(n=5, m=12)
    numbers: Any = {"delta": 1e-3, "batch": 4, "lr": 0.1}
    parts = {"clip": clip}
    made, numbers = with_budgets("ldp_sgd", problem, 6, BUDGETS, parts, **numbers)
    run = jaxfl.simulate(made, problem, jax.random.key(0), 6, **numbers)
    assert run.privacy().proven == pytest.approx(4.0, rel=1e-3)
    spent = run.ledger().proven
    sizes = np.asarray(problem.count)
    worst = spent[sizes == sizes.min()] if clip == "example" else spent
    allowed = np.array(BUDGETS)[sizes == sizes.min()] if clip == "example" else np.array(BUDGETS)
    np.testing.assert_allclose(worst, allowed, rtol=1e-3)
    assert (spent <= np.array(BUDGETS) * (1 + 1e-6)).all()
    assert "client_eps" in run.dataset()


@pytest.mark.plain
def test_a_client_retires_when_its_budget_is_spent() -> None:
    """It takes part as long as its eps allows, and not once more; means are of those that are left."""
    problem, T = a_problem(n=5, m=12), 24
    numbers: Any = {"delta": 1e-3, "lr": 0.1}
    made, numbers = with_budgets("ldp_gd", problem, T, BUDGETS, spend="rounds", **numbers)
    run = jaxfl.simulate(made, problem, jax.random.key(0), T, **numbers)
    assert run.privacy().proven == pytest.approx(4.0, rel=1e-3)
    ledger, body = run.ledger(), made.body
    assert (ledger.proven <= np.array(BUDGETS) * (1 + 1e-6)).all()
    turns = np.zeros(5, int)
    for t in range(T):
        draw = body.participation.draw(run.key, jnp.int32(t), 5, None)  # type: ignore[union-attr]
        live = np.asarray(draw.weight) > 0
        np.testing.assert_allclose(np.asarray(draw.weight)[live], 1 / live.sum())
        turns[np.asarray(draw.index)[live]] += 1
    assert sorted({*turns.tolist()})[-1] == T > turns[2] > turns[0] > 0
    usual = jaxfl.algorithm("ldp_gd")
    for client, eps in enumerate(BUDGETS):
        found = [
            planned(usual, problem, int(turns[client]) + more, **numbers).eps(1e-3)
            for more in (0, 1)
        ]
        assert found[0] <= eps * (1 + 1e-6)
        assert found[1] > eps or turns[client] == T


def test_an_attack_on_the_client_with_the_least_noise() -> None:
    made = jaxfl.algorithm("ldp_gd", mechanism=mechanisms.gaussian((1.0, 3.0, 3.0)))
    given: Any = dict(rounds=8, m=8, runs=1500, delta=1e-3, eps=4.0, clients=3)
    found = audit(made, confidence=0.999, key=jax.random.key(2), **given)
    assert found.proven == pytest.approx(4.0, rel=1e-3)
    assert found.lower <= found.proven


@pytest.mark.plain
def test_a_sum_hides_no_more_than_ones_own_noise() -> None:
    """And its words have room for the most noise of any client."""

    def run(own: tuple[float, ...]) -> Any:
        noise = mechanisms.gaussian(own)
        made = jaxfl.algorithm("ldp_gd", mechanism=noise, aggregation="secure_sum")
        return planned(made, quiet(), 3, **GIVEN)

    assert run(OWN).event.sigma == 0.5
    assert run(OWN).values["range"] > 3 * run((1.0, 1.0, 1.0)).values["range"]


def asked(eps: Any) -> Any:
    return with_budgets("ldp_gd", quiet(), 3, eps)


test_mistakes_are_explained = refusals(
    (
        lambda: asked((1.0, 0.0, 2.0)),
        "eps = 0.0 of client 1 allows no release: leave the client out",
    ),
    (lambda: jaxfl.parts.with_budgets("ldp_gd", 3, 3, (1.0,)), "must be a Problem"),  # type: ignore[arg-type]
    (lambda: asked((1.0, 2.0)), "has 2 budgets, and there are 3 clients: give one for each"),
    (lambda: mechanisms.gaussian((1.0, 0.0)), "multiple = 0.0 must be above 0"),
    (
        lambda: planned(
            jaxfl.algorithm("ldp_gd", mechanism=mechanisms.gaussian((1.0, 2.0))),
            quiet(),
            3,
            **GIVEN,
        ),
        "has the multiples of 2 clients, and there are 3: give one for each",
    ),
    (
        lambda: jaxfl.algorithm("private_local_sgd", mechanism=mechanisms.gaussian(OWN)),
        "mechanism = 'gaussian' does not apply to private_local_sgd",
    ),
)
