"""`jaxfl show`, `compare` and `plot`: what they print and write, and one sentence for mistakes."""

import csv
import io
import json
from pathlib import Path

import grids
import pytest
from matplotlib.image import imread
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
def single(a_run: jaxfl.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("look") / "single"
    a_run.save(folder / "result.nc")
    return folder


def read(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.read_text())))


def test_show_a_sweep(sweep: Path, shell: Shell) -> None:
    text = shell("show", sweep).out
    assert (text.count("soteriafl_sgd"), text.count("ldp_sgd")) == (4, 2)
    assert text == shell("show", sweep / "result.nc").out
    assert shell("show", sweep, "--choose-by", "none").out.count("soteriafl_sgd") == 12


def test_show_a_part(sweep: Path, tmp_path: Path, shell: Shell) -> None:
    file = tmp_path / "new" / "a.csv"
    where = ("--where", "eps=5", "algorithm=ldp_sgd,soteriafl_sgd")
    files = ("--csv", file, "--latex", tmp_path / "a.tex")
    text = shell("show", sweep, *where, "--metric", "loss", "--label", "loss=risk", *files).out
    assert r"soteriafl\_sgd" in (tmp_path / "a.tex").read_text()
    assert len(read(file)) == 3
    assert "eps = 5" in text
    assert "risk" in text
    assert {"loss", "loss_se", "chosen_lr"} <= set(read(file)[0])
    shell("show", sweep, *files, "--columns", "loss", "algorithm", "protects")
    assert [*read(file)[0]] == ["loss", "loss_se", "algorithm", "protects", "best"]
    assert r"loss & algorithm & protects \\" in (tmp_path / "a.tex").read_text()


def test_labels_of_what_was_chosen_and_of_the_uplink(
    sweep: Path, tmp_path: Path, shell: Shell
) -> None:
    names = ("--label", "lr=eta", "uplink_bits=sent", "--latex", tmp_path / "a.tex")
    text = shell("show", sweep, *names).out
    for said in (text, (tmp_path / "a.tex").read_text()):
        assert "best eta" in said
        assert "sent (" in said
        assert "uplink" not in said


def test_show_a_target(sweep: Path, tmp_path: Path, shell: Shell) -> None:
    file = tmp_path / "a.csv"
    words = ("--target-loss", 0.8, "--bandwidth", "1e6", "--latency", 0.5, "--csv", file)
    text = shell("show", sweep, *words).out
    assert "rounds to loss ≤ 0.8" in text
    assert "time to loss ≤ 0.8 (s)" in text
    row = next(row for row in read(file) if row["algorithm"] == "ldp_sgd")
    each = 0.5 + 2 * grids.D * grids.BITS / 1e6
    assert float(row["seconds_to_target"]) == pytest.approx(float(row["rounds_to_target"]) * each)


def test_show_a_run(single: Path, tmp_path: Path, shell: Shell) -> None:
    text = shell("show", single).out
    assert "soteriafl_sgd on data" in text
    values = results.config(jaxfl.load(single / "result.nc"))["values"]
    z = values["sigma"] * 4 / values["clip"]
    assert f"noise multiplier       {z:.4g}: sigma divided by the largest contribution" in text
    assert "5 of 10 to 12 records" in text
    assert "3 of 8 coordinates" in text
    conditions = results.config(jaxfl.load(single / "result.nc"))["privacy"]["conditions"]
    failed = [str(one) for one in (Condition(*one) for one in conditions) if one.holds is False]
    assert failed
    assert "; ".join(failed) in text
    file = tmp_path / "a.csv"
    shell("show", single, "--csv", file, "--target-loss", 100)
    (row,) = read(file)
    assert row["rounds_to_target"] == "0"
    assert float(row["loss"]) == float(jaxfl.load(single / "result.nc")["loss"][-1])
    assert "--where is for sweeps" in shell.refused("show", single, "--where", "eps=1")


