"""Sweeps: every cell is the run that `simulate` makes, cells share their draws, axes of all kinds.

Where two ways of computing differ only in what else is in the batch, numbers agree to rounding
(XLA orders sums by shapes) and everything that is drawn or counted agrees exactly.  Where the
compiled program and the place in it are the same, bits are.
"""

import functools
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from rows import QUIET, ROWS, Row, a_problem
from told import refused

import jaxfl
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Info, State
from jaxfl.engine import compute
from jaxfl.engine.loop import Work, cadence, work
from jaxfl.engine.progress import Plan, Progress
from jaxfl.problems.facts import facts_of
from jaxfl.problems.public import nonconvex

COUNTS = ("messages", "coordinates", "gradients", "uplink_bits", "downlink_bits")
ONCE = 1e-6  # relative: one round from the same state, a handful of float32 roundings
WHOLE = 1e-5  # a dozen rounds, which on these problems forget earlier roundings
FAST = ("soteriafl_saga",)  # the parts of the others, slow ones, are in the tests below
FREE = {"clip": 2.0, "batch": 4}


# Slow as compiled for users: bits agree in either code.
BOTH = pytest.mark.parametrize("code", ["plain", pytest.param("fast", marks=pytest.mark.full)])


def direction(problem: jaxfl.Problem, x: jax.Array) -> jax.Array:
    """A number that sees every coordinate of the model, and the problem as its maker knows it."""
    _, _ = problem.train
    return x @ jnp.cos(jnp.arange(x.size, dtype=x.dtype))


METRICS = {"direction": direction}


@functools.cache
def common() -> jaxfl.Problem:
    return a_problem()


@functools.cache
def silent() -> jaxfl.Problem:
    """All gradients are zero: what a run draws is all that moves it."""
    data = jaxfl.data.from_clients(
        [(np.zeros((12, 8), np.float32), np.zeros(12, np.int32))] * 6, classes=2
    )
    model = jaxfl.models.logistic(8, regularizer=nonconvex(0.0))
    return jaxfl.Problem(model, data, x0=np.zeros(8, np.float32))


def quick(
    algorithm: Any, grid: Mapping[str, Any], rounds: Any = 6, **options: Any
) -> xarray.Dataset:
    """A sweep with every round evaluated."""
    given = {"problem": common(), "key": jax.random.key(0), "rounds": rounds, "seeds": 2}
    given |= {"eval_every": 1, "metrics": METRICS, **grid, **options}
    return jaxfl.sweep(algorithm, **{name: v for name, v in given.items() if v is not None})


def alone(
    algorithm: Any, seed: int, rounds: int = 6, problem: Any = None, **numbers: Any
) -> jaxfl.Run:
    given: Any = {"seed": seed, "eval_every": 1, "metrics": METRICS, **numbers}
    return jaxfl.simulate(algorithm, problem or common(), None, rounds, **given)


def agree(run: jaxfl.Run, cell: xarray.Dataset, rtol: float = WHOLE) -> None:
    """Counts exactly; metrics of the first round and of all of them."""
    own = run.dataset()
    cell = cell.sel(round=own["round"])
    for name in COUNTS:
        np.testing.assert_array_equal(cell[name], own[name], err_msg=name)
    clients = "worst_client_loss" if "quantile" in cell.dims else "client_loss"
    for name in ("loss", "grad_norm_sq", "direction", clients, "test_accuracy"):
        a, b = cell[name].values, own[name].values
        np.testing.assert_allclose(a[:2], b[:2], ONCE, 1e-7, err_msg=name)
        np.testing.assert_allclose(a, b, rtol, 1e-6, err_msg=name)


@pytest.mark.full  # four programs; a sweep of few clients is compared with its runs below
def test_clients_of_different_numbers_have_deciles() -> None:
    few, many = a_problem(n=6), a_problem(n=20)
    ds = quick("fedgd", {"lr": [0.1, 0.2]}, problem={"few": few, "many": many}, clip=2.0)
    assert "client" not in ds.dims
    for name, problem in (("few", few), ("many", many)):
        run = alone("fedgd", 0, problem=problem, clip=2.0, lr=0.2)
        deciles = np.quantile(run.metrics["client_loss"], ds["quantile"], axis=1).T
        found = ds["client_loss"].sel(lr=0.2, seed=0, problem=name).squeeze()
        np.testing.assert_allclose(found, deciles, rtol=1e-5)


