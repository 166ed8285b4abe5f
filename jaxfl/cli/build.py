"""Build the algorithm and the problem of a :class:`Setup`."""

from __future__ import annotations

from pathlib import Path

from jaxfl.algorithms.registry import ALGORITHMS, algorithm
from jaxfl.algorithms.roles import BY_NAME, names_of, part
from jaxfl.cli.options import Setup
from jaxfl.cli.written import flag
from jaxfl.core.checks import bind
from jaxfl.core.errors import InputError, require
from jaxfl.core.params import known
from jaxfl.core.types import Algorithm, Problem
from jaxfl.data.loaders import LOADERS, load, load_libsvm
from jaxfl.data.partition import PARTITIONS
from jaxfl.data.records import ClientData
from jaxfl.data.splits import split
from jaxfl.problems import models, public
from jaxfl.problems.problem import make_problem

__all__ = ["DEMO", "algorithm_of", "choose_algorithm", "choose_data", "choose_problem", "is_file"]

DEMO = "soteriafl_sgd"  # what `jaxfl run` runs without ALGORITHM


def choose_algorithm(setup: Setup) -> Algorithm:
    """The algorithm of a setup (default: the demonstration), with the parts that the setup names."""
    name = setup.algorithm or DEMO
    known("algorithm", name, ALGORITHMS)
    networks = [each for each, make in ALGORITHMS.items() if "graph" in (names_of(make) or ())]
    require(
        setup.graph is None or name in networks,
        f"does not apply to {name}, which has a server",
        f"take one of {', '.join(networks)}",
        graph=setup.graph,
    )
    parts = {role: part(role, getattr(setup, role)) for role in BY_NAME}
    parts = {role: made for role, made in parts.items() if made is not None}
    modes = {"clip": setup.clip_mode, "noise": setup.noise_draw, "storage": setup.storage}
    modes = {role: mode for role, mode in modes.items() if mode not in ("example", "fused")}
    made = algorithm(name, **parts, **modes)
    used = dict(made.parts)
    for role, one in parts.items():
        other = f"does not apply to {name}, whose {role} is {used.get(role)}"
        require(used.get(role) == one.name, other, "leave it out", **{flag(role): one.name})
    return made


def choose_data(setup: Setup) -> ClientData:
    """The clients' data."""
    options = dict(setup.partition_option)
    if setup.alpha is not None:
        options["alpha"] = setup.alpha
    known("partition", setup.partition, PARTITIONS)
    for name in options.keys() & {"clients", "seed", "labels", "rows"}:
        raise InputError(f"Partition {setup.partition!r} has no option {name!r}")
    if setup.data in LOADERS:
        alone = f"goes with a LIBSVM file, not with {setup.data}"
        require(setup.test_data is None, alone, "leave it out", test_data=setup.test_data)
        found = load(setup.data, **{"directory": setup.data_dir, **setup.data_option})
    elif is_file(setup.data):
        read = {"test": setup.test_data, **setup.data_option}
        found = bind("A LIBSVM file", setup.data, load_libsvm, setup.data, **read)
    else:
        known("data set or file", setup.data, LOADERS)
    return split(
        found,
        setup.clients,
        setup.partition,
        setup.data_seed,
        test_share=setup.test_share,
        **options,
    )


def choose_problem(setup: Setup) -> Problem:
    """The problem: a model for the clients' data."""
    if setup.model is not None:
        known("model", setup.model, models.MODELS)
    names = ("hidden", "activation", "init", "regularizer", "constraint")
    options = {name: getattr(setup, name) for name in names if getattr(setup, name) is not None}
    if setup.strength is not None:
        require(
            setup.regularizer is not None and ":" not in setup.regularizer,
            "needs --regularizer nonconvex or l2 beside it",
            strength=setup.strength,
        )
        options["regularizer"] = f"{setup.regularizer}:{setup.strength!r}"
    elif setup.regularizer == "l2":
        raise InputError("needs --strength beside it, as in --strength 0.01", regularizer="l2")
    for name, read in (("regularizer", public.regularizer), ("constraint", public.constraint)):
        try:
            read(options.get(name))
        except InputError as error:
            raise error.within(f"{flag(name)} {options[name]}") from None
    found = choose_data(setup)
    shape = tuple(found.train[0].shape[2:])
    features = shape[0] if len(shape) == 1 else shape
    if setup.model is None:
        model = models.default_model(found.classes, features, **options)
    else:
        model = models.model(setup.model, features, found.classes, **options)
    return make_problem(
        model,
        found,
        dtype=setup.dtype,
        validation_share=setup.validation_share or 0.0,
        eval_records=setup.eval_records,
    )


def algorithm_of(setup: Setup) -> Algorithm:
    """The algorithm of a setup; raise for a hyper-parameter that it does not have."""
    made = choose_algorithm(setup)
    names = [param.name for param in made.params]
    for name, value in setup.numbers.items():
        require(
            name in names,
            f"does not apply to {made.name} with these parts, whose hyper-parameters are "
            f"{', '.join(map(flag, names))}",
            **{flag(name): value},
        )
    return made


def is_file(name: str) -> bool:
    """Whether the name of a data set is a path."""
    return "/" in name or "\\" in name or Path(name).suffix != "" or Path(name).exists()
