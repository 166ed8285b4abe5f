"""Values against rounds, bits and gradients: the lines of a sweep, and the figure of single runs.

A run is a sweep with one cell and one seed, and drawn as such.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxfl.algorithms.bounds import Bound
from jaxfl.core.errors import require
from jaxfl.engine import results
from jaxfl.views.cells import as_sweep, check_metric, over_seeds, per_client, setting, stated
from jaxfl.views.ink import CAP, FLAT, GREY, SUFFIXES, Line, Panel, picture, write
from jaxfl.views.words import name_of, prefix

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


__all__ = ["ALONG", "across", "curves", "lines", "scaled"]

# what is drawn against: on the axis, and in the notes
ALONG = {
    "round": ("round", "communication rounds"),
    "uplink_bits": ("uplink", "the bits that all clients sent so far"),
    "gradients": ("gradients", "gradients of single examples"),
}
THOUSANDS = {"k": "thousands", "M": "millions", "G": "billions"}
CROSS = f"A cross: from the next evaluation on infinite, or {CAP:g} times what it began with"
OF_CLIENTS = "Line: median over clients; band: from the first to the ninth decile."
STEPS = "{} ε: of all that was released up to the next evaluated round."
ROOM = 4.0  # times the span of a curve: the most that a second one may take
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


def lines(
    flat: xarray.Dataset,
    metric: str,
    along: str,
    scale: float,
    looks: Iterable[Mapping[str, Any]],
) -> list[Line]:
    """The means over seeds of each cell, with bands, up to its last round or to where it diverged.

    Of a metric of each client, the median, with a band from the first decile to the ninth.
    """
    seen = flat["uplink_bits"].notnull() | (flat["round"] == flat["diverged_at"])
    values = flat[metric].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        mean, error = (_clients if per_client(flat, metric) else over_seeds)(values)
    x = flat["round"] if along == "round" else flat[along].mean("seed")
    x = (x / scale).broadcast_like(mean)
    drawn = zip(looks, seen.all("seed").values, strict=True)
    return [
        Line(x=x.values[i, live], y=mean.values[i, live], error=error.values[..., i, live], **look)
        for i, (look, live) in enumerate(drawn)
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

    ``data`` is one result, or several as pairs (label, result); ``path`` ends in .png, .pdf or
    .svg, and may be several paths, or none.  ``metrics`` replaces both metrics.  A single
    result also shows its worst client and its running mean of the squared gradient norm, and its
    ``bounds``, from :func:`jaxfl.views.bounds.bounds`.  A run that diverged ends in a cross.  Returns
    the figure.
    """
    import xarray

    paths = [Path(p) for p in ([path] if isinstance(path, str | Path) else path)]
    for p in paths:
        drawable = p.suffix.lower() in SUFFIXES
        require(
            drawable, lambda: f"The name of the picture {str(p)!r} must end in .png, .pdf or .svg"
        )
    pairs = [("", data)] if isinstance(data, xarray.Dataset) else list(data)
    require(pairs, "There are 0 results to draw", "give at least one")
    labels = [label for label, _ in pairs]
    for label in labels:
        alike = f"Two results are called {label!r}"
        require(labels.count(label) == 1, alike, "give each a label of its own")
    runs = dict(pairs)
    each = [as_sweep(ds, label) for label, ds in pairs]
    shown = list(ROWS) if metrics is None else list(dict.fromkeys(metrics))
    for ds, name in itertools.product(each, shown):
        if not per_client(ds, name):
            check_metric(ds, name)
    notes = [*_notes(runs, shown), *(bound.note for bound in bounds)]
    notes += [OF_CLIENTS] * any(per_client(ds, name) for ds in each for name in shown)
    flat = xarray.concat(each, "algorithm", join="outer").rename(algorithm="cell")
    if metrics is None and "eps_spent" in flat:
        shown.append("eps_spent")
        notes.append(STEPS.format("Stated" if stated(flat).any() else "Proven"))
    planned = max(float(results.config(ds)["values"]["rounds"]) for ds in runs.values())
    ends = {
        "round": max(planned, float(flat["round"][-1])),
        "uplink_bits": float(flat["uplink_bits"].max()),
    }
    words = {name: name_of(name) for name in shown}
    if stated(flat).any():  # of some runs it is the word of a user
        words["eps_spent"] = "stated ε"
    rows = []
    for name in shown:
        row = []
        for along, end in ends.items():
            scale, axis = across(flat, along)
            drawn = _drawn(flat, name, along, scale, bounds)
            log = False if along == "round" else None
            row.append(Panel("", axis, words[name], drawn, log, scaled(name), end / scale))
        rows.append(row)
    heights = [0.5 if name == "eps_spent" else 1.0 for name in shown]
    figure = picture(_title(runs) if title is None else title, rows, notes, heights=heights)
    if "eps_spent" in shown:
        figure.axes[-1].set_ylim(bottom=0)
    for p in paths:
        write(figure, p)
    return figure


