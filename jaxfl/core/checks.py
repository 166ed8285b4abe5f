"""Validators of types, options and arrays.  Host side."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import (
    TABLE,
    InputError,
    JaxflWarning,
    attempt,
    is_table,
    listed,
    require,
    shown,
)
from jaxfl.core.foreign import warn
from jaxfl.core.memory import check_fits
from jaxfl.core.meshes import automatic
from jaxfl.core.params import known, near, whole
from jaxfl.core.types import Key, Problem

__all__ = [
    "bind",
    "conforms",
    "counts",
    "finite",
    "gathered",
    "imported",
    "instance",
    "kind_of",
    "labels_below",
    "named_part",
    "numeric",
    "one_key",
    "one_path",
    "one_problem",
    "sortable",
    "spelt",
    "stacked",
    "stream",
    "untraced",
]

T = TypeVar("T")
P = ParamSpec("P")
Array = npt.NDArray[Any]
CLIENT = 32  # least bytes of a client in a run: its count, a sorted copy, its metrics
NAME = 255  # most bytes of a file's name
BLOCK = 1 << 24  # entries checked at once
BEGUN: dict[str, int] = {}  # the process in which JAX began


def kind_of(value: Any) -> str:
    """The dtype and shape of an array, or the value itself."""
    is_array = hasattr(value, "dtype") and hasattr(value, "shape")
    return f"{value.dtype}{list(value.shape)}" if is_array else shown(value)


# --- arguments -----------------------------------------------------------------------------------


def instance(name: str, value: Any, kind: type[T], remedy: str) -> T:
    """Return ``value``; raise unless it has this type."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise InputError(f"must be {article} {kind.__name__}", remedy, **{name: value})
    return value


def one_problem(value: Any) -> Problem:
    """Return ``value`` with its arrays on automatic axes; raise unless it is a problem."""
    way = "make one with jaxfl.Problem(model, data)"
    return automatic(instance("problem", value, Problem, way))


def gathered(*values: Any) -> None:
    """Warn of arrays that several devices hold: they are copied, and their copies are on one."""
    leaves = (leaf for leaf in jax.tree.leaves(values) if isinstance(leaf, jax.Array))
    devices = max((len(leaf.sharding.device_set) for leaf in leaves), default=1)
    if devices > 1:
        way = "divide the clients of the problem again with problem.shard(mesh, axis)"
        warn(JaxflWarning(f"Arrays of {devices} devices are copied to one", way))


def untraced(
    what: str, *values: Any, way: str = "", within: bool = True, compiles: bool = False
) -> None:
    """Raise for values that a transformation of JAX traces, and ``within`` one that traces all.

    What ``compiles`` also raises where JAX compiles nothing.

    Raises also in a process that was forked from one in which jaxfl had computed: it would hang.
    """
    BEGUN.setdefault("process", os.getpid())
    require(
        BEGUN["process"] == os.getpid(),
        "This process was forked after JAX had begun, and JAX hangs in it",
        "start it afresh, as with multiprocessing.get_context('spawn')",
    )
    require(
        not (compiles and jax.config.jax_disable_jit),  # type: ignore[attr-defined]
        lambda: f"{what} compiles its rounds, and jax.disable_jit is on",
        "take the rounds of jaxfl.functions there, one by one",
    )
    leaves = jax.tree.leaves(values, is_leaf=_once_only) + ([jnp.zeros(())] if within else [])
    require(
        not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves),
        lambda: (
            f"{what} needs values on the host, and jit, vmap, grad, scan or the like traces it here"
        ),
        way
        or "call jaxfl.functions there, whose rounds, key, eps, sigma, lr and other floats may be traced",
    )


def _once_only(value: Any) -> bool:
    """Whether it is an iterator or a view, such as an axis may be, which JAX would warn of."""
    return hasattr(value, "__next__") or isinstance(value, type({}.values()))


def one_key(key: Any, taker: str, several: str) -> Key:
    """Return ``key``; raise unless it is one typed key."""
    typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    require(typed, "must be a typed key", "make it with jax.random.key(seed)", key=key)
    require(
        key.shape == (),
        lambda: f"key has shape {key.shape}",
        lambda: f"{taker} takes one key, {several}",
    )
    require(
        "rbg" not in (kind := str(jax.random.key_impl(key))),
        lambda: f"The key is of the generator {kind}, whose draws are not independent under vmap",
        'make it with jax.random.key(seed, impl="threefry2x32")',
    )
    return key  # type: ignore[no-any-return]


def imported(package: str, extra: str, taker: str) -> Any:
    """A package that only ``taker`` needs."""
    try:
        return importlib.import_module(package)
    except ImportError:
        problem = f"{taker} needs the package {package.split('.')[0]}"
        raise InputError(problem, f'pip install "jaxfl[{extra}]"') from None


def one_path(name: str, value: Any) -> Path:
    """Return ``value`` as a path; raise unless it is one."""
    is_path = isinstance(value, str | os.PathLike) and "\0" not in os.fspath(value)
    is_path = is_path and all(len(os.fsencode(part)) <= NAME for part in Path(value).parts)
    require(is_path, "must be a path, as in 'results/run.nc'", **{name: value})
    return Path(value)


