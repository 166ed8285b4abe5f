"""Running a grid: planned, compiled, computed chunk by chunk, kept as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from jaxfl.algorithms.resolution import NOISES
from jaxfl.core.checks import one_key, one_path
from jaxfl.core.errors import require
from jaxfl.core.params import choice, whole
from jaxfl.core.progress import watching
from jaxfl.core.types import Info, Key
from jaxfl.engine.loop import Extra, Metric, own_metrics
from jaxfl.engine.record import settings
from jaxfl.engine.results import save
from jaxfl.engine.sweeps import engine
from jaxfl.engine.sweeps.compute import compute
from jaxfl.engine.sweeps.fit import again, budget, cadence, fit, line, predicted
from jaxfl.engine.sweeps.gather import LABELS, REPORTED, dataset
from jaxfl.engine.sweeps.grid import Build, Grid, Problems, lay_out, seeds_of
from jaxfl.engine.sweeps.identity import about, same
from jaxfl.engine.sweeps.look import Look, Plan, Progress, show
from jaxfl.engine.sweeps.placement import placement
from jaxfl.engine.sweeps.plan import Chunk, Program, programs
from jaxfl.engine.sweeps.store import Store

if TYPE_CHECKING:
    import xarray

__all__ = ["sweep"]

PREFIXES = ("used_", "applies_", "chosen_")  # of a sweep's own variables
OWN = ("algorithm", "problem", "messages", "score", "score_error", "candidates", "found")


def sweep(
    build: Build,
    grid: Mapping[str, Iterable[Any]],
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
    say: Callable[[str], None] | None = None,
    announce: Callable[[Plan], None] | None = None,
    progress: bool | Callable[[Progress], None] | None = None,
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
    asked about and not by luck.  ``paired=False`` gives every cell draws of its own.  What is drawn
    and counted never depends on other cells, chunks or devices, and the rest to rounding only.

    The grid is run in chunks that fit in ``memory`` bytes (default: most of what is free on
    ``devices``, by default all local ones, which share the runs; a problem whose clients are split
    over devices stays so).  ``out`` is a folder in which every finished chunk is kept and
    ``result.nc`` written; with ``resume`` what is in it is not computed again, and the whole is bit
    for bit what it would have been.  On several hosts (`jax.distributed`) each takes its share of
    the chunks, in one folder that all can reach.  A run that diverges is frozen, marked by
    ``diverged_at``, and touches no other.

    ``say`` gets a line before anything is compiled and before each compilation, ``announce`` the
    :class:`Plan` before the first chunk, ``progress`` what is done; True draws a bar of it.

    >>> import jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> ds = sweep(["cdp_gd", "ldp_gd"], {"eps": [1, 8], "lr": [0.1, 0.3]}, problem, rounds=5, seeds=2)
    >>> dict(ds["loss"].sizes)
    {'algorithm': 2, 'eps': 2, 'lr': 2, 'seed': 2, 'round': 6}
    """
    began = time.perf_counter()
    rounds = None if rounds is None else whole("rounds", rounds, 1)
    eval_every = None if eval_every is None else whole("eval_every", eval_every, 0)
    at_once = None if runs_at_once is None else whole("runs_at_once", runs_at_once, 1)
    choice("noise", noise, NOISES)
    lists = "must hold lists of values by name, as in {'lr': [0.1, 0.3]}"
    require(isinstance(grid, Mapping), lists, grid=grid)
    _named(grid)
    extra = _extra(metrics, grid)
    watched = watching(progress, show)
    chosen = list(jax.local_devices() if devices is None else devices)
    require(chosen, "names no device", "leave it out for all that there are", devices=chosen)
    available = budget(memory, chosen)
    seeds = seeds_of(seeds)
    keys = _keys(key, seeds)
    hosts, leader = jax.process_count(), jax.process_index() == 0
    reached = hosts == 1 or out is not None
    require(reached, f"A sweep on {hosts} hosts needs out=, a folder that all can reach")
    store = Store(one_path("out", out) if out is not None else None)
    held = store.claim(resume)
    _meet("claimed", hosts)

    laid = lay_out(build, grid, problem, rounds, seeds, dict(numbers or {}), noise)
    made = programs(laid)
    require(
        devices is None or not any(placement(p.problem, chosen).leaves for p in made),
        "The problem's clients are split over devices already",
        "leave out devices=",
    )
    told = about(laid, made, keys, extra, eval_every, paired, noise)
    say = say or (lambda line: None)
    say(
        f"{laid.runs:,} run{'s' * (laid.runs != 1)}"
        + (f", {len(made)} to compile" if len(made) > 1 else "")
    )
    how = (laid, made, extra, eval_every, paired, chosen, available, say)
    compiled: Sequence[engine.Compiled | None] = ()
    if held is None and leader:
        found, todo = fit(*how, at_once)
        plan = {"shapes": [c.shape for c in found], "chunks": [chunk[:] for chunk in todo]}
        compiled = found
        store.begin({**told, "plan": plan}, predicted(laid, made, extra, eval_every))
    _meet("begun", hosts)
    if held is None and not leader:  # free memory differs between hosts, and the plan must not
        held = store.claim(resume=True)
    if held is not None:
        same(store.folder, held, told)
        todo = [Chunk(p, tuple(c), tuple(s)) for p, c, s in held["plan"]["chunks"]]
    there = [store.read(i, chunk) is not None for i, chunk in enumerate(todo)]
    if held is not None:
        needed = {chunk.program for chunk, done in zip(todo, there, strict=True) if not done}
        compiled = again(*how, held["plan"]["shapes"], needed)
    if announce is not None:
        announce(_plan(laid, made, compiled, there, available))
    mine = [i for i in range(len(todo)) if not there[i] and i % hosts == jax.process_index()]
    with watched as tell:
        look = Look(made, [todo[i] for i in mine], laid.seeds, tell)
        for i, chunk in enumerate(todo):
            if there[i] and tell is not None and (kept := store.read(i, chunk)) is not None:
                look.note(chunk, kept["loss"])
        placed: tuple[int, Any] = (-1, None)
        for i in mine:
            chunk = todo[i]
            program, run = made[chunk.program], compiled[chunk.program]
            assert run is not None
            if placed[0] != chunk.program:
                placed = chunk.program, engine.placed_problem(program, run)
            given = engine.inputs(program, chunk, run, keys, paired)
            every = cadence(program, chunk, eval_every)
            arrays = compute(program, chunk, run, given, placed[1], every, look)
            store.write(i, chunk, arrays)
            look.finished(chunk, arrays["loss"])
    _meet("computed", hosts)
    results = [(chunk, store.read(i, chunk)) for i, chunk in enumerate(todo)]
    ds = dataset(
        laid,
        made,
        results,
        keys,
        {
            "ended": "finished"
            if all(arrays is not None for _, arrays in results)
            else "unfinished",
            "paired": paired,
            "noise": noise,
            "rounds": rounds,
            "numbers": {name: str(value) for name, value in (numbers or {}).items()},
            "settings": _settings(laid, keys[0]),
            "facts": _facts(laid),
            "compilations": len(made),
            "chunks": len(todo),
            "compile_seconds": sum(c.seconds for c in compiled if c is not None),
            "seconds": time.perf_counter() - began,
        },
    )
    if store.folder is not None and leader:
        save(ds, store.result)
    _meet("written", hosts)
    return ds


