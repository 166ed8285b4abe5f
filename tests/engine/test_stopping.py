"""What ends a run early, and what that tells: every statement of a run's privacy agrees."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import a_convex_problem, a_problem
from told import refused

import jaxfl
from jaxfl.core.types import ProblemFacts
from jaxfl.engine import checkpoint, results, stopping
from jaxfl.parts import sampling
from jaxfl.privacy import epsilon
from jaxfl.privacy.events import Event, Mean, Sampling
from jaxfl.privacy.gaussian import gdp_eps

NUMBERS = {"sigma": 0.5, "clip": 1.0, "lr": 0.1}
DELTA = 1e-3
FEDAVG = {"cohort": 2, "eps": 2.0, "lr": 0.1, "batch": 2, "local_steps": 1, "update_clip": 1.0}


def fedavg() -> jaxfl.Algorithm:
    return jaxfl.algorithm("dp_fedavg", participation=sampling.poisson_clients())


def agreed(run: jaxfl.Run) -> float:
    """The proven eps, which ledger, ``spent``, data set and summary state alike."""
    report, t = run.privacy(), int(run.state.t)
    assert run.ledger().proven.max() == pytest.approx(report.proven)
    assert run.spent([t])[0] == pytest.approx(report.proven)
    ds = run.dataset()
    words = results.privacy(results.config(ds))
    assert ("eps_spent" in ds) == math.isfinite(report.proven)
    if math.isfinite(report.proven):
        assert ds["eps_spent"].values[-1] == pytest.approx(report.proven)
        assert f"eps = {report.proven:.4g}" in words
    else:
        assert words.startswith("no eps proven")
        assert report.note in words
        assert not [name for name in ds if "eps" in str(name)]
    return float(report.proven)


@pytest.mark.parametrize(
    ("name", "stop", "given"),
    [
        ("ldp_gd", jaxfl.Stop(loss=9.0), NUMBERS),
        ("ldp_gd", jaxfl.Stop(loss=-1.0), NUMBERS),  # never reached, which tells as much
        ("ldp_sgd", jaxfl.Stop(gradients=1), {**NUMBERS, "batch": 4}),
        ("dp_fedavg", jaxfl.Stop(bits=1), FEDAVG),
        ("dp_fedavg", jaxfl.Stop(gradients=1), FEDAVG),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_what_reads_private_data_without_noise_proves_nothing(
    name: str, stop: jaxfl.Stop, given: Any, key: jax.Array, tmp_path: Path
) -> None:
    algorithm = fedavg() if name == "dp_fedavg" else jaxfl.algorithm(name)
    problem, file = a_problem(), tmp_path / "run.npz"
    more = {"eval_every": 1, "checkpoint": file}
    run = jaxfl.simulate(algorithm, problem, key, 4, stop=stop, **more, **given)
    t = int(run.state.t)
    assert t == (4 if stop.loss == -1.0 else 1)
    resumed = jaxfl.simulate(algorithm, problem, key, 5, resume=file)
    for one in (run, run.extend(t), run.extend(5), resumed):
        assert agreed(one) == math.inf
        assert one.privacy().flag
        assert "may end the run" in one.privacy().note
        assert "eps=" not in repr(one)
        assert "nan" not in str(one.ledger())


@pytest.mark.parametrize("stop", [None, 3, [{"loss": 1.0}], [{"loss": 1.0, "until": "x"}]])
def test_files_without_the_rule_are_flagged_and_damaged_ones_refused(
    stop: Any, key: jax.Array, tmp_path: Path
) -> None:
    file, problem = tmp_path / "run.npz", a_problem()
    run = jaxfl.simulate("ldp_gd", problem, key, 4, eval_every=1, stop=jaxfl.Stop(9.0), **NUMBERS)
    run.settings.pop("stop")
    if stop is not None:
        run.settings["stop"] = stop
    checkpoint.write(file, run)
    if stop is not None:
        refused(lambda: jaxfl.simulate("ldp_gd", problem, key, resume=file), "checkpoint of a run")
    else:
        assert agreed(jaxfl.simulate("ldp_gd", problem, key, resume=file)) == math.inf


@pytest.mark.parametrize("stop", [{"bits": 1}, {"gradients": 1}, {"seconds": 1e-9}, {"loss": 9.0}])
def test_public_quantities_keep_the_proof(stop: dict[str, float], key: jax.Array) -> None:
    """A loss of held-out data ends a run by what was released: all planned rounds count."""
    problem, rule = a_problem(), jaxfl.Stop(**stop)
    on = "test" if "loss" in stop else "train"
    given = {"eval_every": 1, "metrics_on": on, **NUMBERS}
    run = jaxfl.simulate("ldp_gd", problem, key, 20, stop=rule, **given)
    whole = jaxfl.simulate("ldp_gd", problem, key, 20 if "loss" in stop else 1, **NUMBERS)
    assert int(run.state.t) == 1
    assert agreed(run) == pytest.approx(whole.privacy().proven)
    assert run.privacy().note == ""


@pytest.mark.parametrize("clients", [False, True])
def test_noisy_losses_are_accounted_for(clients: bool, key: jax.Array, tmp_path: Path) -> None:
    """Of a record, a mean over m moves by B/m; of a client of a trusted server, one over n by B/n."""
    n, m, T, B, s = 5, 10, 20, 2.0, 0.4
    problem = dataclasses.replace(a_problem(), count=jnp.full(n, m, jnp.int32))
    name, given = "ldp_gd", dict(NUMBERS, delta=DELTA)
    release = 2 * 1.0 / m / 0.5
    if clients:
        name = "dp_fedavg"
        given = {"sigma": 0.5, "delta": DELTA, "lr": 0.1, "batch": 2, "update_clip": 1.0}
        release, m = 1.0 / n / 0.5, n
    file = tmp_path / "run.npz"
    rule = jaxfl.Stop(loss=5.0, bound=B, sigma=s)  # reached at once
    never = rule._replace(loss=-50.0)
    more = {"eval_every": 3, "checkpoint": file}
    run = jaxfl.simulate(name, problem, key, T, stop=rule, **more, **given)
    assert int(run.state.t) == 3

    def eps(rounds: int, checks: int) -> float:
        mu = math.sqrt(rounds * release**2 + checks * (B / m / s) ** 2)
        return float(gdp_eps(mu, DELTA))

    assert agreed(run) == pytest.approx(eps(T, 6), rel=1e-6)  # checks at 3, 6, ..., 18
    assert not run.privacy().note
    assert "6 noisy losses" in run.privacy().method
    assert run.spent([2])[0] == pytest.approx(eps(2, 0), rel=1e-6)
    assert agreed(run.extend(12)) == pytest.approx(eps(T, 6), rel=1e-6)
    assert agreed(run.extend(24, stop=never)) == pytest.approx(eps(24, 6 + 6), rel=1e-6)
    resumed = jaxfl.simulate(name, problem, key, T, stop=rule, resume=file)  # as after a kill
    assert agreed(resumed) == pytest.approx(eps(T, 6), rel=1e-6)


@pytest.mark.parametrize(("adjacency", "both"), [("replace_one", 2), ("zero_out", 1)])
def test_a_clients_own_noisy_loss_moves_by_the_whole_bound(adjacency: Any, both: int) -> None:
    """Without a trusted server each client shows its own mean loss: all m records together change
    it from 0 to B, one alone by B/m."""
    G, sigma, T, B, s = 1.5, 2.0, 20, 2.0, 0.9
    rows = Sampling("full", 1, 1)
    event = Event(rows, Mean(G), sigma, T, "client", adjacency, "local_transcript")
    facts = ProblemFacts(n=5, m=10, m_max=12, d=8, rounds=T, smoothness=None)
    rule = stopping.rule(jaxfl.Stop(loss=0.1, bound=B, sigma=s), 0, T, 3)
    found = stopping.checked(event, stopping.checks({"stop": [rule]}, T), facts)
    checks = 6  # after rounds 3, 6, ..., 18
    mu = math.sqrt(T * (both * G / sigma) ** 2 + checks * (B / s) ** 2)
    assert epsilon(found, DELTA).eps == pytest.approx(float(gdp_eps(mu, DELTA)), rel=1e-6)


def test_phases_pay_for_every_check(key: jax.Array) -> None:
    """A record lies in one phase, and in all losses."""
    problem = a_convex_problem(n=3, m=40)
    problem = dataclasses.replace(problem, count=jnp.full(3, 38, jnp.int32))
    run = jaxfl.simulate("localized_mbsgd", problem, key, 8, eps=1.0)
    bare = run.privacy().proven
    run.settings["stop"] = [stopping.rule(jaxfl.Stop(0.1, bound=1.0, sigma=1.0), 0, 8, 1)]
    event = run.event(8)
    assert epsilon(event, run.values["delta"]).eps > bare
    assert len(event.events) > 1
    for part in event.events:
        assert part.events[-1].releases == 7


def test_the_noisy_loss_is_bounded_and_noised(key: jax.Array) -> None:
    """One record moves a client's mean by B/m at most, whatever its loss; noise has the stated scale."""
    problem, B = a_problem(), 0.7
    event = jaxfl.simulate("ldp_gd", problem, key, 1, **NUMBERS).event(1)
    x, m = problem.x0, int(problem.count[0])

    def loss(a: float, sigma: float = 1e-9, t: int = 1) -> float:
        features, labels = problem.train
        moved = dataclasses.replace(problem, train=(features.at[0, 0].set(a), labels))
        stop = jaxfl.Stop(loss=0.0, bound=B, sigma=sigma)
        return stopping.noisy_loss(key, moved, x, t, stop, event)

    found = np.array([loss(a) for a in (-1e6, 0.0, 1e6, math.nan)])
    assert np.ptp(found) == pytest.approx(B / m / problem.n, rel=1e-3)
    noise = np.array([loss(0.0, 3.0, t) for t in range(400)]) - found[1]
    assert np.std(noise) == pytest.approx(3.0 / math.sqrt(problem.n), rel=0.12)
    assert abs(np.mean(noise)) < 0.25
    assert loss(0.0, 3.0, 7) == loss(0.0, 3.0, 7)


