"""Callbacks: every evaluation of every run once, with the numbers of its result."""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray
from rows import QUIET, a_problem
from test_executors import job
from told import mistakes, refused

import jaxfl
from jaxfl.engine import loop
from jaxfl.engine.callbacks import Evaluation, RunInfo

PRIVATE = {"eps": 4.0, "delta": 1e-3, "k": 3, "batch": 4, "lr": 0.1, "clip": 1.0}


class Seen:
    """Keeps evaluations and ends by run; raises at a round, if any."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.runs: dict[RunInfo, list[Evaluation]] = {}
        self.ends: dict[RunInfo, list[str]] = {}
        self.fails_at = fails_at

    def __call__(self, now: Evaluation) -> None:
        self.runs.setdefault(now.run, []).append(now)
        if now.round == self.fails_at:
            raise OSError("no space left")

    def end(self, run: RunInfo, ended: str) -> None:
        self.ends.setdefault(run, []).append(ended)

    def ended(self) -> list[str]:
        """How the runs ended, each once."""
        assert self.ends.keys() == self.runs.keys()
        return [end for (end,) in self.ends.values()]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations are read after every call, also in the midst of a chunk."""
    monkeypatch.setattr(loop, "OFTEN", 1)


def run(rounds: int, **options: Any) -> jaxfl.Run:
    problem, key = a_problem(), jax.random.key(0)
    usual = {} if "resume" in options else {"eval_every": 3, **PRIVATE}
    return jaxfl.simulate("soteriafl_sgd", problem, key, rounds, **{**usual, **options})


def same_run(seen: Seen, result: jaxfl.Run) -> None:
    """Every evaluation of this run, with the numbers of its log and of its result file."""
    ((info, found),) = seen.runs.items()
    assert (info.values, info.labels, info.seed, info.name) == (result.values, {}, None, "")
    assert [now.round for now in found] == result.log.rounds
    for now, entry in zip(found, result.log.entries, strict=True):
        assert now.metrics.keys() == entry.metrics.keys()
        for name, value in entry.metrics.items():
            np.testing.assert_array_equal(now.metrics[name], value)
    ds = result.dataset()
    for name in found[0].totals:
        assert [now.totals[name] for now in found] == ds[name].values.tolist()
    np.testing.assert_array_equal([now.eps for now in found], ds["eps_spent"])
    assert found[-1].eps == result.privacy().proven
    assert found[-1].claimed_eps == result.privacy().claimed


def same_sweep(seen: Seen, ds: xarray.Dataset) -> None:
    """Every evaluation of every run, in order, with the numbers of the dataset."""
    assert len({info.name for info in seen.runs}) == len(seen.runs) == ds["complete"].size
    for info, found in seen.runs.items():
        cell = ds.sel(info.labels, drop=True).sel(seed=info.seed)
        assert [now.round for now in found] == ds["round"].values.tolist()
        for name in {**found[0].metrics, **found[0].totals}:
            mine = [{**now.metrics, **now.totals}[name] for now in found]
            assert mine == cell[name].values.tolist()
        assert found[-1].eps == cell["proven_eps"]


def test_of_a_run(tmp_path: Path) -> None:
    """All evaluations once; continued runs hand over the earlier ones first."""
    seen, more, file = Seen(), Seen(), tmp_path / "run.npz"
    half = run(8, callbacks=[seen], checkpoint=file)
    same_run(seen, half)
    assert seen.ended() == ["finished"]
    same_run(more, half.extend(14, callbacks=[more]))
    again = Seen()
    same_run(again, run(14, resume=file, callbacks=(again,)))
    same_run(whole := Seen(), run(8, resume=file, callbacks=[whole]))


def test_eps_of_many_evaluations() -> None:
    """An accountant runs for some rounds only, and those of the result."""
    same_run(seen := Seen(), run(60, eval_every=1, callbacks=[seen]))
    (found,) = seen.runs.values()
    assert len(found[0].spent.known) == len({now.eps for now in found}) < len(found)


def test_of_a_stopped_run() -> None:
    seen = Seen()
    stopped = run(40, stop=jaxfl.Stop(bits=1.0), callbacks=[seen])
    assert seen.ended() == [stopped.ended] == [stopped.ended]
    (found,) = seen.runs.values()
    assert [now.round for now in found] == stopped.log.rounds == [0, 3]


