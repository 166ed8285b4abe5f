"""Make one labelled data set of the runs of a grid, or of a single run."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Info, Problem
from jaxfl.engine import results, stopping
from jaxfl.engine.grid import TUNED, Cell, Grid, Study
from jaxfl.engine.ledger import differing
from jaxfl.engine.log import Entry, Log
from jaxfl.engine.plan import Chunk, Options
from jaxfl.engine.planned import Planned
from jaxfl.engine.program import DECILES, FEW
from jaxfl.engine.runs import DONE, LOST, Reached, Record, noisy, published, settings, totals
from jaxfl.engine.store import OUTSIDE, Arrays
from jaxfl.privacy.events import PROTECTED, Kind, protects
from jaxfl.privacy.reports import Report
from jaxfl.privacy.selection import best_of
from jaxfl.privacy.statements import IN_SHORT, in_short
from jaxfl.rounds.blocks import start

if TYPE_CHECKING:
    import xarray

__all__ = [
    "ACCOUNTED",
    "REPORTED",
    "SKIPPED",
    "accounted",
    "clients_of",
    "dataset",
    "record_of",
    "single",
]

Array: TypeAlias = npt.NDArray[Any]
SERIES: TypeAlias = tuple[str, tuple[str, ...], Array]

ACCOUNTED = 25  # rounds for which eps is computed: an accountant may take 50 ms for each
# Names that no axis can have; where delta is an axis, the result has delta_of_eps.
REPORTED = frozenset(
    {
        *(name for name in results.LABELS if name not in ("seed", "delta", "client", "coordinate")),
        *("score", "score_error", "candidates", "found", "warned", "x"),
    }
)
SKIPPED = {"rounds", "diverged_at", "stopped_at", "ended", "seconds", OUTSIDE, "x", *Info._fields}
PROOF = ("claimed_eps", "delta", "delta_at_claimed", "tried", "eps_of_choice", "broken", *IN_SHORT)
WHOLE = ("seed", "last_round", "complete", "flag", "noisy", "n", "stated", "protects")


def dataset(
    planned: Planned, found: Mapping[int, Arrays | None], about: Mapping[str, Any]
) -> xarray.Dataset:
    """The whole grid, with these arrays of its chunks; runs of missing ones are NaN and not ``complete``.

    Dimensions: the axes, ``seed``, ``round`` (those at which metrics were taken), ``client``,
    ``coordinate``.  ``utility`` is what the papers plot, the average of ``grad_norm_sq`` over the
    evaluated rounds so far; totals count from the start, over all clients.
    """
    import xarray

    grid, options = planned.grid, planned.options
    table = _Table(grid, found.values())
    alike = len({study.problem.n for study in grid.studies}) == 1
    runs: dict[Any, list[Record]] = {}  # by the place of their cell
    for number, arrays in found.items():
        chunk, cells = planned.chunks[number], planned.program(number).cells
        study = planned.study(chunk)
        for (j, c), (i, seed) in itertools.product(enumerate(chunk.cells), enumerate(chunk.seeds)):
            cell, at = cells[c], (i, j)
            where = (*_where(study, cell), seed)
            table.put("last_round", where, cell.rounds, blank=-1)
            table.put("complete", where, arrays is not None, blank=0)
            for name in ("diverged_at",) if options.stop is None else ("diverged_at", "stopped_at"):
                table.put(name, where, math.nan if arrays is None else arrays[name][at])
            record = record_of(planned, chunk, arrays, at)
            runs.setdefault((study.place, cell.place), []).append(record)
            if arrays is not None:
                for name, dims, values in _variables(record, arrays, at, options, alike):
                    table.put(name, where, values, dims, arrays["rounds"])
    proofs = []
    for study in grid.studies:
        starts, reasons = _starts(planned, study), [study.standing.why]
        for cell in study.cells:
            mine = runs[study.place, cell.place]
            facts, why = _facts(planned, cell, mine, starts)
            reasons += [why] * (not study.standing.why)
            for name, value in facts.items():
                name = "delta_of_eps" if name == "delta" and name in table.axes else name
                table.put(name, _where(study, cell), value)
        kind, said = study.standing.kind, filter(None, dict.fromkeys(reasons))
        proofs += [{"place": list(study.place), "kind": kind, "why": why} for why in said]
    for i, axis in enumerate(grid.numbers):
        does = {study.place: study.cells[0].place[i] is not None for study in grid.studies}
        for place, applies in {} if all(does.values()) else does.items():
            table.put(f"applies_{axis.name}", place, applies, blank=1)
    out = xarray.Dataset(table.data, _coordinates(table, planned, alike))
    _label(out, planned)
    spans = {
        axis.name: {"values": list(axis.labels), "static": axis.static, "problem": axis.posed}
        for axis in grid.axes
    }
    parts = [(list(study.place), dict(study.algorithm.parts)) for study in grid.studies]
    bits = [{"place": place, "why": own["bits"]} for place, own in parts if "bits" in own]
    notes = {"axes": spans, "proofs": proofs, "bits": bits}
    text = {"format": results.FORMAT, "kind": "sweep", **notes, **about}
    out.attrs["config"] = json.dumps(results.plain(text), ensure_ascii=False, default=str)
    return out


def single(ds: xarray.Dataset, record: Record, report: Report | None) -> xarray.Dataset:
    """The data set of one run: that of its grid without axes, and all that is known of the run."""
    about = results.config(ds)
    ds = ds.isel(dict.fromkeys([*about.pop("axes"), "seed"], 0), drop=True)
    del about["proofs"], about["bits"], about["kind"]
    privacy = report and {
        **{name: value for name, value in report._asdict().items() if name != "event"},
        "protects": protects(report.event),
        "noise_multiplier": report.multiplier,
    }
    about |= {
        "values": record.values,
        "sources": record.sources,
        "facts": record.facts._asdict(),
        "settings": published(record.settings, record.key),
        "seconds": record.seconds,
        "compile_seconds": record.compile_seconds,
        "ended": record.ended,
        "privacy": privacy,
    }
    ds.attrs["config"] = json.dumps(results.plain(about), ensure_ascii=False, default=str)
    return ds


# --- one run -------------------------------------------------------------------------------------


def record_of(
    planned: Planned, chunk: Chunk, arrays: Arrays | None, at: tuple[int, int] = (0, 0)
) -> Record:
    """The record of the run at this place in the arrays of a chunk; its state holds the round alone."""
    study, program = planned.study(chunk), planned.programs[chunk.program]
    cell = program.cells[chunk.cells[at[1]]]
    rounds, ended, log = cell.rounds, "unfinished", Log()
    if arrays is not None:
        lost, stopped, why = (arrays[name][at] for name in ("diverged_at", "stopped_at", "ended"))
        rounds = int(stopped) if why else cell.rounds
        ended = LOST.format(int(lost)) if lost == lost else str(why) or DONE
        counts = {name: arrays[name][at] for name in Info._fields}
        seen = np.flatnonzero(np.isfinite(counts["clients"]))
        if "eps_spent" not in planned.options.keep:
            seen = seen[-1:]
        rows = [{name: int(a[k]) for name, a in counts.items()} for k in seen]
        ticks = arrays["rounds"][seen].tolist()
        log = Log([Entry(t, {}, row) for t, row in zip(ticks, rows, strict=True)])
    about = {
        **settings(study.algorithm, study.problem, study.standing),
        "eval_every": chunk.every,
        "until": cell.rounds,
        "matmul_precision": planned.options.matmul_precision,
    }
    about |= {"stop": list(chunk.rules)} if chunk.rules else {}
    if planned.options.metrics_on != "train":
        about["metrics_on"] = planned.options.metrics_on
    record = Record(
        study.algorithm,
        study.problem,
        planned.keys[chunk.seeds[at[0]]],
        cell.values,
        cell.sources,
        cell.facts,
        Reached(np.int32(rounds)),
        log,
        about,
        ended=ended,
    )
    if arrays is not None and "x" in arrays and "gradient_bound" in cell.values:
        record.points = ((rounds, jnp.asarray(arrays["x"][at])),)
    return record


def _variables(
    record: Record, arrays: Arrays, at: tuple[int, int], options: Options, alike: bool
) -> Iterable[SERIES]:
    """The variables of one run, their own dimensions, and values; rounds come first."""
    n = record.problem.n
    for name in arrays.keys() - SKIPPED:
        yield name, *_dims(name, arrays[name][at], n, options, alike)
    square = arrays["grad_norm_sq"][at].astype(np.float64)
    yield "utility", ("round",), np.cumsum(square) / np.arange(1, len(square) + 1)
    counts = {name: arrays[name][at] for name in Info._fields}
    for name, row in results.labelled(totals(record.cost, counts)).items():
        yield name, ("round",), results.exact(row)
    if "x" in arrays:
        yield "x", ("coordinate",), arrays["x"][at]
    private = "eps_spent" in options.keep and noisy(record.algorithm, record.values)
    if not private or math.isinf(record.privacy().proven):
        return
    yield "eps_spent", ("round",), _eps_spent(record, arrays["rounds"])
    book = differing(record)
    if book is not None:
        yield "client_rounds", ("client",), book.turns
        yield "client_eps", ("client",), book.proven
        if book.claimed is not None:
            yield "client_eps_claimed", ("client",), book.claimed


def _dims(
    name: str, values: Array, n: int, options: Options, alike: bool
) -> tuple[tuple[str, ...], Array]:
    """The rounds first, then clients where the name says so, else axes of the metric's own."""
    if values.ndim == 1:
        return ("round",), values
    few = "clients" not in options.keep
    if few and n > FEW and values.shape[1:] == (len(DECILES),):
        return ("round", "quantile"), values
    if name.startswith("client_") and values.shape[1:] == (n,):
        if few and not alike:  # deciles can be compared
            return ("round", "quantile"), np.nanquantile(values, DECILES, axis=1).T
        return ("round", "client"), values
    return ("round", *(f"{name}_{axis}" for axis in range(values.ndim - 1))), values


