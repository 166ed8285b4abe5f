"""No eps is stated for what was put together so that its proof does not hold: it is refused, or
claims nothing."""

import dataclasses
import functools
import itertools
import math
import re
from typing import Any

import jax
import numpy as np
import optax
import pytest
from planned import federated, planned
from rows import a_problem
from told import refused

import jaxfl
from jaxfl.parts import (
    compose,
    compressors,
    estimators,
    local,
    mechanisms,
    plain,
    sampling,
    smoothing,
)
from jaxfl.parts.sampling import SAMPLERS, in_order, participation, sampler
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.events import NoClaim, protects
from jaxfl.privacy.reports import report
from jaxfl.problems import models

pytestmark = pytest.mark.once

DELTA = 1e-5
FACTS = jaxfl.core.types.ProblemFacts(5, 10, 10, 4, 3, 1.0)


def of(algorithm: Any, problem: jaxfl.Problem, rounds: int = 10, **numbers: float) -> Any:
    """The event of such a run."""
    return planned(algorithm, problem, rounds, **{"sigma": 0.2, "lr": 0.1, **numbers}).event


def even(regularizer: str | None = None, kind: str = "logistic") -> jaxfl.Problem:
    rng = np.random.default_rng(0)
    a, y = rng.normal(size=(6, 12, 4)).astype(np.float32), rng.integers(0, 2, (6, 12))
    data = jaxfl.data.from_clients((a, y), classes=2, stacked=True)
    model = models.logistic(4, regularizer=regularizer)
    return jaxfl.Problem(models.softmax_regression(4, 2) if kind == "softmax" else model, data)


PROTECTS = {
    "ldp_sgd": "one record of one client, replaced by another, .* every message of every client$",
    "private_local_sgd": "one record of one client, .* sees only the sum of the clients' messages",
    "mu2_trusted": "one record of one client, .* the models that a trusted server shows$",
    "dp_fedavg": "^all records of one client, its update replaced by zero, from an adversary",
    "fedsgd": "^$",
}


def test_what_an_eps_protects_from_whom() -> None:
    for name, words in PROTECTS.items():
        event = planned(name, FACTS._replace(diameter=1.0), 3).event
        assert re.search(words, protects(event)), name
        said = str(report(event, None, DELTA))
        assert f"\nprotects {protects(event)}" in said or not protects(event)


def test_a_mean_over_few_who_answer() -> None:
    """The noise is on the mean of those who answer, of whom there may be as few as the threshold."""
    for name in ("dp_gd", "dp_sgd"):
        given = {"cohort": 5, "dropout": 0.5, "threshold": 1}
        few = of(jaxfl.algorithm(name, participation="unreliable"), even(), **given)
        one = of(jaxfl.algorithm(name, participation="uniform"), even(), cohort=1)
        assert epsilon(few, DELTA).eps == pytest.approx(epsilon(one, DELTA).eps)


def test_other_optimizers_hide_nothing_in_a_sum() -> None:
    """The first step of Adam is a sign, and a sum of signs shows one of them whatever the noise."""
    ring = {"range": 10.0, "precision": 1e-4}
    for steps, rows in itertools.product((1, 3), ("shuffled", "with_replacement")):
        eps = []
        for how, more in (("secure_sum", ring), ("plain_sum", {})):
            parts = {"optimizer": lambda hp: optax.adam(hp["lr"]), "sampler": rows}
            algorithm = jaxfl.algorithm("private_local_sgd", aggregation=how, **parts)
            event = of(algorithm, even(), local_steps=steps, batch=4, **more)
            eps.append(epsilon(event, DELTA).eps)
        assert eps[0] == pytest.approx(eps[1])


def test_parts_under_which_the_proof_is_false() -> None:
    """d/k times a clipped update is not clipped; a longer first batch would hold records that the
    next one draws again."""
    random_k, rows = {"compressor": compressors.random_k()}, {"sampler": sampler("shuffled")}
    once = {"sampler": sampler("single_pass")}
    for names, parts, words in (
        (("dp_fedavg", "mu2_trusted"), random_k, "'random_k' does not"),
        (("isrl_svrg", "ldp_spider", "dp_srm"), rows, "'shuffled' does"),
        (("dp_srm", "ldp_spider"), once, "not apply where rounds"),
    ):
        for name in names:
            refused(lambda name=name, parts=parts: jaxfl.algorithm(name, **parts), words)


def test_convexity_is_not_believed_where_it_is_known_not_to_hold() -> None:
    """Nor of momentum, which is no contraction."""
    algorithm, given = jaxfl.algorithm("private_local_sgd", convex=True), {"local_steps": 3}
    for problem in (even(regularizer="nonconvex:0.2"), even(kind="softmax")):
        words = "convex=True does not hold for this model"
        refused(lambda p=problem: of(algorithm, p, batch=4, **given), words)
    optimizer = {"optimizer": lambda hp: optax.sgd(hp["lr"], 0.9), "convex": True}
    algorithm = jaxfl.algorithm("private_local_sgd", **optimizer)
    refused(lambda: of(algorithm, even(), batch=4, **given), "leave it or the optimizer out")


