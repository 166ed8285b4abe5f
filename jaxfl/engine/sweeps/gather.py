"""Merge chunks into one labelled dataset."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Algorithm, Info, Key, Origin
from jaxfl.engine import results
from jaxfl.engine.log import Log
from jaxfl.engine.record import ROUNDING, exceeds, largest_gradient, totals
from jaxfl.engine.sweeps.engine import DECILES, FEW
from jaxfl.engine.sweeps.grid import TUNED, Cell, Grid, Study
from jaxfl.engine.sweeps.plan import Chunk, Program
from jaxfl.engine.sweeps.store import Arrays
from jaxfl.privacy import reports
from jaxfl.privacy.events import released
from jaxfl.privacy.selection import best_of
from jaxfl.rounds.blocks import start

if TYPE_CHECKING:
    import xarray

__all__ = ["LABELS", "REPORTED", "dataset", "finish"]

Array: TypeAlias = npt.NDArray[Any]

LABELS = {
    "seed": ("1", "seed"),
    "last_round": ("round", "the run's number of rounds"),
    "diverged_at": ("round", "first evaluated round at which the run was not finite"),
    "complete": ("1", "whether the run has finished"),
    "proven_eps": ("1", "eps that an accountant proves for one run"),
    "claimed_eps": ("1", "eps that the paper's formula claims for this noise"),
    "delta": ("1", "delta of both eps"),
    "delta_of_eps": ("1", "delta of both eps, where delta is an axis"),
    "delta_at_claimed": ("1", "delta proven at the claimed eps"),
    "flag": (
        "1",
        "whether the proven eps exceeds the claimed one by more than 1 %, or a bound does not hold",
    ),
    "broken": ("1", "largest norm of an example's gradient at x0 where it breaks gradient_bound"),
    "n": ("1", "clients of the problem"),
    "tried": ("1", "runs among which a step size is selected: steps and shifts times seeds"),
    "eps_of_choice": (
        "1",
        "eps proven for the release of all these runs; none if they share noise",
    ),
    "stated": ("1", "whether the user states the event, which nobody checked"),
    "noisy": ("1", "whether the algorithm adds noise; without, nothing is private"),
}
SINGLE_RUN = ("round", "client", "coordinate", "eps_spent", "x")  # only in results of single runs
# Names that no axis can have; where delta is an axis, the result has delta_of_eps.
REPORTED = frozenset(
    {
        *(name for name in LABELS if name not in ("seed", "delta")),
        *(n for n in results.LABELS if n not in SINGLE_RUN and not n.startswith("client_")),
        *("score", "score_error", "candidates", "found", "warned"),
    }
)
PROOF = ("claimed_eps", "delta", "delta_at_claimed", "tried", "eps_of_choice", "broken")
WHOLE = ("seed", "last_round", "complete", "flag", "noisy", "n", "stated")


def finish(chunk: Chunk, rounds: Sequence[int], log: Log) -> Arrays:
    """The arrays of a chunk: metrics and running totals at its evaluated ``rounds``.

    A run is NaN from the first evaluation at which its loss is not finite.  If no run is finite, the
    log may end early.
    """
    tall, wide = len(chunk.seeds), len(chunk.cells)
    entries = [{**entry.metrics, **entry.counts} for entry in log.entries]
    missing = len(rounds) - len(entries)
    series = {name: [entry[name] for entry in entries] for name in entries[0]}
    out: Arrays = {}
    for name, rows in series.items():
        stacked = np.stack(rows + rows[-1:] * missing, axis=2)[:tall, :wide]
        out[name] = results.portable(name, stacked)
    lost = ~np.isfinite(out["loss"])
    first = np.where(lost.any(-1), lost.argmax(-1), len(rounds))
    gone = np.arange(len(rounds)) >= first[..., None]
    for name, values in out.items():
        kind = np.result_type(values.dtype, np.float32)
        lost = gone.reshape(*gone.shape, *[1] * (values.ndim - gone.ndim))
        out[name] = np.where(lost, np.nan, values.astype(kind)).astype(kind)
    at = np.asarray([*rounds, -1], np.float64)[first]
    out["rounds"] = np.asarray(rounds, np.int32)
    return {**out, "diverged_at": np.where(at < 0, np.nan, at)}


def dataset(
    grid: Grid,
    programs: list[Program],
    found: Iterable[tuple[Chunk, Arrays | None]],
    keys: Sequence[Key],
    about: Mapping[str, Any],
) -> xarray.Dataset:
    """The whole grid; cells of missing chunks are NaN and not ``complete``.

    ``keys`` are those of the seeds.  If ``about["paired"]``, all runs of a seed share their noise.
    """
    import xarray

    pairs = list(found)
    axes = (*grid.static, *grid.numbers)
    cells = tuple(len(axis.values) for axis in axes)
    runs = (*cells, len(grid.seeds))
    ticks = sorted({int(r) for _, arrays in pairs if arrays for r in arrays["rounds"]} or {0})
    data: dict[str, tuple[tuple[str, ...], Array]] = {}
    names = tuple(axis.name for axis in axes)

    def variable(name: str, dims: tuple[str, ...], shape: tuple[int, ...], blank: float) -> Array:
        if name not in data:
            data[name] = (dims, np.full(shape, blank))
        return data[name][1]

    every, per_run = (*names, "seed", "round"), (*names, "seed")
    alike = len({study.problem.n for study in grid.studies}) == 1
    for chunk, arrays in pairs:
        program = programs[chunk.program]
        study = grid.studies[program.study]
        for j, cell in enumerate(program.cells[j] for j in chunk.cells):
            where = _where(study, cell)
            for i, seed in enumerate(program.seeds[s] for s in chunk.seeds):
                variable("last_round", per_run, runs, -1)[(*where, seed)] = cell.facts.rounds
                variable("complete", per_run, runs, 0)[(*where, seed)] = arrays is not None
                lost = variable("diverged_at", per_run, runs, np.nan)
                if arrays is None:
                    continue
                lost[(*where, seed)] = arrays["diverged_at"][i, j]
                at = np.searchsorted(ticks, arrays["rounds"])
                for name, row in _series(study.algorithm, cell, arrays, i, j):
                    more: tuple[str, ...] = ()
                    if row.ndim > 1:
                        row, more = _of_clients(row, study.problem.n, alike)
                    full = np.full((len(ticks), *row.shape[1:]), np.nan)
                    full[at] = row
                    shape = (*runs, *full.shape)
                    variable(name, (*every, *more), shape, np.nan)[(*where, seed)] = full
    longer = {id(cell): p.paced for p in programs if p.begun for cell in p.cells}
    steepest = {study.place: _steepest(study, keys) for study in grid.studies}
    for study in grid.studies:
        for cell in study.cells:
            where = _where(study, cell)
            tried = _tried(grid, cell)
            shared = about["paired"] and tried > len(grid.seeds)
            clamped = np.nan_to_num(data["clamped"][1][where]).max() if "clamped" in data else 0.0
            seen = cell._replace(values={**cell.values, "clamped": float(clamped)})
            begun = longer.get(id(cell), 0)
            facts = _facts(study, seen, tried, shared, steepest[study.place], begun)
            for name, number in facts.items():
                name = "delta_of_eps" if name == "delta" and name in names else name
                variable(name, names, cells, np.nan)[where] = number
    for i, axis in enumerate(grid.numbers):
        applies = np.array([study.cells[0].place[i] is not None for study in grid.studies])
        if not applies.all():
            shape = cells[: len(grid.static)]
            data[f"applies_{axis.name}"] = (names[: len(shape)], np.ones(shape))
            for study, does in zip(grid.studies, applies, strict=True):
                data[f"applies_{axis.name}"][1][study.place] = does

    coords: dict[str, Any] = {axis.name: (axis.name, list(axis.labels)) for axis in axes}
    coords["seed"] = ("seed", list(grid.seeds))
    coords["round"] = ("round", np.asarray(ticks, np.int32))
    dims = {dim for of, _ in data.values() for dim in of}
    if "client" in dims:
        problem = grid.studies[0].problem
        coords["client"] = ("client", results.clients_of(problem))
    if "quantile" in dims:
        coords["quantile"] = ("quantile", np.asarray(DECILES))
    out = xarray.Dataset(data, coords)
    for key in list(out.variables):
        out[key] = _compact(str(key), out[key])
        units, words = _label(str(key), grid)
        out[key].attrs.update(units=units, long_name=words)
    if "utility" in out:
        out["utility"].attrs["comment"] = (
            "average over the evaluated rounds so far, round 0 included"
        )
    spans = {
        axis.name: {"values": list(axis.labels), "static": axis.static, "problem": axis.posed}
        for axis in axes
    }
    said = {"proofs": [_said(study) for study in grid.studies if study.standing.why]}
    text = {"format": results.FORMAT, "kind": "sweep", "axes": spans, **said, **about}
    out.attrs["config"] = json.dumps(results.plain(text), ensure_ascii=False, default=str)
    return out


def _said(study: Study) -> dict[str, Any]:
    """The runs of which nothing is proven, by their place on the static axes, and why."""
    return {"place": list(study.place), "kind": study.standing.kind, "why": study.standing.why}


def _of_clients(rows: Array, n: int, alike: bool) -> tuple[Array, tuple[str]]:
    """A metric of n clients by :func:`~jaxfl.engine.sweeps.engine.kept`, and its dimension.

    Where problems are not ``alike`` in their number of clients, deciles can be compared.
    """
    if n > FEW or alike:
        return rows, ("client" if n <= FEW else "quantile",)
    return np.nanquantile(rows, DECILES, axis=1).T, ("quantile",)


def _where(study: Study, cell: Cell) -> tuple[Any, ...]:
    """The index of a cell; all positions along an axis that does not apply to it."""
    return (*study.place, *(slice(None) if i is None else i for i in cell.place))


def _series(
    algorithm: Algorithm, cell: Cell, arrays: Arrays, i: int, j: int
) -> Iterable[tuple[str, Array]]:
    """The variables of one run with a value at each evaluated round."""
    skip = {"rounds", "diverged_at", *Info._fields}
    for name in arrays.keys() - skip:
        yield name, arrays[name][i, j]
    square = arrays["grad_norm_sq"][i, j].astype(np.float64)
    yield "utility", np.cumsum(square) / np.arange(1, len(square) + 1)
    counts = {name: arrays[name][i, j] for name in Info._fields}
    spent = totals(algorithm.cost(cell.values, cell.facts), counts)
    for name, row in results.labelled(spent).items():
        yield name, np.asarray(row)


def _tried(grid: Grid, cell: Cell) -> int:
    """The number of runs among which a step size is selected, seeds included."""
    tuned = [
        len(axis.values)
        for axis, i in zip(grid.numbers, cell.place, strict=True)
        if axis.name in TUNED and i is not None
    ]
    return math.prod(tuned) * len(grid.seeds)


def _steepest(study: Study, keys: Sequence[Key]) -> float:
    """The largest norm of an example's gradient at the initial models, if a cell states a bound."""
    if not any("gradient_bound" in cell.values for cell in study.cells):
        return math.nan
    starts = {id(x): x for x in (start(key, study.problem) for key in keys)}
    return max(float(largest_gradient(study.problem, x)) for x in starts.values())


