"""Dense and convolutional layers of flax modules: what enters them, and what they add to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxfl.core.products import EXACT
from jaxfl.core.types import Array, PyTree
from jaxfl.problems.layers import Call, Moves, Tapped
from jaxfl.problems.parameters import Layout

__all__ = ["linen_tapped", "nnx_tapped"]


def linen_tapped(module: Any, params: Layout) -> Tapped:
    """A linen module whose layers' inputs are seen and outputs moved."""
    from flax import linen

    where = _places(params)

    def apply(
        tree: PyTree, a: Array, moves: Moves, calls: list[Call]
    ) -> tuple[Any, dict[Any, Array]]:
        inputs: dict[Any, Array] = {}

        def tap(f: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
            out = f(*args, **kwargs)
            layer, kind = context.module, type(context.module)
            if context.method_name != "__call__" or kind not in (linen.Dense, linen.Conv) or kwargs:
                return out
            path, convolution = tuple(layer.path), kind is linen.Conv
            return tapped(layer, path, args, out, convolution, params, where, moves, inputs, calls)

        with linen.intercept_methods(tap):
            z = module.apply({"params": tree}, a)
        return z, inputs

    return apply


def nnx_tapped(graph: Any, rest: Any, params: Layout) -> Tapped:
    """An nnx module likewise: in the copy that one call makes, layers are of a class that tells."""
    from flax import nnx

    where = _places(params)

    def apply(
        tree: PyTree, a: Array, moves: Moves, calls: list[Call]
    ) -> tuple[Any, dict[Any, Array]]:
        inputs: dict[Any, Array] = {}
        model = nnx.merge(graph, tree, rest)
        for path, layer in nnx.iter_graph(model):
            if type(layer) in (nnx.Linear, nnx.Conv):
                _tell(layer, tuple(path), moves, inputs, calls)
        return model(a), inputs

    def _tell(layer: Any, path: Any, *notes: Any) -> None:
        kind = type(layer)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            out = kind.__call__(self, *args, **kwargs)
            if kwargs:
                return out
            return tapped(self, path, args, out, kind is nnx.Conv, params, where, *notes)

        layer.__class__ = type(kind.__name__, (kind,), {"__call__": call})

    return apply


# --- what both have ------------------------------------------------------------------------------


def tapped(
    layer: Any,
    path: tuple[Any, ...],
    args: tuple[Any, ...],
    out: Array,
    convolution: bool,
    params: Layout,
    where: dict[tuple[str, ...], int],
    moves: Moves,
    inputs: dict[Any, Array],
    calls: list[Call],
) -> Array:
    """The output, moved where that is asked for; the call is noted if its gradient is a product."""
    a, names = args[0], tuple(map(str, path))
    if path in moves:
        inputs[path] = a
        return moves[path](out)
    kernel, bias = where.get((*names, "kernel")), where.get((*names, "bias"))
    if kernel is None or len(args) != 1 or out.shape[0] != 1 or a.shape[0] != 1:
        return out
    held = params.shapes[kernel]
    if convolution:
        unfold = _patches(layer, a.ndim)
        fits = unfold is not None and held == (*_size(layer), a.shape[-1], out.shape[-1])
    else:
        unfold = _rows
        fits = held == (a.shape[-1], out.shape[-1])
    if fits and (bias is None or params.shapes[bias] == out.shape[-1:]):
        assert unfold is not None
        calls.append(Call(path, kernel, bias, unfold, tuple(out.shape)))
    return out


def _rows(a: Array) -> Array:
    return a.reshape(-1, a.shape[-1])


def _size(layer: Any) -> tuple[int, ...]:
    size = layer.kernel_size
    return (size,) if isinstance(size, int) else tuple(size)


def _patches(layer: Any, ndim: int) -> Callable[[Array], Array] | None:
    """What each position of a convolution sees, in the order of its kernel; None: another kind."""
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
