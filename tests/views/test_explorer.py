"""Sliders over a sweep, and the picture that follows them."""

import io
import sys
from typing import Any

import grids
import numpy as np
import pytest
import xarray
from matplotlib.image import imread
from told import refused

from jaxfl.views import explore
from jaxfl.views.cells import Grid, restrict
from jaxfl.views.explorer import snapshot
from jaxfl.views.plots import lines

pytestmark = pytest.mark.once

THREE = ("soteriafl_sgd", "ldp_sgd", "fedsgd")


@pytest.fixture(scope="module")
def ds() -> xarray.Dataset:
    found: xarray.Dataset = grids.grid(algorithms=THREE, diverged={"omega": 9.0, "eps": 1.0})
    return found.assign(protects=np.int32(1))


def test_a_picture_shows_the_cells_at_its_place_on_a_fixed_axis(ds: xarray.Dataset) -> None:
    """An algorithm without an axis is at all of its values; no slider changes the axis."""
    grid = Grid.of(ds)
    drawn, heights = lines(grid, "loss", "uplink_bits"), set()
    for place in ({"eps": e, "omega": w, "lr": 0.3} for e in (1.0, 5.0) for w in (1.0, 9.0)):
        figure = snapshot(grid, drawn, place, "loss", "uplink_bits")
        (ax,) = figure.axes
        assert "ε protects" in figure.get_label()
        heights.add(ax.get_ylim())
        every = [np.asarray(line.get_ydata()) for line in ax.lines]
        curves = [values for values in every if len(values) > 1]
        assert ax.get_title() == f"ε = {place['eps']:g}, ω = {place['omega']:g}, step size = 0.3"
        own = restrict(ds, {name: [value] for name, value in place.items()})
        ends = own["loss"].sel(algorithm="soteriafl_sgd").mean("seed").squeeze()
        lost = place == {"eps": 1.0, "omega": 9.0, "lr": 0.3}
        assert len(curves) == 3
        if not lost:
            kept = ends.values[np.isfinite(ends.values)]
            np.testing.assert_allclose(curves[0], kept, rtol=1e-6)
    assert len(heights) == 1


def test_sliders_redraw_the_picture(ds: xarray.Dataset) -> None:
    pytest.importorskip("ipywidgets", reason="needs ipywidgets: pip install '.[test]'")
    box = explore(ds)
    *controls, image = box.children
    found = {control.description: control for control in controls}
    assert [*found] == ["ε", "ω", "lr", "metric", "against"]
    assert [label for label, _ in found["lr"].options] == ["0.1", "0.3", "1"]
    seen = [image.value]
    for name, value in (("ε", 5.0), ("ω", 9.0), ("metric", "accuracy"), ("against", "gradients")):
        found[name].value = value
        seen.append(image.value)
    assert len({*seen}) == len(seen)  # each choice has a picture of its own
    assert imread(io.BytesIO(seen[-1])).ndim == 3
    found["ε"].value, found["ω"].value = 1.0, 1.0
    found["metric"].value, found["against"].value = "loss", "round"
    assert image.value == seen[0]


@pytest.mark.parametrize(
    ("lacks", "axes", "options", "words"),
    [
        (True, grids.AXES, {}, r"pip install 'jaxfl\[notebooks\]'"),
        (False, {}, {}, "one setting"),
        (False, grids.AXES, {"metric": "los"}, "did you mean 'loss'"),
        (False, grids.AXES, {"along": "bits"}, "uplink_bits"),
    ],
)
def test_what_it_cannot_show(
    lacks: bool, axes: Any, options: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacks:
        monkeypatch.setitem(sys.modules, "ipywidgets", None)
    else:
        pytest.importorskip("ipywidgets", reason="needs ipywidgets: pip install '.[test]'")
    refused(lambda: explore(grids.grid(axes, algorithms=THREE), **options), words)
