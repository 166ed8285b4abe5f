"""clip="batch" with a bound on every example's gradient: what is proven, enforced, and said."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import planned
from rows import a_problem
from scipy.special import ndtr
from told import refused

import jaxfl
from jaxfl.audits.checks import sensitivity
from jaxfl.engine import results
from jaxfl.privacy.accountants import delta, epsilon
from jaxfl.privacy.claims import above
from jaxfl.privacy.events import Event, Mean, Sampling, batch_clipped, saga, svrg
from jaxfl.privacy.gaussian import gdp_eps
from jaxfl.privacy.profiles import poisson
from jaxfl.problems import identity

pytestmark = pytest.mark.once

DELTA = 1e-4


def proven(estimator: Mean, scheme: str = "poisson", b: int = 10, **more: Any) -> float:
    m = 100
    how = Sampling(scheme, m, m if scheme == "full" else b)
    return epsilon(Event(how, estimator, sigma=0.8, releases=10, **more), DELTA).eps


@pytest.mark.parametrize(
    "scheme", ["full", "poisson", "without_replacement", "with_replacement", "shuffled"]
)
def test_a_small_bound_counts_as_a_clip_and_a_large_one_as_twice_the_whole(scheme: str) -> None:
    """A projection brings no points further apart, and its ball has a diameter."""
    assert proven(batch_clipped(0.3, 1.0), scheme) == proven(Mean(0.3), scheme)
    some = [proven(batch_clipped(bound, 0.05), scheme) for bound in (0.3, 1.0, 50.0, 1e9)]
    assert some == sorted(some)
    assert some[2] == some[3] if scheme != "full" else some[2] < proven(Mean(50.0), scheme)
    if scheme == "full":
        assert some[3] == pytest.approx(gdp_eps(2 * 0.05 * math.sqrt(10) / 0.8, DELTA))
    assert proven(batch_clipped(None, 0.05), scheme) == math.inf


@pytest.mark.plain
@pytest.mark.parametrize("q", [0.01, 0.2])
@pytest.mark.parametrize("eps", [0.1, 1.0, 3.0])
def test_where_an_undrawn_record_leaves_the_mean_at_the_rim(q: float, eps: float) -> None:
    """Undrawn the mean is -G; drawn one record takes it to +G, and the other leaves it: shares of
    2G and 0, which the pair of +G and -G around an undrawn mean of 0 does not dominate."""
    G = 1.0
    event = Event(Sampling("poisson", 1000, 1000 * q), batch_clipped(1e9, G), sigma=1.0, releases=1)
    # log ratio of (1-q) N(-1) + q N(1) to N(-1) exceeds eps above x, where it is increasing
    x = math.log((math.exp(eps) - 1 + q) / q) / (2 * G)
    attack = (1 - q) * ndtr(-x - G) + q * ndtr(G - x) - math.exp(eps) * ndtr(-x - G)
    assert attack <= delta(event, eps).delta
    symmetric = float(poisson(q, G)(np.array([eps]))[0][0])
    assert eps == 0.1 or attack > 1.05 * symmetric  # so G in place of 2G would be false


def test_batch_clipped_variance_reduction_does_not_use_the_chain_bound() -> None:
    for make in (svrg, saga):
        clipped = batch_clipped(0.3, 1.0, make)
        assert proven(clipped) == proven(saga(0.3))
        found = epsilon(Event(Sampling("poisson", 100, 10), clipped, 0.8, 10), DELTA)
        assert "coins revealed" in found.method
    assert proven(svrg(0.3)) < proven(batch_clipped(0.3, 1.0, svrg))  # the chain is tighter
    for scheme in ("poisson", "with_replacement"):  # at most 2G apart, drawn or not, in all rounds
        most = gdp_eps(2 * 0.05 * math.sqrt(10) / 0.8, DELTA)
        assert proven(batch_clipped(1e9, 0.05, svrg), scheme) <= most * (1 + 1e-3)


NAMES = ("ldp_gd", "ldp_sgd", "ldp_svrg", "soteriafl_saga")


def numbers_of(name: str) -> dict[str, Any]:
    batch = {} if name.endswith("_gd") else {"batch": 4}
    return batch | ({"refresh": 0.3} if "svrg" in name else {})


def batch_clipping(name: str, **parts: Any) -> jaxfl.parts.Algorithm:
    return jaxfl.algorithm(name, clip="batch", compressor="identity", **parts)


@pytest.mark.parametrize(
    ("name", "clip"), [*((name, 0.2) for name in NAMES), ("ldp_sgd", 100.0), ("ldp_svrg", 100.0)]
)
def test_no_record_moves_a_message_by_more_than_is_declared(name: str, clip: float) -> None:
    """The record's own gradient is a million times the bound that was stated of it."""
    of = {"rounds": 6, "m": 8, "clip": clip, "gradient_bound": 1.0, **numbers_of(name)}
    found = sensitivity(batch_clipping(name), key=jax.random.key(0), **of)
    assert found.bound is not None
    assert 0.3 * found.bound < found.moved <= found.bound * (1 + 1e-4)  # float32
    assert clip > 1 or found.moved <= 2 * clip * (1 + 1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", ["ldp_gd", "soteriafl_saga"])
def test_a_bound_that_holds_changes_no_number(name: str) -> None:
    algorithm, numbers = batch_clipping(name), {"sigma": 0.5, "lr": 0.2, **numbers_of(name)}
    runs = [
        jaxfl.simulate(algorithm, a_problem(), jax.random.key(0), 9, **numbers, **more)
        for more in ({}, {"gradient_bound": 100.0})
    ]
    np.testing.assert_array_equal(runs[0].x, runs[1].x)
    assert runs[0].privacy().proven == math.inf
    report = runs[1].privacy()
    assert math.isfinite(report.proven)
    assert report.note == ""
    about = results.config(runs[1].dataset())
    assert results.privacy(about).startswith(
        f"eps = {above(report.proven):.4g}, delta = 0.001 proven"
    )
    assert "eps_spent" in runs[1].dataset()


def test_what_is_proven_is_the_event_of_the_bound() -> None:
    """Of five clients in a sum, whose noises add up, the proof is that of sqrt(5) sigma."""
    given = {"sigma": 3.0, "gradient_bound": 20.0, "clip": 1.5}
    plan = planned(batch_clipping("ldp_gd"), a_problem(n=5), 7, **given)
    share = min(2 * 20.0 / int(np.min(plan.problem.count)), 2 * 1.5)
    assert plan.eps(1e-3) == pytest.approx(gdp_eps(share * math.sqrt(7) / 3.0, 1e-3))
    secure = batch_clipping("ldp_gd", aggregation="secure_sum")
    given |= {"sigma": 3.0 / math.sqrt(5), "range": 64.0, "lr": 0.1}
    hidden = planned(secure, plan.problem, 7, **given)
    assert hidden.eps(1e-3) == pytest.approx(plan.eps(1e-3), rel=1e-4)
    given = {"eps": 3.0, "lr": 0.1, "clip": 1.5}
    plan = planned(batch_clipping("ldp_gd"), plan.problem, 7, gradient_bound=20.0, **given)
    assert plan.eps(plan.values["delta"]) == pytest.approx(3.0, rel=1e-3)
    words = "give gradient_bound, give noise='paper' for"
    refused(lambda: planned(batch_clipping("ldp_gd"), plan.problem, 7, **given), words)


def test_a_mean_that_is_clipped_alone_has_neither_eps_nor_multiplier() -> None:
    problem, of = a_problem(), {"rounds": 2, "sigma": 3.0, "lr": 0.1, "clip": 0.5, "delta": 1e-3}
    report = jaxfl.simulate(batch_clipping("ldp_gd"), problem, **of).privacy()
    assert math.isinf(report.proven)
    assert report.multiplier is None
    eps = jaxfl.simulate(jaxfl.algorithm("ldp_gd", clip="client"), problem, **of).privacy().proven
    words = (
        f"clip='client' states an eps for that, {above(eps):.4g} at this delta, which covers one"
    )
    assert words in str(report)
    assert words in str(report.card())


def largest_by_hand(problem: jaxfl.Problem, x: Any) -> float:
    gradient, (a, y) = jax.grad(problem.model.loss), problem.train
    return max(
        float(np.linalg.norm(gradient(x, (a[i, j], y[i, j]))))
        for i in range(problem.n)
        for j in range(int(problem.count[i]))
    )


def test_a_bound_that_does_not_hold_raises_the_flag() -> None:
    """At the first point, or only at the last; eps holds all the same, since it is enforced."""
    problem = a_problem()
    first = largest_by_hand(problem, problem.x0)

    def run(bound: float, lr: float) -> jaxfl.Run:
        given = {"sigma": 5.0, "lr": lr, "gradient_bound": bound}
        return jaxfl.simulate(batch_clipping("ldp_gd"), problem, jax.random.key(0), 9, **given)

    early = run(0.9 * first, 0.01).privacy()
    assert f"norm {first:.4g} at round 0" in early.note
    assert early.flag
    assert str(early).startswith("RED FLAG")
    assert "does not hold on these data" in str(early)
    assert run(1.1 * first, 1e-6).privacy().note == ""
    assert run(first * (1 - 1e-7), 1e-6).privacy().note == ""  # rounding
    late = run(1.1 * first, 3.0)
    last = largest_by_hand(problem, late.x)
    assert f"norm {last:.4g} at round 9" in late.privacy().note
    assert "gradient_bound" in results.privacy(results.config(late.dataset()))


@pytest.mark.parametrize("numbers", [50, 2**22])
def test_padding_is_no_example(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows beyond a client's count do not count, whatever they hold, in blocks of 5 or at once."""
    problem = a_problem(m=13)
    a, y = problem.train
    live = np.arange(problem.m_max)[None] < np.asarray(problem.count)[:, None]
    filled = np.where(live[..., None], np.asarray(a), np.float32(np.nan))
    noisy = dataclasses.replace(problem, train=(jnp.asarray(filled), y))
    monkeypatch.setattr(identity, "NUMBERS", numbers)
    most = identity.largest_gradient.__wrapped__(noisy, problem.x0)
    assert float(most) == pytest.approx(largest_by_hand(problem, problem.x0), rel=1e-5)


def test_bounds_that_do_not_apply() -> None:
    words = r"gradient_bound = 2\.0 applies only where the batch's mean"
    refused(lambda: planned("ldp_sgd", a_problem(), 3, gradient_bound=2.0), words)
    words = "gradient_bound = 0 must be above 0"
    refused(lambda: planned(batch_clipping("ldp_sgd"), a_problem(), 3, gradient_bound=0), words)
