"""Figures: there, not blank, the same each time, and honest about privacy and divergence."""

import json
from typing import Any

import numpy as np
import pytest
import xarray
from matplotlib.figure import Figure
from matplotlib.text import Text
from told import refused

import jaxfl
from jaxfl.engine import results
from jaxfl.views import plots
from jaxfl.views.cells import Grid
from jaxfl.views.ink import PALETTE

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def ds(a_run: jaxfl.Run) -> xarray.Dataset:
    return a_run.dataset()


def changed(ds: xarray.Dataset, **about: Any) -> xarray.Dataset:
    """The same result with another history."""
    out = ds.copy(deep=True)
    out.attrs["config"] = json.dumps(results.config(ds) | about)
    return out


def words(figure: Figure) -> str:
    """All text of a figure, and its notes before they were wrapped."""
    texts = [text.get_text() for text in figure.findobj(Text)]
    return "\n".join([*texts, str(figure.get_label())])


@pytest.mark.parametrize("suffix", [".png", ".svg", ".PDF"])
def test_files_are_always_the_same_and_not_blank(ds, suffix, tmp_path):
    one, two = (tmp_path / f"{name}{suffix}" for name in ("new/a", "b"))
    plots.curves(ds, one)
    plots.curves(ds, str(two))
    assert one.read_bytes() == two.read_bytes()
    assert len(one.read_bytes()) > 10_000
    assert [path.name for path in one.parent.iterdir()] == [one.name]
    refused(lambda: plots.curves(ds, tmp_path / "a.jpg"), r"a\.jpg")
    refused(lambda: plots.curves([]), "0 labels for 0 results: give at least one")
    refused(lambda: plots.curves([("same", ds), ("same", ds)]), "1 labels for 2 results")


def test_data_are_drawn_as_they_are(ds: xarray.Dataset) -> None:
    figure = plots.curves(ds)
    for ax, x, name in zip(
        figure.axes,
        ("round", "uplink_bits") * 3,
        ("loss", "loss", "grad_norm_sq", "grad_norm_sq", "eps_spent", "eps_spent"),
        strict=True,
    ):
        line = ax.get_lines()[-1]
        np.testing.assert_array_equal(line.get_ydata(), ds[name])
        scale = 1000 if x == "uplink_bits" else 1
        np.testing.assert_allclose(line.get_xdata(), ds[x] / scale)
    text = words(figure)
    assert "soteriafl_sgd: logistic on data, 5 clients" in text
    assert ", δ = 0.001 proven" in text
    assert "; the paper's formula says " in text
    (legend,) = figure.legends
    named = ["worst client", "mean over clients", "running mean", "at this round"]
    assert [text.get_text() for text in legend.get_texts()] == named


def test_no_claim_without_a_guarantee(ds: xarray.Dataset) -> None:
    """What is said of a result whose privacy is another; where nothing is proven there is no eps."""
    about = results.config(ds)
    settings, none = about["settings"] | {"per_record": False}, about["privacy"] | {"proven": "inf"}
    unclipped = "no per-record privacy guarantee (only the batch's mean is clipped)"
    proven, claims = "; the paper's formula ", "the paper's formula claims 3"
    flagged = about["privacy"] | {"proven": 9.0, "claimed": 3.0, "flag": True}
    flagged |= {"conditions": [("q < 1", False, False, "q = 1")]}
    for history, said, eps in (
        ({"settings": settings, "privacy": none}, unclipped, ""),
        ({"settings": settings}, f"{proven}says ", "ε = 20, "),
        ({"privacy": none | {"claimed": 3.0}}, f"no eps proven, where {claims}", ""),
        ({"privacy": flagged}, f"{proven}claims only 3 for this noise, outside", "ε = 9"),
    ):
        other = changed(ds, **history)
        text = words(plots.curves(other if eps else other.drop_vars("eps_spent")))
        assert said in text
        assert eps in text if eps else "ε" not in text
    bare = changed(ds, privacy=None).drop_vars("eps_spent")
    assert "b: not private: no noise." in words(plots.curves([("a", ds), ("b", bare)]))


def test_eps_is_drawn_where_it_is_proven(ds: xarray.Dataset) -> None:
    """Never below the truth: a step to the next value; without a proof there is no panel."""
    old = changed(ds, privacy=None).drop_vars("eps_spent")
    assert len(plots.curves(old).axes) == 4
    more = changed(ds)
    more["eps_spent"] = more["eps_spent"] * 3
    figure = plots.curves([("old", old), ("a", ds), ("b", more)])
    for ax, x, scale in zip(figure.axes[4:], ("round", "uplink_bits"), (1, 1000), strict=True):
        lines = ax.get_lines()
        assert [line.get_color() for line in lines] == list(PALETTE[1:3])
        assert [line.get_drawstyle() for line in lines] == ["steps-pre"] * 2
        np.testing.assert_array_equal(lines[1].get_ydata(), 3 * ds["eps_spent"])
        np.testing.assert_allclose(lines[1].get_xdata(), ds[x] / scale)
    assert figure.axes[4].get_ylabel() == "proven ε"


def test_several_runs_are_told_apart(ds: xarray.Dataset) -> None:
    """Also where one ends first; only what all of them share is in the title."""
    short = ds.isel(round=slice(0, 13, 3))
    figure = plots.curves([("long", ds), ("short", short)])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["long", "short"]
    for ax, name in zip(figure.axes[::2], ("loss", "grad_norm_sq", "eps_spent"), strict=True):
        for line, run, color in zip(ax.get_lines(), (ds, short), PALETTE, strict=False):
            assert line.get_color() == color
            np.testing.assert_array_equal(line.get_xdata(), run["round"])
            np.testing.assert_array_equal(line.get_ydata(), run[name])
    assert figure.texts[0].get_text().startswith("logistic on data, 5 clients")
    assert ", δ = 0.001 proven" in words(figure)


def test_a_metric_of_each_client_is_a_median_with_deciles(ds: xarray.Dataset) -> None:
    (line,) = plots.lines(Grid.of(ds), "client_loss", "round").values()
    low, median, high = np.quantile(ds["client_loss"], [0.1, 0.5, 0.9], axis=1)
    np.testing.assert_allclose(line.y, median)
    np.testing.assert_allclose(line.error, [median - low, high - median])
    assert plots.OF_CLIENTS in words(plots.curves(ds, metrics=["client_loss"]))


@pytest.mark.parametrize(("bad", "first"), [(np.nan, 9), (np.inf, 1)])
def test_divergence_ends_in_a_cross(ds: xarray.Dataset, bad: float, first: int) -> None:
    ended = f"diverged: the loss is not finite from round {first} on"
    lost = changed(ds, ended=ended)
    for name in ("loss", "worst_client_loss", "grad_norm_sq", "utility"):
        lost[name].values[first:] = bad
        lost[name].values[first - 1] = 1e30 if first > 1 else lost[name].values[0]
    for data in (lost, [("fine", ds), ("lost", lost)]):
        figure = plots.curves(data)
        assert ended in words(figure)
        assert "A cross: from the next evaluation on infinite" in words(figure)
        for ax in figure.axes[:4]:
            crosses = [line for line in ax.get_lines() if line.get_marker() == "X"]
            assert crosses
            assert np.ravel(ax.get_lines()[-1].get_ydata())[-1] < 1e6
