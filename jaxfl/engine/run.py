"""Run an algorithm: rounds compiled once, metrics at a cadence, checkpoints, resuming."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms.registry import one_algorithm
from jaxfl.algorithms.resolution import build, resolve
from jaxfl.core import hosts
from jaxfl.core.checks import one_key, one_path, one_problem
from jaxfl.core.errors import require
from jaxfl.core.files import writable
from jaxfl.core.params import whole
from jaxfl.core.products import precision
from jaxfl.core.progress import Bar, watching
from jaxfl.core.types import Algorithm, Array, Hyper, Info, Key, Problem, State
from jaxfl.data import samples
from jaxfl.engine import checkpoint as checkpoints
from jaxfl.engine import results, stopping
from jaxfl.engine.callbacks import DONE, LOST, Callback, Callbacks, Follower
from jaxfl.engine.ledger import Ledger, ledger
from jaxfl.engine.log import Log
from jaxfl.engine.loop import (
    LONGEST,
    Loop,
    Metric,
    advance,
    cadence,
    initial,
    measure,
    own_metrics,
    rounds_of_call,
    work,
)
from jaxfl.engine.memory import check_history, check_room, check_scratch
from jaxfl.engine.record import Record, dtype, joined_proof, settings, totals
from jaxfl.engine.stopping import PROTECTED, Stop
from jaxfl.problems.facts import facts_of
from jaxfl.problems.problem import held_out

__all__ = ["Metric", "Progress", "Run", "Stop", "begin", "restored", "simulate"]

PROGRAMS = 64  # the most compiled programs, of about 10 MB each, before the cache is cleared


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

    def clients(self) -> Any:
        """A pandas table with a row for each client: its records, weight, eps and last metrics."""
        import pandas

        ds, problem = self.dataset(), self.problem
        n = problem.n
        weight = np.ones(n) if problem.weights is None else hosts.on_host(problem.weights)
        table: dict[str, Any] = {"records": hosts.on_host(problem.count), "weight": weight}
        if problem.test_owner is not None:
            owner = hosts.on_host(problem.test_owner)
            table["test_records"] = np.bincount(owner[owner >= 0], minlength=n)
        for name, values in ds.data_vars.items():
            if "client" in values.dims:
                last = values.isel(round=-1) if "round" in values.dims else values
                table[str(name).removeprefix("client_")] = last.values
        return pandas.DataFrame(table, index=ds["client"].to_index())

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


_start = jax.jit(initial, static_argnames="algorithm")
_advance = jax.jit(advance, static_argnames="algorithm", donate_argnames="state")
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
    callbacks: Sequence[Callback] = (),
    noise: str | None = None,
    matmul_precision: str | None = None,
    **numbers: Any,
) -> Run:
    """Run ``algorithm`` on ``problem`` for ``rounds`` rounds.

    Without ``rounds`` their number is the one that the algorithm's theory gives.  ``numbers`` are the
    algorithm's hyper-parameters; those that are not given follow from its theory, and ``Run.sources``
    lists the source of each.  Of an algorithm by name they may also be parts, as in
    ``participation="uniform"``.  Noise for a given ``eps`` is calibrated by an accountant
    (``noise="calibrated"``, the default) or follows the paper's formula (``noise="paper"``).

    Metrics are computed at round 0, every ``eval_every`` rounds (0: only at both ends) and at the last;
    by default 3 to 100 times, as often as a tenth of the work or some hundredths of a second allow.
    ``metrics`` adds functions of (problem, x).  Metrics are exact functions of the training data, which
    no proof covers, unless ``metrics_on="test"`` or ``"validation"`` takes them on data that are not
    protected.

    ``checkpoint`` names a file for the whole run, written every ``checkpoint_every`` rounds and at the
    end.  ``resume`` continues such a file, or a :class:`Run`, and evaluates it as often as before unless
    ``eval_every`` is given; the result is exactly that of an uninterrupted run.  ``chunk`` bounds the
    rounds in one call of the compiled program and changes no result.

    A run is silent: ``progress=True`` draws a bar, and a function is called with a :class:`Progress`.
    ``callbacks`` are called with every :class:`Evaluation`, as the loop reads it from the device; a
    resumed run hands over the earlier ones first.  If a callback raises an exception, the run ends as
    after Ctrl-C, with a checkpoint.  :mod:`jaxfl.trackers` has callbacks for TensorBoard and others.

    With ``matmul_precision="default"`` accelerators may round what enters the products of forward and
    backward passes (GPUs to TF32, TPUs to bfloat16), with ``"highest"`` they do not; by default JAX's
    configuration decides.  Norms, clipped sums and what rounds iterate are never rounded.

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
    first_of_all = hosts.is_first()
    bar = watching(progress if first_of_all else None, _show)
    listed = Callbacks(callbacks if first_of_all else ())
    rounds = None if rounds is None else whole("rounds", rounds, 1)
    eval_every = None if eval_every is None else whole("eval_every", eval_every, 0)
    chunk = whole("chunk", chunk, 1)
    if checkpoint_every is not None:
        checkpoint_every = whole("checkpoint_every", checkpoint_every, 1)
        missing = "needs checkpoint=, the file to write"
        require(checkpoint is not None, missing, checkpoint_every=checkpoint_every)
    path = None if checkpoint is None else one_path("checkpoint", checkpoint)
    if path is not None and hosts.is_first():
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
    _multiply_at(run, matmul_precision)
    multiplied = functools.partial(jax.default_matmul_precision, run.settings["matmul_precision"])
    _measure_on(run, metrics_on)
    stopping.check(stop, run.settings.get("metrics_on", PROTECTED))
    with multiplied():
        problem, hp = _plan(run, rounds, eval_every)
    if stop is not None:
        _follow(run, stop)
    with multiplied():
        loop = _loop(run, problem, hp, chunk, checkpoint_every)
    first, earlier = loop.t, run.seconds

    def save() -> None:
        """Bring the history to the host, and write the checkpoint."""
        run.log.read()
        run.seconds = earlier + time.perf_counter() - began
        if path is not None:
            checkpoints.write(path, run)  # process 0 writes, of arrays that all have a part of

    together = hosts.together(None if path is None else str(path))
    with multiplied(), together, bar as report, listed:
        loop.begin()
        run.log.read()
        jax.block_until_ready(run.state)
        started, reason = time.perf_counter(), ""
        run.compile_seconds += started - began
        follower = Follower(listed, run, loop.evaluations()) if listed else None

        def show(t: int, loss: Any) -> None:
            if report is not None:
                rate = (t - first) / max(time.perf_counter() - started, 1e-9)
                report(Progress(t, loop.rounds, rate, float(loss)))

        try:
            for ready in loop.calls():
                if follower is not None and ready is not None:
                    follower.read(ready.round)
                if stop is not None and loop.seen and loop.t < loop.rounds:
                    reason = hosts.first(lambda: _reason_to_stop(stop, run, began))
                    if reason:
                        break
                if checkpoint_every and loop.t % checkpoint_every == 0:
                    save()
                if ready is not None and ready.late:
                    show(ready.round, ready.loss)
            run.log.read()
            show(loop.t, loop.loss)
            if follower is not None:
                follower.read()
            run.ended = _diverged(run.log) or reason or DONE
            save()
        except BaseException:
            run.ended = "interrupted"
            if loop.intact and not hosts.several():  # others may be elsewhere
                save()
            raise
        if follower is not None:
            listed.end(follower.run, run.ended)
    for one in run.advice():
        warnings.warn(one, stacklevel=2)
    return run


