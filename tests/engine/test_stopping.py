"""What ends a run early, and what that tells: every statement of a run's privacy agrees."""

import dataclasses
import math
import re
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import a_convex_problem, a_problem
from scipy.stats import norm
from scripts import ROOT
from told import refused

import jaxfl
from jaxfl.algorithms.resolution import resolve
from jaxfl.core.errors import JaxflWarning
from jaxfl.core.types import ProblemFacts
from jaxfl.engine import compute, results, stopping
from jaxfl.privacy import best_of, epsilon
from jaxfl.privacy.claims import above
from jaxfl.privacy.events import Event, Mean, Sampling
from jaxfl.privacy.gaussian import gdp_eps
from jaxfl.privacy.losses import checked, deviation
from jaxfl.problems.facts import facts_of
from jaxfl.views import cells, selection, tables
from jaxfl.views.plots import lines

KEY = jax.random.key(0)
NUMBERS = {"sigma": 0.5, "clip": 1.0, "lr": 0.1}
DELTA = 1e-3
FEDAVG = {"cohort": 2, "eps": 2.0, "lr": 0.1, "batch": 2, "local_steps": 1, "update_clip": 1.0}
FEDAVG |= {"participation": "poisson", "seed": 3}  # of which some clients are in the first round


def ran(rounds: int, name: Any = "ldp_gd", problem: Any = None, **given: Any) -> jaxfl.Run:
    problem = a_problem() if problem is None else problem
    given = {**NUMBERS, **given} if name != "dp_fedavg" else given
    return jaxfl.simulate(name, problem, KEY, rounds, **{"eval_every": 1, **given})


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
        assert f"eps = {above(report.proven):.4g}" in words
    else:
        assert words.startswith("no eps proven")
        assert report.note in words
        assert "eps=" not in repr(run)
        assert "nan" not in str(run.ledger())
    return float(report.proven)


PRIVATE = [
    ("ldp_gd", dict(loss=9.0), {}),
    ("ldp_gd", dict(loss=-1.0), {}),  # never reached, which tells as much
    pytest.param("ldp_sgd", dict(gradients=1), {"batch": 4}, marks=pytest.mark.plain),
    ("dp_fedavg", dict(bits=1), FEDAVG),
]


@pytest.mark.parametrize(("name", "stop", "given"), PRIVATE, ids=range(len(PRIVATE)))
def test_what_reads_private_data_without_noise_proves_nothing(
    name: str, stop: dict[str, float], given: Any, tmp_path: Path
) -> None:
    """Nor of what goes on without the rule: in memory, or in the folder; nor in a sweep."""
    run = ran(4, name, stop=stop, out=tmp_path / "run", **given)
    t = int(run.state.t)
    assert t == (4 if stop.get("loss") == -1.0 else 1)
    resumed = ran(4, name, out=tmp_path / "run", extend=True, **given)
    memory = ran(4, name, stop=stop, **given)
    for one in (run, resumed, memory.extend(t), memory.extend(5)):
        assert agreed(one) == math.inf
        assert one.privacy().flag
        assert "may end the run" in one.privacy().note
    if name == "ldp_gd":
        grid = {**NUMBERS, "lr": [0.1, 0.2], "rounds": 4, "eval_every": 1}
        ds = jaxfl.sweep(name, a_problem(), KEY, stop=stop, **grid)
        assert np.isinf(ds["proven_eps"]).all()
        assert (np.isnan(ds["stopped_at"]) if t == 4 else ds["stopped_at"] == 1).all()
        (way,) = (note for note in tables.table(ds).notes if "may end the run" in note)
        assert way.startswith("ldp_gd: the ")
        assert ("give it noise (bound and sigma" in way) == ("loss" in stop)
        assert ("or --loss-bound and --loss-sigma" in run.privacy().method) == ("loss" in stop)


