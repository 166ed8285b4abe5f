"""Run an algorithm: rounds compiled once, metrics at a cadence, checkpoints, resuming."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms.registry import one_algorithm
from jaxfl.algorithms.resolution import build, resolve
from jaxfl.core.checks import one_key, one_path, one_problem
from jaxfl.core.errors import require
from jaxfl.core.files import writable
from jaxfl.core.interrupts import interrupts_deferred
from jaxfl.core.params import whole
from jaxfl.core.progress import Bar, watching
from jaxfl.core.types import Algorithm, Hyper, Info, Key, Problem, State
from jaxfl.data import samples
from jaxfl.engine import checkpoint as checkpoints
from jaxfl.engine import results, stopping
from jaxfl.engine.ledger import Ledger, ledger
from jaxfl.engine.log import Log
from jaxfl.engine.loop import (
    LONGEST,
    Metric,
    advance,
    cadence,
    measure,
    own_metrics,
    rounds_of_call,
    work,
)
from jaxfl.engine.memory import check_history, check_room, check_scratch
from jaxfl.engine.record import Record, dtype, settings, totals
from jaxfl.engine.stopping import PROTECTED, Stop
from jaxfl.problems.facts import facts_of
from jaxfl.problems.problem import held_out

__all__ = ["Metric", "Progress", "Run", "Stop", "begin", "restored", "simulate"]

SHORT = 1e9  # multiplications of calls that the device may collect, a hundredth of a second
MOST = 1 << 20  # rounds in one call, whose counts it returns
PROGRAMS = 64  # the most compiled programs, of about 10 MB each, before the cache is cleared
DONE = "finished"


class Run(Record):
    """A finished or interrupted run.  :meth:`dataset` labels it, :meth:`extend` continues it."""

    def dataset(self) -> Any:
        """The run as a labelled ``xarray.Dataset``."""
        return results.dataset(self)

    def save(self, path: str | Path) -> Path:
        """Write :meth:`dataset` to one file, which :func:`jaxfl.load` reads back."""
        return results.save(self.dataset(), path)

    def ledger(self, delta: float | None = None) -> Ledger:
        """How many rounds each client took part in so far, and its eps, proven and claimed."""
        return ledger(self, delta)

    def extend(self, rounds: int, **options: Any) -> Run:
        """Continue until round ``rounds``, with the same hyper-parameters and streams of draws."""
        return simulate(self.algorithm, self.problem, self.key, rounds, resume=self, **options)


class Progress(NamedTuple):
    """The progress of a run."""

    round: int
    rounds: int
    rounds_per_second: float
    loss: float


# --- compiled ------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames="algorithm")
def _start(algorithm: Algorithm, key: Key, problem: Problem, hp: Hyper) -> tuple[State, Info]:
    return algorithm.init(key, problem, hp)


_advance = jax.jit(advance, static_argnames=("algorithm", "length"), donate_argnames="state")
_measure = jax.jit(measure, static_argnames=("algorithm", "extra"))


# --- the loop ------------------------------------------------------------------------------------


def simulate(
    algorithm: Algorithm | str,
    problem: Problem,
    key: Key,
    rounds: int | None = None,
    *,
    eval_every: int | None = None,
    metrics: Mapping[str, Metric] | None = None,
    metrics_on: str | None = None,
    stop: Stop | None = None,
    chunk: int = LONGEST,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    resume: Run | str | Path | None = None,
    progress: bool | Callable[[Progress], None] | None = None,
    noise: str | None = None,
    **numbers: Any,
) -> Run:
    """Run ``algorithm`` on ``problem`` for ``rounds`` rounds.

    ``numbers`` are the algorithm's hyper-parameters; those that are not given follow from its theory,
    and ``Run.sources`` lists the source of each.  Of an algorithm by name they may also be parts, as in
    ``participation="uniform"``.  Noise for a given ``eps`` is calibrated by an
    accountant (``noise="calibrated"``, the default) or follows the paper's formula (``noise="paper"``).
    Metrics are computed at round 0, every ``eval_every`` rounds (0: only at both ends) and at the last;
    by default at most a fifth of the work is spent on them, in 3 to 100 evaluations.  ``metrics`` adds
    functions of (problem, x).  Metrics are exact functions of the training data, which no proof covers,
    unless ``metrics_on="test"`` or ``"validation"`` takes them on data that are not protected.
    ``checkpoint`` names a file for the whole run, written every ``checkpoint_every`` rounds and at the
    end.  ``resume`` continues such a file, or a :class:`Run`, at its cadence unless another is given;
    the result is exactly that of an uninterrupted run.  ``chunk`` bounds the rounds in one call of the
    compiled program
    and changes no result.  ``progress`` is called with a :class:`Progress`; True draws a bar.

    >>> import jax, jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.make_problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> run = jaxfl.simulate("soteriafl_gd", problem, jax.random.key(0), 10, eps=8, omega=3, lr=0.5)
    >>> bool(run.metrics["loss"][-1] < run.metrics["loss"][0]), run.sources["shift"]
    (True, 'Theorem 3')
    >>> run.totals["clients"], run.totals["uplink_bits"] == 10 * 5 * run.values["k"] * (32 + 10)
    (50, True)
    >>> round(run.privacy().proven, 3)
    8.0
    """
    began = time.perf_counter()
    algorithm, problem = one_algorithm(algorithm, numbers), one_problem(problem)
    key = one_key(key, "a run", "not an array of them")
    bar = watching(progress, _show)
    rounds = None if rounds is None else whole("rounds", rounds, 1)
    eval_every = None if eval_every is None else whole("eval_every", eval_every, 0)
    chunk = whole("chunk", chunk, 1, MOST)
    if checkpoint_every is not None:
        checkpoint_every = whole("checkpoint_every", checkpoint_every, 1)
        missing = "needs checkpoint=, the file to write"
        require(checkpoint is not None, missing, checkpoint_every=checkpoint_every)
    path = None if checkpoint is None else one_path("checkpoint", checkpoint)
    if path is not None:
        writable(path, "checkpoint")
    if resume is not None and not isinstance(resume, Run):
        resume = one_path("resume", resume)
    extra = None if metrics is None else own_metrics(metrics)
    rounds_of: Any = _advance  # a model of new functions has programs of its own
    if rounds_of._cache_size() >= PROGRAMS:
        jitted: tuple[Any, ...] = _start, _advance, _measure
        for program in jitted:
            program.clear_cache()

    run = _prepare(algorithm, problem, key, rounds, resume, numbers, noise)
    run.extra = run.extra if extra is None else extra
    _measure_on(run, metrics_on)
    stopping.check(stop, run.settings.get("metrics_on", PROTECTED))
    problem, hp = _plan(run, rounds, eval_every, chunk)
    if stop is not None:
        _follow(run, stop)
    measured = held_out(run.problem, run.settings.get("metrics_on", PROTECTED))
    loop = _Loop(run, problem, measured, hp, chunk, path, began, run.seconds)
    with bar as report:
        loop.enter()
        try:
            run.ended = loop.advance(checkpoint_every, stop, report)
            loop.save()
        except KeyboardInterrupt:
            run.ended = "interrupted"
            if not any(leaf.is_deleted() for leaf in jax.tree.leaves(run.state)):
                loop.save()
            raise
    for one in run.advice():
        warnings.warn(one, stacklevel=2)
    return run


@dataclasses.dataclass
class _Loop:
    """The loop of one call of :func:`simulate`."""

    run: Run
    problem: Problem  # with |a|^2 beside the samples
    measured: Problem  # whose data metrics are taken on
    hp: Hyper
    chunk: int
    path: Path | None  # of the checkpoint
    began: float
    earlier: float  # seconds of the calls before this one

    @property
    def rounds(self) -> int:
        return int(self.run.settings["until"])

    def due(self, t: int) -> bool:
        """Whether metrics are computed at round t, for t > 0."""
        every = self.run.settings["eval_every"]
        return t == self.rounds or bool(every and t % every == 0)

    def measure(self) -> Any:
        run = self.run
        return _measure(run.algorithm, run.extra, run.state, self.measured)

    def save(self) -> None:
        """Bring the history to the host, and write the checkpoint."""
        self.run.log.read()
        self.run.seconds = self.earlier + time.perf_counter() - self.began
        if self.path is not None:
            checkpoints.write(self.path, self.run)

    def enter(self) -> None:
        """Compile all programs; make the first state, or align a resumed history with the cadence."""
        run, log = self.run, self.run.log
        t = int(run.state.t)
        if not log.rounds:
            run.state, info = _start(run.algorithm, run.key, self.problem, self.hp)
            log.count(info)
            log.record(0, self.measure())
        else:  # the earlier end of an extended run may be off the cadence
            _check_metrics(log, jax.eval_shape(self.measure))
            if 0 < t == log.rounds[-1] and not self.due(t):
                log.forget_last()
            elif t != log.rounds[-1] and self.due(t):  # interrupted before the metrics of round t
                log.record(t, self.measure())
        run.state, _ = self.step(t)  # no rounds: what this call takes is compilation
        log.read()
        jax.block_until_ready(run.state)
        run.compile_seconds += time.perf_counter() - self.began

    def step(self, end: int) -> tuple[State, Info]:
        """Rounds up to ``end``."""
        run = self.run
        result: tuple[State, Info] = _advance(
            run.algorithm, self.chunk, run.key, run.state, jnp.int32(end), self.problem, self.hp
        )
        return result

    def advance(
        self,
        checkpoint_every: int | None,
        stop: Stop | None,
        report: Callable[[Progress], None] | None,
    ) -> str:
        """Compute the remaining rounds, or those until ``stop``; return how the run ended."""
        run, log, T = self.run, self.run.log, self.rounds
        t = first = int(run.state.t)
        started, reported, reason = time.perf_counter(), 0.0, ""
        marks = [m for m in (run.settings["eval_every"], checkpoint_every) if m]
        each = work(run.problem, run.values, run.facts).round
        most = rounds_of_call(each, self.chunk)
        before: Any = None  # the counts of the call before

        def show() -> None:
            if report:
                loss = float(log.last.metrics["loss"])
                jax.block_until_ready(run.state)  # rounds that are only queued have no rate
                rate = (t - first) / max(time.perf_counter() - started, 1e-9)
                report(Progress(t, T, rate, loss))

        while t < T and not reason:
            end = min(T, t + most, *(t - t % m + m for m in marks))
            with interrupts_deferred():  # an interrupt between these lines would lose the state
                state, info = self.step(end)
                log.count(info)
                # Last: until here the old state is donated, and nothing can be saved.
                run.state = state
            if each * (end - t) > SHORT:  # or many calls would queue up, and Ctrl-C wait for them
                jax.block_until_ready(before)
            t, before = end, info
            if self.due(t):
                log.record(t, self.measure())
                reason = _reason_to_stop(stop, run, self.began) if stop and t < T else ""
            if checkpoint_every and t % checkpoint_every == 0 and not reason:
                self.save()
            if time.perf_counter() - reported > 0.1:
                reported = time.perf_counter()
                show()
        show()
        history = zip(log.rounds, log.metrics, strict=True)
        lost = [r for r, m in history if not np.isfinite(m["loss"])]
        return (
            f"diverged: the loss is not finite from round {lost[0]} on" if lost else reason or DONE
        )


def _plan(
    run: Run, rounds: int | None, eval_every: int | None, chunk: int
) -> tuple[Problem, Hyper]:
    """What rounds read; sets the last round and the cadence.  Raise for a run that cannot be computed."""
    T = int(run.values["rounds"]) if rounds is None else rounds
    t = int(run.state.t) if run.log.rounds else 0
    ahead = "ask for more, or leave it out"
    require(t <= T, f"lies before round {t}, which this run has reached already", ahead, rounds=T)
    if eval_every is not None or "eval_every" not in run.settings:
        counted = work(run.problem, run.values, run.facts)
        run.settings["eval_every"] = cadence(T, counted) if eval_every is None else eval_every
    run.settings["until"] = T
    # raises for more samples than a client has
    run.algorithm.capacity(run.values, run.facts._replace(rounds=T))
    hp = build(run.algorithm, run.values, run.facts, dtype(run.problem), T)
    problem = samples.measured(run.problem)
    every = run.settings["eval_every"]
    check_history(run.problem, (T - t) // every if every else 0)
    if not run.log.rounds:
        check_room(run.algorithm, run.problem, hp)
    _check_scratch(run, chunk, problem, hp)
    return problem, hp


def _measure_on(run: Run, data: str | None) -> None:
    """Keep in the settings on which data metrics are taken; raise if a history has others."""
    if data is None:
        return
    held_out(run.problem, data)
    known = run.settings.get("metrics_on", PROTECTED)
    require(
        data == known or not run.log.rounds,
        f"differs from that of the run, whose metrics are taken on the {known} data",
        "leave it out",
        metrics_on=data,
    )
    if data != PROTECTED:
        run.settings["metrics_on"] = data


def _follow(run: Run, stop: Stop) -> None:
    """Keep the rule in the settings of the run."""
    t = int(run.state.t) if run.log.rounds else 0
    new = stopping.rule(stop, t, int(run.settings["until"]), int(run.settings["eval_every"]))
    run.settings["stop"] = stopping.followed(run.settings, new)


def begin(
    algorithm: Algorithm,
    problem: Problem,
    key: Key,
    rounds: int | None,
    numbers: Mapping[str, Any],
    noise: str = "calibrated",
) -> Run:
    """A run before its first round; :func:`simulate` accepts it as ``resume``."""
    facts = facts_of(problem, rounds)
    values, sources = resolve(algorithm, numbers, facts, noise)
    facts = facts._replace(rounds=int(values["rounds"]))
    blank = State(*[jnp.int32(0)] * len(State._fields))
    about = settings(algorithm, problem, key)
    return Run(algorithm, problem, key, values, sources, facts, blank, Log(), about)


def _prepare(
    algorithm: Algorithm,
    problem: Problem,
    key: Key,
    rounds: int | None,
    resume: Run | str | Path | None,
    numbers: Mapping[str, Any],
    noise: str | None,
) -> Run:
    if resume is None:
        return begin(
            algorithm, problem, key, rounds, numbers, "calibrated" if noise is None else noise
        )
    given = [*sorted(numbers), *(["noise"] if noise is not None else [])]
    require(
        not given,
        f"{', '.join(given)} cannot be set in a resumed run, which keeps its hyper-parameters",
        "start a new one",
    )
    if isinstance(resume, Run) and not resume.log.rounds:
        return resume
    if isinstance(resume, Run):
        checkpoints.same("The run", resume.settings, settings(algorithm, problem, key))
        require(
            algorithm == resume.algorithm,
            f"The run belongs to another {algorithm.name}",
            "make one and use it for both",
        )
        state = jax.tree.map(jnp.copy, resume.state)
        log = Log(resume.log.rounds, resume.log.metrics, resume.log.counts, resume.log.total)
        return dataclasses.replace(
            resume, state=state, log=log, settings=dict(resume.settings), ended="finished"
        )
    return restored(Path(resume), algorithm, problem, key)


def restored(path: Path, algorithm: Algorithm, problem: Problem, key: Key) -> Run:
    """The run that a checkpoint holds."""
    return Run(**vars(checkpoints.read(path, algorithm, problem, key)))


def _show(bar: Bar, now: Progress) -> None:
    bar.update(now.round, now.rounds, f"{now.rounds_per_second:,.0f} rounds/s, loss {now.loss:.5g}")


def _check_scratch(run: Run, chunk: int, problem: Problem, hp: Hyper) -> None:
    """Raise where the compiled programs need too much memory.  JAX reuses what is compiled here.

    Data that are bound to devices are not checked: the first call decides where their state lies.
    """
    if any(a.committed for a in jax.tree.leaves((run.key, run.state, problem, hp))):
        return
    programs, state, nbytes = [], run.state, 0
    if not run.log.rounds:
        programs.append(_start.lower(run.algorithm, run.key, problem, hp).compile())
        state, _ = jax.eval_shape(lambda: run.algorithm.init(run.key, problem, hp))
        nbytes = sum(math.prod(a.shape) * a.dtype.itemsize for a in jax.tree.leaves(state))
    rounds = _advance.lower(run.algorithm, chunk, run.key, state, jnp.int32(0), problem, hp)
    check_scratch(run.algorithm, run.problem, nbytes, [*programs, rounds.compile()])


def _check_metrics(log: Log, now: Mapping[str, Any]) -> None:
    """Raise unless the metrics are those that the history has."""
    differing = ", ".join(sorted(log.metrics[0].keys() ^ now.keys()))
    require(
        not differing,
        f"A resumed run must keep its metrics, and {differing} changed",
        "give the same metrics=",
    )


def _reason_to_stop(stop: Stop, run: Run, began: float) -> str:
    """The limit that has been reached, in words; "" if none has."""
    last = run.log.last
    spent = totals(run.cost, last.counts)
    seconds = time.perf_counter() - began
    if stop.loss is not None:
        loss = float(last.metrics["loss"]) if stop.sigma is None else _with_noise(stop, run)
        if loss <= stop.loss:
            return f"stopped: loss {loss:.6g} reached {stop.loss:g}"
    for name, limit, value in (
        ("seconds", stop.seconds, seconds),
        ("bits", stop.bits, spent["uplink_bits"]),
        ("gradients", stop.gradients, spent["gradients"]),
    ):
        if limit is not None and value >= limit:
            return f"stopped: {value:.6g} {name} reached {limit:g}"
    return ""


def _with_noise(stop: Stop, run: Run) -> float:
    """The noisy training loss of the last round."""
    x, t = run.algorithm.output(run.state), int(run.state.t)
    return stopping.noisy_loss(run.key, run.problem, x, t, stop, run.event(t))