# --- every cell is a run -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=() if row.name in FAST else pytest.mark.full)
        for row in ROWS
    ],
)
def test_a_sweep_is_its_runs(row: Row) -> None:
    """Poisson batches, coins and masks included, since counts agree exactly."""
    numbers = dict(row.numbers)
    value = numbers.pop(row.axis)
    problem = row.problem if row.convex or (row.n, row.m) != (5, 12) else common()
    ds = quick(row.name, {row.axis: [value, value / 4]}, 12, problem=problem, **numbers)
    for number, seed in ((value, 1), (value / 4, 0)):
        run = alone(row.name, seed, 12, problem, **{row.axis: number}, **numbers)
        agree(run, ds.sel({"algorithm": row.name, row.axis: number, "seed": seed}))
        plain = {k: v for k, v in run.values.items() if not isinstance(v, Schedule)}
        used = {name: float(ds[f"used_{name}"].sel({row.axis: number})[0]) for name in plain}
        assert used == {name: float(number) for name, number in plain.items()}
    last = ds["direction"].isel(algorithm=0, round=-1).values
    if "random iterate" in dict(jaxfl.algorithm(row.name).parts).get("server", ""):
        assert len(np.unique(last)) > 1  # two of them may be the same early point
    else:
        draws_nothing = row.name in ("fedgd", "ef21", "mu2")
        assert len(np.unique(last)) == (2 if draws_nothing else 4)
    assert (ds["complete"] == 1).all()
    assert (ds["last_round"] == 12).all()
    assert ds["diverged_at"].isnull().all()


def test_the_default_cadence_is_that_of_each_run() -> None:
    """It follows from each cell's own rounds."""
    numbers = {"sigma": 0.1, "lr": 0.1}
    ds = jaxfl.sweep("ldp_gd", common(), rounds=iter([250, 5]), **numbers)
    run = jaxfl.simulate("ldp_gd", common(), rounds=250, **numbers)
    cell = ds.isel(algorithm=0, rounds=0, seed=0)
    seen = cell["round"][cell["loss"].notnull()]
    np.testing.assert_array_equal(seen, run.rounds)
    np.testing.assert_allclose(cell["loss"].sel(round=250), run.metrics["loss"][-1], WHOLE)
    short = ds.isel(algorithm=0, rounds=1, seed=0)
    assert short["round"][short["loss"].notnull()].values.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.once
def test_privacy_of_a_cell_is_that_of_its_run() -> None:
    ds = quick("ldp_sgd", {"eps": [1.0, 4.0], "lr": [0.1, 0.2, 0.4]}, 4, delta=1e-3, **FREE)
    for eps in (1.0, 4.0):
        run = alone("ldp_sgd", 1, 4, eps=eps, lr=0.1, delta=1e-3, **FREE)
        said, cell = run.privacy(), ds.sel(algorithm="ldp_sgd", eps=eps, lr=0.1)
        assert float(cell["proven_eps"]) == said.proven == pytest.approx(eps, rel=1e-3)
        assert float(cell["claimed_eps"]) == said.claimed
        assert float(cell["delta"]) == said.delta == 1e-3
        assert float(cell["delta_at_claimed"]) == said.delta_at_claimed
        assert bool(cell["flag"]) == said.flag
        assert float(cell["tried"]) == 3 * 2  # step sizes and seeds: eps is not chosen
        assert float(cell["eps_of_choice"]) == np.inf  # runs of a seed share their noise
        for name, value in run.values.items():
            assert float(cell[f"used_{name}"]) == value
        agree(run, cell.sel(seed=1))
    assert np.isinf(quick("fedgd", {"lr": [0.1]})["proven_eps"]).all()


@pytest.mark.once
def test_a_choice_among_runs_that_share_their_noise_proves_nothing() -> None:
    """Two step sizes of a seed have one noise, which cancels; seeds have each their own."""
    found = {}
    for paired in (True, False):
        for rates in ([0.1, 0.2], [0.1]):
            ds = quick("ldp_gd", {"eps": [0.5], "lr": rates}, 3, seeds=2, paired=paired)
            found[paired, len(rates)] = ds["eps_of_choice"].values
            assert ds["proven_eps"].values == pytest.approx(0.5, rel=1e-6)
            assert (ds["tried"].values == 2 * len(rates)).all()
    assert np.isinf(found[True, 2]).all()
    assert (found[True, 1] == found[False, 1]).all()
    assert (found[True, 1] > 0.5).all()
    assert (found[True, 1].max() < found[False, 2]).all()
    assert np.isfinite(found[False, 2]).all()


