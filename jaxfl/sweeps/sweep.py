"""Running a grid: planned, compiled, computed chunk by chunk, kept as it comes."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.errors import InputError
from jaxfl.hyper import NOISES, whole
from jaxfl.loop import Extra, Metric
from jaxfl.record import settings
from jaxfl.results import check_name, save
from jaxfl.schedules import Schedule
from jaxfl.sweeps import engine
from jaxfl.sweeps.fit import budget, cadence, fit, predicted
from jaxfl.sweeps.gather import dataset, finish
from jaxfl.sweeps.grid import Build, Grid, Problems, lay_out
from jaxfl.sweeps.look import Look, Plan, Progress
from jaxfl.sweeps.plan import Chunk, Program, programs
from jaxfl.sweeps.store import Arrays, Store
from jaxfl.types import Info, Key

if TYPE_CHECKING:
    import xarray

__all__ = ["sweep"]

SAME = ("algorithm", "parts", "problem", "model", "data", "objective", "dtype")


def sweep(
    build: Build,
    grid: Mapping[str, Sequence[Any]],
    problem: Problems,
    key: Key | None = None,
    rounds: int | None = None,
    *,
    seeds: int | Sequence[int] = 1,
    numbers: Mapping[str, Any] | None = None,
    eval_every: int | None = None,
    metrics: Mapping[str, Metric] | None = None,
    noise: str = "calibrated",
    paired: bool = True,
    out: str | Path | None = None,
    resume: bool = False,
    memory: int | None = None,
    runs_at_once: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    announce: Callable[[Plan], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> xarray.Dataset:
    """Every run of a grid, as one labelled dataset.

    ``build`` is an algorithm, its name, several of them, or a function of static axes that returns
    one; ``problem`` a problem, several by name, or a function likewise.  ``grid`` has the axes: what
    ``build`` or ``problem`` take by name is static, and each of its values a compilation; everything
    else is a number of the algorithms (also ``rounds``, and schedules such as ``"cosine:0.3"``), and
    all cells run in one program.  Algorithms without a number run once along its axis.
    ``numbers`` are the same for all cells, and what nobody gives comes from each cell's theory.

    Seed s is the run that :func:`simulate` makes with ``fold_in(key, s)``, or without ``key`` with
    ``jax.random.key(s)``: all cells of a seed share their draws, so that they differ by what was
    asked about and not by luck.  ``paired=False`` gives every cell draws of its own.

    The grid is run in chunks that fit in ``memory`` bytes (default: most of what is free on
    ``devices``, by default all local ones).  ``out`` is a folder in which every finished chunk is
    kept and ``result.nc`` written; with ``resume`` what is in it is not computed again.  On several
    hosts (`jax.distributed`) each takes its share of the chunks, in one folder that all can reach.
    A run that diverges is frozen, marked by ``diverged_at``, and touches no other.
    """
    began = time.perf_counter()
    if rounds is not None:
        rounds = whole("rounds", rounds, 1)
    if eval_every is not None:
        eval_every = whole("eval_every", eval_every, 0)
    if noise not in NOISES:
        raise InputError(f"noise = {noise!r} has to be one of {', '.join(NOISES)}.")
    extra = tuple(sorted((metrics or {}).items()))
    for name, _ in extra:
        check_name(name)
    laid = lay_out(build, grid, problem, rounds, seeds, dict(numbers or {}), noise)
    keys = _keys(key, laid.seeds)
    hosts = jax.process_count()
    if hosts > 1 and out is None:
        raise InputError(f"A sweep on {hosts} hosts needs out=, a folder that all can reach.")
    chosen = list(devices or jax.local_devices())
    made = programs(laid)
    store = Store(Path(out) if out is not None else None)
    about = _about(laid, made, keys, extra, eval_every, paired, noise)
    leader = jax.process_index() == 0
    if leader:
        held = store.claim(resume)
    _meet("claimed", hosts)
    if not leader:
        held = store.claim(True) if resume else None
    available = budget(memory, chosen)
    if held is None:
        compiled, todo = fit(laid, made, extra, eval_every, paired, chosen, available, runs_at_once)
        plan = {
            "shapes": [c.shape for c in compiled],
            "chunks": [[c.program, list(c.cells), list(c.seeds)] for c in todo],
        }
        if leader:
            store.begin({**about, "plan": plan}, predicted(laid, made, extra, eval_every))
    else:
        _same(store, held, about)
        todo = [Chunk(p, tuple(c), tuple(s)) for p, c, s in held["plan"]["chunks"]]
        compiled = [
            engine.compiled(
                program, tuple(shape), extra, cadence(program, None, eval_every), paired, chosen
            )
            for program, shape in zip(made, held["plan"]["shapes"], strict=True)
        ]
    _meet("begun", hosts)
    there = [store.read(i) is not None for i in range(len(todo))]
    if announce is not None:
        announce(_plan(laid, made, compiled, there, available))
    mine = [i for i in range(len(todo)) if not there[i] and i % hosts == jax.process_index()]
    look = Look(made, [todo[i] for i in mine], laid.seeds, progress)
    placed: tuple[int, Any] = (-1, None)
    for i in mine:
        chunk = todo[i]
        program, run = made[chunk.program], compiled[chunk.program]
        if placed[0] != chunk.program:
            placed = chunk.program, engine.placed_problem(program, run)
        given = engine.inputs(program, chunk, run, keys, paired)
        every = cadence(program, chunk, eval_every)
        store.write(i, _compute(program, chunk, run, given, placed[1], every, look))
    _meet("computed", hosts)
    found = [(chunk, store.read(i)) for i, chunk in enumerate(todo)]
    ds = dataset(
        laid,
        made,
        found,
        {
            "ended": "finished" if all(arrays is not None for _, arrays in found) else "unfinished",
            "paired": paired,
            "noise": noise,
            "rounds": rounds,
            "numbers": {name: str(value) for name, value in (numbers or {}).items()},
            "settings": settings(laid.studies[0].algorithm, laid.studies[0].problem, keys[0]),
            "facts": _facts(laid),
            "compilations": len(compiled),
            "chunks": len(todo),
            "compile_seconds": sum(c.seconds for c in compiled),
            "seconds": time.perf_counter() - began,
        },
    )
    if store.folder is not None and jax.process_index() == 0:
        save(ds, store.result)
    _meet("written", hosts)
    return ds


# --- a chunk -------------------------------------------------------------------------------------


def _compute(
    program: Program,
    chunk: Chunk,
    run: engine.Compiled,
    given: Any,
    problem: Any,
    every: int,
    look: Look,
) -> Arrays:
    """All rounds of a chunk, evaluated at the cadence."""
    T = look.rounds(chunk)
    keys, hp = given
    state = engine.blank(run)
    totals = _Totals()
    rounds: list[int] = []
    metrics: list[dict[str, Any]] = []
    t = end = 0
    while True:
        state, begun, counts, measured = run.call(
            keys, state, hp, jnp.bool_(not rounds), jnp.int32(t), jnp.int32(end), problem
        )
        totals.add(counts if rounds else jax.tree.map(lambda a: a[..., None], begun))
        t = end
        if t == T or not rounds or (every and t % every == 0):
            rounds.append(t)
            metrics.append(measured)
            totals.mark()
            if look.at(chunk, t, measured["loss"]):
                break  # nothing is left that is finite
        if t == T:
            break
        end = min([T, t + run.length] + ([t - t % every + every] if every else []))
    arrays = finish(program, chunk, rounds, metrics, totals.series())
    look.finished(chunk)
    return arrays


class _Totals:
    """Running sums of counts at the evaluated rounds; what the device returns is read in batches."""

    def __init__(self) -> None:
        self.waiting: list[Info] = []
        self.marks: list[int] = []  # how many of the waiting come before each evaluation
        self.sum: list[Any] = [0] * len(Info._fields)
        self.rows: list[list[Any]] = []

    def add(self, counts: Info) -> None:
        self.waiting.append(counts)
        if len(self.waiting) >= 64:
            self.read()

    def mark(self) -> None:
        self.marks.append(len(self.waiting))

    def read(self) -> None:
        seen = 0
        for mark in self.marks:
            self.fold(self.waiting[seen:mark])
            self.rows.append(list(self.sum))
            seen = mark
        self.fold(self.waiting[seen:])
        self.waiting, self.marks = [], []

    def fold(self, some: list[Info]) -> None:
        for info in some:
            for i, a in enumerate(info):
                self.sum[i] = self.sum[i] + np.sum(np.asarray(a), axis=-1, dtype=np.int64)

    def series(self) -> Arrays:
        self.read()
        return {
            name: np.stack([row[i] for row in self.rows], axis=-1).astype(np.float64)
            for i, name in enumerate(Info._fields)
        }


# --- what it is, and where it runs ---------------------------------------------------------------


def _keys(key: Key | None, seeds: Sequence[int]) -> list[Key]:
    """The key of each seed's runs."""
    if key is None:
        return [jax.random.key(seed) for seed in seeds]
    if not isinstance(key, jax.Array) or not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise InputError(f"key = {key!r} has to be a typed key: make it with jax.random.key(seed).")
    if key.shape != ():
        raise InputError(f"key has shape {key.shape}: a sweep takes one key, and seeds= beside it.")
    return [jax.random.fold_in(key, seed) for seed in seeds]


