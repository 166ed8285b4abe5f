"""A single run: a grid of one cell and one seed, with its final state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms.registry import one_algorithm
from jaxfl.algorithms.resolution import NOISES, build
from jaxfl.core.checks import one_key, one_problem, untraced
from jaxfl.core.errors import InputError, JaxflWarning, require
from jaxfl.core.foreign import warn
from jaxfl.core.hosts import on_host
from jaxfl.core.meshes import own_settings
from jaxfl.core.params import choice, whole
from jaxfl.core.products import precision
from jaxfl.core.secret import key_of_words, system_key, words_of_key
from jaxfl.core.types import Algorithm, Key, Problem, PyTree
from jaxfl.engine import results, stopping
from jaxfl.engine.callbacks import Callback
from jaxfl.engine.checkpoint import Batch, restored
from jaxfl.engine.dataset import dataset, record_of, single
from jaxfl.engine.driver import Executor
from jaxfl.engine.grid import Grid, Study, lay_out
from jaxfl.engine.ledger import Ledger, ledger
from jaxfl.engine.loop import Metric, own_metrics
from jaxfl.engine.plan import KEPT, Options
from jaxfl.engine.planned import Base
from jaxfl.engine.program import state_of
from jaxfl.engine.progress import Plan, Progress
from jaxfl.engine.runs import Record, noisy
from jaxfl.engine.session import Computed, How, check_names, computed, report_failures
from jaxfl.engine.stopping import Limits
from jaxfl.problems.identity import dtype
from jaxfl.problems.public import beyond, distance
from jaxfl.rounds.blocks import start

__all__ = ["Metric", "Progress", "Run", "base_key", "longer", "options_of", "simulate", "simulated"]


@dataclasses.dataclass(repr=False)
class Run(Record):
    """A finished or stopped run.  :meth:`dataset` labels it, :meth:`extend` continues it."""

    computed: Computed | None = dataclasses.field(default=None, repr=False)

    @property
    def x(self) -> np.ndarray:
        """The model, flat."""
        with own_settings(self.problem, self.state):
            return np.asarray(self.algorithm.output(self.state))

    @property
    def params(self) -> PyTree:
        """The model as its own parameter pytree."""
        with own_settings(self.problem, self.state):
            return self.problem.model.unravel(self.algorithm.output(self.state))

    def advice(self) -> list[JaxflWarning]:
        """Those of a record, and one for a model outside its constraint set."""
        who = f"{self.algorithm.name} on {self.problem.name}"
        project, found = self.problem.model.project, super().advice()
        if project is None:
            return found
        far, length = distance(project, jnp.asarray(self.x)).tolist()
        return found + beyond(far, length, who)

    def dataset(self) -> Any:
        """The run as a labelled ``xarray.Dataset``."""
        assert self.computed is not None
        report = self.privacy() if noisy(self.algorithm, self.values) else None
        done = self.computed
        return single(dataset(done.planned, done.found, done.about), self, report)

    def save(self, path: str | Path) -> Path:
        """Write :meth:`dataset` to one file, which :func:`jaxfl.load` reads back."""
        return results.save(self.dataset(), path)

    def ledger(self, delta: float | None = None) -> Ledger:
        """The number of each client's rounds so far, and its eps at ``delta``, proven and claimed."""
        return ledger(self, delta)

    def clients(self) -> Any:
        """A pandas table with a row for each client: its records, weight, eps and last metrics."""
        import pandas

        ds, problem = self.dataset(), self.problem
        n = problem.n
        weight = np.ones(n) if problem.weights is None else on_host(problem.weights)
        table: dict[str, Any] = {"records": on_host(problem.count), "weight": weight}
        if problem.test_owner is not None:
            owner = on_host(problem.test_owner)
            table["test_records"] = np.bincount(owner[owner >= 0], minlength=n)
        twice = ("client_loss", "client_accuracy") * (self.settings.get("metrics_on") == "test")
        for name, values in ds.data_vars.items():
            if "client" in values.dims and name not in twice:  # client_test_* have the same
                last = values.isel(round=-1) if "round" in values.dims else values
                table[str(name).removeprefix("client_")] = last.values
        return pandas.DataFrame(table, index=ds["client"].to_index())

    def extend(self, rounds: int, **more: Any) -> Run:
        """A new run that continues until round ``rounds``, with the same values and streams of draws.

        It is in memory: ``simulate(..., out=folder, extend=True)`` continues in a folder.
        ``more`` are ``stop``, ``progress`` and ``callbacks`` of :func:`simulate`.  Without ``stop`` no
        rule ends the new rounds; :meth:`privacy` still counts the earlier ones.
        """
        assert self.computed is not None
        rounds, t = whole("rounds", rounds, 1), int(np.max(self.state.t))
        late = f"lies before round {t}, which this run has reached already"
        require(t <= rounds, late, "ask for more", rounds=rounds)
        found = self.computed.planned
        grid = longer(found.grid, rounds, least=t)
        stop = stopping.read(more.pop("stop", None), found.options.metrics_on)
        options, how = found.options._replace(stop=stop), How(extend=True, **more)
        store = found.store.detached()
        return _run(computed(lambda: grid, lambda _: found.base, options, how, True, store))


