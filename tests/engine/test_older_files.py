"""Results of earlier versions are read and shown; their folders are refused with what to do.

Those of this version are read in the same way, so that the next one finds them tested.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
import scripts
import xarray
from told import Shell, refused

import jaxfl
from jaxfl.core.version import __version__
from jaxfl.engine import results

FILES = Path(__file__).resolve().parents[1] / "files"
VERSIONS = sorted(path.name for path in FILES.iterdir() if path.is_dir())
RUNS = sorted(str(path.relative_to(FILES)) for path in FILES.glob("*.*.*/runs/*.nc"))
CHECKPOINTS = sorted(FILES.glob("*.*.*/checkpoints/*"))
FOLDERS = sorted(str(path.parent.relative_to(FILES)) for path in FILES.glob("*.*.*/*/config.json"))
BEFORE = ("0.1.0", "0.2.0")  # whose folders have no plan
SAID = {  # of the runs of `make.py`
    "not_private": "not private: no noise",
    "private": "eps = 4, delta = 0.001 proven",
    "sizes": "eps = 4, delta = 0.001 proven",
    "stopped": "eps = 3.347, delta = 0.001 proven",
    "tested": "eps = 4, delta = 0.001 proven",
}

make = scripts.load("tests/files/make")
pytestmark = pytest.mark.once


@pytest.mark.parametrize("version", VERSIONS)
def test_they_are_read(version: str, shell: Shell) -> None:
    folder = FILES / version
    run, sweep = (jaxfl.load(folder / name) for name in ("run", "sweep"))
    assert [results.config(ds)["format"] for ds in (run, sweep)] == [1, 1]
    assert run["round"].values.tolist() == [0, 2, 4, 6]
    assert dict(sweep.sizes)["eps"] == dict(sweep.sizes)["lr"] == 2
    assert "ldp_sgd" in shell("show", folder / "sweep").out
    assert "eps = 4" in shell("show", folder / "run").out.replace("3.999", "4")
    assert "common setting" in shell("compare", folder / "sweep", folder / "sweep").out
    for words in ("run --resume", "run --rounds 99 --extend", "run ldp_gd --out"):
        assert "was begun by jaxfl" in shell.refused(words, folder / "run")


@pytest.mark.plain
@pytest.mark.parametrize("name", RUNS)
def test_a_file_of_a_run_is_shown(name: str, shell: Shell) -> None:
    """With what is proven of it, and where a stopping rule has ended it."""
    ds, stem = jaxfl.load(FILES / name), Path(name).stem
    stopped = stem == "stopped"
    assert ds["round"].values.tolist() == ([0, 3, 6] if stopped else [0, 3, 6, 8])
    assert results.config(ds)["ended"].startswith("stopped: " if stopped else "finished")
    assert ("client_eps" in ds) == (stem != "not_private")
    assert SAID[stem] in shell("show", FILES / name).out.replace("3.999", "4")


@pytest.mark.plain
@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("how", ["resume", "extend"])
def test_a_folder_goes_on_by_its_own_version_alone(how: str, name: str, tmp_path: Path) -> None:
    """A run, a sweep, and one that was killed: a sentence says so, and nothing is changed."""
    folder = Path(shutil.copytree(FILES / name, tmp_path / "old"))
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    given: Any = {"rounds": 6, "lr": 0.1, "out": folder, how: True}

    def again() -> None:
        if name.endswith("run"):
            jaxfl.simulate("ldp_gd", make.problem(), **given)
        else:
            jaxfl.sweep("ldp_gd", make.problem(), **given)

    if name.split("/")[0] in BEFORE:
        words = r"old was begun by jaxfl 0\.2\.0 or earlier .*: finish it with that version, or"
    else:
        words = "holds other runs"
    refused(again, words)
    for file in CHECKPOINTS:
        given["out"] = file
        refused(again, "is a file, and results need a folder")
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.full  # runs, and commands
def test_files_of_this_version_are_made(tmp_path: Path, shell: Shell) -> None:
    """By the script that makes those which the next version reads; its folders go on."""
    make.make(tmp_path / "now")
    assert {path.stem for path in (tmp_path / "now" / "runs").glob("*.nc")} == SAID.keys()
    whole = jaxfl.load(tmp_path / "now" / "sweep")
    shell("sweep --resume", tmp_path / "now" / "unfinished", "--no-plot --quiet")
    xarray.testing.assert_equal(jaxfl.load(tmp_path / "now" / "unfinished"), whole)
    assert results.config(whole)["settings"]["versions"]["jaxfl"] == __version__
    shell("run --extend", tmp_path / "now" / "run", "--rounds 9 --no-plot --quiet")
    assert jaxfl.load(tmp_path / "now" / "run")["round"].values.tolist()[-1] == 9
