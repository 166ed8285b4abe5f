"""One compiled program for the runs of a chunk: vmap over cells inside, over seeds outside.

Cells of a seed share its key: each draw is made once for all of them, and a matrix-vector product of one
run becomes a matrix product of all.  The program of a single run has neither axis.

A program lies on one device, has its runs split over several, or has the clients of each run split.
Runs are independent, and each device computes some of them (``shard_map``).  A problem whose clients are
split over devices stays as it is: then the compiler splits every run, and the state of each client lies
with its data.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from jaxfl.core.errors import require
from jaxfl.core.interrupts import interrupts_deferred
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Algorithm, Array, Hyper, Info, Key, Problem, State
from jaxfl.data.samples import plain
from jaxfl.engine import memory
from jaxfl.engine.grid import Cell
from jaxfl.engine.loop import Extra, advance, initial, measure
from jaxfl.engine.plan import Chunk, Options, Program
from jaxfl.problems.identity import dtype
from jaxfl.problems.metrics import ROWS

FEW = 16  # clients whose metrics a sweep keeps one by one, unless all are asked for
DECILES = tuple(i / 10 for i in range(11))  # from the least to the largest
HERE = PartitionSpec()

__all__ = [
    "DECILES",
    "FEW",
    "Compiled",
    "Placement",
    "blank",
    "bytes_of_data",
    "bytes_of_run",
    "bytes_of_state",
    "compiled",
    "home_of",
    "inputs",
    "numbers",
    "of_clients",
    "placed",
    "placement",
    "repeated",
    "state_of",
]


class Compiled(NamedTuple):
    """A compiled program for ``shape`` (seeds, cells)."""

    call: Any  # (keys, state, hp, first, start, stop, seen, live, data) -> state, counts, metrics
    state: State  # shapes
    shape: tuple[int, int]
    shardings: Any  # of the arguments of call
    bytes: int  # arguments, results and scratch space, all devices together
    seconds: float


class _Kind(NamedTuple):
    """The computation of a program, without the shapes of its arrays."""

    algorithm: Algorithm
    extra: Extra
    once: bool
    every_client: bool  # metrics of all clients are kept, else deciles of many
    freezes: bool  # a stopping rule may end some of its runs before others
    paired: bool


def segment(
    kind: _Kind,
    key: Key,
    state: State,
    hp: Hyper,
    first: Array,
    start: Array,
    stop: Array,
    seen: Array,
    live: Array,
    data: tuple[Problem, Problem | None],
) -> tuple[State, Info, dict[str, Array]]:
    """One run from round ``start`` to ``stop``; the ``first`` call makes the state of round 0 instead.

    The metrics are those of round ``stop`` if it is to be ``seen``, and else zeros.  With ``once``
    those of round 0 are computed once for all cells whose initial model is the same.  A run that is
    not ``live`` stays as it is.
    """
    algorithm, problem = kind.algorithm, data[0]
    measured = plain(problem) if data[1] is None else data[1]

    def look(state: State) -> dict[str, Array]:
        found = measure(algorithm, kind.extra, state, measured)
        for name, _ in kind.extra:
            shape = jnp.shape(found[name])
            require(
                kind.every_client or not shape,
                lambda: f"The metric {name!r} has shape {shape}",
                "a sweep keeps numbers only",
            )
        return found if kind.every_client else {name: _few(a) for name, a in found.items()}

    blank = jax.tree.map(jnp.zeros_like, jax.eval_shape(look, state))

    def begin() -> tuple[State, Info, dict[str, Array]]:
        begun, counts = initial(algorithm, key, problem, hp)
        return begun, counts, look(begun) if kind.once else blank

    def go() -> tuple[State, Info, dict[str, Array]]:
        now = state._replace(t=start)
        return *advance(algorithm, key, now, stop, problem, hp), blank

    after, counts, found = jax.lax.cond(first, begin, go)
    if kind.freezes:
        after = jax.tree.map(lambda new, old: jnp.where(live, new, old), after, state)
        counts = jax.tree.map(lambda count: count * live, counts)
    missing = seen & ~first if kind.once else seen
    return after, counts, jax.lax.cond(missing, look, lambda _: found, after)


def _few(values: Array) -> Array:
    """A metric as sweeps keep it: of more than :data:`FEW` clients the deciles."""
    if values.ndim == 0 or values.size <= FEW:
        return values
    return jnp.nanquantile(values, jnp.array(DECILES, values.dtype))


def _mapped(kind: _Kind, shape: tuple[int, int], own: Hyper) -> Callable[..., Any]:
    """The program over seeds and cells; of one run it has no axis but in what it returns."""
    one = functools.partial(segment, kind)
    if shape == (1, 1):

        def alone(key: Key, state: State, hp: Hyper, *rest: Any) -> Any:
            *flags, live, data = rest
            state, *found = one(key.reshape(()), state, hp, *flags, live[0, 0], data)  # type: ignore[call-arg]
            return state, *jax.tree.map(lambda a: a[None, None], tuple(found))

        return alone
    # Without axis_size=, which would be the size of the whole and not that of one device.
    over_cells = jax.vmap(one, (None if kind.paired else 0, 0, own, *[None] * 4, 0, None))
    return jax.vmap(over_cells, (0, 0, *[None] * 5, 0, None))


# --- compiling -----------------------------------------------------------------------------------


def compiled(
    program: Program, shape: tuple[int, int], options: Options, devices: Sequence[jax.Device]
) -> Compiled:
    """Compile the program for chunks of ``shape``, unless it is compiled already."""
    alone = shape == (1, 1)
    hp = numbers(program, [0] * shape[1], alone)
    state = state_of(program)
    if not alone:
        state = jax.tree.map(lambda a: jax.ShapeDtypeStruct((*shape, *a.shape), a.dtype), state)
    kind = _Kind(
        program.algorithm,
        options.extra,
        program.once,
        every_client="clients" in options.keep,
        freezes=options.stop is not None and not alone,
        paired=options.paired,
    )
    shared = hp.values.keys() if alone else program.shared
    leaves, tree = jax.tree.flatten((state, hp, (program.problem, program.held)))
    shapes = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in leaves)
    place = placement(program.problem, devices, alone)
    return _compiled(kind, shape, tree, shapes, tuple(sorted(shared)), place)


@functools.lru_cache(maxsize=64)
def _compiled(
    kind: _Kind,
    shape: tuple[int, int],
    tree: jax.tree_util.PyTreeDef,
    shapes: tuple[jax.ShapeDtypeStruct, ...],
    shared: tuple[str, ...],
    place: Placement,
) -> Compiled:
    began = time.perf_counter()
    state, hp, data = jax.tree.unflatten(tree, shapes)
    own = Hyper({name: None if name in shared else 0 for name in hp.values}, hp.capacity)
    program = _mapped(kind, shape, own)
    keys = jax.eval_shape(jax.random.key, 0)
    keys = jax.ShapeDtypeStruct(shape[:1] if kind.paired else shape, keys.dtype)
    number, flag = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((), jnp.bool_)
    live = jax.ShapeDtypeStruct(shape, jnp.bool_)
    arguments = (keys, state, hp, flag, number, number, flag, live, data)
    call = _compile_for(place, program, shape, shared, kind.paired, arguments)
    memory = call.memory_analysis()
    total = 0
    if memory is not None:
        total = (
            memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            + memory.temp_size_in_bytes
            - memory.alias_size_in_bytes
        ) * len(place.devices)
    where = call.input_shardings[0]
    return Compiled(call, state, shape, where, total, time.perf_counter() - began)


# --- where ---------------------------------------------------------------------------------------


class Placement(NamedTuple):
    """Devices of a program, and the sharding of each leaf of its problem if clients are split."""

    devices: tuple[jax.Device, ...]
    leaves: tuple[NamedSharding, ...] = ()

    @property
    def parts(self) -> int:
        """The number of devices that share the runs."""
        return 1 if self.leaves else len(self.devices)


def placement(problem: Problem, devices: Sequence[jax.Device], alone: bool = False) -> Placement:
    """The given devices, of which one run takes the first, or those of the problem's clients."""
    home = home_of(problem)
    if home is None:
        return Placement(tuple(devices)[: 1 if alone else None])
    homes, everywhere = (
        (a.sharding for a in jax.tree.leaves(problem)),
        NamedSharding(home.mesh, HERE),
    )
    kept = tuple(one if _split(one) else everywhere for one in homes)
    return Placement(tuple(home.mesh.devices.flat), kept)


