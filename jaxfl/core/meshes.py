"""Arrays on the devices of a mesh, and settings of JAX that would change what rounds compute."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxfl.core.errors import require, shown

__all__ = ["automatic", "by_clients", "own_settings"]

T = TypeVar("T")
EACH = ("train", "count", "weights")  # arrays of which each client has a share


def automatic(tree: T) -> T:
    """The same arrays on the same devices, with axes that the compiler may use as it likes."""

    def moved(leaf: Any) -> Any:
        home = getattr(leaf, "sharding", None)
        if not isinstance(home, NamedSharding) or isinstance(leaf, jax.core.Tracer):
            return leaf
        if {*home.mesh.axis_types} == {AxisType.Auto}:
            return leaf
        return jax.device_put(leaf, NamedSharding(_automatic(home.mesh), home.spec))

    with jax.ensure_compile_time_eval():
        placed: T = jax.tree.map(moved, tree)
    return placed


@contextlib.contextmanager
def own_settings(*placed: Any) -> Iterator[Callable[[Any], Any]]:
    """Compute without the mesh of ``jax.set_mesh``, and with the promotion of types that jaxfl assumes.

    With arguments the mesh stays unless one of these arrays was placed on automatic axes.  Yields a
    function that puts other arrays on such axes, too.
    """
    context = jax.sharding.get_abstract_mesh()
    homes = [jax.typeof(leaf).sharding.mesh.axis_types for leaf in jax.tree.leaves(placed)]
    needed = not placed or any({*axes} == {AxisType.Auto} for axes in homes)
    traced = isinstance(jnp.zeros(()), jax.core.Tracer)
    with contextlib.ExitStack() as settings:
        settings.enter_context(jax.numpy_dtype_promotion("standard"))
        settings.enter_context(jax.numpy_rank_promotion("allow"))
        if context.empty or not needed or (traced and AxisType.Explicit not in context.axis_types):
            yield lambda a: a
            return
        problem = "A transformation traces rounds within jax.set_mesh of a mesh with explicit axes"
        way = "call it outside of set_mesh, or set a mesh whose axis_types are AxisType.Auto"
        require(not traced, problem, way)
        settings.enter_context(jax.set_mesh(None))
        yield automatic


def by_clients(problem: T, mesh: Any, axis: Any) -> T:
    """The problem whose clients' arrays are split over an axis of a mesh; all else is on each device."""
    require(
        isinstance(mesh, Mesh),
        lambda: f"{shown(mesh)} is no mesh of devices",
        "make one, as in jax.make_mesh((8,), ('clients',))",
    )
    names = ", ".join(map(repr, mesh.axis_names))
    known = axis in mesh.axis_names
    require(known, lambda: f"is no axis of the mesh, whose axes are {names}", axis=axis)
    mesh, parts, n = _automatic(mesh), mesh.shape[axis], len(problem.count)  # type: ignore[attr-defined]
    require(
        n % parts == 0,
        lambda: f"{n} clients cannot be split evenly over {parts} devices",
        "take a number of devices that divides the number of clients",
    )
    fields: Any = {field.name for field in dataclasses.fields(problem)}  # type: ignore[arg-type]
    given = {name: getattr(problem, name) for name in fields}
    split, whole = PartitionSpec(axis), PartitionSpec()
    changes = {}
    for name in ("train", "count", "weights", "test", "validation", "x0", "test_owner"):
        source = hasattr(given[name], "make")  # of generated samples, which any client reads
        mine = name in EACH and not source
        changes[name] = jax.device_put(given[name], NamedSharding(mesh, split if mine else whole))
    return dataclasses.replace(problem, **changes)  # type: ignore[type-var]


def _automatic(mesh: Any) -> Mesh:
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
