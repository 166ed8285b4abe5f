"""Run a grid: plan it, compile it, compute it chunk by chunk, and save each chunk."""

from __future__ import annotations

import contextlib
import functools
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jax

from jaxfl.algorithms.resolution import NOISES
from jaxfl.core import hosts
from jaxfl.core.checks import one_key, one_path
from jaxfl.core.errors import InputError, JaxflWarning, require
from jaxfl.core.memory import HOST, check_fits
from jaxfl.core.params import at_most_one, choice, number, whole
from jaxfl.core.products import precision
from jaxfl.core.progress import watching
from jaxfl.core.types import Info, Key
from jaxfl.engine import record
from jaxfl.engine.callbacks import Callback, Callbacks
from jaxfl.engine.executors import opened
from jaxfl.engine.loop import Extra, Metric, own_metrics
from jaxfl.engine.record import settings
from jaxfl.engine.results import save
from jaxfl.engine.sweeps import engine
from jaxfl.engine.sweeps.compute import Saves, compute
from jaxfl.engine.sweeps.driver import LARGE, TRIES, Driver, Executor
from jaxfl.engine.sweeps.fit import (
    Compiler,
    Pace,
    Planned,
    again,
    budget,
    every,
    extended,
    fit,
    guess,
    line,
    pace,
    planned,
    predicted,
    states,
)
from jaxfl.engine.sweeps.gather import LABELS, REPORTED, dataset
from jaxfl.engine.sweeps.grid import Build, Grid, Problems, lay_out, seeds_of
from jaxfl.engine.sweeps.identity import Part, about, drawn, entire, part, proofs, same
from jaxfl.engine.sweeps.look import Look, Plan, Progress, counted, parts, show
from jaxfl.engine.sweeps.placement import placement
from jaxfl.engine.sweeps.plan import Block, Chunk, Program, continues, programs, sources
from jaxfl.engine.sweeps.store import CHUNK, ROOM, Store
from jaxfl.engine.sweeps.watch import Watch

if TYPE_CHECKING:
    import xarray

__all__ = ["sweep"]

