"""What a user hands over, looked at before anything is computed.  Host side."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding

from jaxfl.errors import InputError
from jaxfl.types import Key, Problem

__all__ = ["kind_of", "one_key", "one_path", "one_problem", "own_metrics", "shown"]

SHOWN = 60  # characters of a value in a sentence


def shown(value: Any) -> str:
    """A value as a sentence can hold it: one line, and not a dump of arrays."""
    if callable(value) and isinstance(getattr(value, "__name__", None), str):
        return str(value.__name__)
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def kind_of(value: Any) -> str:
    """An array's type and shape, or the value: what a function returned."""
    is_array = hasattr(value, "dtype") and hasattr(value, "shape")
    return f"{value.dtype}{list(value.shape)}" if is_array else shown(value)


def one_problem(value: Any) -> Problem:
    """``value``, if it is a problem whose arrays the compiler may place."""
    if not isinstance(value, Problem):
        raise InputError(
            f"problem = {shown(value)} has to be a Problem: make one with "
            "jaxfl.make_problem(model, data)."
        )
    homes = (getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(value))
    for home in homes:
        if isinstance(home, NamedSharding) and AxisType.Explicit in home.mesh.axis_types:
            raise InputError(
                f"The arrays of {value.name!r} lie on a mesh with explicit axes, where no round can be "
                "compiled: make it with axis_types=(jax.sharding.AxisType.Auto,), one for each axis."
            )
    return value


def one_key(key: Any, taker: str, several: str) -> Key:
    """``key``, if it is a single typed one."""
    if not isinstance(key, jax.Array) or not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise InputError(
            f"key = {shown(key)} has to be a typed key: make it with jax.random.key(seed)."
        )
    if key.shape != ():
        raise InputError(f"key has shape {key.shape}: {taker} takes one key, {several}.")
    return key


def one_path(name: str, value: Any) -> Path:
    """``value`` as a path."""
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"{name} = {shown(value)} has to be a path, as in 'results/run.nc'.")
    return Path(value)


def own_metrics(metrics: Any) -> tuple[tuple[str, Any], ...]:
    """The user's metrics in one order: functions of (problem, x) by name."""
    from jaxfl.results import check_name

    if not isinstance(metrics, Mapping):
        raise InputError(
            f"metrics = {shown(metrics)} has to hold functions of (problem, x) by name, as in "
            "{'norm': f}."
        )
    for name, f in metrics.items():
        check_name(name)
        if not callable(f) or not _takes_two(f):
            raise InputError(
                f"The metric {name!r} has to be a function of (problem, x), not {shown(f)}."
            )
    return tuple(sorted(metrics.items()))


def _takes_two(f: Any) -> bool:
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):
        return True  # it does not say
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return True
