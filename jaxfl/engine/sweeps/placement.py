"""Place the arrays of a program: on one device, with runs split over several, or with clients split.

Runs are independent, so that each device computes some of them (`shard_map`).  A problem whose clients
are split over devices stays as it is: then the compiler splits every run, and the state of each client
lies beside its data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from jaxfl.core.hosts import several
from jaxfl.core.types import Hyper, Problem, State

__all__ = ["Placement", "compile_for", "placement"]

HERE = PartitionSpec()


class Placement(NamedTuple):
    """Devices of a program, and the sharding of each leaf of its problem if clients are split."""

    devices: tuple[jax.Device, ...]
    leaves: tuple[NamedSharding, ...] = ()

    @property
    def parts(self) -> int:
        """The number of devices that share the runs."""
        return 1 if self.leaves else len(self.devices)


def placement(problem: Problem, devices: Sequence[jax.Device]) -> Placement:
    """The given devices, or those over which the problem's clients are split."""
    homes = [a.sharding for a in jax.tree.leaves(problem)]
    if not any(map(_split, homes)):
        return Placement(tuple(devices))
    mesh = next(home.mesh for home in homes if _split(home))
    kept = (home if _split(home) else NamedSharding(mesh, HERE) for home in homes)
    return Placement(tuple(mesh.devices.flat), tuple(kept))


def _split(home: Any) -> bool:
    return isinstance(home, NamedSharding) and not home.is_fully_replicated


def compile_for(
    place: Placement,
    program: Callable[..., Any],
    shape: tuple[int, int],
    shared: tuple[str, ...],
    paired: bool,
    arguments: tuple[Any, ...],
) -> Any:
    """Compile ``program`` for such arguments; its state keeps its sharding."""
    where: tuple[Any, ...]
    out = None
    if place.leaves:
        where = _with_clients(place, arguments)
        # of several processes, each reads all results
        out = (where[1], *(where[0] if several() else None,) * 2)
    elif place.parts > 1:
        mesh = Mesh(np.array(place.devices), ("runs",))
        specs = _by_runs(shape, place.parts, shared, paired, arguments[2])
        program = jax.shard_map(
            program, mesh=mesh, in_specs=specs, out_specs=specs[1], check_vma=False
        )
        where = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)
    else:
        where = (SingleDeviceSharding(place.devices[0]),) * len(arguments)
    shapes = tuple(
        jax.tree.map(lambda a, w: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=w), tree, full)
        for tree, full in zip(arguments, map(_everywhere, where, arguments), strict=True)
    )
    return jax.jit(program, donate_argnums=1, out_shardings=out).lower(*shapes).compile()


def _everywhere(where: Any, tree: Any) -> Any:
    """A sharding for each leaf of a tree."""
    return (
        jax.tree.map(lambda _: where, tree) if isinstance(where, jax.sharding.Sharding) else where
    )


def _by_runs(
    shape: tuple[int, int], parts: int, shared: tuple[str, ...], paired: bool, hp: Hyper
) -> tuple[Any, ...]:
    """Split seeds over devices if there are enough, since cells of a seed share its draws."""
    seeds = shape[0] % parts == 0
    runs = PartitionSpec("runs") if seeds else PartitionSpec(None, "runs")
    cell = HERE if seeds else PartitionSpec("runs")
    numbers = Hyper({name: HERE if name in shared else cell for name in hp.values}, hp.capacity)
    keys = runs if seeds or not paired else HERE
    return keys, runs, numbers, *(HERE,) * 5


def _with_clients(place: Placement, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    split = next(home for home in place.leaves if _split(home))
    everywhere = NamedSharding(split.mesh, HERE)
    mine = NamedSharding(split.mesh, PartitionSpec(None, None, split.spec[0]))
    state: State = jax.tree.map(lambda _: everywhere, arguments[1])
    state = state._replace(
        links=jax.tree.map(lambda _: mine, state.links),
        local=jax.tree.map(lambda _: mine, state.local),
        bases=jax.tree.map(lambda _: mine, state.bases),
    )
    problem = jax.tree.unflatten(jax.tree.structure(arguments[7]), place.leaves)
    return everywhere, state, *(everywhere,) * 5, problem
