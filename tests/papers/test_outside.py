"""`benchmarks/outside.py`: the rules, the records, the page, and the settings of the rows."""

import json
from pathlib import Path
from typing import Any

import dp_accounting as dp
import jax
import jax.numpy as jnp
import outside
import pytest
from dp_accounting.rdp import RdpAccountant
from outside.images import TRAININGS
from outside.row import AGREES, NOT_RUN, check_of
from scripts import ROOT, load
from told import refused

from jaxfl.views.tables import Estimate

pytestmark = pytest.mark.once

RECORDS = ROOT / "benchmarks/results/outside"
HERE = [row for row in outside.ROWS.values() if row.measure is not None]


@pytest.mark.plain
@pytest.mark.parametrize(
    ("kind", "given", "mean", "error", "verdict"),
    [
        ("band", {"width": 0.3}, 1.2, 0.0, "within the band"),
        ("band", {"width": 0.3}, 0.6, 9.0, "below the band"),
        ("band", {"width": 0.3}, 1.4, 9.0, "above the band"),
        ("band", {"room": 3}, 1.2, 0.1, "within the band"),
        ("reached", {"unit": 0.1}, 0.8, 0.1, "reached"),
        ("reached", {"unit": 0.1}, 0.7, 0.1, "below"),
        ("most", {}, 1.0, float("nan"), "at most theirs"),
        ("most", {}, 1.01, float("nan"), "ABOVE theirs"),
        ("least", {}, 0.9, float("nan"), "NOT above it"),
        ("ahead", {"words": "ahead"}, 1.3, 0.1, "holds"),
        ("ahead", {"words": "ahead"}, 1.1, 0.1, "does not hold"),
        ("ahead", {"words": "ahead"}, float("nan"), 0.1, "does not hold"),
    ],
)
def test_rules(kind: str, given: Any, mean: float, error: float, verdict: str) -> None:
    assert check_of("x", "a value", kind, 1.0, **given).verdict(Estimate(mean, error)) == verdict


def test_every_row_can_agree_and_can_fail() -> None:
    for check in (check for row in HERE for check in row.checks):
        middle = check.low if check.high == float("inf") else (check.low + check.high) / 2
        assert check.verdict(Estimate(middle, 0.0)) in AGREES
        far = {check.verdict(Estimate(value, 0.0)) for value in (-1e9, 1e9)}
        assert far - {*AGREES, NOT_RUN}
    assert all(row.missing and row.published for row in outside.ROWS.values() if row not in HERE)


def test_the_page_is_what_the_records_give(tmp_path: Path) -> None:
    assert outside.page(outside.ROWS.values(), RECORDS) == (ROOT / "docs/outside.md").read_text()
    row = outside.ROWS["opacus-eps"]
    about = json.loads((RECORDS / "opacus-eps.json").read_text())
    about["seeds"]["0"]["numbers"]["1.3"] = 1.2
    (tmp_path / "opacus-eps.json").write_text(json.dumps(about))
    page = outside.page([row, outside.ROWS["decor-eps"]], tmp_path)
    assert "| 1.19 | 1.2 | ABOVE theirs |" in page
    assert "opacus-eps (eps, sigma 1.3, 15 epochs: ABOVE theirs). The reason is not known." in page
    (tmp_path / "opacus-eps.json").write_text(json.dumps({**about, "name": "other"}))
    refused(lambda: outside.page([row], tmp_path), "is damaged, or no record of opacus-eps")


def test_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Seeds that are recorded are not measured again."""
    main, ran = load("benchmarks/outside").main, []

    def measure(data: str | None, seed: int) -> dict[str, float]:
        ran.append(seed)
        return {"accuracy": 94.0 + seed}

    row = outside.ROWS["opacus-1.3"]._replace(measure=measure, minutes=2.0)
    monkeypatch.setattr(outside, "ROWS", {row.name: row})
    for words, seeds in (("--fast", []), ("--seeds 2", [0, 1]), ("--seeds 3", [0, 1, 2])):
        assert main(["run", "opacus", "--out", str(tmp_path), *words.split()]) == 0
        assert ran == seeds
    assert "95.00 ± 0.58  above the band" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["run", "opacus-1.33"])
    assert "did you mean 'opacus-1.3'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["opacus-eps", "tensorflow-eps", "handcrafted-eps"])
@pytest.mark.plain
def test_settings_are_those_of_the_published_eps(name: str) -> None:
    """A Renyi accountant gives what was published; what is proven is less, and what is recorded."""
    row = outside.ROWS[name]
    found = row.measure(None, 0)
    assert found == pytest.approx(outside.read(row, RECORDS)[0].numbers, rel=1e-6)
    for check in row.checks:
        epochs, batch = int(check.what.split()[-2]), int(row.setting.split("of ")[1].split(",")[0])
        event = dp.PoissonSampledDpEvent(batch / 60_000, dp.GaussianDpEvent(float(check.key)))
        theirs = RdpAccountant().compose(event, epochs * 60_000 // batch).get_epsilon(1e-5)
        assert found[check.key] < theirs <= check.high * 1.01


def test_trainings_are_those_of_the_rows() -> None:
    """Their values, and the parameters of the published networks."""
    for name, each in TRAININGS.items():
        noise = f"sigma {each.sigma:g}, C {each.clip:g}" if each.sigma else "no privacy"
        words = f"MNIST, {noise}, lr {each.lr:g}, {each.epochs} epochs"
        assert outside.ROWS[name].setting == words
        image = jnp.zeros((1, 28, 28, 1))
        shapes = jax.tree.leaves(jax.eval_shape(each.net.init, jax.random.key(0), image))
        assert sum(leaf.size for leaf in shapes) == 26_010


@pytest.mark.full  # minutes
def test_fast_rows(tmp_path: Path, data_dir: Path) -> None:
    """All rows that take at most a minute a seed, from the data to the table."""
    words = ["run", "all", "--fast", "--out", str(tmp_path), "--data-dir", str(data_dir)]
    assert load("benchmarks/outside").main(words) == 0
    assert len([*tmp_path.glob("*.json")]) == sum(row.minutes <= 1 for row in HERE)
