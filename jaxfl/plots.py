"""Figures of results, drawn without any global state: no pyplot, no backend chosen."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl import results
from jaxfl.errors import InputError
from jaxfl.files import replace

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from jaxfl.bounds import Bound

__all__ = ["PALETTE", "SUFFIXES", "curves", "write"]

Array: TypeAlias = npt.NDArray[Any]

# Okabe and Ito: told apart by readers of every colour vision; yellow is too light for lines.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("solid", (0, (6, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.2, 1.5, 1.2)))
GREY = "#555555"
SUFFIXES = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
DECADE = 10.0  # an axis whose values span more is logarithmic
CAP = 1e3  # times the largest first value: where a curve on its way to infinity ends
CROSS = f"a cross: from the next evaluation on infinite, or {CAP:g} times what it began with"
ALIKE = 0.02  # relative: two eps that one cannot tell apart in a picture
FLAT = 1e-5  # relative: values that do not differ but by rounding
ROOM = 4.0  # times the span of a curve: what a second one may take

# a row of panels: the metric, what is drawn behind it for a single result, and the words for each
ROWS = (
    ("loss", "worst_client_loss", "training loss", "mean over clients", "worst client"),
    ("grad_norm_sq", "utility", "squared gradient norm", "at this round", "running average"),
)


class Curve(NamedTuple):
    """One result, ready to be drawn."""

    label: str
    ds: xarray.Dataset
    about: dict[str, Any]
    color: str
    style: Any


def curves(
    data: xarray.Dataset | Sequence[tuple[str, xarray.Dataset]],
    path: str | Path | Sequence[str | Path] = (),
    *,
    title: str | None = None,
    bounds: Sequence[Bound] = (),
) -> Figure:
    """Loss and squared gradient norm against rounds and against uplink bits, in four panels; below
    them, for private runs, the eps that is proven for what was released so far.

    ``data`` is one result, or several as pairs (label, result); ``path`` ends in .png, .pdf or
    .svg, and may be several paths, or none.  A single result also shows its worst client and its running
    average of the squared gradient norm, and its ``bounds`` [:func:`jaxfl.bounds.bounds`].  A run that
    diverged ends in a cross.  Returns the figure.
    """
    from matplotlib.figure import Figure

    from jaxfl.views.words import prefix

    paths = [Path(p) for p in ([path] if isinstance(path, str | Path) else path)]
    for p in paths:
        if p.suffix.lower() not in SUFFIXES:
            raise InputError(f"The picture {str(p)!r} has to end in .png, .pdf or .svg.")
    drawn = _ready(data)
    alone = len(drawn) == 1
    notes = [
        line
        for note in [*_notes(drawn), *(b.note for b in bounds)]
        for line in textwrap.wrap(note, 125)
    ]
    columns = max(1, min(len(drawn), 100 // (max(len(c.label) for c in drawn) + 8)))
    legend = 0.3 if alone else 0.1 + 0.24 * -(-len(drawn) // columns)  # inches, like the others
    above, below = 0.45 + legend, 0.62 + 0.17 * len(notes)
    private = any("eps_spent" in curve.ds for curve in drawn)
    tall = (1.0, 1.0, 0.42) if private else (1.0, 1.0)
    width, height = 9.2, 2.8 * sum(tall) + above + below
    figure = Figure(figsize=(width, height))
    axes = figure.subplots(len(tall), 2, sharey="row", sharex="col", height_ratios=tall)
    figure.subplots_adjust(
        0.9 / width,
        below / height,
        1 - 0.2 / width,
        1 - above / height,
        0.06,
        0.16 if alone else 0.1,
    )

    planned = max(float(curve.about["values"]["rounds"]) for curve in drawn)
    ends = [float(curve.ds["uplink_bits"].values[-1]) for curve in drawn]
    scale, unit = prefix(np.array(ends), "bit")
    for row, (name, behind, words, own, other) in zip(axes[:2], ROWS, strict=True):
        top = _top(drawn, name)
        for ax, along, by in zip(row, ("round", "uplink_bits"), (1.0, scale), strict=True):
            if alone:
                second = drawn[0]._replace(color=PALETTE[1], style=STYLES[1], label=other)
                if not _hidden(drawn[0].ds, name, behind):
                    _line(ax, second, behind, along, by, top, width=1.2)
                _line(ax, drawn[0]._replace(label=own), name, along, by, top)
                for bound in bounds:
                    if bound.metric == name and bound.values is not None:
                        x = drawn[0].ds[along].sel(round=bound.rounds).values / by
                        style: dict[str, Any] = {"linestyle": STYLES[2]}
                        if len(x) == 1:  # a single value is no line
                            style = {"linestyle": "none", "marker": "_", "markersize": 14}
                        ax.plot(x, bound.values, color=GREY, label=bound.label, **style)
            else:
                for curve in drawn:
                    _line(ax, curve, name, along, by, top)
            _tidy(ax)
            if any(_ends_early(curve, name, top) for curve in drawn):
                end = planned if along == "round" else max(ends) / scale
                ax.set_xlim(-0.04 * end or -1.0, 1.04 * end or 1.0)  # not where it was finite last
        row[0].set_ylabel(words)
        if alone:
            _legend(row[0], 2 + bool(bounds), reverse=True)
    if private:
        _spent(axes[2], drawn, scale)
    if not alone:
        _legend(axes[0, 0], columns)
    if max(ends) > DECADE * min(ends) > 0:
        axes[-1, 1].set_xscale("log", nonpositive="mask")
        axes[-1, 1].autoscale(axis="x")
    axes[-1, 0].xaxis.get_major_locator().set_params(integer=True)
    axes[-1, 0].set_xlabel("communication round")
    axes[-1, 1].set_xlabel(f"bits sent by all clients so far ({unit})")
    heading = _title(drawn) if title is None else title
    figure.text(0.5, 1 - 0.12 / height, heading, fontsize=12, ha="center", va="top")
    foot = (below - 0.56) / height
    figure.text(0.15 / width, foot, "\n".join(notes), fontsize=8.5, color=GREY, va="top")
    for p in paths:
        write(figure, p)
    return figure


# --- data ----------------------------------------------------------------------------------------


def _ready(data: xarray.Dataset | Sequence[tuple[str, xarray.Dataset]]) -> list[Curve]:
    import xarray

    pairs = [("", data)] if isinstance(data, xarray.Dataset) else list(data)
    if not pairs:
        raise InputError("There are 0 results to draw: give at least one.")
    labels = [label for label, _ in pairs]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"Two results are called {label!r}: give each a label of its own.")
    return [
        Curve(
            label,
            ds,
            results.config(ds),
            PALETTE[i % len(PALETTE)],
            STYLES[i // len(PALETTE) % len(STYLES)],
        )
        for i, (label, ds) in enumerate(pairs)
    ]


def _live(values: Array, top: float) -> int:
    """How many values of a curve are drawn: all, or those before it leaves for infinity."""
    if np.isfinite(values).all():
        return len(values)
    return int(np.argmin(np.abs(values) <= top))


def _top(drawn: Sequence[Curve], name: str) -> float:
    """Beyond this a curve is on its way to infinity."""
    return CAP * max(abs(float(curve.ds[name].values[0])) for curve in drawn)


def _ends_early(curve: Curve, name: str, top: float) -> bool:
    """Whether a cross ends it."""
    values = curve.ds[name].values
    return _live(values, top) < len(values)


# --- panels --------------------------------------------------------------------------------------


def _hidden(ds: xarray.Dataset, name: str, behind: str) -> bool:
    """Whether a second curve lies so far off that the first would be flat beside it."""
    first, second = (values[np.isfinite(values)] for values in (ds[name].values, ds[behind].values))
    if first.size < 2:
        return False
    least = FLAT * np.abs(first).max()  # digits that rounding made are no spread
    return bool(np.ptp(np.append(second, first)) > ROOM * max(np.ptp(first), least))


def _line(
    ax: Axes, curve: Curve, name: str, along: str, by: float, top: float, width: float = 1.7
) -> None:
    x, y = curve.ds[along].values / by, curve.ds[name].values
    live = _live(y, top)
    style: dict[str, Any] = {"color": curve.color, "linestyle": curve.style}
    ax.plot(x[:live], y[:live], linewidth=width, label=curve.label, **style)
    if 0 < live < len(y):
        ax.plot(x[live - 1], y[live - 1], "X", color=curve.color, markersize=9, clip_on=False)
    elif live == 1:
        ax.plot(x, y, "o", color=curve.color, markersize=4)


def _spent(row: Sequence[Axes], drawn: list[Curve], scale: float) -> None:
    """eps so far, in steps: between two of its values the later one is what is proven.

    Runs that are calibrated for the same eps coincide: the earlier ones are wider, and show below
    the later ones.
    """
    private = [curve for curve in drawn if "eps_spent" in curve.ds]
    last = np.array([float(curve.ds["eps_spent"].values[-1]) for curve in private])
    for ax, along, by in zip(row, ("round", "uplink_bits"), (1.0, scale), strict=True):
        for i, curve in enumerate(private):
            x, y = curve.ds[along].values / by, curve.ds["eps_spent"].values
            alike = int(np.sum(np.isclose(last[i + 1 :], last[i], rtol=ALIKE)))
            style: dict[str, Any] = {"color": curve.color, "linestyle": curve.style}
            ax.step(x, y, where="pre", linewidth=1.7 + 1.5 * min(alike, 3), **style)
        ax.set_ylim(bottom=0)
        grid_behind(ax)
    row[0].set_ylabel("proven ε so far")


def _legend(ax: Axes, columns: int, **options: Any) -> None:
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.2,
        frameon=False,
        ncols=columns,
        **options,
    )


def _tidy(ax: Axes) -> None:
    from matplotlib.ticker import (
        LogFormatterSciNotation,
        LogLocator,
        NullFormatter,
        ScalarFormatter,
    )

    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in ax.get_lines()])
    formatter = ax.yaxis.get_major_formatter()
    if isinstance(formatter, ScalarFormatter):
        formatter.set_useOffset(False)  # it would be written over the legend
    if values.size and np.ptp(values) <= FLAT * np.abs(values).max():
        middle = float(values.mean())  # digits that rounding made are no axis
        ax.set_ylim(middle - (room := 0.05 * abs(middle) or 1.0), middle + room)
    if values.size and values.min() > 0 and values.max() > DECADE * values.min():
        ax.set_yscale("log")
        few = values.max() < DECADE**3 * values.min()
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
        ax.yaxis.set_major_formatter("{x:g}" if few else LogFormatterSciNotation())
        ax.yaxis.set_minor_formatter(NullFormatter())
    grid_behind(ax)


def grid_behind(ax: Axes) -> None:
    """A grid that stays behind, and no frame above and to the right."""
    ax.grid(True, which="major", color="#DDDDDD", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


# --- words ---------------------------------------------------------------------------------------


def _title(drawn: list[Curve]) -> str:
    """What all results have in common, and what a single one used."""
    settings, facts = drawn[0].about["settings"], drawn[0].about["facts"]
    same = [c for c in drawn if c.about["settings"]["data"] == settings["data"]]
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


def _notes(drawn: list[Curve]) -> list[str]:
    """How each run ended, where not as planned, and what its privacy is worth."""
    notes: dict[str, list[str]] = {}
    for curve in drawn:
        privacy = results.privacy(curve.about)
        said = [privacy.replace("eps =", "ε =").replace("delta =", "δ =")]
        if curve.about["ended"] != "finished":
            said.append(curve.about["ended"])
        if any(_ends_early(curve, name, _top(drawn, name)) for name, *_ in ROWS):
            said.append(CROSS)
        if len(drawn) == 1 and _hidden(curve.ds, *ROWS[0][:2]):
            last = float(curve.ds["worst_client_loss"].values[-1])
            said.append(
                f"the worst client's loss, {last:.3g} at the end, is outside of the picture"
            )
        for note in said:
            notes.setdefault(note, []).append(curve.label)
    everyone = len(drawn)
    return [
        note if len(who) == everyone else f"{note} ({', '.join(who)})"
        for note, who in notes.items()
    ]


def write(figure: Figure, path: Path) -> None:
    """The same figure gives the same bytes: no date, no random names."""
    import matplotlib

    kind = path.suffix.lower()
    options: dict[str, Any] = {
        "format": kind[1:],
        "dpi": 160,
        "metadata": SUFFIXES[kind],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "jaxfl", "pdf.fonttype": 42}):
        replace(path, lambda file: figure.savefig(file, **options))