def _eps_spent(record: Record, ticks: Array) -> Array:
    """eps at the evaluated rounds; of many, computed at some between which it rises about evenly."""
    rounds = np.asarray(record.log.rounds)
    some = accounted(len(rounds))
    eps = record.spent(rounds[some])
    out = np.full(len(ticks), np.nan)
    out[: len(rounds)] = eps[np.searchsorted(some, np.arange(len(rounds)))]
    return out


def accounted(evaluations: int) -> npt.NDArray[np.int64]:
    """Positions of the evaluations for which eps is computed: of many some, between which it is even."""
    last = evaluations - 1
    if last < ACCOUNTED:
        return np.arange(evaluations)
    return np.unique(np.rint(last * np.linspace(0, 1, ACCOUNTED) ** 2).astype(int))


# --- one cell ------------------------------------------------------------------------------------


def _facts(
    planned: Planned, cell: Cell, runs: Sequence[Record], starts: Sequence[Any]
) -> tuple[dict[str, float], str]:
    """The hyper-parameters of a cell, the privacy of its worst run and of all runs tried, and why there is
    none.

    Nothing is proven for several runs with shared noise, which cancels in their difference.
    """
    out = {
        f"used_{name}": float(value)
        for name, value in cell.values.items()
        if not isinstance(value, Schedule)
    }
    out |= dict.fromkeys(PROOF, math.nan)
    private = noisy(runs[0].algorithm, cell.values)
    out |= {"noisy": float(private), "n": float(cell.facts.n), "stated": 0.0, "protects": 0.0}
    if not private:
        return {**out, "proven_eps": math.inf, "flag": 0.0}, ""
    tried = _tried(planned.grid, cell)
    shared = planned.options.paired and tried > len(planned.grid.seeds)
    for run in runs:
        run.points = (*((0, x) for x in starts), *run.points)
    kinds = {(int(run.state.t), run.clamped, run.ended.startswith("diverged")): run for run in runs}
    report, record = max(
        ((run.privacy(), run) for run in kinds.values()),
        key=lambda pair: (pair[0].proven, pair[0].flag),
    )
    given = {
        "proven_eps": report.proven,
        "claimed_eps": report.claimed,
        "delta": report.delta,
        "delta_at_claimed": report.delta_at_claimed,
    }
    out |= {name: float(number) for name, number in given.items() if number is not None}
    out["protects"] = float(PROTECTED.index(protects(report.event)))
    choice = math.inf if shared else _choice(report.event, tried, report.delta)
    out |= {"tried": float(tried), "eps_of_choice": choice, **in_short(report.event, report.delta)}
    out["stated"] = 1.0 if record.standing.stated else 2.0 * (record.standing.kind == Kind.PROBED)
    losses = stopping.checks(record.settings, record.counted)
    out |= {"noisy_losses": float(sum(losses.values()))} if record.settings.get("stop") else {}
    if broken := record.broken():
        out["broken"] = max(norm for _, norm in broken)
    why = results.unproven(report.proven, report.method)
    return {**out, "flag": float(report.flag)}, why


