"""A single run: cadence, stopping, extending, metrics, privacy, mistakes."""

import dataclasses
import re
import warnings
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import planned
from rows import QUIET, ROWS, Row, a_problem
from told import refused

import jaxfl
from jaxfl.algorithms.resolution import build
from jaxfl.core.errors import JaxflWarning
from jaxfl.core.types import ProblemFacts
from jaxfl.engine import compute, program
from jaxfl.parts import servers
from jaxfl.problems.facts import facts_of
from jaxfl.problems.identity import fingerprint

NUMBERS = {**QUIET, "k": 3, "batch": 4}
FREE = {**QUIET, "batch": 4}


def same(a: jaxfl.Run, b: jaxfl.Run) -> None:
    """Bit for bit: model, state, history and totals."""
    chex.assert_trees_all_equal(*((r.x, r.state, r.rounds, r.metrics) for r in (a, b)), strict=True)
    assert a.log.counts == b.log.counts


def test_cadence(key: jax.Array) -> None:
    for rounds, every, expected in ((7, 3, [0, 3, 6, 7]), (7, 0, [0, 7])):
        run = jaxfl.simulate("cdp_sgd", a_problem(), key, rounds, eval_every=every, **NUMBERS)
        assert run.rounds.tolist() == expected


def test_cut_up_is_uncut(key: jax.Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of any length, an extended run, and one continued in its folder: every bit is the same."""
    problem, given = a_problem(), {"eval_every": 6, **NUMBERS}

    def run(rounds: int, **more: Any) -> jaxfl.Run:
        return jaxfl.simulate("soteriafl_saga", problem, key, rounds, **given, **more)

    whole = run(40)
    half = run(20, out=tmp_path)
    kept = half.x.copy()
    same(whole, half.extend(40))
    np.testing.assert_array_equal(half.x, kept)
    same(whole, half.extend(30).extend(40))
    same(whole, run(40, out=tmp_path, extend=True))
    same(whole, run(40, out=tmp_path, resume=True))
    for most in (1, 7):
        monkeypatch.setattr(compute, "rounds_of_call", lambda work, most=most: most)
        same(whole, run(40))


def test_runs_of_equal_shapes_share_a_program(key: jax.Array) -> None:
    """Data are arguments too."""
    before = program._compiled.cache_info().misses
    other = {**NUMBERS, "lr": 0.7, "sigma": 1.0}
    for data, rounds, every, numbers in ((0, 100, 10, NUMBERS), (3, 30, 7, other)):
        problem, given = a_problem(d=9, seed=data), {"eval_every": every, **numbers}
        assert jaxfl.simulate("soteriafl_sgd", problem, key, rounds, **given).state.t == rounds
    assert program._compiled.cache_info().misses == before + 1


def test_a_seed_is_a_fold_of_the_key(key: jax.Array) -> None:
    """One rule in runs, in sweeps, and in the user's own loop; without a key it is ``key(0)``."""
    problem, given = a_problem(), {"eval_every": 2, **FREE}
    ds = jaxfl.sweep("ldp_sgd", problem, key, 4, seeds=[0, 3], **given)
    for seed in (0, 3):
        run = jaxfl.simulate("ldp_sgd", problem, key, 4, seed=seed, **given)
        expected = jax.random.key_data(jax.random.fold_in(key, seed))
        np.testing.assert_array_equal(jax.random.key_data(run.key), expected)
        np.testing.assert_array_equal(
            ds["gradients"].sel(seed=seed).squeeze(), run.dataset()["gradients"]
        )
        f = jaxfl.functions("ldp_sgd", problem, 4, **FREE)
        np.testing.assert_array_equal(jax.random.key_data(f.init(key, seed).key), expected)
    same(
        jaxfl.simulate("ldp_sgd", problem, None, 4, **given),
        jaxfl.simulate("ldp_sgd", problem, jax.random.key(0), 4, seed=0, **given),
    )


# One of each kind of body; the others are in the full tier.
KINDS = ("soteriafl_saga", "sdm_dsgd")
EACH = [
    pytest.param(row, id=row.name, marks=pytest.mark.plain if row.name in KINDS else ())
    for row in sorted(ROWS, key=lambda row: row.name not in KINDS)
]


@pytest.mark.parametrize("row", EACH)
def test_a_run_is_a_sweep_of_one(row: Row, key: jax.Array) -> None:
    """Every variable, bit for bit, with its type, dimensions, unit and name."""
    everything = ("clients", "eps_spent", "x")
    given: Any = {"rounds": 4, "eval_every": 2, **row.numbers}
    run = jaxfl.simulate(row.name, row.problem, key, **given).dataset()
    ds = jaxfl.sweep(row.name, row.problem, key, keep=everything, **given)
    ds = ds.isel(algorithm=0, seed=0, drop=True)
    assert set(run.variables) == set(ds.variables)
    for name, values in run.variables.items():
        other = ds[name].variable
        assert (values.dims, values.dtype, values.attrs) == (other.dims, other.dtype, other.attrs)
        assert values.values.tobytes() == other.values.tobytes(), name


def test_a_run_goes_on_only_as_itself(key: jax.Array, tmp_path: Path) -> None:
    """Not without its noise, under another key, with other data, sampler or metrics."""
    problem, given = a_problem(), {"out": tmp_path, "resume": True}
    run = jaxfl.simulate("ldp_sgd", problem, key, 4, out=tmp_path, **FREE)
    rows = jaxfl.parts.sampling.sampler("with_replacement")
    with_replacement = jaxfl.algorithm("ldp_sgd", sampler=rows)
    for what, *others in (
        ("algorithm", "fedsgd", problem, key),
        ("keys", "ldp_sgd", problem, jax.random.key(7)),
        ("data", "ldp_sgd", a_problem(seed=1), key),
        ("sampler", with_replacement, problem, key),
    ):
        numbers = {n: v for n, v in FREE.items() if n != "sigma" or others[0] != "fedsgd"}
        refused(lambda o=others, n=numbers: jaxfl.simulate(*o, 4, **given, **n), f"its {what} is")
    own = {"mine": lambda problem, x: x[0]}
    mine: Any = {"metrics": own, **FREE}
    refused(lambda: jaxfl.simulate("ldp_sgd", problem, key, 4, **given, **mine), "mine")
    refused(lambda: jaxfl.simulate("ldp_sgd", problem, key, 4, **FREE, out=tmp_path), "holds a run")
    refused(lambda: run.extend(3), "lies before round 4")
    longer = jaxfl.simulate("ldp_sgd", problem, key, 4, **mine).extend(np.int64(6))
    assert longer.metrics["mine"].shape == (7,)


@pytest.mark.once
def test_rounds_that_cannot_be_counted_are_refused() -> None:
    """A million clients sending 2,500 coordinates each: 2.5e9 in one round."""
    facts = facts_of(a_problem(), 5)._replace(n=10**6, d=10**5)
    values = {**NUMBERS, "k": 2500, "rounds": 5}
    make = lambda: build(jaxfl.algorithm("cdp_sgd"), values, facts, jnp.float32)  # noqa: E731
    refused(make, "let fewer take part")


def test_a_users_own_metrics(key: jax.Array, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = {"norm": lambda problem, x: jnp.linalg.norm(x), "point": lambda problem, x: x}
    given: Any = {"metrics": metrics, "progress": True, **NUMBERS}
    run = jaxfl.simulate("cdp_sgd", a_problem(), key, 4, **given)
    points = run.metrics["point"]
    assert points.shape == (5, 8)
    np.testing.assert_allclose(run.metrics["norm"], np.linalg.norm(points, axis=1), 1e-6)
    np.testing.assert_array_equal(points[-1], run.x)
    np.testing.assert_array_equal(jax.flatten_util.ravel_pytree(run.params)[0], run.x)
    assert "round 4/4, " in capsys.readouterr().err


def test_steps_stay_in_the_constraint_set(key: jax.Array) -> None:
    free = a_problem()
    model = jaxfl.models.logistic(8, constraint="ball:0.3")
    problem = dataclasses.replace(free, model=model)
    norms = {"norm": lambda problem, x: jnp.linalg.norm(x)}
    run = jaxfl.simulate("ldp_sgd", problem, key, 20, eval_every=1, metrics=norms, **FREE)
    assert run.metrics["norm"][1:].max() <= 0.3 * (1 + 1e-6) < run.metrics["norm"][0]
    assert not run.warnings

    def unprojected(key, state, v, project, hp):
        return servers.descent().step(key, state, v, None, hp)

    mine = jaxfl.algorithm("ldp_sgd", server=servers.descent()._replace(step=unprojected))
    with pytest.warns(JaxflWarning, match="ldp_sgd on data is outside its constraint set, by 0"):
        jaxfl.simulate(mine, problem, key, 2, **FREE)
    with pytest.warns(JaxflWarning) as said:  # once, of all runs
        jaxfl.sweep(mine, problem, rounds=2, seeds=2, **{**FREE, "lr": [0.1, 0.2]})
    (words,) = (str(one.message) for one in said)
    assert words.startswith("The model of ldp_sgd on data is outside its constraint set, by 0")


MISTAKES = [
    (dict(rounds=0), "rounds = 0"),
    (dict(k=99), "99"),
    (dict(learning_rate=0.1), "learning_rate"),
    (dict(eval_evry=2), "named 'eval_evry': did you mean the option 'eval_every'?"),
    (dict(seeds=2), "named 'seeds': give seeds to jaxfl.sweep("),
    (dict(eps=1.0), "eps = 1.0 and sigma"),
    (dict(out="/proc/nowhere/run"), "Cannot write"),
    (dict(algorithm="cdp_sdg"), "did you mean 'cdp_sgd'"),
    (dict(key=0), "jax.random.key"),
    (dict(metrics={"loss": lambda problem, x: x[0]}), "'loss'"),
    (dict(metrics={"eps_spent": lambda problem, x: x[0]}), "called 'eps_spent'"),
    (dict(lr=[0.1, 0.2]), "lr = [0.1, 0.2]"),
    (dict(sigma=None, eps=1.0, noise_constant=800.0), "noise_constant = 800.0"),
    (dict(key=jax.random.split(jax.random.key(0))), "shape (2,)"),
    (dict(sigma=None, eps=float("inf")), "eps = inf must be above 0 and at most"),
    (dict(clip=1e-30), "clip = 1e-30 is below what the norm of a gradient in 32 bits"),
    (dict(lr=lambda t: 1 / 0), "lr = schedule gives no number for each of 3 rounds (ZeroDivision"),
    (dict(algorithm=jaxfl.algorithms.soteriafl.algorithms.cdp_sgd), "the name of one: call it"),
    (dict(problem=3), "problem = 3 must be a Problem: make one with jaxfl.Problem"),
    (dict(algorithm=a_problem(), problem="cdp_sgd"), "algorithm = Problem('data', n=5, m=10 to 12"),
    (dict(metrics={"q": lambda x: x[0]}), "'q' must be a function of (problem, x)"),
    (dict(metrics={"q": lambda problem, x: x * 1j}), "'q' returns complex64[8]"),
    (dict(stop=dict(loss=float("nan"))), "stop.loss = nan"),
    (dict(constraint="ball:1"), "'constraint': give constraint to the model, as in"),
    (dict(constrains="ball:1"), "'constrains': give constraint to the model, as in"),
    (dict(weights="samples"), "'weights': give weights to jaxfl.Problem("),
    (
        dict(algorithm="cdp_gd"),
        "'batch': give batch to an algorithm that draws some of the records",
    ),
    (dict(server_r=0.1), "'server_r': known: "),
    (dict(order=2), "'order': known: "),  # not "over", which is nearest
    (dict(weight_decay=0.1), "'weight_decay': known: "),
]


@pytest.mark.once
def test_mistakes_get_one_sentence(key: jax.Array) -> None:
    usual = {"algorithm": "cdp_sgd", "problem": a_problem(), "key": key, "rounds": 3, **NUMBERS}
    for change, words in MISTAKES:
        given = {k: v for k, v in {**usual, **change}.items() if v is not None}
        refused(lambda given=given: jaxfl.simulate(**given), re.escape(words))
    without = {name: value for name, value in usual.items() if name != "sigma"}
    words = "eps = None is no number: .* or give sigma=0 to run cdp_sgd without noise"
    refused(lambda: jaxfl.simulate(**without, eps=None), words)
    assert jaxfl.simulate(**usual, eps=None).values["sigma"] == usual["sigma"]


def test_the_worst_client_may_be_one_in_the_middle() -> None:
    """SVRG without replacement: of sizes 100, 400 and 10,000 the middle one proves least."""
    rows = jaxfl.parts.sampling.sampler("without_replacement")
    algorithm = jaxfl.algorithm("soteriafl_svrg", sampler=rows)
    numbers = {"batch": 100, "sigma": 0.02, "clip": 1.0, "delta": 1e-5, "k": 2, "smoothness": 1.0}

    def proven(*sizes: int) -> float:
        facts = ProblemFacts(len(sizes), min(sizes), max(sizes), 3, 1, 1.0, sizes)
        return planned(algorithm, facts, **numbers).eps(1e-5)

    alone = [proven(m) for m in (100, 400, 10_000)]
    assert proven(100, 400, 10_000) == max(alone) == alone[1]


@pytest.mark.once
def test_what_is_said_of_privacy(key: jax.Array) -> None:
    """Calibrated: proven is what was asked for. By the paper: flagged. Without bound: infinity."""
    problem = a_problem()
    asked = {"eps": 2.0, "delta": 1e-3, "batch": 4, "k": 3, "lr": 0.1}
    run = jaxfl.simulate("soteriafl_sgd", problem, key, 20, **asked)
    said = run.privacy()
    assert said.proven <= 2.0
    assert said.proven == pytest.approx(2.0, rel=1e-3)
    assert run.sources["sigma"].startswith("calibrated")
    event = run.algorithm.event(run.values, run.facts)
    for delta in (1e-2, 1e-9):  # another than the run's own
        other = run.privacy(delta)
        assert other.delta == delta
        assert other.proven == jaxfl.privacy.epsilon(event, delta).eps
        at = {**run.values, "delta": delta, "rounds": 20}
        assert other.claimed == run.algorithm.claim(at, run.facts).eps != said.claimed
    small = {**asked, "eps": 9.0, "batch": 1}
    paper = jaxfl.simulate("soteriafl_sgd", problem, key, 20, noise="paper", **small)
    said = paper.privacy()
    assert said.claimed == pytest.approx(9.0)
    assert said.flag
    assert said.proven > 9.0
    longer = run.extend(40).privacy()
    assert longer.proven > 2.0
    assert longer.claimed == pytest.approx(2**0.5 * run.privacy().claimed)  # of the rounds that ran


# --- warnings ------------------------------------------------------------------------------------


TAUGHT_NOTHING = [
    (
        {"lr": 40.0, "sigma": 1.0},
        "last loss of ldp_sgd on data, .*, is above that of round 0, .* than 40 or",
    ),
    ({"lr": lambda t: 0.1 if t < 15 else 40.0, "sigma": 0.1}, "is above that of round 0"),
    ({"lr": 1e38, "clip": 1e30}, "ldp_sgd on data diverged: the loss is not finite from round"),
    ({"lr": 0.1}, ""),
    (
        {"lr": 0.1, "delta": 0.5},
        r"delta = 0.5 is at least 1/m = 0\.\d+, which allows the release of one .* random: take a delta",
    ),
    ({"lr": 0.1, "delta": 0.5, "sigma": 0.0}, ""),
]


def test_a_run_that_taught_nothing_says_so(key: jax.Array) -> None:
    for given, words in TAUGHT_NOTHING:
        numbers = {"sigma": 0.01, "batch": 4, **given}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", JaxflWarning)
            run = jaxfl.simulate("ldp_sgd", a_problem(), key, 20, **numbers)
        said = [str(each.message) for each in caught]
        assert said == run.warnings
        assert {each.filename for each in caught} <= {__file__}  # the line of the call
        assert len(said) == bool(words)
        assert all(re.search(words, text) for text in said)


def test_a_sweep_warns_once_of_its_largest_delta() -> None:
    names, deltas = ["ldp_sgd", "cdp_sgd"], [1e-5, 0.5, 0.4]
    with pytest.warns(JaxflWarning) as said:
        jaxfl.sweep(names, a_problem(), rounds=2, delta=deltas, sigma=0.01, batch=4, lr=0.1)
    (words,) = (str(one.message) for one in said)
    assert words.startswith("delta = 0.5 is at least 1/m = ")
    assert said[0].filename == __file__


@pytest.mark.parametrize(("least", "names"), [(9, True), (300, False)])
def test_a_client_that_sets_the_noise_of_all_is_named(least: int, names: bool) -> None:
    rng = np.random.default_rng(0)
    sizes = (500, least, 600, 700)
    clients = [(rng.normal(size=(m, 3)), rng.integers(0, 2, m)) for m in sizes]
    data = jaxfl.data.from_clients(clients, classes=2)
    problem = jaxfl.Problem(jaxfl.models.logistic(3), data)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", JaxflWarning)
        jaxfl.sweep("ldp_sgd", problem, jax.random.key(0), 5, eps=[4, 8], batch=4, lr=1e-3)
    words = "Client 1 has 9 records, and the noise makes its eps 4; that of a client with 550, the median"
    assert [words in str(each.message) for each in caught] == [True] * names


def test_generated_data_are_told_apart_by_clients_in_the_middle() -> None:
    def made(odd: int) -> str:
        def make(source: jax.Array, i: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array]:
            return source[j] + (i == odd), jnp.int32(0)

        data = jaxfl.data.generated(make, 40, 3, source=jnp.ones((3, 2)), classes=2)
        return fingerprint(jaxfl.Problem(jaxfl.models.logistic(2), data))

    assert made(-1) == made(-1) != made(17)


def test_unscaled_features_are_told_until_they_are_standardised() -> None:
    """Padding and columns within bounds are not counted."""
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(1, 5, 40), rng.normal(size=40), rng.normal(50, 9, 40)], -1) * 1.0
    y = rng.integers(0, 2, 40)
    data = jaxfl.data.from_clients([(x[:9], y[:9]), (x[9:], y[9:])], classes=2)
    model = jaxfl.models.logistic(3)
    with pytest.warns(
        JaxflWarning, match=r"^2 of 3 features of data are unscaled, .* up to 5\d"
    ) as told:
        raw = jaxfl.Problem(model, data)
    assert told[0].filename == __file__
    for lr, end in ((9.0, "is above that of round 0, "), (1e38, "diverged: ")):
        with pytest.warns(
            JaxflWarning, match=f"{end}.*: standardise the features with .* or take a sm"
        ):
            jaxfl.simulate("ldp_sgd", raw, rounds=9, lr=lr, sigma=0.0, batch=4, clip=1e30)
    scaled, mean, _ = jaxfl.data.standardise(data, per_feature=True)
    np.testing.assert_allclose(mean, x.mean(0), rtol=1e-6)
    np.testing.assert_allclose(scaled.train[0].sum((0, 1)), 0, atol=1e-4)
    np.testing.assert_allclose((scaled.train[0] ** 2).sum((0, 1)) / 40, 1, rtol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jaxfl.Problem(model, scaled)
