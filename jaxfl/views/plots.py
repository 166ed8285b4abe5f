"""Figures of single runs, drawn without any global state: no pyplot, no backend chosen."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxfl.algorithms.bounds import Bound
from jaxfl.core.errors import require
from jaxfl.core.params import closest
from jaxfl.engine import results
from jaxfl.views.ink import CAP, FLAT, GREY, PALETTE, SUFFIXES, Line, Panel, picture, write
from jaxfl.views.words import name_of, prefix

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


__all__ = ["curves"]

CROSS = f"A cross: from the next evaluation on infinite, or {CAP:g} times what it began with"
ROOM = 4.0  # times the span of a curve: the most that a second one may take
# what is drawn by default; behind it, for a single result, a second metric; and the words for each
ROWS = {
    "loss": ("worst_client_loss", "mean over clients", "worst client"),
    "grad_norm_sq": ("utility", "at this round", "running average"),
}


class Result(NamedTuple):
    """One result, ready to be drawn."""

    label: str
    ds: xarray.Dataset
    about: dict[str, Any]
    color: int
    style: int

    def line(self, name: str, along: str, by: float, **look: Any) -> Line:
        x, y = self.ds[along].values / by, self.ds[name].values
        return Line(self.label, x, y, None, self.color, self.style)._replace(**look)


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
    result also shows its worst client and its running average of the squared gradient norm, and its
    ``bounds``, from :func:`jaxfl.views.bounds.bounds`.  A run that diverged ends in a cross.  Returns
    the figure.
    """
    paths = [Path(p) for p in ([path] if isinstance(path, str | Path) else path)]
    for p in paths:
        drawable = p.suffix.lower() in SUFFIXES
        require(drawable, f"The name of the picture {str(p)!r} must end in .png, .pdf or .svg")
    drawn = _ready(data)
    shown = list(ROWS) if metrics is None else list(dict.fromkeys(metrics))
    each = [{str(n) for n, v in r.ds.items() if v.dims == ("round",)} for r in drawn]
    for name in shown:
        known = set.intersection(*each)
        require(name in known, closest("metric in these results named", name, known))
    alone = len(drawn) == 1
    planned = max(float(result.about["values"]["rounds"]) for result in drawn)
    bits = max(float(result.ds["uplink_bits"].values[-1]) for result in drawn)
    scale, unit = prefix([bits], "bit")
    alongs = (
        ("round", 1.0, "round", planned),
        ("uplink_bits", scale, f"uplink ({unit})", bits / scale),
    )
    rows = []
    for name in shown:
        row = []
        for along, by, across, end in alongs:
            lines = [result.line(name, along, by) for result in drawn]
            if alone:
                lines = _alone(drawn[0], name, along, by, bounds)
            # where one is cut, the axis ends as planned, not where the others do
            until = end if any(line.cut for line in lines) else math.nan
            own = alone and along == "round" and len(lines) > 1
            row.append(Panel("", across, name_of(name), lines, None, until=until, legend=own))
        rows.append(row)
    if (spent := [result for result in drawn if "eps_spent" in result.ds]) and metrics is None:
        steps = "steps-pre"  # between two values the later one is proven
        row = []
        for along, by, across, _ in alongs:
            lines = [result.line("eps_spent", along, by, steps=steps) for result in spent]
            row.append(Panel("", across, "proven ε", lines, None, zero=True))
        rows.append(row)
    figure = picture(
        _title(drawn) if title is None else title,
        rows,
        [*_notes(drawn, shown), *(bound.note for bound in bounds)],
        heights=[1.0] * len(shown) + [0.5] * (len(rows) - len(shown)),
    )
    for p in paths:
        write(figure, p)
    return figure


# --- data ----------------------------------------------------------------------------------------


def _ready(data: xarray.Dataset | Sequence[tuple[str, xarray.Dataset]]) -> list[Result]:
    import xarray

    pairs = [("", data)] if isinstance(data, xarray.Dataset) else list(data)
    require(pairs, "There are 0 results to draw", "give at least one")
    for label, count in Counter(label for label, _ in pairs).items():
        require(count < 2, f"Two results are called {label!r}", "give each a label of its own")
    many = len(PALETTE)
    return [
        Result(label, ds, results.config(ds), i % many, i // many)
        for i, (label, ds) in enumerate(pairs)
    ]


def _hidden(ds: xarray.Dataset, name: str, behind: str) -> bool:
    """Whether a second curve lies so far off that the first would look flat."""
    first, second = (values[np.isfinite(values)] for values in (ds[name].values, ds[behind].values))
    if first.size < 2:
        return False
    least = FLAT * np.abs(first).max()  # digits that rounding made are no spread
    return bool(np.ptp(np.append(second, first)) > ROOM * max(np.ptp(first), least))


# --- lines ---------------------------------------------------------------------------------------


def _alone(result: Result, name: str, along: str, by: float, bounds: Sequence[Bound]) -> list[Line]:
    """The lines of one result: the second metric, the metric, and its bounds."""
    lines = [result.line(name, along, by)]
    if name in ROWS:
        behind, own, other = ROWS[name]
        second = result.line(behind, along, by, label=other, color=1, style=1, width=1.0)
        lines = [] if _hidden(result.ds, name, behind) else [second]
        lines.append(result.line(name, along, by, label=own))
    for bound in bounds:
        if bound.metric == name and bound.values is not None:
            x = result.ds[along].sel(round=bound.rounds).values / by
            look = {"style": 2} if len(x) > 1 else {"style": "none", "marker": "_"}
            lines.append(Line(bound.label, x, bound.values, color=GREY, **look))
    return lines


# --- texts ---------------------------------------------------------------------------------------


def _title(drawn: list[Result]) -> str:
    """The common setting of all results, and the noise of a single one."""
    settings, facts = drawn[0].about["settings"], drawn[0].about["facts"]
    same = [r for r in drawn if r.about["settings"]["data"] == settings["data"]]
    where = f"{settings['model']} on {settings['problem']}, n = {facts['n']} clients"
    if len(drawn) > 1:
        return where if len(same) == len(drawn) else f"{len(drawn)} results on different data"
    values, privacy = drawn[0].about["values"], drawn[0].about["privacy"]
    numbers = []
    if privacy and math.isfinite(float(privacy["proven"])):
        numbers.append(f"ε = {float(privacy['proven']):.3g}")
    if "sigma" in values:
        numbers.append(f"noise σ = {float(values['sigma']):.3g}")
    return ", ".join([f"{settings['algorithm']}: {where}", *numbers])


def _notes(drawn: list[Result], shown: Sequence[str]) -> list[str]:
    """The privacy of each run, and how it ended unless as planned."""
    notes: dict[str, list[str]] = {}
    for result in drawn:
        ds, about = result.ds, result.about
        facts = [results.privacy(about).replace("eps =", "ε =").replace("delta =", "δ =")]
        if about["ended"] != "finished":
            facts.append(about["ended"])
        if not all(np.isfinite(ds[name]).all() for name in shown):
            facts.append(CROSS)
        if len(drawn) == 1 and "loss" in shown and _hidden(ds, "loss", ROWS["loss"][0]):
            last = float(ds["worst_client_loss"].values[-1])
            facts.append(
                f"The worst client's loss, {last:.3g} at the end, is outside of the picture"
            )
        for note in facts:
            notes.setdefault(note, []).append(result.label)
    everyone = len(drawn)
    return [
        note + ("." if len(who) == everyone else f" ({', '.join(who)}).")
        for note, who in notes.items()
    ]
