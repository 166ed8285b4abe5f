"""Combinations of parts and words in which a proof would be false: they are refused, or claim nothing."""

import math
from typing import Any

import jax
import numpy as np
import pytest
from planned import federated, planned
from rows import a_problem
from told import refused

import jaxfl
from jaxfl.algorithms import compose, plain
from jaxfl.parts import estimators, sampling, smoothing

pytestmark = pytest.mark.once


def made(estimator: jaxfl.types.Estimator, **parts: Any) -> jaxfl.Algorithm:
    body = federated(estimator=estimator, **parts)
    resolve = plain(clip=1.0, sigma=0.5, lr=0.1, batch=2, refresh=0.5, moreau=1.0, spread=1.0)
    return compose("mine", "mine", "here", body, resolve)


def claim(algorithm: jaxfl.Algorithm) -> Any:
    return planned(algorithm, a_problem(), 5).event


@pytest.mark.parametrize("rows", ["single_pass", "in_order"])
@pytest.mark.parametrize("name", ["private_local_sgd", "local_dp_sgd"])
def test_a_single_pass_is_not_begun_anew(name: str, rows: str) -> None:
    sampler = getattr(sampling, rows)()
    fresh = "fresh = True restarts in every round"
    refused(lambda: jaxfl.algorithm(name, sampler=sampler, fresh=True), fresh)
    jaxfl.algorithm(name, sampler=sampler)


@pytest.mark.parametrize("transform", [smoothing.moreau, smoothing.convolution])
def test_snapshots_of_smoothed_losses_claim_nothing(transform: Any) -> None:
    """Their full gradients are those of the loss itself."""
    kept = claim(made(transform(estimators.minibatch(sampling.full()))))
    assert math.isfinite(jaxfl.privacy.epsilon(kept, 1e-5).eps)
    for estimator in (estimators.svrg, estimators.saga):
        lost = claim(made(transform(estimator(sampling.full()))))
        assert "the sensitivity of" in lost.reason


@pytest.mark.parametrize("estimator", [estimators.minibatch, estimators.svrg, estimators.saga])
def test_whoever_leaves_clipping_to_others_is_clipped(estimator: Any) -> None:
    bound = {"gradient_bound": 10.0}

    def eps(examples: bool, clip: str) -> float:
        algorithm = made(estimator(sampling.full(), examples), clip=clip)
        plan = planned(algorithm, a_problem(), 5)
        event = algorithm.event(plan.values | bound, plan.facts)  # type: ignore[misc]
        return float(jaxfl.privacy.epsilon(event, 1e-5).eps)

    assert math.isfinite(eps(True, "example"))
    assert math.isfinite(eps(False, "batch"))
    assert eps(False, "example") == math.inf
    assert math.isfinite(eps(True, "batch")) == (estimator is estimators.saga)


def test_a_loss_that_ends_a_run_tells_of_the_data(key: jax.Array) -> None:
    """All rounds that were planned count; a run that ended by itself counts its own."""
    given = {"eps": 1.0, "lr": 0.1}
    problem = a_problem()
    early = jaxfl.simulate(
        "ldp_gd", problem, key, 20, eval_every=1, stop=jaxfl.Stop(loss=9.0), **given
    )
    assert int(early.state.t) == 1
    report = early.privacy()
    assert report.proven == pytest.approx(1.0, rel=1e-3)
    assert report.flag
    assert "the loss decided when this run ended" in report.note
    assert early.spent([1])[0] < 0.5
    bits = jaxfl.simulate(
        "ldp_gd", problem, key, 20, eval_every=1, stop=jaxfl.Stop(bits=1), **given
    )
    assert (int(bits.state.t), bits.privacy().note) == (1, "")
    assert bits.privacy().proven < 0.5
    longer = early.extend(30, stop=jaxfl.Stop(loss=9.0))
    assert longer.privacy().proven > 1.1


def test_who_took_part_is_no_reason_where_it_is_hidden(key: jax.Array) -> None:
    """Clients drawn by coins are hidden among the others: what is proven is proven of each."""
    algorithm = jaxfl.algorithm("dp_fedavg", participation=sampling.poisson_clients())
    numbers = {"cohort": 1, "eps": 2.0, "lr": 0.1, "batch": 2, "local_steps": 1, "update_clip": 1.0}
    run = jaxfl.simulate(algorithm, a_problem(), key, 2, **numbers)
    book = run.ledger()
    assert 0 in book.turns
    np.testing.assert_allclose(book.proven, run.privacy().proven)


def test_rounding_moves_what_is_drawn_and_what_is_not() -> None:
    """Where one of two neighbours alone draws the record, both sums are rounded."""
    proven = {}
    for rows in ("poisson", "without_replacement"):
        algorithm = jaxfl.algorithm("distributed_dp_srm", sampler=sampling.sampler(rows))
        given = {"batch": 4, "sigma": 0.5, "lr": 0.1, "range": 64.0, "precision": 0.01, "clip": 1e-6,
                 "momentum": 1.0, "difference_clip": 1e-6, "step_limit": 1.0}  # fmt: skip
        plan = planned(algorithm, a_problem(n=1), 1, **given)
        later, _ = plan.event.events
        proven[rows] = later.sensitivity.clip
    d = plan.facts.d
    assert proven["without_replacement"] == pytest.approx(4 * 0.005 * d**0.5, rel=1e-3)
    assert proven["poisson"] == pytest.approx(2 * proven["without_replacement"], rel=1e-3)
