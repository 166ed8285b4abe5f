"""The pictures of a sweep: curves, heat maps, and what utility costs in bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jaxfl.errors import InputError
from jaxfl.params import closest
from jaxfl.views.cells import axes, metrics
from jaxfl.views.curves import BANDS, draw_curves
from jaxfl.views.fronts import draw_fronts
from jaxfl.views.ink import FORMATS, save
from jaxfl.views.maps import draw_maps
from jaxfl.views.rows import criterion_used
from jaxfl.views.scenes import scene
from jaxfl.views.selection import TUNED, select

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

__all__ = ["draw", "figures"]


def draw(
    ds: xarray.Dataset,
    folder: str | Path,
    *,
    formats: Sequence[str] = ("png", "pdf"),
    criterion: str | None = "utility",
    over: Sequence[str] | None = None,
    allow_test: bool = False,
    band: str = "error",
) -> list[Path]:
    """Draw the :func:`figures` of a sweep into files, and return their names."""
    if not formats:
        raise InputError(
            "No formats are asked for: name at least one of " + ", ".join(FORMATS) + "."
        )
    for name in formats:
        if name not in FORMATS:
            raise InputError(closest("format of pictures named", name, FORMATS))
    every = _figures(ds, criterion, over, allow_test, band)
    return [path for name, drawn in every for path in save(drawn, Path(folder), name, formats)]


def figures(
    ds: xarray.Dataset,
    *,
    criterion: str | None = "utility",
    over: Sequence[str] | None = None,
    allow_test: bool = False,
    band: str = "error",
) -> dict[str, Figure]:
    """The pictures of a sweep by name, each a matplotlib figure that a notebook shows.

    ``curves-METRIC``: utility, loss and accuracy against rounds, uplink bits and gradients;
    ``map-METRIC``: final values over the first two axes; ``front-METRIC``: final values against
    bits.  First the best step size is chosen as in :func:`select`; ``criterion=None`` chooses none.
    Bands are means with standard errors (``band="error"``) or from the smallest to the largest
    seed (``"range"``).

    >>> import jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> ds = jaxfl.sweep("ldp_gd", {"eps": [1, 8], "lr": [0.1, 0.3]}, problem, rounds=5)
    >>> list(figures(ds))
    ['curves-utility', 'curves-loss', 'curves-test_accuracy', 'map-utility', 'front-utility']
    """
    return dict(_figures(ds, criterion, over, allow_test, band))


def _figures(
    ds: xarray.Dataset,
    criterion: str | None,
    over: Sequence[str] | None,
    allow_test: bool,
    band: str,
) -> Iterator[tuple[str, Figure]]:
    """One at a time: a sweep may have many."""
    if band not in BANDS:
        raise InputError(f"band = {band!r} has to be one of {', '.join(BANDS)}.")
    if criterion is not None and (over is not None or set(TUNED) & set(axes(ds))):
        ds = select(ds, criterion, over=over, allow_test=allow_test).ds
    rule = criterion_used(ds)
    lines, points = scene(ds), scene(ds, shaded=False)
    for metric in _curves(ds, rule.metric):
        yield from draw_curves(ds, lines, metric, band)
    yield from draw_maps(ds, rule)
    yield from draw_fronts(ds, points, rule)


def _curves(ds: xarray.Dataset, chosen_by: str) -> list[str]:
    """Utility, loss, what was chosen by, and the accuracy that says most."""
    known = metrics(ds)
    accuracy = "test_accuracy" if "test_accuracy" in known else "accuracy"
    wanted = dict.fromkeys(("utility", "loss", chosen_by, accuracy))
    return [name for name in wanted if name in known]