def home_of(problem: Problem) -> NamedSharding | None:
    """The sharding of clients' data; None if they are not split, or traced."""
    held = [a for a in jax.tree.leaves(problem) if not isinstance(a, jax.core.Tracer)]
    return next(filter(_split, (getattr(a, "sharding", None) for a in held)), None)


def of_clients(home: NamedSharding, state: State, *axes: None) -> State:
    """The sharding of each part of a state, after some axes, where the clients' data have this one."""
    everywhere = NamedSharding(home.mesh, HERE)
    mine = NamedSharding(home.mesh, PartitionSpec(*axes, home.spec[0]))
    own = ("links", "local", "bases")
    return state._replace(**{n: mine if n in own else everywhere for n in state._fields})


def _split(home: Any) -> bool:
    """Whether an array is divided over devices."""
    return isinstance(home, NamedSharding) and not home.is_fully_replicated


def _compile_for(
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
        where = _with_clients(place, shape, arguments)
        out = (where[1], None, None)
    elif place.parts > 1:
        mesh = Mesh(np.array(place.devices), ("runs",))
        specs = _by_runs(shape, place.parts, shared, paired, arguments[2])
        program = jax.shard_map(
            program, mesh=mesh, in_specs=specs, out_specs=specs[1], check_vma=False
        )
        where = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)
    else:
        where = (SingleDeviceSharding(place.devices[0]),) * len(arguments)
    call = jax.jit(program, donate_argnums=1, in_shardings=where, out_shardings=out)
    with interrupts_deferred():  # while it traces, JAX may lose an interrupt, or fail by it
        lowered = call.lower(*arguments)
    return lowered.compile()


