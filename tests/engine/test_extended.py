"""Sweeps that grow: more values, seeds, algorithms and rounds, without what is there."""

import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray
from calls import Calls
from rows import a_problem
from test_durable import Killed
from told import refused

import jaxfl
from jaxfl.core.errors import JaxflWarning
from jaxfl.engine import store
from jaxfl.engine.progress import Plan

ROUNDING = 1e-5  # relative, where shapes differ
SIGMA = {"sigma": [0.02, 0.05], "lr": [0.1, 0.2]}
EPS = {"eps": [2.0, 5.0], "lr": [0.1, 0.2]}
CELLS, LARGER = 2 * 2, 3 * 3
FIXED = {"clip": 2.0, "omega": 1}
T, LONGER = 20, 30


def more(grid: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """One more value on each axis, not at its end."""
    (a, first), (b, second) = grid.items()
    return {b: [0.05, *second], a: [*first[:1], 8.0, *first[1:]]}


def job(out: Path | None, grid: Mapping[str, Any] = SIGMA, rounds: Any = T, **options: Any) -> Any:
    given = {"seeds": 2, "eval_every": 8, "problem": a_problem(), "key": jax.random.key(0)}
    given |= {"algorithm": "soteriafl_gd", "rounds": rounds, "out": out, **FIXED, **grid, **options}
    return jaxfl.sweep(**{name: value for name, value in given.items() if value is not None})


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / "chunks").iterdir()}


def agree(found: xarray.Dataset, whole: xarray.Dataset) -> None:
    """In all that is counted, given or proven exactly, and in metrics to rounding."""
    assert set(found.variables) == set(whole.variables)
    counts = ("messages", "coordinates", "gradients", "uplink_bits")
    for name in map(str, whole.variables):
        a, b = found[name], whole[name]
        if "round" in b.dims and name not in counts:
            np.testing.assert_allclose(a, b, ROUNDING, 1e-7, err_msg=name)
        elif name in ("proven_eps", "delta_at_claimed"):  # slots of fewer rounds
            np.testing.assert_allclose(a, b, 1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)


