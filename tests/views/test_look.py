"""`jaxfl show`, `compare` and `plot`: what they print and write, and one sentence for mistakes."""

import contextlib
import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import grids
import jax
import pytest
from rows import a_problem
from told import Shell

import jaxfl
from jaxfl.engine import results
from jaxfl.privacy.claims import Condition

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("look") / "sweep"
    results.save(grids.grid(diverged={"lr": 1.0, "omega": 9.0}), folder / "result.nc")
    return folder


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("look") / "single"
    run = jaxfl.simulate(
        "soteriafl_sgd", a_problem(), jax.random.key(0), 6, batch=4, k=3, lr=0.3, sigma=0.1
    )
    run.save(folder / "result.nc")
    return folder


def read(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.read_text())))


# --- show ----------------------------------------------------------------------------------------


def test_show_a_sweep(sweep: Path, shell: Shell) -> None:
    text = shell("show", sweep).out
    assert text.startswith("logistic on a9a, 10 clients, 3 seeds\n")
    assert "the best of 3 values of lr (step size)" in text
    assert (text.count("soteriafl_sgd"), text.count("ldp_sgd")) == (4, 2)
    assert text == shell("show", sweep / "result.nc").out
    every = shell("show", sweep, "--choose-by", "none").out
    assert every.count("soteriafl_sgd") == 12
    assert "1 of 3 seeds diverged" in every
    assert "chosen" not in every


def test_show_a_part(sweep: Path, tmp_path: Path, shell: Shell) -> None:
    file = tmp_path / "new" / "a.csv"
    where = ("--where", "eps=5", "algorithm=ldp_sgd,soteriafl_sgd")
    files = ("--csv", file, "--latex", tmp_path / "a.tex")
    text = shell("show", sweep, *where, "--metric", "loss", *files).out
    assert r"soteriafl\_sgd" in (tmp_path / "a.tex").read_text()
    rows = read(file)
    assert len(rows) == 3
    assert "ε = 5" in text
    assert {"loss", "loss_se", "chosen_lr"} <= set(rows[0])
    assert "utility" not in rows[0]


def test_show_chooses_by_what_is_asked(sweep: Path, tmp_path: Path, shell: Shell) -> None:
    text = shell("show", sweep, "--choose-by", "max:utility", "--over", "lr", "omega").out
    assert "the best of 6 combinations of lr (step size) and omega" in text
    assert "by the highest final utility" in text
    said = shell.refused("show", sweep, "--choose-by", "test_loss")
    assert "--choose-by test_loss would choose on the test data" in said
    assert "give --allow-test to have" in said
    text = shell("show", sweep, "--choose-by", "test_loss", "--allow-test").out
    assert "on test data" in text


def test_show_a_target(sweep: Path, tmp_path: Path, shell: Shell) -> None:
    file = tmp_path / "a.csv"
    words = ("--target-loss", 0.8, "--bandwidth", "1e6", "--latency", 0.5, "--csv", file)
    text = shell("show", sweep, *words).out
    assert "rounds to loss ≤ 0.8" in text
    assert "time to loss ≤ 0.8 (s)" in text
    row = next(row for row in read(file) if row["algorithm"] == "ldp_sgd")
    each = 0.5 + 2 * grids.D * grids.BITS / 1e6
    assert float(row["seconds_to_target"]) == pytest.approx(float(row["rounds_to_target"]) * each)
    for speed in ("lognormal:1e6,0.5", ",".join(["1e6"] * 10)):
        assert "(s)" in shell("show", sweep, "--target-loss", 0.8, "--bandwidth", speed).out


def test_show_a_run(single: Path, tmp_path: Path, shell: Shell) -> None:
    text = shell("show", single).out
    assert "soteriafl_sgd on data" in text
    assert "uplink" in text
    assert "3 of 8 coordinates" in text
    conditions = results.config(jaxfl.load(single / "result.nc"))["privacy"]["conditions"]
    failed = [str(one) for one in (Condition(*one) for one in conditions) if one.holds is False]
    assert failed
    assert "; ".join(failed) in text
    file = tmp_path / "a.csv"
    shell("show", single, "--csv", file, "--target-loss", 100)
    (row,) = read(file)
    assert row["algorithm"] == "soteriafl_sgd"
    assert row["rounds_to_target"] == "0"
    assert float(row["loss"]) == float(jaxfl.load(single / "result.nc")["loss"][-1])
    assert "--where is for sweeps" in shell.refused("show", single, "--where", "eps=1")


def test_show_under_other_names(sweep: Path, single: Path, shell: Shell) -> None:
    words = ("--label", "ldp_sgd=LDP", "eps=budget", "loss=risk")
    text = shell("show", sweep, *words).out
    assert all(name in text for name in ("LDP", "budget", "risk"))
    assert "ldp_sgd" not in text
    assert "did you mean 'eps'?" in shell.refused("show", sweep, "--label", "epz=a")
    assert "Soteria" in shell("show", single, "--label", "soteriafl_sgd=Soteria").out


def test_on_a_terminal_the_best_rows_are_bold(sweep: Path) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "200"}
    command = [sys.executable, "-m", "jaxfl", "show", str(sweep)]
    subprocess.run(command, stdout=theirs, env=environment, check=True)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert b"\x1b[1m" in shown
    assert b"ldp_sgd" in shown


# --- compare -------------------------------------------------------------------------------------