def _by_runs(
    shape: tuple[int, int], parts: int, shared: tuple[str, ...], paired: bool, hp: Hyper
) -> tuple[Any, ...]:
    """Split seeds over devices if there are enough, since cells of a seed share its draws."""
    seeds = shape[0] % parts == 0
    runs = PartitionSpec("runs") if seeds else PartitionSpec(None, "runs")
    cell = HERE if seeds else PartitionSpec("runs")
    values = Hyper({name: HERE if name in shared else cell for name in hp.values}, hp.capacity)
    keys = runs if seeds or not paired else HERE
    return keys, runs, values, *(HERE,) * 4, runs, HERE


def _with_clients(
    place: Placement, shape: tuple[int, int], arguments: tuple[Any, ...]
) -> tuple[Any, ...]:
    home = next(filter(_split, place.leaves))
    everywhere = NamedSharding(home.mesh, HERE)
    state = of_clients(home, arguments[1], *(() if shape == (1, 1) else (None, None)))
    problem = jax.tree.unflatten(jax.tree.structure(arguments[8][0]), place.leaves)
    return everywhere, state, *(everywhere,) * 6, (problem, everywhere)


# --- arguments -----------------------------------------------------------------------------------


def blank(run: Compiled) -> State:
    """A state of zeros, which the first call replaces."""
    state: State = jax.tree.map(
        lambda a, where: jnp.zeros(a.shape, a.dtype, device=where), run.state, run.shardings[1]
    )
    return state


def placed(program: Program, run: Compiled) -> Any:
    """The data on the devices of the program."""
    return jax.device_put((program.problem, program.held), run.shardings[8])


