"""The memory that a run needs and the memory that is free, compared before the run starts."""

from __future__ import annotations

import math
from collections.abc import Iterable

import jax
from jax.stages import Compiled

from jaxfl.algorithms.composition import stored
from jaxfl.core.errors import InputError, require
from jaxfl.core.memory import check_fits, free
from jaxfl.core.types import Algorithm, GeneratedSamples, Hyper, Problem
from jaxfl.data import samples
from jaxfl.problems.metrics import CLIENTS

__all__ = ["check_history", "check_room", "check_scratch", "made", "predicted", "remembered"]

COMPILER = 195 << 20  # bytes that compiling and evaluating take on the host beside a round
ENTRY = 2500  # bytes of an evaluation in the history, without the metrics of each client


def remembered(algorithm: Algorithm, problem: Problem, hp: Hyper) -> dict[str, int]:
    """Bytes of each part of the state, from shapes alone."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(lambda k, p, h: algorithm.init(k, p, h)[0], key, problem, hp)
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
        each = (sizes["links"] + sizes["local"] + sizes["bases"]) // problem.n
        raise InputError(
            f"{algorithm.name} would remember {need / 2**30:,.1f} GiB beside the data, "
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


def check_history(problem: Problem, evaluations: int) -> None:
    """Raise if the metrics of these evaluations need more memory than is free."""
    each = ENTRY + (8 * problem.n if problem.n <= CLIENTS else 0)
    what, way = f"The metrics of {evaluations:,} evaluations", "evaluate less often"
    check_fits(what, each * evaluations, way)


def predicted(problem: Problem, nbytes: int, programs: Iterable[Compiled]) -> int:
    """Bytes that a run takes beside the data, of whose state ``nbytes`` are still to be allocated."""
    known = [taken for taken in (p.memory_analysis() for p in programs) if taken is not None]
    scratch = max((taken.temp_size_in_bytes for taken in known), default=0)
    devices = problem.count.devices()
    compiler = COMPILER if _on_host(problem) else 0
    return nbytes + scratch * len(devices) + compiler


def check_scratch(
    algorithm: Algorithm, problem: Problem, nbytes: int, programs: Iterable[Compiled]
) -> None:
    """Raise for a run that would take more memory than is free."""
    need, there = predicted(problem, nbytes, programs), _room(problem)
    require(
        need <= there,
        lambda: (
            f"{algorithm.name} would take {need / 2**30:,.1f} GiB beside the data, "
            f"{(need - nbytes) / 2**30:,.1f} of them to compute a round in, and "
            f"{there / 2**30:,.1f} GiB are free"
        ),
        "take fewer clients, a smaller batch, or a smaller model",
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
