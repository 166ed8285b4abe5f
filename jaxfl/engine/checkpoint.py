"""Checkpoints: the runs of a chunk, their states and their histories, in one file.

They are read back bit for bit.  A state is a handful of arrays.  One ``npz`` file is enough, and an array
store would write tens of files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any, BinaryIO, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import require
from jaxfl.core.files import arrays
from jaxfl.core.hosts import on_host
from jaxfl.core.types import State
from jaxfl.engine.log import Entry, Log

REASON = "<U120"  # why a run has stopped

__all__ = [
    "REASON",
    "Batch",
    "Content",
    "Place",
    "content",
    "joined",
    "plain_array",
    "put",
    "restored",
    "take",
]

Content: TypeAlias = tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]  # arrays, and the header
Place: TypeAlias = tuple[int, int]  # of a run in a chunk: seed and cell
SERIES = ("metric.", "count.")  # arrays whose first axis are the evaluations


@dataclasses.dataclass
class Batch:
    """The runs of a chunk while they are computed, or as they ended."""

    state: State
    log: Log
    ended: npt.NDArray[np.str_]  # (seeds, cells): why a rule ended a run; "" where none did
    seconds: float = 0.0

    @property
    def reached(self) -> int:
        """The round of all runs; -1 where a rule has ended some before others."""
        t = np.ravel(on_host(self.state.t))
        return int(t[0]) if (t == t[0]).all() else -1


def content(batch: Batch) -> Content:
    """The content of a checkpoint, as arrays of this host and a header."""
    log = batch.log
    leaves = map(on_host, jax.tree.leaves(batch.state))
    found = {f"state{i}": plain_array(leaf) for i, leaf in enumerate(leaves)}
    found |= {f"metric.{name}": a for name, a in log.series().items()}
    found |= {f"count.{n}": np.stack([one[n] for one in log.counts]) for n in log.total}
    found |= {f"total.{name}": np.asarray(a) for name, a in log.total.items()}
    found["ended"] = batch.ended
    return found, {"rounds": log.rounds, "at": batch.reached, "seconds": batch.seconds}


def put(file: BinaryIO, found: Content) -> None:
    text = np.frombuffer(json.dumps(found[1]).encode(), np.uint8)
    np.savez(file, allow_pickle=False, about=text, **found[0])


def take(file: BinaryIO, owner: str) -> Content | None:
    """A checkpoint; None if it is damaged or not the ``owner``'s."""
    with contextlib.suppress(Exception):
        found = arrays(file, file.seek(0, os.SEEK_END))  # it is not compressed
        about = json.loads(found.pop("about").tobytes())
        if about["owner"] == owner:
            return found, about
    return None


def joined(rows: Sequence[Sequence[tuple[Content, Place]]]) -> Content:
    """One checkpoint of these runs, each with its place in a checkpoint of the same rounds."""
    contents = {id(one): one for row in rows for one, _ in row}
    first, about = rows[0][0][0]
    alike = all(one["rounds"] == about["rounds"] for _, one in contents.values())
    require(alike, "the runs were evaluated at different rounds")

    def runs(name: str) -> npt.NDArray[Any]:
        series, held = name.startswith(SERIES), {}
        for key, (found, _) in contents.items():
            alone = name.startswith("state") and found["ended"].shape == (1, 1)
            array = found[name][None, None] if alone else found[name]  # one run has no axes
            held[key] = np.moveaxis(array, 0, 2) if series else array
        out = np.array([[held[id(one)][place] for one, place in row] for row in rows])
        return np.moveaxis(out, 2, 0) if series else out

    return {name: runs(name) for name in first}, about


def restored(found: Content, shape: State, where: Any = None) -> Batch | None:
    """The runs of a checkpoint, placed ``where``; None if it is incomplete or of another shape."""
    (parts, about), (leaves, tree) = found, jax.tree.flatten(shape)
    with contextlib.suppress(Exception):
        saved = []
        for i, leaf in enumerate(leaves):
            array = parts[f"state{i}"].reshape(leaf.shape)
            if array.dtype != plain_array(np.empty(0, leaf.dtype)).dtype:
                return None
            saved.append(array.view(leaf.dtype))
        state: State = jax.tree.unflatten(tree, saved)
        state = jax.device_put(state, where)
        ended = parts["ended"].astype(REASON)
        return Batch(state, _log(parts, about["rounds"]), ended, about["seconds"])
    return None


def _log(parts: dict[str, npt.NDArray[Any]], rounds: Sequence[int]) -> Log:
    """The history of a checkpoint; raise for an incomplete one."""

    def those(kind: str) -> dict[str, npt.NDArray[Any]]:
        return {n.removeprefix(kind): a for n, a in parts.items() if n.startswith(kind)}

    def at(series: dict[str, npt.NDArray[Any]], i: int) -> dict[str, Any]:
        return {name: a[i] for name, a in series.items()}

    metrics, counts = map(those, SERIES)
    if {len(rounds)} != {len(a) for a in (*metrics.values(), *counts.values())}:
        raise ValueError("its history is incomplete")
    entries = [Entry(t, at(metrics, i), at(counts, i)) for i, t in enumerate(rounds)]
    return Log(entries, those("total."))


def plain_array(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array with a dtype that NumPy's files support, which is not bfloat16."""
    return array.view(np.uint16) if array.dtype == jnp.bfloat16 else array
