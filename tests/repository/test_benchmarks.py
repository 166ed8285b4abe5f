"""The benchmarks run, and their contenders do the same work."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
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
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]


@pytest.mark.full
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
    runs = [peer.make(w, noise) for noise in ("client", "aggregate")]
    for noise in ("fused", "per_client"):
        runs += [ours.rounds_of(w, ours.problem(w), "ldp_sgd", {}, {"noise": noise})[0]]
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
    assert speed.placed(readme, "speed", speed.section(found)) == readme
    table = speed.section(found).splitlines()[3:6]
    by_hand, others = ([float(row.split("|")[i].strip(" x")) for row in table] for i in (3, 5))
    summary = (
        f"[{min(by_hand):g} to {max(by_hand):g} times](#speed) as fast as loops written by hand"
    )
    assert f"{summary}, {min(others):.0f} to {max(others):.0f} times" in readme
    moved = json.loads(json.dumps(found))
    moved["W5 b=4 all"]["contenders"]["jaxfl, SGD"]["rounds_per_s"] *= 2
    assert speed.section(moved) != speed.section(found)
    words = " ".join((BENCHMARKS / "README.md").read_text().split())
    costs = [round(speed.evaluation(found, name)) for name in ("W1", "W2")]
    assert f"costs as much as {costs[0]} rounds of W1 and {costs[1]} of W2" in words


def test_made_samples_are_the_same_for_all(load: Any) -> None:
    made = load("workloads").sample
    i, j = np.meshgrid(np.arange(500), np.arange(8), indexing="ij")
    a, y = made(np, np.uint32(0), i, j)
    for mine, theirs in zip((a, y), made(jnp, jnp.uint32(0), i, j), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert len(np.unique(a.reshape(-1, 124), axis=0)) == a.shape[0] * a.shape[1] == 4000


def rounds(x: Any, i: Any, rare: bool, n: int, T: int) -> Any:
    """T rounds: rows i of x change in three turns and in n more, and rarely all of x."""

    def round(t: Any, x: Any) -> Any:
        rows = jax.lax.fori_loop(0, 3, lambda _, r: jnp.sin(r) + 1, x[i])
        x = x.at[i].set(jax.lax.fori_loop(0, n, lambda _, r: jnp.cos(r), rows))
        return jax.lax.cond(rare, lambda x: jnp.sin(jnp.sort(x, 0)), lambda x: x, x)

    return jax.lax.fori_loop(0, T, round, x)


@pytest.mark.optimized
def test_what_a_round_launches_is_read_from_its_program(load: Any) -> None:
    module, arguments = load("hlo"), (jnp.ones((1000, 4)), jnp.arange(8), True, 2, 9)
    text = jax.jit(rounds).lower(*arguments).compile().as_text()
    found, longer = (module.Program(text, trips=trips).round() for trips in (5, 6))
    assert [known for _, known in found.loops] == [3, None]
    assert found.waits == 1 + (5 + 1) + 1  # rounds, the loop of n turns, the branch
    turns = [
        sum(k for at, k in one.kernels.items() if at.endswith("/cos")) for one in (found, longer)
    ]
    assert turns == [5, 6]
    assert found.most > sum(found.kernels.values())  # with the rare branch
    assert 2 * 8 * 4 * 4 < found.bytes < 1000 * 4 * 4  # of the table only the rows that are drawn


def test_draws_are_counted_where_they_are_made(load: Any) -> None:
    """Of 2,048 normals and as many uniform numbers in each of 3 turns, beside a few for keys."""

    def turn(t: Any, x: Any) -> Any:
        one, two = jax.random.split(jax.random.fold_in(jax.random.key(0), t))

        def more(i: Any, x: Any) -> Any:
            return x + jax.random.normal(jax.random.fold_in(one, i), x.shape)

        return jax.lax.fori_loop(0, 3, more, x) + jax.random.uniform(two, x.shape)

    loop = jax.jit(lambda T, x: jax.lax.fori_loop(0, T, turn, x))
    once = {"xla_disable_hlo_passes": "fusion"}  # which draws again for each use on a CPU
    text = loop.lower(9, jnp.zeros(2048)).compile(compiler_options=once).as_text()
    draws = load("hlo").Program(text).round().draws
    assert 4 * 2048 <= draws < 4 * 2048 * 1.01


def test_budgets(load: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    budgets = load("budgets")
    row = {"kernels": 9.0, "waits": 1.0, "bytes_over_least": 4.2, "by_operation": {"add": 9.0}}
    assert budgets.exceeded("h200", "W1 SGD", row, [9, 1, 4.2]) == []
    assert budgets.exceeded("h200", "W1 SGD", row, [8, 0, 4]) == [
        "h200, W1 SGD: 9 kernels, budget 8 (9 add)",
        "h200, W1 SGD: 1 waits, budget 0",
        "h200, W1 SGD: 4.2 bytes over least, budget 4",
    ]
    monkeypatch.setattr(budgets, "find_spec", lambda name: None)
    monkeypatch.setitem(budgets.TABLE, "jax", budgets.jax.__version__)
    assert budgets.main(["--devices", "v5e"]) == 0
    words = "v5e is skipped: the compiler for TPU v5e is not installed: pip install 'jax[tpu]'\n"
    assert capsys.readouterr().out == words
    monkeypatch.setitem(budgets.TABLE, "jax", "0.0")
    assert "budgets are those of JAX 0.0" in budgets.missing("h200")


def test_the_least_that_a_round_moves(load: Any) -> None:
    """Samples once, the state twice: of sparse messages the sectors of k coordinates, of a table the drawn
    records, and what is added to estimates is written where it follows them."""
    w, least = load("workloads").TINY["tiny"]._replace(d=64), load("budgets").least
    links, table, x = (np.zeros(s, "f4") for s in ((w.n, w.d), (w.n, w.m), (w.d,)))
    drawn = 4 * w.n * w.b * (w.features + 1)
    dense = drawn + 8 * w.d + 8 * links.size + 8 * w.n * w.b
    assert least(w, (x, links, table), None) == pytest.approx(dense)
    assert least(w, (x, links, table), 2) == pytest.approx(dense - 8 * w.n * (w.d - 2 * 8))
    assert least(w, (x, links, table), 32) == pytest.approx(dense)
    state = NamedTuple("State", [("bases", Any)])(np.zeros_like(links))
    assert least(w, state, 2) == pytest.approx(drawn + 4 * w.n * 2 * 8)
    assert least(w, state, 2, follows=True) == pytest.approx(drawn + 8 * links.size)


def test_what_is_said_of_accelerators(load: Any) -> None:
    """The table is written from the record, which has all cases, each within its budget."""
    speed, budgets = load("speed"), load("budgets")
    found = json.loads((BENCHMARKS / "results" / "accelerators.json").read_text())
    page = (BENCHMARKS / "README.md").read_text()
    assert speed.placed(page, "accelerators", speed.accelerators(found, budgets.TABLE)) == page
    for device, rows in found["devices"].items():
        assert rows.keys() == budgets.TABLE[device].keys()
        for case, row in rows.items():
            assert budgets.exceeded(device, case, row, budgets.TABLE[device][case]) == []
            assert row["jax"] == budgets.TABLE["jax"]


@pytest.mark.full  # compiles the rounds of three workloads, and starts pytest
def test_the_script_for_accelerators_runs(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAXFL_TEST_PROGRAMS", raising=False)  # pytest inside would remove them
    out = tmp_path / "cpu.json"
    assert load("accelerator").main(["--quick", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["skipped"] == {}
    assert found["device"] == "CPU"
    assert found["constants"]["measured"]["bandwidth"] > 1e8
    assert len(found["rounds"]) == 2 * len(load("workloads").TINY)
    for row in (*found["rounds"].values(), *found["sweeps"].values()):
        assert row["us"] > row["roofline_us"] > 0
        assert row["kernels"] > row["waits"] > 0
    assert "skipped" in found["tests"]["gpu"]["told"]  # without a GPU
