"""`jaxfl show`, `compare` and `plot`: what they print and write, and one sentence for mistakes."""

import contextlib
import csv
import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import grids
import jax
import pytest
from rows import a_problem

import jaxfl
from jaxfl.cli import main
from jaxfl.engine import results

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


def out(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one sentence of a mistake."""
    assert main([str(word) for word in words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("jaxfl: error: ")
    assert shown.err.count("\n") == 1
    return shown.err


def read(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.read_text())))


# --- show ----------------------------------------------------------------------------------------


def test_show_a_sweep(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "show", sweep)
    assert text.startswith("logistic on a9a, 10 clients, 3 seeds\n")
    assert "lr chosen on the private data: each time the best of 3 settings" in text
    assert (text.count("soteriafl_sgd"), text.count("ldp_sgd")) == (4, 2)
    assert text == out(capsys, "show", sweep / "result.nc")
    every = out(capsys, "show", sweep, "--select", "none")
    assert every.count("soteriafl_sgd") == 12
    assert "1 of 3 seeds diverged" in every
    assert "chosen" not in every


def test_show_a_part(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "a.csv"
    where = ("--where", "eps=5", "algorithm=ldp_sgd,soteriafl_sgd")
    files = ("--csv", file, "--latex", tmp_path / "a.tex")
    text = out(capsys, "show", sweep, *where, "--metric", "loss", *files)
    assert r"soteriafl\_sgd" in (tmp_path / "a.tex").read_text()
    rows = read(file)
    assert len(rows) == 3
    assert "ε = 5" in text
    assert {"loss", "loss_se", "chosen_lr"} <= set(rows[0])
    assert "utility" not in rows[0]


def test_show_chooses_by_what_is_asked(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = out(capsys, "show", sweep, "--select", "max:utility", "--over", "lr", "omega")
    assert "lr and omega chosen on the private data: each time the best of 6" in text
    assert "by the highest final utility" in text
    assert "give --allow-test to have" in refused(capsys, "show", sweep, "--select", "test_loss")
    text = out(capsys, "show", sweep, "--select", "test_loss", "--allow-test")
    assert "lr chosen on test data" in text


def test_show_a_target(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.csv"
    words = ("--target-loss", 0.8, "--bandwidth", "1e6", "--latency", 0.5, "--csv", file)
    text = out(capsys, "show", sweep, *words)
    assert "rounds to loss ≤ 0.8" in text
    assert "time to loss ≤ 0.8 (s)" in text
    row = next(row for row in read(file) if row["algorithm"] == "ldp_sgd")
    each = 0.5 + 2 * grids.D * grids.BITS / 1e6
    assert float(row["seconds_to_target"]) == pytest.approx(float(row["rounds_to_target"]) * each)
    for speed in ("lognormal:1e6,0.5", ",".join(["1e6"] * 10)):
        assert "(s)" in out(capsys, "show", sweep, "--target-loss", 0.8, "--bandwidth", speed)


def test_show_a_run(single: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "show", single)
    assert "soteriafl_sgd on data" in text
    assert "uplink" in text
    file = tmp_path / "a.csv"
    out(capsys, "show", single, "--csv", file, "--target-loss", 100)
    (row,) = read(file)
    assert row["algorithm"] == "soteriafl_sgd"
    assert row["rounds_to_target"] == "0"
    assert float(row["loss"]) == float(jaxfl.load(single / "result.nc")["loss"][-1])
    assert "--where is for sweeps" in refused(capsys, "show", single, "--where", "eps=1")


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


def test_compare_sweeps(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    results.save(grids.grid({"eps": (5.0,), "omega": (1.0, 9.0)}), other / "result.nc")
    file = tmp_path / "a.csv"
    text = out(capsys, "compare", sweep, other, "--metric", "loss", "--csv", file)
    assert "sweep and other: 3 common cells" in text
    assert "differences are paired by seed" in text
    assert "Only in sweep: soteriafl_sgd, ε = 1" in text
    rows = read(file)
    assert {"a sweep", "b other", "difference", "difference_se"} <= set(rows[0])
    alike = tmp_path / "deep" / "sweep"
    results.save(grids.grid(), alike / "result.nc")
    assert str(alike) in out(capsys, "compare", sweep, alike)


def test_compare_where_one_sweep_has_more_axes(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the refusal proposes works."""
    more = tmp_path / "more"
    axes = {"eps": (1.0, 5.0), "omega": (1.0, 9.0), "batch": (8, 16)}
    results.save(grids.grid(axes), more / "result.nc")
    told = refused(capsys, "compare", sweep, more)
    assert "--where batch=8" in told
    assert "common cell" in out(capsys, "compare", sweep, more, "--where", "batch=8", "eps=5")
    assert "no" in refused(capsys, "compare", sweep, more, "--where", "bach=8")


def test_compare_runs(
    single: Path, tmp_path: Path, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = out(capsys, "compare", single, single / "result.nc")
    assert "single and result.nc" in text
    assert "loss" in text
    assert "single is a single run and sweep a sweep" in refused(capsys, "compare", single, sweep)


# --- plot ----------------------------------------------------------------------------------------


def test_plot_a_sweep(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--where", "eps=5", "--format", "png", "--out", tmp_path / "a")
    files = out(capsys, "plot", sweep, *words).split()
    assert {Path(file) for file in files} == set((tmp_path / "a").iterdir())
    assert tmp_path / "a" / "map-utility.png" in set((tmp_path / "a").iterdir())
    assert out(capsys, "plot", sweep, "--select", "accuracy", *words).count("accuracy") == 4


def test_plot_a_run(single: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = out(capsys, "plot", single).split()
    assert files == [str(single / "pictures" / f"curves.{kind}") for kind in ("png", "pdf")]
    assert all(Path(file).exists() for file in files)


# --- mistakes ------------------------------------------------------------------------------------


def test_folders_without_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "a"
    assert f"There is no folder {place}." in refused(capsys, "show", place)
    place.mkdir()
    assert "holds no result.nc" in refused(capsys, "plot", place)
    (place / "config.json").write_text("{}")
    assert f"continue with `jaxfl run --resume {place}`" in refused(capsys, "show", place)
    (place / "sweep.json").write_text("{}")
    said = f"{place} is unfinished: continue with `jaxfl sweep --resume {place}`."
    for words in (("show", place), ("compare", place, place), ("plot", place)):
        assert said in refused(capsys, *words)
    (place / "result.nc").write_bytes(b"CDF\x02 cut short")
    said = f"damaged or cut short: `jaxfl sweep --resume {place}` writes it again"
    assert said in refused(capsys, "show", place)
    (place / "sweep.json").unlink()
    assert "name another, or write it again" in refused(capsys, "show", place)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("show", "takes one folder, not 0"),
        ("show X X", "takes one folder, not 2"),
        ("compare X", "takes two folders, not 1"),
        ("show X --selct loss", "did you mean --select?"),
        ("plot X --csv a", "There is no option --csv"),
        ("show X --select los", "did you mean 'loss'"),
        ("show X --select", "Option --select needs a value"),
        ("show X --select loss --select utility", "given twice, the second time as utility"),
        ("show X --where eps", "read AXIS=VALUE"),
        ("show X --where eps=", "read AXIS=VALUE"),
        ("show X --where eps=7", "is not in this sweep, where eps is one of 1, 5"),
        ("show X --where epsi=7", "did you mean 'eps'"),
        ("show X --over lrr", "did you mean 'lr'"),
        ("show X --over lr --select none", "--over lr does not go with --select none"),
        ("show X --metric los", "did you mean 'loss'"),
        ("show X --target-loss low", "--target-loss low is not a number"),
        ("show X --bandwidth 1e6", "needs --target-loss"),
        ("show X --latency 1", "needs --bandwidth"),
        ("show X --target-loss 1 --bandwidth 0", "--bandwidth 0 must be above 0"),
        ("show X --target-loss 1 --bandwidth 1,2", "bandwidth has 2 values for 10 clients"),
        ("show X --target-loss 1 --bandwidth lognormal:1", "'lognormal:MEDIAN,SIGMA'"),
        ("show X --target-loss 1 --bandwidth 1 --latency -1", "--latency -1 must be at least 0"),
        ("plot X --format jpg", "format jpg must be one of png, pdf, svg"),
        ("shwo X", "There is no command 'shwo'"),
    ],
)
def test_mistakes(sweep: Path, words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = [str(sweep) if word == "X" else word for word in words.split()]
    if line == ["show"]:
        line.append("--allow-test")
    assert said in refused(capsys, *line)


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("show", "compare", "plot"):
        text = out(capsys, command, "--help")
        assert text.startswith(f"usage: jaxfl {command} ")
        assert "--where AXIS=V,V ..." in text
        assert out(capsys, command) == text