# --- pieces --------------------------------------------------------------------------------------


def _drawn(
    flat: xarray.Dataset, name: str, along: str, scale: float, bounds: Sequence[Bound]
) -> list[Line]:
    """A line for each run; of a single one also the second metric behind it, and its bounds."""
    steps = "steps-pre" if name == "eps_spent" else "default"  # between two values the later holds
    labels = flat["cell"].values.tolist()
    looks = [{"label": label, "color": i, "steps": steps} for i, label in enumerate(labels)]
    if len(labels) > 1 or name not in ROWS:
        return lines(flat, name, along, scale, looks)
    behind, own, other = ROWS[name]
    place = 2 * list(ROWS).index(name)  # in one legend no two lines have one colour
    second = {"label": other, "color": place + 1, "style": 1, "width": 1.0}
    out = [] if _hidden(flat, name) else lines(flat, behind, along, scale, [second])
    out += lines(flat, name, along, scale, [{"label": own, "color": place}])
    for bound in bounds:
        if bound.metric == name and bound.values is not None:
            x = flat[along].squeeze().sel(round=bound.rounds).values / scale
            look = {"style": 2} if len(x) > 1 else {"style": "none", "marker": "_"}
            out.append(Line(bound.label, x, bound.values, color=GREY, **look))
    return out


def _hidden(ds: xarray.Dataset, name: str) -> bool:
    """Whether the second metric lies so far off that the first would look flat."""
    first, second = (ds[each].values for each in (name, ROWS[name][0]))
    first, second = (values[np.isfinite(values)] for values in (first, second))
    if first.size < 2:
        return False
    least = FLAT * np.abs(first).max()  # digits that rounding made are no spread
    return bool(np.ptp(np.append(second, first)) > ROOM * max(np.ptp(first), least))


def _title(runs: Mapping[str, xarray.Dataset]) -> str:
    """The common setting of all results, and the noise of a single one."""
    first, *others = (setting(as_sweep(ds)) for ds in runs.values())
    if others:
        return ", ".join(words for words in first if all(words in other for other in others))
    (ds,) = runs.values()
    about, noise = results.config(ds), []
    if about["privacy"] and math.isfinite(eps := float(about["privacy"]["proven"])):
        noise.append(f"ε = {eps:.3g}")
    if "sigma" in about["values"]:
        noise.append(f"noise σ = {float(about['values']['sigma']):.3g}")
    return f"{about['settings']['algorithm']}: {', '.join([*first, *noise])}"


def _notes(runs: Mapping[str, xarray.Dataset], shown: Sequence[str]) -> list[str]:
    """The privacy of each run, and how it ended unless as planned."""
    notes: dict[str, list[str]] = {}
    for label, ds in runs.items():
        about = results.config(ds)
        facts = [results.privacy(about).replace("eps =", "ε =").replace("delta =", "δ =")]
        if about["ended"] != "finished":
            facts.append(about["ended"])
        if not all(np.isfinite(ds[name]).all() for name in shown):
            facts.append(CROSS)
        if len(runs) == 1 and "loss" in shown and _hidden(ds, "loss"):
            last = float(ds["worst_client_loss"].values[-1])
            facts.append(
                f"The worst client's loss, {last:.3g} at the end, is outside of the picture"
            )
        for note in facts:
            notes.setdefault(note, []).append(label)
    return [
        note + ("." if len(who) == len(runs) else f" ({', '.join(who)}).")
        for note, who in notes.items()
    ]
