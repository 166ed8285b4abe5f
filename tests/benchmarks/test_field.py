"""`benchmarks/field.py`: effort, choices, ranks, verdicts, resuming, and an algorithm of one's own."""

import math
from pathlib import Path
from typing import Any

import field.settings
import field.tuning
import numpy as np
import pandas
import pytest
import xarray
from field.contenders import CONTENDERS, KNOBS, knobs
from field.page import KEY, abstract, digest, front, page, readme
from field.results import Claim, best_of, judged, leaders, load, ranks
from field.settings import Setting, named
from field.tuning import Job, at_ends, better_half, beyond, winners
from PIL import Image
from scripts import load as script

import jaxfl

pytestmark = pytest.mark.once

MINE = """
import jaxfl

@jaxfl.register
def mine():
    return jaxfl.algorithm("ldp_sgd")
"""


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Setting:
    setting = Setting(
        "tiny",
        "digits",
        lambda records: jaxfl.data.split("digits", 3, test_share=0.2),
        lambda small: jaxfl.models.softmax_regression(64, 10),
        rounds=(2,),
        batches=(8, 8, 8),
        steps=(0.3, 1.0),
        record_us=1.0,
        local_us=1.0,
        program_s=1.0,
        convex=True,
        small=True,
    )
    monkeypatch.setattr(field.settings, "SETTINGS", (setting,))
    monkeypatch.setattr(field.tuning, "MOST", 1)
    return setting


def frame(**columns: Any) -> pandas.DataFrame:
    return pandas.DataFrame({"eps": 1.0, "seed": 0, **columns})


def made(accuracy: dict[str, list[list[float]]]) -> xarray.Dataset:
    """A data set of one setting and eps, with the accuracies of budgets and seeds of each algorithm."""
    values = np.asarray([*accuracy.values()])[None, :, None]
    dims = ("setting", "algorithm", "eps", "budget", "seed")
    every = {name: (dims, values) for name in ("accuracy", "validation_accuracy", "loss", "worst")}
    totals = {
        name: (dims, np.where(np.isnan(values), np.nan, 8.0)) for name in ("bits", "gradients")
    }
    cells = {name: (dims[:4], values[..., 0]) for name in ("proven_eps", "rounds", "step")}
    counts = {
        n: (dims[:2], np.ones((1, len(accuracy))))
        for n in ("tried", "added", "open", "bound", "seconds")
    }
    texts = {
        name: (dims[:2], np.full((1, len(accuracy)), "it, from an adversary who sees all"))
        for name in ("protects", "left_out")
    }
    ds = xarray.Dataset(every | totals | cells | counts | texts)
    ds["others"] = dims[:4], np.full(values.shape[:4], "")
    ds["compressed"] = "algorithm", [float(name.startswith("c")) for name in accuracy]
    return ds.assign_coords(
        setting=["a9a-label"], algorithm=[*accuracy], eps=[4.0], budget=[1.0, 4.0], seed=[1, 2, 3]
    )


def test_all_have_equally_many_cells(tiny: Setting) -> None:
    setting = tiny._replace(batches=(8, 16, 32), small=False)
    for contender in CONTENDERS:
        assert math.prod(map(len, knobs(contender, setting, 2).values())) == KNOBS, contender.name


def test_winners_send_no_more_than_their_budget() -> None:
    cells = frame(
        rounds=[1, 2, 3],
        step=[1.0, 2.0, 3.0],
        bits=[1.0, 2.0, 9.0],
        validation_loss=[0.5, 0.3, 0.1],
    )
    best = winners(cells, {0.5: 0.5, 1.0: 1.0, 4.0: 4.0, 9.0: 9.0})
    assert best["budget"].tolist() == [1.0, 4.0, 9.0]
    assert best["rounds"].tolist() == [1, 2, 3]


