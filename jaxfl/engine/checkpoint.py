"""A run in one file: written whole or not at all, read back bit for bit.

States here are a handful of arrays.  One ``npz``, written beside its place, synced and renamed,
takes about a millisecond, where an array store takes tens of files: so this is NumPy's own.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms.resolution import build
from jaxfl.core.errors import InputError, require
from jaxfl.core.files import check_format, reading, replace
from jaxfl.core.schedules import Schedule, pieces, schedule
from jaxfl.core.types import Algorithm, Key, Origin, Problem, ProblemFacts, Source
from jaxfl.engine.log import Log
from jaxfl.engine.record import USUAL, Record, dtype, settings

__all__ = ["read", "same", "write"]

FORMAT = 1
SAME = ("algorithm", "parts", "problem", "model", "data", "objective", "key", "dtype")


def write(path: Path, run: Record) -> None:
    """The whole run: state, history, numbers and settings."""
    leaves = jax.tree.leaves(run.state)
    arrays = {f"state{i}": _plain(np.asarray(leaf)) for i, leaf in enumerate(leaves)}
    arrays |= {f"metric.{name}": a for name, a in run.metrics.items()}
    about = {
        "format": FORMAT,
        "leaves": len(leaves),
        "rounds": run.log.rounds,
        "counts": run.log.counts,
        "total": run.log.total,
        "values": {name: _written(v, int(run.values["rounds"])) for name, v in run.values.items()},
        "sources": run.sources,
        "facts": run.facts._asdict(),
        "settings": run.settings,
        "seconds": run.seconds,
        "compile_seconds": run.compile_seconds,
        "ended": run.ended,
    }
    text = np.frombuffer(json.dumps(about, default=_number).encode(), np.uint8)
    replace(path, lambda file: np.savez(file, allow_pickle=False, about=text, **arrays))


def same(whose: str, held: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with another run's state.  A part that one of them does not name is the usual."""
    kept, mine = ({**USUAL, **dict(told["parts"])} for told in (held, now))
    require(
        kept["storage"] == mine["storage"],
        f"{whose} keeps what clients remember as storage={kept['storage']!r}, and this one as "
        f"{mine['storage']!r}",
        "a run goes on with the storage that it began with",
    )
    pairs: list[tuple[str, Any, Any]] = [
        (name, held[name], now[name]) for name in SAME if name != "parts"
    ]
    pairs += [(name, kept.get(name), mine.get(name)) for name in sorted({*kept, *mine})]
    for name, its, ours in pairs:
        require(
            its == ours or (name == "objective" and _near(its, ours)),
            f"{whose} belongs to another run",
            f"its {name} is {its!r}, this one's is {ours!r}",
        )


def _near(a: str, b: str) -> bool:
    """Devices and compilers may differ in the last digits."""
    one, two = ([float(number) for number in text.split()] for text in (a, b))
    return len(one) == len(two) and bool(np.allclose(one, two, 1e-5, 1e-6, equal_nan=True))


def read(path: Path, algorithm: Algorithm, problem: Problem, key: Key) -> Record:
    """The run that ``path`` holds, refused unless it is one of this algorithm, problem and key."""
    import chex

    with reading(path, "checkpoint of a run", "name another, or start anew"):
        with open(path, "rb") as content, np.load(content, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(arrays.pop("about").tobytes())
        check_format(path, "checkpoint", about["format"], FORMAT)
    same(str(path), about["settings"], settings(algorithm, problem, key))
    about["values"] = {name: _value(value) for name, value in about["values"].items()}
    facts = ProblemFacts(**{**about["facts"], "sizes": tuple(about["facts"]["sizes"])})
    _complete(about, algorithm, facts)
    hp = build(algorithm, about["values"], facts, dtype(problem))
    shape = jax.eval_shape(lambda: algorithm.init(key, problem, hp)[0])
    leaves, tree = jax.tree.flatten(shape)
    saved = [arrays[f"state{i}"] for i in range(about["leaves"])]
    saved = [
        a.view(leaf.dtype) if leaf.dtype == jnp.bfloat16 and a.dtype == np.uint16 else a
        for a, leaf in zip(saved, leaves, strict=False)
    ]
    try:
        state = jax.tree.unflatten(tree, saved)
        chex.assert_trees_all_equal_shapes_and_dtypes(shape, state)
    except (AssertionError, ValueError) as error:  # which says of what leaf
        raise InputError(
            f"{path} holds a state of another shape than {algorithm.name} has now",
            "go on with the version that wrote it, or start a new run",
        ) from error
    state = jax.tree.map(jnp.asarray, state)
    names = [name.removeprefix("metric.") for name in arrays if name.startswith("metric.")]
    _whole(path, about, {name: len(arrays[f"metric.{name}"]) for name in names})
    metrics = [
        {name: arrays[f"metric.{name}"][i] for name in names} for i in range(len(about["rounds"]))
    ]
    log = Log(about["rounds"], metrics, about["counts"], about["total"])
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
        about.get("ended", "finished"),  # older files do not say
    )


def _whole(path: Path, about: dict[str, Any], series: Mapping[str, int]) -> None:
    """Refuse a history that an interrupt left in the middle, as earlier versions could write it."""
    found = {len(about["rounds"]), len(about["counts"]), *series.values()}
    named = [set(counts) for counts in (*about["counts"], about["total"])]
    require(
        len(found) == 1 and all(names == named[-1] for names in named),
        f"{path} has totals for {len(about['counts'])} of {len(about['rounds'])} evaluations, or "
        "not all of them",
        "an interrupt came while it was written, so start a new run",
    )


def _complete(about: dict[str, Any], algorithm: Algorithm, facts: ProblemFacts) -> None:
    """Numbers that the algorithm has got since the file was written: their defaults."""
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
            f"The checkpoint has no {name}, which {algorithm.name} needs by now",
            "start a new run",
        )
        values[name], sources[name] = found.values[name], found.sources[name]


def _plain(array: np.ndarray) -> np.ndarray:
    """As NumPy's files hold it: they know no bfloat16."""
    return array.view(np.uint16) if array.dtype == jnp.bfloat16 else array


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _written(value: Any, rounds: int) -> Any:
    """A number, or what a schedule is in each round; a function's own name beside its numbers."""
    if not isinstance(value, Schedule):
        return _number(value)
    if value.written:
        return value.label
    return {"label": value.label, "numbers": pieces(value.over(rounds)).label}


def _value(value: Any) -> Any:
    """What was :func:`_written`."""
    if isinstance(value, dict):
        known = schedule(value["numbers"])
        return dataclasses.replace(known, label=value["label"], written=False, ends=True)
    return schedule(value) if isinstance(value, str) else value
