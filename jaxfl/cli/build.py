"""The algorithm and the problem that a :class:`Setup` names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxfl.cli.options import Setup, flag
from jaxfl.errors import InputError

if TYPE_CHECKING:
    from jaxfl.data import ClientData
    from jaxfl.types import Algorithm, Problem

__all__ = ["DEMO", "algorithm_of", "choose_algorithm", "choose_data", "choose_problem", "is_file"]

DEMO = "soteriafl_sgd"  # what `jaxfl run` runs without ALGORITHM


def choose_algorithm(
    name: str | None,
    *,
    compressor: str | None = None,
    sampler: str | None = None,
    participation: str | None = None,
    aggregation: str | None = None,
    graph: str | None = None,
    clip_mode: str | None = None,
    noise_draw: str | None = None,
    storage: str | None = None,
) -> Algorithm:
    """An algorithm (None: the demonstration's), with the named ones of its parts exchanged."""
    from jaxfl import aggregations, compressors, sampling
    from jaxfl.algorithms import ALGORITHMS, algorithm

    name = name or DEMO
    known("algorithm", name, ALGORITHMS)
    parts: dict[str, Any] = {}
    if compressor is not None:
        for code in compressor.split("+"):
            known("compressor", code, compressors.COMPRESSORS)
        parts["compressor"] = _made(compressors.compressor, compressor)
    if sampler is not None:
        known("sampler", sampler, sampling.SAMPLERS)
        parts["sampler"] = _made(sampling.sampler, sampler)
    if participation is not None:
        known("participation", participation, sampling.PARTICIPATIONS)
        parts["participation"] = _made(sampling.participation, participation)
    if aggregation is not None:
        known("aggregation", aggregation, aggregations.AGGREGATIONS)
        parts["aggregation"] = _made(aggregations.aggregation, aggregation)
    if graph is not None:
        from jaxfl.algorithms import decentralized
        from jaxfl.graphs import graph as named

        if name not in decentralized.__all__:
            raise InputError(
                f"--graph {graph} does not apply to {name}, which has a server: take one of "
                f"{', '.join(decentralized.__all__)}."
            )
        parts["graph"] = named(graph)
    ways = {"clip": clip_mode, "noise": noise_draw, "storage": storage}
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
    known("partition", setup.partition, data.PARTITIONS)
    for name in share.keys() & {"clients", "seed", "labels", "rows"}:
        raise InputError(f"Partition {setup.partition!r} has no option {name!r}.")
    if setup.data in data.LOADERS:
        if setup.test_data is not None:
            raise InputError(
                f"--test-data {setup.test_data} goes with a LIBSVM file, not with {setup.data}."
            )
        found = data.load(setup.data, **{"directory": setup.data_dir, **setup.data_option})
    elif is_file(setup.data):
        options = {"test": setup.test_data, **setup.data_option}
        found = bind("A LIBSVM file", setup.data, data.load_libsvm, setup.data, **options)
    else:
        known("data set or file", setup.data, data.LOADERS)
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
    from jaxfl import models, public
    from jaxfl.problems import make_problem

    if setup.model is not None:
        known("model", setup.model, models.MODELS)
    names = ("hidden", "activation", "init", "regularizer", "constraint")
    options = {name: getattr(setup, name) for name in names if getattr(setup, name) is not None}
    if setup.strength is not None:
        if setup.regularizer is None or ":" in setup.regularizer:
            raise InputError(
                f"--strength {setup.strength:g} needs --regularizer nonconvex or l2 beside it."
            )
        options["regularizer"] = f"{setup.regularizer}:{setup.strength!r}"
    elif setup.regularizer == "l2":
        raise InputError("--regularizer l2 needs --strength beside it, as in --strength 0.01.")
    for name, read in (("regularizer", public.regularizer), ("constraint", public.constraint)):
        try:
            read(options.get(name))
        except InputError as error:
            raise InputError(f"{flag(name)} {options[name]}: {error}") from None
    found = choose_data(setup)
    features = int(found.train[0].shape[-1])
    if setup.model is None:
        model = models.default_model(found.classes, features, **options)
    else:
        model = models.model(setup.model, features, found.classes, **options)
    return make_problem(
        model, found, dtype=setup.dtype, validation_share=setup.validation_share or 0.0
    )


def algorithm_of(setup: Setup) -> Algorithm:
    made = choose_algorithm(
        setup.algorithm,
        compressor=setup.compressor,
        sampler=setup.sampler,
        participation=setup.participation,
        aggregation=setup.aggregation,
        graph=setup.graph,
        clip_mode=None if setup.clip_mode == "example" else setup.clip_mode,
        noise_draw=None if setup.noise_draw == "fused" else setup.noise_draw,
        storage=setup.storage,
    )
    names = [param.name for param in made.params]
    for name, value in setup.numbers.items():
        if name not in names:
            raise InputError(
                f"{flag(name)} {value} does not apply to {made.name} with these parts, whose "
                f"numbers are {', '.join(map(flag, names))}."
            )
    return made


# --- names ---------------------------------------------------------------------------------------


def known(kind: str, name: str, registry: Mapping[str, Any]) -> None:
    from jaxfl.params import closest

    if name not in registry:
        raise InputError(closest(kind, name, registry))


def is_file(name: str) -> bool:
    return "/" in name or "\\" in name or Path(name).suffix != "" or Path(name).exists()
