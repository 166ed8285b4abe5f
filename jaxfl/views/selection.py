"""The best step size of every setting, and what is said of having looked for it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxfl import results
from jaxfl.errors import InputError
from jaxfl.params import closest
from jaxfl.views.cells import Array, applying, axes, final, metrics, over_seeds
from jaxfl.views.words import number

if TYPE_CHECKING:
    import xarray

__all__ = ["CRITERIA", "TUNED", "Criterion", "Selection", "criterion_of", "select"]

# name: which metric at the last round, and whether the smallest or the largest is best
CRITERIA = {
    "utility": "min",
    "loss": "min",
    "grad_norm_sq": "min",
    "worst_client_loss": "min",
    "accuracy": "max",
    "worst_client_accuracy": "max",
    "test_loss": "min",
    "test_accuracy": "max",
    "validation_loss": "min",
    "validation_accuracy": "max",
}
TUNED = ("lr", "shift")  # axes that one tries out rather than studies
STUDIED = ("algorithm", "eps", "seed", "round")  # axes over which a best value means nothing
SHARED = (
    ": the runs of a seed share their noise, so that nothing is proven for the best of several of them "
    "(sweep with paired=False, or --unpaired, for a statement that covers the choice)"
)


class Criterion(NamedTuple):
    """What makes one run better than another."""

    metric: str
    sign: int  # 1: the smallest is best; -1: the largest

    @property
    def words(self) -> str:
        return f"{'lowest' if self.sign > 0 else 'highest'} final {self.metric.replace('_', ' ')}"

    @property
    def on_test_data(self) -> bool:
        return self.metric.startswith("test_")


class Selection(NamedTuple):
    """A sweep without the axes that were chosen over, and the choice.

    ``ds`` also has, for every cell that is left, ``chosen_AXIS``, ``score`` and ``score_error``
    (mean over seeds and its standard error), ``candidates`` (how many settings were compared) and
    ``found`` (0 where each of them diverged or has not run: all values are NaN there).
    """

    ds: xarray.Dataset
    criterion: Criterion
    over: tuple[str, ...]
    candidates: int  # the most in any cell
    note: str


def criterion_of(ds: xarray.Dataset, text: str) -> Criterion:
    """A name in :data:`CRITERIA`, or ``min:NAME`` or ``max:NAME`` with any metric of the sweep."""
    way, colon, name = text.partition(":")
    if not colon:
        way, name = CRITERIA.get(text, ""), text
    known = metrics(ds)
    if name not in known:
        raise InputError(closest("metric in this sweep named", name, known))
    if way not in ("min", "max"):
        raise InputError(
            f"{text!r} does not say which {name} is best: write 'min:{name}' or 'max:{name}'."
        )
    return Criterion(name, 1 if way == "min" else -1)


def select(
    ds: xarray.Dataset,
    criterion: str = "utility",
    *,
    over: Sequence[str] | None = None,
    allow_test: bool = False,
) -> Selection:
    """For every cell, the best values on the axes ``over``, by the mean over seeds.

    ``over`` defaults to those of :data:`TUNED` that the sweep has.  A setting with a seed that
    diverged is never chosen; of equal ones, that with the smallest values is.  Test data choose
    only where ``allow_test`` says so, and the note then says so too.

    >>> import jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> ds = jaxfl.sweep("ldp_gd", {"eps": [1, 8], "lr": [0.1, 0.3]}, problem, rounds=5)
    >>> best = select(ds, "loss")
    >>> best.over, best.candidates, best.ds["chosen_lr"].sel(algorithm="ldp_gd", eps=8).item()
    (('lr',), 2, 0.3)
    """
    import xarray

    rule = criterion_of(ds, criterion)
    if rule.on_test_data and not allow_test:
        raise InputError(
            "would choose on the test data, which then test no more",
            "choose by another metric, or give {allow_test} to have it labelled",
            suggested={"allow_test": True},
            criterion=criterion,
        )
    over = _axes(ds, over)
    kept = [name for name in axes(ds) if name not in over]
    mean, error = over_seeds(_scores(ds, rule, over, kept))
    tried = _tried(ds, over, kept)
    # Candidates in ascending order, the first axis outermost, so that the first best is the smallest.
    orders = [_ascending(ds[name].values) for name in over]
    corner = np.ix_(*map(np.arange, mean.shape[: len(kept)]), *orders) if over else ...
    shape = mean.shape[: len(kept)]
    flat = [a[corner].reshape(*shape, -1) for a in (rule.sign * mean, error, tried)]
    score = np.where(flat[2] & ~np.isnan(flat[0]), flat[0], np.inf)
    best = score.argmin(-1)
    found = np.isfinite(score.min(-1))
    compared = flat[2].sum(-1)

    sizes = [ds.sizes[name] for name in over]
    steps = np.unravel_index(best, sizes) if over else ()
    picks = {
        name: xarray.DataArray(order[step], dims=kept)
        for name, order, step in zip(over, orders, steps, strict=True)
    }
    chosen = {name: _chosen(ds, name, picks, found) for name in over}
    out = _pick(ds, picks, found)
    at = best[..., None]
    extra: dict[str, Any] = {f"chosen_{name}": (kept, values) for name, values in chosen.items()}
    for name, values in (("score", flat[0] * rule.sign), ("score_error", flat[1])):
        extra[name] = (kept, np.where(found, np.take_along_axis(values, at, -1)[..., 0], np.nan))
    extra["candidates"] = (kept, compared.astype(np.int32))
    extra["found"] = (kept, found.astype(np.int8))
    out = out.assign(extra)
    for name in extra:
        out[name].attrs.update(units="1", long_name=_words(name, rule))
    most = int(compared.max(initial=0))
    note = _note(
        out,
        rule,
        over,
        most,
        whole=math.isclose(float(ds["complete"].mean()), 1.0),
        priced=set(over) == set(TUNED) & set(axes(ds)),
    )
    about = results.config(ds)
    about["axes"] = {name: axis for name, axis in about["axes"].items() if name not in over}
    about["selection"] = {"criterion": list(rule), "over": list(over), "note": note}
    out.attrs["config"] = json.dumps(about, ensure_ascii=False)
    return Selection(out, rule, over, most, note)


# --- pieces --------------------------------------------------------------------------------------


def _axes(ds: xarray.Dataset, over: Sequence[str] | None) -> tuple[str, ...]:
    names = axes(ds)
    if over is None:
        return tuple(name for name in TUNED if name in names)
    for name in over:
        if name in STUDIED:
            raise InputError(f"over = {name!r} is what a sweep compares: choose over a step size.")
        if name not in names:
            raise InputError(closest("axis in this sweep named", name, names))
    return tuple(dict.fromkeys(over))


def _scores(ds: xarray.Dataset, rule: Criterion, over: Sequence[str], kept: list[str]) -> Array:
    """The metric at the last rounds; axes: those kept, those chosen over, seeds."""
    values: Array = final(ds, rule.metric).transpose(*kept, *over, "seed").values
    return values


def _tried(ds: xarray.Dataset, over: Sequence[str], kept: list[str]) -> Array:
    """Settings that ran, copies along axes that do not apply left out; axes as in the scores."""
    names = axes(ds)
    ran = ds["complete"].transpose(*names, "seed").values.astype(bool).all(-1)
    for name in over:
        place = np.arange(ds.sizes[name]).reshape([-1 if n == name else 1 for n in names])
        first = _ascending(ds[name].values)[0]
        ran = ran & (applying(ds, name) | (place == first))
    return np.transpose(ran, [names.index(name) for name in (*kept, *over)])


def _ascending(values: Array) -> Array:
    """Places in the order of numbers; words stay in the order they were given."""
    return (
        np.argsort(values, kind="stable") if values.dtype.kind in "iuf" else np.arange(len(values))
    )


def _chosen(ds: xarray.Dataset, name: str, picks: dict[str, Any], found: Array) -> Array:
    values = ds[name].values[picks[name].values]
    has = applying(ds, name)
    chosen_over = tuple(i for i, dim in enumerate(axes(ds)) if dim in picks)
    known = found & has.any(chosen_over)
    if values.dtype.kind in "iuf":
        return np.where(known, values.astype(np.float64), np.nan)
    return np.where(known, values.astype(object), "")


def _pick(ds: xarray.Dataset, picks: dict[str, Any], found: Array) -> xarray.Dataset:
    """The chosen cells alone; nothing is left of a cell without a choice but that it diverged."""
    import xarray

    names = axes(ds)
    kept = [name for name in names if name not in picks]
    known = xarray.DataArray(found, dims=kept)
    out = ds.isel(picks).drop_vars(list(picks), errors="ignore")
    order = (*kept, "seed", "round")
    fixed: dict[str, Any] = {}
    for key, variable in out.data_vars.items():
        full = set(kept) <= set(variable.dims)
        if full and variable.dtype.kind == "f" and key != "diverged_at":
            variable = variable.where(known)
        elif full and key == "flag":
            variable = variable.where(known, 0).astype(np.int8)
        variable = variable.transpose(*(dim for dim in order if dim in variable.dims))
        fixed[str(key)] = variable.assign_attrs(ds[key].attrs)
    return xarray.Dataset(fixed, {n: out[n] for n in order if n in out.dims}, ds.attrs)


def _words(name: str, rule: Criterion) -> str:
    if name.startswith("chosen_"):
        return f"{name[7:]} with the {rule.words}"
    return {
        "score": f"{rule.words}, mean over seeds",
        "score_error": "standard error of the score",
        "candidates": "settings that were compared",
        "found": "whether one of them ran without diverging",
    }[name]


def _note(
    ds: xarray.Dataset,
    rule: Criterion,
    over: tuple[str, ...],
    most: int,
    *,
    whole: bool,
    priced: bool,
) -> str:
    """What was chosen on which data, and that no eps pays for it."""
    if not over or most < 2:
        return ""
    seeds = ds.sizes["seed"]
    runs = f" ({most * seeds} runs)" if seeds > 1 else ""
    where = "chosen on the private data"
    if rule.on_test_data:
        where = "chosen on test data"
    elif rule.metric.startswith("validation_"):
        where = "chosen on validation data"
    note = (
        f"{' and '.join(over)} {where}: each time the best of {most} settings{runs} by the "
        f"{rule.words}"
    )
    if not whole:
        note += ", so far"
    noisy = (ds["noisy"].values > 0) & (ds["found"].values > 0)
    proven = noisy & np.isfinite(ds["proven_eps"].values)
    if proven.any():
        note += "; each proven eps holds for one run, and does not pay for this choice"
        # Files from before the option were paired, and some hold an eps as if noise were not shared.
        shared = results.config(ds).get("paired", True)
        note += SHARED if shared else _price(ds, proven) if priced else ""
    if (noisy & ~proven).any():
        who = "some of the runs" if proven.any() else "any of the runs"
        note += f"; no eps is proven of {who}, nor of this choice among them"
    return note + "."


def _price(ds: xarray.Dataset, proven: Array) -> str:
    """What showing all the runs proves, where the sweep has accounted for just these.

    Each has noise of its own.
    """
    runs = ds["candidates"].values * ds.sizes["seed"]
    if not (ds["tried"].values == runs)[proven].all():
        return ""
    eps, counts = ds["eps_of_choice"].values[proven], np.unique(runs[proven])
    low, high = number(eps.min(), 3), number(eps.max(), 3)
    span = low if low == high else f"{low} to {high}"
    many = f"all {counts[0]} runs" if counts.size == 1 else "all runs that a choice was made among"
    return f": {many} together prove eps = {span}"