# Slow: the same programs are compiled again; other draws are in the tests of a grid's cells.
@pytest.mark.parametrize("paired", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_larger_grid_is_the_grid_at_once(paired: bool, calls: Calls, tmp_path: Path) -> None:
    """2 x 2 cells and 2 seeds become 3 x 3 and 4; the chunks that were there cost nothing."""
    job(tmp_path, EPS, paired=paired)
    before = files(tmp_path)
    calls.clear()
    plans: list[Plan] = []
    larger: dict[str, Any] = dict(seeds=[4, 0, 1, 3], paired=paired)
    found = job(tmp_path, more(EPS), **larger, extend=True, announce=plans.append)
    assert calls.spent == (LARGER * 4 - CELLS * 2) * T
    assert before.items() <= files(tmp_path).items()
    assert "done: 8 of 36 runs; left: 28 runs in 2 compilations" in str(plans[0])
    agree(found, job(None, more(EPS), **larger))
    calls.clear()
    xarray.testing.assert_equal(job(tmp_path, more(EPS), **larger, extend=True), found)
    assert calls == []
    agree(jaxfl.load(tmp_path / "result.nc"), found)


def test_longer_runs_continue(calls: Calls, tmp_path: Path) -> None:
    """Where their noise is given; evaluated at the cadence of the folder, of which T is no multiple."""
    job(tmp_path)
    before = files(tmp_path)
    calls.clear()
    plans: list[Plan] = []
    found = job(tmp_path, rounds=LONGER, extend=True, announce=plans.append)
    assert calls.spent == CELLS * 2 * (LONGER - T)
    assert "8 runs (8 to continue) in 1 compilation" in str(plans[0])
    assert before.items() <= files(tmp_path).items()
    whole = job(None, rounds=LONGER)
    for name in ("loss", "grad_norm_sq", "test_accuracy", "uplink_bits", "utility"):  # one shape
        np.testing.assert_array_equal(found[name], whole[name])
    agree(found, whole)
    calls.clear()
    found = job(tmp_path, more(SIGMA), LONGER + 9, seeds=3, extend=True)
    assert calls.spent == CELLS * 2 * 9 + (LARGER * 3 - CELLS * 2) * (LONGER + 9)
    agree(found, job(None, more(SIGMA), LONGER + 9, seeds=3))


def test_runs_whose_noise_follows_from_the_rounds_begin_again(calls: Calls, tmp_path: Path) -> None:
    job(tmp_path, EPS)
    calls.clear()
    plans: list[Plan] = []
    with pytest.warns(
        JaxflWarning, match=f"^{CELLS * 2} runs begin again, .* no eps holds for both"
    ):
        found = job(tmp_path, EPS, LONGER, extend=True, announce=plans.append)
    assert calls.spent == CELLS * 2 * LONGER
    assert "(8 to begin again)" in str(plans[0])
    agree(found, job(None, EPS, LONGER))
    notes = " ".join(jaxfl.views.table(found).notes)
    assert "such as the shorter one with its key" in notes
    assert "only this run" not in notes
    job(tmp_path, {**EPS, "lr": [0.1, 0.2, 0.3]}, LONGER, extend=True)  # 0.3 has no shorter runs


@pytest.mark.parametrize("given", [{"eps": 4.0}, {"sigma": 0.1}])
def test_a_run_that_draws_again_with_its_key_is_told_of(given: Any, tmp_path: Path) -> None:
    """Its first messages and those of the shorter run differ by a multiple of one noise."""
    again = pytest.warns(JaxflWarning, match="begins again") if "eps" in given else nullcontext()
    numbers = {"clip": 1.0, "lr": 0.1, "out": tmp_path, "seed": 0, **given}
    jaxfl.simulate("ldp_gd", a_problem(), rounds=2, **numbers)
    with again:
        jaxfl.simulate("ldp_gd", a_problem(), rounds=4, extend=True, **numbers)


@pytest.mark.full  # the test above, with numbers for each round
def test_runs_with_a_schedule_over_all_rounds_begin_again(calls: Calls, tmp_path: Path) -> None:
    """Steps that are given for each round go on."""
    grid = {"lr": [0.1, "cosine:0.1", "step:0.1,0.05,10"], "sigma": [0.05]}
    job(tmp_path, grid)
    calls.clear()
    plans: list[Plan] = []
    with pytest.warns(JaxflWarning, match="^2 runs begin again, with the key of a shorter run"):
        found = job(tmp_path, grid, LONGER, extend=True, announce=plans.append)
    assert plans[0].continued == 4
    assert calls.spent == 4 * (LONGER - T) + 2 * LONGER
    agree(found, job(None, grid, LONGER))


@pytest.mark.once
def test_privacy_of_continued_runs_is_that_of_an_extended_run(tmp_path: Path) -> None:
    """Batches of the first rounds have slots for T rounds, which add to delta."""
    numbers, problem = {"clip": 2.0, "batch": 20, "lr": 0.1, "sigma": 0.5}, a_problem(m=200)
    options: dict[str, Any] = dict(algorithm="ldp_sgd", seeds=1, problem=problem, omega=None)
    grid = {name: [value] for name, value in numbers.items()}
    job(tmp_path, grid, 2, **options)
    found = job(tmp_path, grid, 200, extend=True, **options)
    run = jaxfl.simulate("ldp_sgd", problem, rounds=2, **numbers)
    proven = run.extend(200).privacy().proven
    np.testing.assert_allclose(found["proven_eps"].values.item(), proven, 1e-12)
    slots = {T: run.facts._replace(rounds=T) for T in (2, 200)}
    assert (
        len({run.algorithm.capacity(run.values, facts)["batch"] for facts in slots.values()}) == 2
    )


def killed(
    monkeypatch: pytest.MonkeyPatch, chunks: int, out: Path, *args: Any, **options: Any
) -> None:
    """A sweep that is killed after so many chunks."""
    honest, written = store.Store.write, []

    def write(self: store.Store, *some: Any) -> None:
        if len(written) == chunks:
            raise Killed
        honest(self, *some)
        written.append(some[0])

    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "write", write)
        with pytest.raises(Killed):
            job(out, *args, **options)


