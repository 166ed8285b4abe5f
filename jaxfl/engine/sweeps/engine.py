"""One compiled program for many runs: vmap over cells inside, over seeds outside.

Cells of a seed share its key, so that each draw is made once for all of them, and a matrix-vector
product of one run becomes a matrix product of all.
"""

from __future__ import annotations

import functools
import time
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core import hosts
from jaxfl.core.errors import require
from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Algorithm, Array, Hyper, Info, Key, Problem, State
from jaxfl.data.samples import plain
from jaxfl.engine.loop import Extra, advance, initial, measure
from jaxfl.engine.record import dtype
from jaxfl.engine.sweeps.placement import Placement, compile_for, placement
from jaxfl.engine.sweeps.plan import Chunk, Program
from jaxfl.problems.metrics import ROWS

FEW = 16  # clients whose metrics a sweep keeps one by one
DECILES = tuple(i / 10 for i in range(11))  # from the least to the largest

__all__ = [
    "Compiled",
    "blank",
    "bytes_of_run",
    "bytes_of_state",
    "compiled",
    "inputs",
    "padded",
    "placed_problem",
]


class Compiled(NamedTuple):
    """A compiled program for ``shape`` (seeds, cells)."""

    call: Any  # (keys, state, hp, first, start, stop, seen, problem) -> state, counts, metrics
    state: State  # shapes
    shape: tuple[int, int]
    shardings: Any  # of the arguments of call
    bytes: int  # arguments, results and scratch space, all devices together
    seconds: float


def segment(
    algorithm: Algorithm,
    extra: Extra,
    once: bool,
    key: Key,
    state: State,
    hp: Hyper,
    first: Array,
    start: Array,
    stop: Array,
    seen: Array,
    problem: Problem,
) -> tuple[State, Info, dict[str, Array]]:
    """One run from round ``start`` to ``stop``; the ``first`` call makes the state of round 0 instead.

    The metrics are those of round ``stop`` if it is to be ``seen``, and else zeros.  With ``once``
    those of round 0 are computed once for all cells whose initial model is the same.
    """

    def look(state: State) -> dict[str, Array]:
        measured = measure(algorithm, extra, state, plain(problem))
        for name, _ in extra:
            shape = jnp.shape(measured[name])
            require(
                not shape,
                lambda: f"The metric {name!r} has shape {shape}",
                "a sweep keeps numbers only",
            )
        return {name: kept(a) for name, a in measured.items()}

    blank = jax.tree.map(jnp.zeros_like, jax.eval_shape(look, state))

    def begin() -> tuple[State, Info, dict[str, Array]]:
        begun, counts = initial(algorithm, key, problem, hp)
        return begun, counts, look(begun) if once else blank

    def go() -> tuple[State, Info, dict[str, Array]]:
        now = state._replace(t=start)
        return *advance(algorithm, key, now, stop, problem, hp), blank

    state, counts, measured = jax.lax.cond(first, begin, go)
    missing = seen & ~first if once else seen
    return state, counts, jax.lax.cond(missing, look, lambda _: measured, state)


def kept(values: Array) -> Array:
    """A metric as sweeps keep it: of more than :data:`FEW` clients the deciles."""
    if values.ndim == 0 or values.size <= FEW:
        return values
    return jnp.nanquantile(values, jnp.array(DECILES, values.dtype))


def compiled(
    program: Program,
    shape: tuple[int, int],
    extra: Extra,
    paired: bool,
    devices: Sequence[jax.Device],
) -> Compiled:
    """Compile the program for chunks of ``shape``, unless it is compiled already."""
    hp = _numbers(program, [0] * shape[1])
    state = jax.eval_shape(
        lambda key, problem, hp: program.algorithm.init(key, problem, hp)[0],
        jax.random.key(0),
        program.problem,
        _numbers(program, [0], alone=True),
    )
    state = jax.tree.map(lambda a: jax.ShapeDtypeStruct((*shape, *a.shape), a.dtype), state)
    return _compiled(
        program.algorithm,
        extra,
        program.once,
        paired,
        shape,
        _Shapes((state, hp, program.problem)),
        tuple(sorted(program.shared)),
        placement(program.problem, devices),
    )


class _Shapes:
    """A pytree of shapes that can be hashed and compared."""

    def __init__(self, tree: Any) -> None:
        self.tree = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), tree)
        leaves, treedef = jax.tree.flatten(self.tree)
        self.key = (treedef, tuple((a.shape, str(a.dtype)) for a in leaves))

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shapes) and self.key == other.key


