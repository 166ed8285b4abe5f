"""Results of earlier versions are shown, resumed and extended, or refused with what to do."""

import shutil
from pathlib import Path

import pytest
from told import Shell

import jaxfl
from jaxfl.core.version import __version__
from jaxfl.engine import results

FILES = Path(__file__).resolve().parents[1] / "files"
VERSIONS = sorted(path.name for path in FILES.iterdir())

pytestmark = [pytest.mark.once, pytest.mark.parametrize("version", VERSIONS)]


@pytest.fixture
def folder(version: str, tmp_path: Path) -> Path:
    assert version != __version__
    return Path(shutil.copytree(FILES / version, tmp_path / "old"))


def test_they_are_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(capsys)
    run, sweep = (jaxfl.load(folder / name) for name in ("run", "sweep"))
    assert [results.config(ds)["format"] for ds in (run, sweep)] == [1, 1]
    assert run["round"].values.tolist() == [0, 2, 4, 6]
    assert dict(sweep.sizes)["eps"] == dict(sweep.sizes)["lr"] == 2
    assert "ldp_sgd" in shell("show", folder / "sweep").out
    assert "eps = 4" in shell("show", folder / "run").out.replace("3.999", "4")
    assert "common setting" in shell("compare", folder / "sweep", folder / "sweep").out


def test_a_run_is_extended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its first rounds stay as they were recorded."""
    before = jaxfl.load(folder / "run")["loss"].values
    Shell(capsys)("run --resume", folder / "run", "--rounds 9 --no-plot --quiet")
    after = jaxfl.load(folder / "run")
    assert after["round"].values.tolist()[-1] == 9
    assert (after["loss"].values[:3] == before[:3]).all()


def test_a_sweep_is_finished_by_its_own_version(
    folder: Path, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Draws may differ between versions; a finished sweep is merged again."""
    shell = Shell(capsys)
    said = shell.refused("sweep --extend", folder / "sweep", "--eps 8 --no-plot --quiet")
    assert (
        f'its jaxfl is "{version}", this one\'s "{__version__}": finish it as it was begun' in said
    )
    shell("sweep --resume", folder / "sweep", "--no-plot --quiet")