def test_neighbours_are_named() -> None:
    """Leaving a client out changes what a mean divides by, but where that is a fixed number."""
    for who, given, adjacency in (
        ("everyone", {}, "zero_out"),
        ("unreliable", {"cohort": 3, "dropout": 0.2, "threshold": 2}, "zero_out"),
        ("uniform", {"cohort": 3}, "replace_one"),
        ("poisson", {"cohort": 3}, "add_remove"),
    ):
        algorithm = jaxfl.algorithm("dp_fedavg", participation=participation(who))
        assert of(algorithm, even(), **given).adjacency == adjacency


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
    problem = jaxfl.Problem(models.logistic(3, constraint="ball:5"), data)
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
    algorithm = jaxfl.algorithm(name, sampler=rows)
    given = {"eps": 2.0, "lr": 0.1} | ({} if rows == "full" else {"batch": 4})
    given |= {"local_steps": 2} if name == "private_local_sgd" else {}
    plan = planned(algorithm, even(), 1, **given)
    assert plan.eps(plan.values["delta"]) == pytest.approx(2.0, rel=2e-3)
    if rows != "shuffled":
        refused(lambda: planned(algorithm, even(), 1, "paper", **given), "none that gives sigma")


def test_one_law_under_two_names() -> None:
    """A sampler of one's own says which law accountants know it by."""
    mine = sampler("poisson")._replace(name="mine", scheme="poisson")
    for name in ("cdp_sgd", "dp_sgd", "isrl_svrg"):
        for rows in ((sampler("poisson"), mine), (sampler("single_pass"), in_order())):
            made = [jaxfl.algorithm(name, sampler=each) for each in rows]
            one, other = (of(each, even(), 5, batch=2, sigma=0.5) for each in made)
            assert one == other


@pytest.mark.parametrize("part", ["local", "mechanism"])
def test_an_event_is_asked_for_where_the_usual_one_would_lie(part: str) -> None:
    """The body's own counts one noised message a round."""
    steps = local.steps(estimators.minibatch(sampler("full")), mechanisms.gaussian(), local.free())
    parts: Any = {"local": steps} if part == "local" else {"mechanism": mechanisms.central()}
    body = federated(estimator=estimators.minibatch(sampler("full")), **parts)
    own = compose("own", "", "", body, plain(clip=1.0, sigma=1.0))
    event = own.event({"sigma": 1.0, "clip": 1.0, "rounds": 3, "local_steps": 5}, FACTS)
    assert isinstance(event, NoClaim)
    assert "compose(event=...)" in event.reason


def made(estimator: jaxfl.parts.Estimator, **parts: Any) -> jaxfl.parts.Algorithm:
    body = federated(estimator=estimator, **parts)
    numbers = {"clip": 1.0, "sigma": 0.5, "batch": 2, "refresh": 0.5, "moreau": 1.0, "spread": 1.0}
    return compose("mine", "mine", "here", body, plain(**numbers, lr=0.1))


def test_a_single_pass_is_not_begun_anew() -> None:
    fresh = "fresh = True restarts in every round"
    for name in ("private_local_sgd", "local_dp_sgd"):
        for rows in (sampling.single_pass(), sampling.in_order()):
            parts = {"sampler": rows, "fresh": True}
            refused(functools.partial(jaxfl.algorithm, name, **parts), fresh)
            jaxfl.algorithm(name, sampler=rows)


@pytest.mark.parametrize("transform", [smoothing.moreau, smoothing.convolution])
def test_snapshots_of_smoothed_losses_claim_nothing(transform: Any) -> None:
    """Their full gradients are those of the loss itself."""
    smooth = lambda estimator: made(transform(estimator(sampling.full())))  # noqa: E731
    assert math.isfinite(planned(smooth(estimators.minibatch), a_problem(), 5).eps(DELTA))
    for estimator in (estimators.svrg, estimators.saga):
        lost = planned(smooth(estimator), a_problem(), 5).event
        assert "the sensitivity of" in lost.reason


@pytest.mark.parametrize("estimator", [estimators.minibatch, estimators.svrg, estimators.saga])
def test_whoever_leaves_clipping_to_others_is_clipped(estimator: Any) -> None:
    def eps(examples: bool, clip: str) -> float:
        algorithm = made(estimator(sampling.full(), examples), clip=clip)
        plan = planned(algorithm, a_problem(), 5)
        values = {**plan.values, "gradient_bound": 10.0}
        return plan._replace(values=values).eps(DELTA)

    assert math.isfinite(eps(True, "example"))
    assert math.isfinite(eps(False, "batch"))
    if estimator is estimators.minibatch:
        refused(lambda: eps(False, "example"), "'minibatch' clips no example")
    else:
        assert eps(False, "example") == math.inf
    refused(lambda: eps(True, "batch"), "clips every example already")


def test_rounding_moves_what_is_drawn_and_what_is_not() -> None:
    """Where one of two neighbours alone draws the record, both sums are rounded."""
    proven = {}
    for rows in ("poisson", "without_replacement"):
        algorithm = jaxfl.algorithm("distributed_dp_srm", sampler=sampling.sampler(rows))
        given = {"batch": 4, "sigma": 0.5, "lr": 0.1, "range": 64.0, "precision": 0.01, "clip": 1e-6,
                 "momentum": 1.0, "difference_clip": 1e-6, "step_limit": 1.0}  # fmt: skip
        plan = planned(algorithm, a_problem(n=1), 2, **given)
        later, _ = plan.event.events
        proven[rows] = later.sensitivity.clip
    d = plan.facts.d
    assert proven["without_replacement"] == pytest.approx(4 * 0.005 * d**0.5, rel=1e-3)
    assert proven["poisson"] == pytest.approx(2 * proven["without_replacement"], rel=1e-3)
