"""The table of a sweep: one row per cell, with its final metrics and its costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxfl.engine import results
from jaxfl.privacy.claims import understates
from jaxfl.views.cells import (
    Array,
    applying,
    axes,
    check_metric,
    claimed,
    deltas,
    ends,
    groups,
    heading,
    metrics,
    one_delta,
    over_seeds,
    proofs,
    stated,
)
from jaxfl.views.selection import AUTO, Criterion, criterion_of, publishing
from jaxfl.views.tables import Column, Mark, Table, Value, eps_words, estimates
from jaxfl.views.words import prefix, short

if TYPE_CHECKING:
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
) -> Table:
    """A row for every cell of a sweep, or of its selection, at its last round.

    Axes with one value are in the title; ``metrics`` default to loss and accuracies, and are means
    over seeds with standard errors.  The metric on validation data that a selection chose by is always
    there.  Then the uplink of all clients, ``claimed | proven``
    eps with a red flag where the proven one is larger, and seeds that diverged.  ``targets`` from
    :func:`to_target` adds what reaching the target took.  Marked is the best row for each problem
    and eps, by the criterion of :func:`~jaxfl.views.select`.
    """
    first = groups(ds)
    ds = ds.transpose(*first, ...)
    rule, shown = criterion_used(ds), shown_metrics(ds, metrics)
    if rule.metric.startswith("validation_"):
        shown = list(dict.fromkeys([*shown, rule.metric]))
    joined = ds if targets is None else ds.assign(targets.data_vars)
    flat = ends(joined, *{*shown, rule.metric, "uplink_bits"})
    # rows of one group are beside each other; without the axis, after all others
    without = [flat[name].isnull().values for name in groups(ds)]
    flat = flat.isel(cell=np.lexsort(without[::-1]) if without else slice(None))
    columns = [
        *_axes(ds, flat),
        *_choices(ds, flat),
        *_metrics(flat, shown, rule, "selection" in results.config(ds)),
        *_privacy(ds, flat),
        *([] if targets is None else _targets(flat[list(targets)])),
        *_fates(flat),
    ]
    return Table(heading(ds), tuple(columns), tuple(_notes(ds, flat)), _marks(ds, flat, rule))


def criterion_used(ds: xarray.Dataset) -> Criterion:
    """What a selection chose by, or would by default."""
    chosen = results.config(ds).get("selection")
    return Criterion(*chosen["criterion"]) if chosen else criterion_of(ds, AUTO)


def shown_metrics(ds: xarray.Dataset, names: Sequence[str] | None) -> list[str]:
    """These metrics, each of them known, or by default those that most readers want."""
    for name in names or ():
        check_metric(ds, name)
    chosen = criterion_used(ds).metric
    return list(dict.fromkeys(names or [n for n in (*SHOWN, chosen) if n in metrics(ds)]))


# --- columns -------------------------------------------------------------------------------------


def _axes(ds: xarray.Dataset, flat: xarray.Dataset) -> list[Column]:
    return [
        Column(name, short(name), flat[name].values.tolist())
        for name in axes(ds)
        if (ds.sizes[name] > 1 and applying(ds, name).any()) or name == "algorithm"
    ]


def _choices(ds: xarray.Dataset, flat: xarray.Dataset) -> list[Column]:
    """What was chosen, and what is no axis: the step size, and what compressors keep."""
    chosen = [str(name).removeprefix("chosen_") for name in flat if str(name).startswith("chosen_")]
    heads = {f"chosen_{name}": f"best {short(name)}" for name in chosen}
    if "used_omega" in flat:  # 0 is that of no compressor
        flat = flat.assign(used_omega=flat["used_omega"].where(flat["used_omega"] > 0))
    swept = {*axes(ds), *chosen}
    for name in ("lr", *(() if swept & {"k", "omega"} else ("k", "omega"))):
        if name not in swept and f"used_{name}" in flat and flat[f"used_{name}"].notnull().any():
            of = f" of {results.config(ds)['facts'].get('d', 'd')}" * (name == "k")
            heads[f"used_{name}"] = short(name) + of
    return [Column(name, head, _known(flat[name])) for name, head in heads.items()]


def _known(values: xarray.DataArray) -> list[Value]:
    return [None if v != v or v == "" else v for v in values.values.tolist()]


def _metrics(
    flat: xarray.Dataset, shown: Sequence[str], rule: Criterion, chosen: bool
) -> list[Column]:
    """The metrics, and the uplink of all clients."""
    heads = {name: short(name) for name in shown}
    if chosen and rule.metric.startswith("validation_"):
        heads[rule.metric] += " (chosen by)"
    totals = estimates(flat["uplink_bits"])
    means = [value.mean for value in totals]
    scale, unit = prefix(means, "bit")
    differ = any(value.error > 0 for value in totals)
    bits = Column("uplink_bits", f"uplink ({unit})", totals if differ else means, scale)
    return [*(Column(name, head, estimates(flat[name])) for name, head in heads.items()), bits]


def _privacy(ds: xarray.Dataset, flat: xarray.Dataset) -> list[Column]:
    noisy = flat["noisy"].values.astype(bool)
    if not noisy.any():
        return []
    sides = noisy, flat["proven_eps"].values, stated(flat).values
    kept = [eps_words(*each) for each in zip(*sides, strict=True)]
    out = [
        Column("claimed_eps", "claimed ε", _known(claimed(flat).where(noisy))),
        Column("proven_eps", "proven ε", kept),
    ]
    if flat["flag"].any():
        alarms = [(name, held.tolist()) for name, (held, _) in _alarms(flat).items()]
        red = [", ".join(name for name, held in alarms if held[i]) for i in range(len(noisy))]
        out.append(Column("flag", "flag", red, alarm=True))
    if deltas(flat).to_series().nunique() > 1 and "delta" not in axes(ds):
        out.append(Column("delta", "δ", deltas(flat).values.tolist()))
    return out


def _alarms(flat: xarray.Dataset) -> dict[str, tuple[Array, str]]:
    """What a flag may say: where it holds, and the note that explains it."""
    less = understates(claimed(flat), flat["proven_eps"]).values
    none = np.isinf(flat["proven_eps"].values)
    above = flat["flag"].values.astype(bool) & ~less & flat["broken"].isnull().values
    unproven = "the paper's formula claims an eps, and none is proven"
    broken = (
        f"an example's gradient has norm {float(flat['broken'].max()):.4g} at x0, above "
        "gradient_bound; the proven eps holds because such gradients are clipped to it"
    )
    return {
        FLAG: (less & ~none, f"{FLAG}: {RULE}."),
        UNPROVEN: (less & none, f"{UNPROVEN}: {unproven}."),
        ABOVE: (above, f"{ABOVE}: the proven eps exceeds the one that was asked for."),
        BROKEN: (flat["broken"].notnull().values, f"{BROKEN}: {broken}."),
    }


def _targets(flat: xarray.Dataset) -> list[Column]:
    out = []
    for name, values in flat.items():
        head, unit = values.attrs["long_name"], UNITS.get(values.attrs["units"], "")
        whole = name in ("rounds_to_target", "seconds_to_target")  # no kiloseconds
        scale, unit = (1.0, unit) if whole else prefix(values.values, unit)
        out.append(Column(str(name), head + f" ({unit})" * bool(unit), _known(values), scale))
    return out


def _fates(flat: xarray.Dataset) -> list[Column]:
    """Seeds that diverged and cells that have not run; no column where there are none."""
    seeds, words = flat.sizes["seed"], []
    lost = flat["diverged_at"].notnull().sum("seed").values.tolist()
    ran = flat["complete"].sum("seed").fillna(0).values.tolist()
    found = flat["found"].values.tolist() if "found" in flat else [1] * len(lost)
    tried = flat["candidates"].values.tolist() if "found" in flat else lost
    for i in range(len(lost)):
        if not found[i] and tried[i]:
            words.append(f"all {tried[i]} settings diverged" if tried[i] > 1 else "diverged")
        elif not (found[i] and ran[i]):
            words.append("not run yet")
        elif ran[i] < seeds:
            words.append("unfinished")
        else:
            some = f"{lost[i]} of {seeds} seeds diverged" if seeds > 1 else "diverged"
            words.append(some * (lost[i] > 0))
    return [Column("state", "state", words, alarm=True)] if any(words) else []


# --- marks and notes -----------------------------------------------------------------------------


def _marks(ds: xarray.Dataset, flat: xarray.Dataset, rule: Criterion) -> tuple[Mark, ...]:
    """The first best row of each group that has a choice, and the rows of each warning."""
    judged = (over_seeds(flat[rule.metric])[0] * rule.sign).to_series().reset_index(drop=True)
    keys = [flat[name].to_series().reset_index(drop=True) for name in groups(ds)]
    apart = judged.dropna().groupby(keys or (lambda i: 0), dropna=False, sort=False)
    best = frozenset(rows.idxmin() for _, rows in apart if len(rows) > 1)
    same = " and ".join(short(name) for name in groups(ds) if len({*flat[name].values}) > 1)
    rivals = f"the rows with the same {same}" if same else "all rows"
    marks = [Mark("best", "*", best, f"{rule.words} of {rivals}")]
    for name, (sign, note) in WARNED.items():
        warned = np.flatnonzero(flat[name]).tolist() if name in flat else ()
        marks.append(Mark(name, sign, frozenset(warned), note))
    return tuple(mark._replace(note=f"{mark.note}.") for mark in marks if mark.rows)


def _notes(ds: xarray.Dataset, flat: xarray.Dataset) -> list[str]:
    chosen = results.config(ds).get("selection")
    notes = [chosen[name] for name in ("warning", "note") if chosen and chosen.get(name)]
    if ds.sizes["seed"] > 1:
        notes.append("± standard error over seeds.")
    if not flat["noisy"].any():
        return [*notes, "Not private: no noise."]
    alone, several = publishing(ds)
    if delta := one_delta(flat):
        notes.append(f"ε at δ = {delta}{f', {alone}' if alone else ''}.")
    if several not in " ".join(notes):
        notes.append(several)
    notes += proofs(ds)
    if flat["flag"].any():
        notes += [note for held, note in _alarms(flat).values() if held.any()]
    return notes