def _facts(
    study: Study, cell: Cell, tried: int, shared: bool, steepest: float, begun: int
) -> dict[str, float]:
    """The hyper-parameters of a cell, and the privacy of one run and of all runs tried.

    The slots of a batch are those of ``begun`` rounds, if its runs were to end there.  Nothing is
    proven for several runs with ``shared`` noise, which cancels in their difference.
    """
    algorithm = study.algorithm
    out = {
        f"used_{name}": float(value)
        for name, value in cell.values.items()
        if not isinstance(value, Schedule) and name != "clamped"
    }
    noisy = results.noisy(algorithm, cell.values)
    out |= dict.fromkeys(PROOF, math.nan)
    out |= {"noisy": float(noisy), "n": float(cell.facts.n), "stated": 0.0}
    if not noisy:
        return {**out, "proven_eps": math.inf, "flag": 0.0}
    facts = cell.facts._replace(rounds=begun) if begun else cell.facts
    event = released(algorithm, cell.values, facts, study.standing)
    claim = algorithm.claim(cell.values, cell.facts)
    report = _report(event, claim, float(cell.values.get("delta", 1e-5)))
    given = {
        "proven_eps": report.proven,
        "claimed_eps": report.claimed,
        "delta": report.delta,
        "delta_at_claimed": report.delta_at_claimed,
    }
    out |= {name: float(number) for name, number in given.items() if number is not None}
    choice = math.inf if shared else _choice(event, tried, report.delta)
    out |= {"tried": float(tried), "eps_of_choice": choice}
    out["stated"] = float(study.standing.kind == "stated")
    above = _asked(cell) and exceeds(cell.values["eps"], report.proven)
    broken = steepest > cell.values.get("gradient_bound", math.inf) * (1 + ROUNDING)
    if broken:
        out["broken"] = steepest
    return {**out, "flag": float(report.flag or broken or bool(above))}


