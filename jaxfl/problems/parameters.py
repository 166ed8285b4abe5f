"""Parameters as flat vectors ``(d,)``, which users see as pytrees; and initial points."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.errors import InputError, listed, require
from jaxfl.core.memory import check_fits
from jaxfl.core.types import Array, Key, Model, PyTree

__all__ = [
    "Init",
    "Layout",
    "Trainable",
    "by_leaf",
    "check_init",
    "frozen",
    "initializer",
    "layout",
    "paths",
    "raveled",
]

COPIES = 3  # of the parameters, at least: the point, a gradient and a message

Init: TypeAlias = str | Callable[[Key], PyTree] | None
Trainable: TypeAlias = Callable[[str], bool] | None


class Layout(NamedTuple):
    """The order of a parameter pytree's numbers in the flat vector, leaf by leaf and row by row.

    Frozen leaves have values of their own, and no place in the vector.  Unlike
    `jax.flatten_util.ravel_pytree` it does not fix the dtype: a float64 vector has float64 leaves.
    """

    dim: int
    treedef: Any
    shapes: tuple[tuple[int, ...], ...]  # of all leaves
    frozen: tuple[Any, ...]  # values of frozen leaves, None for those that are trained

    @property
    def trained(self) -> list[int]:
        return [i for i, value in enumerate(self.frozen) if value is None]

    @property
    def sizes(self) -> list[int]:
        """The sizes of the trained leaves."""
        return [math.prod(self.shapes[i]) for i in self.trained]

    def unravel(self, x: Array) -> PyTree:
        frozen = (v if v is None else jnp.asarray(v, x.dtype) for v in self.frozen)
        return self._filled(x, frozen)

    def partial(self, x: Array) -> PyTree:
        """The trained leaves, with None in the place of the others."""
        return self._filled(x, [None] * len(self.shapes))

    def _filled(self, x: Array, others: Iterable[Any]) -> PyTree:
        leaves, start = list(others), 0
        for i in self.trained:
            stop = start + math.prod(self.shapes[i])
            leaves[i] = x[start:stop].reshape(self.shapes[i])
            start = stop
        return jax.tree.unflatten(self.treedef, leaves)

    def flat(self, value: PyTree, what: str) -> Array:
        """A flat vector unchanged, or the user's own pytree as one; raises for anything else.

        Of a pytree with frozen leaves, the others are taken.
        """
        shapes = tuple(np.shape(leaf) for leaf in jax.tree.leaves(value))
        require(
            not any(map(jnp.iscomplexobj, jax.tree.leaves(value))), lambda: f"{what} is complex"
        )
        if shapes == ((self.dim,),):
            return jnp.asarray(jax.tree.leaves(value)[0])
        require(
            jax.tree.structure(value) == self.treedef and shapes == self.shapes,
            lambda: (
                f"{what} has arrays of shapes {list(shapes)[:4]}, and the model takes one vector "
                f"of {self.dim} numbers or its own pytree of parameters"
            ),
        )
        leaves = jax.tree.leaves(value)
        return raveled([leaves[i] for i in self.trained])


def by_leaf(model: Model, x: Array) -> PyTree:
    """The pytree of a model's trained parameters, as optimizers see it."""
    return (model.trained or model.unravel)(x)


def paths(params: Layout) -> list[tuple[str, ...]]:
    """The names that lead to every leaf."""
    tree = jax.tree.unflatten(params.treedef, range(len(params.shapes)))
    out = []
    for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]:
        keys = [jax.tree_util.keystr((key,), simple=True) for key in path]
        out.append(tuple(key for key in keys if key != "value"))
    return out