def _tried(grid: Grid, cell: Cell) -> int:
    """The number of runs among which a step size is selected, seeds included."""
    tuned = [
        len(axis.values)
        for axis, i in zip(grid.numbers, cell.place, strict=True)
        if axis.name in TUNED and i is not None
    ]
    return math.prod(tuned) * len(grid.seeds)


def _starts(planned: Planned, study: Study) -> list[Any]:
    """The different initial models, if a cell states a bound of its gradients."""
    if not any("gradient_bound" in cell.values for cell in study.cells):
        return []
    return list({id(x): x for x in (start(key, study.problem) for key in planned.keys)}.values())


@functools.lru_cache(maxsize=4096)
def _choice(event: Any, runs: int, delta: float) -> float:
    """The eps of releasing all runs of a selection, each with its own noise."""
    return float(best_of(event, runs, delta).eps)


def _where(study: Study, cell: Cell) -> tuple[Any, ...]:
    """The index of a cell; all positions along an axis that does not apply to it."""
    return (*study.place, *(slice(None) if i is None else i for i in cell.place))


# --- arrays --------------------------------------------------------------------------------------


class _Table:
    """Variables over axes, seeds and rounds, made as their first values come."""

    def __init__(self, grid: Grid, found: Iterable[Arrays | None]) -> None:
        self.axes = {axis.name: len(axis.values) for axis in grid.axes} | {"seed": len(grid.seeds)}
        ticks = {int(r) for arrays in found if arrays for r in arrays["rounds"]}
        self.ticks = sorted(ticks or {0})
        self.data: dict[str, tuple[tuple[str, ...], Array]] = {}

    def put(
        self,
        name: str,
        where: Sequence[Any],
        values: Any,
        dims: tuple[str, ...] = (),
        rounds: Any = (),
        blank: float = math.nan,
    ) -> None:
        """Set the values of the runs at these places on the first axes.

        Their own ``dims`` follow.  If the first of these is the round, they may be some of all rounds.
        """
        values = np.asarray(values)
        if dims[:1] == ("round",) and len(rounds) != len(self.ticks):
            full = np.full((len(self.ticks), *values.shape[1:]), np.nan, values.dtype)
            full[np.searchsorted(self.ticks, rounds)] = values
            values = full
        if name not in self.data:
            axes = [*self.axes][: len(where)]
            shape = *(self.axes[axis] for axis in axes), *values.shape
            kind = np.result_type(values.dtype, np.float32) if values.ndim else np.float64
            self.data[name] = (*axes, *dims), np.full(shape, blank, kind)
        self.data[name][1][tuple(where)] = values