# --- what is asked, and what is said ---------------------------------------------------------------


def _keys(key: Key | None, seeds: Sequence[int]) -> list[Key]:
    """The key of each seed's runs."""
    if key is None:
        return [jax.random.key(seed) for seed in seeds]
    key = one_key(key, "a sweep", "and seeds= beside it")
    return [jax.random.fold_in(key, seed) for seed in seeds]


def _named(grid: Mapping[str, Any]) -> None:
    """Refuse, before anything is run, an axis whose name a result has for something else."""
    for name in grid:
        require(
            name not in REPORTED and not str(name).startswith(PREFIXES),
            f"An axis of a sweep cannot be called {name!r}, which its result reports",
            "give the argument or the number another name",
        )


def _extra(metrics: Mapping[str, Metric] | None, grid: Mapping[str, Any]) -> Extra:
    """The user's metrics, under names that a sweep has not."""
    extra = own_metrics({} if metrics is None else metrics)
    for name, _ in extra:
        taken = {*grid, *LABELS, *Info._fields, *OWN}
        require(
            name not in taken and not name.startswith(PREFIXES),
            f"A metric of a sweep cannot be called {name!r}",
            "take another name",
        )
    return extra


def _plan(
    grid: Grid,
    made: Sequence[Program],
    compiled: Sequence[engine.Compiled | None],
    there: Sequence[bool],
    available: int,
) -> Plan:
    lines = tuple(
        f"{line(p, grid)}: "
        + (
            f"{c.shape[0] * c.shape[1]} runs at once in {c.bytes / 2**20:,.0f} MiB"
            if c is not None
            else "done"
        )
        for p, c in zip(made, compiled, strict=True)
    )
    new = [c for c in compiled if c is not None]
    return Plan(
        grid.runs,
        len(new),
        sum(c.seconds for c in new),
        len(there),
        sum(there),
        max((c.bytes for c in new), default=0),
        available,
        lines,
    )


def _facts(grid: Grid) -> dict[str, Any]:
    """n, d and the like where all problems agree."""
    each = [study.cells[0].facts._asdict() for study in grid.studies]
    return {
        name: each[0][name]
        for name in ("n", "m", "m_max", "d")
        if all(one[name] == each[0][name] for one in each)
    }


def _settings(grid: Grid, key: Key) -> dict[str, Any]:
    """What is true of all studies."""
    first = {id(study.problem): study for study in reversed(grid.studies)}
    every = [settings(study.algorithm, study.problem, key) for study in first.values()]
    names = {study.algorithm.name for study in grid.studies}
    return {
        name: value
        for name, value in every[0].items()
        if all(one[name] == value for one in every)
        and (len(names) == 1 or name not in ("algorithm", "parts", "per_record"))
    }


def _meet(where: str, hosts: int) -> None:
    """Wait until all hosts have come here."""
    if hosts > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(f"jaxfl sweep: {where}")
