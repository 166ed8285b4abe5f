"""The best step size of every setting, and a note on the privacy cost of the choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxfl.core.errors import InputError, require
from jaxfl.core.progress import plural
from jaxfl.engine.grid import TUNED
from jaxfl.engine.results import measured_on
from jaxfl.privacy.claims import above
from jaxfl.views.cells import IN_SHORT, WORTH, Grid, over_seeds
from jaxfl.views.words import listed, number, span

if TYPE_CHECKING:
    import xarray

__all__ = ["AUTO", "CRITERIA", "Criterion", "Selection", "criterion_of", "publishing", "select"]

AUTO = "auto"  # the first of these metrics that the sweep has
PREFERRED = ("validation_accuracy", "validation_loss", "loss")

# name: which metric at the last round, and whether the smallest or the largest is best
OF_TEST = ("test_", "worst_client_test_", "worst_tenth_test_")
OF = ("", "worst_client_", "worst_tenth_", "validation_", *OF_TEST)
LEAST = ("accuracy_deviation", "test_accuracy_deviation", "utility", "grad_norm_sq")
CRITERIA = {f"{of}{what}": way for of in OF for what, way in (("loss", "min"), ("accuracy", "max"))}
CRITERIA |= dict.fromkeys(LEAST, "min")
STUDIED = ("algorithm", "eps", "seed", "round")  # axes over which nothing can be chosen
AWAY = 1000  # a final loss above this, or above this many times the first, counts as diverged
SHARED = (
    "Runs with the same seed share their noise, so no eps is proven for publishing several of them"
    ". With --unpaired (in Python paired=False) each has its own, and the table has the eps of all"
)


class Criterion(NamedTuple):
    """The metric by which the best run is chosen."""

    metric: str
    sign: int  # 1: the smallest is best; -1: the largest

    @property
    def words(self) -> str:
        return f"{'lowest' if self.sign > 0 else 'highest'} final {self.metric.replace('_', ' ')}"

    def drawn(self, ds: xarray.Dataset) -> str:
        """The metric that shows what was chosen: on test data, if validation data chose."""
        test = self.metric.replace("validation_", "test_")
        return test if test in ds else self.metric


class Selection(NamedTuple):
    """A sweep without the axes that were chosen over, and the choice.

    ``ds`` also has, for every cell that is left, ``chosen_AXIS``, ``score`` and ``score_error``
    (mean over seeds and its standard error), ``candidates`` (how many settings were compared),
    ``found`` (0 where each of them diverged or has not run: all values are NaN there) and ``equal`` (1
    where another one is as good); with a choice also ``at_end`` (1 where the warning is of this cell).
    """

    ds: xarray.Dataset
    criterion: Criterion
    over: tuple[str, ...]
    candidates: int  # the most in any cell
    note: str
    warning: str  # of choices at an end of their grid, and of losses that never fell; may be empty

    def __repr__(self) -> str:
        most = f"Selection(the best of {self.candidates} along {' and '.join(self.over)}"
        return f"{most}, by the {self.criterion.words}; .ds has the {dict(self.ds.sizes)})"


def criterion_of(grid: Grid, text: str = AUTO) -> Criterion:
    """A name in :data:`CRITERIA`, or ``min:NAME`` or ``max:NAME`` with any metric of the sweep.

    ``"auto"`` is what a selection chose by, else the accuracy on validation data, else the loss on them,
    else the training loss.
    """
    if text == AUTO and "selection" in grid.about:
        return Criterion(*grid.about["selection"]["criterion"])
    text = next((n for n in PREFERRED if n in grid.ds), "loss") if text == AUTO else text
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
    defaults to those of :data:`TUNED` that the sweep has; neither eps nor what it protects may differ.
    A setting with a seed that diverged, or whose loss ended a thousand times above the first, is never
    chosen, and the note says how many there are; of equal ones, that with the smallest values is.
    ``warning`` says where the best value is at an end of its grid, and where the loss never fell.  Test
    data choose only with ``allow_test``, and the note then says so.

    >>> import jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.Problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> ds = jaxfl.sweep("ldp_gd", problem, rounds=5, eps=[1, 8], lr=[0.1, 0.3])
    >>> best = select(ds, "loss")
    >>> best.over, best.candidates, best.ds["chosen_lr"].sel(algorithm="ldp_gd", eps=8).item()
    (('lr',), 2, 0.3)
    """
    grid = Grid.of(ds)
    rule = criterion_of(grid, choose_by)
    if rule.metric.startswith(OF_TEST) and not allow_test:
        test = "would choose on the test data, which then test no more"
        other = "choose by another metric, or give {allow_test} to have it labelled"
        raise InputError(test, other, suggested={"allow_test": True}, choose_by=choose_by)
    over = [over] if isinstance(over, str) else over
    for name in over or ():
        way = "choose over a step size"
        require(name not in STUDIED, "is what a sweep compares", way, over=name)
        grid.check_axis(name)
    tuned = (name for name in TUNED if name in grid.axes)
    over = tuple(dict.fromkeys(tuned if over is None else over))
    _check_protection(grid, over)
    out, lost = _best(grid, rule, over)
    found, warning, note = Grid.of(out), "", ""
    most = found.cells["candidates"].max().item()
    if over and most > 1:
        at_end, warning = _warning(grid, found, over)
        out = out.assign(at_end=at_end.astype(np.int8))
        note = _note(grid, found, rule, over, lost)
    out = out.transpose(*found.axes, "seed", "round", ..., missing_dims="ignore")
    spans = {name: span for name, span in grid.about["axes"].items() if name not in over}
    chosen = {"criterion": list(rule), "over": list(over), "note": note, "warning": warning}
    chosen["priced"] = bool(note) and _priced(grid, found, over)
    out = grid.described(out, axes=spans, selection=chosen)
    return Selection(out, rule, over, most, note, warning)


