"""The benchmarks run, and their contenders do the same work."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scripts import ROOT

pytestmark = pytest.mark.once

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of the benchmarks, as the scripts import it."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.syspath_prepend(str(BENCHMARKS / "peers"))
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]


def test_the_driver(load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rounds.json"
    few = ["--turns", "2", "--seconds", "0.01", "--only", "SGD, r"]
    load("rounds").main(["tiny", "--peers", "numpy", *few, "--out", str(out)])
    found = json.loads(out.read_text())["workloads"]["tiny"]
    rows = found["contenders"]
    assert found["skipped"] == {}
    ours = {"jaxfl, SGD, random-k", "jaxfl, SGD, random-k, shifted"}
    assert ours | {"NumPy, noise per client", "NumPy, aggregate noise"} <= set(rows)
    for row in rows.values():
        assert len(row["rates"]) == 2
        assert row["rounds_per_s"] > 0
        assert row["peak_mib"] > 0
    assert found["ratios"]["jaxfl, SGD, random-k / NumPy, random-k"] > 0
    assert "NumPy, aggregate noise" in capsys.readouterr().out


def test_who_cannot_run_is_skipped_with_the_reason(load: Any, tmp_path: Path) -> None:
    contest = load("rounds").Contest(0.01)
    contest.enter("nobody", [str(tmp_path / "python")])
    contest.enter("broken", [sys.executable, "-c", "raise ValueError('a reason')"])
    words = "from protocol import serve; serve({'nan': lambda: lambda k: float('nan')}, {})"
    contest.enter("nan", [sys.executable, "-c", words])
    contest.close()
    assert "does not start" in contest.skipped["nobody"]
    assert "a reason" in contest.skipped["broken"]
    assert "not finite" in contest.skipped["nan"]


def test_contenders_do_the_same_work(load: Any) -> None:
    """One sample per client and no noise: nothing is left to chance."""
    w = load("workloads").TINY["tiny"]._replace(m=1, sigma=0.0)
    peer, ours = load("numpy_loop"), load("ours")
    posed = ours.problem(w)
    runs = [peer.make(w, noise) for noise in ("client", "aggregate")]
    runs += [
        ours.rounds_of(w, posed, "ldp_sgd", {}, {"noise": noise})[0]
        for noise in ("fused", "per_client")
    ]
    found = [run(5) for run in runs]
    assert abs(found[0]) > 1e-3
    np.testing.assert_allclose(found, found[0], rtol=1e-5)


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((BENCHMARKS / "results" / "rounds.json").read_text())
    return found["workloads"]


def test_what_is_said_of_speed(load: Any) -> None:
    """README's section is written from the recorded numbers, and compares like with like too."""
    speed, found = load("speed"), recorded()
    readme = (BENCHMARKS.parent / "README.md").read_text()
    assert speed.placed(readme, found) == readme
    moved = json.loads(json.dumps(found))
    moved["W5 b=4 all"]["contenders"]["jaxfl, SGD"]["rounds_per_s"] *= 2
    assert speed.placed(readme, moved) != readme
    words = " ".join((BENCHMARKS / "README.md").read_text().split())
    costs = [round(speed.evaluation(found, name)) for name in ("W1", "W2")]
    assert f"costs as much as {costs[0]} rounds of W1 and {costs[1]} of W2" in words


def test_uneven_turns_are_marked(load: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tables, found = load("tables"), recorded()
    tables.show("W5 b=4 r=100", None, found["W5 b=4 r=100"])
    assert capsys.readouterr().out.count("uneven turns") == 4
    assert tables.uneven([1.0, None, 1.9]) == tables.uneven([]) == ""


def test_made_samples_are_the_same_for_all(load: Any) -> None:
    made = load("workloads").sample
    i, j = np.meshgrid(np.arange(500), np.arange(8), indexing="ij")
    a, y = made(np, np.uint32(0), i, j)
    for mine, theirs in zip((a, y), made(jnp, jnp.uint32(0), i, j), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert a.shape == (500, 8, 124)
    assert len(np.unique(a.reshape(-1, 124), axis=0)) == 4000
    assert a[..., :-1].mean() == pytest.approx(1 / 8, abs=0.003)
    assert np.abs(a[..., :-1].mean((0, 1)) - 1 / 8).max() < 0.03
    assert y.mean() == pytest.approx(1 / 4, abs=0.03)
