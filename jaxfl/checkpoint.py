"""A run in one file: written whole or not at all, read back bit for bit.

States here are a handful of arrays.  One ``npz``, written beside its place, synced and renamed,
takes about a millisecond, where an array store takes tens of files: so this is NumPy's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.errors import InputError
from jaxfl.hyper import build
from jaxfl.log import Log
from jaxfl.record import USUAL, Record, dtype, settings
from jaxfl.schedules import Schedule, pieces, schedule
from jaxfl.types import Algorithm, Facts, Key, Origin, Problem, Source

__all__ = ["read", "replace", "same", "writable", "write"]

FORMAT = 1
SAME = ("algorithm", "parts", "problem", "model", "data", "objective", "key", "dtype")


def writable(path: Path) -> None:
    """Refuse, before any round is run, a place where nothing can be written."""
    if path.is_dir():
        raise InputError(f"Cannot write {path}: it is a folder, and a checkpoint is a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe = _beside(path)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror or error}.") from None


def replace(path: Path, content: Any, new: bool = False) -> None:
    """``content(file)`` becomes ``path`` in one step: a reader sees the old file or the new one.

    Of several writers at once the last one stays; with ``new`` the first, and others get a
    ``FileExistsError``.
    """
    part = _beside(path)
    try:
        with open(part, "xb") as file:
            content(file)
            file.flush()
            os.fsync(file.fileno())
        if not new or not _linked(part, path):
            os.replace(part, path)
        _synced(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise InputError(
            f"Cannot write {path}: {error.strerror or error}; what was there before is untouched."
        ) from None
    finally:  # an interrupt leaves nothing either
        with contextlib.suppress(OSError):
            part.unlink()


def _beside(path: Path) -> Path:
    """A name that no other writer has."""
    return path.with_name(f".{path.name[:200]}.{secrets.token_hex(6)}.part")


def _linked(part: Path, path: Path) -> bool:
    """Whether ``part`` is ``path`` too by now, which replaces nothing; some file systems know no links."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:
        if path.exists():
            raise FileExistsError(path) from None
        return False
    return True


def _synced(folder: Path) -> None:
    """The new name is on disk too, where the system can say so."""
    with contextlib.suppress(OSError):
        held = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(held)
        finally:
            os.close(held)


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
    if kept["storage"] != mine["storage"]:
        raise InputError(
            f"{whose} keeps what clients remember as storage={kept['storage']!r}, and this one as "
            f"{mine['storage']!r}: a run goes on with the storage that it began with."
        )
    pairs: list[tuple[str, Any, Any]] = [
        (name, held[name], now[name]) for name in SAME if name != "parts"
    ]
    pairs += [(name, kept.get(name), mine.get(name)) for name in sorted({*kept, *mine})]
    for name, its, ours in pairs:
        if its != ours and not (name == "objective" and _near(its, ours)):
            raise InputError(
                f"{whose} belongs to another run: its {name} is {its!r}, this one's is {ours!r}."
            )


def _near(a: str, b: str) -> bool:
    """Devices and compilers may differ in the last digits."""
    one, two = ([float(number) for number in text.split()] for text in (a, b))
    return len(one) == len(two) and bool(np.allclose(one, two, 1e-5, 1e-6, equal_nan=True))


def read(path: Path, algorithm: Algorithm, problem: Problem, key: Key) -> Record:
    """The run that ``path`` holds, refused unless it is one of this algorithm, problem and key."""
    import chex

    try:
        with open(path, "rb") as content, np.load(content, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(arrays.pop("about").tobytes())
    except FileNotFoundError:
        raise InputError(f"There is no checkpoint {path} to resume from.") from None
    except Exception as error:
        raise InputError(
            f"{path} is not a checkpoint of a run ({error}): name another, or start anew."
        ) from None
    if about["format"] != FORMAT:
        raise InputError(
            f"{path} has checkpoint format {about['format']}, this version reads {FORMAT}."
        )
    same(str(path), about["settings"], settings(algorithm, problem, key))
    about["values"] = {name: _value(value) for name, value in about["values"].items()}
    facts = Facts(**{**about["facts"], "sizes": tuple(about["facts"]["sizes"])})
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
            f"{path} holds a state of another shape than {algorithm.name} has now: go on with the "
            "version that wrote it, or start a new run."
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
    if len(found) > 1 or any(names != named[-1] for names in named):
        raise InputError(
            f"{path} has totals for {len(about['counts'])} of {len(about['rounds'])} evaluations, or "
            "not all of them: an interrupt came while it was written, so start a new run."
        )


def _complete(about: dict[str, Any], algorithm: Algorithm, facts: Facts) -> None:
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
        if name not in found.values:
            raise InputError(
                f"The checkpoint has no {name}, which {algorithm.name} needs by now: start a new run."
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
