"""Compute the runs of a grid: plan them, compute chunk by chunk, and keep what is finished.

:func:`jaxfl.simulate` and :func:`jaxfl.sweep` are thin around :func:`computed`.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxfl.core.checks import one_path
from jaxfl.core.errors import InputError, JaxflWarning, require
from jaxfl.core.foreign import CALM, warn
from jaxfl.core.hosts import on_host
from jaxfl.core.memory import HOST, check_fits
from jaxfl.core.params import at_most_one, number, whole
from jaxfl.core.programs import keep_programs
from jaxfl.core.progress import plural, watching
from jaxfl.core.types import Info, Origin
from jaxfl.engine import loop, stopping, trackers
from jaxfl.engine.callbacks import Callback, Watch
from jaxfl.engine.compute import Machine, Saves, TooLarge, budget
from jaxfl.engine.dataset import REPORTED
from jaxfl.engine.driver import TRIES, Driver, Executor
from jaxfl.engine.executors import opened
from jaxfl.engine.grid import Cell, Grid, Study
from jaxfl.engine.memory import check_room
from jaxfl.engine.plan import Chunk, Options, Program, number_of_looks
from jaxfl.engine.planned import Base, Planned
from jaxfl.engine.program import (
    FEW,
    bytes_of_data,
    bytes_of_run,
    bytes_of_state,
    home_of,
    numbers,
    placement,
)
from jaxfl.engine.progress import Plan, Progress, Tracker, line, show, work
from jaxfl.engine.results import LABELS, RESULT
from jaxfl.engine.runs import CALMER, EXACT, NOISY, noisy, of_delta, published, settings
from jaxfl.engine.store import CHUNK, ROOM, Arrays, Store
from jaxfl.engine.worker import Content
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.events import Kind, plain_events, released
from jaxfl.privacy.losses import cheap, drowned

__all__ = ["Computed", "How", "check_names", "computed", "report_failures"]

COPIES = 2  # of the results in memory: of the chunks, and of the whole
RUNS_ON_CPU = 256  # of a chunk: more are not faster there, and a chunk is saved when it is finished
ENOUGH = 8  # runs of a chunk that share their draws, even where to evaluate them takes long
RUNS = 4096
FEWER = 10  # times fewer records than the median that a client has, to be named
SERIES, OF_CLIENTS = 20, 4  # values kept per run and evaluation, and of each client, about
MORE_MEMORY = {"memory": None}
PREFIXES = ("used_", "applies_", "chosen_")  # of variables of results
REPORTED_OPTIONS = ("paired", "noise", "matmul_precision", "keep", "eval_every", "metrics_on")


class How(NamedTuple):
    """The options of a computation that do not change results."""

    out: str | Path | None = None
    resume: bool = False
    extend: bool = False
    memory: int | None = None
    runs_at_once: int | None = None
    devices: Sequence[jax.Device] | None = None
    executor: str | Executor | None = None
    chunk_seconds: float | None = None
    announce: Callable[[Plan], None] | None = None
    progress: bool | Callable[[Progress], None] | None = None
    callbacks: Sequence[Callback | str] = ()
    strict: bool = False
    only: bool = False  # what is there: nothing is computed, written or held


class Computed(NamedTuple):
    """The runs of a grid, and where they are kept."""

    planned: Planned
    found: Mapping[int, Arrays | None]  # of finished chunks
    about: dict[str, Any]
    failures: Mapping[int, str] = {}
    result: Path | None = None  # where it is to be written


def check_names(names: Iterable[str], options: Options) -> None:
    """Raise for axes and metrics whose names results use for something else."""

    def is_free(name: str) -> bool:
        return name not in REPORTED and not str(name).startswith(PREFIXES)

    for name in names:
        require(
            is_free(name),
            lambda: f"An axis of a sweep cannot be called {name!r}, which its result reports",
            "give the argument or the hyper-parameter another name",
        )
    taken = {*names, *LABELS, "algorithm", "problem", *Info._fields}
    for name, _ in options.extra:
        free = is_free(name) and name not in taken
        require(free, lambda: f"A metric cannot be called {name!r}", "take another name")


@CALM
def computed(
    make: Callable[[], Grid],
    key: Base,
    options: Options,
    how: How,
    alone: bool = False,
    store: Store | None = None,
) -> Computed:
    """Plan, compute and keep the runs of a grid; ``alone``: of a single run."""
    if how.only:
        return _finished(make, key, options, how)
    began = time.perf_counter()
    keep_programs()
    bar, watch = watching(how.progress, show), Watch(trackers.opened(how.callbacks), alone)
    devices = _devices(how)
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.default_matmul_precision(options.matmul_precision))
        if store is None:
            store = stack.enter_context(
                Store(one_path("out", how.out) if how.out is not None else None)
            )
            store.open(how.resume or how.extend, not how.extend)
        planned = Planned(store, make(), key, options)
        if alone and home_of(planned.grid.studies[0].problem) is None:
            devices = devices[:1]  # of several, others would repeat the run
        _tell_refuted(planned.grid, how.strict)
        _tell_small(planned.grid)
        if not alone:  # a run says so at its end
            _tell_delta(planned.grid)
        here = how.executor is None
        machine = Machine(devices, planned.keys, options, how.memory) if here else None
        room = budget(how.memory, [HOST]) if machine is None else machine.available
        todo = _plan(planned, _Fit(devices, room, how.runs_at_once), how, alone)
        _tell_exposed(planned)
        report = stack.enter_context(bar)
        stack.enter_context(watch).found = planned
        tracker = Tracker(planned, todo, report, watch)
        for n in planned.current if report is not None or watch.functions else ():
            if n not in todo and (arrays := store.read(n)) is not None:
                tracker.finished(n, arrays)
        saves, planning = Saves(store, planned.checkpoint), time.perf_counter() - began
        failures: Mapping[int, str] = {}
        if machine is not None:
            _here(machine, planned, todo, saves, tracker)
        else:
            workers = stack.enter_context(opened(how.executor))
            content = Content(planned.programs, planned.keys, options, how.memory)
            driver = Driver(workers, content, saves, how.chunk_seconds)
            _collect(driver, planned, todo, tracker)
            failures = driver.failures
        if not alone:
            tracker.report("merging the chunks")
        found = planned.read()
        about = _about(planned, found)
        if machine is not None:
            about |= {
                "compilations": len(machine.known),
                "compile_seconds": planning * alone + machine.compile_seconds,
            }
    about["seconds"] = time.perf_counter() - began
    return Computed(planned, found, about, failures, store.folder and store.path(RESULT))


def _tell_refuted(grid: Grid, strict: bool) -> None:
    """Warn of what a probe refutes, and of an event that none could try, or raise."""
    for study in grid.studies:
        claims = (_claims(study, cell) for cell in study.cells)
        if study.standing.kind == Kind.UNTRIED and any(claims):
            words = f"The event of {study.algorithm.name} is {study.standing.why}"
            way = "run `jaxfl audit`, or leave out {strict}"
            require(not strict, words, way, suggested={"strict": True})
            warn(JaxflWarning(words))
        if study.standing.kind == Kind.REFUTED:
            why = study.standing.why
            require(not strict, why, "mend it, or leave out {strict}", suggested={"strict": True})
            words = f"{study.algorithm.name} has {why}"
            warn(JaxflWarning(words))


def _claims(study: Study, cell: Cell) -> bool:
    """Whether the event of a cell describes a release under noise."""
    event = released(study.algorithm, cell.values, cell.facts, study.standing)
    return noisy(study.algorithm, cell.values) and any(plain_events(event))


def _tell_delta(grid: Grid) -> None:
    """Warn once of a delta that is too large, of the largest."""
    cells = [(study, cell) for study in grid.studies for cell in study.cells]
    for study, cell in sorted(cells, key=lambda pair: -pair[1].values.get("delta", 0.0)):
        if words := of_delta(study.algorithm, cell.values, cell.facts, study.standing):
            warn(words[0])
            return


def _tell_small(grid: Grid) -> None:
    """Warn where the client with the fewest records sets the noise of all."""
    for study in {id(study.problem): study for study in grid.studies}.values():
        cell, count = study.cells[0], on_host(study.problem.count)
        low, middle = int(count.min()), int(np.median(count))
        noise, event = cell.sources.get("sigma"), study.algorithm.event
        if noise is None or event is None or noise.origin is not Origin.CALIBRATED:
            continue
        if low * FEWER <= middle:
            facts = cell.facts._replace(m=middle, sizes=(middle,))
            eps = epsilon(event(cell.values, facts), cell.values["delta"]).eps
            who = f"Client {study.problem.clients.name(int(count.argmin()))} has {plural(low, 'record')}"
            least = f"{who}, and the noise makes its eps {cell.values['eps']:.4g}"
            words = f"{least}; that of a client with {middle:,}, the median, is {eps:.2g}"
            if 2 * eps < cell.values["eps"]:
                way = "leave out clients with few records, or ask for a larger {eps}"
                warn(JaxflWarning(words, way, suggested={"eps": None}))


def _tell_exposed(planned: Planned) -> None:
    """Warn once of a rule that takes the eps of runs away, and name noise that would not; or of noise that
    ends runs by itself."""
    for chunk in (planned.chunks[n] for n in planned.current if planned.chunks[n].rules):
        study, cell = planned.study(chunk), planned.programs[chunk.program].cells[chunk.cells[0]]
        event = released(study.algorithm, cell.values, cell.facts, study.standing)
        rules = {"metrics_on": planned.options.metrics_on, "stop": chunk.rules}
        limit, delta = stopping.exposed(rules, study.algorithm, event), cell.values.get("delta")
        count = sum(stopping.checks(rules, cell.rounds).values())
        words, way = drowned(chunk.rules[-1], count, event, cell.facts), CALMER
        if limit and delta is not None and not math.isinf(epsilon(event, delta).eps):
            words = (
                f"The {EXACT[limit]} of protected data may end a run, for which no eps holds then"
            )
            way = "leave it out"
            if limit == "loss":
                noised = [{**rule, "bound": 1.0, "sigma": 1.0} for rule in chunk.rules]
                count = sum(stopping.checks({"stop": noised}, cell.rounds).values())
                way = "; ".join(filter(None, (NOISY, cheap(event, count, cell.facts, delta))))
        if words:
            warn(JaxflWarning(words, way))
            return


def _plan(planned: Planned, fit: _Fit, how: How, alone: bool) -> list[int]:
    """Match the folder with the grid, add what is missing to its list; the chunks that are left."""
    store = planned.store
    begun = bool(store.header)
    if begun:
        planned.check(how.extend)
    added = planned.complete(fit)
    require(
        how.extend or not begun or not added,
        lambda: f"{store.folder} holds other runs",
        "name another folder, or add these to it with {extend}",
        suggested={"extend": True},
    )
    new = [n for n in planned.current if not store.ran(n) and not planned.chunks[n].after]
    if again := planned.repeated(new):
        who = "A run begins" if alone else f"{plural(again, 'run')} begin{'s' * (again == 1)}"
        words = f"{who} again, with the key of a shorter run but other noise or schedules"
        words += ", and no eps holds for both"
        by = "Run.extend, or by `jaxfl run" if alone else "`jaxfl sweep"
        same = f"continue with the same noise by {by} --extend DIR --until T`, or "
        way = same + "compute in another folder, with a key or a seed of its own"
        warn(JaxflWarning(words, way))
    size = sum(_bytes(planned, n) for n in planned.current)
    way = "evaluate less often, or divide them"
    check_fits("The results of these runs", COPIES * size, way)
    state = {p: bytes_of_state(program) for p, program in planned.programs.items()}
    some = [planned.chunks[n] for n in planned.current]
    kept = store.reserve(size, sum(state[c.program] * c.runs for c in some), alone)
    todo = [n for n in planned.current if store.read(n) is None]
    if how.announce is not None:
        how.announce(_announced(planned, todo, fit, (size + kept, kept), again))
    if todo and begun:
        planned.check_draws()
    store.write_list(planned.about())
    for program in {planned.chunks[n].program: planned.program(n) for n in todo}.values():
        check_room(program.algorithm, program.problem, numbers(program, [0], alone=True))
    return todo


def _finished(make: Callable[[], Grid], key: Base, options: Options, how: How) -> Computed:
    """The runs that are there in a folder."""
    store = Store(one_path("out", how.out))
    store.look()
    planned = Planned(store, make(), key, options)
    planned.check(extend=True)
    planned.complete(lambda program: (RUNS, 1))
    _tell_refuted(planned.grid, how.strict)
    store.most = ROOM * sum(_bytes(planned, n) for n in planned.current) + CHUNK
    found = planned.read()
    return Computed(planned, found, _about(planned, found))


def _about(planned: Planned, found: Mapping[int, Arrays | None]) -> dict[str, Any]:
    """Attributes of the result: whether runs are finished, the settings that they share, and their cost."""
    studies, whole = planned.grid.studies, all(arrays is not None for arrays in found.values())
    first = {id(study.problem): study for study in reversed(studies)}
    records = [settings(s.algorithm, s.problem, s.standing) for s in first.values()]
    several = len({study.algorithm.name for study in studies}) > 1
    own = ("algorithm", "parts", "per_record") if several else ()
    shared = _common(records, [name for name in records[0] if name not in own])
    facts = [study.cells[0].facts._asdict() for study in studies]
    words = planned.options.words()
    return {
        "ended": "finished" if whole else "unfinished",
        "repeated": planned.repeated(planned.current),
        **{name: words[name] for name in REPORTED_OPTIONS},
        "settings": published(shared, planned.keys[0]),
        "facts": _common(facts, ("n", "m", "m_max", "d")),
        "chunks": len(found),
        "compilations": 0,
        "compile_seconds": 0.0,
        "seconds": 0.0,
    }


def _common(records: Sequence[Mapping[str, Any]], names: Iterable[str]) -> dict[str, Any]:
    """The named values that are equal in all records."""
    first = records[0]
    return {name: first[name] for name in names if all(r[name] == first[name] for r in records)}


# --- computing -----------------------------------------------------------------------------------


def _here(
    machine: Machine, planned: Planned, todo: Sequence[int], saves: Saves, tracker: Tracker
) -> None:
    """Compute chunks in this process; one that does not fit is divided."""
    waiting = deque(todo)
    while waiting:
        number = waiting.popleft()
        chunk, program = planned.chunks[number], planned.program(number)
        try:
            arrays = machine.compute(program, number, chunk, saves, tracker)
        except TooLarge as error:
            halves = planned.divide(number, placement(program.problem, machine.devices).parts)
            way = "give it more {memory}, a smaller batch or k, fewer clients, or a smaller model"
            require(halves, str(error), way, suggested=MORE_MEMORY)
            tracker.divided(number, halves)
            waiting.extendleft(reversed(halves))
            continue
        planned.store.write(number, arrays)
        tracker.finished(number, arrays)


def _collect(driver: Driver, planned: Planned, todo: Sequence[int], tracker: Tracker) -> None:
    """Write chunks as workers return them."""

    def divide(number: int, parts: int) -> Mapping[int, Chunk]:
        halves = planned.divide(number, parts)
        tracker.divided(number, halves)
        return halves

    some = {number: planned.chunks[number] for number in todo}
    with contextlib.closing(driver.replies(some, divide)) as replies:
        for found in replies:
            if found is None:
                tracker.report()
                continue
            planned.store.write(*found)
            tracker.finished(*found)


def report_failures(done: Computed) -> None:
    """Warn of chunks that have failed, whose runs are not ``complete`` in the result, or raise."""
    if not done.failures:
        return
    first = next(iter(done.failures.values())).rstrip(".")
    count = f"{len(done.failures):,} of {len(done.found):,} chunks failed {TRIES} times"
    words = f"{count}, the first because of {first}"
    if done.planned.store.folder is None:
        warn(JaxflWarning(words, "their runs are missing in the result"))
        return
    way = "the others are saved, and {resume} computes the rest"
    raise InputError(words, way, suggested={"resume": True})


# --- sizes ---------------------------------------------------------------------------------------


def _devices(how: How) -> list[jax.Device]:
    at_most_one(
        "workers of an executor use their own devices", executor=how.executor, devices=how.devices
    )
    if how.chunk_seconds is not None:
        number("chunk_seconds", how.chunk_seconds, above=0)
        require(
            how.executor is not None,
            "is for the workers of an executor",
            chunk_seconds=how.chunk_seconds,
        )
    if how.executor is not None:
        return [HOST]  # of a worker, before one is asked
    found: Any = jax.local_devices() if how.devices is None else how.devices
    chosen = list(found) if isinstance(found, Iterable) else []
    known = chosen and all(isinstance(device, jax.Device) for device in chosen)
    require(known, "names no device", "leave it out for all that there are", devices=chosen)
    return chosen


class _Fit:
    """The number of runs of a program that fit into a chunk, estimated from shapes."""

    def __init__(self, devices: Sequence[jax.Device], room: int, at_once: int | None) -> None:
        self.devices, self.room = devices, room
        self.at_once = None if at_once is None else whole("runs_at_once", at_once, 1)

    def __call__(self, program: Program) -> tuple[int, int]:
        """The most runs of a chunk, and the number of devices that share them."""
        parts = placement(program.problem, self.devices).parts
        most = RUNS * parts
        if self.devices[0].platform == "cpu":
            works = [loop.work(program.problem, c.values, c.facts) for c in program.cells]
            most = min(RUNS_ON_CPU, max(ENOUGH, int(loop.CALL / max(map(max, works))))) * parts
        room = (self.room - parts * bytes_of_data(program)) // max(1, bytes_of_run(program))
        return max(parts, min(self.at_once or most, room)), parts

    def bytes(self, program: Program, chunk: Chunk) -> int:
        parts = placement(program.problem, self.devices).parts
        return parts * bytes_of_data(program) + bytes_of_run(program) * math.prod(chunk.shape)


def _bytes(planned: Planned, number: int) -> int:
    """Bytes of the results of a chunk before compression."""
    chunk, program, options = planned.chunks[number], planned.program(number), planned.options
    n = program.problem.n if "clients" in options.keep else min(program.problem.n, FEW)
    each = SERIES + len(options.extra) + OF_CLIENTS * n
    model = program.problem.model.dim * ("x" in options.keep)
    return 8 * chunk.runs * (number_of_looks(program, chunk) * each + model)


def _announced(
    planned: Planned, todo: Sequence[int], fit: _Fit, disk: tuple[int, int], again: int
) -> Plan:
    """The plan of the runs that are left, before anything is compiled."""
    left = [(planned.chunks[n], planned.program(n)) for n in todo]
    works = [work(program, chunk) for chunk, program in left]
    rounds, seen = sum(r for r, _ in works), sum(e for _, e in works)

    def seen_with(every: int) -> float:
        return sum(work(program, chunk._replace(every=every))[1] for chunk, program in left)

    every = seen_with(1)
    first = math.ceil(every / max(rounds, 1.0))  # but for the first evaluation of each run
    fewer = range(first, 2 * first + 1, max(1, first // 8)) if seen > rounds else ()
    runs = sum(chunk.runs for chunk, _ in left)
    seeds, lines = defaultdict[int, set[int]](set), {}
    for chunk, program in left:
        seeds[chunk.program].update(chunk.seeds)
        count, size = len(seeds[chunk.program]), math.prod(chunk.shape)
        lines[chunk.program] = line(program, planned.grid, count, size)
    return Plan(
        planned.grid.runs,
        tuple(lines.values()),
        len(left),
        max((fit.bytes(program, chunk) for chunk, program in left), default=0),
        fit.room,
        *disk,
        planned.grid.runs - runs,
        sum(chunk.runs for chunk, _ in left if chunk.after),
        again,
        runs,
        seen / max(rounds + seen, 1.0),
        (rounds + every) / max(rounds + seen, 1.0),
        next((each for each in fewer if seen_with(each) <= rounds), None),
    )