@functools.lru_cache(maxsize=64)
def _compiled(
    algorithm: Algorithm,
    extra: Extra,
    once: bool,
    paired: bool,
    shape: tuple[int, int],
    shapes: _Shapes,
    shared: tuple[str, ...],
    place: Placement,
) -> Compiled:
    began = time.perf_counter()
    state, hp, problem = shapes.tree
    own = Hyper({name: None if name in shared else 0 for name in hp.values}, hp.capacity)
    one = functools.partial(segment, algorithm, extra, once)
    # Without axis_size=, which would be the size of the whole and not that of one device.
    over_cells = jax.vmap(one, (None if paired else 0, 0, own, *[None] * 5))
    program = jax.vmap(over_cells, (0, 0, *[None] * 6))
    keys = jax.eval_shape(jax.random.key, 0)
    keys = jax.ShapeDtypeStruct(shape[:1] if paired else shape, keys.dtype)
    number = jax.ShapeDtypeStruct((), jnp.int32)
    flag = jax.ShapeDtypeStruct((), jnp.bool_)
    arguments = (keys, state, hp, flag, number, number, flag, problem)
    call = compile_for(place, program, shape, shared, paired, arguments)
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


def blank(run: Compiled) -> State:
    """A state of zeros, which the first call replaces."""
    state: State = jax.tree.map(
        lambda a, where: jnp.zeros(a.shape, a.dtype, device=where), run.state, run.shardings[1]
    )
    return state


def placed_problem(program: Program, run: Compiled) -> Problem:
    """The data on the devices of the program."""
    problem: Problem = hosts.placed(program.problem, run.shardings[7])
    return problem


def padded(chunk: Chunk, shape: tuple[int, int]) -> tuple[list[int], list[int]]:
    """The seeds and cells of a chunk, the last ones repeated up to this shape."""
    seeds = [*chunk.seeds, *[chunk.seeds[-1]] * (shape[0] - len(chunk.seeds))]
    return seeds, [*chunk.cells, *[chunk.cells[-1]] * (shape[1] - len(chunk.cells))]


def inputs(
    program: Program, chunk: Chunk, run: Compiled, keys: Sequence[Key], paired: bool
) -> tuple[Key, Hyper]:
    """Keys and hyper-parameters of a chunk; a smaller chunk repeats its last seed and cell.

    ``keys`` are those of the seeds.  Unless ``paired``, each cell has its own keys.
    """
    seeds, cells = padded(chunk, run.shape)
    chosen = jnp.stack([keys[program.seeds[i]] for i in seeds])
    if not paired:
        labels = [f"{program.algorithm.name}|{program.cells[j].label}" for j in cells]
        salts = jnp.array([zlib.crc32(label.encode()) for label in labels], jnp.uint32)
        chosen = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(chosen, salts)
    placed: tuple[Key, Hyper] = hosts.placed(
        (chosen, _numbers(program, cells)), (run.shardings[0], run.shardings[2])
    )
    return placed


def _numbers(program: Program, cells: Sequence[int], alone: bool = False) -> Hyper:
    """The hyper-parameters of these cells: arrays, or single values where they are shared."""
    integers = {param.name for param in program.algorithm.params if param.integer}
    kind = dtype(program.problem)
    last = max(cell.facts.rounds or 1 for cell in program.cells)
    out: dict[str, Array] = {}
    for name in program.names:
        values = [cell.values[name] for cell in program.cells]
        if any(isinstance(value, Schedule) for value in values):
            values = [_over(values[j], program.cells[j].facts.rounds or 1, last) for j in cells]
        else:
            values = [values[j] for j in cells]
        numbers = np.asarray(values, np.float64)
        if alone or name in program.shared:
            numbers = numbers[0]
        out[name] = jnp.asarray(numbers, jnp.int32 if name in integers else kind)
    return Hyper(out, program.caps)


def _over(value: Any, rounds: int, length: int) -> np.ndarray[Any, Any]:
    """One value per round, the last one repeated up to ``length``."""
    now = value.over(rounds) if isinstance(value, Schedule) else np.full(rounds, float(value))
    return np.concatenate([now, np.full(length - rounds, now[-1])])


def bytes_of_state(program: Program) -> int:
    """The bytes of the state of one run."""
    state = jax.eval_shape(
        lambda problem, hp: program.algorithm.init(jax.random.key(0), problem, hp)[0],
        program.problem,
        _numbers(program, [0], alone=True),
    )
    return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(state))


def bytes_of_run(program: Program) -> int:
    """An estimate of the bytes of one run beside the data, checked after compilation."""
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
