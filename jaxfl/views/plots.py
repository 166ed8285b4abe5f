"""Values against rounds, bits and gradients: the lines of a grid, and the figure of single runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxfl.algorithms.bounds import Bound
from jaxfl.core.errors import require
from jaxfl.engine import results
from jaxfl.views.cells import Grid, over_seeds
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
        mean, error = (_clients if grid.per_client(metric) else over_seeds)(values)
    at = flat[along] if along == "round" else flat[along].mean("seed")
    x = (at / scale).broadcast_like(mean).to_numpy()
    y, band = mean.to_numpy(), error.to_numpy()
    seeds = enumerate(seen.all("seed").to_numpy())
    return [Line("", x[i, live], y[i, live], band[..., i, live]) for i, live in seeds]


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
    runs = {label: Grid.of(ds, label) for label, ds in pairs}
    for label, _ in pairs[len(runs) :]:
        require(False, f"Two results are called {label!r}", "give each a label of its own")
    each = [run.ds for run in runs.values()]
    grid = Grid.of(xarray.concat(each, "algorithm", join="outer", combine_attrs="override"))
    shown = list(ROWS) if metrics is None else list(dict.fromkeys(metrics))
    grid.check(*shown, clients=True)
    notes = [*_notes(runs, shown), *(bound.note for bound in bounds)]
    notes += [OF_CLIENTS] * any(map(grid.per_client, shown))
    said = "Stated" if grid.cells["stated"].any() else "Proven"  # of some runs by their user
    if metrics is None and "eps_spent" in grid.ds:
        shown.append("eps_spent")
        notes.append(STEPS.format(said))
    planned = (float(run.about["values"]["rounds"]) for run in runs.values())
    last = max(*planned, grid.ds["round"].values[-1])
    ends = {"round": last, "uplink_bits": float(grid.ds["uplink_bits"].max())}

    def panel(name: str, along: str) -> Panel:
        scale, axis = across(grid.ds, along)
        words = f"{said.lower()} ε" if name == "eps_spent" else grid.name(name)
        drawn, log = _drawn(grid, name, along, bounds), False if along == "round" else None
        return Panel("", axis, words, drawn, log, scaled(name), ends[along] / scale)

    rows = [[panel(name, along) for along in ends] for name in shown]
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
        names = labels if len(labels) > 1 else [""]
        each = enumerate(zip(first, names, strict=True))
        return [line._replace(label=name, color=i, steps=steps) for i, (line, name) in each]
    behind, own, other = ROWS[name]
    place = 2 * list(ROWS).index(name)  # in one legend no two lines have one colour
    (second,), (line,) = lines(grid, behind, along), first
    second = second._replace(label=other, color=place + 1, style=1, width=1.0)
    spread = max(_spread(line.y), FLAT * np.nanmax(np.abs(line.y)))  # rounding is no spread
    if np.isfinite(line.y).sum() > 1 and _spread(np.append(line.y, second.y)) > ROOM * spread:
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


def _spread(values: Any) -> float:
    known = values[np.isfinite(values)]
    return float(np.ptp(known)) if known.size else 0.0


def _title(runs: Mapping[str, Grid]) -> str:
    """The common setting of all results, and the noise of a single one."""
    first, *others = runs.values()
    said = [words for words in first.setting() if all(words in run.setting() for run in others)]
    if others:
        return ", ".join(said)
    (cell,) = first.cells.to_dict("records")
    if cell["noisy"] and math.isfinite(cell["proven_eps"]):
        said.append(f"ε = {cell['proven_eps']:.3g}")
    if "used_sigma" in cell:
        said.append(f"noise σ = {cell['used_sigma']:.3g}")
    return f"{first.about['settings']['algorithm']}: {', '.join(said)}"


def _notes(runs: Mapping[str, Grid], shown: Sequence[str]) -> list[str]:
    """The privacy of each run, and how it ended unless as planned."""
    notes: dict[str, list[str]] = {}
    for label, run in runs.items():
        about, finite = run.about, all(np.isfinite(run.ds[name]).all() for name in shown)
        facts = [results.privacy(about).replace("eps =", "ε =").replace("delta =", "δ =")]
        facts += [about["ended"]] * (about["ended"] != "finished") + [CROSS] * (not finite)
        for note in facts:
            notes.setdefault(note, []).append(label)
    each = {
        note: "" if len(who) == len(runs) else f" ({', '.join(who)})" for note, who in notes.items()
    }
    return [f"{note}{who}." for note, who in each.items()]