COPIES = 2  # of the results in memory: of the chunks, and of the whole
PREFIXES = ("used_", "applies_", "chosen_")  # of a sweep's own variables
CHUNK_SECONDS = 300.0  # that a chunk of an executor takes, at most
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
    extend: bool = False,
    memory: int | None = None,
    runs_at_once: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    executor: str | Executor | None = None,
    chunk_seconds: float | None = None,
    say: Callable[[str], None] | None = None,
    announce: Callable[[Plan], None] | None = None,
    progress: bool | Callable[[Progress], None] | None = None,
    callbacks: Sequence[Callback] = (),
    matmul_precision: str | None = None,
    **unknown: Any,
) -> xarray.Dataset:
    """Every run of a grid, as one labelled dataset.

    ``build`` is an algorithm, its name, several of them, or a function of static axes that returns
    one; ``problem`` a problem, several by name, or such a function.  ``grid`` maps axes to values: the
    arguments of ``build`` and ``problem`` are static axes, and each of their values is compiled; all
    other axes are hyper-parameters (also ``rounds``, and schedules such as ``"cosine:0.3"``), whose
    cells run in one program.  Axes that an algorithm does not use are broadcast.
    ``numbers`` are hyper-parameters of all cells; the rest follows from each cell's theory.
    ``metrics``, ``eval_every`` and ``noise`` are those of :func:`simulate`.  A *cell* is a setting: the
    values of all axes.

    Seed s is the run that :func:`simulate` makes with ``fold_in(key, s)``, or without ``key`` with
    ``jax.random.key(s)``: all cells of a seed share their draws, so that they differ by the axes and
    not by chance.  With ``paired=False`` each cell has its own draws.  Random draws and counts never
    depend on other cells, chunks or devices; floats may differ by rounding.

    Chunks of the grid have at most ``runs_at_once`` runs and fit in ``memory`` bytes (default: most of
    what is free on ``devices``, by default all local ones, which share the runs; a problem whose clients
    are split over devices stays so).  ``out`` is a folder for each finished chunk, checkpoints of the one
    in progress and ``result.nc``; ``resume`` computes only what is missing in it, and gives bit for bit
    the same result.  ``extend`` does so for a larger grid, which holds that of the folder: more values,
    axes, seeds or algorithms, or more ``rounds``, for which a run continues unless they change its
    hyper-parameters.  A run that diverges is frozen, marked by ``diverged_at``, and does not affect others.

    With an ``executor`` its workers compute the chunks, in ``memory`` bytes each: one of
    :mod:`jaxfl.executors`, its text as in ``"processes:4"`` or ``"ray"``, or anything with
    ``submit(function, *arguments)``.  A chunk is to take ``chunk_seconds`` at most (default: 300).  One
    whose worker is lost is computed again, from its checkpoint if it has one; one that fails three
    times is reported at the end.

    By default each cell is evaluated as often as its run in :func:`simulate`, and nothing is printed:
    ``progress=True`` draws a bar, and a function is called with a :class:`Progress`.  ``announce`` is
    called with the :class:`Plan` before anything is compiled (what it raises ends the sweep;
    ``plan.time()`` times one program for an estimate of the seconds), ``say`` with a line before each
    compilation.  ``callbacks`` are called with every :class:`jaxfl.Evaluation` of every run: while its
    chunk is computed here, or when an ``executor`` returns it; ``resume`` hands over earlier ones too.
    If a callback raises an exception, the sweep ends as after Ctrl-C, with what is finished and a
    checkpoint.
    ``matmul_precision`` is that of :func:`simulate`.

    >>> import jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> ds = sweep(["cdp_gd", "ldp_gd"], {"eps": [1, 8], "lr": [0.1, 0.3]}, problem, rounds=5, seeds=2)
    >>> dict(ds["loss"].sizes)
    {'algorithm': 2, 'eps': 2, 'lr': 2, 'seed': 2, 'round': 6}
    """
    began = time.perf_counter()
    for name, value in unknown.items():
        ways = f"write {{{name!r}: [...]}} in grid, or numbers={{{name!r}: ...}} for all runs"
        raise InputError(
            "is no argument of sweep", f"if it is a hyper-parameter, {ways}", **{name: value}
        )
    rounds = None if rounds is None else whole("rounds", rounds, 1)
    eval_every = None if eval_every is None else whole("eval_every", eval_every, 0)
    at_once = None if runs_at_once is None else whole("runs_at_once", runs_at_once, 1)
    choice("noise", noise, NOISES)
    multiplied = precision(matmul_precision)
    lists = "must hold lists of values by name, as in {'lr': [0.1, 0.3]}"
    require(isinstance(grid, Mapping), lists, grid=grid)
    by_name = isinstance(numbers, Mapping | None)
    require(by_name, "must hold hyper-parameters by name", numbers=numbers)
    _check_names(grid)
    extra = _extra(metrics, grid)
    bar, listed = watching(progress, show), Callbacks(callbacks)
    if not hosts.is_first():  # which alone reports
        say, bar, listed = None, watching(None, show), Callbacks(())
    at_most_one("workers of an executor use their own devices", executor=executor, devices=devices)
    if chunk_seconds is not None:
        number("chunk_seconds", chunk_seconds, above=0)
        require(
            executor is not None, "is for the workers of an executor", chunk_seconds=chunk_seconds
        )
    found: Any = jax.local_devices() if devices is None else devices
    chosen = list(found) if isinstance(found, Iterable) else []
    known = chosen and all(isinstance(device, jax.Device) for device in chosen)
    require(known, "names no device", "leave it out for all that there are", devices=chosen)
    if executor is not None:
        chosen = [HOST]  # of a worker, before one is asked
    # of all processes together, by the one that has least
    available = int(hosts.gathered(budget(memory, chosen)).min()) * jax.process_count()
    seeds = seeds_of(seeds)
    keys = _keys(key, seeds)
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.default_matmul_precision(multiplied))
        folder = one_path("out", out) if out is not None else None
        stack.enter_context(hosts.together(None if folder is None else True))
        store = stack.enter_context(Store(folder if hosts.is_first() else None))
        manifest = hosts.first(lambda: store.claim(resume or extend))

        laid = lay_out(build, grid, problem, rounds, seeds, dict(numbers or {}), noise)
        asked: Any = (extra, eval_every, paired, noise, multiplied)
        identity = about(laid, keys, *asked)
        old, first, made = Planned([], [], [], []), 0, []
        if manifest is not None:
            if extend:
                held = part(folder, manifest, laid, keys, *asked)
            else:
                same(folder, manifest, identity)
                held = entire(laid)
            laid = proofs(laid, manifest, held)
            identity = about(laid, keys, *asked)
            old = planned(manifest, laid, held, eval_every)
            made, first = old.made, len(old.made)
            if extend:
                blocks = _missing(laid, held, old, store, executor is None)
                old = extended(old, held)
                made = [*made, *programs(laid, blocks, old.paced)]
        else:
            made = programs(laid)
        require(
            not hosts.several() or not (extend or old.past),
            "A sweep is extended by one process",
            "start it in one",
        )
        require(
            not hosts.several()
            or (executor is None and all(placement(p.problem, chosen).leaves for p in made)),
            lambda: (
                f"jax.distributed has joined {jax.process_count()} processes, and the clients of this "
                "sweep are not split over them"
            ),
            "start it in one process, and pass {executor} for the other hosts to take part",
            suggested={"executor": None},
        )
        require(
            devices is None or not any(placement(p.problem, chosen).leaves for p in made),
            "The problem's clients are split over devices already",
            "leave out devices=",
        )
        total = len(seeds) * sum(c.facts.rounds or 1 for study in laid.studies for c in study.cells)
        now = Progress(0, total, math.nan, math.nan, math.inf, "")
        reports: list[Callable[[Progress], None] | None] = []

        def tell(words: str) -> None:
            if say is not None:
                say(words)
            if reports and reports[0] is not None:
                reports[0](now._replace(doing=words))

        compiler = Compiler(laid, extra, eval_every, paired, chosen, available, tell)
        live = [*dict.fromkeys(c.program for c in old.todo[old.past :]), *range(first, len(made))]
        size = predicted(compiler, [made[i] for i in live])
        way = "evaluate less often, or divide it into several"
        check_fits("The results of this sweep", COPIES * size, way)
        store.most = ROOM * size + CHUNK
        alone = executor is None and not hosts.several()
        kept = 0 if not alone else store.keeps(size, states([made[i] for i in live]))
        driver: Driver | None = None
        if executor is not None:
            workers = stack.enter_context(opened(executor))
            driver = Driver(workers, compiler, made, keys, memory)
        if announce is not None:
            # all count the work of a plan together
            disk = size + kept, kept
            found = _plan(compiler, made, store, old, at_once, disk, keys, driver)
            hosts.first(lambda: announce(found))
        report = stack.enter_context(bar)
        reports.append(report)
        done = hosts.first(
            lambda: [i < old.past or store.read(i, c) is not None for i, c in enumerate(old.todo)]
        )
        if hosts.several():
            for i, chunk in [(i, chunk) for i, chunk in enumerate(old.todo) if done[i]]:
                earlier = hosts.first(functools.partial(store.read, i, chunk))
                if not hosts.is_first() and earlier is not None:
                    store.write(i, chunk, earlier)
        if manifest is not None and (first < len(made) or not all(done)):
            begun = f"{folder} was begun with other draws"
            way = "finish it as it was begun, or start over in another folder"
            record.same(begun, manifest.get("drawn", drawn()), drawn(), way)
        compiled: list[engine.Compiled | None] = []
        if driver is None:
            needed = {
                chunk.program for chunk, ready in zip(old.todo, done, strict=True) if not ready
            }
            compiled = again(compiler, made[:first], old.shapes, needed)
            fresh, more = fit(compiler, made, at_once, first)
            compiled += fresh
            wanted = [program.shape for program in fresh]
        else:
            longest = chunk_seconds or CHUNK_SECONDS
            more, wanted = _divided(driver, compiler, made, at_once, longest, first)
        todo, shapes = [*old.todo, *more], [*old.shapes, *wanted]
        marks = [*old.marks, *(every(made[chunk.program], chunk, eval_every) for chunk in more)]
        alike = manifest and all(manifest[name] == identity[name] for name in ("axes", "seeds"))
        alike = alike and manifest and _proofs(manifest) == _proofs(identity)
        if more or not alike:
            plan = old._replace(made=made, shapes=shapes, todo=todo, marks=marks).written()
            about_it = {**identity, "drawn": drawn(), "plan": plan}
            hosts.first(lambda: store.begin(about_it, size, manifest is None))
        done += [False] * len(more)
        left = [(i, chunk, marks[i]) for i, chunk in enumerate(todo) if not done[i]]
        look = Look(made, [(chunk, mark) for _, chunk, mark in left], laid.seeds, report)
        if extend:
            tell(parts(laid.runs, *counted(made, todo[old.past :], done[old.past :])))
        watch = Watch(stack.enter_context(listed), laid, made, keys) if listed else None
        for i, chunk in enumerate(todo):
            if i < old.past or not done[i]:
                continue
            store.forget(i)
            earlier = store.read(i, chunk) if report or watch else None
            if earlier is not None:
                look.note(chunk, earlier["loss"])
                if watch is not None:
                    watch.finished(chunk, earlier)
        if driver is not None:
            _collect(driver, left, shapes, store, look, watch)
        else:
            placed: tuple[int, Any] = (-1, None)
            saves = Saves(store, sources(made, todo[: old.past]))
            for i, chunk, mark in left:
                program, run = made[chunk.program], compiled[chunk.program]
                assert run is not None
                if placed[0] != chunk.program:
                    placed = chunk.program, engine.placed_problem(program, run)
                given = engine.inputs(program, chunk, run, keys, paired)
                arrays = compute(program, i, chunk, run, given, placed[1], mark, look, saves, watch)
                hosts.first(functools.partial(store.write, i, chunk, arrays))
                if not hosts.is_first():
                    store.write(i, chunk, arrays)
                look.finished(chunk, arrays["loss"])
                if watch is not None:
                    watch.finished(chunk, arrays)
        now = look.now
        tell("merging the chunks")
        results = [(c, store.read(i, c)) for i, c in enumerate(todo) if i >= old.past]
        finished = all(arrays is not None for _, arrays in results)
        config = {
            "ended": "finished" if finished else "unfinished",
            "paired": paired,
            "noise": noise,
            "matmul_precision": multiplied,
            "rounds": rounds,
            "numbers": {name: str(value) for name, value in (numbers or {}).items()},
            "settings": _settings(laid, keys[0]),
            "facts": _common(
                [study.cells[0].facts._asdict() for study in laid.studies], ("n", "m", "m_max", "d")
            ),
            "compilations": len(live),
            "chunks": len(results),
            "compile_seconds": sum(c.seconds for c in compiled if c is not None),
            "seconds": time.perf_counter() - began,
        }
        ds = dataset(laid, made, results, keys, config)
        if store.folder is not None:
            save(ds, store.result)
        if driver is not None and driver.failures:
            _report(driver.failures, len(results), store)
    return ds