def test_a_rule_on_the_exact_loss_warns_once_of_noise_that_is_cheap() -> None:
    given: Any = {"clip": 1.0, "lr": 0.1, "eps": 3.0, "rounds": 4, "eval_every": 1}
    with pytest.warns(JaxflWarning, match="The exact loss") as said:
        jaxfl.sweep("ldp_gd", a_problem(), KEY, **given | {"lr": [0.1, 0.2]}, stop={"loss": -9.0})
    (found,) = [re.findall(r"sigma = (\S+) times bound", str(one.message)) for one in said]
    for share, most in ((1.0, 3.3), (0.99, math.inf)):
        rule = {"loss": -9.0, "bound": 4.0, "sigma": 4.0 * share * float(found[0])}
        proven = jaxfl.simulate("ldp_gd", a_problem(), KEY, **given, stop=rule).privacy().proven
        assert min(most, 3.3) * 0.999 < proven <= most
    with pytest.warns(JaxflWarning, match="number of gradients .* no eps holds then: leave it out"):
        ran(2, "ldp_sgd", stop={"gradients": 1}, batch=4)


def test_a_sweep_is_judged_by_where_a_rule_stopped_its_runs() -> None:
    """A step that reaches the loss is the best, and no view takes a stopped run for a lost one."""
    grid: dict[str, Any] = {"lr": [1e-3, 0.05, 0.1], "batch": 1, "rounds": 20, "seeds": 3}
    ds = jaxfl.sweep("fedsgd", a_problem(), KEY, stop={"loss": 0.45}, eval_every=1, **grid)
    stopped = ds["stopped_at"].sel(lr=[0.05, 0.1])
    last = ds["stopped_at"].fillna(20).max("seed")
    assert (stopped < 20).all()
    assert (stopped.max("seed") > stopped.min("seed")).all()
    for name in ("loss", "uplink_bits"):
        ended = ds[name].sel(round=ds["stopped_at"].fillna(20))
        assert (cells.Grid.of(ds).final(name) == ended).all()
    best = selection.select(ds)
    means = cells.Grid.of(ds).final("loss").mean("seed")
    assert best.ds["chosen_lr"].item() == means.idxmin("lr").item() > 1e-3
    for words in (best.note, str(tables.table(ds)), str(tables.table(best.ds))):
        assert "left out" not in words
        assert "diverged" not in words
    rounds = tables.to_target(ds, target=0.45)["rounds_to_target"]
    assert np.isfinite(rounds.sel(lr=[0.05, 0.1])).all()
    found = cells.Grid.of(ds)
    for along in ("round", "uplink_bits"):  # curves go on until the last seed has ended
        for (_, cell), line in zip(
            found.cells.iterrows(), lines(found, "loss", along).values(), strict=True
        ):
            assert line.y[-1] == pytest.approx(means.sel(lr=cell["lr"]).item())
            assert np.isfinite(line.y).all()
            if along == "round":
                assert line.x[-1] == last.sel(lr=cell["lr"])


HELD = pytest.param({"loss": 9.0}, marks=pytest.mark.plain)


@pytest.mark.parametrize("stop", [{"bits": 1}, {"gradients": 1}, {"seconds": 1e-9}, HELD])
def test_public_quantities_keep_the_proof(stop: dict[str, float]) -> None:
    """A loss of held-out data ends a run by what was released: all planned rounds count."""
    on = "test" if "loss" in stop else "train"
    run = ran(20, stop=stop, metrics_on=on)
    whole = ran(20 if "loss" in stop else 1)
    assert int(run.state.t) == 1
    assert agreed(run) == pytest.approx(whole.privacy().proven)
    for event in (run.event(), run.event(1)):
        assert best_of(event, 1, run.delta).eps == pytest.approx(run.privacy().proven)
    assert run.privacy().note == ""
    notes = jaxfl.views.figures(run.dataset())["curves"].get_label()
    assert ("and at the end of all planned rounds" in notes) == ("loss" in stop)


