"""A picture of a sweep in a notebook that follows sliders over its axes."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jaxfl.core.errors import InputError, require
from jaxfl.core.params import choice
from jaxfl.views import ink
from jaxfl.views.cells import Grid, at
from jaxfl.views.ink import Line
from jaxfl.views.plots import ALONG, lines, panel
from jaxfl.views.words import number

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

__all__ = ["explore", "snapshot"]


def explore(ds: xarray.Dataset, metric: str = "loss", along: str = "round") -> Any:
    """Sliders over the axes of a sweep, and the curves of its algorithms at these values.

    Each axis with several values has a slider; ``metric`` and ``along`` (``"round"``, ``"uplink_bits"`` or
    ``"gradients"``) are chosen next to them.  Curves are means over seeds with standard errors, and the
    vertical axis stays as it is while sliders move.  Needs a notebook and ipywidgets.
    """
    try:
        import ipywidgets as widgets
    except ImportError:
        way = "pip install 'jaxfl[notebooks]', or draw the sweep by jaxfl.views.figures"
        raise InputError("explore needs ipywidgets, which is not installed", way) from None
    grid = Grid.of(ds)
    grid.check(metric)
    choice("along", along, ALONG)
    axes = [name for name in grid.several() if name != "algorithm"]
    require(axes, "This result has one setting", "draw it by jaxfl.views.figures")
    find = functools.lru_cache(lambda metric, along: lines(grid, metric, along))
    controls: dict[str, Any] = {}
    for name in axes:
        values = grid.cells[name].dropna().unique().tolist()
        options = [(number(value), value) for value in values]
        controls[name] = widgets.SelectionSlider(options=options, description=grid.short(name))
    known = [(grid.name(name), name) for name in grid.metrics()]
    controls["metric"] = widgets.Dropdown(options=known, value=metric, description="metric")
    against = [(words, name) for name, words in ALONG.items()]
    controls["along"] = widgets.Dropdown(options=against, value=along, description="against")
    picture = widgets.Image(format="png", layout={"max_width": "100%", "align_self": "flex-start"})

    def draw(change: object = None) -> None:
        place = {name: controls[name].value for name in axes}
        metric, along = controls["metric"].value, controls["along"].value
        file = io.BytesIO()
        snapshot(grid, find(metric, along), place, metric, along).savefig(file)
        picture.value = file.getvalue()

    for control in controls.values():
        control.observe(draw, names="value")
    draw()
    return widgets.VBox([*controls.values(), picture])


def snapshot(
    grid: Grid, drawn: Mapping[int, Line], place: Mapping[str, Any], metric: str, along: str
) -> Figure:
    """The curves of the algorithms at one place; an algorithm without an axis is at all of its values.

    ``drawn`` are all curves of the grid, by cell; they decide the vertical axis.
    """
    cells, names = grid.cells, grid.ds["algorithm"].values.tolist()
    for name, value in place.items():
        cells = at(cells, name, value)
    each = cells["algorithm"].items()
    own = [drawn[i]._replace(label=name, color=names.index(name)) for i, name in each]
    shown = panel(grid, metric, along, own, ", ".join(grid.labels(cells, place)))
    return ink.picture("", [[shown._replace(span=[*drawn.values()])]], grid.protections())