def _asked(cell: Cell) -> bool:
    """Whether the noise of a cell was to prove its eps."""
    source = cell.sources.get("eps")
    return source is not None and source.origin in (Origin.GIVEN, Origin.DEFAULT)


@functools.lru_cache(maxsize=4096)
def _report(event: Any, claim: Any, delta: float) -> Any:
    """A report, computed once for cells that differ in the step size."""
    return reports.report(event, claim, delta)


@functools.lru_cache(maxsize=4096)
def _choice(event: Any, runs: int, delta: float) -> float:
    """The eps of releasing all runs of a selection, each with its own noise."""
    return float(best_of(event, runs, delta).eps)


def _compact(name: str, values: Any) -> Any:
    """Integers as int32; the rest stays float64."""
    whole = name in WHOLE or name.startswith("applies_")
    return values.astype(np.int32) if whole else values


def _label(name: str, grid: Grid) -> tuple[str, str]:
    if name in results.LABELS or name in LABELS:
        return {**results.LABELS, **LABELS}[name]
    if name.startswith("used_"):
        return "1", f"{name.removeprefix('used_')} that was used"
    if name.startswith("applies_"):
        return "1", f"whether the algorithm has {name.removeprefix('applies_')}"
    docs = {param.name: param.doc for study in grid.studies for param in study.algorithm.params}
    return "1", docs.get(name, name.replace("_", " "))
