"""The notebooks run from beginning to end, what they assert holds, and what they store is whole."""

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
# Half a minute each: they compile many sweeps, which tests/engine/test_sweeps*.py do too.
LONG = ("2-sweeps", "5-devices")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem in LONG else ())
        for path in NOTEBOOKS
    ],
)
def test_it_runs_and_its_assertions_hold(
    path: Path, runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # their time is compilation
    monkeypatch.setenv("XLA_FLAGS", f"--xla_backend_optimization_level=0 {flags()}")
    for name in ("nbclient", "ipykernel"):
        pytest.importorskip(name)
    done = runner.execute(path, tmp_path)  # a cell that raises, raises here
    assert "assert " in "".join(cell.source for cell in code(done))
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


def test_a_false_assertion_is_noticed(runner: ModuleType, tmp_path: Path) -> None:
    nbclient, nbformat, _ = map(pytest.importorskip, ("nbclient", "nbformat", "ipykernel"))
    cells = [nbformat.v4.new_code_cell("assert 1 > 2")]
    path = tmp_path / "false.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="AssertionError"):
        runner.execute(path, tmp_path)