def bind(
    kind: str,
    name: str,
    entry: Callable[..., T],
    /,
    *args: Any,
    beside: Sequence[str] = (),
    **options: Any,
) -> T:
    """Return ``entry(*args, **options)``; raise for an unknown option.

    ``beside`` are options that the caller takes itself: the error names them, too.
    """
    parameters = inspect.signature(entry).parameters
    several = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    first = [n for n, p in parameters.items() if p.kind not in (p.KEYWORD_ONLY, several[1])]
    given = first[: len(args)]
    left = [p for n, p in parameters.items() if n not in given and p.kind not in several]
    names = [*(p.name for p in left), *beside]
    lost = [p.name for p in left if p.default is p.empty and p.name not in options]
    require(
        len(args) <= len(first) or any(p.kind is several[0] for p in parameters.values()),
        lambda: (
            f"{kind} {name!r} takes {' and '.join(first)} without a name, and {len(args)} values have none"
        ),
        lambda: f"name the others: {', '.join(names)}",
    )
    forwards = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    offer = f"its options are {', '.join(names)}" if names else "it takes no options"
    for option in options:
        require(
            option not in given,
            lambda: (
                f"{kind} {name!r} has {option!r} twice: {args[given.index(option)]!r}, without its name, "
                f"and {options[option]!r}"
            ),
            "give one of them",
        )
        hint = f"did you mean {near(option, names)!r}? " if near(option, names) else ""
        known_option = option in names or (forwards and not near(option, lost))
        require(known_option, lambda: f"{kind} {name!r} has no option {option!r}", hint + offer)
    return entry(*args, **options)


