"""Checkpoints: state and log of a run, or of the runs of a chunk, in one file.

Files are written atomically and read back bit for bit.  A state is a handful of arrays.  One ``npz``
file is enough, and an array store would write tens of files.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms.resolution import build
from jaxfl.core import hosts
from jaxfl.core.checks import conforms
from jaxfl.core.errors import InputError, require
from jaxfl.core.files import arrays, check_format, reading, replace
from jaxfl.core.schedules import Schedule, pieces, schedule
from jaxfl.core.types import (
    Algorithm,
    Info,
    Key,
    Origin,
    Problem,
    ProblemFacts,
    PyTree,
    Source,
    State,
)
from jaxfl.engine import record, stopping
from jaxfl.engine.log import Log
from jaxfl.engine.loop import Runs
from jaxfl.engine.record import Record, dtype, joined_proof, settings

__all__ = [
    "Content",
    "content",
    "given",
    "joined",
    "log_of",
    "put",
    "read",
    "same",
    "state_of",
    "take",
    "write",
]

FORMAT = 1
SAME = ("algorithm", "problem", "model", "data", "objective", "key", "dtype")
HEADER = {
    "leaves": int,
    "rounds": [int],
    "counts": [{str: int}],
    "total": {str: int},
    "values": {str: int | float | str | dict},
    "sources": {str: str},
    "facts": {
        **dict.fromkeys(("n", "m", "m_max", "d"), int),
        **dict.fromkeys(("smoothness", "diameter?"), int | float | None),
        "rounds": int | None,
        **dict.fromkeys(("convex?", "contracts?", "constrained?"), bool | None),
        "sizes": [int],
        "groups?": list,
    },
    "settings": {
        **dict.fromkeys(SAME, str),
        **dict.fromkeys(("eval_every?", "until?"), int),
        "eval_records?": str,
        "key": list,
        "parts": dict,
        "proof?": [str],
    },
    "seconds": int | float,
    "compile_seconds": int | float,
    "ended?": str,  # older files have none
}


def content(runs: Runs, about: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """State and log of ``runs``, and what ``about`` says of them, as arrays of this host."""
    leaves, log = jax.tree.leaves(runs.state), runs.log
    found = {f"state{i}": _plain(hosts.on_host(leaf)) for i, leaf in enumerate(leaves)}
    found |= {f"metric.{name}": a for name, a in log.series().items()}
    known = {"rounds": log.rounds, "counts": log.counts, "total": log.total}
    header = {"format": FORMAT, "leaves": len(leaves), **known, **about}
    text = np.frombuffer(json.dumps(header, default=_number).encode(), np.uint8)
    return {"about": text, **found}


def put(file: BinaryIO, content: Mapping[str, np.ndarray]) -> None:
    np.savez(file, allow_pickle=False, **content)


Content: TypeAlias = tuple[dict[str, np.ndarray], dict[str, Any]]


def take(file: BinaryIO) -> Content:
    """The arrays of a checkpoint, and its header."""
    found = arrays(file, file.seek(0, os.SEEK_END))  # it is not compressed
    return found, json.loads(found.pop("about").tobytes())


def joined(rows: Sequence[Sequence[tuple[Content, tuple[int, int]]]]) -> Content:
    """One checkpoint of these runs, each a place (seed, cell) in a checkpoint of the same rounds."""

    def runs(arrays: Callable[[Content], Any], first: int = 0) -> Any:
        """The arrays of the runs, after ``first`` axes that are common."""
        before = (slice(None),) * first
        held = {name: np.asarray(arrays(one)) for name, one in contents.items()}
        found = [[held[id(one)][before + place] for one, place in row] for row in rows]
        return np.moveaxis(np.asarray(found), (0, 1), (first, first + 1))

    def array(one: Content, name: str) -> Any:
        return one[0][name]

    def count(one: Content, i: int, name: str) -> Any:
        return (*one[1]["counts"], one[1]["total"])[i][name]

    contents = {id(one): one for row in rows for one, _ in row}
    arrays, about = rows[0][0][0]
    out = {
        name: runs(functools.partial(array, name=name), int(name.startswith("metric.")))
        for name in arrays
    }
    *each, total = (
        {name: runs(functools.partial(count, i=i, name=name)) for name in Info._fields}
        for i in range(len(about["rounds"]) + 1)
    )
    alike = all(one[1]["rounds"] == about["rounds"] for one in contents.values())
    require(alike, "the runs were evaluated at different rounds")
    return out, {**about, "counts": each, "total": total}


def state_of(
    found: Mapping[str, np.ndarray], about: Mapping[str, Any], shape: PyTree, where: Any = None
) -> State:
    """The state of a checkpoint, placed ``where``; raise unless it has this shape."""
    import chex

    leaves, tree = jax.tree.flatten(shape)
    saved = [found[f"state{i}"] for i in range(about["leaves"])]
    saved = [
        a.view(leaf.dtype) if leaf.dtype == jnp.bfloat16 and a.dtype == np.uint16 else a
        for a, leaf in zip(saved, leaves, strict=False)
    ]
    state: State = jax.tree.unflatten(tree, saved)
    chex.assert_trees_all_equal_shapes_and_dtypes(shape, state)
    placed: State = hosts.placed(state, where)
    return placed


def log_of(path: Any, found: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> Log:
    """The log of a checkpoint; raise for an incomplete one, which earlier versions could write."""
    series = {name[7:]: array for name, array in found.items() if name.startswith("metric.")}
    lengths = {len(rows) for rows in (about["rounds"], about["counts"], *series.values())}
    named = [set(counts) for counts in (*about["counts"], about["total"])]
    require(
        len(lengths) == 1 and lengths != {0} and all(names == named[-1] for names in named),
        lambda: (
            f"{path} has totals for {len(about['counts'])} of {len(about['rounds'])} evaluations, or "
            "not all of them"
        ),
        "an interrupt came while it was written, so start a new run",
    )
    metrics = [{n: array[i] for n, array in series.items()} for i in range(len(about["rounds"]))]
    *counts, total = (
        {name: a if isinstance(a, int) else np.asarray(a, np.int64) for name, a in one.items()}
        for one in (*about["counts"], about["total"])
    )
    return Log(about["rounds"], metrics, counts, total)


def write(path: Path, run: Record) -> None:
    """Write the whole run: state, history, hyper-parameters and settings."""
    about = {
        "values": {name: _written(v, int(run.values["rounds"])) for name, v in run.values.items()},
        "sources": run.sources,
        "facts": run.facts._asdict(),
        "settings": run.settings,
        "seconds": run.seconds,
        "compile_seconds": run.compile_seconds,
        "ended": run.ended,
    }
    found = content(run, about)
    if hosts.is_first():
        replace(path, lambda file: put(file, found))


def given(path: Path) -> dict[str, Any]:
    """The hyper-parameters that the user set for the run in ``path``."""
    with reading(path, "checkpoint of a run", "name another, or start over"):
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(file["about"].tobytes())
        read = {name: Source.read(text).origin for name, text in about["sources"].items()}
        return {n: v for n, v in about["values"].items() if read.get(n) is Origin.GIVEN}


def same(whose: str, stored: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise unless both settings are of one run."""
    stored = {"eval_records": "all", **stored}  # older files have none
    names = (*SAME, "eval_records", "parts")
    theirs, ours = ({name: about[name] for name in names} for about in (stored, now))
    record.same(whose, theirs, ours, "make it as it was, or start a new run")


