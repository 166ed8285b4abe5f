"""Checkpoints: the runs of a chunk, their states and their histories, in one file.

Files are written atomically and read back bit for bit.  A state is a handful of arrays.  One ``npz``
file is enough, and an array store would write tens of files.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import require
from jaxfl.core.files import arrays
from jaxfl.core.hosts import on_host
from jaxfl.core.types import Info, State
from jaxfl.engine.log import Log

REASON = "<U120"  # why a run has stopped

__all__ = [
    "REASON",
    "Batch",
    "Content",
    "content",
    "joined",
    "plain_array",
    "put",
    "restored",
    "take",
]

Ended: TypeAlias = npt.NDArray[np.str_]
Content: TypeAlias = tuple[dict[str, np.ndarray], dict[str, Any]]  # arrays, and the header
Place: TypeAlias = tuple[int, int]  # of a run in a chunk: seed and cell


@dataclasses.dataclass
class Batch:
    """The runs of a chunk while they are computed, or as they ended."""

    state: State
    log: Log
    ended: Ended  # (seeds, cells): why a stopping rule ended a run; "" where none did
    seconds: float = 0.0

    @property
    def reached(self) -> int:
        """The round of all runs; -1 where a rule has ended some before others."""
        t = np.ravel(on_host(self.state.t))
        return int(t[0]) if (t == t[0]).all() else -1


def content(batch: Batch) -> Content:
    """The content of a checkpoint, as arrays of this host and a header."""
    leaves, log = jax.tree.leaves(batch.state), batch.log
    found = {f"state{i}": plain_array(on_host(leaf)) for i, leaf in enumerate(leaves)}
    found |= {f"metric.{name}": a for name, a in log.series().items()}
    about = {
        "leaves": len(leaves),
        "rounds": log.rounds,
        "counts": log.counts,
        "total": log.total,
        "at": batch.reached,
        "ended": batch.ended.tolist(),
        "seconds": batch.seconds,
    }
    return found, json.loads(json.dumps(about, default=_number))


def put(file: BinaryIO, found: Content) -> None:
    text = np.frombuffer(json.dumps(found[1], default=_number).encode(), np.uint8)
    np.savez(file, allow_pickle=False, about=text, **found[0])


def take(file: BinaryIO) -> Content:
    """The arrays of a checkpoint, and its header."""
    found = arrays(file, file.seek(0, os.SEEK_END))  # it is not compressed
    return found, json.loads(found.pop("about").tobytes())


def joined(rows: Sequence[Sequence[tuple[Content, Place]]]) -> Content:
    """One checkpoint of these runs, each with its place in a checkpoint of the same rounds."""

    def runs(part: Callable[[Content], Any], first: int = 0) -> Any:
        """The arrays of the runs, after ``first`` axes that are common."""
        before = (slice(None),) * first
        held = {name: np.asarray(part(one)) for name, one in contents.items()}
        found = [[held[id(one)][before + place] for one, place in row] for row in rows]
        return np.moveaxis(np.asarray(found), (0, 1), (first, first + 1))

    def leaf(one: Content, name: str) -> Any:
        found, ended = one[0][name], np.asarray(one[1]["ended"])
        return found[None, None] if ended.shape == (1, 1) else found  # one run has no axes

    def metric(one: Content, name: str) -> Any:
        return one[0][name]

    def count(one: Content, i: int, name: str) -> Any:
        return (*one[1]["counts"], one[1]["total"])[i][name]

    contents = {id(one): one for row in rows for one, _ in row}
    arrays, about = rows[0][0][0]
    out = {}
    for name in arrays:
        series = name.startswith("metric.")
        out[name] = runs(functools.partial(metric if series else leaf, name=name), int(series))
    *each, total = (
        {name: runs(functools.partial(count, i=i, name=name)) for name in Info._fields}
        for i in range(len(about["rounds"]) + 1)
    )
    alike = all(one[1]["rounds"] == about["rounds"] for one in contents.values())
    require(alike, "the runs were evaluated at different rounds")
    ended = runs(lambda one: one[1]["ended"]).tolist()
    return out, {**about, "counts": each, "total": total, "ended": ended}


def restored(found: Content, shape: State, where: Any = None) -> Batch:
    """The runs of a checkpoint, placed ``where``; raise unless their state has this shape."""
    import chex

    parts, about = found
    leaves, tree = jax.tree.flatten(shape)
    saved = [parts[f"state{i}"] for i in range(about["leaves"])]
    saved = [
        (a.view(leaf.dtype) if leaf.dtype == jnp.bfloat16 and a.dtype == np.uint16 else a)
        for a, leaf in zip(saved, leaves, strict=True)
    ]
    saved = [a.reshape(leaf.shape) for a, leaf in zip(saved, leaves, strict=True)]
    state: State = jax.tree.unflatten(tree, saved)
    chex.assert_trees_all_equal_shapes_and_dtypes(shape, state)
    placed: State = jax.device_put(state, where)
    return Batch(placed, _log(parts, about), np.asarray(about["ended"], REASON), about["seconds"])


def _log(found: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> Log:
    """The history of a checkpoint; raise for an incomplete one."""
    series = {name[7:]: array for name, array in found.items() if name.startswith("metric.")}
    lengths = {len(rows) for rows in (about["rounds"], about["counts"], *series.values())}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError("its history is incomplete")
    metrics = [{n: array[i] for n, array in series.items()} for i in range(len(about["rounds"]))]
    *counts, total = (
        {name: np.asarray(one[name], np.int64) for name in Info._fields}
        for one in (*about["counts"], about["total"])
    )
    return Log(about["rounds"], metrics, counts, total)


def plain_array(array: np.ndarray) -> np.ndarray:
    """The array with a dtype that NumPy's files support, which is not bfloat16."""
    return array.view(np.uint16) if array.dtype == jnp.bfloat16 else array


def _number(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