def test_metrics_of_held_out_data_read_no_record(key: jax.Array) -> None:
    problem = a_problem()
    run = jaxfl.simulate("ldp_gd", problem, key, 3, eval_every=1, metrics_on="test", **NUMBERS)
    usual = jaxfl.simulate("ldp_gd", problem, key, 3, eval_every=1, **NUMBERS)
    np.testing.assert_array_equal(run.x, usual.x)
    np.testing.assert_allclose(run.metrics["test_loss"], usual.metrics["test_loss"], rtol=1e-6)
    regularizer = float(problem.model.regularizer(run.x))
    gap = run.metrics["loss"][-1] - run.metrics["test_loss"][-1]
    assert gap == pytest.approx(regularizer, abs=1e-5)
    assert run.dataset()["loss"].attrs["long_name"].startswith("test loss")
    assert run.extend(4).settings["metrics_on"] == "test"
    refused(lambda: run.extend(5, metrics_on="train"), "metrics are taken on the test data")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"stop": jaxfl.Stop(loss=1.0, sigma=1.0)}, "belong together"),
        ({"stop": jaxfl.Stop(bits=1.0, bound=1.0)}, "belong together"),
        ({"stop": jaxfl.Stop(1.0, bound=1.0, sigma=1.0), "metrics_on": "test"}, "on the test data"),
        ({"metrics_on": "validation"}, "has none"),
        ({"metrics_on": "mine"}, "metrics_on"),
    ],
)
def test_rules_that_say_nothing_are_refused(given: Any, words: str, key: jax.Array) -> None:
    refused(lambda: jaxfl.simulate("ldp_gd", a_problem(), key, 3, **given, **NUMBERS), words)