def _check_protection(grid: Grid, over: tuple[str, ...]) -> None:
    """Raise if a choice would compare settings whose eps differ, or protect different things.

    Runs that a rule stopped have an eps each.
    """
    worth = WORTH[:1] if "stopped_at" in grid.ds else WORTH
    kept = [name for name in grid.axes if name not in over]
    for _, rivals in grid.cells.groupby(kept, dropna=False, sort=False):
        known = rivals[((rivals["protects"] != "") | ~rivals["noisy"]) & (rivals["lost"] == 0)]
        each = known.drop_duplicates(worth).to_dict("records")
        for axis in (n for n in over if len(each) > 1 and each[0][n] != each[1][n]):
            said = [f"{c[axis]} ({c['level']}, {IN_SHORT[c['protects']] or '–'})" for c in each[:2]]
            words = f"would choose between {' and '.join(said)}, whose eps are not worth the same"
            raise InputError(words, f"keep one, as with --where {axis}={each[0][axis]}", over=axis)


def publishing(grid: Grid) -> tuple[str, str]:
    """Sentences about the coverage of a run's proven eps, and about publishing several runs."""
    eps = grid.cells["proven_eps"][grid.cells["proven"]]
    several, deltas = len(eps) * grid.ds.sizes["seed"] > 1, grid.cells["delta_of_eps"].dropna()
    own = ", if only this run is published" * several
    if grid.about.get("repeated"):  # older files do not say it
        own = ", unless another run is published, such as the shorter one with its key here"
    levels = {number(above(one)) for one in eps}
    which = f"ε = {min(levels)}" if len(levels) == 1 else "Each ε"
    alone = f"{which} at δ = {listed(deltas, bounds=True)}{own}." if len(deltas) else ""
    # Files from before the option were paired, and some hold an eps as if noise were not shared.
    return alone, f"{SHARED}." * (several and bool(grid.about.get("paired", True)))


def _best(grid: Grid, rule: Criterion, over: tuple[str, ...]) -> tuple[xarray.Dataset, int]:
    """The chosen cells, and the most that were left out of one choice because they diverged."""
    import xarray

    # numbers ascend, the first axis outermost: the first best is the smallest
    ds, (mean, error) = grid.ds, over_seeds(grid.final(rule.metric))
    # a loss may be finite by chance: a gradient may vanish there, too
    first = abs(ds["loss"].isel(round=0, drop=True)).clip(min=1.0)
    mean = mean.where(~(grid.final("loss") > AWAY * first).any("seed"))
    has = {n: ds[f"applies_{n}"] > 0 for n in over if f"applies_{n}" in ds}
    has = {n: applies.any({*over} & {*applies.dims}) for n, applies in has.items()}
    tried = (ds["complete"] > 0).all("seed")
    for name, applies in has.items():  # the others are copies
        tried = tried & (applies | (ds[name] == ds[name][0]))
    losses = (rule.sign * mean).where(tried).fillna(np.inf)
    # of equal accuracies that with the lowest loss on the same data
    other = rule.metric.replace("accuracy", "loss")
    again = over_seeds(grid.final(other if other in ds else rule.metric))[0].fillna(1e308)
    each = xarray.Dataset({"loss": losses, "tried": tried, "again": again}).expand_dims("one")
    each = each.stack(candidate=("one", *over), create_index=False)
    least = each["loss"].min("candidate")
    best = each["again"].where(tied := each["loss"] == least, np.inf).argmin("candidate")
    found, equal = least < np.inf, tied.sum("candidate") > 1
    lost = (each["tried"] & (each["loss"] == np.inf)).sum("candidate").max()
    out = ds.assign(score=mean, score_error=error)
    out = out.sel({name: each[name].isel(candidate=best) for name in over})
    # of a cell without a choice only diverged_at remains
    unknown = [n for n, v in out.items() if v.dtype.kind == "f" and {*found.dims} <= {*v.dims}]
    out = out.assign(out[unknown].drop_vars("diverged_at").where(found))
    for name in over:  # NaN or "" where nothing was chosen or the axis does not apply
        kind, none = (float, np.nan) if grid.numeric(name) else (object, "")
        chosen = out[name].astype(kind).where(found & has.get(name, True), none)
        out = out.assign({f"chosen_{name}": chosen})
    marks = {"flag": out["flag"].where(found, 0), "found": found, "equal": equal & found}
    counts = each["tried"].sum("candidate").astype(np.int32)
    out = out.assign({n: v.astype(np.int8) for n, v in marks.items()}).assign(candidates=counts)
    return out.drop_vars(over), int(lost)


