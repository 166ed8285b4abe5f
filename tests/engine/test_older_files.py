"""Results of earlier versions are shown, resumed and extended, or refused with what to do.

Those of this version are read in the same way, so that the next one finds them tested.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import scripts
from told import Shell

import jaxfl
from jaxfl.core.version import __version__
from jaxfl.engine import results

FILES = Path(__file__).resolve().parents[1] / "files"
VERSIONS = sorted(path.name for path in FILES.iterdir() if path.is_dir())
RUNS = sorted(str(path.relative_to(FILES)) for path in FILES.glob("*.*.*/runs/*.nc"))
CHECKPOINTS = sorted(str(path.relative_to(FILES)) for path in FILES.glob("*.*.*/checkpoints/*"))
UNFINISHED = [version for version in VERSIONS if (FILES / version / "unfinished").exists()]
SAID = {  # of the runs of `make.py`
    "not_private": "not private: no noise",
    "private": "eps = 4, delta = 0.001 proven",
    "sizes": "eps = 4, delta = 0.001 proven",
    "stopped": "eps = 3.347, delta = 0.001 proven",
    "tested": "eps = 4, delta = 0.001 proven",
}
ROUNDING = 1e-5  # relative: what was computed by other programs

make = scripts.load("tests/files/make")
pytestmark = pytest.mark.once
versions = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def folder(version: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(FILES / version, tmp_path / "old"))


@versions
def test_they_are_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(capsys)
    run, sweep = (jaxfl.load(folder / name) for name in ("run", "sweep"))
    assert [results.config(ds)["format"] for ds in (run, sweep)] == [1, 1]
    assert run["round"].values.tolist() == [0, 2, 4, 6]
    assert dict(sweep.sizes)["eps"] == dict(sweep.sizes)["lr"] == 2
    assert "ldp_sgd" in shell("show", folder / "sweep").out
    assert "eps = 4" in shell("show", folder / "run").out.replace("3.999", "4")
    assert "common setting" in shell("compare", folder / "sweep", folder / "sweep").out


@pytest.mark.parametrize("name", RUNS)
def test_a_file_of_a_run_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what is proven of it, and where a stopping rule has ended it."""
    ds, stem = jaxfl.load(FILES / name), Path(name).stem
    stopped = stem == "stopped"
    assert ds["round"].values.tolist() == ([0, 3, 6] if stopped else [0, 3, 6, 8])
    assert results.config(ds)["ended"].startswith("stopped: " if stopped else "finished")
    assert ("client_eps" in ds) == (stem != "not_private")
    shown = Shell(capsys)("show", FILES / name).out.replace("3.999", "4")
    assert SAID[stem] in shown


@versions
def test_a_run_is_extended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its first rounds stay as they were recorded."""
    before = jaxfl.load(folder / "run")["loss"].values
    Shell(capsys)("run --resume", folder / "run", "--rounds 9 --no-plot --quiet")
    after = jaxfl.load(folder / "run")
    assert after["round"].values.tolist()[-1] == 9
    assert (after["loss"].values[:3] == before[:3]).all()


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_is_resumed(name: str) -> None:
    """To the end of the run, which is that of its file, or beyond the end."""
    path = FILES / name
    stem, how = path.stem.split("-")
    rounds = make.ROUNDS if how == "interrupted" else make.ROUNDS + 1
    run = jaxfl.simulate(*make.parts_of(stem), rounds, resume=path)
    whole = jaxfl.load(path.parents[1] / "runs" / f"{stem}.nc")
    same = whole.sizes["round"] if how == "interrupted" else whole.sizes["round"] - 1
    found = run.dataset()
    assert found["round"].values.tolist()[-1] == rounds
    for total in ("messages", "gradients", "coordinates", "uplink_bits"):
        assert (found[total].values[:same] == whole[total].values[:same]).all()
    for metric in ("loss", "grad_norm_sq"):
        np.testing.assert_allclose(found[metric][:same], whole[metric][:same], ROUNDING)
    assert run.privacy().proven >= results.config(whole)["privacy"]["proven"]


@versions
def test_a_finished_sweep_is_merged_again(
    folder: Path, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only its own version extends it, since draws may differ between versions."""
    shell, before = Shell(capsys), jaxfl.load(folder / "sweep")
    more = ("sweep --extend", folder / "sweep", "--eps 8 --no-plot --quiet")
    if version != __version__:
        said = shell.refused(*more)
        assert (
            f'its jaxfl is "{version}", this one\'s "{__version__}": finish it as it was begun'
            in said
        )
    shell("sweep --resume", folder / "sweep", "--no-plot --quiet")
    assert jaxfl.load(folder / "sweep")["loss"].equals(before["loss"])
    if version == __version__:
        shell(*more)
        after = jaxfl.load(folder / "sweep")
        assert after["eps"].values.tolist() == [1.0, 4.0, 8.0]
        assert after["loss"].sel(eps=before["eps"]).equals(before["loss"])


@pytest.mark.parametrize("version", UNFINISHED)
def test_an_unfinished_sweep_is_finished(
    folder: Path, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its own version: the result is that of the sweep which was not killed."""
    shell, resume = Shell(capsys), ("sweep --resume", folder / "unfinished", "--no-plot --quiet")
    if version != __version__:
        assert "was begun with other draws" in shell.refused(*resume)
        return
    shell(*resume)
    found, whole = (jaxfl.load(folder / name) for name in ("unfinished", "sweep"))
    assert set(found.variables) >= set(whole.variables)
    assert np.isinf(found["proven_eps"]).all()  # its files do not say whose parts they ran
    proof = ("proven_eps", "delta_at_claimed", "eps_of_choice", "flag")
    for name, values in whole.drop_vars(proof).data_vars.items():
        np.testing.assert_allclose(found[name], values, ROUNDING, err_msg=str(name))
