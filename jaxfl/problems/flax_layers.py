"""The inputs and the outputs of dense and convolutional layers of flax modules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfl.core.products import EXACT
from jaxfl.core.types import Array, PyTree
from jaxfl.problems.layers import Call, Moves, Tapped
from jaxfl.problems.parameters import Layout

__all__ = ["linen_tapped", "nnx_tapped"]


def linen_tapped(module: Any, params: Layout) -> Tapped:
    """A linen module that records its layers' inputs and replaces their outputs."""
    from flax import linen

    where = _places(params)

    def apply(
        tree: PyTree, a: Array, moves: Moves, calls: list[Call]
    ) -> tuple[Any, dict[Any, Array]]:
        taps = Taps(params, where, moves, {}, calls)

        def tap(f: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
            out = f(*args, **kwargs)
            layer, kind = context.module, type(context.module)
            if context.method_name != "__call__" or kind not in (linen.Dense, linen.Conv) or kwargs:
                return out
            return tapped(layer, tuple(layer.path), args, out, kind is linen.Conv, taps)

        with linen.intercept_methods(tap):
            z = module.apply({"params": tree}, a)
        return z, taps.inputs

    return apply


def nnx_tapped(graph: Any, rest: Any, params: Layout) -> Tapped:
    """An nnx module likewise: each call copies it, with layers of a class that records."""
    from flax import nnx

    where = _places(params)

    def apply(
        tree: PyTree, a: Array, moves: Moves, calls: list[Call]
    ) -> tuple[Any, dict[Any, Array]]:
        taps = Taps(params, where, moves, {}, calls)
        model = nnx.merge(graph, tree, rest)
        for path, layer in nnx.iter_graph(model):
            if type(layer) in (nnx.Linear, nnx.Conv):
                record(layer, tuple(path), taps)
        return model(a), taps.inputs

    def record(layer: Any, path: Any, taps: Taps) -> None:
        kind = type(layer)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            out = kind.__call__(self, *args, **kwargs)
            if kwargs:
                return out
            return tapped(self, path, args, out, kind is nnx.Conv, taps)

        layer.__class__ = type(kind.__name__, (kind,), {"__call__": call})

    return apply


# --- both kinds of modules -----------------------------------------------------------------------


class Taps(NamedTuple):
    """One application of a module: what it replaces, and what it records."""

    params: Layout
    where: dict[tuple[str, ...], int]  # the position of every leaf of the parameters
    moves: Moves
    inputs: dict[Any, Array]  # of the layers moved
    calls: list[Call]


def tapped(
    layer: Any,
    path: tuple[Any, ...],
    args: tuple[Any, ...],
    out: Array,
    convolution: bool,
    taps: Taps,
) -> Array:
    """The output of a call, replaced by its move; records the call if its gradient is a product."""
    a, names, params = args[0], tuple(map(str, path)), taps.params
    if path in taps.moves:
        taps.inputs[path] = a
        return taps.moves[path](out)
    kernel, bias = taps.where.get((*names, "kernel")), taps.where.get((*names, "bias"))
    if kernel is None or len(args) != 1 or out.shape[0] != 1 or a.shape[0] != 1:
        return out
    shape = params.shapes[kernel]
    if convolution:
        unfold = _patches(layer, a.ndim)
        fits = unfold is not None and shape == (*_size(layer), a.shape[-1], out.shape[-1])
    else:
        unfold = _rows
        fits = shape == (a.shape[-1], out.shape[-1])
    if fits and (bias is None or params.shapes[bias] == out.shape[-1:]):
        assert unfold is not None
        taps.calls.append(Call(path, kernel, bias, unfold, tuple(out.shape)))
    return out


def _rows(a: Array) -> Array:
    return a.reshape(-1, a.shape[-1])


def _size(layer: Any) -> tuple[int, ...]:
    size = layer.kernel_size
    return (size,) if isinstance(size, int) else tuple(size)


def _patches(layer: Any, ndim: int) -> Callable[[Array], Array] | None:
    """The patches of a convolution, in the order of its kernel; None: another kind of layer."""
    size = _size(layer)
    n = len(size)
    padding = layer.padding
    known = padding in ("SAME", "VALID") if isinstance(padding, str) else True
    if ndim != n + 2 or not known or layer.feature_group_count != 1 or layer.mask is not None:
        return None
    if not isinstance(padding, str):
        each = [padding] * n if isinstance(padding, int) else list(padding)
        padding = [(p, p) if isinstance(p, int) else tuple(p) for p in each]
    letters = "DHW"[-n:] if n <= 3 else ""
    if not letters:
        return None

    def every(value: Any) -> tuple[int, ...]:
        return (value or 1,) * n if value is None or isinstance(value, int) else tuple(value)

    def unfold(a: Array) -> Array:
        patches = jax.lax.conv_general_dilated_patches(
            a,
            size,
            every(layer.strides),
            padding,
            lhs_dilation=every(layer.input_dilation),
            rhs_dilation=every(layer.kernel_dilation),
            dimension_numbers=(f"N{letters}C", f"{letters}IO", f"N{letters}C"),
            precision=EXACT,
        )
        columns = patches.reshape(-1, a.shape[-1], math.prod(size))  # channels first
        return jnp.swapaxes(columns, 1, 2).reshape(columns.shape[0], -1)

    return unfold


def _places(params: Layout) -> dict[tuple[str, ...], int]:
    """The position of every leaf by its names."""
    tree = jax.tree.unflatten(params.treedef, range(len(params.shapes)))
    out = {}
    for path, i in jax.tree_util.tree_flatten_with_path(tree)[0]:
        names = [str(getattr(key, "key", getattr(key, "name", key))) for key in path]
        out[tuple(name for name in names if name != "value")] = i
    return out
