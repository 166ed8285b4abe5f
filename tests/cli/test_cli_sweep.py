"""`jaxfl sweep`: the grid that the words ask for, its folder, going on, and mistakes in one sentence."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from jaxfl.cli.sweep_parser import parse_sweep
from jaxfl.engine.sweeps import engine, store
from told import Shell

import jaxfl
from jaxfl.cli import main, sweeping
from jaxfl.engine.results import config

pytestmark = pytest.mark.once

DATA = """
    --data synthetic --data-option n=3 --data-option m=8 --data-option d=4 --data-option classes=2
    --clients 3 --partition contiguous
"""
SPAN = "--batch 3 --sigma 0.05 --lr 0.1 0.3 --omega 0 1 --rounds 6"
QUIET = "--no-plot --quiet"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweep") / "grid"
    words = f"sweep soteriafl_sgd ldp_sgd {SPAN} --seeds 2 {QUIET} {DATA} --out {out}"
    assert main(words.split()) == 0
    return out


def test_dimensions_are_the_axes_that_were_asked_for(finished: Path) -> None:
    ds = jaxfl.load(finished / "result.nc")
    axes = {"algorithm": 2, "lr": 2, "omega": 2, "seed": 2, "round": 7}
    assert dict(ds.sizes) == {**axes, "client": 3}
    assert np.isfinite(ds["loss"].values).all()
    assert ds["applies_omega"].values.tolist() == [1, 0]


def test_quiet_sweeps_tell_what_diverged(tmp_path: Path, shell: Shell) -> None:
    words = "sweep ldp_sgd --batch 3 --sigma 0.05 --lr 0.1 1e38 --rounds 30 --out"
    shown = shell(words, tmp_path / "grid", QUIET, DATA)
    assert shown.out == ""
    assert shown.err.startswith("jaxfl: 1 of 2 runs diverged, the first by round ")
    assert shown.err.endswith(" and is NaN from there on; take a smaller --lr.\n")


def test_a_cell_is_the_run_of_the_same_words(finished: Path, tmp_path: Path, shell: Shell) -> None:
    words = "--batch 3 --sigma 0.05 --lr 0.3 --omega 1 --rounds 6 --seed 1"
    out = tmp_path / "run"
    shell("run soteriafl_sgd", words, QUIET, DATA, "--out", out)
    run = jaxfl.load(out / "result.nc")
    cell = jaxfl.load(finished / "result.nc").sel(
        algorithm="soteriafl_sgd", lr=0.3, omega=1, seed=1
    )
    np.testing.assert_allclose(cell["loss"], run["loss"], rtol=1e-5)
    for name in ("uplink_bits", "downlink_bits", "gradients", "messages"):
        np.testing.assert_array_equal(cell[name], run[name])
    assert float(cell["proven_eps"]) == pytest.approx(
        float(config(run)["privacy"]["proven"]), rel=1e-9
    )


def test_resume_completes_what_is_missing_and_only_that(
    finished: Path, tmp_path: Path, shell: Shell
) -> None:
    folder = tmp_path / "part"
    shutil.copytree(finished, folder)
    (folder / "result.nc").unlink()
    lost, *kept = sorted((folder / "chunks").iterdir())  # its state is kept beside it
    lost.unlink()
    before = {file: file.stat().st_mtime_ns for file in kept}
    told = shell("sweep --no-plot --resume", folder)
    assert re.search(
        r"done: \d+ of \d+ runs; left: \d+ runs? in 1 compilation, about 1 chunk of ", told.err
    )
    assert "soteriafl_sgd" in told.out
    assert lost.exists()
    assert {file: file.stat().st_mtime_ns for file in kept} == before
    one, two = jaxfl.load(finished / "result.nc"), jaxfl.load(folder / "result.nc")
    xarray.testing.assert_identical(one.drop_attrs(), two.drop_attrs())
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    assert "; left: nothing\n" in shell("sweep --plan --resume", folder).err
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == before


def test_an_interrupt_says_what_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    def stop(bar: Any, now: Any) -> None:
        if now.done:
            raise KeyboardInterrupt

    monkeypatch.setattr("jaxfl.cli.sweeping.show", stop)
    monkeypatch.setattr("jaxfl.engine.loop.SECONDS", 0.0)  # so that every mark is shown
    line = "sweep ldp_sgd --batch 3 --sigma 0.05 --lr 0.1 0.3 --rounds 30 --no-plot --out"
    last = shell(line, tmp_path / "out", DATA, status=130).err.splitlines()[-1]
    assert "interrupted; finished chunks and the rounds of the one in progress are saved: " in last


def test_extend_adds_to_what_is_there(finished: Path, tmp_path: Path, shell: Shell) -> None:
    """Values, an algorithm, seeds, rounds; `show`, `plot` and `compare` read the larger sweep."""
    folder, whole = tmp_path / "grid", tmp_path / "whole"
    shutil.copytree(finished, folder)
    before = {file.name: file.read_bytes() for file in (folder / "chunks").iterdir()}
    added = "cdp_sgd --lr 0.5 0.1 --seeds 3 --clip 0.01 --extend"
    assert "its clip is" in shell("sweep", added, folder, status=2).err
    added = added.replace("--clip 0.01", "")
    assert "done: 12 of 45 runs; left: 33 runs in" in shell("sweep", added, folder, "--plan").err
    shell("sweep", added, folder, QUIET)
    shell("sweep --rounds 9 --extend", folder, QUIET)
    assert "(45 to continue)" not in shell("sweep --plan --resume", folder).err
    now = {file.name: file.read_bytes() for file in (folder / "chunks").iterdir()}
    assert before.items() <= now.items()
    grid = SPAN.replace("0.1 0.3", "0.1 0.3 0.5").replace("--rounds 6", "--rounds 9")
    shell("sweep soteriafl_sgd ldp_sgd cdp_sgd", grid, "--seeds 3", QUIET, DATA, "--out", whole)
    a, b = jaxfl.load(folder / "result.nc"), jaxfl.load(whole / "result.nc")
    np.testing.assert_array_equal(a["uplink_bits"], b["uplink_bits"])
    np.testing.assert_allclose(a["loss"], b["loss"], 1e-5)
    for words in ("show", "plot", "compare"):
        told = shell(words, folder, *([whole] if words == "compare" else [])).out
        assert "cdp_sgd" in told or "png" in told


def test_a_killed_extension_is_finished_by_resume(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    """Between config.json and the manifest; after a mistake there both are as they were."""
    folder, begun = tmp_path / "grid", "sweep --no-plot --lr 0.5 --extend"
    shutil.copytree(finished, folder)
    config = (folder / "config.json").read_bytes()

    def full(*args: object) -> None:
        raise jaxfl.InputError("Cannot write it", "No space left on device")

    monkeypatch.setattr(store.Store, "begin", full)
    shell(begun, folder, status=2)
    assert (folder / "config.json").read_bytes() == config
    monkeypatch.setattr(sweeping, "replace", lambda *args: None)
    shell(begun, folder, status=2)
    monkeypatch.undo()
    assert "6 new" in shell("sweep --no-plot --resume", folder).err
    assert jaxfl.load(folder / "result.nc")["lr"].values.tolist() == [0.1, 0.3, 0.5]


def test_a_plan_computes_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "sweep ldp_sgd --batch 3 --sigma 0.05 --lr 0.1 0.3 --rounds 6 --plan"
    monkeypatch.setattr(engine, "compiled", lambda *args: pytest.fail("compiled"))
    told = shell(words, DATA).err
    for part in ("2 runs in 1 compilation, about 1 chunk", "% of the work", "result takes at most"):
        assert part in told
    assert "--plan-time" in told
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    told = shell(words.replace("--plan", "--plan-time"), DATA).err
    assert re.search(r"^estimated time: \d+ s, compilation included$", told, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_parts_data_and_rounds_are_axes(tmp_path: Path, shell: Shell) -> None:
    out = tmp_path / "grid"
    words = "--batch 3 --sigma 0.05 --lr 0.1 cosine:0.3 --rounds 2 4 --seed 3 7 --no-plot"
    parts = "--compressor random_k bernoulli --k 2 --out"
    shown = shell("sweep cdp_sgd", words, DATA, parts, out).err
    said = [line for line in shown.splitlines() if "compiling" in line]
    assert "compressor random_k" in said[0]
    assert "compressor bernoulli" in said[-1]
    ds = jaxfl.load(out / "result.nc")
    assert ds["compressor"].values.tolist() == ["random_k", "bernoulli"]
    assert ds["lr"].values.tolist() == ["0.1", "cosine:0.3"]
    assert ds["rounds"].values.tolist() == [2, 4]
    assert ds["seed"].values.tolist() == [3, 7]
    assert np.isnan(ds["loss"].sel(rounds=2, round=4).values).all()
    assert np.isfinite(ds["loss"].sel(rounds=4, round=4).values).all()


def test_one_value_is_no_axis() -> None:
    spans, _ = parse_sweep(["ldp_sgd", "--lr", "0.1", "--eps", "1", "2", "--data", "digits"])
    assert spans is not None
    assert spans.numbers == {"lr": [0.1], "eps": [1, 2]}
    assert spans.setup == {"data": "digits"}
    assert spans.static == {}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "needs an ALGORITHM"),
        (["ldp_sgd", "ldp_sgd"], "ALGORITHM = 'ldp_sgd' is given twice"),
        (["ldp_sgd", "--lr", "0.1", "0.1"], "--lr 0.1 is given twice"),
        (["ldp_sgd", "--lr", "-1"], "--lr -1 must be"),
        (["ldp_sgd", "--lr", "cosin:1"], "no schedule 'cosin:1': did you mean cosine:1"),
        (["ldp_sgd", "--eps", "1", "inf"], "for no noise give --sigma 0"),
        (["ldp_sgd", "--chunk-seconds", "2"], "--chunk-seconds 2 needs --on"),
        (["ldp_sgd", "--slurm-option", "a=1"], "needs --on slurm"),
        (["ldp_sgd", "--on", "processes:2", "--slurm-option", "a=1"], "needs --on slurm"),
        (["ldp_sgd", "--sigma", "1", "--on", "procesess:2"], "did you mean 'processes'"),
        (["ldp_sgd", "--sigma", "1", "--on", "processes:0"], "processes = 0 must be at least 1"),
        (["ldp_sgd", "--sigma", "1", "--on", "dask://nowhere"], "write it as dask://HOST:PORT"),
        (["ldp_sgd", "--seeds", "99999999"], "at most 10000000"),
        (
            ["ldp_sgd", "--lr", *map(str, range(1, 201)), "--seeds", "100000"],
            "20,000,000 runs, more than the 10,000,000",
        ),
        (["ldp_sgd", "--seeds", "2", "--seed", "1"], "--seeds and --seed"),
        (["ldp_sgd", "--rounds", "auto", "3"], "--rounds auto"),
        (["fedsgd", "--eps", "1", "2"], "eps"),
        (["ldp_sgd", "--sigma", "1", "--memory", "1000"], "give it more --memory, a"),
        (["--resume", "nowhere"], "nowhere/config.json does not exist"),
        (["ldp_sgd", "--resume", "nowhere"], "ALGORITHM does not go with --resume"),
        (["--resume", "here", "--extend", "there"], "are both given"),
        (["--extend", "here", "--out", "there"], "are both given"),
        (["ldp_sgd", "--sigma", "1", "--choose-by", "min:nothing"], "nothing"),
        (["ldp_sgd", "--sigma", "1", "--choose-by", "least:loss"], "min:NAME or max:NAME"),
        (
            ["ldp_sgd", "--sigma", "1", "--choose-by", "max:test_accuracy"],
            "would select on the test data",
        ),
        (["ldp_sgd", "--sigma", "1", "--choose-by", "validation_loss"], "--validation-share"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.chdir(tmp_path)
    told = shell("sweep", *words, "" if "--resume" in words else DATA, status=2)
    last = told.err.strip().splitlines()[-1]
    assert last.startswith("jaxfl: error: ")
    assert says in last
    assert "Traceback" not in told.err
    assert list(tmp_path.iterdir()) == []


def test_what_the_folder_says_is_checked(finished: Path, tmp_path: Path, shell: Shell) -> None:
    """Nothing, other numbers than the chunks were computed with, an option of a later version."""
    folder = tmp_path / "edited"
    shutil.copytree(finished, folder)
    for words, says in (
        ("--eval-every 3", "--eval-every 3 does not go with --extend"),
        ("--unpaired", "--unpaired does not go with"),
        ("--compressor random_k", "left --compressor to its default"),
        ("--rounds 3", "--rounds 3 lies before round 6"),
    ):
        assert says in shell("sweep", words, "--extend", folder, status=2).err
    about = json.loads((folder / "config.json").read_text())
    sweep = about["sweep"]
    numbers = {**sweep["numbers"], "lr": [0.1, 0.4]}
    setup = {**sweep["setup"], "light_speed": 3}
    for content, words in (
        ({}, "is damaged, or not a sweep"),
        ({**about, "sweep": {**sweep, "numbers": numbers}}, "holds another sweep"),
        (
            {**about, "sweep": {**sweep, "setup": setup}},
            "has the option --light-speed, which this version",
        ),
    ):
        (folder / "config.json").write_text(json.dumps(content))
        assert words in shell("sweep --quiet --resume", folder, status=2).err
    assert (
        "holds a sweep already"
        in shell("sweep cdp_sgd", SPAN, DATA, "--out", finished, status=2).err
    )
