"""A model and the data of n clients, checked once: everything later trusts them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.checks import shown
from jaxfl.errors import InputError, said
from jaxfl.parameters import layout
from jaxfl.samples import few, samples
from jaxfl.types import Array, Key, Made, Model, Problem, PyTree

__all__ = ["make_problem"]

CHECKED = 1 << 24  # numbers whose sizes are looked at together
TRIED = 1 << 24  # numbers of one client whose samples are tried out


def make_problem(
    model: Model,
    data: Any,
    x0: PyTree | None = None,
    *,
    name: str | None = None,
    dtype: str = "float32",
    validation_share: float = 0.0,
) -> Problem:
    """A problem from a model and `jaxfl.data.ClientData`, or a pytree of arrays (n, m, ...).

    Samples that are made where they are needed (`jaxfl.data.generated`) are tried out on three
    clients; of large samples, on the first few of each.

    ``x0`` is a flat vector or the model's own pytree of parameters; without it every run draws its
    own from the model.  Real numbers become ``dtype``, integers int32.  ``validation_share`` of the
    test examples, drawn once and for all, are set aside for choosing settings and test no more.

    >>> import jaxfl
    >>> data = jaxfl.data.split("digits", clients=5)
    >>> problem = make_problem(jaxfl.models.softmax_regression(64, 10), data)
    >>> problem.n, problem.m_max, problem.model.dim
    (5, 288, 650)
    """
    if not isinstance(model, Model):
        raise InputError(
            f"model = {shown(model)} has to be a model, as jaxfl.models.logistic(5), and data come "
            "after it."
        )
    kind = _float_type(dtype)
    if not hasattr(data, "train"):
        data = _Full(data)
    made = isinstance(data.train, Made)
    tried = _tried(data.train, np.atleast_1d(data.count)) if made else data.train
    train = _arrays(tried, kind, "training data")
    test = None if data.test is None else _arrays(data.test, kind, "test data")
    count = _counts(train, data.count, (len(data.count), data.train.m) if made else None)
    for leaf in jax.tree.leaves(train):
        if leaf.dtype.kind == "f":
            _sizes(leaf)
    structures: list[Any] = [jax.tree.structure(tree) for tree in (train, test)]
    if test is not None and structures[0] != structures[1]:
        raise InputError("Test and training data must be pytrees of the same structure.")
    for examples in (train,) if test is None else (train, test):
        if model.check is not None:
            model.check(examples)
    _try_loss(model, train, kind)
    if x0 is not None:
        x0 = layout(_shapes(model, kind)).flat(x0, "x0")
        if not bool(jnp.all(jnp.isfinite(x0))):
            raise InputError("x0 has an entry that is not finite.")
        x0 = x0.astype(kind)
    if kind != np.float32:
        model = model._replace(init=_in_dtype(model.init, kind))
    if made:
        train = data.train
        if kind != np.float32:
            train = dataclasses.replace(train, make=_made_in(train.make, kind))
    train, test = jax.tree.map(jnp.asarray, (train, test))  # copies by now, so nothing is shared
    name = str(name or getattr(data, "name", model.name))
    validation, test = _set_aside(test, validation_share)
    return Problem(train, jnp.array(count), test, x0, model, name, validation)


def _set_aside(test: PyTree | None, share: float) -> tuple[PyTree | None, PyTree | None]:
    """Validation and test examples."""
    if not isinstance(share, int | float | np.number) or isinstance(share, bool):
        raise InputError(f"validation_share = {shown(share)} has to be a number between 0 and 1.")
    if share == 0:
        return None, test
    if test is None:
        raise InputError(f"validation_share = {share!r} needs test examples, and there are none.")
    N = jax.tree.leaves(test)[0].shape[0]
    chosen = round(share * N) if 0 < share < 1 else 0
    if not 0 < chosen < N:
        raise InputError(
            f"validation_share = {share!r} of {N} test examples leaves none on one side: it has to lie "
            "between 0 and 1."
        )
    order = np.random.default_rng(0).permutation(N)
    parts = np.sort(order[:chosen]), np.sort(order[chosen:])
    validation, rest = (jax.tree.map(lambda a, rows=rows: a[rows], test) for rows in parts)
    return validation, rest


class _Full:
    """Plain arrays: every client has all the rows."""

    def __init__(self, train: PyTree):
        leaves = jax.tree.leaves(train)
        if not leaves or np.ndim(leaves[0]) < 2:
            raise InputError("Data must be ClientData, or arrays of shape (clients, samples, ...).")
        n, m = np.shape(leaves[0])[:2]
        self.train, self.test, self.count, self.name = train, None, np.full(n, m), "data"


def _float_type(dtype: str) -> np.dtype[Any]:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(object)
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise InputError(f"dtype must be 'float32' or 'float64', not {shown(dtype)}.")
    if kind == np.float64 and jax.dtypes.canonicalize_dtype(kind) != kind:
        raise InputError(
            "dtype='float64' needs 64-bit JAX: call jax.config.update('jax_enable_x64', True) "
            "first, or set JAX_ENABLE_X64=1 in the environment."
        )
    return kind


def _arrays(tree: PyTree, kind: np.dtype[Any], what: str) -> PyTree:
    def convert(leaf: Any) -> Any:
        a = np.asarray(leaf)
        if a.dtype.kind in "biu":
            if a.size and (a.min() < -(2**31) or a.max() >= 2**31):
                raise InputError(f"The {what} hold integers beyond 32 bits: renumber them from 0.")
            return a.astype(np.int32)
        if not jnp.issubdtype(a.dtype, jnp.floating):
            raise InputError(f"The {what} hold values of dtype {a.dtype}: convert them to numbers.")
        if not all(np.isfinite(rows).all() for rows in a):
            raise InputError(f"The {what} hold NaN or infinite values: remove or impute them.")
        with np.errstate(over="ignore"):
            out = a.astype(kind)
        if out.itemsize < a.itemsize and not all(np.isfinite(rows).all() for rows in out):
            raise InputError(
                f"The {what} hold a value that exceeds {kind} ({np.finfo(kind).max:.2g}): scale it "
                "first, or replace what stands for a missing value."
            )
        return out

    return jax.tree.map(convert, tree)


def _sizes(a: Any) -> None:
    """Refuse what a clipped norm cannot be computed of: squares that overflow, or vanish."""
    limit = np.finfo(a.dtype)
    most, least = float(limit.max) ** 0.4, float(limit.tiny) ** 0.45
    clients = max(1, CHECKED // max(1, a[:1].size))
    for start in range(0, len(a), clients):
        block = np.abs(a[start : start + clients])
        each = block.reshape(block.shape[0] * block.shape[1], -1)
        size = each.max(axis=1, initial=0.0).astype(np.float64)
        bad = (size > most) | ((size > 0) & (size < least) & (a.ndim > 2))
        if np.any(bad):
            raise InputError(
                f"The training data hold a sample of size {float(size[bad][0]):.3g}, and norms of "
                f"gradients are sure from {least:.0e} to {most:.0e} alone: rescale it, or replace what "
                "stands for a missing value."
            )


def _tried(train: Made, count: Any) -> PyTree:
    """Samples of the first, the middle and the last client: all, or as many as bounded memory holds;
    the last of each in its padding."""
    n = len(count)
    some = np.array([[0], [n // 2], [n - 1]])
    try:
        rows = np.minimum(np.arange(few(train, TRIED)), np.maximum(count[some], 1) - 1)
        return samples(train, jnp.asarray(some), jnp.asarray(rows))
    except Exception as error:  # the code is the user's, and may raise anything
        raise InputError(f"The samples of these data cannot be made: {said(error)}.") from error


def _counts(train: PyTree, count: Any, shape: tuple[int, int] | None = None) -> Any:
    leaves = jax.tree.leaves(train)
    if not leaves or any(leaf.ndim < 2 or leaf.shape[:2] != leaves[0].shape[:2] for leaf in leaves):
        raise InputError(
            f"Training arrays must all be (clients, samples, ...), not {[a.shape for a in leaves]}."
        )
    n, m_max = shape or leaves[0].shape[:2]
    count = np.asarray(count)
    if count.shape != (n,) or count.dtype.kind not in "iu" or n == 0:
        raise InputError(f"count must hold one integer for each of the {n} clients.")
    if count.min() < 1 or count.max() > m_max:
        raise InputError(
            f"Clients hold {count.min()} to {count.max()} samples in {m_max} rows: each needs at "
            "least one, and no more than there are rows."
        )
    return count.astype(np.int32)


def _shapes(model: Model, kind: np.dtype[Any]) -> PyTree:
    return jax.eval_shape(model.unravel, _struct((model.dim,), kind))


def _struct(shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def _try_loss(model: Model, train: PyTree, kind: np.dtype[Any]) -> None:
    """One abstract evaluation, for models that cannot tell what data they take."""
    example = jax.tree.map(lambda a: _struct(a.shape[2:], a.dtype), train)
    try:
        value = jax.eval_shape(model.loss, _struct((model.dim,), kind), example)
    except Exception as error:  # the code is the user's, and may raise anything
        raise InputError(
            f"The loss of model {model.name!r} fails on one example of these data: {said(error)}."
        ) from error
    if getattr(value, "shape", None) != ():
        raise InputError(f"The loss of model {model.name!r} must return a single number.")
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise InputError(
            f"The loss of model {model.name!r} returns a number of dtype {value.dtype}, which has no "
            "gradient: make it a float."
        )


@lru_cache(maxsize=64)
def _made_in(make: Callable[..., PyTree], kind: np.dtype[Any]) -> Callable[..., PyTree]:
    def cast(a: Array) -> Array:
        return a.astype(kind) if jnp.issubdtype(a.dtype, jnp.floating) else a

    return lambda *at: jax.tree.map(cast, make(*at))


@lru_cache(maxsize=256)
def _in_dtype(init: Callable[[Key], Array], kind: np.dtype[Any]) -> Callable[[Key], Array]:
    return lambda key: init(key).astype(kind)