def longer(grid: Grid, rounds: int, least: int | None = None) -> Grid:
    """The grid with the hyper-parameters of its runs, but until this round.

    It is not before ``least``, by default the last planned round: a run that a rule has stopped may go
    on to an earlier one.
    """
    planned = {cell.rounds for study in grid.studies for cell in study.cells}
    least = max(planned) if least is None else least
    several = "goes with one number of rounds, and rounds is an axis here"
    require(len(planned) == 1, several, "add a number to the axis", until=rounds)
    early = "names a round before the last one planned"
    require(rounds >= least, early, lambda: f"give at least {least}", until=rounds)
    for study in grid.studies:
        for cell in study.cells:
            # raises for more samples than a client has, and for a schedule that ends before
            facts, kind = cell.facts._replace(rounds=rounds), dtype(study.problem)
            build(study.algorithm, cell.values, facts, kind, rounds)

    def until(study: Study) -> Study:
        return study._replace(cells=tuple(cell._replace(rounds=rounds) for cell in study.cells))

    return grid._replace(studies=tuple(map(until, grid.studies)))


def base_key(key: Key | None, taker: str, several: str, seeded: bool) -> Base:
    """The base key of runs, from the header of their folder.

    It is the given key, or that of the folder; with seeds alone key(0), and else a secret one.
    """
    if key is not None:
        given = one_key(key, taker, several)
        return lambda header: given

    def base(header: Mapping[str, Any]) -> Key:
        if "base" in header:
            return key_of_words(header["base"])
        return jax.random.key(0) if seeded or header else system_key()

    return base


def options_of(
    eval_every: int | None,
    metrics: Mapping[str, Metric] | None,
    metrics_on: str,
    stop: Limits,
    paired: bool,
    noise: str,
    matmul_precision: str | None,
    keep: Collection[str],
) -> Options:
    """The options of runs, checked."""
    choice("noise", noise, NOISES)
    choice("metrics_on", metrics_on, ("train", "test", "validation"))
    listed = isinstance(keep, list | tuple | set | frozenset)
    require(listed, lambda: f"must be a list of {', '.join(KEPT)}", keep=keep)
    for name in keep:
        choice("keep", name, KEPT)
    return Options(
        own_metrics({} if metrics is None else metrics),
        None if eval_every is None else whole("eval_every", eval_every, 0),
        metrics_on,
        stopping.read(stop, metrics_on),
        paired,
        noise,
        precision(matmul_precision),
        tuple(sorted(keep)),
    )


