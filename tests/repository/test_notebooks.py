"""The notebooks run from beginning to end, what their text says holds, and what they store is whole."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scripts import ROOT, load
from shorter import flags

pytestmark = pytest.mark.once

FOLDER = ROOT / "notebooks"
BYTES = 400_000


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    return load("notebooks/execute")


def read(path: Path) -> Any:
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat: pip install '.[test]'")
    return nbformat.read(path, as_version=4)


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def pictures(notebook: Any) -> int:
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    return sum("image/png" in output.get("data", {}) for output in outputs)


NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
CHECKS = {  # what the text says, in the kernel of the notebook
    "1-first-steps": """
report, k = run.privacy(), run.values["k"]
assert 8.0 * 0.999 < report.proven <= 8.0 * (1 + 1e-6) and not report.flag
assert run.totals["uplink_bits"] == 1000 * k * (32 + 10) < 1000 * d * 32 / 2
assert k == 162 and d == 650 and len(ks) == 6
assert jnp.linalg.norm(gradients(first), axis=1).min() > 1
assert jnp.linalg.norm(gradient) < sigma * d**0.5
assert all(abs(relative_error(k) - (d / k - 1)) < 0.05 * (d / k) for k in ks)
assert lengths["soteriafl_gd"][-20:].mean() < 0.6 * lengths["cdp_gd"][-20:].mean()
assert (longer.x == runs["ldp_gd: no compression"].x).all()
final = [one.metrics["loss"][-1] for one in runs.values()]
assert final[3] < min(final[:3]) and max(final[:2]) < 1.15 * final[2] and final[1] < 1.05 * final[0]
""",
    "2-sweeps": """
for name in ("soteriafl_gd", "cdp_gd"):
    assert (loss.sel(algorithm=name).diff("eps") < 0).all()
    assert (loss.sel(algorithm=name).diff("omega") > 0).all()
assert ratio.sel(eps=50, omega=39) < 0.9 and (ratio.sel(eps=2) > 1).all()
assert 0.01 < best.ds["chosen_lr"].min() and best.ds["chosen_lr"].max() < 30
assert (best.ds["proven_eps"] <= best.ds["eps"] * (1 + 1e-6)).all()
""",
    "3-your-own": """
assert np.abs(run.params["w"] - w).max() < 0.3 and np.isfinite(run.privacy(delta=1e-5).proven)
assert jnp.allclose(draws.mean(0), v, atol=0.05) and error <= two_levels().omega(40, {}) * float(v @ v)
assert runs["two_levels"].totals["uplink_bits"] == 1500 * (2 * 32 + 21)
assert "coins" in flipped.privacy().method and scheme == "poisson"
assert found.described > 3.9 and not found.refutes_described and "coins" in " ".join(found.unseen)
assert flipped.privacy().status == "P"
assert (x == run.x).all() and np.abs(learned - w).max() < 0.3
assert abs(own.described - 8.0) < 1e-9 and 8.0 > own.lower > 2 and not own.refutes_described
final = curves["loss"].isel(round=-1).mean("seed").squeeze()
assert final.sel(eps=16) < final.sel(eps=4) < 0.69
""",
    "4-three-epsilons": """
assert all(0.99 < one["claimed_eps"] < 1.01 for one in answers)
assert 68 < answers[0]["eps"] < 70
assert all(one["flag"] for one in answers if one["eps"] > 1.01 * one["claimed_eps"])
assert 0.6 * sound.proven < sound.lower <= sound.proven <= eps * (1 + 1e-6) and not sound.refutes_proof
for one in broken.values():
    assert one.proven == float("inf") and one.described == sound.proven < one.needed
    assert one.refutes_described and not one.refutes_proof
assert shortcut.refutes_claim and shortcut.lower > shortcut.claimed and shortcut.proven == float("inf")
""",
    "5-devices": """
assert np.abs(four["loss"] - one["loss"]).max() < 1e-4
assert (four["gradients"] == one["gradients"]).all()
assert np.abs(whole_run.metrics["loss"] - split_run.metrics["loss"]).max() < 1e-4
""",
}


@pytest.mark.full
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_its_text_holds(
    path: Path, runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # their time is compilation
    monkeypatch.setenv("XLA_FLAGS", f"--xla_backend_optimization_level=0 {flags()}")
    for name in ("nbclient", "ipykernel"):
        pytest.importorskip(name)
    done = runner.execute(path, tmp_path, CHECKS[path.stem])  # a cell that raises, raises here
    assert [cell.execution_count for cell in code(done)] == list(range(1, 1 + len(code(done))))
    stored = read(path)
    assert pictures(done) == pictures(stored) >= 2
    warned = [o.text for c in code(done) for o in c.outputs if o.get("name") == "stderr"]
    assert not warned, warned


def test_what_they_store_is_whole_and_small() -> None:
    assert [path.name[0] for path in NOTEBOOKS] == ["1", "2", "3", "4", "5"]
    for path in NOTEBOOKS:
        stored = code(read(path))
        assert [cell.execution_count for cell in stored] == list(range(1, 1 + len(stored)))
        assert path.stat().st_size < BYTES
        assert not any(o.output_type == "error" for cell in stored for o in cell.outputs)
        shown = [o.get("data", {}) for cell in stored for o in cell.outputs]
        assert not any("<progress" in "".join(data.get("text/html", "")) for data in shown)
        lines = ["".join(o.data["text/plain"]) for cell in stored for o in cell.outputs
                 if o.output_type == "display_data" and {*o.data} == {"text/plain"}]  # fmt: skip
        assert lines == [], "a progress bar leaves nothing"
