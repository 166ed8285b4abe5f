"""The table of a sweep: one row per cell, with its final metrics and its costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxfl.privacy.claims import understates
from jaxfl.views.cells import Array, Grid, relabelled
from jaxfl.views.selection import AUTO, Criterion, criterion_of, publishing
from jaxfl.views.tables import Column, Mark, Table, Value, eps_words, estimates
from jaxfl.views.words import prefix

if TYPE_CHECKING:
    import pandas
    import xarray

__all__ = ["criterion_used", "shown_metrics", "table"]

SHOWN = ("loss", "accuracy", "test_accuracy")  # where a sweep has them
FLAG = "claim < proven"
RULE = (
    "the proven eps exceeds that of the paper's formula by more than 1 %, within its theorem or not"
)
WARNED = {
    "at_end": ("!", "the best value is at an end of its grid"),
    "idle": ("~", "the loss ends no lower than it began"),
}
UNITS = {"bit": "bit", "s": "s"}  # that heads of columns name
UNPROVEN = "none proven"
BROKEN = "bound broken"
ABOVE = "proven > asked"


def table(
    ds: xarray.Dataset,
    *,
    metrics: Sequence[str] | None = None,
    targets: xarray.Dataset | None = None,
    labels: dict[str, str] | None = None,
) -> Table:
    """A row for every cell of a sweep, or of its selection, at its last round.  A run has one row.

    Axes with one value are in the title; ``metrics`` default to loss and accuracies, and are means
    over seeds with standard errors.  The metric on validation data that a selection chose by is always
    there.  Then the uplink of all clients, ``claimed | proven``
    eps with a red flag where the proven one is larger, and seeds that diverged.  ``targets`` from
    :func:`to_target` adds what reaching the target took.  Marked is the best row for each problem
    and eps, by the criterion of :func:`~jaxfl.views.select`.  ``labels`` renames algorithms, axes, their
    values, and metrics.
    """
    grid = Grid.of(relabelled(ds, labels or {}))
    groups, more = grid.groups(), {} if targets is None else targets.data_vars
    grid = Grid.of(grid.ds.assign(more).transpose(*groups, ...))
    # rows of one group are beside each other; without the axis, after all others
    last = [grid.cells[name].isna().to_numpy() for name in reversed(groups)]
    order = np.lexsort(last) if groups else slice(None)
    grid = dataclasses.replace(grid, cells=grid.cells.iloc[order])
    rule, shown = criterion_used(grid), shown_metrics(grid, metrics)
    if rule.metric.startswith("validation_"):
        shown = list(dict.fromkeys([*shown, rule.metric]))
    columns = [
        *_axes(grid),
        *_metrics(grid, shown, rule),
        *_privacy(grid),
        *([] if targets is None else _targets(grid, targets)),
        *_fates(grid),
    ]
    return Table(grid.heading(), tuple(columns), tuple(_notes(grid)), _marks(grid, rule))


def criterion_used(grid: Grid) -> Criterion:
    """What a selection chose by, or would by default."""
    chosen = grid.about.get("selection")
    return Criterion(*chosen["criterion"]) if chosen else criterion_of(grid, AUTO)


def shown_metrics(grid: Grid, names: Sequence[str] | None) -> list[str]:
    """These metrics, each of them known, or by default those that most readers want."""
    grid.check(*(names or ()))
    default = [name for name in (*SHOWN, criterion_used(grid).metric) if name in grid.ds]
    return list(dict.fromkeys(names or default))


# --- columns -------------------------------------------------------------------------------------


def _axes(grid: Grid) -> list[Column]:
    """The axes, what was chosen, and what is no axis: the step size, and what compressors keep."""
    cells, several = grid.cells, ["algorithm", *grid.several()]
    heads = {name: grid.short(name) for name in grid.axes if name in several}
    chosen = [name.removeprefix("chosen_") for name in cells if name.startswith("chosen_")]
    heads |= {f"chosen_{name}": f"best {grid.short(name)}" for name in chosen}
    if "used_omega" in cells:  # 0 is that of no compressor
        cells = cells.assign(used_omega=cells["used_omega"].where(cells["used_omega"] > 0))
    swept = {*grid.axes, *chosen}
    for name in ("lr", *(() if swept & {"k", "omega"} else ("k", "omega"))):
        if name not in swept and f"used_{name}" in cells and cells[f"used_{name}"].notna().any():
            of = f" of {grid.about['facts'].get('d', 'd')}" * (name == "k")
            heads[f"used_{name}"] = grid.short(name) + of
    return [Column(name, head, _known(cells[name])) for name, head in heads.items()]


def _known(values: pandas.Series) -> list[Value]:
    return [None if v != v or v == "" else v for v in values.tolist()]


def _metrics(grid: Grid, shown: Sequence[str], rule: Criterion) -> list[Column]:
    """The metrics, and the uplink of all clients."""
    heads = {name: grid.short(name) for name in shown}
    if "selection" in grid.about and rule.metric.startswith("validation_"):
        heads[rule.metric] += " (chosen by)"
    totals = estimates(grid.ends("uplink_bits"))
    means = [value.mean for value in totals]
    scale, unit = prefix(means, "bit")
    differ = any(value.error > 0 for value in totals)
    bits = Column("uplink_bits", f"uplink ({unit})", totals if differ else means, scale)
    return [*(Column(name, head, estimates(grid.ends(name))) for name, head in heads.items()), bits]


def _privacy(grid: Grid) -> list[Column]:
    cells = grid.cells
    if not cells["noisy"].any():
        return []
    kept = list(map(eps_words, cells["noisy"], cells["proven_eps"], cells["stated"]))
    out = [
        Column("claimed_eps", "claimed ε", _known(cells["claimed_eps"].where(cells["noisy"]))),
        Column("proven_eps", "proven ε", kept),
    ]
    if cells["flag"].any():
        alarms = [(name, held) for name, (held, _) in _alarms(cells).items()]
        red = [", ".join(name for name, held in alarms if held[i]) for i in range(len(cells))]
        out.append(Column("flag", "flag", red, alarm=True))
    if cells["delta_of_eps"].nunique() > 1 and "delta" not in grid.axes:
        out.append(Column("delta", "δ", cells["delta_of_eps"].tolist()))
    return out


def _alarms(cells: pandas.DataFrame) -> dict[str, tuple[Array, str]]:
    """What a flag may say: where it holds, and the note that explains it."""
    proven, broken = cells["proven_eps"].to_numpy(), cells["broken"].notna().to_numpy()
    less = np.asarray(understates(cells["claimed_eps"].to_numpy(), proven))
    none = np.isinf(proven)
    above = cells["flag"].to_numpy() & ~less & ~broken
    longest = (
        f"an example's gradient has norm {cells['broken'].max():.4g} at x0, above "
        "gradient_bound; the proven eps holds because such gradients are clipped to it"
    )
    return {
        FLAG: (less & ~none, RULE),
        UNPROVEN: (less & none, "the paper's formula claims an eps, and none is proven"),
        ABOVE: (above, "the proven eps exceeds the one that was asked for"),
        BROKEN: (broken, longest),
    }


def _targets(grid: Grid, targets: xarray.Dataset) -> list[Column]:
    out = []
    for name, values in targets.items():
        head, unit = values.attrs["long_name"], UNITS.get(values.attrs["units"], "")
        here = grid.cells[name]
        whole = name in ("rounds_to_target", "seconds_to_target")  # no kiloseconds
        scale, unit = (1.0, unit) if whole else prefix(here, unit)
        out.append(Column(str(name), head + f" ({unit})" * bool(unit), _known(here), scale))
    return out


def _fates(grid: Grid) -> list[Column]:
    """Seeds that diverged and cells that have not run; no column where there are none."""

    def fate(lost: int, ran: float, found: int, tried: int) -> str:
        if not found and tried:
            return f"all {tried} settings diverged" if tried > 1 else "diverged"
        if not (found and ran > 0):
            return "not run yet"
        if ran < seeds:
            return "unfinished"
        some = f"{lost} of {seeds} seeds diverged" if seeds > 1 else "diverged"
        return some * (lost > 0)

    seeds, cells = grid.ds.sizes["seed"], grid.cells
    found = cells.get("found", cells["lost"] >= 0)
    words = list(map(fate, cells["lost"], cells["ran"], found, cells.get("candidates", found)))
    return [Column("state", "state", words, alarm=True)] if any(words) else []


# --- marks and notes -----------------------------------------------------------------------------


def _marks(grid: Grid, rule: Criterion) -> tuple[Mark, ...]:
    """The first best row of each group that has a choice, and the rows of each warning."""
    cells, groups = grid.cells.reset_index(drop=True), grid.groups()
    means = [value.mean * rule.sign for value in estimates(grid.ends(rule.metric))]
    judged = cells.assign(judged=means).dropna(subset="judged")
    apart = judged.groupby(groups or (lambda i: 0), dropna=False, sort=False)["judged"]
    best = frozenset(rows.idxmin() for _, rows in apart if len(rows) > 1)
    same = " and ".join(grid.short(name) for name in groups if cells[name].nunique(False) > 1)
    rivals = f"the rows with the same {same}" if same else "all rows"
    marks = [Mark("best", "*", best, f"{rule.words} of {rivals}.")]
    for name, (sign, note) in WARNED.items():
        warned = cells.index[cells[name] > 0] if name in cells else ()
        marks.append(Mark(name, sign, frozenset(warned), f"{note}."))
    return tuple(mark for mark in marks if mark.rows)


def _notes(grid: Grid) -> list[str]:
    cells, chosen = grid.cells, grid.about.get("selection", {})
    notes = [chosen[name] for name in ("warning", "note") if chosen.get(name)]
    if grid.ds.sizes["seed"] > 1:
        notes.append("± standard error over seeds.")
    if not cells["noisy"].any():
        return [*notes, "Not private: no noise."]
    alone, several = publishing(grid)
    if delta := grid.delta():
        notes.append(f"ε at δ = {delta}{f', {alone}' if alone else ''}.")
    if several not in " ".join(notes):
        notes.append(several)
    notes += grid.proofs()
    if cells["flag"].any():
        notes += [f"{name}: {why}." for name, (held, why) in _alarms(cells).items() if held.any()]
    return notes