def test_compare_sweeps(sweep: Path, tmp_path: Path, shell: Shell) -> None:
    other = tmp_path / "other"
    results.save(grids.grid({"eps": (5.0,), "omega": (1.0, 9.0)}), other / "result.nc")
    file = tmp_path / "a.csv"
    text = shell("compare", sweep, other, "--metric", "loss", "--csv", file).out
    assert "sweep and other: 3 common settings" in text
    assert "differences are paired by seed" in text
    assert "Only in sweep: soteriafl_sgd, ε = 1" in text
    rows = read(file)
    assert {"a sweep", "b other", "difference", "difference_se"} <= set(rows[0])
    alike = tmp_path / "deep" / "sweep"
    results.save(grids.grid(), alike / "result.nc")
    assert str(alike) in shell("compare", sweep, alike).out


def test_compare_where_one_sweep_has_more_axes(sweep: Path, tmp_path: Path, shell: Shell) -> None:
    """What the refusal proposes works."""
    more = tmp_path / "more"
    axes = {"eps": (1.0, 5.0), "omega": (1.0, 9.0), "batch": (8, 16)}
    results.save(grids.grid(axes), more / "result.nc")
    told = shell.refused("compare", sweep, more)
    assert "--where batch=8" in told
    assert "common setting" in shell("compare", sweep, more, "--where", "batch=8", "eps=5").out
    assert "no" in shell.refused("compare", sweep, more, "--where", "bach=8")


# --- plot ----------------------------------------------------------------------------------------


def test_plot_a_sweep(sweep: Path, tmp_path: Path, shell: Shell) -> None:
    words = ("--where", "eps=5", "--format", "png", "--out", tmp_path / "a")
    files = shell("plot", sweep, *words).out.split()
    assert {Path(file) for file in files} == set((tmp_path / "a").iterdir())
    assert tmp_path / "a" / "2-map-loss.png" in set((tmp_path / "a").iterdir())
    assert shell("plot", sweep, "--choose-by", "accuracy", *words).out.count("accuracy") == 3


def test_plot_another_metric_under_other_names(sweep: Path, tmp_path: Path, shell: Shell) -> None:
    words = ("--title", "Mine", "--label", "ldp_sgd=LDP", "eps=budget", "--metric", "test_accuracy")
    files = shell("plot", sweep, "--where", "eps=5", "--out", tmp_path, *words).out.split()
    kinds = ("front", "map", "curves")
    named = [f"{i}-{kind}-test_accuracy.png" for i, kind in enumerate(kinds, 1)]
    assert [Path(file).name for file in files] == [*named, "notes.txt"]
    notes = " ".join((tmp_path / "notes.txt").read_text().split())
    assert "by the lowest final loss" in notes
    assert "final test accuracy" in notes
    assert notes.count("In all settings:") == 3  # in the part of each picture


def test_plot_a_run(single: Path, shell: Shell) -> None:
    files = shell("plot", single).out.split()
    assert files == [str(single / "pictures" / "curves.png")]
    assert all(Path(file).exists() for file in files)


# --- mistakes ------------------------------------------------------------------------------------


def test_folders_without_a_result(tmp_path: Path, shell: Shell) -> None:
    place = tmp_path / "a"
    assert f"There is no folder {place}." in shell.refused("show", place)
    place.mkdir()
    assert "holds no result.nc" in shell.refused("plot", place)
    (place / "config.json").write_text(json.dumps({"command": "run"}))
    assert f"continue with `jaxfl run --resume {place}`" in shell.refused("show", place)
    (place / "config.json").write_text(json.dumps({"command": "sweep"}))
    again = f"continue with `jaxfl sweep --resume {place}`."
    said = f"{place} is unfinished, or has lost its result.nc: {again}"
    for words in (("show", place), ("compare", place, place), ("plot", place)):
        assert said in shell.refused(*words)
    (place / "result.nc").write_bytes(b"CDF\x02 cut short")
    said = f"or is damaged: `jaxfl sweep --resume {place}` writes it again"
    assert said in shell.refused("show", place)
    (place / "config.json").unlink()
    assert "or is damaged: write it again" in shell.refused("show", place)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("show X X", "takes one folder, not 2"),
        ("compare X", "takes two folders, not 1"),
        ("show X --choose-bi loss", "did you mean --choose-by?"),
        ("plot X --csv a", "There is no option --csv"),
        ("show X --choose-by los", "did you mean 'loss'"),
        ("show X --where eps", "read AXIS=VALUE"),
        ("show X --where eps=7", "is not in this sweep, where eps is one of 1, 5"),
        ("show X --over lr --choose-by none", "--over lr does not go with --choose-by none"),
        ("show X --bandwidth 1e6", "needs --target-loss"),
        ("show X --latency 1", "needs --bandwidth"),
        ("show X --target-loss 1 --bandwidth 0", "--bandwidth 0 must be above 0"),
        ("plot X --label eps", "--label eps must read OLD=NEW"),
        ("plot X --label epz=a", "did you mean 'eps'?"),
        ("plot X --metric los", "did you mean 'loss'?"),
        ("plot X --format jpg", "format jpg must be one of png, pdf, svg"),
    ],
)
def test_mistakes(sweep: Path, words: str, said: str, shell: Shell) -> None:
    assert said in shell.refused(words.replace("X", str(sweep)))


def test_help(shell: Shell) -> None:
    for command in ("show", "compare", "plot"):
        text = shell(command, "--help").out
        assert text.startswith(f"usage: jaxfl {command} ")
        assert "--where AXIS=V,V ..." in text
        assert shell(command).out == text
