"""Problems: a model and the data of n clients, checked once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from inspect import signature
from typing import Any, Never, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core import types
from jaxfl.core.calls import blamed, described, is_jaxfls, place
from jaxfl.core.checks import (
    counts,
    finite,
    gathered,
    instance,
    kind_of,
    numeric,
    sortable,
    stacked,
    untraced,
)
from jaxfl.core.errors import InputError, JaxflWarning, attempt, listed, require, within
from jaxfl.core.foreign import warn
from jaxfl.core.memory import check_fits
from jaxfl.core.params import choice, number, numbers, unknown, whole
from jaxfl.core.types import Array, Clients, GeneratedSamples, Key, Model, PyTree
from jaxfl.data.records import ClientData, float_type, owners, refuse_tuple
from jaxfl.data.samples import DRAWING, example, few, samples
from jaxfl.data.samples import numbers as numbers_of
from jaxfl.problems.facts import multiplications
from jaxfl.problems.parameters import by_leaf, layout

__all__ = ["SCALING", "Problem", "held_out", "unscaled"]

CHECKED = 1 << 24  # numbers whose sizes are checked together
SCALING = (
    "jaxfl.data.standardise(data, per_feature=True), or --data-option scale=true for LIBSVM files"
)
SCALED = 2.0  # root mean square of a feature: 1 if it is standardised, less within [-1, 1]
EVALUATION = 1 << 31  # multiplications of an evaluation, some hundredths of a second of two cores
LEAST, MOST = 512, (1 << 16) - 1  # records of a client that are evaluated, if not all
CUSTOM = "jaxfl.problems.custom"  # whose functions call the user's
TRIED = 1 << 24  # numbers in the samples of one client that are tried


class _Checked(type):
    """Every record of a problem, as transformations return it, is an instance of :class:`Problem`."""

    def __instancecheck__(cls, thing: Any) -> bool:
        return isinstance(thing, types.Problem)


class Problem(types.Problem, metaclass=_Checked):
    """A problem from a model and the data of clients, or a pytree of arrays (n, m, ...).

    ``model`` is one of `jaxfl.models`, and ``name`` appears in results.  Samples that are computed where
    they are needed (`jaxfl.data.generated`) are checked on three clients; large samples on the first few
    of each.

    ``x0`` is a flat vector or the model's own pytree of parameters, with None for frozen ones; without
    it every run draws its own from the model.  Real numbers become ``dtype``, integers int32.
    ``validation_share`` of the test examples, drawn once and for all, become validation data and leave
    the test set.
    Warns where features are unscaled, their root mean square above 2.

    The objective is ``f(x) = mean_i w_i f_i(x)``, f_i the mean loss of client i: with ``weights`` equal to
    1 by default, in proportion to the numbers of records for ``"samples"``, or to the positive numbers
    given, one for each client.  Weights scale the clients' messages and every metric.  They are public,
    as the numbers of records are: no guarantee covers them.

    Metrics on training data read ``eval_records`` records of each client, evenly spaced, or ``"all"``.
    By default they read all if an evaluation takes about 2e9 multiplications at most, and else as many
    as that allows, but at least 512.

    >>> import jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = Problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> problem.n, problem.m_max, problem.model.dim
    (5, 288, 650)
    """

    def __new__(
        cls,
        model: Model,
        data: Any,
        x0: PyTree | None = None,
        *,
        name: str | None = None,
        dtype: str = "float32",
        validation_share: float = 0.0,
        eval_records: int | str | None = None,
        weights: str | Any = "equal",
        **other: Never,
    ) -> Problem:
        for argument in other:
            raise InputError(
                unknown("argument of Problem named", argument, signature(_checked).parameters)
            )
        made = _checked(model, data, x0, name, dtype, validation_share, eval_records, weights)
        return cast(Problem, made)  # as the metaclass has it


def _checked(
    model: Model,
    data: Any,
    x0: PyTree | None,
    name: str | None,
    dtype: str,
    validation_share: float,
    eval_records: int | str | None,
    weights: str | Any,
) -> types.Problem:
    """The record of a problem, with its arrays copied and checked."""
    later = "make the problem before, and pass it to your program"
    sortable(data, x0)
    untraced("Problem", data, x0, way=later)
    gathered(data, x0)
    swapped = "the model comes first, as in Problem(model, data)"
    require(not isinstance(data, Model), "is a model, in the place of the data", swapped, data=data)
    by_name = "make one, such as jaxfl.models.softmax_regression(64, 10)"
    instance("model", model, Model, by_name)
    kind = _float_type(dtype)
    refuse_tuple(data)
    if not hasattr(data, "train"):  # plain arrays: every client has all the rows
        n, m = stacked("Data that are no ClientData", jax.tree.leaves(data))
        data = ClientData(data, np.full(n, m, np.int32))
    generated = isinstance(data.train, GeneratedSamples)
    sampled = _tried(data.train, np.atleast_1d(data.count)) if generated else data.train
    train = _arrays(sampled, kind, "The training set", 2)
    test = None if data.test is None else _arrays(data.test, kind, "The test set")
    n, m = stacked("The training data", jax.tree.leaves(train))
    n, m = (len(data.count), data.train.m) if generated else (n, m)
    count = counts(data.count, n, m)
    for leaf in jax.tree.leaves(train):
        if leaf.dtype.kind == "f":
            _sizes(leaf)
    structure: Any = jax.tree.structure(train)
    require(
        test is None or structure == jax.tree.structure(test),
        "Test and training data must be pytrees of the same structure",
    )
    if model.check is not None:
        names = [repr(name) for name in getattr(data, "class_names", ())]
        with within(f"The classes of these data are {listed(names)}" if names else ""):
            for examples in (train,) if test is None else (train, test):
                model.check(examples)
    _try_loss(model, train, kind)
    if x0 is not None:
        shapes = jax.eval_shape(partial(by_leaf, model), jax.ShapeDtypeStruct((model.dim,), kind))
        x0 = layout(shapes).flat(jax.tree.map(lambda leaf: numbers("x0", leaf), x0), "x0")
        require(jnp.all(jnp.isfinite(x0)), "has an entry that is not finite", x0=x0)
        x0 = x0.astype(kind)
    if kind != np.float32:
        model = model._replace(init=_in_dtype(model.init, kind))
    if generated:
        train = data.train
        if kind != np.float32:
            train = dataclasses.replace(train, make=_make_in_dtype(train.make, kind))
    owner = owners(getattr(data, "test_owner", None), test, n)
    # copies by now, so nothing is shared
    train, test, owner = jax.tree.map(jnp.asarray, (train, test, owner))
    name = getattr(data, "name", model.name) if name is None else instance("name", name, str, "")
    if not generated and (far := unscaled(sampled, np.atleast_1d(data.count), name)):
        warn(far)
    (validation, _), (test, owner) = _set_aside(test, owner, validation_share)
    clients = Clients(getattr(data, "client_names", ()), getattr(data, "partition", ""))
    held = [jax.tree.leaves(e)[0].shape[0] for e in (test, validation) if e is not None]
    each = multiplications(model, example(train))
    seen = _records(eval_records, generated, n, m, each, sum(held))
    w = _weights(weights, count, kind)
    return types.Problem(
        train, jnp.array(count), test, x0, model, name, validation, clients, seen, w, owner
    )


def held_out(problem: types.Problem, data: str) -> types.Problem:
    """The problem whose training data are one client with the ``"test"`` or ``"validation"`` examples.

    Metrics on it are functions of the model and of data that are not protected; those of each client
    are of its own test examples.  ``"train"`` is the problem itself.
    """
    choice("metrics_on", data, ("train", "test", "validation"))
    if data == "train":
        return problem
    examples = getattr(problem, data)
    wrong = f"needs {data} data, and {problem.name} has none"
    way = "make the problem with a test set, and for validation with {validation_share}"
    share = {"validation_share": None}
    require(examples is not None, wrong, way, suggested=share, metrics_on=data)
    size = jax.tree.leaves(examples)[0].shape[0]
    train = jax.tree.map(lambda a: a[None], examples)
    count = jnp.full(1, size, jnp.int32)
    return dataclasses.replace(
        problem, train=train, count=count, evaluated=None, weights=None, held=(data, problem.n)
    )


def _records(
    asked: int | str | None, generated: bool, n: int, m: int, each: float, held: int
) -> int | None:
    """The number of each client's records that metrics read besides ``held`` others; None: all.

    One record takes ``each`` multiplications.
    """
    if asked == "all" or (generated and asked is None):
        return None
    chosen = "cannot be chosen for generated samples"
    require(not generated, chosen, "leave it out", eval_records=asked)
    if asked is None:
        k = min(MOST, max(LEAST, (EVALUATION // int(each) - held) // (3 * n)))
    else:
        k = whole("eval_records", asked, 1, MOST)
    return k if k < m else None


def _weights(given: Any, count: np.ndarray[Any, Any], kind: Any) -> jax.Array | None:
    """The clients' weights with mean 1; None if all are equal."""
    if isinstance(given, str):
        choice("weights", given, ("equal", "samples"))
        given = count if given == "samples" else np.ones(1)
    w = numbers("weights", given)
    one = f"must be one positive number for each of the {len(count)} clients"
    way = "leave out clients that shall not count" if np.any(w == 0) else ""
    require(w.shape in ((1,), (len(count),)), one, weights=given)
    require(np.all(np.isfinite(w) & (w > 0)), one, way, weights=given)
    return None if np.all(w == w[0]) else jnp.asarray(w / w.mean(), kind)