def simulate(
    algorithm: Algorithm | str,
    problem: Problem,
    key: Key | None = None,
    rounds: int | None = None,
    *,
    seed: int | None = None,
    eval_every: int | None = None,
    metrics: Mapping[str, Metric] | None = None,
    metrics_on: str = "train",
    stop: Limits = None,
    noise: str = "calibrated",
    out: str | Path | None = None,
    resume: bool = False,
    extend: bool = False,
    memory: int | None = None,
    executor: str | Executor | None = None,
    announce: Callable[[Plan], None] | None = None,
    progress: bool | Callable[[Progress], None] | None = None,
    callbacks: Sequence[Callback | str] = (),
    strict: bool = False,
    matmul_precision: str | None = None,
    **given: Any,
) -> Run:
    """Run ``algorithm`` on ``problem`` for ``rounds`` rounds.

    Without ``rounds`` their number is the one that the algorithm's theory gives.  ``given`` are the
    algorithm's hyper-parameters; those that are not there follow from its theory, and ``Run.sources``
    lists the source of each.  Of an algorithm by name they may also be parts, as in
    ``participation="uniform"``.  Noise for a given ``eps`` is calibrated by an accountant
    (``noise="calibrated"``, the default) or follows the paper's formula (``noise="paper"``).

    The run with base key K and ``seed`` s (default: 0) has the key ``fold_in(K, s)``, as in
    :func:`jaxfl.sweep`.  Without ``key`` K is ``jax.random.key(0)`` if a seed is given: anybody can then
    draw the same noise, and subtract it.  With neither K is drawn from the operating system and kept with
    the run, in its folder, and the noise is secret.  Runs with the same key have no eps together: their
    noise cancels in a difference.  The eps of runs on the same data add up
    [:func:`jaxfl.privacy.best_of`].

    Metrics are computed at round 0, every ``eval_every`` rounds (0: only at both ends) and at the last;
    by default 3 to 100 times, as often as a tenth of the work or some hundredths of a second allow, but
    at least 20 times where these take about a second or less, whatever their share.
    ``metrics`` adds functions of (problem, x).  Metrics are exact functions of the training data, which
    no proof covers, unless ``metrics_on="test"`` or ``"validation"`` takes them on data that are not
    protected.  ``stop`` ends the run before its last round, once a limit is reached:
    ``stop={"loss": 0.5}``; the names are the fields of :class:`jaxfl.engine.stopping.Stop`.

    ``out`` is a folder for the plan, a checkpoint every two minutes, the final state and ``result.nc``.
    ``resume=True`` continues what is in it, or begins in a new one; the result is exactly that of an
    uninterrupted run.
    ``extend=True`` computes more ``rounds``: the run continues unless they change what its rounds read,
    as noise for a given ``eps`` does.  (:meth:`Run.extend` keeps all hyper-parameters.)

    ``progress=True`` draws a bar, ``False`` none, and a function is called with a :class:`Progress`; by
    default there is a bar after five seconds, in a terminal or a notebook.
    ``callbacks`` are called with every :class:`~jaxfl.engine.callbacks.Evaluation`, as the loop reads it
    from the device; a resumed run hands over the earlier ones first.  If a callback raises an exception,
    the run ends as after Ctrl-C, with a checkpoint.  ``callbacks=["tensorboard:logs"]`` is a tracker, as
    are ``"wandb:PROJECT"`` and ``"mlflow:URI"`` [:mod:`jaxfl.engine.trackers`].
    ``memory``, ``executor`` and ``announce`` are those of :func:`jaxfl.sweep`.

    Parts of a user's own are probed before the first round [:mod:`jaxfl.algorithms.probes`].  What a probe
    refutes has no eps and a warning, and is an error with ``strict=True``.

    With ``matmul_precision="default"`` accelerators may round what enters the products of forward and
    backward passes (GPUs to TF32, TPUs to bfloat16), with ``"highest"`` they do not; by default JAX's
    configuration decides.  Norms, clipped sums and what rounds iterate are never rounded.

    >>> import jax, jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.Problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> run = jaxfl.simulate("soteriafl_gd", problem, rounds=10, eps=8, omega=3, lr=0.5, seed=1)
    >>> bool(run.metrics["loss"][-1] < run.metrics["loss"][0]), run.sources["shift"]
    (True, 'Theorem 3')
    >>> run.totals["clients"], run.totals["uplink_bits"] == 10 * 5 * run.values["k"] * (32 + 10)
    (50, True)
    >>> round(run.privacy().proven, 3)
    8.0
    """
    untraced("simulate", problem, key, rounds, given, compiles=True)
    algorithm, problem = one_algorithm(algorithm, given), one_problem(problem)
    base = base_key(key, "a run", "not an array of them", seed is not None)
    number = whole("seed", 0 if seed is None else seed, 0)
    fixed = {**given, **({} if rounds is None else {"rounds": whole("rounds", rounds, 1)})}
    options = options_of(eval_every, metrics, metrics_on, stop, True, noise, matmul_precision, KEPT)
    check_names((), options)
    how = How(
        out,
        resume,
        extend,
        memory=memory,
        executor=executor,
        announce=announce,
        progress=progress,
        callbacks=callbacks,
        strict=strict,
    )

    def make() -> Grid:
        return lay_out(algorithm, problem, {}, fixed, [number], noise, metrics_on, simulate)

    return simulated(make, base, options, how)


def simulated(make: Callable[[], Grid], base: Base, options: Options, how: How) -> Run:
    """The run of a grid that has one, computed, and written where it has a folder."""
    with own_settings():
        done = computed(make, base, options, how, alone=True)
        report_failures(done)
        run = _run(done)
    for one in run.advice():
        warn(one)
    return run


def _run(done: Computed) -> Run:
    """The run of a grid that has one, with its state and its history."""
    found, store = done.planned, done.planned.store
    ((number, arrays),) = done.found.items()
    chunk = found.chunks[number]
    program = found.programs[chunk.program]
    study = found.grid.studies[0]
    record = record_of(found, chunk, arrays)
    batch = store.states.get(number)
    if not isinstance(batch, Batch):
        saved = store.saved(number)
        batch = None if saved is None else restored(saved, state_of(program))
        if arrays is None or batch is None:
            lost = f"{store.folder} has lost the end of its run, or other versions of jaxfl or JAX wrote it"
            raise InputError(lost, "run it again, in another folder")
    log = batch.log.first()
    run = Run(**{**vars(record), "state": batch.state, "log": log}, computed=done)
    if words_of_key(found.base) == words_of_key(jax.random.key(0)):
        run.seed = found.grid.seeds[0]
    run.compile_seconds = done.about["compile_seconds"]
    run.seconds = run.compile_seconds + batch.seconds
    if "gradient_bound" in run.values:
        x = study.algorithm.output(batch.state)
        run.points = (0, start(run.key, run.problem)), (int(batch.state.t), x)
    if done.result is not None:
        run.save(done.result)
    return run