@pytest.mark.plain
@pytest.mark.parametrize("clients", [False, True])
def test_noisy_losses_are_accounted_for(clients: bool, tmp_path: Path) -> None:
    """Of a record, a mean over m moves by B/m; of a client of a trusted server, one over n by B/n."""
    n, m, T, B, s = 5, 10, 20, 2.0, 0.4
    problem = dataclasses.replace(a_problem(), count=jnp.full(n, m, jnp.int32))
    name, release, given = "ldp_gd", 2 * 1.0 / m / 0.5, {}
    if clients:
        name, release, m = "dp_fedavg", 1.0 / n / 0.5, n
        given = {"sigma": 0.5, "lr": 0.1, "batch": 2, "update_clip": 1.0}
    given = {**given, "problem": problem, "delta": DELTA, "eval_every": 3}
    rule = dict(loss=5.0, bound=B, sigma=s)  # reached at once
    never = {**rule, "loss": -50.0}
    run = ran(T, name, stop=rule, out=tmp_path / "run", **given)
    assert int(run.state.t) == 3

    def eps(rounds: int, checks: int) -> float:
        mu = math.sqrt(rounds * release**2 + checks * (B / m / s) ** 2)
        return float(gdp_eps(mu, DELTA))

    assert agreed(run) == pytest.approx(eps(T, 6), rel=1e-6)  # checks at 3, 6, ..., 18
    assert not run.privacy().note
    assert "6 noisy losses" in run.privacy().method
    assert f"in 3 rounds each: proven eps of all {T} planned rounds " in str(run.ledger())
    assert run.spent([2])[0] == pytest.approx(eps(2, 0), rel=1e-6)
    resumed = ran(T, name, stop=rule, out=tmp_path / "run", resume=True, **given)
    assert agreed(resumed) == pytest.approx(eps(T, 6), rel=1e-6)
    memory = ran(T, name, stop=rule, **given)
    longer = memory.extend(12)
    assert agreed(longer) == pytest.approx(eps(T, 6), rel=1e-6)
    assert agreed(longer.extend(24, stop=never)) == pytest.approx(eps(24, 6 + 3), rel=1e-6)


@pytest.mark.plain
def test_the_price_of_the_noisy_rule_in_the_docs() -> None:
    text = " ".join((ROOT / "docs/privacy.md").read_text("utf-8").split())
    facts = ProblemFacts(10, 1000, 1000, 100, 100, 1.0)
    algorithm = jaxfl.algorithm("ldp_gd")
    values = resolve(algorithm, {"eps": 2.0, "delta": 1e-4, "lr": 0.1}, facts).values
    rounds = algorithm.event(values, facts)
    one, two = (epsilon(checked(rounds, {(4.0, s): 9}, facts), 1e-4).eps for s in (0.1, 0.01))
    assert '{"loss": 0.5, "bound": 4.0, "sigma": 0.1}`, `eval_every=10`' in text
    assert f'make it {above(one)}, and with `"sigma": 0.01` {above(two)}.' in text


@pytest.mark.plain
@pytest.mark.parametrize(("sigma", "dear"), [(0.1, True), (1e3, False)])
def test_noisy_losses_that_cost_more_than_was_asked_for_are_named(sigma: float, dear: bool) -> None:
    rule = {"loss": -1e4, "bound": 4.0, "sigma": sigma}
    run = ran(8, stop=rule, sigma=None, eps=4.0, eval_every=2)
    report = run.privacy()
    assert "calibrated" not in repr(run)  # for another eps
    named = "the 8 rounds have 4, and" in report.note and "3 noisy losses" in report.note
    assert (named, "evaluate less often" in report.note) == (dear, dear)
    assert (f"{above(report.proven):.4g} with" in report.note) == (report.proven > 4.1) == dear
    if dear:
        ratio = float(re.findall(r"noise \(sigma = (.*) times bound takes", report.note)[0])
        least = ran(8, stop={**rule, "sigma": ratio * 4}, sigma=None, eps=4.0, eval_every=2)
        assert 4.3 < least.privacy().proven <= 4.4
        assert "noise (a larger sigma)" in least.privacy().note
    same: Any = dict(stop=rule, eps=4.0, eval_every=2, rounds=8, batch=2, lr=0.1, clip=1.0)
    for result in (run.dataset(), jaxfl.sweep("ldp_sgd", run.problem, **same)):
        assert (", with 3 noisy losses that" in str(jaxfl.views.table(result))) == dear