def test_no_winner_stays_at_an_end_of_the_step_sizes() -> None:
    cells = frame(
        rounds=5, step=[1.0, 3.0, 9.0], bits=1.0, validation_loss=[0.9, 0.1, 0.8], batch=[8, 16, 8]
    )
    best = winners(cells, {1.0: 1.0})
    assert beyond(cells, best, {5: 2}) == {}
    assert at_ends(cells, best) == (0, 1)
    cells["validation_loss"] = [0.9, 0.8, 0.1]
    assert beyond(cells, winners(cells, {1.0: 1.0}), {5: 2}) == {5: [28.5, 90.0]}
    cells["validation_loss"] = [0.1, 0.8, 0.9]
    assert max(beyond(cells, winners(cells, {1.0: 1.0}), {5: 2})[5]) < 1.0
    more = pandas.concat([cells.assign(step=[1.0, 3.0, 9.0]), cells.assign(step=[4.0, 5.0, 6.0])])
    assert better_half(more) == [1.0, 3.0, 4.0]


@pytest.mark.parametrize("slow", [False, True])
def test_slow_winners_run_without_other_combinations(
    tiny: Setting, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = dict[str, Any]()

    def cells(
        job: Any, setting: Any, contender: Any, name: str, rounds: int, eps: Any, axes: Any, _: Any
    ) -> Any:
        ran[name] = (eps, axes)
        return frame(
            step=axes["lr"], clip=axes["clip"][0], batch=axes["batch"][0], rounds=rounds, eps=eps
        )

    monkeypatch.setattr(field.tuning, "_cells", cells)
    best = frame(
        rounds=5, step=[1.0, 3.0], clip=[1.0, 2.0], batch=8, budget=[1.0, 4.0], eps=[1.0, 4.0]
    )
    best = best.drop(columns="seed")
    (contender,) = [one for one in CONTENDERS if one.name == "ldp_sgd"]
    field.tuning._finals(Job(Path()), tiny._replace(leaders=slow), contender, best)
    both = ([1.0, 4.0], {"clip": [1.0, 2.0], "batch": [8], "lr": [1.0, 3.0]})
    one = [
        ([eps], {"clip": [c], "batch": [8], "lr": [lr]})
        for eps, c, lr in ((1.0, 1.0, 1.0), (4.0, 2.0, 3.0))
    ]
    assert [*ran.values()] == (one if slow else [both])


def test_ranks_have_the_errors_of_their_seeds_and_missing_ones_are_last() -> None:
    nan = [np.nan] * 3
    ds = made(
        {"a": [[0.9, 0.9, 0.7], [0.9] * 3], "c": [[0.8] * 3, [0.8] * 3], "b": [nan, [0.7] * 3]}
    )
    found = ranks(ds, ["a", "b", "c"])
    assert found["a9a-label", "a"].mean == pytest.approx((1 + 1 + 1.5) / 3)
    assert found["a9a-label", "a"].error == pytest.approx(1 / 6)
    assert found["a9a-label", "b"] == (3.0, 0.0)
    assert ranks(ds, ["a", "b", "c"], largest=True)["a9a-label", "c"] == (2.0, 0.0)
    assert leaders(ds, "a9a-label") == ["a", "c", "b"]
    assert best_of(ds.isel(setting=0, eps=0, budget=0), ["b"]) is None
    assert "Compression is even at 1, behind at 4." in page(ds)


@pytest.mark.parametrize(
    ("other", "word"),
    [
        pytest.param([0.5, 0.5, 0.6], "held", marks=pytest.mark.plain),
        pytest.param([0.9, 0.9, 1.0], "not held", marks=pytest.mark.plain),
        pytest.param([0.3, 0.9, 0.9], "undecided", marks=pytest.mark.plain),
    ],
)
def test_claims_are_judged_by_standard_errors(other: list[float], word: str) -> None:
    ds = made({"a": [[0.7, 0.7, 0.8]] * 2, "b": [other, [np.nan] * 3]})
    found = judged(ds, Claim("a", "b", "a9a-label", ""))
    assert (found.word, found.pairs) == (word, 1)
    assert judged(ds, Claim("a", "unknown", "a9a-label", "")).word == "not run"


def test_runs_resume_and_take_an_algorithm_of_ones_own(
    tiny: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, out, computed = script("benchmarks/field"), tmp_path / "out", list[str]()
    sweep = jaxfl.sweep

    def counted(*args: Any, **options: Any) -> xarray.Dataset:
        computed.append(options["out"].name)
        return sweep(*args, **options)

    monkeypatch.setattr(jaxfl, "sweep", counted)
    monkeypatch.setattr(command, "RECORDED", out / "field.nc")
    run = ["run", "tiny", "--out", str(out), "--only", "ldp_sgd"]
    assert command.main(run) == 0
    first, began = load(out / "field.nc"), len(computed)
    (out / "tiny/ldp_sgd/2-winners-batch=8/result.nc").unlink()
    assert command.main(run) == 0
    assert computed[began:] == ["2-winners-batch=8"]
    xarray.testing.assert_identical(
        load(out / "field.nc").drop_vars("seconds"), first.drop_vars("seconds")
    )

    (tmp_path / "mine.py").write_text(MINE)
    other = ["run", "tiny", "--out", str(tmp_path / "own"), "--import", str(tmp_path / "mine.py")]
    assert command.main([*other, "--add", "mine"]) == 0
    both = load(tmp_path / "own/field.nc")
    assert both["algorithm"].values.tolist() == ["ldp_sgd", "mine"]
    np.testing.assert_array_equal(*(both["accuracy"].sel(algorithm=n) for n in ("mine", "ldp_sgd")))
    assert "`mine`" in (tmp_path / "own/field.md").read_text("utf-8")


def test_page_pictures_and_readme_are_those_of_the_recorded_data_set() -> None:
    """A picture holds a digest of what it shows."""
    command, again = (
        script("benchmarks/field"),
        "write it again with python benchmarks/field.py page",
    )
    ds = load(command.RECORDED)
    assert command.PAGE.read_text("utf-8") == page(ds), again
    assert f"<!-- field -->\n{abstract(ds)}<!-- /field -->" in command.README.read_text("utf-8"), (
        again
    )
    for setting in ds["setting"].values:
        kept = Image.open(command.PAGE.with_name(f"field-{setting}.png")).text[KEY]
        drawn = front(ds, setting)
        assert kept == digest(drawn), again
    drawn.axes[0].lines[1].set_ydata(1.001 * drawn.axes[0].lines[1].get_ydata())
    assert kept != digest(drawn)


def test_the_readme_says_where_compression_gains_and_loses(tmp_path: Path) -> None:
    nan = [np.nan] * 3
    ds = made({"a": [nan, [0.7, 0.7, 0.71]], "c": [[0.8, 0.81, 0.8], [0.6, 0.61, 0.62]]})
    (file := tmp_path / "README.md").write_text("One\n<!-- field -->\nold\n<!-- /field -->\ntwo")
    text = " ".join(readme(ds, file).read_text().split())
    assert "the bits of 1 uncompressed rounds** nothing else fits" in text
    assert "reach a test accuracy of 0.803 at eps = 4. With most bits the best reach 0.703." in text
    assert (
        "in 0 of 1 pairs of eps and bits, even in 0, and behind in 1: by 0.093 at eps = 4 with 4"
        in text
    )
    assert "old" not in text
    assert text.startswith("One <!--")
    assert text.endswith("--> two")
    ds["accuracy"].loc[{"algorithm": "a"}] = 0.1
    ds["validation_accuracy"].loc[{"algorithm": "a"}] = 0.1
    assert "in 2 of 2 pairs of eps and bits, even in 0, and behind in 0." in " ".join(
        abstract(ds).split()
    )


def test_unknown_names_are_refused(tiny: Setting) -> None:
    with pytest.raises(jaxfl.InputError, match="no setting 'huge'"):
        named(["huge"])


NEEDY = """
import jaxfl, optax

@jaxfl.register
def needy():
    free = jaxfl.parts.Param("decay", "a number without a default")
    make = lambda hp: optax.sgd(hp["decay"])
    server = jaxfl.parts.servers.optimizer(make, (free, jaxfl.parts.servers.LR))
    return jaxfl.algorithm("ldp_sgd", server=server)
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run tiny --only nope", "There is no algorithm 'nope' here"),
        ("page --data-set no.nc", "There is no data set no.nc"),
        ("run tiny --import {} --add needy --out {}", "needy needs decay, which nothing sets"),
        ("run tiny --import {} --add needy --out {} --set decay", "is not of the form NAME=VALUE"),
    ],
)
def test_what_there_is_not_is_one_sentence(
    words: str, said: str, tiny: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "needy.py").write_text(NEEDY)
    with pytest.raises(SystemExit):
        script("benchmarks/field").main(words.format(tmp_path / "needy.py", tmp_path).split())
    assert said in capsys.readouterr().err