# --- a larger grid -------------------------------------------------------------------------------


def _missing(grid: Grid, held: Part, old: Planned, store: Store, continued: bool) -> list[Block]:
    """The runs of a grid that its part lacks; first those that continue shorter runs, if they may."""
    behind: dict[int, dict[int, list[int]]] = {}  # seeds by rounds behind them, by cell
    for (i, positions), study in zip(held.places, held.studies, strict=True):
        for j, before in zip(positions, study.cells, strict=True):
            cell = grid.studies[i].cells[j]
            if not held.longer:
                behind[id(cell)] = {-1: held.seeds}
            elif continued and continues(study, before, cell):
                behind[id(cell)] = {}
    for n, chunk in enumerate(old.todo) if held.longer and continued else ():
        reached = store.reached(n, chunk) if n >= old.past else 0
        program = old.made[chunk.program]
        for cell in (program.cells[j] for j in chunk.cells if reached):
            if id(cell) in behind:
                seeds = behind[id(cell)].setdefault(reached, [])
                seeds += [program.seeds[i] for i in chunk.seeds]
    groups: dict[tuple[int, tuple[int, ...]], dict[int, list[int]]] = {}
    for i, study in enumerate(grid.studies):
        for j, cell in enumerate(study.cells):
            mine = behind.get(id(cell), {})
            rest = sorted(set(range(len(grid.seeds))).difference(*mine.values()))
            for reached, seeds in (*mine.items(), (0, rest)):
                if seeds and reached >= 0:
                    group = groups.setdefault((reached, tuple(sorted(seeds))), {})
                    group.setdefault(i, []).append(j)
    ordered = sorted(groups.items(), key=lambda item: -item[0][0])
    return [Block(cells, seeds, reached) for (reached, seeds), cells in ordered]