def spelt(kind: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make unknown arguments of a function a sentence that names the nearest, as :func:`bind` does."""

    def made(entry: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(entry)
        def call(*args: P.args, **options: P.kwargs) -> T:
            return bind(kind, entry.__name__, entry, *args, **options)  # type: ignore[arg-type]

        return call

    return made


def named_part(kind: str, name: Any, table: Mapping[str, Callable[..., T]], **options: Any) -> T:
    """The part of that name; raise for an unknown name or option, or for a hyper-parameter of runs."""
    make: Any = known(kind, name, table)
    later = options and {param.name for param in make().params} & {*options}
    for option in later or ():
        way = "give it where the part is used, as to simulate"
        require(False, lambda: f"is a hyper-parameter of {name}", way, **{option: options[option]})
    return bind(kind.capitalize(), name, make, **options)  # type: ignore[no-any-return]


def stream(seed: Any, purpose: str) -> np.random.Generator:
    """A generator of its own for each purpose, also with equal seeds."""
    number = whole("seed", seed, 0, np.inf)
    return np.random.default_rng([number, zlib.crc32(purpose.encode())])


def conforms(name: str, value: Any, kind: Any) -> None:
    """Raise a ``ValueError`` unless a JSON value is of this kind.

    A kind is a type or a union; ``[kind]`` stands for a list, ``{str: kind}`` for a table, and
    ``{"name": kind, "other?": kind}`` for a table with these entries, the last of which may be missing.
    """
    if isinstance(kind, list):
        conforms(name, value, list)
        for item in value:
            conforms(f"an item of {name}", item, kind[0])
    elif isinstance(kind, dict):
        conforms(name, value, dict)
        named = {field: kind[str] for field in value} if str in kind else kind
        for field, wanted in named.items():
            field, optional = field.rstrip("?"), field.endswith("?")
            if field in value:
                conforms(field, value[field], wanted)
            elif not optional:
                raise ValueError(f"{name} has no {field}")
    elif type(value) not in (get_args(kind) or (kind,)):  # True is no int
        words = getattr(kind, "__name__", str(kind))
        raise ValueError(f"{name} is {shown(value)}, and must be {words}")


# --- arrays --------------------------------------------------------------------------------------


def numeric(where: str, leaf: Any) -> Array:
    """``leaf`` as an array of numbers, its integers of 32 bits, as JAX computes."""
    try:
        array = np.asarray(leaf)
    except (TypeError, ValueError):
        array = np.asarray(None)
    require(
        not np.ma.is_masked(leaf),
        lambda: f"{where} hides some of its values behind a mask",
        "fill them in, or leave those rows out",
    )
    kind = array.dtype
    text = "; number names of classes from 0 on, as in numpy.searchsorted(sorted_names, labels)"
    require(
        kind.kind in "biuf" or jnp.issubdtype(kind, jnp.floating),
        lambda: f"{where} is no rectangular array of numbers, but has dtype {kind}",
        lambda: (
            f"pass NumPy arrays of booleans, integers or floats{text if kind.kind in 'UST' else ''}"
        ),
    )
    require(array.ndim, lambda: f"{where} is a single number", "pass arrays, not nested lists")
    if kind.kind not in "iu":
        return array
    limits = np.iinfo(np.int32)
    fits = not array.size or (array.min() >= limits.min and array.max() <= limits.max)
    require(
        fits, lambda: f"{where} has integers beyond 32 bits", "renumber them from 0, or use floats"
    )
    return array.astype(np.int32) if kind.itemsize == 8 else array


def finite(where: str, array: Array, given: Any = None, *, axes: int = 1) -> None:
    """Raise if ``array``, converted from ``given``, holds NaN or infinity, or 0 for all of a row.

    The first axis is that of rows; with ``axes=2`` the first two are those of clients and rows.
    """
    if array.dtype.kind in "biu" or not array.size:
        return
    given = None if given is None else np.asarray(given)
    step = max(1, BLOCK * len(array) // array.size)  # no copy of the whole, which may be large
    for start in range(0, len(array), step):
        block = np.isfinite(array[start : start + step])
        if block.all():
            if given is not None:
                _kept(where, array[start : start + step], given[start : start + step], start, axes)
            continue
        at = np.argwhere(~block)[0][:axes] + np.array([start, 0])[:axes]
        place = f"in row {at[0]}" if len(at) == 1 else f"at client {at[0]}, row {at[1]}"
        if given is not None and np.isfinite(given[tuple(at)]).all():
            most = f"{array.dtype} ({float(np.finfo(array.dtype).max):.2g})"
            way = "scale it, or replace what stands for a missing value"
            raise InputError(f"{where} exceeds {most} {place}", way)
        raise InputError(f"{where} is not finite {place}", "replace or drop NaN and infinity")


def _kept(where: str, array: Array, given: Array, start: int, axes: int) -> None:
    """Raise for rows (of one axis, for all of it) that are 0 only in the type of ``array``."""
    if given.dtype.itemsize <= array.dtype.itemsize or array.all():
        return
    inner = tuple(range(axes if array.ndim > axes else 0, array.ndim))
    gone = ~array.any(axis=inner) & given.any(axis=inner)
    if gone.any():
        at = np.argwhere(gone)[0] + [start, 0][: gone.ndim]
        place = (
            ""
            if not len(at)
            else f" in row {at[0]}"
            if len(at) == 1
            else f" at client {at[0]}, row {at[1]}"
        )
        least = f"{array.dtype} ({float(np.finfo(array.dtype).tiny):.2g})"
        raise InputError(f"{where} is smaller than {least}{place}", "scale it")


def sortable(*trees: Any) -> None:
    """Raise for pytrees with a dict whose keys JAX cannot sort, such as 1 and '1'."""
    with attempt("There is a dict with keys of several types", "make all of them text"):
        jax.tree.structure(trees)


def stacked(where: str, leaves: Sequence[Any]) -> tuple[int, int]:
    """The leading axes (n, m) of all leaves: m rows of each of n clients."""
    require(not any(map(is_table, leaves)), "The data are a DataFrame", TABLE)
    shapes = [np.shape(leaf) for leaf in leaves]
    alike = bool(shapes) and all(len(s) >= 2 and s[:2] == shapes[0][:2] for s in shapes)
    require(
        alike and 0 not in shapes[0][:2],
        lambda: (
            f"{where} must be arrays (clients, samples, ...) with common leading axes, none of them 0"
        ),
        lambda: f"their shapes are {shapes}",
    )
    n, m = shapes[0][:2]
    return n, m


def counts(count: Any, n: int, m: int) -> npt.NDArray[np.int32]:
    """The number of rows of each of n clients, at most m; None: m each."""
    check_fits(f"{n:,} clients", CLIENT * n, "take fewer")
    if count is None:
        return np.full(n, m, np.int32)
    try:
        owned = np.asarray(count)
    except ValueError:  # lists of different lengths
        owned = np.asarray(None)
    integers = owned.shape == (n,) and owned.dtype.kind in "iu"
    require(integers, lambda: f"must hold one integer for each of the {n} clients", count=count)
    require(
        owned.min() >= 1 and owned.max() <= m,
        lambda: f"must lie in 1..{m}, the number of rows",
        "leave out clients without data",
        count=count,
    )
    return owned.astype(np.int32)


def labels_below(where: str, labels: Array, classes: int, otherwise: str = "") -> None:
    """Raise unless labels are class numbers 0, ..., classes - 1, as integers or as floats.

    Padding is 0, a valid class number: the error never names it.
    """
    wrong = np.unique(labels[(labels < 0) | (labels >= classes) | (labels % 1 != 0)])
    way = "number the classes from 0 on"
    if wrong.tolist() == [-1] and classes == 2:
        way = "take (labels > 0).astype(int) for -1 and 1"
    elif wrong.tolist() == [classes]:
        way = f"take labels - 1 if they are 1 to {classes}"
    require(
        not wrong.size,
        lambda: (
            f"{where} hold {listed([f'{y:g}' for y in wrong], 3)}, and must be whole numbers in "
            f"0..{classes - 1}"
        ),
        way + otherwise,
        suggested={"classes": 0},
    )