def _about(
    grid: Grid,
    made: Sequence[Program],
    keys: Sequence[Key],
    extra: Extra,
    eval_every: int | None,
    paired: bool,
    noise: str,
) -> dict[str, Any]:
    """Everything that decides the numbers of a sweep, as its manifest holds it."""
    studies = []
    for study in grid.studies:
        told = settings(study.algorithm, study.problem, keys[0])
        cells = [f"{cell.label} {sorted(_words(cell.values).items())}" for cell in study.cells]
        studies.append({name: told[name] for name in SAME} | {"cells": _sum(cells)})
    axes = {axis.name: list(axis.labels) for axis in (*grid.static, *grid.numbers)}
    return {
        "axes": axes,
        "seeds": list(grid.seeds),
        "keys": [np.asarray(jax.random.key_data(key)).tolist() for key in keys],
        "metrics": [name for name, _ in extra],
        "eval_every": eval_every,
        "paired": paired,
        "noise": noise,
        "studies": studies,
        "programs": [[program.study, len(program.cells)] for program in made],
    }


def _words(values: Mapping[str, Any]) -> dict[str, str]:
    """Numbers to nine digits: calibration may differ in the last ones between machines."""
    return {
        name: str(value) if isinstance(value, Schedule) else f"{float(value):.9g}"
        for name, value in values.items()
    }