def frozen(
    params: Layout, trainable: Trainable, init: Init, draw: Callable[[Key], PyTree]
) -> Layout:
    """The layout without the leaves that ``trainable`` leaves out, which keep their values at key 0."""
    if trainable is None:
        return params
    way = "give a function of a leaf's path, such as lambda path: 'kernel' in path"
    require(callable(trainable), "is no function", way, trainable=trainable)
    leaves = ["/".join(path) for path in paths(params)]
    kept = [trainable(path) for path in leaves]
    for path, one in zip(leaves, kept, strict=True):
        yes, gave = isinstance(one, bool | np.bool_), f"returns {one!r} for {path!r}"
        require(yes, gave, "return True or False", trainable=trainable)
    way = f"return True for one of {listed([*map(repr, leaves)], 4)}"
    require(any(kept), "leaves nothing to learn", way, trainable=trainable)
    key = jax.random.key(0)
    whole = init(key) if callable(init) else draw(key)
    given = tuple(np.shape(leaf) for leaf in jax.tree.leaves(whole))
    wrong = (
        f"The initial point has arrays of shapes {list(given)[:4]}, and the "
        f"model with frozen parameters takes all of them: {list(params.shapes)[:4]}"
    )
    require(given == params.shapes, wrong)
    pairs = zip(kept, jax.tree.leaves(whole), strict=True)
    params = params._replace(frozen=tuple(None if keep else np.asarray(a) for keep, a in pairs))
    return params._replace(dim=sum(params.sizes))


def raveled(tree: PyTree) -> Array:
    """The flat vector of a pytree of parameters."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def layout(tree: PyTree) -> Layout:
    """The layout of a pytree of arrays or of their shapes."""
    leaves, treedef = jax.tree.flatten(tree)
    for leaf in leaves:
        dtype = leaf.dtype if hasattr(leaf, "dtype") else np.result_type(leaf)
        real = jnp.issubdtype(dtype, jnp.floating)
        require(real, "Parameters must be real numbers", lambda: f"one of them has dtype {dtype}")
    shapes = tuple(tuple(np.shape(leaf)) for leaf in leaves)
    dim = sum(math.prod(shape) for shape in shapes)
    require(dim != 0, "The model has no parameters", "give it at least one array to learn")
    check_fits(f"A model of {dim:,} parameters", COPIES * 4 * dim, "take a smaller one")
    return Layout(dim, treedef, shapes, (None,) * len(shapes))


def check_init(spec: Init) -> Init:
    """Return ``spec``; raise unless `initializer` takes it."""
    if isinstance(spec, str):
        _scale(spec)
    else:
        way = "a point of your own goes to Problem as x0"
        usable = spec is None or callable(spec)
        require(usable, "must be 'zeros', 'normal/5' or a function of a key", way, init=spec)
    return spec


def initializer(
    spec: Init, params: Layout, default: Callable[[Key], PyTree]
) -> Callable[[Key], Array]:
    """``key -> x`` in float32.

    ``spec`` is None for the model's default, ``"zeros"``, ``"normal"`` for N(0, 1) on every
    coordinate, ``"normal/5"`` for a fifth of it, or a function of a key that returns a flat vector
    or the pytree of parameters.
    """
    if isinstance(spec, str):
        scale = _scale(spec)
        if scale == 0:
            return lambda key: jnp.zeros(params.dim, jnp.float32)
        return lambda key: scale * jax.random.normal(key, (params.dim,), jnp.float32)
    draw = default if spec is None else spec

    def drawn(key: Key) -> Array:
        # Fused with the flat vector, the draws of several leaves take XLA minutes to compile on CPUs.
        leaves = jax.lax.optimization_barrier(draw(key))
        return params.flat(leaves, "The initial point").astype(jnp.float32)

    return drawn


def _scale(spec: str) -> float:
    if spec == "zeros":
        return 0.0
    match = re.fullmatch(r"normal(?:/(\d+(?:\.\d+)?))?", spec)
    if match is None or (match[1] and float(match[1]) == 0):
        raise InputError("must be 'zeros', 'normal' or 'normal/5'", init=spec)
    return 1 / float(match[1] or 1)