def _loop(run: Run, problem: Problem, hp: Hyper, chunk: int, checkpoint_every: int | None) -> Loop:
    """The remaining rounds of a run; raise unless its metrics are those of its history."""
    algorithm, key = run.algorithm, run.key
    measured = held_out(run.problem, run.settings.get("metrics_on", PROTECTED))
    each = work(run.problem, run.values, run.facts)

    def metrics(state: State) -> dict[str, Array]:
        found: dict[str, Array] = _measure(algorithm, run.extra, state, measured)
        return found

    def step(
        state: State, first: bool, start: int, stop: int, seen: bool
    ) -> tuple[State, Info, dict[str, Array] | None]:
        begun = None
        if first:
            state, begun = _start(algorithm, key, problem, hp)
        state, counts = _advance(algorithm, key, state, jnp.int32(stop), problem, hp)
        if begun is not None:
            counts = jax.tree.map(np.add, begun, counts)
        return state, counts, metrics(state) if seen else None

    if run.log.rounds:
        _check_metrics(run.log, jax.eval_shape(metrics, run.state))
    most = rounds_of_call(each.round, chunk)
    every, until = run.settings["eval_every"], run.settings["until"]
    return Loop(step, run, until, every, each, most, [checkpoint_every or 0])


def _plan(run: Run, rounds: int | None, eval_every: int | None) -> tuple[Problem, Hyper]:
    """What rounds read; sets the last round and the cadence.  Raise for a run that cannot be computed."""
    T = int(run.values["rounds"]) if rounds is None else rounds
    t = int(run.state.t) if run.log.rounds else 0
    ahead = "ask for more, or leave it out"
    require(
        t <= T,
        lambda: f"lies before round {t}, which this run has reached already",
        ahead,
        rounds=T,
    )
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
    _check_scratch(run, problem, hp)
    return problem, hp


