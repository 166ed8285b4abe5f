"""`jaxfl sweep`: the grid that the words ask for, its folder, going on, and mistakes in one sentence."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from rows import a_problem
from told import SYNTHETIC, Shell, one_sentence

import jaxfl
from jaxfl.cli import main
from jaxfl.cli.parser import parse
from jaxfl.engine import compute as chunks
from jaxfl.engine import store
from jaxfl.engine.results import config

pytestmark = pytest.mark.once

SPAN = "--batch 3 --sigma 0.05 --lr 0.1 0.3 --omega 0 1 --rounds 6"
QUIET = "--no-plot --quiet"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweep") / "grid"
    words = f"sweep soteriafl_sgd ldp_sgd {SPAN} --seeds 2 {QUIET} {SYNTHETIC} --out {out}"
    assert main(words.split()) == 0
    return out


def test_a_cell_is_the_run_of_the_same_words(finished: Path, tmp_path: Path, shell: Shell) -> None:
    """And the axes are those that were asked for."""
    grid, out = jaxfl.load(finished / "result.nc"), tmp_path / "run"
    axes = {"algorithm": 2, "lr": 2, "omega": 2, "seed": 2, "round": 7}
    assert dict(grid.sizes) == {**axes, "client": 3}
    assert np.isfinite(grid["loss"].values).all()
    assert grid["applies_omega"].values.tolist() == [1, 0]
    words = "--batch 3 --sigma 0.05 --lr 0.3 --omega 1 --rounds 6 --seed 1"
    shell("run soteriafl_sgd", words, QUIET, SYNTHETIC, "--out", out)
    run, cell = jaxfl.load(out), grid.sel(algorithm="soteriafl_sgd", lr=0.3, omega=1, seed=1)
    np.testing.assert_allclose(cell["loss"], run["loss"], rtol=1e-5)
    for name in ("uplink_bits", "downlink_bits", "gradients", "messages"):
        np.testing.assert_array_equal(cell[name], run[name])
    assert float(cell["proven_eps"]) == pytest.approx(
        float(config(run)["privacy"]["proven"]), rel=1e-9
    )


def test_resume_completes_what_is_missing_and_only_that(
    finished: Path, tmp_path: Path, shell: Shell
) -> None:
    """By --resume; before, `show` prints what is there, and computes and writes nothing."""
    folder = shutil.copytree(finished, tmp_path / "part")

    def files() -> dict[Path, int]:
        return {file: file.stat().st_mtime_ns for file in folder.rglob("*")}

    (folder / "result.nc").unlink()
    lost, *kept = sorted((folder / "chunks").glob("chunk-*"))
    lost.unlink()
    before = files()
    told = shell("show", folder, "--choose-by none")
    assert f"has lost its result.nc: `jaxfl sweep --resume {folder}` computes what" in told.err
    assert re.search(r"^.*ldp_sgd.*0\.\d+ ± ", told.out, re.MULTILINE)
    left = r"done: \d+ of \d+ runs; left: \d+ runs? in 1 compilation, about 1 chunk of "
    assert re.search(left, shell("sweep --plan --resume", folder).err)
    assert files() == before
    assert "soteriafl_sgd" in shell("sweep --no-plot --resume", folder).out
    assert {file: files()[file] for file in kept}.items() <= before.items()
    one, two = jaxfl.load(finished / "result.nc"), jaxfl.load(folder / "result.nc")
    xarray.testing.assert_identical(one.drop_attrs(), two.drop_attrs())


@pytest.mark.full
def test_a_killed_extension_is_finished_by_resume(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    """Between config.json and the plan."""
    folder, begun = tmp_path / "grid", "sweep --no-plot --lr 0.5 --extend"
    shutil.copytree(finished, folder)

    def full(*args: object) -> None:
        raise jaxfl.InputError("Cannot write it", "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "write_list", full)
        shell(begun, folder, status=2)
    assert "left: 6 runs in" in shell("sweep --no-plot --resume", folder).err
    ds = jaxfl.load(folder)
    assert ds["lr"].values.tolist() == [0.1, 0.3, 0.5]
    assert np.isfinite(ds["loss"]).all()


@pytest.mark.parametrize("where", ["swept", "show"])
def test_an_interrupted_extension_says_what_there_is(
    where: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    """Nothing before its plan is written; after that the plan, and rows that have not run."""

    def stop(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    folder = tmp_path / "grid"
    shutil.copytree(finished, folder)
    monkeypatch.setattr(chunks, "SECONDS", 0.0)  # so that every call is shown
    with monkeypatch.context() as patch:
        patch.setattr(f"jaxfl.cli.compute.{where}", stop)
        told = shell("sweep --no-plot --lr 0.5 --extend", folder, status=130).err
    planned, found = where == "show", shell("show", folder, "--choose-by none")
    assert (f"is saved: continue with `jaxfl sweep --resume {folder}`." in told) == planned
    assert ("before anything was saved." in told) != planned
    assert ("has an unfinished extension: `jaxfl sweep --resume" in found.err) == planned
    assert ("not run yet" in found.out) == planned


def test_more_rounds_of_a_sweep_with_the_same_noise(tmp_path: Path, shell: Shell) -> None:
    """As those of a run by --until: each setting with its own noise."""
    out = tmp_path / "grid"
    shell("sweep ldp_gd --eps 2 4 --rounds 6 --eval-every 1 --no-plot --out", out, SYNTHETIC)
    before = jaxfl.load(out)["loss"].values.squeeze()
    asked = [f"--where eps={eps} --json" for eps in (2, 4)]
    told = [json.loads(shell("account", out, words, "--rounds 9").out)["eps"] for words in asked]
    for words in ("--until 4", "--rounds 6 9 --until 9"):
        says = "at least 6" if words == "--until 4" else "rounds is an axis here"
        assert says in shell("sweep --extend", out, words, status=2).err
    assert (
        "jaxfl sweep --extend DIR --until T" in shell("sweep --plan --rounds 9 --extend", out).err
    )
    share = r"are about \d+% of the work"  # of the same evaluations per round
    first = shell("sweep ldp_gd --eps 2 4 --rounds 6 --eval-every 1 --plan", SYNTHETIC).err
    later = shell("sweep --plan --until 12 --extend", out).err
    shares = [int(re.findall(share.replace(r"\d+", r"(\d+)"), text)[0]) for text in (first, later)]
    assert 0 <= shares[0] - shares[1] < 10  # the first one evaluates the initial model, too
    assert "2 to continue" in shell("sweep --no-plot --until 9 --extend", out).err
    found = jaxfl.load(out)["loss"].values.squeeze()
    assert found.shape == (2, 10)
    np.testing.assert_array_equal(found[:, :7], before)
    assert [json.loads(shell("account", out, words).out)["eps"] for words in asked] == told


@pytest.mark.parametrize("words", ["sweep ldp_sgd --lr 0.1 0.3", "run ldp_sgd --lr 0.1"])
def test_a_plan_computes_and_writes_nothing(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chunks, "compiled", lambda *args: pytest.fail("compiled"))
    told = shell(words, "--batch 3 --sigma 0.05 --rounds 6 --plan", SYNTHETIC).err
    for part in (" in 1 compilation, about 1 chunk", "% of the work", "result takes at most"):
        assert part in told
    assert list(tmp_path.iterdir()) == []


def test_parts_data_and_rounds_are_axes(tmp_path: Path, shell: Shell) -> None:
    """And what diverged is told at the end, also with --quiet."""
    out = tmp_path / "grid"
    words = "--batch 3 --sigma 0.05 --lr cosine:0.3 1e38 --rounds 2 30 --seed 3 7 --no-plot --quiet"
    parts = "--compressor random_k bernoulli --k 2 --out"
    shown = shell("sweep", words, "cdp_sgd", SYNTHETIC, parts, out)
    assert shown.out == ""
    assert re.match(r"jaxfl: \d of 16 runs diverged, the first by round ", shown.err)
    assert shown.err.endswith(" NaN from there on; take a smaller --lr.\n")
    ds = jaxfl.load(out / "result.nc")
    axes = {"compressor": ["random_k", "bernoulli"], "lr": ["cosine:0.3", "1e+38"]}
    for name, values in {**axes, "rounds": [2, 30], "seed": [3, 7]}.items():
        assert ds[name].values.tolist() == values
    assert np.isfinite(ds["loss"].sel(lr="cosine:0.3", rounds=30, round=30)).all()


def test_axes_have_the_order_of_the_words(tmp_path: Path, shell: Shell) -> None:
    """As those of Python have that of the keywords; rounds are first."""
    words = "sweep ldp_gd --eps 1 2 --lr 0.1 0.3 --rounds 1 2 --no-plot --quiet --out"
    shell(words, tmp_path / "grid", SYNTHETIC)
    axes: Any = {"eps": [1, 2], "lr": [0.1, 0.3], "rounds": [1, 2]}
    found = jaxfl.sweep("ldp_gd", a_problem(), **axes)
    assert jaxfl.load(tmp_path / "grid")["loss"].dims == found["loss"].dims


def test_one_value_is_no_axis() -> None:
    """A list that is one value is none either; names of algorithms may come anywhere."""
    words = "--lr 0.1 --eps 1 2 --hidden 8 4 --data digits ldp_sgd --compressor qsgd cdp_sgd"
    study, _ = parse("sweep", words.split())
    assert study.axes == {"algorithm": ["ldp_sgd", "cdp_sgd"], "eps": [1, 2]}
    assert study.fixed == {"lr": 0.1}
    assert study.setup.hidden == [8, 4]
    assert (study.setup.data, study.setup.compressor) == ("digits", "qsgd")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "needs an ALGORITHM"),
        ("ldp_sgd --eps 1 inf", "for no noise give --sigma 0"),
        ("ldp_sgd --sigma 1 --chunk-seconds 2", "--chunk-seconds 2 is for the workers"),
        ("ldp_sgd --on processes:2 --slurm-option a=1", "needs --on slurm"),
        ("ldp_sgd --sigma 1 --on dask://nowhere", "write it as dask://HOST:PORT"),
        ("ldp_sgd --seeds 2 --seed 1", "--seeds and --seed"),
        ("ldp_sgd --rounds auto 3", "--rounds auto"),
        ("ldp_sgd --sigma 1 --memory 1000", "give it more --memory, a"),
        ("--resume nowhere", "nowhere/config.json does not exist"),
        ("ldp_sgd --sigma 1 --choose-by least:loss", "min:NAME or max:NAME"),
        ("ldp_sgd --sigma 1 --choose-by max:test_accuracy", "would select on the test data"),
        ("ldp_sgd --sigma 1 --choose-by validation_loss", "--validation-share"),
    ],
)
def test_mistakes_are_one_sentence(
    words: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.chdir(tmp_path)
    told = shell("sweep", words, "" if "--resume" in words else SYNTHETIC, status=2)
    last = told.err.strip().splitlines()[-1]
    one_sentence(last + "\n")
    assert says in last
    assert list(tmp_path.iterdir()) == []


def test_what_the_folder_says_is_checked(finished: Path, tmp_path: Path, shell: Shell) -> None:
    """Nothing, other numbers than the chunks were computed with, an option of a later version."""
    folder = tmp_path / "edited"
    shutil.copytree(finished, folder)
    for words, says in (
        ("--eval-every 3", "--eval-every 3 does not go with --extend"),
        ("--unpaired", "--unpaired does not go with"),
        ("--compressor random_k", "was begun without --compressor"),
        ("--clip 2", "was begun without --clip"),
        ("--rounds 3", "rounds 3 lies before round 6"),
    ):
        assert says in shell("sweep", words, "--extend", folder, status=2).err.replace("= ", "")
    for was, now, words in (
        ("0.3", "0.4", "holds other runs: its lr has 0.3"),
        ("--clients", "--light-speed", "config.json: There is no option --light-speed"),
    ):
        text = (finished / "config.json").read_text()
        (folder / "config.json").write_text(text.replace(was, now))
        assert words in shell("sweep --quiet --resume", folder, status=2).err