# --- arguments -----------------------------------------------------------------------------------


def _keys(key: Key | None, seeds: Sequence[int]) -> list[Key]:
    """The key of each seed's runs."""
    if key is None:
        return [jax.random.key(seed) for seed in seeds]
    key = one_key(key, "a sweep", "and seeds= beside it")
    return [jax.random.fold_in(key, seed) for seed in seeds]


def _check_names(grid: Mapping[str, Any]) -> None:
    """Raise for an axis whose name the result uses for something else."""
    for name in grid:
        require(
            name not in REPORTED and not str(name).startswith(PREFIXES),
            lambda: f"An axis of a sweep cannot be called {name!r}, which its result reports",
            "give the argument or the hyper-parameter another name",
        )


def _extra(metrics: Mapping[str, Metric] | None, grid: Mapping[str, Any]) -> Extra:
    """The user's metrics.  Raise for a name that the result uses for something else."""
    extra = own_metrics({} if metrics is None else metrics)
    for name, _ in extra:
        taken = {*grid, *LABELS, *Info._fields, *OWN}
        require(
            name not in taken and not name.startswith(PREFIXES),
            lambda: f"A metric of a sweep cannot be called {name!r}",
            "take another name",
        )
    return extra


# --- with an executor ----------------------------------------------------------------------------