def test_noise_that_would_end_a_run_by_itself_is_named() -> None:
    """At twice the limit, 3 checks end it with probability 1 - Phi(limit/std)^3."""
    given: Any = dict(sigma=None, eps=4.0, eval_every=2)
    rule, n = {"loss": 0.1, "bound": 1.0, "sigma": 0.3}, a_problem().n
    std = 0.3 / math.sqrt(n)
    chance = f"with probability {1 - norm.cdf(0.1 / std) ** 3:.2g}: check less often"
    named = f"0.1 has noise of deviation {std:.2g}: a run whose loss stays at 0.2 ends {chance}"
    with pytest.warns(JaxflWarning, match=named):
        ran(8, stop=rule, **given)
    with pytest.warns(JaxflWarning, match="has noise of deviation"):
        ended = ran(8, stop={**rule, "loss": 5.0, "sigma": 50.0}, **given).ended
    assert re.search(f"loss .*, with noise of deviation {50 / math.sqrt(n):.2g}, reached 5", ended)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ran(8, stop={**rule, "sigma": 0.01, "bound": 0.05}, **given)


def test_a_rule_holds_until_it_is_dropped(tmp_path: Path) -> None:
    """More rounds under the same rule end where it ended the run; without it they go on."""
    given: Any = {"stop": dict(bits=3000), "eval_every": 2}
    whole, run = ran(12, eval_every=2), ran(8, **given, out=tmp_path)
    t = int(run.state.t)
    assert 2 < t < 8
    assert run.dataset()["uplink_bits"].values[-2] < 3000 <= run.totals["uplink_bits"]
    longer = ran(12, **given, out=tmp_path, extend=True)
    assert (longer.ended, int(longer.state.t)) == (run.ended, t)
    assert longer.ended.startswith("stopped: ")
    np.testing.assert_array_equal(longer.x, run.x)
    free = ran(12, eval_every=2, out=tmp_path, extend=True)
    np.testing.assert_array_equal(free.x, whole.x)
    np.testing.assert_array_equal(free.metrics["loss"], whole.metrics["loss"])
    assert (free.ended, free.log.counts) == ("finished", whole.log.counts)
    np.testing.assert_array_equal(run.extend(12).x, whole.x)


