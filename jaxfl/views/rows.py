"""The table of a sweep: one row per cell, with what it reached and what it cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxfl import results
from jaxfl.errors import InputError
from jaxfl.params import closest
from jaxfl.views.cells import (
    Array,
    Cell,
    applying,
    axes,
    cells,
    deltas,
    final,
    groups,
    metrics,
    over_seeds,
)
from jaxfl.views.selection import Criterion, criterion_of
from jaxfl.views.tables import Column, Estimate, Table, Value
from jaxfl.views.words import SYMBOLS, label, number, prefix

if TYPE_CHECKING:
    import xarray

__all__ = ["axis_columns", "criterion_used", "heading", "shown_metrics", "table"]

SHOWN = ("utility", "loss", "accuracy", "test_accuracy")  # where a sweep has them
FLAG = "claim < proven"
BROKEN = "bound broken"


def table(
    ds: xarray.Dataset,
    *,
    metrics: Sequence[str] | None = None,
    targets: xarray.Dataset | None = None,
) -> Table:
    """What every cell of a sweep, or of its selection, came to at its last round.

    Axes with one value are in the title; ``metrics`` default to utility, loss and accuracies, and
    are means over seeds with standard errors.  Then the uplink of all clients, ``claimed | proven``
    eps with a red flag where the proven one is larger, and seeds that diverged.  ``targets`` from
    :func:`to_target` adds what reaching the target took.  Marked is the best row for each problem
    and eps, by the selection's criterion, else by utility.
    """
    order = _order(ds)
    rule = criterion_used(ds)
    measured = {name: over_seeds(final(ds, name).values) for name in shown_metrics(ds, metrics)}
    judged = over_seeds(final(ds, rule.metric).values)[0] * rule.sign
    parts = [
        axis_columns(ds, order),
        _choices(ds, order),
        [(Column(name, _words(name)), _at(order, values)) for name, values in measured.items()],
        _bits(ds, order),
        _privacy(ds, order),
        _targets(targets, order),
        _fates(ds, order),
    ]
    columns = [pair for part in parts for pair in part]
    rows = tuple(zip(*(values for _, values in columns), strict=True))
    return Table(
        heading(ds),
        tuple(column for column, _ in columns),
        rows,
        _best(ds, order, judged),
        _notes(ds, order, rule),
    )


def heading(ds: xarray.Dataset) -> str:
    """The problem, and the axes that have one value."""
    about = results.config(ds)
    named = {key: words for key, words in about["settings"].items() if isinstance(words, str)}
    words = [named["model"]] if "model" in named and "model" not in axes(ds) else []
    if "problem" in named and not {"problem", "data"} & set(axes(ds)):
        words.append(f"on {named['problem']}")
    out = [" ".join(words)] if words else []
    n = np.unique(ds["n"].values)
    if n.size == 1 and "clients" not in axes(ds):
        out.append(f"{n[0]} clients")
    for name in axes(ds):
        if ds.sizes[name] == 1 and name != "algorithm" and applying(ds, name).any():
            out.append(label(name, ds[name].values.tolist()[0]))
    seeds = ds.sizes["seed"]
    return ", ".join([*out, f"{seeds} seed" + "s" * (seeds > 1)])


def criterion_used(ds: xarray.Dataset) -> Criterion:
    """What a selection chose by; utility, where nothing was chosen."""
    found = results.config(ds).get("selection")
    return Criterion(*found["criterion"]) if found else criterion_of(ds, "utility")


def shown_metrics(ds: xarray.Dataset, names: Sequence[str] | None) -> list[str]:
    """The metrics asked for, each of them known; else those that most readers want."""
    known = metrics(ds)
    for name in names or ():
        if name not in known:
            raise InputError(closest("metric in this sweep named", name, known))
    return list(dict.fromkeys(names)) if names else [name for name in SHOWN if name in known]


def axis_columns(ds: xarray.Dataset, order: list[Cell]) -> list[tuple[Column, list[Value]]]:
    """Groups first, then the algorithm, then what varies within."""
    first = groups(ds)
    names = sorted(axes(ds), key=lambda name: (name not in first, name != "algorithm"))
    return [
        (Column(name, SYMBOLS.get(name, name)), [cell.labels[name] for cell in order])
        for name in names
        if (ds.sizes[name] > 1 and applying(ds, name).any()) or name == "algorithm"
    ]


# --- columns -------------------------------------------------------------------------------------


def _order(ds: xarray.Dataset) -> list[Cell]:
    """Rows of one group beside each other; without the axis, after all others."""
    names = axes(ds)
    grouped = [names.index(name) for name in groups(ds)]

    def place(cell: Cell) -> tuple[tuple[bool, int], ...]:
        return tuple((cell.labels[names[i]] is None, cell.at[i]) for i in grouped)

    return sorted(cells(ds), key=place)


def _at(order: list[Cell], values: tuple[Array, Array]) -> list[Value]:
    mean, error = values
    return [Estimate(float(mean[cell.at]), float(error[cell.at])) for cell in order]


def _numbers(ds: xarray.Dataset, name: str, order: list[Cell]) -> list[float]:
    values = (ds[name] if name in ds else ds["proven_eps"].where(False)).transpose(*axes(ds)).values
    return [float(values[cell.at]) for cell in order]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _choices(ds: xarray.Dataset, order: list[Cell]) -> list[tuple[Column, list[Value]]]:
    out: list[tuple[Column, list[Value]]] = []
    for variable in ds.data_vars:
        name = str(variable)
        if name.startswith("chosen_"):
            values = ds[name].transpose(*axes(ds)).values
            found = [values[cell.at] for cell in order]
            shown = [
                None if v != v or v == "" else v if isinstance(v, str) else float(v) for v in found
            ]
            out.append((Column(name, f"best {SYMBOLS.get(name[7:], name[7:])}"), list(shown)))
    if "used_lr" in ds and "lr" not in axes(ds) and "chosen_lr" not in ds:
        theirs = _numbers(ds, "used_lr", order)
        out.append((Column("used_lr", "lr"), [None if v != v else v for v in theirs]))
    return out


def _bits(ds: xarray.Dataset, order: list[Cell]) -> list[tuple[Column, list[Value]]]:
    mean, error = over_seeds(final(ds, "uplink_bits").values)
    scale, unit = prefix(mean, "bit")
    alike = not (np.nan_to_num(error) > 0).any()
    both = _at(order, (mean, error))
    values: list[Value] = [v.mean if alike and isinstance(v, Estimate) else v for v in both]
    return [(Column("uplink_bits", f"uplink ({unit})", scale), values)]


def _privacy(ds: xarray.Dataset, order: list[Cell]) -> list[tuple[Column, list[Value]]]:
    noisy = _numbers(ds, "noisy", order)
    if not any(noisy):
        return []
    claimed, proven = _numbers(ds, "claimed_eps", order), _numbers(ds, "proven_eps", order)
    flags = _numbers(ds, "flag", order)
    kept: list[Value] = [
        "no noise" if not n else "none" if math.isinf(p) else p
        for n, p in zip(noisy, proven, strict=True)
    ]
    said: list[Value] = [c if n and c == c else None for n, c in zip(noisy, claimed, strict=True)]
    out = [
        (Column("claimed_eps", "claimed ε"), said),
        (Column("proven_eps", "proven ε"), kept),
    ]
    if any(flags):
        red: list[Value] = [
            ", ".join([FLAG] * (p > c * (1 + 1e-9)) + [BROKEN] * (b == b))
            for p, c, b in zip(proven, claimed, _numbers(ds, "broken", order), strict=True)
        ]
        out.append((Column("flag", "flag", alarm=True), red))
    each = _numbers(ds, deltas(ds), order)
    several = len({d for d, n in zip(each, noisy, strict=True) if n and d == d}) > 1
    if several and "delta" not in axes(ds):
        out.append((Column("delta", "δ"), list(each)))
    return out


def _targets(found: xarray.Dataset | None, order: list[Cell]) -> list[tuple[Column, list[Value]]]:
    if found is None:
        return []
    words = found.attrs["target"]
    out: list[tuple[Column, list[Value]]] = []
    for variable in found.data_vars:
        name, values = str(variable).removesuffix("_to_target"), found[variable].values
        if "seed" in found[variable].dims:
            raise InputError("The targets of a table are of means: make them with by='mean'.")
        scale, unit = (1.0, "") if name == "rounds" else prefix(values, _UNITS[name])
        if name == "seconds" and scale > 1:  # no kiloseconds
            scale, unit = 1.0, "s"
        what = {"uplink_bits": "uplink", "seconds": "time"}.get(name, name)
        head = f"{what} to {words}" + f" ({unit})" * bool(unit)
        numbers: list[Value] = [None if math.isnan(v) else v for v in _flat(values, order)]
        out.append((Column(f"{name}_to_target", head, scale), numbers))
    return out


_UNITS = {"uplink_bits": "bit", "gradients": "", "seconds": "s"}


def _flat(values: Array, order: list[Cell]) -> list[float]:
    return [float(values[cell.at]) for cell in order]


def _fates(ds: xarray.Dataset, order: list[Cell]) -> list[tuple[Column, list[Value]]]:
    """Seeds that diverged, and cells that are still to come; nothing where all is well."""
    names = (*axes(ds), "seed")
    lost = (~np.isnan(ds["diverged_at"].transpose(*names).values)).sum(-1)
    ran = ds["complete"].transpose(*names).values.astype(bool)
    found = ds["found"].transpose(*axes(ds)).values if "found" in ds else np.ones(lost.shape)
    seeds = ds.sizes["seed"]

    def fate(cell: Cell) -> str:
        if not found[cell.at]:
            tried = int(ds["candidates"].transpose(*axes(ds)).values[cell.at])
            if tried > 1 and seeds > 1:
                return f"each of {tried} settings has a seed that diverged"
            if tried > 1:
                return f"all {tried} settings diverged"
            return _seeds(int(lost[cell.at]), seeds) if tried else "not run yet"
        if not ran[cell.at].all():
            return "not run yet" if not ran[cell.at].any() else "unfinished"
        return _seeds(int(lost[cell.at]), seeds) if lost[cell.at] else ""

    words: list[Value] = [fate(cell) for cell in order]
    return [(Column("state", "state", alarm=True), words)] if any(words) else []


def _seeds(lost: int, seeds: int) -> str:
    return f"{lost} of {seeds} seeds diverged" if seeds > 1 else "diverged"


# --- what is said of it --------------------------------------------------------------------------


def _best(ds: xarray.Dataset, order: list[Cell], judged: Array) -> frozenset[int]:
    """The first best row of each group that has a choice."""
    found: dict[tuple[Any, ...], list[int]] = {}
    names = groups(ds)
    for i, cell in enumerate(order):
        key = tuple(cell.labels[name] for name in names)
        if not math.isnan(judged[cell.at]):
            found.setdefault(key, []).append(i)
    return frozenset(
        min(rows, key=lambda i: judged[order[i].at]) for rows in found.values() if len(rows) > 1
    )


def _notes(ds: xarray.Dataset, order: list[Cell], rule: Criterion) -> tuple[str, ...]:
    notes = []
    found = results.config(ds).get("selection")
    if found and found["note"]:
        notes.append(found["note"])
    if ds.sizes["seed"] > 1:
        notes.append("± standard error over seeds.")
    noisy = _numbers(ds, "noisy", order)
    if not any(noisy):
        notes.append("Not private: no noise.")
        return tuple(notes)
    each = {d for d, n in zip(_numbers(ds, deltas(ds), order), noisy, strict=True) if n and d == d}
    if len(each) == 1:
        notes.append(f"ε at δ = {number(each.pop())}.")
    if any(_numbers(ds, "flag", order)):
        notes += [words for words in _alarms(ds, order) if words]
    return tuple(notes)


def _alarms(ds: xarray.Dataset, order: list[Cell]) -> tuple[str, str]:
    """What the words in the flag column mean, where they stand."""
    claimed, proven, broken = (
        _numbers(ds, name, order) for name in ("claimed_eps", "proven_eps", "broken")
    )
    less = any(p > c * (1 + 1e-9) for p, c in zip(proven, claimed, strict=True))
    steep = [b for b in broken if b == b]
    return (
        f"{FLAG}: the paper's formula claims less than this noise is proven to give." * less,
        f"{BROKEN}: an example's gradient has norm {max(steep):.4g} at x0, above gradient_bound; the "
        "proven eps holds because such gradients are clipped to it."
        if steep
        else "",
    )
