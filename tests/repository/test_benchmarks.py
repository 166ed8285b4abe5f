"""The benchmarks run, and their contenders do the same work."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
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
    assert np.abs(a[..., :-1].mean((0, 1)) - 1 / 8).max() < 0.03
    assert y.mean() == pytest.approx(1 / 4, abs=0.03)


HLO = """HloModule jit_advance, is_scheduled=true

%gathered (p.0: f32[1000,4], p.1: s32[8]) -> f32[8,4] {
  %p.0 = f32[1000,4]{1,0} parameter(0)
  %p.1 = s32[8]{0} parameter(1)
  ROOT %gather.1 = f32[8,4]{1,0} gather(%p.0, %p.1), offset_dims={1}
}

%updated (p.2: f32[1000,4], p.3: f32[8,4], p.4: s32[]) -> f32[1000,4] {
  %p.2 = f32[1000,4]{1,0} parameter(0)
  %p.3 = f32[8,4]{1,0} parameter(1)
  %p.4 = s32[] parameter(2)
  ROOT %update.1 = f32[1000,4]{1,0} dynamic-update-slice(%p.2, %p.3, %p.4, %p.4)
}

%turn (t.1: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %t.1 = (s32[], f32[8,4]{1,0}) parameter(0)
  %n.1 = s32[] get-tuple-element(%t.1), index=0
  %v.1 = f32[8,4]{1,0} get-tuple-element(%t.1), index=1
  %next.1 = s32[] add(%n.1, %n.1), metadata={op_name="f/while/body/while/body/add"}
  %half.1 = f32[8,4]{1,0:T(8,128)S(1)} copy(%v.1)
  ROOT %o.1 = (s32[], f32[8,4]{1,0}) tuple(%next.1, %half.1)
}

%less (t.2: (s32[], f32[8,4])) -> pred[] {
  %t.2 = (s32[], f32[8,4]{1,0}) parameter(0)
  %n.2 = s32[] get-tuple-element(%t.2), index=0
  ROOT %less.2 = pred[] compare(%n.2, %n.2), direction=LT
}

%few (t.8: (s32[], f32[8,4])) -> pred[] {
  %t.8 = (s32[], f32[8,4]{1,0}) parameter(0)
  %n.8 = s32[]{:T(128)} get-tuple-element(%t.8), index=0
  %c.8 = s32[]{:T(128)} constant(4)
  ROOT %less.8 = pred[]{:T(512)} compare(%n.8, %c.8), direction=LT
}

%rare (t.3: f32[1000,4]) -> f32[1000,4] {
  %t.3 = f32[1000,4]{1,0} parameter(0)
  %a.3 = f32[1000,4]{1,0} negate(%t.3)
  ROOT %b.3 = f32[1000,4]{1,0} negate(%a.3)
}

%usual (t.4: f32[1000,4]) -> f32[1000,4] {
  ROOT %t.4 = f32[1000,4]{1,0} parameter(0)
}

%round (t.5: (s32[], f32[1000,4], s32[8], pred[])) -> (s32[], f32[1000,4], s32[8], pred[]) {
  %t.5 = (s32[], f32[1000,4]{1,0}, s32[8]{0}, /*index=3*/pred[]) parameter(0)
  %n.5 = s32[] get-tuple-element(%t.5), index=0
  %x.5 = f32[1000,4]{1,0} get-tuple-element(%t.5), index=1
  %i.5 = s32[8]{0} get-tuple-element(%t.5), index=2
  %f.5 = f32[8,4]{1,0} fusion(%x.5, %i.5), kind=kLoop, calls=%gathered, metadata={op_name="f/gather"}
  %c.5 = (s32[], f32[8,4]{1,0}) tuple(%n.5, %f.5)
  %k.5 = (s32[], f32[8,4]{1,0}) while(%c.5), condition=%less, body=%turn, c={"known_trip_count":{"n":"3"}}
  %w.5 = (s32[], f32[8,4]{1,0}) while(%k.5), condition=%few, body=%turn
  %u.5 = (s32[], f32[8,4]{1,0}) while(%w.5), condition=%less, body=%turn, metadata={op_name="f/while"}
  %v.5 = f32[8,4]{1,0} get-tuple-element(%u.5), index=1
  %g.5 = f32[1000,4]{1,0} fusion(%x.5, %v.5, %n.5), kind=kLoop, calls=%updated
  %b.5 = pred[] get-tuple-element(%t.5), index=3
  %d.5 = f32[1000,4]{1,0} conditional(%b.5, %g.5, %g.5), true_computation=%rare, false_computation=%usual
  ROOT %o.5 = (s32[], f32[1000,4]{1,0}, s32[8]{0}, pred[]) tuple(%n.5, %d.5, %i.5, %b.5)
}

%more (t.6: (s32[], f32[1000,4], s32[8], pred[])) -> pred[] {
  %t.6 = (s32[], f32[1000,4]{1,0}, s32[8]{0}, pred[]) parameter(0)
  %n.6 = s32[] get-tuple-element(%t.6), index=0
  ROOT %less.6 = pred[] compare(%n.6, %n.6), direction=LT
}

ENTRY %main (t.7: (s32[], f32[1000,4], s32[8], pred[])) -> (s32[], f32[1000,4], s32[8], pred[]) {
  %t.7 = (s32[], f32[1000,4]{1,0}, s32[8]{0}, pred[]) parameter(0)
  ROOT %w.7 = (s32[], f32[1000,4]{1,0}, s32[8]{0}, pred[]) while(%t.7), condition=%more, body=%round
}
"""


def test_what_a_round_launches_is_read_from_its_program(load: Any) -> None:
    """Two fusions, 3 + 4 known and 5 assumed turns of two kernels, and conditions."""
    module = load("hlo")
    round = module.Program(HLO, trips=5).round()
    assert sum(round.kernels.values()) == 2 + 2 * (3 + 4 + 5) + (5 + 1) + 1
    assert round.most - sum(round.kernels.values()) == 2  # the rare branch
    assert round.waits == 1 + (5 + 1) + 1  # rounds, the inner loop, the branch
    assert [known for _, known in round.loops] == [3, 4, None]
    assert round.kernels["f/while/body/while/body/add"] == 12
    assert round.kernels["f/gather"] == 1
    part, turn, head = 8 * 4 * 4, 3 * 4 + 8 * 4 * 4, 2 * 4 + 1  # S(1) is on the chip
    gathered, updated = 2 * part + 8 * 4, 2 * part + 4
    assert round.bytes == gathered + updated + 12 * turn + (5 + 1) * head + head
    few = module.Program(HLO, trips=5, scalars=False).round()
    assert sum(few.kernels.values()) == 2 + 3 + 4 + 5


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
    """Samples once, the state twice: of sparse messages k coordinates, of a table the drawn records."""
    w = load("workloads").TINY["tiny"]
    state = np.zeros(w.d, "f4"), np.zeros((w.n, w.d), "f4"), np.zeros((w.n, w.m), "f4")
    drawn = 4 * w.n * w.b * (w.features + 1)
    dense = drawn + 8 * w.d + 8 * w.n * w.d + 8 * w.n * w.b
    assert load("budgets").least(w, state, None) == pytest.approx(dense)
    assert load("budgets").least(w, state, 2) == pytest.approx(dense - 8 * w.n * (w.d - 2))


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
