"""The memory that a run needs and the memory that is free, compared before the run starts."""

from __future__ import annotations

import math

import jax

from jaxfl.algorithms.composition import stored
from jaxfl.core.errors import InputError, require
from jaxfl.core.memory import free
from jaxfl.core.types import Algorithm, GeneratedSamples, Hyper, Problem, State
from jaxfl.data import samples

__all__ = ["check_room", "made", "remembered", "state_of"]


def state_of(algorithm: Algorithm, problem: Problem, hp: Hyper) -> State:
    """The shapes and types of the state of one run."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    state: State = jax.eval_shape(lambda *args: algorithm.init(*args)[0], key, problem, hp)
    return state


def remembered(algorithm: Algorithm, problem: Problem, hp: Hyper) -> dict[str, int]:
    """Bytes of each part of the state, from shapes alone."""
    state = state_of(algorithm, problem, hp)
    return {
        name: sum(math.prod(a.shape) * a.dtype.itemsize for a in jax.tree.leaves(part))
        for name, part in zip(state._fields, state, strict=True)
    }


def made(algorithm: Algorithm, problem: Problem, hp: Hyper) -> tuple[int, int]:
    """Samples that a round generates at once, and their bytes, about; 0 for stored samples."""
    if not isinstance(problem.train, GeneratedSamples):
        return 0, 0
    rows = problem.n * hp.caps.get("batch", problem.m_max)
    if algorithm.body is not None:
        rows = algorithm.body.rows_at_once(problem, hp, elsewhere=not _on_host(problem))
    leaves = jax.tree.leaves(samples.example(problem.train))
    return rows, samples.DRAWING * rows * sum(math.prod(a.shape) * a.dtype.itemsize for a in leaves)


def check_room(algorithm: Algorithm, problem: Problem, hp: Hyper) -> None:
    """Raise for a run whose state, or whose samples generated at once, need more than is free."""
    sizes, there = remembered(algorithm, problem, hp), _room(problem)
    need = sum(sizes.values())
    if need > there:
        each = sum(sizes.get(name, 0) for name in ("links", "local", "bases")) // problem.n
        raise InputError(
            f"{algorithm.name} would remember {need / 2**30:,.1f} GiB besides the data, "
            f"{each:,} bytes for each of {problem.n:,} clients, and {there / 2**30:,.1f} "
            "GiB are free",
            f"take {_halved(algorithm, problem, hp, there)}fewer clients, a smaller model, or "
            "an algorithm that remembers nothing of a client, such as cdp_sgd",
            suggested={"storage": "bfloat16"},
        )
    rows, drawn = made(algorithm, problem, hp)
    require(
        need + drawn <= there,
        lambda: (
            f"A round of {algorithm.name} generates {rows:,} samples at once, which takes about "
            f"{drawn / 2**30:,.1f} GiB, and {(there - need) / 2**30:,.1f} GiB are free"
        ),
        "take a smaller batch, clients with fewer samples, or smaller samples",
    )


def _room(problem: Problem) -> int:
    """Bytes that are free where the data are."""
    devices = problem.count.devices()
    return free(next(iter(devices))) if _on_host(problem) else sum(map(free, devices))


def _on_host(problem: Problem) -> bool:
    return all(device.platform == "cpu" for device in problem.count.devices())


def _halved(algorithm: Algorithm, problem: Problem, hp: Hyper, there: int) -> str:
    """The storage that suffices, in words; "" if it does not."""
    try:
        need = sum(remembered(stored(algorithm, "bfloat16"), problem, hp).values())
    except InputError:
        return ""
    return f"{{storage}} ({need / 2**30:,.1f} GiB), " if need <= there else ""
