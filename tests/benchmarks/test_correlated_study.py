"""`benchmarks/correlated.py`: the page says what the record holds, and rows resume."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripts import load as script

import jaxfl

pytestmark = pytest.mark.once


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    module = script("benchmarks/correlated")
    monkeypatch.setattr(module, "PAGE", tmp_path / "correlated.md")
    return module


def test_the_page_is_that_of_the_record(study: Any) -> None:
    """Every row of every setting is recorded."""
    here = study.ROOT / "docs/correlated.md"
    names = {f"{setting.name}/{way}/{noise.name}" for setting, way, noise in study.rows()}
    assert names == json.loads(study.RECORD.read_text())["rows"].keys()
    study.page()
    assert study.PAGE.read_text("utf-8") == here.read_text("utf-8")
    assert study.PAGE.with_suffix(".png").stat().st_size > 10_000


def test_rows_are_measured_at_the_best_step_and_resumed(
    study: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clients = jaxfl.data.split("digits", study.CLIENTS)
    problem = jaxfl.Problem(jaxfl.models.softmax_regression(64, 10), clients)
    tiny = study.SETTINGS[0]._replace(
        make=lambda: problem, batch=32, steps=(1e-4, 0.3), bands=(2,), epochs=(1,), ways=("local",)
    )
    monkeypatch.setattr(study, "SETTINGS", (tiny,))
    monkeypatch.setattr(study, "RECORD", tmp_path / "record.json")
    study.run(["2 bands"])
    record = json.loads(study.RECORD.read_text())
    (row,) = record["rows"].values()
    assert row["1"]["lr"] == [0.3] * 3
    pairs = zip(record["sums"]["1"]["2"], record["sums"]["1"]["1"], strict=True)
    assert all(banded < alone for banded, alone in pairs)  # bands take noise out of sums
    capsys.readouterr()
    study.run(["2 bands"])
    assert not capsys.readouterr().out