def _divided(
    driver: Driver,
    compiler: Compiler,
    made: Sequence[Program],
    at_once: int | None,
    longest: float,
    first: int,
) -> tuple[list[Chunk], list[tuple[int, int]]]:
    """Chunks that take so many seconds, and their shapes; a worker times the largest program first.

    They are those of the programs from ``first`` on.
    """
    todo, shapes, _ = guess(compiler, made, at_once, first=first)
    marks = [every(made[chunk.program], chunk, compiler.eval_every) for chunk in todo]
    look = Look(made, list(zip(todo, marks, strict=True)), compiler.grid.seeds, None)
    if sum(map(sum, look.parts.values())) < LARGE:
        return todo, shapes
    compiler.say("timing a chunk on a worker")
    platform, parts, available, speed = _pace(driver, look, [(0, 0)] * first + shapes)

    def seconds(program: Program, chunk: Chunk) -> float:
        rounds, seen = look.whole(chunk, every(program, chunk, compiler.eval_every))
        return (rounds * speed.round + seen * speed.evaluation) / look.size(chunk)

    there: Any = [SimpleNamespace(platform=platform)] * parts
    theirs = compiler._replace(devices=there, available=available)
    return guess(theirs, made, at_once, seconds, longest, first)[:2]


def _pace(
    driver: Driver, look: Look, shapes: Sequence[tuple[int, int]]
) -> tuple[str, int, int, Pace]:
    """A worker, and its pace in the largest program."""
    first = max(look.parts, key=lambda i: sum(look.parts[i]))
    chunk = next(chunk for chunk, _ in look.todo if chunk.program == first)
    return driver.pace(chunk, shapes[first])


def _collect(
    driver: Driver,
    left: Sequence[tuple[int, Chunk, int]],
    shapes: Sequence[tuple[int, int]],
    store: Store,
    look: Look,
    watch: Watch | None,
) -> None:
    """Write chunks as they come."""
    chunks = {i: (chunk, mark) for i, chunk, mark in left}
    replies = driver.arrays(left, shapes, store, lambda: look.report(look.behind))
    with contextlib.closing(replies):
        for i, reply in replies:
            chunk, mark = chunks[i]
            store.write(i, chunk, reply["arrays"])
            look.begin(chunk, mark)
            look.passed(chunk.program, sum(look.whole(chunk, mark)))
            look.finished(chunk, reply["arrays"]["loss"])
            if watch is not None:
                watch.finished(chunk, reply["arrays"])