@pytest.mark.once
def test_delta_is_an_axis_as_any_number(tmp_path: Path) -> None:
    """It is also the name of what both eps are proven at, which a dataset holds beside it."""
    ds = quick("ldp_gd", {"delta": [1e-5, 1e-3], "eps": [0.5]}, 3, out=tmp_path)
    assert ds["proven_eps"].values == pytest.approx(0.5, rel=1e-6)
    assert ds["delta_of_eps"].values.ravel().tolist() == [1e-5, 1e-3]
    assert (np.diff(ds["used_sigma"].values.ravel()) < 0).all()
    table = jaxfl.views.table(jaxfl.load(tmp_path / "result.nc"))
    assert [column.heading for column in table.columns].count("δ") == 1


# --- paired --------------------------------------------------------------------------------------


NOISE = {"lr": 0.5, "clip": 1.0, "batch": 4, "smoothness": 1.0}


@BOTH
def test_paired_cells_share_all_draws(code: str) -> None:
    """Twice the noise is exactly twice the way, so that cohorts, masks and noise are the same."""
    build = jaxfl.algorithm("cdp_sgd", participation=jaxfl.parts.sampling.participation("poisson"))
    grid = {"sigma": [0.25, 0.5]}
    ds = quick(build, grid, 8, problem=silent(), seeds=3, k=3, cohort=3, **NOISE).isel(algorithm=0)
    way = ds["direction"].values
    assert (way[..., -1] != 0).all()
    np.testing.assert_array_equal(way[1], 2 * way[0])
    for name in COUNTS:
        np.testing.assert_array_equal(ds[name][0], ds[name][1])
    sent, rows = ds["messages"][0].values, ds["gradients"][0].values
    np.testing.assert_array_equal(ds["coordinates"][0], 3 * sent)  # of clients that were drawn
    assert (np.abs(rows - 4 * sent) <= 5 * np.sqrt(4 * sent)).all()
    each = np.diff(ds["gradients"][0].values, axis=-1)
    assert len(np.unique(each)) > 3  # Poisson batches of Poisson cohorts
    assert len({tuple(row) for row in each}) == 3  # and other ones for every seed


def test_unpaired_cells_have_draws_of_their_own() -> None:
    """Noise and batches, and neither depends on the other cells."""
    build, numbers = "ldp_sgd", {"problem": silent(), "paired": False, **NOISE}
    ds = quick(build, {"sigma": [0.25, 0.5]}, seeds=3, **numbers).isel(algorithm=0)
    way = ds["direction"][..., 1:].values
    for scale in (1.0, 2.0):
        assert not np.isclose(way[1], scale * way[0]).any()
    assert (ds["gradients"][0] != ds["gradients"][1]).any(axis=-1).all()
    other = quick(build, {"sigma": [1.0, 0.5, 2.0]}, runs_at_once=1, **numbers).isel(algorithm=0)
    np.testing.assert_array_equal(ds["gradients"][1, :2], other["gradients"][1])
    np.testing.assert_allclose(ds["direction"][1, :2], other["direction"][1], WHOLE)


@pytest.mark.full  # four programs
@pytest.mark.parametrize("paired", [True, False])
def test_algorithms_have_draws_of_their_own_unless_paired(paired: bool) -> None:
    """Although their cells have the same numbers."""
    given: Any = {"problem": silent(), "paired": paired, "seeds": 1, "sigma": 0.5, **NOISE}
    ds = quick(["ldp_gd", "ldp_sgd"], {}, 2, **given)
    one, other = ds["direction"].isel(round=-1).values.ravel()
    assert np.isclose(one, other) == paired


# --- one program ---------------------------------------------------------------------------------


def compilations(caplog: pytest.LogCaptureFixture, grid: Mapping[str, Any], **options: Any) -> Any:
    """Names of what XLA compiled while a sweep ran, from its own log, and the sweep."""
    caplog.clear()
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        ds = quick("cdp_sgd", grid, **options)
    found = [re.match(r"Compiling jit\((\w+)\)", record.getMessage()) for record in caplog.records]
    return [match[1] for match in found if match], ds


