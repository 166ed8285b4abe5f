"""Values against rounds, bits and gradients: the lines of a grid, and the figure of single runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxfl.algorithms.bounds import Bound
from jaxfl.core.errors import require
from jaxfl.engine import results
from jaxfl.views.cells import Array, Grid, as_sweep, check_metric, over_seeds, per_client
from jaxfl.views.ink import CAP, FLAT, GREY, Line, Panel, picture, write
from jaxfl.views.words import prefix

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


__all__ = ["ALONG", "OF_CLIENTS", "across", "curves", "lines", "scaled"]

# what is drawn against: on the axis, and in the notes
ALONG = {
    "round": ("round", "communication rounds"),
    "uplink_bits": ("uplink", "the bits that all clients sent so far"),
    "gradients": ("gradients", "gradients of single examples"),
}
THOUSANDS = {"k": "thousands", "M": "millions", "G": "billions"}
CROSS = f"A cross: from the next evaluation on infinite, or {CAP:g} times what it began with"
OF_CLIENTS = "Line: median over clients; band: from the first to the ninth decile."
ROOM = 4.0  # times the span of a curve: the most that a second one may take
STEPS = "{} ε: of all that was released up to the next evaluated round."
# what is drawn by default; behind it, for a single result, a second metric; and the words for each
ROWS = {
    "loss": ("worst_client_loss", "mean over clients", "worst client"),
    "grad_norm_sq": ("utility", "at this round", "running mean"),
}


def across(ds: xarray.Dataset, along: str) -> tuple[float, str]:
    """The factor and the label of a horizontal axis."""
    if along == "round":
        return 1.0, along
    scale, unit = prefix(ds[along].values, "")
    unit = f"{unit}bit" if along == "uplink_bits" else THOUSANDS.get(unit, unit)
    return scale, ALONG[along][0] + f" ({unit})" * bool(unit)


def scaled(metric: str) -> bool | None:
    """Whether the vertical axis is logarithmic; None: the values decide."""
    return False if metric == "eps_spent" or metric.endswith("accuracy") else None


def lines(grid: Grid, metric: str, along: str) -> list[Line]:
    """The means over seeds of each cell, with bands, up to its last round or to where it diverged.

    Of a metric of each client, the median, with a band from the first decile to the ninth.
    """
    names = {metric, "uplink_bits", "diverged_at", along} - {"round"}
    flat, scale = grid.flat(grid.ds[sorted(names)]), across(grid.ds, along)[0]
    seen = flat["uplink_bits"].notnull() | (flat["round"] == flat["diverged_at"])
    values = flat[metric].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        mean, error = (_clients if per_client(grid.ds, metric) else over_seeds)(values)
    x = flat["round"] if along == "round" else flat[along].mean("seed")
    x, y, band = (x / scale).broadcast_like(mean).values, mean.values, error.values
    return [
        Line("", x[i, live], y[i, live], band[..., i, live])
        for i, live in enumerate(seen.all("seed").values)
    ]


def _clients(values: xarray.DataArray) -> tuple[xarray.DataArray, xarray.DataArray]:
    """The median over clients, and how far the first and the ninth decile are from it."""
    import xarray

    values, shares = values.mean("seed"), [0.1, 0.5, 0.9]
    if "client" in values.dims:
        values = values.quantile(shares, "client")
    low, median, high = (values.sel(quantile=q, method="nearest", drop=True) for q in shares)
    return median, xarray.concat([median - low, high - median], "side")


def curves(
    data: xarray.Dataset | Sequence[tuple[str, xarray.Dataset]],
    path: str | Path | Sequence[str | Path] = (),
    *,
    title: str | None = None,
    metrics: Sequence[str] | None = None,
    bounds: Sequence[Bound] = (),
) -> Figure:
    """Loss and squared gradient norm against rounds and against uplink bits, in four panels; below
    them, for private runs, the eps that is proven for what was released so far.

    ``data`` is the result of one run, or of several as pairs (label, result); ``path`` ends in .png, .pdf
    or .svg, and may be several paths, or none.  ``metrics`` replaces both metrics.  A single
    result also shows its worst client and its running mean of the squared gradient norm, and its
    ``bounds``, from :func:`jaxfl.views.bounds.bounds`.  A run that diverged ends in a cross.  Returns
    the figure.
    """
    import xarray

    pairs = [("", data)] if isinstance(data, xarray.Dataset) else list(data)
    require(pairs, "There are 0 results to draw", "give at least one")
    runs = dict(pairs)
    for label, _ in pairs[len(runs) :]:
        require(False, f"Two results are called {label!r}", "give each a label of its own")
    each = [as_sweep(ds, label) for label, ds in pairs]
    grid = Grid.of(xarray.concat(each, "algorithm", join="outer", combine_attrs="override"))
    shown = list(ROWS) if metrics is None else list(dict.fromkeys(metrics))
    for name in shown:
        if not per_client(grid.ds, name):
            check_metric(grid.ds, name)
    notes = [*_notes(runs, shown), *(bound.note for bound in bounds)]
    notes += [OF_CLIENTS] * any(per_client(grid.ds, name) for name in shown)
    said = "Stated" if grid.cells["stated"].any() else "Proven"  # of some runs by their user
    if metrics is None and "eps_spent" in grid.ds:
        shown.append("eps_spent")
        notes.append(STEPS.format(said))
    planned = max(float(results.config(ds)["values"]["rounds"]) for ds in runs.values())
    ends = {"round": max(planned, grid.ds["round"].values[-1])}
    ends["uplink_bits"] = float(grid.ds["uplink_bits"].max())
    rows = []
    for name in shown:
        words = f"{said.lower()} ε" if name == "eps_spent" else grid.name(name)
        row = []
        for along, end in ends.items():
            scale, axis = across(grid.ds, along)
            drawn = _drawn(grid, name, along, bounds)
            log = False if along == "round" else None
            row.append(Panel("", axis, words, drawn, log, scaled(name), end / scale))
        rows.append(row)
    heights = [0.5 if name == "eps_spent" else 1.0 for name in shown]
    figure = picture(_title(runs) if title is None else title, rows, notes, heights=heights)
    if "eps_spent" in shown:
        figure.axes[-1].set_ylim(bottom=0)
    for p in [path] if isinstance(path, str | Path) else path:
        write(figure, Path(p))
    return figure


# --- pieces --------------------------------------------------------------------------------------


def _drawn(grid: Grid, name: str, along: str, bounds: Sequence[Bound]) -> list[Line]:
    """A line for each run; of a single one also the second metric behind it, and its bounds."""
    steps = "steps-pre" if name == "eps_spent" else "default"  # between two values the later holds
    labels = grid.cells["algorithm"]
    first = lines(grid, name, along)
    if len(labels) > 1 or name not in ROWS:
        looks = enumerate(zip(first, labels, strict=True))
        return [line._replace(label=label, color=i, steps=steps) for i, (line, label) in looks]
    behind, own, other = ROWS[name]
    place = 2 * list(ROWS).index(name)  # in one legend no two lines have one colour
    (second,), (line,) = lines(grid, behind, along), first
    second = second._replace(label=other, color=place + 1, style=1, width=1.0)
    spread = max(_spread(line.y), FLAT * np.nanmax(np.abs(line.y)))  # rounding is no spread
    if len(line.y) > 1 and _spread(np.append(line.y, second.y)) > ROOM * spread:
        words = f"{other} ({second.y[-1]:.3g} at the end, outside of the picture)"
        second = second._replace(label=words, x=[], y=[], error=None)
    out = [second, line._replace(label=own, color=place)]
    scale = across(grid.ds, along)[0]
    for bound in bounds:
        if bound.metric == name and bound.values is not None:
            x = grid.ds[along].squeeze().sel(round=bound.rounds).values / scale
            look = {"style": 2} if len(x) > 1 else {"style": "none", "marker": "_"}
            out.append(Line(bound.label, x, bound.values, color=GREY, **look))
    return out


def _spread(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(np.ptp(known)) if known.size else 0.0


def _title(runs: dict[str, xarray.Dataset]) -> str:
    """The common setting of all results, and the noise of a single one."""
    first, *others = (Grid.of(ds).setting() for ds in runs.values())
    if others:
        return ", ".join(words for words in first if all(words in other for other in others))
    about = Grid.of(*runs.values()).about
    noise = []
    if about["privacy"] and math.isfinite(eps := float(about["privacy"]["proven"])):
        noise.append(f"ε = {eps:.3g}")
    if "sigma" in about["values"]:
        noise.append(f"noise σ = {float(about['values']['sigma']):.3g}")
    return f"{about['settings']['algorithm']}: {', '.join([*first, *noise])}"


def _notes(runs: dict[str, xarray.Dataset], shown: Sequence[str]) -> list[str]:
    """The privacy of each run, and how it ended unless as planned."""
    notes: dict[str, list[str]] = {}
    for label, ds in runs.items():
        about = results.config(ds)
        facts = [results.privacy(about).replace("eps =", "ε =").replace("delta =", "δ =")]
        facts += [about["ended"]] * (about["ended"] != "finished")
        facts += [CROSS] * (not all(np.isfinite(ds[name]).all() for name in shown))
        for note in facts:
            notes.setdefault(note, []).append(label)
    return [
        note + ("." if len(who) == len(runs) else f" ({', '.join(who)}).")
        for note, who in notes.items()
    ]