def _report(failures: Mapping[int, str], chunks: int, store: Store) -> None:
    """Tell of chunks that have failed, whose runs are not ``complete`` in the result."""
    first = next(iter(failures.values())).rstrip(".")
    count = f"{len(failures):,} of {chunks:,} chunks failed {TRIES} times"
    words = f"{count}, the first because of {first}"
    if store.folder is None:
        warnings.warn(f"{words}: their runs are missing in the result.", JaxflWarning, stacklevel=3)
        return
    way = "the others are saved, and {resume} computes the rest"
    raise InputError(words, way, suggested={"resume": True})


# --- reports -------------------------------------------------------------------------------------


def _plan(
    compiler: Compiler,
    made: Sequence[Program],
    store: Store,
    old: Planned,
    at_once: int | None,
    disk: tuple[int, int],
    keys: Sequence[Key],
    driver: Driver | None,
) -> Plan:
    """The plan of what is left, with estimated chunks unless ``old`` has them."""
    more, wanted, largest = guess(compiler, made, at_once, first=len(old.made))
    shapes = [*old.shapes, *wanted]
    if not more:
        largest = guess(compiler, made, at_once)[2]
    todo = [*old.todo[old.past :], *more]
    marks = [
        *old.marks,
        *(every(made[chunk.program], chunk, compiler.eval_every) for chunk in more),
    ]
    done = [
        i < len(old.todo) and store.read(i, chunk) is not None
        for i, chunk in enumerate(todo, old.past)
    ]
    left = [
        (chunk, mark)
        for chunk, mark, ready in zip(todo, marks[old.past :], done, strict=True)
        if not ready
    ]
    look = Look(made, left, compiler.grid.seeds, None)

    def time() -> float:
        """About how long the chunks take: the largest program is compiled and timed."""
        if not look.parts:
            return 0.0
        require(not hosts.several(), "Only a sweep of one process is timed")
        if driver is not None:
            speed = _pace(driver, look, shapes)[-1]
        else:
            first = max(look.parts, key=lambda i: sum(look.parts[i]))
            run = compiler.compiled(made[first], shapes[first])
            chunk = next(chunk for chunk, _ in look.todo if chunk.program == first)
            speed = pace(made[first], chunk, run, keys, compiler.paired)
        spent = sum(r * speed.round + e * speed.evaluation for r, e in look.parts.values())
        return speed.compiling * len(look.parts) + spent

    rounds, evaluations = map(sum, zip(*look.parts.values(), strict=True)) if left else (0.0, 0.0)
    return Plan(
        compiler.grid.runs,
        len(look.parts),
        len(todo),
        len(todo) - len(left),
        largest if left else 0,
        compiler.available,
        *disk,
        *counted(made, todo, done),
        sum(look.size(chunk) for chunk, _ in left),
        evaluations / max(rounds + evaluations, 1.0),
        tuple(
            f"{line(program, compiler.grid)}: {math.prod(shapes[i])} runs at once"
            for i, program in enumerate(made)
            if i in look.parts
        ),
        time,
    )


def _proofs(manifest: Mapping[str, Any]) -> list[Any]:
    """What a manifest says may be said of the privacy of each study."""
    return [study.get("proof") for study in manifest["studies"]]


def _common(records: Sequence[Mapping[str, Any]], names: Iterable[str]) -> dict[str, Any]:
    """Those of the named values that are equal in all records."""
    first = records[0]
    return {name: first[name] for name in names if all(r[name] == first[name] for r in records)}


def _settings(grid: Grid, key: Key) -> dict[str, Any]:
    """The settings that all studies share."""
    first = {id(study.problem): study for study in reversed(grid.studies)}
    records = [settings(study.algorithm, study.problem, key) for study in first.values()]
    several = len({study.algorithm.name for study in grid.studies}) > 1
    own = ("algorithm", "parts", "per_record") if several else ()
    return _common(records, [name for name in records[0] if name not in own])