def test_one_compilation(caplog: pytest.LogCaptureFixture) -> None:
    """4 x 3 x 4 cells with 5 seeds; afterwards, other numbers of the same shapes compile nothing."""
    grid = {"eps": [0.5, 1.0, 4.0, 8.0], "omega": [0.6, 1.0, 1.6], "lr": [0.05, 0.1, 0.2, 0.4]}
    rest = {"seeds": 5, "batch": 4, "clip": 2.0, "delta": 1e-3, "noise": "paper"}
    names, ds = compilations(caplog, grid, **rest)
    assert names.count("segment") == 1
    assert json.loads(ds.attrs["config"])["compilations"] == 1
    assert ds["complete"].sum() == 4 * 3 * 4 * 5
    assert len(np.unique(ds["direction"].isel(round=-1))) == ds["complete"].size
    names, again = compilations(caplog, grid, **rest)
    assert names == []
    xarray.testing.assert_equal(ds, again)
    names, _ = compilations(caplog, {**grid, "lr": [0.06, 0.1, 0.3, 0.5]}, **rest)
    assert names == []


@pytest.mark.full  # compiles for seconds; test_a_run_is_its_own has two lengths
@pytest.mark.once
def test_lengths_are_numbers_too() -> None:
    """k, b, r and T differ between the cells of one program, which masks what they do not use."""
    build = jaxfl.algorithm(
        "soteriafl_sgd", participation=jaxfl.parts.sampling.participation("uniform")
    )
    build = build._replace(event=None)  # whose account takes longer than all else
    ends = {"k": (4, 6), "batch": (2, 4), "cohort": (3, 5), "rounds": (6, 8)}
    ds = quick(build, ends, None, seeds=[1], **QUIET)
    assert json.loads(ds.attrs["config"])["compilations"] == 1
    assert len(np.unique(ds["uplink_bits"].isel(round=-1, rounds=1))) == 2 * 2
    least = {name: values[0] for name, values in ends.items()}  # where most is masked
    run = alone(build, 1, **QUIET, **least)
    cell = ds.isel(algorithm=0).sel(least).sel(seed=1)
    agree(run, cell)
    assert int(cell["last_round"]) == 6
    assert cell["loss"].sel(round=[7, 8]).isnull().all()


# --- axes that are programs ----------------------------------------------------------------------


@pytest.mark.full  # four programs; test_axes_that_do_not_apply has two
@pytest.mark.once
def test_static_axes() -> None:
    """`build` and `problem` are functions of what they take by name, also of the same axis."""
    made = []

    def build(compressor: str, sampler: str = "full") -> jaxfl.parts.Algorithm:
        assert sampler == "full"
        return jaxfl.algorithm("cdp_gd", compressor=jaxfl.parts.compressors.compressor(compressor))

    def problem(clients: int) -> jaxfl.Problem:
        made.append(clients)
        return a_problem(n=clients)

    grid = {"lr": [0.1, 0.2], "compressor": ["identity", "natural"], "clients": [3, 5]}
    plans: list[Plan] = []
    ds = quick(build, grid, problem=problem, sigma=0.1, announce=plans.append)
    assert ds["loss"].dims == ("algorithm", "compressor", "clients", "lr", "seed", "round")
    assert made == [3, 5]
    assert (len(plans[0].programs), plans[0].runs) == (4, 16)
    run = alone(build("natural"), 1, problem=a_problem(n=3), lr=0.2, sigma=0.1)
    agree(run, ds.sel(compressor="natural", clients=3, lr=0.2, seed=1).squeeze())


@pytest.mark.once
def test_axes_that_do_not_apply() -> None:
    """Runs of an algorithm without the number are made once and stand at all its values."""
    plans: list[Plan] = []
    problems = {"one": common(), "two": a_problem(seed=4)}
    given: Any = dict(problem=problems, sigma=0.1, lr=0.1, announce=plans.append)
    ds = quick(["cdp_gd", "ldp_gd"], {"omega": [1.0, 3.0]}, **given)
    assert plans[0].runs == 2 * 2 * (2 + 1)
    free, bound = ds.sel(algorithm="ldp_gd"), ds.sel(algorithm="cdp_gd")
    assert (free["complete"] == 1).all()
    for name in ("loss", "uplink_bits", "used_sigma", "diverged_at"):
        np.testing.assert_array_equal(free[name].isel(omega=0), free[name].isel(omega=1))
    assert (bound["direction"][:, 0, :, 1:] != bound["direction"][:, 1, :, 1:]).all()
    assert ds["applies_omega"].sel(algorithm="ldp_gd").values.tolist() == [0, 0]
    assert ds["applies_omega"].sel(algorithm="cdp_gd").values.tolist() == [1, 1]