@pytest.mark.full  # ten sweeps; the tests above extend, and others kill
def test_unfinished_sweeps_grow_and_extensions_are_killed(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that has a chunk or a checkpoint of its last round is computed twice."""
    cut: dict[str, Any] = dict(runs_at_once=4)
    killed(monkeypatch, 1, tmp_path, **cut)  # the second chunk has its last checkpoint
    assert calls.spent == 2 * 4 * T
    killed(monkeypatch, 2, tmp_path, more(SIGMA), extend=True, **cut)
    before = files(tmp_path)
    larger = dict(grid=more(SIGMA), **cut)
    for how in ("resume", "extend"):
        other = tmp_path.with_name(how)
        shutil.copytree(tmp_path, other)
        agree(job(other, **larger, **{how: True}), job(None, **larger))
        kept = {name: file for name, file in before.items() if name.startswith("chunk")}
        assert kept.items() <= files(other).items()
    calls.clear()
    killed(monkeypatch, 1, tmp_path, rounds=LONGER, extend=True, **larger)
    found = job(tmp_path, rounds=LONGER, resume=True, **larger)
    agree(found, job(None, rounds=LONGER, **larger))


@pytest.mark.full  # several sweeps; the tests above extend others
@pytest.mark.once
def test_what_was_fixed_becomes_an_axis(tmp_path: Path) -> None:
    """A number, an algorithm, a part of it, the number of rounds, numbers beside a schedule."""
    small: dict[str, Any] = dict(algorithm="soteriafl_gd", grid={"sigma": [0.05, 0.1]}, lr=0.1)
    job(tmp_path, **small)
    plans: list[Plan] = []
    larger: dict[str, Any] = dict(
        algorithm=["ldp_gd", "soteriafl_gd"],
        grid={"lr": ["cosine:0.2", 0.1], "sigma": [0.1, 0.05], "rounds": [10, T]},
        rounds=None,
    )
    found = job(tmp_path, **larger, extend=True, announce=plans.append)
    assert (plans[0].finished, plans[0].continued, plans[0].runs) == (4, 0, 32)
    agree(found, job(None, **larger))
    few: dict[str, Any] = {"sigma": 0.05, "lr": 0.1, "compressor": ["natural"], "omega": None}
    both = {**few, "compressor": ["random_k", "natural"], "participation": ["everyone"]}
    job(tmp_path / "parts", few)
    agree(job(tmp_path / "parts", both, extend=True), job(None, both))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"grid": {"sigma": [0.02, 0.3], "lr": [0.1, 0.2]}}, "its sigma has 0.05, and this"),
    ({"grid": {"sigma": [0.02, 0.05, 1.0], "lr": [0.1]}}, "its lr has 0.2"),
    ({"seeds": 1}, "its seeds has 1"),
    ({"algorithm": "cdp_gd"}, "its algorithm has soteriafl_gd"),
    ({"rounds": 10}, "rounds = 10 lies before round 20"),
    ({"clip": 3.0, "rounds": LONGER}, 'clip is "2" there'),
    ({"key": jax.random.key(1)}, "keys is"),  # and all else that resuming compares
    ({"eval_every": 4}, "eval_every is 8 there, and 4 here"),
]


@pytest.mark.once
def test_another_sweep_is_not_extended(tmp_path: Path) -> None:
    job(tmp_path)
    before = files(tmp_path), (tmp_path / "planned.jsonl").read_bytes()
    larger = {"grid": more(SIGMA), "seeds": 4, "extend": True}
    for change, words in REFUSED:
        refused(lambda given=change: job(tmp_path, **{**larger, **given}), words)
    refused(lambda: job(tmp_path, more(SIGMA), resume=True), r"or more of them with extend=True")
    assert (files(tmp_path), (tmp_path / "planned.jsonl").read_bytes()) == before