def test_compare_sweeps(sweep: Path, tmp_path: Path, shell: Shell) -> None:
    """Also where one has more axes: what the refusal proposes works."""
    other, more = tmp_path / "other", tmp_path / "more"
    results.save(grids.grid({"eps": (5.0,), "omega": (1.0, 9.0)}), other / "result.nc")
    file = tmp_path / "a.csv"
    text = shell("compare", sweep, other, "--metric", "loss", "--csv", file).out
    assert "sweep and other: 3 common settings" in text
    assert {"a sweep", "b other", "difference", "difference_se"} <= set(read(file)[0])
    axes = {"eps": (1.0, 5.0), "omega": (1.0, 9.0), "batch": (8, 16)}
    results.save(grids.grid(axes), more / "result.nc")
    assert "--where batch=8" in shell.refused("compare", sweep, more)
    assert "common setting" in shell("compare", sweep, more, "--where", "batch=8", "eps=5").out


def test_plot_a_sweep(sweep: Path, tmp_path: Path, shell: Shell) -> None:
    words = ("--title", "Mine", "--label", "ldp_sgd=LDP", "eps=budget", "--metric", "test_accuracy")
    words += ("--where", "eps=5", "--format", "png", "--out", tmp_path / "a")
    files = [Path(file) for file in shell("plot", sweep, *words).out.split()]
    kinds = [f"{kind}-test_accuracy" for kind in ("front", "map", "curves")]
    assert [file.name for file in files] == [f"{name}.png" for name in kinds]
    there = {*files, *(file.with_suffix(".txt") for file in files)}
    assert there == {*(tmp_path / "a").iterdir()}
    assert "by the lowest final loss" in files[-1].with_suffix(".txt").read_text()
    words = ("--for", "slides", "--width", "4", "--no-note", "--only", "curves-loss", "--title=")
    (drawn,) = shell("plot", sweep, "--out", tmp_path / "a", *words).out.split()
    notes = Path(drawn).with_suffix(".txt")
    assert {*there, Path(drawn), notes} == {*(tmp_path / "a").iterdir()}  # others stay
    assert imread(drawn).shape[1] == 1200
    assert "by the lowest final loss" in notes.read_text()
    mine = ("--metric", "test_accuracy", "--only", "curves-test_accuracy", "--out", tmp_path / "a")
    again = shell("plot", sweep, *mine, "--label", "lr=eta", "uplink_bits=sent").out.split()
    assert [*map(Path, again)] == files[-1:]
    assert "against round and sent so far" in files[-1].with_suffix(".txt").read_text()


def test_plot_a_run(single: Path, shell: Shell) -> None:
    files = [single / "pictures" / f"curves.{end}" for end in ("png", "txt")]
    assert shell("plot", single).out.split() == [str(files[0])]
    assert all(file.exists() for file in files)


def test_folders_without_a_result(tmp_path: Path, shell: Shell) -> None:
    place = tmp_path / "a"
    assert f"There is no folder {place}." in shell.refused("show", place)
    place.mkdir()
    assert "holds no result.nc" in shell.refused("plot", place)
    (place / "planned.jsonl").write_text("")
    assert "has not ended: repeat the call of Python" in shell.refused("show", place)
    (place / "planned.jsonl").unlink()
    for command in ("run", "sweep"):
        (place / "config.json").write_text(json.dumps({"command": command}))
        again = f"continue with `jaxfl {command} --resume {place}`."
        said = f"{place} is unfinished, or has lost its result.nc: {again}"
        for words in (("show", place), ("compare", place, place)):
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
        ("plot X --csv a", "There is no option --csv"),
        ("show X --choose-by test_loss", "give --allow-test to have"),
        ("show X --where eps", "read AXIS=VALUE"),
        ("show X --where eps=7", "is not in this sweep, where eps is one of 1, 5"),
        ("show X --over lr --choose-by none", "--over lr does not go with --choose-by none"),
        ("show X --bandwidth 1e6", "needs --target-loss"),
        ("show X --latency 1", "needs --bandwidth"),
        ("plot X --label eps", "--label eps must read OLD=NEW"),
        ("plot X --format jpg", "format jpg must be one of png, pdf, svg"),
        ("plot X --for poster", "--for poster must be one of paper, slides, notebook"),
        ("plot X --width wide", "--width wide is not a number"),
        ("show X --columns lr", "did you mean 'chosen_lr'"),
        ("show X --columns los", "--columns los must be one of eps, algorithm, "),
        ("plot X --only front", "only front must be one of front-loss, "),
    ],
)
def test_mistakes(sweep: Path, words: str, said: str, shell: Shell) -> None:
    assert said in shell.refused(words.replace("X", str(sweep)))