# --- divergence ----------------------------------------------------------------------------------

WILD = {"clip": 1e30, "batch": 4}


@BOTH
def test_a_diverged_cell_is_frozen_alone(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no numbers from where it was seen to be lost; its neighbours keep every bit."""
    monkeypatch.setattr(compute, "SECONDS", 0.0)
    calm = quick("fedsgd", {"lr": [0.1, 0.2, 0.3]}, 10, **WILD).isel(algorithm=0)
    wild = quick("fedsgd", {"lr": [0.1, 1e38, 0.3]}, 10, **WILD).isel(algorithm=0)
    at = wild["diverged_at"].sel(lr=1e38)
    assert ((at > 0) & (at < 10)).all()
    assert wild["diverged_at"].isel(lr=[0, 2]).isnull().all()
    for seed in (0, 1):
        lost = wild["round"] >= at[seed]
        run = alone("fedsgd", seed, 10, lr=1e38, **WILD)
        assert run.ended.startswith(f"diverged: the loss is not finite from round {int(at[seed])} ")
        for name in ("loss", "gradients", "direction"):
            np.testing.assert_array_equal(wild[name].sel(lr=1e38)[seed].isnull(), lost)
    for name in ("loss", "direction", *COUNTS):
        np.testing.assert_array_equal(wild[name].isel(lr=[0, 2]), calm[name].isel(lr=[0, 2]))


# --- what is told --------------------------------------------------------------------------------


@pytest.mark.once
def test_progress_and_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least loss is that of all runs."""
    monkeypatch.setattr(compute, "SECONDS", 0.0)
    plans: list[Plan] = []
    seen: list[Progress] = []
    given: Any = dict(runs_at_once=2, out=tmp_path, announce=plans.append, progress=seen.append)
    ds = quick("fedgd", {"lr": [0.4, 0.1, 0.2]}, **given)
    (plan,) = plans
    assert (plan.runs, plan.chunks, plan.finished, plan.left) == (6, 4, 0, 6)
    assert plan.programs == ("fedgd on data, 3 settings x 2 seeds: 2 runs at once",)
    busy = [now for now in seen if not now.doing]
    assert seen[0].doing == "compiling fedgd on data, 3 settings x 2 seeds: 2 runs at once"
    assert {(p.chunk, p.chunks) for p in busy} == {(i, 4) for i in (1, 2, 3, 4)}
    assert all(p.seconds_left > 0 for p in busy[1:-1])  # from the first rounds on
    assert seen[-1].done == seen[-1].total == seen[0].total == 6 * 6
    assert {p.runs for p in seen} == {6}
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert seen[-1].loss == pytest.approx(float(ds["loss"].min()), rel=1e-6)


def test_evaluations_take_a_tenth_of_the_work() -> None:
    for round, evaluation, rounds, every in (
        (1e3, 1e3, 250, 3),  # a small problem: a hundred evaluations
        (1e9, 2e10, 1000, 200),  # a tenth of the work allows five
        (1e7, 2e9, 60, 3),  # a tenth allows none, and twenty take a second
        (1e7, 1.7e9, 65, 3),
        (1e7, 1e9, 30, 1),  # at least twenty
        (1e7, 4e9, 60, 20),  # they would take longer
        (1e9, 5e10, 100, 34),  # it allows none, and there are three
        (9e9, 1e10, 1000, 10),  # 100 x 1e10 = a ninth of 1000 x 9e9
        (1e12, 1e9, 3, 1),
    ):
        assert cadence(rounds, Work(round, evaluation)) == every


def test_the_work_counts_drawn_and_evaluated_examples() -> None:
    """A cohort, a batch and local steps; test examples are evaluated without a gradient."""
    problem = a_problem(n=4)
    facts, d = facts_of(problem, 5), problem.model.dim
    total, tests = int(problem.count.sum()), len(problem.test[1])
    found = work(problem, {"batch": 3, "cohort": 2, "local_steps": 5}, facts)
    assert found == (d * (6 * 2 * 3 * 5 + 200), d * (3 * total + tests))
    assert work(problem, {}, facts).round == d * (6 * total + 200)


def test_totals_are_exact_beyond_32_bits() -> None:
    """Rounds that count almost 2^31 gradients and messages each: 32 bits wrap, floats round."""
    most = 2**31 - 7

    def round(key: Any, state: State, problem: Any, hp: Any) -> tuple[State, Info]:
        return state._replace(t=state.t + 1), Info(jnp.int32(1), jnp.int32(0), jnp.int32(most))

    greedy = jaxfl.algorithm("ldp_gd")._replace(round=round)
    ds = jaxfl.sweep(greedy, common(), rounds=2500, eval_every=2100, sigma=1, lr=[0.1])
    found = ds["gradients"].isel(algorithm=0, lr=0, seed=0).values.tolist()
    assert found == [0, 2100 * most, 2500 * most]
    assert ds["messages"].values.ravel().tolist() == [0, 2100, 2500]


# --- mistakes ------------------------------------------------------------------------------------

MISTAKES: list[tuple[dict[str, Any], str]] = [
    (dict(learning_rate=[0.1]), "'learning_rate': did you mean 'lr'? known:"),
    (dict(pared=False), "named 'pared': did you mean the option 'paired'?"),
    (dict(choose_by="loss"), "'choose_by': give choose_by to jaxfl.views.select("),
    (dict(constraint=["ball:1", "ball:2"]), "'constraint': give constraint to the model, as in"),
    (dict(lr=[]), "axis lr has no values"),
    (dict(lr=[0.1, 0.2, 0.1]), "lr has 0.1 twice"),
    (dict(lr=[lambda t: 0.1, lambda t: 0.2]), "<lambda> twice: give it once, or a name"),
    (dict(seed=[0, 1]), "seeds="),
    *((dict([(n, [1, 2])]), f"cannot be called '{n}'") for n in ("n", "loss", "flag", "used_lr")),
    (dict(lr=[0.1, -0.2, 0.3]), "ldp_gd with lr=-0.2, sigma=0.1: lr = -0.2"),
    (dict(algorithm=["ldp_gd", "ldp_gd"]), "ldp_gd twice"),
    (dict(algorithm=lambda: 3), "returned 3"),
    (dict(algorithm=lambda compressor: "ldp_gd"), "asks for compressor"),
    (dict(problem={"lr": [0.1]}), "axes are keywords, as in lr=[0.1, 0.3]"),
    (dict(seeds=[0, 0]), "seeds = [0, 0]"),
    (dict(metrics={"point": lambda problem, x: x}), "'point' has shape (8,)"),
    (dict(metrics={"chosen_lr": lambda problem, x: x[0]}), "'chosen_lr'"),
    (dict(keep=["clientele"]), "keep = 'clientele'"),
    (dict(devices=[]), "devices = []"),
    (dict(out="/proc/version"), "is a file"),
    (dict(lr=np.ones((2, 2))), "must be a list of values"),
]


@pytest.mark.once
def test_a_broken_gradient_bound_is_flagged() -> None:
    """eps holds because gradients are clipped to the bound; the steepest start of all seeds counts."""
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(8, 3)).astype(np.float32), rng.normal(size=8).astype(np.float32))]
    model = jaxfl.models.least_squares(3, init="normal/1")
    problem = jaxfl.Problem(model, jaxfl.data.from_clients(clients, classes=0))
    build = jaxfl.algorithm("ldp_gd", clip="batch")._replace(cited=False)  # another alarm
    given: Any = dict(problem=problem, sigma=0.5, lr=0.1)

    def broken(bounds: list[float], seeds: Any) -> xarray.Dataset:
        return quick(build, {"gradient_bound": bounds}, 1, seeds=seeds, **given).squeeze()

    each = [float(broken([1e-3], [seed])["broken"]) for seed in range(4)]
    found = broken([0.9 * max(each), 2 * max(each)], 4)
    assert max(each) > each[0]
    assert found["flag"].values.tolist() == [1, 0]
    np.testing.assert_allclose(found["broken"], [max(each), np.nan], 1e-6)


@pytest.mark.once
def test_mistakes_get_one_sentence() -> None:
    given = dict(algorithm="ldp_gd", problem=common(), rounds=3, lr=[0.1, 0.2], sigma=0.1)
    for change, words in MISTAKES:
        refused(lambda more=change: jaxfl.sweep(**{**given, **more}), re.escape(words))