def _multiply_at(run: Run, given: str | None) -> None:
    """Keep in the settings at which precision products are computed; raise if a history has another."""
    known = run.settings.get("matmul_precision", "default") if run.log.rounds else precision(given)
    require(
        given in (None, known),
        lambda: f"differs from that of the run, whose products have {known} precision",
        "leave it out",
        matmul_precision=given,
    )
    run.settings["matmul_precision"] = known


def _measure_on(run: Run, data: str | None) -> None:
    """Keep in the settings on which data metrics are taken; raise if a history has others."""
    if data is None:
        return
    held_out(run.problem, data)
    known = run.settings.get("metrics_on", PROTECTED)
    require(
        data == known or not run.log.rounds,
        lambda: f"differs from that of the run, whose metrics are taken on the {known} data",
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
        lambda: (
            f"{', '.join(given)} cannot be set in a resumed run, which keeps its hyper-parameters"
        ),
        "start a new one",
    )
    if isinstance(resume, Run) and not resume.log.rounds:
        return resume
    if isinstance(resume, Run):
        now = settings(algorithm, problem, key)
        checkpoints.same("The run belongs to another", resume.settings, now)
        require(
            algorithm == resume.algorithm,
            lambda: f"The run belongs to another {algorithm.name}",
            "make one and use it for both",
        )
        state, log = jax.tree.map(jnp.copy, resume.state), resume.log.copy()
        proof = joined_proof(resume.settings["proof"], now["proof"])
        about = {**resume.settings, "proof": proof}
        return dataclasses.replace(resume, state=state, log=log, settings=about, ended="finished")
    return restored(Path(resume), algorithm, problem, key)


def restored(path: Path, algorithm: Algorithm, problem: Problem, key: Key) -> Run:
    """The run that a checkpoint holds."""
    return Run(**vars(checkpoints.read(path, algorithm, problem, key)))


def _show(bar: Bar, now: Progress) -> None:
    bar.update(now.round, now.rounds, f"{now.rounds_per_second:,.0f} rounds/s, loss {now.loss:.5g}")


def _check_scratch(run: Run, problem: Problem, hp: Hyper) -> None:
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
    rounds = _advance.lower(run.algorithm, run.key, state, jnp.int32(0), problem, hp)
    check_scratch(run.algorithm, run.problem, nbytes, [*programs, rounds.compile()])


def _check_metrics(log: Log, now: Mapping[str, Any]) -> None:
    """Raise unless the metrics are those that the history has."""
    differing = ", ".join(sorted(log.metrics[0].keys() ^ now.keys()))
    require(
        not differing,
        lambda: f"A resumed run must keep its metrics, and {differing} changed",
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


def _diverged(log: Log) -> str:
    """That the loss was not finite, in words; "" if it always was."""
    lost = [entry.round for entry in log.entries if not np.isfinite(entry.metrics["loss"])]
    return LOST.format(lost[0]) if lost else ""


def _with_noise(stop: Stop, run: Run) -> float:
    """The noisy training loss of the last round."""
    x, t = run.algorithm.output(run.state), int(run.state.t)
    return stopping.noisy_loss(run.key, run.problem, x, t, stop, run.event(t))