def _sum(words: Sequence[str]) -> str:
    return f"{zlib.crc32(chr(10).join(words).encode()):08x} of {len(words)}"


def _same(store: Store, held: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Refuse to go on with another sweep's chunks."""
    now = json.loads(json.dumps(about, default=str))
    for name, mine in now.items():
        if held.get(name) != mine:
            raise InputError(
                f"{store.folder} holds another sweep: its {name} is {_short(held.get(name))}, this "
                f"one's {_short(mine)}: name another folder, or make the sweep as it was."
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _plan(
    grid: Grid,
    made: Sequence[Program],
    compiled: Sequence[engine.Compiled],
    there: Sequence[bool],
    available: int,
) -> Plan:
    lines = tuple(
        f"{p.algorithm.name} on {p.problem.name}: {len(p.cells)} cells x {len(grid.seeds)} seeds, "
        f"{c.shape[0] * c.shape[1]} runs at once in {c.bytes / 2**20:,.0f} MiB"
        for p, c in zip(made, compiled, strict=True)
    )
    return Plan(
        grid.runs,
        len(compiled),
        sum(c.seconds for c in compiled),
        len(there),
        sum(there),
        max(c.bytes for c in compiled),
        available,
        lines,
    )


def _facts(grid: Grid) -> dict[str, Any]:
    """n, d and the like where all problems agree, and of each problem where there is an axis of them."""
    each = []
    for study in grid.studies:
        facts = study.cells[0].facts
        each.append({"n": facts.n, "m": facts.m, "m_max": facts.m_max, "d": facts.d})
    out: dict[str, Any] = {
        name: value for name, value in each[0].items() if all(one[name] == value for one in each)
    }
    for i, axis in enumerate(grid.static):
        if axis.name == "problem":
            out |= {
                str(axis.labels[study.place[i]]): facts
                for study, facts in zip(grid.studies, each, strict=True)
            }
    return out


def _meet(where: str, hosts: int) -> None:
    """Wait until all hosts have come here."""
    if hosts > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(f"jaxfl sweep: {where}")
