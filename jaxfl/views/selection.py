"""The best step size of every setting, and a note on the privacy cost of the choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxfl.core.errors import InputError, require
from jaxfl.engine.grid import TUNED
from jaxfl.views.cells import Grid, over_seeds
from jaxfl.views.words import span

if TYPE_CHECKING:
    import pandas
    import xarray

__all__ = ["AUTO", "CRITERIA", "Criterion", "Selection", "criterion_of", "publishing", "select"]

AUTO = "auto"  # the first of these metrics that the sweep has
PREFERRED = ("validation_accuracy", "validation_loss", "loss")

# name: which metric at the last round, and whether the smallest or the largest is best
OF_TEST = ("test_", "worst_client_test_", "worst_tenth_test_")
OF = ("", "worst_client_", "worst_tenth_", "validation_", *OF_TEST)
CRITERIA = {
    **{f"{of}loss": "min" for of in OF},
    **{f"{of}accuracy": "max" for of in OF},
    **{f"{of}accuracy_deviation": "min" for of in ("", "test_")},
    "utility": "min",
    "grad_norm_sq": "min",
}
STUDIED = ("algorithm", "eps", "seed", "round")  # axes over which nothing can be chosen
MEANINGS = {
    "score_error": "standard error of the score",
    "candidates": "settings that were compared",
    "found": "whether one of them ran without diverging",
    "at_end": "whether the best value is at an end of its grid",
    "idle": "whether the loss ends no lower than it began",
}
AWAY = 1000  # a final loss above this, or above this many times the first, counts as diverged
SHARED = (
    "Runs with the same seed share their noise, so no eps is proven for publishing several of them "
    "(--unpaired, in Python paired=False, gives each its own noise and states the eps of publishing all)"
)
ALONE = "for one run published alone"


class Criterion(NamedTuple):
    """The metric by which the best run is chosen."""

    metric: str
    sign: int  # 1: the smallest is best; -1: the largest

    @property
    def words(self) -> str:
        return f"{'lowest' if self.sign > 0 else 'highest'} final {self.metric.replace('_', ' ')}"

    @property
    def on_test_data(self) -> bool:
        return self.metric.startswith(OF_TEST)

    def drawn(self, ds: xarray.Dataset) -> str:
        """The metric that shows what was chosen: on test data, if validation data chose."""
        test = self.metric.replace("validation_", "test_")
        return test if test in ds else self.metric


class Selection(NamedTuple):
    """A sweep without the axes that were chosen over, and the choice.

    ``ds`` also has, for every cell that is left, ``chosen_AXIS``, ``score`` and ``score_error``
    (mean over seeds and its standard error), ``candidates`` (how many settings were compared) and
    ``found`` (0 where each of them diverged or has not run: all values are NaN there); with a choice
    also ``at_end`` and ``idle`` (1 where the warning is of this cell).
    """

    ds: xarray.Dataset
    criterion: Criterion
    over: tuple[str, ...]
    candidates: int  # the most in any cell
    note: str
    warning: str  # of choices at an end of their grid, and of losses that never fell; may be empty


def criterion_of(grid: Grid, text: str) -> Criterion:
    """A name in :data:`CRITERIA`, or ``min:NAME`` or ``max:NAME`` with any metric of the sweep.

    ``"auto"`` is the accuracy on validation data, else the loss on them, else the training loss.
    """
    if text == AUTO:
        text = next(name for name in PREFERRED if name in grid.ds)
    way, _, name = text.rpartition(":")
    grid.check(name)
    way = way or CRITERIA.get(name, "")
    ways = f"write 'min:{name}' or 'max:{name}'"
    require(way in ("min", "max"), lambda: f"{text!r} does not say which {name} is best", ways)
    return Criterion(name, 1 if way == "min" else -1)


def select(
    ds: xarray.Dataset,
    choose_by: str = AUTO,
    *,
    over: Sequence[str] | None = None,
    allow_test: bool = False,
) -> Selection:
    """For every cell, the best values on the axes ``over``, by the mean over seeds.

    ``choose_by`` is a name in :data:`CRITERIA`, or ``min:NAME`` or ``max:NAME`` with any metric; by
    default validation data choose, where the sweep has them, else the training loss does.  ``over``
    defaults to those of :data:`TUNED` that the sweep has.  A setting with a seed that diverged, or whose
    loss ended a thousand times above the first,
    is never chosen, and the note says how many there are; of equal ones, that with the smallest
    values is.  ``warning`` says where the best value is at an end of its grid, and where the loss
    never fell.  Test data choose only with ``allow_test``, and the note then says so.

    >>> import jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> ds = jaxfl.sweep("ldp_gd", problem, rounds=5, eps=[1, 8], lr=[0.1, 0.3])
    >>> best = select(ds, "loss")
    >>> best.over, best.candidates, best.ds["chosen_lr"].sel(algorithm="ldp_gd", eps=8).item()
    (('lr',), 2, 0.3)
    """
    grid = Grid.of(ds)
    rule = criterion_of(grid, choose_by)
    if rule.on_test_data and not allow_test:
        raise InputError(
            "would choose on the test data, which then test no more",
            "choose by another metric, or give {allow_test} to have it labelled",
            suggested={"allow_test": True},
            choose_by=choose_by,
        )
    over = _axes(grid, over)
    out, lost = _best(grid, rule, over)
    found = Grid.of(out)
    most = found.cells["candidates"].max().item()
    warning, note = "", ""
    if over and most > 1:
        at_end, idle, warning = _warning(grid, found, over)
        out = out.assign(at_end=at_end.astype(np.int8), idle=idle.astype(np.int8))
        note = _note(grid, found, rule, over, lost)
    out = out.transpose(*found.axes, "seed", "round", ..., missing_dims="ignore")
    meanings = {f"chosen_{name}": f"{name} with the {rule.words}" for name in over}
    meanings["score"] = f"{rule.words}, mean over seeds"
    for name, words in {**meanings, **MEANINGS}.items():
        if name in out:
            out[name].attrs = {"units": "1", "long_name": words}
    spans = {name: span for name, span in grid.about["axes"].items() if name not in over}
    chosen = {"criterion": list(rule), "over": list(over), "note": note, "warning": warning}
    out = grid.described(out, axes=spans, selection=chosen)
    return Selection(out, rule, over, most, note, warning)


def publishing(grid: Grid) -> tuple[str, str]:
    """What the proven eps of each run covers, and what is said of publishing several runs.

    Both are empty where the sweep has a single private run.
    """
    if _proven(grid.cells).sum() * grid.ds.sizes["seed"] <= 1:
        return "", ""
    # Files from before the option were paired, and some hold an eps as if noise were not shared.
    return ALONE, f"{SHARED}." * bool(grid.about.get("paired", True))


# --- pieces --------------------------------------------------------------------------------------


def _axes(grid: Grid, over: Sequence[str] | None) -> tuple[str, ...]:
    if over is None:
        return tuple(name for name in TUNED if name in grid.axes)
    over = (over,) if isinstance(over, str) else over
    for name in over:
        way = "choose over a step size"
        require(name not in STUDIED, "is what a sweep compares", way, over=name)
        grid.check_axis(name)
    return tuple(dict.fromkeys(over))


def _best(grid: Grid, rule: Criterion, over: tuple[str, ...]) -> tuple[xarray.Dataset, int]:
    """The chosen cells, and the most that were left out of one choice because they diverged."""
    import xarray

    # Candidates in ascending order, the first axis outermost, so that the first best is the smallest.
    ds = grid.ds.sortby([name for name in over if grid.ds[name].dtype.kind in "iuf"])
    mean, error = over_seeds(grid.final(rule.metric))
    ended, kept = grid.final("loss"), {*grid.axes} - {*over}
    # a loss may be finite by chance: a gradient may vanish there, too
    first = abs(ds["loss"].isel(round=0, drop=True)).clip(min=1.0)
    mean = mean.where(~(ended > AWAY * first).any("seed"))
    has = {n: ds[f"applies_{n}"] > 0 for n in over if f"applies_{n}" in ds}
    has = {n: applies.any({*over} & {*applies.dims}) for n, applies in has.items()}
    tried = (ds["complete"] > 0).all("seed")
    for name, applies in has.items():  # the others are copies
        tried = tried & (applies | (ds[name] == ds[name][0]))
    losses = (rule.sign * mean).where(tried).fillna(np.inf)
    each = xarray.Dataset({"loss": losses, "tried": tried})
    each = each.stack(candidate=over, create_index=False) if over else each.expand_dims("candidate")
    best, found = each["loss"].argmin("candidate"), each["loss"].min("candidate") < np.inf
    lost = (each["tried"] & (each["loss"] == np.inf)).sum("candidate").max()
    out = ds.assign(score=mean, score_error=error)
    out = out.sel({name: each[name].isel(candidate=best) for name in over})
    # of a cell without a choice only diverged_at remains
    unknown = [n for n, v in out.items() if v.dtype.kind == "f" and kept <= {*v.dims}]
    unknown.remove("diverged_at")
    out = out.assign(out[unknown].where(found))
    chosen: dict[str, Any] = {}
    for name in over:  # NaN or "" where nothing was chosen or the axis does not apply
        kind, none = (float, np.nan) if out[name].dtype.kind in "iuf" else (object, "")
        chosen[f"chosen_{name}"] = out[name].astype(kind).where(found & has.get(name, True), none)
    out = out.assign(
        **chosen,
        flag=out["flag"].where(found, 0).astype(np.int8),
        candidates=each["tried"].sum("candidate").astype(np.int32),
        found=found.astype(np.int8),
    )
    return out.drop_vars(over), int(lost)


def _warning(
    grid: Grid, found: Grid, over: tuple[str, ...]
) -> tuple[xarray.DataArray, xarray.DataArray, str]:
    """Where the best value of an axis is its smallest or its largest, and where no loss fell; in words."""
    out, at_end = [], found.ds["found"] < 0
    for name in over:
        values, best = grid.ds[name].values, found.ds[f"chosen_{name}"]
        if values.dtype.kind not in "iuf" or values.size < 2:
            continue
        low, high = best == values.min(), best == values.max()
        ways = [f"below {values.min():g}"] * bool(low.any())
        ways += [f"above {values.max():g}"] * bool(high.any())
        if ways:
            where = f"at an end of its grid in {_share(found, low | high, best)}"
            out.append(f"The best {name} is {where}: try values {' and '.join(ways)}.")
        at_end = at_end | low | high
    loss = over_seeds(found.final("loss"))[0]
    idle = loss >= over_seeds(found.ds["loss"].isel(round=0, drop=True))[0]
    if idle.any():
        where = f"no lower than it began in {_share(found, idle, loss)}"
        out.append(f"The loss ends {where}, even with the best {over[0]}.")
    return at_end, idle, " ".join(out)


def _share(found: Grid, some: xarray.DataArray, of: xarray.DataArray) -> str:
    """How many cells some are of those with a value, without copies."""
    both = found.flat(some.to_dataset(name="some").assign(of=of.notnull())).sum()
    return f"{int(both['some'])} of {int(both['of'])} rows" if both["of"] > 1 else "the only row"


def _proven(cells: pandas.DataFrame) -> pandas.Series:
    """Which cells have noise and a proven eps."""
    return cells["noisy"] & np.isfinite(cells["proven_eps"])


def _note(grid: Grid, found: Grid, rule: Criterion, over: tuple[str, ...], lost: int) -> str:
    """In one sentence the choice and the data that it used; then what was left out, and its privacy."""
    cells, seeds = found.cells, grid.ds.sizes["seed"]
    noisy, proven = cells["noisy"] & (cells["found"] > 0), _proven(cells)
    kinds = "values" if len(over) == 1 else "combinations"
    names = " and ".join(f"{name} (step size)" if name == "lr" else name for name in over)
    runs = f" with {seeds} seeds each" if seeds > 1 else ""
    runs += "" if (grid.cells["ran"] == seeds).all() else " so far"
    data = " on test data" if rule.on_test_data else " on the private data"
    data *= not rule.metric.startswith("validation_")
    uncovered = "; no proven eps covers this choice" if proven.any() else ""
    most = f"the best of {cells['candidates'].max()} {kinds} of {names}{runs}"
    said = [f"Shown is {most}, by the {rule.words}{data}{uncovered}"]
    if lost:
        why = f"a seed diverged, or ended above {AWAY:,} times its first loss"
        said.append(f"Up to {lost} of them {'is' if lost == 1 else 'are'} left out: {why}")
    if proven.any() and publishing(found)[1]:
        said.append(SHARED)
    elif proven.any() and {*over} == {*TUNED} & {*grid.axes}:
        counts = cells["candidates"] * seeds
        if (cells["tried"] == counts)[proven].all():  # where the sweep computed their eps
            each = counts[proven].unique()
            many = f"the {each[0]} runs" if each.size == 1 else "all runs"
            eps = span(cells["eps_of_choice"][proven])
            said.append(f"Publishing {many} of one row has a proven eps of {eps}")
    if (noisy & ~proven).any():
        who = "some of the runs" if proven.any() else "any of the runs"
        said.append(f"No eps is proven of {who}, nor of this choice among them")
    return ". ".join(said) + "."