def test_a_resumed_run_is_stopped_where_it_would_have_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it was interrupted just before, or just after, its rule was checked."""
    given: Any = {"stop": dict(bits=3000), "eval_every": 2}
    whole, reached = ran(8, **given), stopping.reached

    def interrupted(*args: Any) -> str:
        if reached(*args):
            raise KeyboardInterrupt
        return ""

    def ended(*args: Any) -> None:
        raise KeyboardInterrupt

    for module, name, function in ((stopping, "reached", interrupted), (compute, "finish", ended)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, function)
            with pytest.raises(KeyboardInterrupt):
                ran(8, out=tmp_path / name, **given)
        again = ran(8, out=tmp_path / name, resume=True, **given)
        assert (again.ended, again.log.counts) == (whole.ended, whole.log.counts)
        np.testing.assert_array_equal(again.x, whole.x)


@pytest.mark.parametrize(("adjacency", "both"), [("replace_one", 2), ("zero_out", 1)])
def test_a_clients_own_noisy_loss_moves_by_the_whole_bound(adjacency: Any, both: int) -> None:
    """Without a trusted server each client shows its own mean loss: all m records together change
    it from 0 to B, one alone by B/m."""
    G, sigma, T, B, s = 1.5, 2.0, 20, 2.0, 0.9
    rows = Sampling("full", 1, 1)
    event = Event(rows, Mean(G), sigma, T, "client", adjacency, "local_transcript")
    facts = ProblemFacts(n=5, m=10, m_max=12, d=8, rounds=T, smoothness=None)
    rule = stopping.rule(stopping.Stop(loss=0.1, bound=B, sigma=s), 0, T, 3)
    found = checked(event, stopping.checks({"stop": [rule]}, T), facts)
    checks = 6  # after rounds 3, 6, ..., 18
    mu = math.sqrt(T * (both * G / sigma) ** 2 + checks * (B / s) ** 2)
    assert epsilon(found, DELTA).eps == pytest.approx(float(gdp_eps(mu, DELTA)), rel=1e-6)


def test_phases_pay_for_every_check() -> None:
    """A record lies in one phase, and in all losses."""
    problem = a_convex_problem(n=3, m=40)
    problem = dataclasses.replace(problem, count=jnp.full(3, 38, jnp.int32))
    run = jaxfl.simulate("localized_mbsgd", problem, KEY, 8, eps=1.0)
    bare = run.privacy().proven
    run.settings["stop"] = [stopping.rule(stopping.Stop(0.1, bound=1.0, sigma=1.0), 0, 8, 1)]
    event = run.event(8)
    assert epsilon(event, run.values["delta"]).eps > bare
    assert len(event.events) > 1
    assert all(part.events[-1].releases == 7 for part in event.events)


def test_the_noisy_loss_is_bounded_and_noised() -> None:
    """One record moves a client's mean by B/m at most, whatever its loss; noise has the stated scale."""
    problem, B = a_problem(), 0.7
    event, x, m = ran(1).event(1), problem.x0, int(problem.count[0])

    def loss(a: float, sigma: float = 1e-9, t: int = 1) -> float:
        features, labels = problem.train
        moved = dataclasses.replace(problem, train=(features.at[0, 0].set(a), labels))
        std = deviation(event, facts_of(problem, 1), sigma)
        return float(stopping.noisy_loss(KEY, moved, x, t, B, std))

    found = np.array([loss(a) for a in (-1e6, 0.0, 1e6, math.nan)])
    assert np.ptp(found) == pytest.approx(B / m / problem.n, rel=1e-3)
    noise = np.array([loss(0.0, 3.0, t) for t in range(400)]) - found[1]
    assert np.std(noise) == pytest.approx(3.0 / math.sqrt(problem.n), rel=0.12)
    assert abs(np.mean(noise)) < 0.25
    assert loss(0.0, 3.0, 7) == loss(0.0, 3.0, 7)


def test_metrics_of_held_out_data_read_no_record() -> None:
    problem = a_problem()
    run, usual = ran(3, metrics_on="test"), ran(3)
    np.testing.assert_array_equal(run.x, usual.x)
    np.testing.assert_allclose(run.metrics["test_loss"], usual.metrics["test_loss"], rtol=1e-6)
    gap = run.metrics["loss"][-1] - run.metrics["test_loss"][-1]
    assert gap == pytest.approx(float(problem.model.regularizer(run.x)), abs=1e-5)
    assert run.dataset()["loss"].attrs["long_name"].startswith("test loss")
    assert run.extend(4).settings["metrics_on"] == "test"
    assert not [name for name in run.metrics if "client" in name or "deviation" in name]
    assert run.privacy().proven == usual.privacy().proven
    for stop, on, said in (
        ({"loss": -1.0}, "test", True),
        ({"bits": 1e9}, "test", False),
        ({"loss": -1.0, "bound": 4.0, "sigma": 1.0}, "train", False),
    ):
        report = ran(3, stop=stop, metrics_on=on).privacy()
        for words in (report.assumes, str(report.card())):
            assert (
                "that nothing of the test records, whose loss may end the run, is" in words
            ) == said


SILENT = [
    ({"stop": dict(loss=1.0, sigma=1.0)}, "the exact loss, for which nothing is proven"),
    ({"stop": dict(bits=1.0, bound=1.0)}, "belong together"),
    ({"stop": dict(loss=1.0, bound=1.0, sigma=1.0), "metrics_on": "test"}, "on the test data"),
    ({"stop": dict(loss=1.0, bound=1.0, sigma=0.0)}, "must be above 0: leave out bound and sigma"),
    ({"metrics_on": "validation"}, "has none"),
    ({"metrics_on": "mine"}, "metrics_on"),
]


@pytest.mark.plain
@pytest.mark.parametrize(("given", "words"), SILENT, ids=[words for _, words in SILENT])
def test_rules_that_say_nothing_are_refused(given: Any, words: str) -> None:
    refused(lambda: ran(3, **given), words)
