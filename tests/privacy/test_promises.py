"""No eps is stated for what was put together so that its proof does not hold."""

import dataclasses
from typing import Any

import jax
import numpy as np
import optax
import pytest
from planned import federated, planned
from told import refused

import jaxfl
from jaxfl.parts import compressors, estimators, local, mechanisms
from jaxfl.parts.sampling import SAMPLERS, in_order, participation, sampler
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.events import NoClaim
from jaxfl.problems import models

pytestmark = pytest.mark.once

DELTA = 1e-5
FACTS = jaxfl.types.ProblemFacts(5, 10, 10, 4, 3, 1.0)


def of(algorithm: Any, problem: jaxfl.Problem, rounds: int = 10, **numbers: float) -> Any:
    """The event of such a run."""
    return planned(algorithm, problem, rounds, **{"sigma": 0.2, "lr": 0.1, **numbers}).event


def even(
    n: int = 6, m: int = 12, regularizer: str | None = None, kind: str = "logistic"
) -> jaxfl.Problem:
    rng = np.random.default_rng(0)
    a, y = rng.normal(size=(n, m, 4)).astype(np.float32), rng.integers(0, 2, (n, m))
    data = jaxfl.data.from_clients((a, y), classes=2, stacked=True)
    model = models.logistic(4, regularizer=regularizer)
    if kind == "softmax":
        model = models.softmax_regression(4, 2)
    return jaxfl.make_problem(model, data)


@pytest.mark.parametrize("name", ["dp_gd", "dp_sgd"])
def test_a_mean_over_few_who_answer(name: str) -> None:
    """The noise is on the mean of those who answer, of whom there may be as few as the threshold."""
    given = {"cohort": 5, "dropout": 0.5, "threshold": 1}
    few = of(jaxfl.algorithm(name, participation=participation("unreliable")), even(), **given)
    one = of(jaxfl.algorithm(name, participation=participation("uniform")), even(), cohort=1)
    assert epsilon(few, DELTA).eps == pytest.approx(epsilon(one, DELTA).eps)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("rows", ["shuffled", "with_replacement"])
def test_other_optimizers_hide_nothing_in_a_sum(steps: int, rows: str) -> None:
    """The first step of Adam is a sign, and a sum of signs shows one of them whatever the noise."""
    given = {"local_steps": steps, "batch": 4, "range": 10.0, "precision": 1e-4}
    secure, plain = (
        of(
            jaxfl.algorithm(
                "private_local_sgd",
                optimizer=lambda hp: optax.adam(hp["lr"]),
                sampler=sampler(rows),
                aggregation=jaxfl.aggregations.aggregation(how),
            ),
            even(),
            **(given if how == "secure_sum" else {"local_steps": steps, "batch": 4}),
        )
        for how in ("secure_sum", "plain_sum")
    )
    assert epsilon(secure, DELTA).eps == pytest.approx(epsilon(plain, DELTA).eps)


@pytest.mark.parametrize(
    ("names", "parts", "words"),
    [
        # d/k times a clipped update is not clipped
        (
            ("dp_fedavg", "mu2_trusted"),
            {"compressor": compressors.random_k()},
            "'random_k' does not",
        ),
        (
            ("isrl_svrg", "ldp_spider", "dp_srm"),
            {"sampler": sampler("shuffled")},
            "'shuffled' does",
        ),
        # a longer first batch would hold records that the next one draws again
        (("dp_srm", "ldp_spider"), {"sampler": sampler("single_pass")}, "not apply where rounds"),
    ],
)
def test_parts_under_which_the_proof_is_false(names: Any, parts: Any, words: str) -> None:
    for name in names:
        refused(lambda name=name: jaxfl.algorithm(name, **parts), words)


@pytest.mark.parametrize(
    ("problem", "holds"),
    [(even(), True), (even(regularizer="nonconvex:0.2"), False), (even(kind="softmax"), False)],
)
def test_convexity_is_not_believed_where_it_is_known_not_to_hold(
    problem: jaxfl.Problem, holds: bool
) -> None:
    algorithm = jaxfl.algorithm("private_local_sgd", convex=True)
    given = {"local_steps": 3, "batch": 4}
    if holds:
        plain = of(jaxfl.algorithm("private_local_sgd"), problem, **given)
        assert epsilon(of(algorithm, problem, **given), DELTA).eps < epsilon(plain, DELTA).eps
        return
    refused(lambda: of(algorithm, problem, **given), "convex=True does not hold for this model")


def test_momentum_is_no_contraction() -> None:
    optimizer = lambda hp: optax.sgd(hp["lr"], 0.9)  # noqa: E731
    algorithm = jaxfl.algorithm("private_local_sgd", convex=True, optimizer=optimizer)
    words = "leave it or the optimizer out"
    refused(lambda: of(algorithm, even(), local_steps=3, batch=4), words)