def read(path: Path, algorithm: Algorithm, problem: Problem, key: Key) -> Record:
    """The run in ``path``; raise unless it is one of this algorithm, problem and key."""
    with reading(path, "checkpoint of a run", "name another, or start over"):
        if hosts.several():
            file: BinaryIO = io.BytesIO(hosts.first(path.read_bytes))
        else:
            file = open(path, "rb")  # noqa: SIM115 -- closed below
        with file:
            found, about = take(file)
        conforms("its header", about, {"format": int})
        check_format(path, "checkpoint", about["format"], FORMAT)
        conforms("its header", about, HEADER)
        now = settings(algorithm, problem, key)
        same(f"{path} holds another run", about["settings"], now)
        about["settings"]["proof"] = joined_proof(about["settings"].get("proof"), now["proof"])
        about["values"] = {name: _value(value) for name, value in about["values"].items()}
        known = about["facts"]
        groups = tuple((int(m), float(w), int(k)) for m, w, k in known.get("groups", ()))
        facts = ProblemFacts(**{**known, "sizes": tuple(known["sizes"]), "groups": groups})
        _complete(about, algorithm, facts)
        hp = build(algorithm, about["values"], facts, dtype(problem))
        shape = jax.eval_shape(lambda: algorithm.init(key, problem, hp)[0])
        try:
            state = state_of(found, about, shape)
        except (AssertionError, ValueError) as error:  # names the leaf
            raise InputError(
                f"{path} holds a state of another shape than {algorithm.name} has now",
                "resume it with the version that wrote it, or start a new run",
            ) from error
        log = log_of(path, found, about)
        _rules(about)
    return Record(
        algorithm,
        problem,
        key,
        about["values"],
        {name: Source.read(text) for name, text in about["sources"].items()},
        facts,
        state,
        log,
        about["settings"],
        about["seconds"],
        about["compile_seconds"],
        about.get("ended", "finished"),  # older files have no entry
    )


def _rules(about: dict[str, Any]) -> None:
    """Check the rules that may end the run; add the one that ended it where an older file has none."""
    known, ended = about["settings"], about.get("ended", "")
    if ended.startswith("stopped: loss"):
        limit, until = float(ended.split()[-1]), int(known["until"])
        known.setdefault("stop", [stopping.rule(stopping.Stop(loss=limit), 0, until, 0)])
    stopping.planned(known, 0)
    stopping.checks(known, 0)


def _complete(about: dict[str, Any], algorithm: Algorithm, facts: ProblemFacts) -> None:
    """Add defaults for hyper-parameters that are newer than the file."""
    values, sources = about["values"], about["sources"]
    new = sorted(set(algorithm.needs) - set(values))
    if not new:
        return
    read = {name: Source.read(text).origin for name, text in sources.items()}
    given = {name: value for name, value in values.items() if read.get(name) is Origin.GIVEN}
    given.pop("rounds", None)
    found = algorithm.plan(given, facts)
    for name in new:
        require(
            name in found.values,
            lambda: f"The checkpoint has no {name}, which {algorithm.name} needs now",
            "start a new run",
        )
        values[name], sources[name] = found.values[name], found.sources[name]


def _plain(array: np.ndarray) -> np.ndarray:
    """The array with a dtype that NumPy's files support, which is not bfloat16."""
    return array.view(np.uint16) if array.dtype == jnp.bfloat16 else array


def _number(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _written(value: Any, rounds: int) -> Any:
    """A number, or a schedule as text; of a function its label and its values in each round."""
    if not isinstance(value, Schedule):
        return _number(value)
    if value.written:
        return value.label
    return {"label": value.label, "numbers": pieces(value.over(rounds)).label}


def _value(value: Any) -> Any:
    """The inverse of :func:`_written`."""
    if isinstance(value, dict):
        known = schedule(value["numbers"])
        return dataclasses.replace(known, label=value["label"], written=False, ends=True)
    return schedule(value) if isinstance(value, str) else value