def _coordinates(table: _Table, planned: Planned, alike: bool) -> dict[str, Any]:
    axes, grid = planned.grid.axes, planned.grid
    coords: dict[str, Any] = {axis.name: (axis.name, list(axis.labels)) for axis in axes}
    coords["seed"] = ("seed", list(grid.seeds))
    coords["round"] = ("round", np.asarray(table.ticks, np.int32))
    dims = {dim for of, _ in table.data.values() for dim in of}
    if "client" in dims or (alike and "clients" in planned.options.keep):
        coords["client"] = ("client", clients_of(grid.studies[0].problem))
    if "quantile" in dims:
        coords["quantile"] = ("quantile", np.asarray(DECILES))
    if "coordinate" in dims:
        d = table.data["x"][1].shape[-1]
        coords["coordinate"] = ("coordinate", np.arange(d, dtype=np.int32))
    return coords


def clients_of(problem: Problem) -> Array:
    """The clients' names, or their numbers."""
    names = problem.clients.names
    return np.asarray(names) if names else np.arange(problem.n, dtype=np.int32)


# --- names and units -----------------------------------------------------------------------------


def _label(out: xarray.Dataset, planned: Planned) -> None:
    """Give each variable its type, unit and name."""
    data = planned.options.metrics_on
    stated = all(study.standing.stated for study in planned.grid.studies)
    for key in list(out.variables):
        name = str(key)
        if name in WHOLE or name.startswith("applies_"):
            out[key] = out[key].astype(np.int32)
        units, words = _words(name, planned.grid)
        if data != "train":
            words = words.replace("training", data).removesuffix(", mean over clients")
        if stated:
            words = words.replace("eps proven", "eps by the user's event, not proven,")
        out[key].attrs.update(units=units, long_name=words)
    if "protects" in out:
        out["protects"].attrs["flag_meanings"] = "; ".join(PROTECTED)
    if "utility" in out:
        out["utility"].attrs["comment"] = (
            "average over the evaluated rounds so far, round 0 included"
        )
    some = {study.problem.evaluated for study in planned.grid.studies}
    if len(some) == 1 and (k := some.pop()) is not None and data == "train" and "loss" in out:
        out["loss"].attrs["comment"] = f"on {k:,} records of each client, evenly spaced"
    if "eps_spent" in out:
        out["eps_spent"].attrs["comment"] = (
            f"at the run's delta; computed at {ACCOUNTED} of the evaluated rounds at most, the others "
            "hold the value of the next of these, which is an upper bound"
        )


def _words(name: str, grid: Grid) -> tuple[str, str]:
    if name in results.LABELS:
        return results.LABELS[name]
    if name.startswith("used_"):
        return "1", f"{name.removeprefix('used_')} that was used"
    if name.startswith("applies_"):
        return "1", f"whether the algorithm has {name.removeprefix('applies_')}"
    docs = {param.name: param.doc for study in grid.studies for param in study.algorithm.params}
    return "1", docs.get(name, name.replace("_", " "))