def _warning(grid: Grid, found: Grid, over: tuple[str, ...]) -> tuple[xarray.DataArray, str]:
    """Where the best value of an axis is its smallest or its largest; in words also where no loss fell."""
    out, at_end = [], found.ds["found"] < 0
    for name in (n for n in over if grid.numeric(n) and grid.ds.sizes[n] > 1):
        least, most, best = *grid.ds[name].values[[0, -1]], found.ds[f"chosen_{name}"]
        low, high = best == least, best == most
        ways = [f"below {least:g}"] * bool(low.any()) + [f"above {most:g}"] * bool(high.any())
        if ways:
            where = f"at an end of its grid in {_share(found, low | high, best)}"
            out.append(f"The best {name} is {where}: try values {' and '.join(ways)}.")
        at_end = at_end | low | high
    idle = (fall := found.fall()) <= 0
    if idle.any():
        falls = idle & (grid.fall() > 0).any(over)
        other = f"; in {_share(found, falls, fall)} another value lowers it" * bool(falls.any())
        where = f"no lower than it began in {_share(found, idle, fall)}{other}"
        out.append(f"With the chosen {over[0]} the loss ends {where}.")
    return at_end, " ".join(out)


def _share(found: Grid, some: xarray.DataArray, of: xarray.DataArray) -> str:
    """The share of the rows with a value that these are, in words, without copies."""
    both = found.flat(some.to_dataset(name="some").assign(of=of.notnull())).sum()
    return f"{int(both['some'])} of {int(both['of'])} rows" if both["of"] > 1 else "the only row"


def _note(grid: Grid, found: Grid, rule: Criterion, over: tuple[str, ...], lost: int) -> str:
    """Sentences about the choice: its data, what is equal or was left out, and its privacy."""
    cells, seeds, proven = found.cells, grid.ds.sizes["seed"], found.cells["proven"]
    kinds = "values" if len(over) == 1 else "combinations"
    names = " and ".join({"lr": "lr (step size)"}.get(name, name) for name in over)
    runs = f" with {seeds} seeds each" * (seeds > 1)
    runs += " so far" * bool((grid.cells["ran"] < seeds).any())
    held, priced = _held_out(grid, rule), _priced(grid, found, over)
    data = f" on {held} data" if held else " on the private data"
    data *= not rule.metric.startswith("validation_")
    most = f"the best of {cells['candidates'].max()} {kinds} of {names}{runs}"
    said = [f"Shown is {most}, by the {rule.words}{data}"]
    if found.ds["equal"].any():
        where = _share(found, found.ds["equal"] > 0, found.ds["score"])
        first = "smallest" if all(map(grid.numeric, over)) else "first"
        first = "one of lowest loss" if rule.metric.endswith("accuracy") else first
        said.append(f"In {where} another is as good, and the {first} is shown")
    if proven.any():
        reads = f"and nothing protects the {held} records"
        reads = reads if held else "which reads exact values of the training records"
        said.append(f"The eps of one run does not cover this choice, {reads}")
    if lost:
        why = f"a seed diverged, or ended above {AWAY:,} times its first loss"
        out = "step size" if over == ("lr",) else kinds.removesuffix("s")
        left = f"{plural(lost, out)} of a row {'was' if lost == 1 else 'were'} left out"
        said.append(f"At most {left} because {why}")
    if proven.any() and publishing(found)[1]:
        said.append(SHARED)
    elif priced:
        every = cells["eps_of_choice"][proven]
        eps, many = span(every, bounds=True), listed(cells["candidates"][proven] * seeds, " or ")
        each = ", which the table has of each row" * (every.nunique() > 1)
        way, of = (", and the choice,", " for the training records") if held else ("", "")
        said.append(f"Publishing all {many} runs of a row{way} has a proven eps of {eps}{of}{each}")
        exact = "losses and accuracies of the training data, which are exact"
        exact *= measured_on(grid.about) == "training"
        if rest := " or ".join(filter(None, ["the choice" * (not held), exact])):
            said.append(f"That eps does not cover {rest}")
    return ". ".join(said) + "."


def _held_out(grid: Grid, rule: Criterion) -> str:
    """The data outside the proof whose metric chooses, such as "validation"; "" for training data."""
    if rule.metric.startswith(OF_TEST):
        return "test"
    on = measured_on(grid.about)
    on = "validation" if rule.metric.startswith("validation_") else on
    return on * (on != "training")


def _priced(grid: Grid, found: Grid, over: tuple[str, ...]) -> bool:
    """Whether the sweep computed the eps of publishing all runs of each row, with noise of their own."""
    cells, proven = found.cells, found.cells["proven"]
    if not proven.any() or publishing(found)[1] or grid.about.get("repeated"):
        return False
    counts = cells["candidates"][proven] * grid.ds.sizes["seed"]
    return {*over} == {*TUNED} & {*grid.axes} and bool((cells["tried"][proven] == counts).all())