@pytest.mark.parametrize(
    ("who", "adjacency"),
    [
        ("everyone", "zero_out"),
        ("unreliable", "zero_out"),
        ("uniform", "replace_one"),
        ("poisson", "add_remove"),
    ],
)
def test_neighbours_are_named(who: str, adjacency: str) -> None:
    """Leaving a client out changes what a mean divides by, but where that is a fixed number."""
    given = {} if who == "everyone" else {"cohort": 3}
    given |= {"dropout": 0.2, "threshold": 2} if who == "unreliable" else {}
    event = of(jaxfl.algorithm("dp_fedavg", participation=participation(who)), even(), **given)
    assert event.adjacency == adjacency


def test_an_L_of_the_data_is_said_to_be_public() -> None:
    problem, given = even(), {"sigma": 0.5, "diameter": 2.0}
    run = jaxfl.simulate("mu2_untrusted", problem, jax.random.key(0), 4, **given)
    assert run.privacy().method.endswith("for an L of these data that is taken to be public")
    run = jaxfl.simulate("mu2_untrusted", problem, jax.random.key(0), 4, smoothness=3.0, **given)
    assert "public" not in run.privacy().method


@pytest.mark.parametrize(
    ("name", "who", "rounds"),
    [
        ("ldp_gd", "balanced", 7),
        ("localized_mbsgd", "balanced", 12),
        ("localized_mbsgd", "everyone", 12),
        ("isrl_svrg", "everyone", 7),
    ],
)
def test_what_is_spent_is_that_of_a_run_that_ends_there(name: str, who: str, rounds: int) -> None:
    """Where clients take turns, or phases and epochs follow one another, rounds are no releases."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(4, 40, 3)).astype(np.float32), rng.integers(0, 2, (4, 40))
    problem = jaxfl.make_problem(models.logistic(3, constraint="ball:5"), data)
    algorithm = jaxfl.algorithm(name, participation=participation(who))
    numbers = {} if who == "everyone" else {"cohort": 2}
    run = jaxfl.simulate(algorithm, problem, jax.random.key(0), rounds, eval_every=0, **numbers)
    spent = run.spent(range(rounds + 1))
    assert spent[0] == 0
    assert spent[rounds] == run.privacy().proven
    assert np.all(np.diff(spent) >= 0)
    for t in (1, rounds // 2):
        stopped = dataclasses.replace(run, state=run.state._replace(t=t))
        assert spent[t] == stopped.privacy().proven
    if name == "localized_mbsgd":  # a plan is not extended
        assert run.spent([2 * rounds])[0] == spent[rounds]


@pytest.mark.parametrize("name", ["private_local_sgd", "local_dp_sgd"])
@pytest.mark.parametrize("rows", sorted(SAMPLERS))
def test_local_steps_are_calibrated_with_any_sampler(name: str, rows: str) -> None:
    """Where the paper has no formula, too."""
    algorithm = jaxfl.algorithm(name, sampler=sampler(rows))
    given = {"eps": 2.0, "lr": 0.1} | ({} if rows == "full" else {"batch": 4})
    given |= {"local_steps": 2} if name == "private_local_sgd" else {}
    plan = planned(algorithm, even(), 1, **given)
    assert plan.eps(plan.values["delta"]) == pytest.approx(2.0, rel=2e-3)
    assert plan.sources["sigma"].startswith("calibrated")
    if rows != "shuffled":
        refused(lambda: planned(algorithm, even(), 1, "paper", **given), "none that gives sigma")


@pytest.mark.parametrize("name", ["cdp_sgd", "dp_sgd", "isrl_svrg"])
def test_one_law_under_two_names(name: str) -> None:
    """A sampler of one's own says which law accountants know it by."""
    given = {"batch": 2, "sigma": 0.5}
    one, other = (
        of(jaxfl.algorithm(name, sampler=rows), even(), 5, **given)
        for rows in (sampler("poisson"), sampler("poisson")._replace(name="mine", scheme="poisson"))
    )
    assert one == other
    one, other = (
        of(jaxfl.algorithm(name, sampler=rows), even(), 5, **given)
        for rows in (sampler("single_pass"), in_order())
    )
    assert one == other


@pytest.mark.parametrize("part", ["local", "mechanism"])
def test_an_event_is_asked_for_where_the_usual_one_would_lie(part: str) -> None:
    """The body's own counts one noised message a round."""
    steps = local.steps(estimators.minibatch(sampler("full")), mechanisms.gaussian(), local.free())
    parts: Any = {"local": steps} if part == "local" else {"mechanism": mechanisms.central()}
    body = federated(estimator=estimators.minibatch(sampler("full")), **parts)
    own = jaxfl.algorithms.compose("own", "", "", body, jaxfl.algorithms.plain(clip=1.0, sigma=1.0))
    event = own.event({"sigma": 1.0, "clip": 1.0, "rounds": 3, "local_steps": 5}, FACTS)
    assert isinstance(event, NoClaim)
    assert "compose(event=...)" in event.reason