@pytest.mark.parametrize("workers", [False, True])
def test_of_a_sweep(workers: bool, tmp_path: Path) -> None:
    """Chunks computed here, by workers, and by an earlier process."""
    seen, again = Seen(), Seen()
    executor = ThreadPoolExecutor(2) if workers else None
    same_sweep(seen, job(executor, callbacks=[seen], out=tmp_path / "grid", seeds=[3, 1]))
    assert set(seen.ended()) == {"finished"}
    info = next(iter(seen.runs))
    assert info.name == "algorithm=ldp_sgd,lr=0.05,seed=3"
    assert info.settings["algorithm"] == info.algorithm == "ldp_sgd"
    chunks = sorted((tmp_path / "grid" / "chunks").iterdir())
    chunks[1].unlink()
    ds = job(out=tmp_path / "grid", seeds=[3, 1], resume=True, callbacks=[again])
    same_sweep(again, ds)
    assert set(again.ended()) == {"finished"}


def test_axes_that_do_not_apply() -> None:
    grid, numbers = {"omega": [1.0, 3.0]}, {**QUIET, "batch": 4}
    seen = Seen()
    build = ["ldp_sgd", "soteriafl_sgd"]
    jaxfl.sweep(build, grid, a_problem(), rounds=2, numbers=numbers, callbacks=[seen])
    names = [info.name for info in seen.runs]
    pairs = itertools.product(["soteriafl_sgd"], ["1.0", "3.0"])
    assert names == [
        "algorithm=ldp_sgd,seed=0",
        *(f"algorithm={name},omega={omega},seed=0" for name, omega in pairs),
    ]


@pytest.mark.parametrize("executor", [None, "threads"])
def test_divergence(executor: str | None) -> None:
    """NaN is handed over once, and ends a run of a sweep; others go on."""
    seen = Seen()
    numbers, grid = {"batch": 4, "clip": 2.0, "sigma": 0.0}, {"lr": [0.1, 1e38]}
    problem = a_problem()
    workers = ThreadPoolExecutor(1) if executor else None
    how: Any = {"rounds": 8, "eval_every": 2, "numbers": numbers, "executor": workers}
    ds = jaxfl.sweep("cdp_sgd", grid, problem, callbacks=[seen], **how)
    good, bad = seen.runs.values()
    lost = ds["diverged_at"].values.ravel()[1]
    assert np.isnan(bad[-1].metrics["loss"])
    assert [now.round for now in bad] == list(range(0, int(lost) + 1, 2))
    assert [now.round for now in good] == [0, 2, 4, 6, 8]
    assert sorted(seen.ended()) == [
        f"diverged: the loss is not finite from round {lost:.0f} on",
        "finished",
    ]


def test_one_that_raises_in_a_run(tmp_path: Path) -> None:
    """Its error ends the run with a checkpoint, from which the run continues bit for bit."""
    file, failing, other = tmp_path / "run.npz", Seen(6), Seen()
    with pytest.raises(OSError, match="no space left"):
        run(20, callbacks=[other, failing], checkpoint=file)
    assert other.ended() == failing.ended() == ["interrupted"]
    with pytest.raises(OSError, match="no space left"):  # while earlier ones are handed over
        run(20, resume=file, callbacks=[Seen(0)], checkpoint=file)
    seen = Seen()
    resumed, whole = run(20, resume=file, callbacks=[seen]), run(20)
    same_run(seen, resumed)
    np.testing.assert_array_equal(resumed.x, whole.x)
    assert resumed.log.counts == whole.log.counts


@pytest.mark.parametrize("workers", [False, True])
def test_one_that_raises_in_a_sweep(workers: bool, tmp_path: Path) -> None:
    """Nothing is computed again but what was in progress, from its checkpoint."""
    failing = Seen(4)
    executor = ThreadPoolExecutor(1) if workers else None
    with pytest.raises(OSError, match="no space left"):
        job(executor, callbacks=[failing], out=tmp_path / "grid")
    assert set(failing.ended()) == {"interrupted"}
    kept = [file.name for file in (tmp_path / "grid" / "chunks").iterdir()]
    assert kept == ["chunk-00000.npz" if workers else "chunk-00000.checkpoint.npz"]
    seen = Seen()
    same_sweep(seen, job(callbacks=[seen], out=tmp_path / "grid", resume=True))


@mistakes(
    (lambda: run(3, callbacks=print), "callbacks = .* must be a list of functions"),
    (lambda: job(callbacks=["tensorboard:logs"]), "callbacks = .* must be a list of functions"),
)
def test_mistakes(call: Callable[[], Any], words: str) -> None:
    refused(call, words)