def _set_aside(test: PyTree | None, owner: PyTree | None, share: float) -> tuple[PyTree, PyTree]:
    """Validation and test examples, each with their owners."""
    number("validation_share", share, least=0, below=1)
    if share == 0:
        return (None, None), (test, owner)
    require(test is not None, "needs test examples, and there are none", validation_share=share)
    N = jax.tree.leaves(test)[0].shape[0]
    chosen = round(share * N) if 0 < share < 1 else 0
    wrong = f"of {N} test examples leaves none on one side"
    require(0 < chosen < N, wrong, "take another share", validation_share=share)
    order = np.random.default_rng(0).permutation(N)
    parts = np.sort(order[:chosen]), np.sort(order[chosen:])
    validation, rest = (jax.tree.map(lambda a, rows=rows: a[rows], (test, owner)) for rows in parts)
    return validation, rest


def _float_type(dtype: str) -> np.dtype[Any]:
    kind = float_type(dtype)
    choice("dtype", kind.name, ("float32", "float64"))
    way = (
        "call jax.config.update('jax_enable_x64', True) first, or set JAX_ENABLE_X64=1 in the "
        "environment"
    )
    require(jax.dtypes.canonicalize_dtype(kind) == kind, "needs 64-bit JAX", way, dtype=dtype)
    return kind


