"""Build the algorithm and the problem of a :class:`Setup`."""

from __future__ import annotations

import inspect
import math
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any

from jaxfl.algorithms.registry import ALGORITHMS, algorithm, of_a_file
from jaxfl.algorithms.roles import BY_NAME, part
from jaxfl.cli.options import DEFAULTS, Setup
from jaxfl.cli.written import LEAF, flag, is_file, of_leaf
from jaxfl.core.checks import bind
from jaxfl.core.errors import InputError, require, within
from jaxfl.core.params import known
from jaxfl.core.types import Algorithm
from jaxfl.data.leaf import leaf
from jaxfl.data.loaders import LOADERS, NAMED, load, load_libsvm
from jaxfl.data.partition import PARTITIONS
from jaxfl.data.records import ClientData
from jaxfl.data.splits import split
from jaxfl.problems import models, public
from jaxfl.problems.problem import Problem

__all__ = ["DATA", "DEMO", "choose_algorithm", "choose_problem"]

DEMO = "soteriafl_sgd"  # what `jaxfl run` runs without ALGORITHM
# what --data may name; registered data sets join it
DATA: Mapping[str, Callable[..., Any]] = ChainMap({f"{LEAF}FOLDER": leaf}, LOADERS)


def choose_algorithm(setup: Setup) -> Algorithm:
    """The algorithm of a setup (default: the demonstration), with the parts that the setup names."""
    name = setup.algorithm or DEMO
    known("algorithm", name, ALGORITHMS, of_a_file())
    given = {role: getattr(setup, role) for role in BY_NAME}
    parts = {role: value for role, value in given.items() if value is not None}
    modes = {"clip": setup.clip_mode, "noise": setup.noise_draw, "storage": setup.storage}
    modes = {role: mode for role, mode in modes.items() if mode not in ("example", "fused")}
    modes |= {"clipping": setup.clipping} if setup.clipping else {}
    made = algorithm(name, **parts, **modes)
    used = dict(made.parts)
    for role, value in parts.items():
        other = f"does not apply to {name}, whose {role} is {used.get(role)}"
        require(used.get(role) == part(role, value).name, other, "leave it out", **{role: value})
    return made


def choose_data(setup: Setup) -> ClientData:
    """The clients' data: images as vectors, for a model that takes these."""
    flat: dict[str, Any] = {"flat": _takes_vectors(setup)}
    if (folder := of_leaf(setup.data)) is not None:
        _natural(setup, "LEAF's data")
        read = {**flat, "clients": setup.clients, **setup.data_option}
        return bind("Data set", "leaf", leaf, folder, **read)
    options, how = dict(setup.partition_option), setup.partition or DEFAULTS["partition"]
    known("partition", how, PARTITIONS)
    if setup.alpha is not None:
        options["alpha"] = setup.alpha
    for name in options.keys() & {"clients", "seed", "labels", "rows"}:
        raise InputError(f"Partition {how!r} has no option {name!r}")
    if setup.data in LOADERS:
        alone = f"goes with a LIBSVM file, not with {setup.data}"
        require(setup.test_data is None, alone, "leave it out", test_data=setup.test_data)
        read = flat if "flat" in inspect.signature(LOADERS[setup.data]).parameters else {}
        found = load(setup.data, **{"directory": setup.data_dir, **read, **setup.data_option})
        if isinstance(found, ClientData):
            _natural(setup, f"the data set {setup.data}", "clients")
            return found._replace(name=setup.data)
    elif is_file(setup.data):
        read = {"test": setup.test_data, **setup.data_option}
        found = bind("A LIBSVM file", setup.data, load_libsvm, setup.data, **read)
    else:
        known("data set or file", setup.data, DATA)
    clients = setup.clients or DEFAULTS["clients"]
    return split(found, clients, how, setup.data_seed, test_share=setup.test_share, **options)


def _natural(setup: Setup, whose: str, *more: str) -> None:
    """Raise for options that make clients of data that have them."""
    for name in ("partition", "alpha", "partition_option", "test_share", "test_data", *more):
        given, why = getattr(setup, name), "where clients and test records are given"
        other = f"does not apply to {whose}, {why}"
        require(not given, other, "leave it out", **{flag(name): given})


def _takes_vectors(setup: Setup) -> bool:
    """Whether the model takes a number of features, and not the shape of an image."""
    make = models.MODELS.get(setup.model or "", models.default_model)
    return "features" in inspect.signature(make).parameters


def choose_problem(setup: Setup) -> Problem:
    """The problem: a model for the clients' data."""
    if setup.model is not None:
        known("model", setup.model, models.MODELS)
    names = ("hidden", "activation", "init", "regularizer", "constraint")
    options = {name: getattr(setup, name) for name in names if getattr(setup, name) is not None}
    own = setup.data not in NAMED and of_leaf(setup.data) is None
    if setup.bias is not None or (own and (setup.model or "logistic") in models.LINEAR):
        options["bias"] = setup.bias != "off"
    l2 = setup.regularizer == "l2" and setup.strength is None
    require(not l2, "needs --strength, as in --strength 0.01", regularizer="l2")
    if setup.strength is not None:
        alone = setup.regularizer is None or ":" in setup.regularizer
        require(not alone, "needs --regularizer nonconvex or l2", strength=setup.strength)
        options["regularizer"] = f"{setup.regularizer}:{setup.strength!r}"
    for name, read in (("regularizer", public.regularizer), ("constraint", public.constraint)):
        with within(f"{flag(name)} {options.get(name)}"):
            read(options.get(name))
    found = choose_data(setup)
    shape = found.train[0].shape[2:]
    features = math.prod(shape) if _takes_vectors(setup) else shape
    if setup.model is None:
        model = models.default_model(found.classes, features, **options)
    else:
        model = models.model(setup.model, features, found.classes, **options)
    if setup.clip_by == "layer":
        one = "needs clipping of examples, and batch clipping clips one estimate"
        require(setup.clip_mode == "example", one, "drop --clip-mode batch", clip_by="layer")
        model = models.by_layer(model)
    how = {name: getattr(setup, name) for name in ("dtype", "eval_records", "weights")}
    return Problem(model, found, validation_share=setup.validation_share or 0.0, **how)
