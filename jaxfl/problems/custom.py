"""Models from a user's loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import jax
import numpy as np

from jaxfl.core.calls import blamed
from jaxfl.core.checks import finite, spelt
from jaxfl.core.errors import require
from jaxfl.core.params import nonnegative
from jaxfl.core.types import Array, Key, Model, PyTree
from jaxfl.problems import public
from jaxfl.problems.kernels import generic_kernel
from jaxfl.problems.parameters import Trainable, frozen, initializer, layout
from jaxfl.problems.public import Constraint, Regularizer

__all__ = ["custom"]


@spelt("Model")
def custom(
    init: PyTree | Callable[[Key], PyTree],
    loss: Callable[[PyTree, PyTree], Array],
    *,
    correct: Callable[[PyTree, PyTree], Array] | None = None,
    regularizer: str | Regularizer | None = None,
    constraint: str | Constraint | None = None,
    smoothness: float | None = None,
    trainable: Trainable = None,
    name: str = "custom",
) -> Model:
    """A model with any ``loss(params, example)`` over a pytree of arrays, clipped by ``vmap(grad)``.

    ``init`` is the initial pytree, or a function of a key that draws it; ``smoothness`` is L of every
    example's loss without the regularizer, if you know it.  ``correct(params, example)``, for the metric
    accuracy, is whether the prediction is right.  ``regularizer`` and ``constraint`` are those of
    :func:`logistic`, and ``name`` appears in results.

    ``trainable`` says by their paths which leaves are learned, as ``lambda path: path != "embedding"``.
    The others keep the values of ``init``, drawn with ``jax.random.key(0)`` if it is a function.
    """
    for what, f in {"loss": loss, "correct": correct or loss}.items():
        require(callable(f), "must be a function of (params, example)", **{what: f})
    if smoothness is not None:
        smoothness = nonnegative("smoothness", smoothness)
    reg, within = public.regularizer(regularizer), public.constraint(constraint)
    options = loss, correct, reg, within, smoothness, trainable, name
    if not (
        callable(init) and jax.tree_util.all_leaves([init])
    ):  # a module is a pytree, and callable
        start = jax.tree.map(np.array, init)
        layout(start)  # raises unless leaves are real numbers
        for leaf in jax.tree.leaves(start):
            finite("init", np.atleast_1d(leaf))
        return _custom.__wrapped__(lambda key: start, *options)
    try:
        hash((init, loss, correct, trainable))
    except TypeError:  # no hash to find it again by
        return _custom.__wrapped__(init, *options)
    return _custom(init, *options)


@lru_cache(maxsize=256)
def _custom(
    init: Callable[[Key], PyTree],
    loss: Callable[[PyTree, PyTree], Array],
    correct: Callable[[PyTree, PyTree], Array] | None,
    reg: Regularizer,
    within: Constraint,
    smoothness: float | None,
    trainable: Trainable,
    name: str,
) -> Model:
    key = jax.eval_shape(lambda: jax.random.key(0))
    with blamed(f"The init of model {name!r}", init):
        shapes = jax.eval_shape(init, key)
    params = layout(shapes)
    params = frozen(params, trainable, None, init)

    def flat_loss(x: Array, example: PyTree) -> Array:
        return loss(params.unravel(x), example)

    return Model(
        name=name,
        dim=params.dim,
        init=initializer(init, params, init),
        unravel=params.unravel,
        loss=flat_loss,
        regularizer=reg.value,
        kernel=generic_kernel(flat_loss, params.dim, params.sizes),
        correct=None if correct is None else lambda x, e: correct(params.unravel(x), e),
        project=within.project,
        smoothness=None if smoothness is None else lambda train, count: smoothness + reg.smoothness,
        diameter=within.diameter(params.dim),
        trained=None if trainable is None else params.partial,
    )
