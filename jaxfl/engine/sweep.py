"""Every run of a grid, as one labelled data set."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxfl.core.checks import untraced
from jaxfl.core.foreign import warn
from jaxfl.core.meshes import own_settings
from jaxfl.core.params import whole
from jaxfl.core.types import Key
from jaxfl.engine.callbacks import Callback
from jaxfl.engine.dataset import dataset
from jaxfl.engine.driver import Executor
from jaxfl.engine.grid import Build, Grid, Problems, lay_out, spans
from jaxfl.engine.loop import Metric
from jaxfl.engine.plan import Options
from jaxfl.engine.planned import Base
from jaxfl.engine.progress import Plan, Progress
from jaxfl.engine.results import save
from jaxfl.engine.session import Computed, How, check_names, computed, report_failures
from jaxfl.engine.simulate import base_key, options_of
from jaxfl.engine.stopping import Limits
from jaxfl.engine.store import OUTSIDE
from jaxfl.problems.public import beyond

if TYPE_CHECKING:
    import xarray

__all__ = ["sweep", "swept"]


def sweep(
    algorithm: Build,
    problem: Problems,
    key: Key | None = None,
    rounds: int | Sequence[int] | None = None,
    *,
    seeds: int | Sequence[int] = 1,
    eval_every: int | None = None,
    metrics: Mapping[str, Metric] | None = None,
    metrics_on: str = "train",
    stop: Limits = None,
    noise: str = "calibrated",
    paired: bool = True,
    keep: Collection[str] = (),
    out: str | Path | None = None,
    resume: bool = False,
    extend: bool = False,
    memory: int | None = None,
    runs_at_once: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    executor: str | Executor | None = None,
    chunk_seconds: float | None = None,
    announce: Callable[[Plan], None] | None = None,
    progress: bool | Callable[[Progress], None] | None = None,
    callbacks: Sequence[Callback | str] = (),
    strict: bool = False,
    matmul_precision: str | None = None,
    **numbers: Any,
) -> xarray.Dataset:
    """Compute every run of a grid, and return one labelled ``xarray.Dataset``.

    A list of values is an axis, a single value holds for all runs: ``lr=[0.1, 0.3], eps=5``.
    ``algorithm`` is an algorithm, its name, a list of them, or a function that returns one; ``problem``
    a problem, several by name, or such a function.  Axes that these functions take by name, and parts
    such as ``participation=["full", "uniform"]``, are static: each of their values is compiled.  All
    other axes are hyper-parameters (also ``rounds``, and schedules such as ``"cosine:0.3"``), whose cells
    run in one program.  A *cell* is a setting: the values of all axes.  Axes that an algorithm does not
    use are broadcast.  Hyper-parameters that are not given follow from each cell's theory.

    Seed s of base key K runs with ``fold_in(K, s)``, as in :func:`simulate`.  Without ``key`` K is
    ``jax.random.key(0)`` if ``seeds`` are listed, and else drawn from the operating system and kept in
    the folder.  All cells of a seed share their draws: they differ by the axes and not by
    chance.  With ``paired=False`` each cell has its own draws.  Random draws and counts never depend
    on other cells, chunks or devices; floats may differ by rounding.

    ``eval_every``, ``metrics``, ``metrics_on``, ``stop``, ``noise``, ``strict`` and ``matmul_precision``
    are those of :func:`simulate`.  A run that diverges, or that ``stop`` ends, is frozen, marked by
    ``diverged_at`` or ``stopped_at``, and does not affect others.  The data set has what is small:
    ``keep`` adds ``"clients"`` (metrics of every client), ``"eps_spent"`` (also of each client) and
    ``"x"``.

    ``out`` is a folder for the plan, each finished chunk, checkpoints and ``result.nc``.  ``resume=True``
    computes only what is missing in it, all if it is new, and gives bit for bit the same result.
    ``extend=True`` does so for a larger grid, which holds that of the folder: more values, axes, seeds or
    algorithms, or more ``rounds``, for which a run continues unless they change what its rounds read.

    Chunks of the grid have at most ``runs_at_once`` runs and fit in ``memory`` bytes (default: most of
    what is free on ``devices``, by default all local ones, which share the runs).  A chunk that does
    not fit after all is halved.  With an ``executor`` its workers compute the chunks, in ``memory``
    bytes each: ``"processes:4"``, ``"ray"`` or another text of :mod:`jaxfl.engine.executors`, or anything
    with ``submit(function, *arguments)``.  A chunk that would take more than ``chunk_seconds`` (default:
    300) is halved.  One whose worker is lost is computed again, from its checkpoint if it has one; one
    that fails three times is reported at the end.

    ``announce`` is called with the :class:`Plan` before anything is compiled; what it raises ends the
    sweep.  ``progress`` is that of :func:`simulate`.
    ``callbacks`` are called with every :class:`~jaxfl.engine.callbacks.Evaluation` of every run, or are
    trackers as in :func:`simulate`: while its chunk is computed here, or when an ``executor`` returns it;
    ``resume`` hands over earlier ones too.  If a callback raises an exception, the sweep ends as after
    Ctrl-C, with what is finished and a checkpoint.

    >>> import jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = jaxfl.Problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> ds = sweep(["cdp_gd", "ldp_gd"], problem, rounds=5, eps=[1, 8], lr=[0.1, 0.3], seeds=[0, 1])
    >>> dict(ds["loss"].sizes)
    {'algorithm': 2, 'eps': 2, 'lr': 2, 'seed': 2, 'round': 6}
    """
    untraced("sweep", problem, key, rounds, numbers, compiles=True)
    axes, fixed = spans({**({} if rounds is None else {"rounds": rounds}), **numbers})
    if "rounds" in fixed:
        fixed["rounds"] = whole("rounds", fixed["rounds"], 1)
    options = options_of(
        eval_every, metrics, metrics_on, stop, paired, noise, matmul_precision, keep
    )
    check_names(axes, options)
    how = How(
        out,
        resume,
        extend,
        memory,
        runs_at_once,
        devices,
        executor,
        chunk_seconds,
        announce,
        progress,
        callbacks,
        strict,
    )
    return swept(
        lambda: lay_out(algorithm, problem, axes, fixed, seeds, noise, metrics_on, sweep),
        base_key(key, "a sweep", "and seeds= for several runs", isinstance(seeds, Iterable)),
        options,
        how,
        fixed,
    )


def swept(
    make: Callable[[], Grid],
    base: Base,
    options: Options,
    how: How,
    fixed: Mapping[str, Any],
) -> xarray.Dataset:
    """The runs of a grid, computed, and written where they have a folder.

    ``fixed`` are the values for all runs.
    """
    with own_settings():
        done = computed(make, base, options, how)
    words = {name: str(value) for name, value in fixed.items() if name != "rounds"}
    about = {"rounds": fixed.get("rounds"), "numbers": words}
    ds = dataset(done.planned, done.found, {**done.about, **about})
    if done.result is not None:
        save(ds, done.result)
    report_failures(done)
    _tell_outside(done)
    return ds


def _tell_outside(done: Computed) -> None:
    """Warn of the model that lies furthest outside its constraint set, over its length."""
    found = [
        (far / (length or 1.0), far, length, number)
        for number, arrays in done.found.items()
        for far, length in (arrays or {}).get(OUTSIDE, np.empty(0)).reshape(-1, 2).tolist()
        if math.isfinite(far)
    ]
    for _, far, length, number in sorted(found)[-1:]:
        study = done.planned.study(done.planned.chunks[number])
        for one in beyond(far, length, f"{study.algorithm.name} on {study.problem.name}"):
            warn(one)
