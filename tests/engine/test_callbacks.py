"""Callbacks: every evaluation of every run once, with the numbers of its result."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray
from rows import a_problem
from told import mistakes, refused

import jaxfl
from jaxfl.engine import compute
from jaxfl.engine.callbacks import Evaluation, RunInfo

PRIVATE = {"eps": 4.0, "delta": 1e-3, "k": 3, "batch": 4, "lr": 0.1, "clip": 1.0}
WORKERS = pytest.mark.parametrize("workers", [0, 2])


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
    monkeypatch.setattr(compute, "OFTEN", 1)


def run(rounds: int, **options: Any) -> jaxfl.Run:
    given = {"eval_every": 3, **PRIVATE, **options}
    return jaxfl.simulate("soteriafl_sgd", a_problem(), jax.random.key(0), rounds, **given)


def swept(workers: int = 0, **options: Any) -> xarray.Dataset:
    """Four chunks; omega applies to one algorithm alone."""
    given = {"rounds": 8, "eval_every": 4, "lr": 0.1, "clip": 2.0, "sigma": 0.05, "batch": 4}
    given |= {"omega": [1.0, 3.0], "seeds": [3, 1], "runs_at_once": 2}
    executor = ThreadPoolExecutor(workers) if workers else None
    names = ["ldp_sgd", "soteriafl_sgd"]
    return jaxfl.sweep(names, a_problem(), executor=executor, **{**given, **options})


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
    """Every evaluation of every run, in order, with the numbers of the data set."""
    assert len(seen.runs) == 2 * 3
    for info, found in seen.runs.items():
        cell = ds.sel(info.labels, drop=True).sel(seed=info.seed)
        cell = cell.isel(omega=0) if "omega" in cell.dims else cell
        assert [now.round for now in found] == ds["round"].values.tolist()
        for name in {**found[0].metrics, **found[0].totals}:
            mine = [{**now.metrics, **now.totals}[name] for now in found]
            np.testing.assert_array_equal(mine, cell[name])
        assert found[-1].eps == cell["proven_eps"]


def test_of_a_run(tmp_path: Path) -> None:
    """All evaluations once; continued runs hand over the earlier ones first."""
    seen, more, whole = Seen(), Seen(), Seen()
    half = run(8, callbacks=[seen], out=tmp_path)
    same_run(seen, half)
    assert seen.ended() == ["finished"]
    same_run(whole, run(8, out=tmp_path, resume=True, callbacks=(whole,)))
    same_run(more, half.extend(14, callbacks=[more]))
    assert more.ended() == ["finished"]


def test_eps_of_many_evaluations() -> None:
    """An accountant runs for some rounds only, and those of the result."""
    same_run(seen := Seen(), run(60, eval_every=1, callbacks=[seen]))
    (found,) = seen.runs.values()
    assert len(found[0].spent.known) == len({now.eps for now in found}) < len(found)


@WORKERS
def test_of_a_sweep(workers: int, tmp_path: Path) -> None:
    """Chunks computed here, by workers, and by an earlier process; axes that do not apply; more seeds."""
    seen, again, more = Seen(), Seen(), Seen()
    same_sweep(seen, swept(workers, callbacks=[seen], out=tmp_path))
    assert set(seen.ended()) == {"finished"}
    info = next(iter(seen.runs))
    assert info.settings["algorithm"] == info.algorithm == "ldp_sgd"
    (tmp_path / "chunks" / "chunk-00001.npz").unlink()
    same_sweep(again, swept(out=tmp_path, resume=True, callbacks=[again]))
    assert set(again.ended()) == {"finished"}
    swept(out=tmp_path, extend=True, seeds=[3, 1, 7], callbacks=[more])
    assert {info.seed for info in more.runs} == {1, 3, 7}
    assert len(more.runs) == 9


def test_divergence() -> None:
    """NaN is handed over once, and ends a run of a sweep; others go on."""
    seen = Seen()
    given: Any = {"clip": 2.0, "sigma": 0.0, "batch": 4, "lr": [0.1, 1e38], "eval_every": 2}
    ds = jaxfl.sweep("cdp_sgd", a_problem(), rounds=8, callbacks=[seen], **given)
    good, bad = seen.runs.values()
    lost = int(ds["diverged_at"].values.ravel()[1])
    assert np.isnan(bad[-1].metrics["loss"])
    assert [now.round for now in bad] == list(range(0, lost + 1, 2))
    assert [now.round for now in good] == [0, 2, 4, 6, 8]
    words = f"diverged: the loss is not finite from round {lost} on"
    assert sorted(seen.ended()) == [words, "finished"]


def test_one_that_raises_in_a_run(tmp_path: Path) -> None:
    """Its error ends the run with a checkpoint, from which the run continues bit for bit."""
    failing, other, seen = Seen(6), Seen(), Seen()
    with pytest.raises(OSError, match="no space left"):
        run(20, callbacks=[other, failing], out=tmp_path)
    assert other.ended() == failing.ended() == ["interrupted"]
    resumed, whole = run(20, out=tmp_path, resume=True, callbacks=[seen]), run(20)
    same_run(seen, resumed)
    np.testing.assert_array_equal(resumed.x, whole.x)
    assert resumed.log.counts == whole.log.counts


@WORKERS
def test_one_that_raises_in_a_sweep(workers: int, tmp_path: Path) -> None:
    """Nothing is computed again but what was in progress, from its checkpoint."""
    failing, seen = Seen(4), Seen()
    with pytest.raises(OSError, match="no space left"):
        swept(workers, callbacks=[failing], out=tmp_path)
    assert set(failing.ended()) == {"interrupted"}
    kept = {file.name.split("-")[0] for file in (tmp_path / "chunks").iterdir()}
    assert kept == ({"chunk", "state"} if workers else {"state"})
    same_sweep(seen, swept(callbacks=[seen], out=tmp_path, resume=True))


@mistakes(
    (lambda: run(3, callbacks=print), "callbacks = .* must be a list of functions"),
    (lambda: swept(callbacks=[3]), "callbacks = .* must be a list of functions"),
)
def test_mistakes(call: Callable[[], Any], words: str) -> None:
    refused(call, words)