def repeated(chunk: Chunk, shape: tuple[int, int]) -> tuple[list[int], list[int]]:
    """The seeds and cells of a chunk, the last ones repeated up to this shape."""
    seeds = [*chunk.seeds, *[chunk.seeds[-1]] * (shape[0] - len(chunk.seeds))]
    return seeds, [*chunk.cells, *[chunk.cells[-1]] * (shape[1] - len(chunk.cells))]


def inputs(
    program: Program, chunk: Chunk, run: Compiled, keys: Sequence[Key], paired: bool
) -> tuple[Key, Hyper]:
    """Keys and hyper-parameters of a chunk; a smaller chunk repeats its last seed and cell.

    ``keys`` are those of the seeds.  Unless ``paired``, each cell has its own keys.
    """
    seeds, cells = repeated(chunk, run.shape)
    chosen = jnp.stack([keys[i] for i in seeds])
    if not paired:
        salts = jnp.array([_salts(program, program.cells[j]) for j in cells], jnp.uint32)
        chosen = jax.vmap(jax.vmap(_salted, (None, 0)), (0, None))(chosen, salts)
    found: tuple[Key, Hyper] = jax.device_put(
        (chosen, numbers(program, cells, run.shape == (1, 1))),
        (run.shardings[0], run.shardings[2]),
    )
    return found


def _salts(program: Program, cell: Cell) -> Any:
    label = f"{program.algorithm.name}|{cell.label}"
    return np.frombuffer(hashlib.sha256(label.encode()).digest()[:8], "<u4")


def _salted(key: Key, salts: Array) -> Key:
    return jax.random.fold_in(jax.random.fold_in(key, salts[0]), salts[1])


def numbers(program: Program, cells: Sequence[int], alone: bool = False) -> Hyper:
    """The hyper-parameters of these cells: arrays, or single values where they are shared."""
    integers = {param.name for param in program.algorithm.params if param.integer}
    kind = dtype(program.problem)
    last = max(max(cell.rounds, int(cell.values["rounds"])) for cell in program.cells)
    out: dict[str, Array] = {}
    for name in program.names:
        values = [cell.values[name] for cell in program.cells]
        varies = any(isinstance(value, Schedule) for value in values)
        some = [_over(values[j], program.cells[j], last) if varies else values[j] for j in cells]
        found = np.asarray(some, np.float64)
        if alone or name in program.shared:
            found = found[0]
        out[name] = jnp.asarray(found, jnp.int32 if name in integers else kind)
    return Hyper(out, program.caps)


def _over(value: Any, cell: Cell, length: int) -> np.ndarray[Any, Any]:
    """One value per round, the last one repeated up to ``length``."""
    if not isinstance(value, Schedule):
        return np.full(length, float(value))
    now = value.over(max(cell.rounds, int(cell.values["rounds"])))
    return np.pad(now, (0, length - len(now)), "edge")


# --- memory --------------------------------------------------------------------------------------


def bytes_of_data(program: Program) -> int:
    return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves((program.problem, program.held)))


def state_of(program: Program) -> State:
    """The shapes of the state of one run."""
    hp = numbers(program, [0], alone=True)
    return memory.state_of(program.algorithm, program.problem, hp)


def bytes_of_state(program: Program) -> int:
    """The bytes of the state of one run."""
    return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(state_of(program)))


def bytes_of_run(program: Program) -> int:
    """An estimate of the bytes of one run, data not included, checked after compilation."""
    problem = program.problem
    caps = dict(program.caps)
    clients = min(problem.n, caps.get("cohort", problem.n))
    rows = min(clients * caps.get("batch", problem.m_max), 1 << 14)
    tests = 0 if problem.test is None else int(jax.tree.leaves(problem.test)[0].shape[0])
    item = dtype(problem).itemsize
    scratch = 4 * rows * problem.model.kernel.width + 6 * problem.model.dim
    evaluated = min(problem.n * problem.m_max, 2 * ROWS) + min(tests, 2 * ROWS)
    evaluation = 2 * evaluated * problem.model.kernel.width + 4 * problem.n
    return int(3 * bytes_of_state(program) + item * (scratch + evaluation))