def _arrays(tree: PyTree, kind: np.dtype[Any], who: str, axes: int = 1) -> PyTree:
    def convert(leaf: Any) -> Any:
        array = numeric(who, leaf)
        if array.dtype.kind in "biu":
            return array.astype(np.int32)
        with np.errstate(over="ignore"):
            out = array.astype(kind)
        finite(who, out, array, axes=axes)
        return out

    return jax.tree.map(convert, tree)


def _sizes(a: Any) -> None:
    """Raise for samples whose squared norms overflow or vanish."""
    limit = np.finfo(a.dtype)
    most, least = float(limit.max) ** 0.4, float(limit.tiny) ** 0.4
    clients = max(1, CHECKED // max(1, a[:1].size))
    for start in range(0, len(a), clients):
        block = np.abs(a[start : start + clients])
        size = block.reshape(*block.shape[:2], -1).max(axis=2, initial=0.0).astype(np.float64)
        bad = (size > most) | ((size > 0) & (size < least) & (a.ndim > 2))
        if np.any(bad):
            i, j = np.argwhere(bad)[0]
            raise InputError(
                f"Sample {j} of client {start + i} in the training set is of size {size[i, j]:.3g}, "
                f"and norms of gradients are sure from {least:.0e} to {most:.0e} alone",
                "rescale it, or replace what stands for a missing value",
            )


def _tried(train: GeneratedSamples, count: Any) -> PyTree:
    """Samples of the first, the middle and the last client: all, or as many as bounded memory holds.

    Padding repeats the last sample of a client.
    """
    n = len(count)
    some = np.array([[0], [n // 2], [n - 1]])
    with attempt("The samples of these data cannot be made"):  # by code of the user's own
        each, size = few(train, TRIED), numbers_of(train)
        what, copies = f"{len(some) * each} samples of {size:,} numbers", DRAWING * len(some)
        check_fits(what, 4 * copies * each * size, "make smaller ones")
        rows = np.minimum(np.arange(each), np.maximum(count[some], 1) - 1)
        return samples(train, jnp.asarray(some), jnp.asarray(rows))


def unscaled(train: PyTree, count: Any, name: str) -> JaxflWarning | None:
    """A warning of features, the first of several arrays, far from mean 0 and deviation 1."""
    pair = isinstance(train, tuple) and len(train) > 1
    features: Any = np.asarray(train[0]) if pair else np.zeros(0)
    if features.ndim != 3 or features.dtype.kind != "f":
        return None
    n, p = features.shape[0], features.shape[2]
    some = features[:, : max(1, CHECKED // (n * p))]
    owned = np.arange(some.shape[1]) < count[:, None]
    square = np.einsum("nmp,nm->p", np.square(some, dtype=np.float64), owned) / owned.sum()
    far = int((square > SCALED**2).sum())
    if not far:
        return None
    return JaxflWarning(
        f"{far} of {p} features of {name} are unscaled, with a root mean square of up to "
        f"{np.sqrt(square.max()):.3g}",
        f"standardise them with {SCALING}",
    )


def _try_loss(model: Model, train: PyTree, kind: np.dtype[Any]) -> None:
    """Evaluate the loss once, without values, for models that do not check their data."""
    loss = f"The loss of model {model.name!r}"
    x = jax.ShapeDtypeStruct((model.dim,), kind)
    labels = np.asarray(train[1]) if isinstance(train, tuple) and len(train) == 2 else np.zeros(0)
    classes = labels.dtype.kind == "f" and labels.ndim == 2 and not (labels % 1).any()
    way = "make integers of labels that are class numbers, as with classes=2 of jaxfl.data.from_clients"
    with blamed(f"{loss}, for one example of these data,", None, way=way * classes):
        value = jax.eval_shape(model.loss, x, example(train))
    number = getattr(value, "shape", None) == () and jnp.issubdtype(value.dtype, jnp.floating)
    require(number, lambda: f"{loss} returns {kind_of(value)}", "make it return one real number")

    key = jax.eval_shape(lambda: jax.random.key(0))
    _try(model, "init", (key,))
    _try(model, "project", (x,))
    _try(model, "regularizer", (x,))
    _try(model, "correct", (x, example))


def _try(model: Model, field: str, given: tuple[Any, ...]) -> None:
    """Raise unless a function of the user's returns a vector like x, or a real number."""
    f = getattr(model, field)
    if f is None or (is_jaxfls(f) and f.__module__ != CUSTOM):
        return
    what = f"The {field} of model {model.name!r}"
    with blamed(what, f):
        found = jax.eval_shape(f, *given)
    shape = () if field in ("regularizer", "correct") else (model.dim,)
    kinds = jnp.floating, *(jnp.integer, jnp.bool_) * (field == "correct")
    dtype = getattr(found, "dtype", np.dtype(object))
    fits = getattr(found, "shape", None) == shape and any(jnp.issubdtype(dtype, k) for k in kinds)
    if not fits or (field == "project" and dtype != given[0].dtype):
        kind = np.dtype(np.float32) if field == "init" else given[0].dtype
        wanted = described(jax.ShapeDtypeStruct(shape, kind))
        raise InputError(f"{what} returns {described(found)}", f"return {wanted}").at(place(f))


@lru_cache(maxsize=64)
def _make_in_dtype(make: Callable[..., PyTree], kind: np.dtype[Any]) -> Callable[..., PyTree]:
    def cast(a: Array) -> Array:
        return a.astype(kind) if jnp.issubdtype(a.dtype, jnp.floating) else a

    return lambda *at: jax.tree.map(cast, make(*at))


@lru_cache(maxsize=256)
def _in_dtype(init: Callable[[Key], Array], kind: np.dtype[Any]) -> Callable[[Key], Array]:
    return lambda key: init(key).astype(kind)
