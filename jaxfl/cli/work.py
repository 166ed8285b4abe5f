"""`jaxfl run`: compute the run of a :class:`Setup` and write its files."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxfl.cli.build import DEMO, LEAF, algorithm_of, choose_problem, is_file, of_leaf
from jaxfl.cli.folder import CONFIG, Folder
from jaxfl.cli.interrupt import Interrupts
from jaxfl.cli.options import Session, Setup
from jaxfl.cli.report import Display, facts, print_json, summary
from jaxfl.cli.written import command, flag, suggested
from jaxfl.core.errors import (
    DivergedWarning,
    InputError,
    JaxflWarning,
    assigned,
    printable,
    require,
)
from jaxfl.core.params import number, varies
from jaxfl.core.schedules import schedule
from jaxfl.core.types import Algorithm, Key, Problem, Source
from jaxfl.data.loaders import LOADERS
from jaxfl.engine import checkpoint, results, stopping, trackers
from jaxfl.engine.loop import cadence, work
from jaxfl.engine.run import Progress, Run, Stop, begin, restored, simulate
from jaxfl.views import plots
from jaxfl.views.bounds import bounds, possible

__all__ = ["absolute", "computing", "run"]

# Of the demonstration: the theory's step size is safe, but too small to show any progress.  In a
# longer run the noise is larger, and so the steps are smaller.
DEMO_NUMBERS = {"lr": 0.6, "batch": 32, "omega": 1.0}
DEMO_ROUNDS = 200


def run(given: dict[str, Any], session: Session) -> None:
    """Run, or resume a run, and write its files."""
    given = absolute(given)
    with Interrupts() as interrupts:
        if session.resume is not None:
            folder = Folder.resume(given, session)
        else:
            setup = Setup(**given)
            place = session.out or Path("results") / _folder_name(setup)
            folder = Folder(Path(place), setup, {} if "rounds" in given else {"rounds": "default"})
        with computing(folder.setup, session.quiet):
            try:
                make = _restore if folder.lost else _simulate
                _write(folder, session, make(folder, session, interrupts))
            except InputError as error:
                if not folder.ours or not folder.waiting:
                    raise
                raise _not_replaced(folder, error) from None
            except KeyboardInterrupt:
                if folder.ours and folder.checkpoint.exists():
                    folder.settle()
                    way = command("run", "--resume", folder.path)
                    raise KeyboardInterrupt(f"; continue with {way}.") from None
                if folder.ours:
                    folder.abandon()
                raise KeyboardInterrupt(" before anything was saved.") from None


def _simulate(folder: Folder, session: Session, interrupts: Interrupts) -> Run:
    import jax

    setup = folder.setup
    tracker = [] if session.track is None else [trackers.read(session.track)]
    limits = Stop(
        setup.target_loss,
        setup.max_seconds,
        setup.max_bits,
        bound=setup.loss_bound,
        sigma=setup.loss_sigma,
    )
    stopping.check(limits, setup.metrics_on)
    algorithm = algorithm_of(setup)
    problem, key = choose_problem(setup), jax.random.key(setup.seed)
    start: Run | Path = folder.checkpoint
    if session.resume is not None and folder.checkpoint.exists():
        _check_numbers(folder)
        folder.go_on()
    else:
        start = _complete(folder, algorithm, problem, key, session.bound is not None)
        if session.resume is None:
            folder.check_free(session.force)
        folder.begin()
    setup = folder.setup
    shown = Display(algorithm.name, problem, setup.rounds or 0, quiet=session.quiet)

    def update(now: Progress) -> None:
        interrupts.check()
        shown.show(now)

    try:
        with shown:
            result = simulate(
                algorithm,
                problem,
                key,
                setup.rounds,
                eval_every=setup.eval_every,
                metrics_on=setup.metrics_on,
                matmul_precision=setup.matmul_precision,
                stop=limits if any(limit is not None for limit in limits) else None,
                checkpoint=folder.checkpoint,
                checkpoint_every=setup.checkpoint_every,
                resume=start,
                progress=update,
                callbacks=tracker,
            )
    except Exception as error:
        if folder.fresh or isinstance(error, InputError):
            folder.abandon()
        raise
    result.sources.update({name: Source.read(text) for name, text in folder.assumed.items()})
    return result


def _check_numbers(folder: Folder) -> None:
    """Raise for a hyper-parameter in config.json that is not the one of the checkpoint."""
    begun = checkpoint.given(folder.checkpoint)
    for name, value in folder.setup.numbers.items():
        written = schedule(value).label if varies(value) else number(name, value)
        there = begun.get(name, written)
        require(
            there == written,
            lambda: f"{folder.config} has {name} {value}, and the run began with {there}",
            "correct it, or start a new run",
        )


def _restore(folder: Folder, session: Session, interrupts: Interrupts) -> Run:
    """The run that has ended in the folder, from its checkpoint."""
    import jax

    setup = folder.setup
    parts = algorithm_of(setup), choose_problem(setup)
    result = restored(folder.checkpoint, *parts, jax.random.key(setup.seed))
    result.sources.update({name: Source.read(text) for name, text in folder.assumed.items()})
    if not session.quiet:
        missing = f"{folder.result} was missing: it is written again from the checkpoint, at round"
        print(printable(f"{missing} {folder.reached}."), file=sys.stderr)
    return result


def _write(folder: Folder, session: Session, result: Run) -> None:
    """Write the result and its picture, and print a summary."""
    ds = result.dataset()
    results.save(ds, folder.result)
    if not session.no_plot:
        bound = session.bound
        drawn = [] if bound is None else bounds(ds, bound or None)
        plots.curves(ds, folder.picture, bounds=drawn)
    else:
        folder.picture.unlink(missing_ok=True)  # it shows an earlier end
    folder.reached = int(result.rounds[-1])
    folder.write()
    folder.settle()
    if session.json:
        print_json(facts(ds, folder.products))
    elif not session.quiet:
        summary(ds, folder.products)


def _not_replaced(folder: Folder, error: InputError) -> InputError:
    """The error of a result that cannot be written, while the one that it replaces is set aside."""
    kept = " and ".join(file.name for file in folder.waiting if file.name != f"{CONFIG}.before")
    again = command("run", "--resume", folder.path)
    why = error.remedy.partition(";")[0]
    return InputError(
        error.problem,
        f"{why}; the run is kept in {folder.checkpoint.name}, and {again} writes its result"
        + (f"; until then the earlier result is in {kept}" if kept else ""),
    )


def _complete(folder: Folder, algorithm: Algorithm, problem: Problem, key: Key, bound: bool) -> Run:
    """A new run, resolved before anything is written; its setup gets the rounds and the cadence."""
    setup, least = folder.setup, int(problem.count.min())
    body = algorithm.body
    if "rounds" in folder.assumed and body is not None and body.estimator.sampler.single_pass:
        most = least // int(setup.numbers.get("batch", 1))
        if most and (setup.rounds or 0) > most:  # the default is more than one pass
            setup = dataclasses.replace(setup, rounds=most)
            folder.assumed["rounds"] = "default: one pass"
    numbers: dict[str, Any] = dict(setup.numbers)
    if setup.algorithm is None:
        known = algorithm.names
        scale = min(1.0, DEMO_ROUNDS / (setup.rounds or DEMO_ROUNDS))
        fitted = {"lr": DEMO_NUMBERS["lr"] * scale, "batch": min(DEMO_NUMBERS["batch"], least)}
        for name, value in (DEMO_NUMBERS | fitted).items():
            if name in known and name not in numbers and not (name == "omega" and "k" in numbers):
                numbers[name] = value
                folder.assumed[name] = "demonstration"
    began = time.perf_counter()
    run = begin(algorithm, problem, key, setup.rounds, numbers, setup.noise)
    run.seconds = run.compile_seconds = time.perf_counter() - began
    rounds, facts = int(run.values["rounds"]), run.facts
    if bound:
        possible(algorithm.name, dict(algorithm.parts), run.values, facts._asdict(), run.sources)
    if setup.rounds is None:
        folder.assumed["rounds"] = str(run.sources["rounds"])
    try:
        algorithm.capacity(run.values, facts)
    except KeyError as error:
        needed = flag(str(error.args[0]))
        raise InputError(
            f"{algorithm.name} with these parts needs {needed}, which has no default"
        ) from None
    every = setup.eval_every
    if every is None:
        every = cadence(rounds, work(problem, run.values, facts))
    folder.setup = dataclasses.replace(setup, rounds=rounds, eval_every=every)
    return run


# --- where ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def computing(setup: Setup, quiet: bool = False) -> Iterator[None]:
    """Set the device and the precision of this call, and print its warnings at the end.

    With ``quiet`` only those of runs that diverged: NaN must not be taken for a result.
    """
    import jax

    said: dict[str, JaxflWarning] = {}
    usual: Any = warnings.showwarning

    def collect(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if isinstance(message, JaxflWarning):
            said[message.sentence(assigned, suggested)] = message
        else:
            usual(message, category, *where, **more)

    def tell() -> None:
        for text, message in said.items():
            if not quiet or isinstance(message, DivergedWarning):
                print(f"jaxfl: {text}", file=sys.stderr)

    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("always", JaxflWarning)
        warnings.showwarning = collect
        stack.callback(tell)
        if setup.device is not None:
            if setup.device == "cpu" and not getattr(jax.config, "jax_platforms", None):
                # Before any device has started, so that no memory of a GPU is taken.
                jax.config.update("jax_platforms", "cpu")
            try:
                device = jax.devices(setup.device)[0]
            except RuntimeError:
                raise InputError(
                    f"is not available: JAX finds only {jax.default_backend()}",
                    "leave it out, or install JAX for that device",
                    **{"--device": setup.device},
                ) from None
            stack.enter_context(jax.default_device(device))
        if setup.dtype == "float64":
            stack.enter_context(jax.enable_x64(True))
        yield


def absolute(given: dict[str, Any]) -> dict[str, Any]:
    """The options with absolute paths, which hold wherever the run is resumed."""
    out = dict(given)
    for name in ("data", "test_data", "data_dir"):
        value = given.get(name)
        folder = of_leaf(value) if name == "data" and value is not None else None
        if folder is not None:
            out[name] = f"{LEAF}{Path(os.path.expanduser(folder)).resolve()}"
        elif value is not None and (name != "data" or (value not in LOADERS and is_file(value))):
            out[name] = str(Path(os.path.expanduser(value)).resolve())
    return out


def _folder_name(setup: Setup) -> str:
    return f"{setup.algorithm or DEMO}-{Path(setup.data).stem}-s{setup.seed}"
