"""`jaxfl run`: from a :class:`Setup` to the files of a result."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxfl.cli.folder import Folder
from jaxfl.cli.options import Session, Setup, flag
from jaxfl.cli.report import Display, summary
from jaxfl.errors import InputError

if TYPE_CHECKING:
    from jaxfl.data import ClientData
    from jaxfl.record import Run
    from jaxfl.types import Algorithm, Problem

__all__ = ["choose_algorithm", "choose_data", "choose_problem", "run"]

# `jaxfl run` without ALGORITHM: the theory's step size is safe, but nothing would be seen of it.
DEMO = "soteriafl_sgd"
DEMO_NUMBERS = {"lr": 0.6, "batch": 32, "omega": 1.0}


def run(given: dict[str, Any], session: Session) -> None:
    """Run, or go on with a run, and write its files."""
    given = _absolute(given)
    if session.resume is not None:
        folder = Folder.resume(given, session)
    else:
        setup = Setup(**given)
        place = session.out or Path("results") / _folder_name(setup)
        folder = Folder(Path(place), setup, {} if "rounds" in given else {"rounds": "default"})
    with _computing(folder.setup):
        result = _simulate(folder, session)
        _write(folder, session, result)


def _simulate(folder: Folder, session: Session) -> Run:
    import jax

    from jaxfl.run import Stop, simulate

    setup = folder.setup
    algorithm = _algorithm(setup)
    problem = choose_problem(setup)
    numbers: dict[str, Any] = {}
    if session.resume is None:
        numbers = _complete(folder, algorithm, problem)
        folder.claim(session.force)
        folder.begin()
    else:
        folder.reached = None
        folder.write()
    setup = folder.setup
    limits = Stop(setup.target_loss, setup.max_seconds, setup.max_bits)
    shown = Display(algorithm.name, problem, setup.rounds or 0, quiet=session.quiet)
    try:
        with shown:
            result = simulate(
                algorithm,
                problem,
                jax.random.key(setup.seed),
                setup.rounds,
                eval_every=setup.eval_every,
                stop=limits if any(limit is not None for limit in limits) else None,
                checkpoint=folder.checkpoint,
                checkpoint_every=setup.checkpoint_every,
                resume=folder.checkpoint if session.resume is not None else None,
                progress=None if session.quiet else shown.update,
                **numbers,
            )
    except InputError:
        folder.abandon()
        raise
    except KeyboardInterrupt:
        if not folder.checkpoint.exists():
            folder.abandon()
            raise KeyboardInterrupt(" before anything was saved.") from None
        raise KeyboardInterrupt(f"; go on with `jaxfl run --resume {folder.path}`.") from None
    result.sources.update(folder.assumed)
    return result


def _write(folder: Folder, session: Session, result: Run) -> None:
    from jaxfl import plots, results

    ds = result.dataset()
    results.save(ds, folder.result)
    if session.plot:
        plots.curves(ds, folder.picture)
    else:
        folder.picture.unlink(missing_ok=True)  # it would show an earlier end
    folder.reached = int(result.rounds[-1])
    folder.write()
    if not session.quiet:
        summary(ds, folder.products)


def _complete(folder: Folder, algorithm: Algorithm, problem: Problem) -> dict[str, Any]:
    """All numbers of a new run, checked before anything is written; T and the cadence are fixed."""
    from jaxfl.hyper import facts_of, resolve
    from jaxfl.run import EVALUATIONS

    setup = folder.setup
    facts = facts_of(problem, setup.rounds)
    numbers: dict[str, Any] = dict(setup.numbers)
    if setup.algorithm is None:
        known = {param.name for param in algorithm.params}
        for name, value in DEMO_NUMBERS.items():
            value = min(value, facts.m) if name == "batch" else value
            if name in known and name not in numbers and not (name == "omega" and "k" in numbers):
                numbers[name] = value
                folder.assumed[name] = "demonstration"
    values, sources = resolve(algorithm, numbers, facts)
    rounds = int(values["rounds"])
    if setup.rounds is None:
        folder.assumed["rounds"] = sources["rounds"]
    try:
        algorithm.capacity(values, facts._replace(rounds=rounds))
    except KeyError as error:
        needed = flag(str(error.args[0]))
        raise InputError(
            f"{algorithm.name} with these parts needs {needed}, which has no default."
        ) from None
    every = math.ceil(rounds / EVALUATIONS) if setup.eval_every is None else setup.eval_every
    folder.setup = dataclasses.replace(setup, rounds=rounds, eval_every=every)
    return numbers


# --- what runs on what ---------------------------------------------------------------------------


def choose_algorithm(
    name: str | None,
    *,
    compressor: str | None = None,
    sampler: str | None = None,
    participation: str | None = None,
    clip_mode: str | None = None,
    noise_draw: str | None = None,
) -> Algorithm:
    """An algorithm (None: the demonstration's), with the named ones of its parts exchanged."""
    from jaxfl import compressors, sampling
    from jaxfl.algorithms import ALGORITHMS, algorithm

    name = name or DEMO
    _known("algorithm", name, ALGORITHMS)
    parts: dict[str, Any] = {}
    if compressor is not None:
        for code in compressor.split("+"):
            _known("compressor", code, compressors.COMPRESSORS)
        parts["compressor"] = _made(compressors.compressor, compressor)
    if sampler is not None:
        _known("sampler", sampler, sampling.SAMPLERS)
        parts["sampler"] = _made(sampling.sampler, sampler)
    if participation is not None:
        _known("participation", participation, sampling.PARTICIPATIONS)
        parts["participation"] = _made(sampling.participation, participation)
    ways = {"clip": clip_mode, "noise": noise_draw}
    made = algorithm(name, **parts, **{role: way for role, way in ways.items() if way is not None})
    used = dict(made.parts)
    for role, part in parts.items():
        if used.get(role) != part.name:
            raise InputError(
                f"--{role} {part.name} does not apply to {name}, whose {role} is {used.get(role)}."
            )
    return made


@functools.cache
def _made(make: Callable[[str], Any], name: str) -> Any:
    """One object per part, since compiled rounds are found again by their parts."""
    return make(name)


def choose_data(setup: Setup) -> ClientData:
    """The clients' data."""
    from jaxfl import data
    from jaxfl.data._checks import bind

    share = dict(setup.partition_option)
    if setup.alpha is not None:
        share["alpha"] = setup.alpha
    _known("partition", setup.partition, data.PARTITIONS)
    for name in share.keys() & {"clients", "seed", "labels", "rows"}:
        raise InputError(f"Partition {setup.partition!r} has no option {name!r}.")
    if setup.data in data.LOADERS:
        if setup.test_data is not None:
            raise InputError(
                f"--test-data {setup.test_data} goes with a LIBSVM file, not with {setup.data}."
            )
        found = data.load(setup.data, **{"directory": setup.data_dir, **setup.data_option})
    elif _is_file(setup.data):
        options = {"test": setup.test_data, **setup.data_option}
        found = bind("A LIBSVM file", setup.data, data.load_libsvm, setup.data, **options)
    else:
        _known("data set or file", setup.data, data.LOADERS)
    return data.split(
        found,
        setup.clients,
        setup.partition,
        setup.data_seed,
        test_share=setup.test_share,
        **share,
    )


def choose_problem(setup: Setup) -> Problem:
    """The problem: a model for the clients' data."""
    from jaxfl import models
    from jaxfl.problems import make_problem

    if setup.model is not None:
        _known("model", setup.model, models.MODELS)
    names = ("hidden", "activation", "init", "regularizer", "constraint")
    options = {name: getattr(setup, name) for name in names if getattr(setup, name) is not None}
    if setup.strength is not None:
        if setup.regularizer is None or ":" in setup.regularizer:
            raise InputError(
                f"--strength {setup.strength:g} needs --regularizer nonconvex or l2 beside it."
            )
        options["regularizer"] = f"{setup.regularizer}:{setup.strength!r}"
    found = choose_data(setup)
    features = int(found.train[0].shape[-1])
    if setup.model is None:
        model = models.default_model(found.classes, features, **options)
    else:
        model = models.model(setup.model, features, found.classes, **options)
    return make_problem(model, found, dtype=setup.dtype)


def _algorithm(setup: Setup) -> Algorithm:
    made = choose_algorithm(
        setup.algorithm,
        compressor=setup.compressor,
        sampler=setup.sampler,
        participation=setup.participation,
        clip_mode=None if setup.clip_mode == "example" else setup.clip_mode,
        noise_draw=None if setup.noise_draw == "fused" else setup.noise_draw,
    )
    names = [param.name for param in made.params]
    for name, value in setup.numbers.items():
        if name not in names:
            raise InputError(
                f"{flag(name)} {value:g} does not apply to {made.name} with these parts, whose "
                f"numbers are {', '.join(map(flag, names))}."
            )
    return made


@contextlib.contextmanager
def _computing(setup: Setup) -> Iterator[None]:
    """The device and the precision of this call, and of nothing after it."""
    import jax

    with contextlib.ExitStack() as stack:
        if setup.device is not None:
            if setup.device == "cpu" and not getattr(jax.config, "jax_platforms", None):
                # Before any device has started: a GPU is left alone, memory and all.
                jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]
            try:
                device = jax.devices(setup.device)[0]
            except RuntimeError:
                raise InputError(
                    f"--device {setup.device} is not here, where JAX finds only "
                    f"{jax.default_backend()}: leave it out, or install JAX for that device."
                ) from None
            stack.enter_context(jax.default_device(device))
        if setup.dtype == "float64":
            stack.enter_context(jax.enable_x64(True))
        yield


# --- names ---------------------------------------------------------------------------------------


def _known(kind: str, name: str, registry: Mapping[str, Any]) -> None:
    from jaxfl.hyper import closest

    if name not in registry:
        raise InputError(closest(kind, name, registry))


def _is_file(name: str) -> bool:
    return "/" in name or "\\" in name or Path(name).suffix != "" or Path(name).is_file()


def _absolute(given: dict[str, Any]) -> dict[str, Any]:
    """Paths that hold wherever a run is gone on with."""
    from jaxfl.data import LOADERS

    out = dict(given)
    for name in ("data", "test_data", "data_dir"):
        value = given.get(name)
        if value is not None and (name != "data" or (value not in LOADERS and _is_file(value))):
            out[name] = str(Path(value).expanduser().resolve())
    return out


def _folder_name(setup: Setup) -> str:
    return f"{setup.algorithm or DEMO}-{Path(setup.data).stem}-s{setup.seed}"
