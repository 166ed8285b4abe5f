"""A digest of a user's code changes with what the code reads, and with nothing else."""

import functools
import sys
import types
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxfl.core.identity import code_of, identity

HELPER = "import jax.numpy as jnp\nSCALE = {scale}\ndef scaled(x):\n    return jnp.abs(SCALE * x)\n"
USER = "import helper\ndef std(hp):\n    return helper.scaled(hp['sigma'])\n"


def written(scale: float) -> Any:
    """A function that calls a helper in a module of the user's own."""
    helper, user = types.ModuleType("helper"), types.ModuleType("user")
    sys.modules["helper"] = helper
    exec(HELPER.format(scale=scale), vars(helper))
    exec(USER, vars(user))
    return vars(user)["std"]


class Scaled:
    def __init__(self, factor: Any) -> None:
        self.factor = factor

    def __call__(self, hp: Any) -> Any:
        return self.factor * hp["sigma"]


def closure(factor: Any) -> Any:
    return lambda hp: jnp.sqrt(factor) * hp["sigma"]


def of_a_set(members: Any) -> Any:
    return lambda hp: hp["sigma"] * (len(members) + 1)


def partly(factor: Any) -> Any:
    return functools.partial(lambda f, hp: f * hp["sigma"], factor)


def scheduled(factor: Any) -> Any:
    """A function that an installed package makes of a number."""
    rule = optax.linear_schedule(factor, 0.1, 10)
    return lambda hp: rule(hp["t"]) * hp["sigma"]


MADE = (written, closure, Scaled, partly, scheduled, lambda f: closure(np.full(3, f)))


@pytest.mark.plain
@pytest.mark.parametrize("make", MADE)
def test_what_a_function_reads_changes_its_digest(make):
    assert code_of(make(2.0)) == code_of(make(2.0)) != code_of(make(3.0))


def test_members_of_sets_count():
    assert code_of(of_a_set({"a", "b"})) == code_of(of_a_set({"b", "a"}))
    assert code_of(of_a_set({"a", "b"})) != code_of(of_a_set({"a", "c"}))


class Pair(NamedTuple):
    first: int
    second: int


class Changeable(Pair):
    """It may have attributes, which hide methods, and still equals its fields."""


def test_attributes_of_a_tuple_are_part_of_its_identity() -> None:
    plain, changed = Changeable(1, 2), Changeable(1, 2)
    assert identity(plain) == identity(changed) != identity(Pair(1, 2))
    changed.count = lambda value: 0  # type: ignore[method-assign]
    assert plain == changed
    assert identity(plain) != identity(changed)
