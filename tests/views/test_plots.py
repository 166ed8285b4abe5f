"""Figures: there, not blank, the same each time, and honest about privacy and divergence."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text
from rows import a_problem
from told import refused

import jaxfl
from jaxfl.engine import results
from jaxfl.views import plots
from jaxfl.views.cells import Grid
from jaxfl.views.ink import PALETTE

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def ds() -> xarray.Dataset:
    run = jaxfl.simulate(
        "soteriafl_sgd", a_problem(), jax.random.key(0), 24, batch=4, k=3, lr=0.3, eps=20.0
    )
    return run.dataset()


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
def test_files_are_always_the_same_and_not_blank(
    ds: xarray.Dataset, suffix: str, tmp_path: Path
) -> None:
    one, two, again = (tmp_path / f"{name}{suffix}" for name in ("new/a", "b", "c"))
    for path in (one, two, str(again)):
        plots.curves(ds, path)
    assert one.read_bytes() == two.read_bytes() == again.read_bytes()
    assert len(one.read_bytes()) > 10_000
    assert [path.name for path in one.parent.iterdir()] == [one.name]
    if suffix == ".png":
        pixels = imread(one)[:, :, :3]
        assert (pixels.shape[:2] > np.array([900, 1200])).all()
        for color in PALETTE[:2]:
            assert (np.abs(pixels - to_rgb(color)).max(axis=2) < 0.01).sum() > 1000


def test_labels_of_one_result(ds: xarray.Dataset) -> None:
    text = words(plots.curves(ds))
    for expected in (
        "soteriafl_sgd: logistic on data, 5 clients",
        "training loss",
        "squared gradient norm",
        "round",
        "uplink (kbit)",
        "worst client",
        "running mean",
        ", δ = 0.001 proven",
        "; the paper's formula says ",
    ):
        assert expected in text
    (legend,) = plots.curves(ds).legends
    named = ["worst client", "mean over clients", "running mean", "at this round"]
    assert [text.get_text() for text in legend.get_texts()] == named
    once = plots.curves(ds.isel(round=[0]), title="a title of mine")
    assert "a title of mine" in words(once)
    assert "o" in {line.get_marker() for line in once.axes[0].get_lines()}


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


def test_no_claim_without_a_guarantee(ds: xarray.Dataset) -> None:
    """What is said of a result whose privacy is another; where nothing is proven there is no eps."""
    about = results.config(ds)
    settings, none = about["settings"] | {"per_record": False}, about["privacy"] | {"proven": "inf"}
    proven, claims = "; the paper's formula ", "the paper's formula claims 3"
    flagged = about["privacy"] | {"proven": 9.0, "claimed": 3.0, "flag": True}
    failing = {"conditions": [("q < 1", False, False, "q = 1")]}
    noted = about["privacy"] | {"note": "a bound does not hold"}
    for history, said, eps in (
        (
            {"settings": settings, "privacy": none},
            "no per-record privacy guarantee (only the batch's mean is clipped)",
            "",
        ),
        ({"settings": settings}, f"{proven}says ", "ε = 20, "),
        ({"privacy": none | {"claimed": 3.0}}, f"no eps proven, where {claims}", ""),
        ({"privacy": noted}, "a bound does not hold", "ε"),
        ({"privacy": flagged | failing}, f"{proven}claims only 3 for this noise, outside", "ε = 9"),
    ):
        other = changed(ds, **history)
        text = words(plots.curves(other if eps else other.drop_vars("eps_spent")))
        assert said in text
        assert eps in text if eps else "ε" not in text
    bare = changed(ds, privacy=None).drop_vars("eps_spent")
    assert "not private: no noise." in words(plots.curves(bare))
    unclaimed = changed(ds, privacy=none | {"claimed": "inf"}).drop_vars("eps_spent")
    assert "claims" not in words(plots.curves(unclaimed))


def test_eps_is_drawn_where_it_is_proven(ds: xarray.Dataset) -> None:
    """Never below the truth: a step to the next value; without a proof there is no panel."""
    old = changed(ds, privacy=None).drop_vars("eps_spent")
    assert len(plots.curves(old).axes) == 4
    figure = plots.curves(ds)
    assert len(figure.axes) == 6
    for ax, x, scale in zip(figure.axes[4:], ("round", "uplink_bits"), (1, 1000), strict=True):
        (line,) = ax.get_lines()
        assert line.get_drawstyle() == "steps-pre"
        np.testing.assert_array_equal(line.get_ydata(), ds["eps_spent"])
        np.testing.assert_allclose(line.get_xdata(), ds[x] / scale)
    assert figure.axes[4].get_ylabel() == "proven ε"
    assert figure.axes[4].get_xlabel() == "round"
    assert not figure.axes[2].get_xlabel()


def test_a_metric_of_each_client_is_a_median_with_deciles(ds: xarray.Dataset) -> None:
    (line,) = plots.lines(Grid.of(ds), "client_loss", "round").values()
    low, median, high = np.quantile(ds["client_loss"], [0.1, 0.5, 0.9], axis=1)
    np.testing.assert_allclose(line.y, median)
    np.testing.assert_allclose(line.error, [median - low, high - median])
    assert plots.OF_CLIENTS in words(plots.curves(ds, metrics=["client_loss"]))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("first", [1, 9])
def test_divergence_ends_in_a_cross(ds: xarray.Dataset, bad: float, first: int) -> None:
    ended = f"diverged: the loss is not finite from round {first} on"
    lost = changed(ds, ended=ended)
    for name in ("loss", "worst_client_loss", "grad_norm_sq", "utility"):
        lost[name].values[first:] = bad
        lost[name].values[first - 1] = 1e30 if first > 1 else lost[name].values[0]
    figure = plots.curves(lost)
    assert ended in words(figure)
    assert "outside of the picture" not in words(figure) or first > 1
    assert "A cross: from the next evaluation on infinite" in words(figure)
    for ax in figure.axes[:4]:
        crosses = [line for line in ax.get_lines() if line.get_marker() == "X"]
        assert crosses
        assert np.ravel(ax.get_lines()[-1].get_ydata())[-1] < 1e6


def test_a_worst_client_far_off_does_not_flatten_the_mean(ds: xarray.Dataset) -> None:
    far = changed(ds)
    far["worst_client_loss"].values[:] = 100.0
    figure = plots.curves(far)
    assert figure.axes[0].get_ylim()[1] < 2
    assert "worst client (100 at the end, outside of the picture)" in words(figure)


def test_a_flat_mean_is_drawn_as_one(ds: xarray.Dataset) -> None:
    """What rounding makes of equal losses is no spread, and has no offset over the legend."""
    flat = changed(ds)
    mean, worst = flat["loss"].values, flat["worst_client_loss"].values
    mean[:] = 2.302585 * (1 + 1e-7 * (np.arange(mean.size) % 2))
    worst[:] = 2.302587
    figure = plots.curves(flat)
    figure.draw_without_rendering()
    assert not figure.axes[0].yaxis.get_offset_text().get_text()
    assert np.ptp(figure.axes[0].get_ylim()) > 0.1
    assert len(figure.axes[0].get_lines()) == 2
    assert not any(said in words(figure) for said in ("outside of the picture", "a cross"))


def test_mistakes_get_one_sentence(ds: xarray.Dataset, tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    refused(lambda: plots.curves(ds, tmp_path / "a.jpg"), r"a\.jpg")
    refused(lambda: plots.curves([("a", ds)], file), "no result of jaxfl")
    assert not list(tmp_path.iterdir())


def test_no_global_state(ds: xarray.Dataset, tmp_path: Path) -> None:
    """No pyplot, no backend, no settings changed."""
    results.save(ds, tmp_path / "a.nc")
    code = (
        "import sys, jaxfl, matplotlib\n"
        "from jaxfl import plots\n"
        # asking for the backend would choose one
        "rc = lambda: {k: matplotlib.rcParams[k] for k in matplotlib.rcParams if k != 'backend'}\n"
        "before = rc()\n"
        "plots.curves(jaxfl.load('a.nc'), 'a.svg')\n"
        "assert rc() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    environment = {"PYTHONPATH": str(Path(jaxfl.__file__).parents[1]), "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
