"""Record the inputs and outputs of flax layers whose gradients are products."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.types import Array, PyTree
from jaxfl.problems.layers import Back, Block, Call, Move, Tapped
from jaxfl.problems.parameters import Layout, paths

__all__ = ["linen_tapped", "nnx_tapped"]

Rows = Callable[[Array], Array]
Path = tuple[str, ...]


def linen_tapped(module: Any, params: Layout) -> Tapped:
    """A linen module that records the inputs of its layers, and replaces their outputs."""
    from flax import linen

    kinds = _kinds(linen.Dense, linen.Conv, linen.Embed)

    def apply(
        tree: PyTree, a: Array, taps: Mapping[str, Array], move: Move, calls: list[Call]
    ) -> tuple[Any, dict[str, Any]]:
        record = Recorder(params, tree, taps, move, calls)

        def intercept(f: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
            layer, kind = context.module, type(context.module)
            if kind is linen.RNN and context.method_name == "__call__":
                fixed = not layer.variable_axes and layer.variable_broadcast == "params"
                if not fixed:
                    return record.without(f, args, kwargs)
                return record.recurrent(layer, f, args, kwargs, start, *through(layer.cell))
            out = f(*args, **kwargs)
            describe = kinds.get(kind, {}).get(context.method_name)
            if describe is None or len(args) != 1 or kwargs:
                return out
            return record.call(describe, layer, tuple(map(str, layer.path)), args[0], out)

        def start(cell: Any, shape: tuple[int, ...], rngs: Any) -> Any:
            return cell.initialize_carry(jax.random.key(0), shape)

        def through(cell: Any) -> tuple[Path, Callable[..., Any]]:
            path = tuple(map(str, cell.path))
            alone, variables = cell.unbind()

            def step(carry: Any, a: Array) -> Any:
                own = record.root
                record.root = path
                try:
                    lstm = type(alone) in (linen.LSTMCell, linen.OptimizedLSTMCell)
                    if lstm and not alone.dtype and record.learned(path):
                        return _lstm(alone, variables["params"], record, carry, a)
                    return alone.apply(variables, carry, a)
                finally:
                    record.root = own

            return path, step

        with linen.intercept_methods(intercept):
            z = module.apply({"params": tree}, a)
        return z, record.notes

    return apply


def nnx_tapped(graph: Any, rest: Any, params: Layout) -> Tapped:
    """An nnx module likewise: each call copies it, with layers of a class that records."""
    from flax import nnx

    kinds = _kinds(nnx.Linear, nnx.Conv, nnx.Embed)

    def apply(
        tree: PyTree, a: Array, taps: Mapping[str, Array], move: Move, calls: list[Call]
    ) -> tuple[Any, dict[str, Any]]:
        record = Recorder(params, tree, taps, move, calls)
        model = nnx.merge(graph, tree, rest, copy=True)
        for path, layer in nnx.iter_graph(model):
            kind, names = type(layer), tuple(map(str, path))
            methods: dict[str, Any] = {
                name: recorded(record, getattr(kind, name), describe, names)
                for name, describe in kinds.get(kind, {}).items()
            }
            if kind is nnx.RNN:
                methods = {"__call__": recurrent(record, names)}
            if methods:
                layer.__class__ = type(kind.__name__, (kind,), methods)
        return model(a), record.notes

    def recorded(record: Recorder, f: Any, describe: Any, path: Path) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            out = f(self, *args, **kwargs)
            if len(args) != 1 or kwargs:
                return out
            return record.call(describe, self, path, args[0], out)

        return call

    def recurrent(record: Recorder, path: Path) -> Callable[..., Any]:
        def start(cell: Any, shape: tuple[int, ...], rngs: Any) -> Any:
            return cell.initialize_carry(shape, rngs)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            def f(*args: Any, **kwargs: Any) -> Any:
                return nnx.RNN.__call__(self, *args, **kwargs)

            return record.recurrent(self, f, args, kwargs, start, path, self.cell)

        return call

    return apply


# --- both kinds of modules -----------------------------------------------------------------------


class Recorder:
    """One application of a module: the outputs that it replaces, and the calls that it records."""

    def __init__(
        self,
        params: Layout,
        tree: PyTree,
        taps: Mapping[str, Array],
        move: Move,
        calls: list[Call],
    ) -> None:
        self.params, self.leaves = params, jax.tree.leaves(tree)
        self.where = {path: i for i, path in enumerate(paths(params))}  # the positions of leaves
        self.move, self.taps, self.calls = move, taps, calls
        self.notes: dict[str, Any] = {}
        self.times: Counter[str] = Counter()
        self.prefix = ""  # of the slots in a loop
        self.root: Path = ()  # of the module applied, in the whole one
        self.idle = False

    def slot(self, path: Path) -> str:
        """A name for this call of the layer at the path."""
        name = f"{self.prefix}{'/'.join(path)}"
        self.times[name] += 1
        return f"{name}#{self.times[name]}"

    def leaf(self, path: Path, name: str) -> tuple[int, tuple[int, ...]] | None:
        """Position and shape of a layer's parameter, if it is trained."""
        i = self.where.get((*self.root, *path, name))
        if i is None or self.params.frozen[i] is not None:
            return None
        return i, self.params.shapes[i]

    def learned(self, path: Path) -> bool:
        """Whether all parameters of a module are trained."""
        inside = (i for names, i in self.where.items() if names[: len(path)] == path)
        return all(self.params.frozen[i] is None for i in inside)

    def call(self, describe: Describe, layer: Any, path: Path, a: Array, out: Array) -> Array:
        """Return a layer's output, or its replacement; record the call if it is a product."""
        if self.idle:
            return out
        kernel = self.leaf(path, "embedding" if describe in (_embedding, _attention) else "kernel")
        bias = self.leaf(path, "bias")
        product = describe(layer, a, out, kernel[1]) if kernel else None
        if not kernel or not product or (bias and bias[1] != out.shape[-1:]):
            return self.moved(path, None, a, out)
        K, C = math.prod(kernel[1][:-1]), kernel[1][-1]
        blocks = [Block(kernel[0], slice(0, K), slice(0, C))]
        rows = product.rows
        if bias:
            blocks.append(Block(bias[0], slice(K, K + 1), slice(0, C)))
            rows = _with_ones(rows)
        if product.back is not None:
            weight = jax.lax.stop_gradient(self.leaves[kernel[0]])
            out = _carried(product.back, a, weight, jax.lax.stop_gradient(out))
        return self.moved(path, product._replace(rows=rows, blocks=tuple(blocks)), a, out)

    def moved(self, path: Path, call: Call | None, a: Array, out: Array) -> Array:
        slot = self.slot((*self.root, *path))
        if slot in self.taps:
            out, self.notes[slot] = self.move(a, out, self.taps[slot])
        elif call is not None and out.shape[0] == 1 and a.shape[0] == 1:
            self.calls.append(call._replace(slot=slot, out=tuple(out.shape)))
        return out

    def without(self, f: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """``f(*args, **kwargs)``, where nothing is recorded."""
        before, self.idle = self.idle, True
        try:
            return f(*args, **kwargs)
        finally:
            self.idle = before

    def recurrent(
        self,
        layer: Any,
        f: Callable[..., Any],
        args: Any,
        kwargs: Any,
        start: Callable[..., Any],
        path: Path,
        step: Callable[[Any, Array], Any],
    ) -> Any:
        """A call of flax's RNN, its steps recorded; ``f`` is its own, for options not known here."""
        given = {name: value for name, value in kwargs.items() if value is not None}
        carry, rngs = given.pop("initial_carry", None), getattr(layer, "rngs", None)
        rngs = given.pop("rngs", rngs)
        names = "return_carry", "reverse", "keep_order", "time_major"
        with_carry, reverse, keep, first = (given.pop(n, getattr(layer, n)) for n in names)
        if given or first or len(args) != 1 or self.idle:
            return self.without(f, args, kwargs)
        a, axis = args[0], args[0].ndim - layer.cell.num_feature_axes - 1
        if carry is None:
            carry = start(layer.cell, a.shape[:axis] + a.shape[axis + 1 :], rngs)
        a = jnp.moveaxis(a, axis, 0)
        carry, ys = self.loop(path, step, carry, a[::-1] if reverse else a)
        ys = jnp.moveaxis(ys[::-1] if reverse and keep else ys, 0, axis)
        return (carry, ys) if with_carry else ys

    def loop(self, path: Path, step: Callable[[Any, Array], Any], carry: Any, a: Array) -> Any:
        """``jax.lax.scan(step, carry, a)`` with a tap for each call and step."""
        prefix = f"{self.slot(path)}:"
        found: list[Call] = []
        mine = {slot: tap for slot, tap in self.taps.items() if slot.startswith(prefix)}

        def body(carry: Any, now: Any) -> Any:
            outer = self.prefix, self.taps, self.notes, self.times, self.calls
            notes: dict[str, Any] = {}
            found.clear()
            self.prefix, self.notes, self.times, self.calls = prefix, notes, Counter(), found
            try:
                now, self.taps = now
                carry, y = step(carry, now)
            finally:
                self.prefix, self.taps, self.notes, self.times, self.calls = outer
            return carry, (y, notes)

        carry, (ys, notes) = jax.lax.scan(body, carry, (a, mine))
        # the steps are rows of one batch
        self.notes |= jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), notes)
        self.calls.extend(call._replace(out=(len(a), *call.out)) for call in found)
        return carry, ys


Describe = Callable[[Any, Array, Array, tuple[int, ...]], "Call | None"]
"""(a layer, what enters, what comes out, the shape of its kernel) -> its product, if it is one."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _carried(back: Back, a: Array, weight: Array, out: Array) -> Array:
    """``out``, whose derivative in a is ``back``."""
    return out


def _carry(back: Back, a: Array, weight: Array, out: Array) -> tuple[Array, Any]:
    return out, (weight, jnp.zeros((), a.dtype))


def _return(back: Back, kept: Any, slope: Array) -> tuple[Array, Array, Array]:
    weight, one = kept
    entered = back(slope, weight.astype(slope.dtype)).astype(one.dtype)
    return entered, jnp.zeros_like(weight), jnp.zeros_like(slope)


_carried.defvjp(_carry, _return)


def _kinds(dense: Any, convolution: Any, embedding: Any) -> dict[Any, dict[str, Describe]]:
    """The methods of layers that are products."""
    return {
        dense: {"__call__": _dense},
        convolution: {"__call__": _convolution},
        embedding: {"__call__": _embedding, "attend": _attention},
    }


def _product(rows: Rows, **kind: Any) -> Call:
    return Call("", (), rows, (), **kind)


def _dense(layer: Any, a: Array, out: Array, shape: tuple[int, ...]) -> Call | None:
    return _product(_rows) if shape == (a.shape[-1], out.shape[-1]) else None


def _convolution(layer: Any, a: Array, out: Array, shape: tuple[int, ...]) -> Call | None:
    found = _unfolded(layer, a.shape)
    fits = shape == (*_size(layer), a.shape[-1], out.shape[-1])
    return _product(found[0], back=found[1]) if found is not None and fits else None


def _embedding(layer: Any, a: Array, out: Array, shape: tuple[int, ...]) -> Call | None:
    V = shape[0]
    known = V > 1 and shape[-1] == out.shape[-1]  # one row serves all tokens

    def tokens(a: Array) -> Array:
        return jnp.where(a < 0, a + V, a).reshape(-1)

    return _product(tokens, tokens=True) if known else None


def _attention(layer: Any, a: Array, out: Array, shape: tuple[int, ...]) -> Call | None:
    fits = shape == (out.shape[-1], a.shape[-1])
    return _product(_rows, transposed=True) if fits else None


def _lstm(cell: Any, tree: PyTree, record: Recorder, carry: Any, a: Array) -> Any:
    """A step of linen's LSTM cells, all gates and both inputs in one product."""
    c, h = carry
    C, H, gates = a.shape[-1], h.shape[-1], "ifgo"
    bias = jnp.concatenate([tree[f"h{gate}"]["bias"] for gate in gates])
    W, U = (jnp.concatenate([tree[k + gate]["kernel"] for gate in gates], 1) for k in "ih")
    u = jnp.concatenate([a, h], axis=-1)
    z = u @ jnp.concatenate([W, U]) + bias[None]
    blocks = []
    for gate, start in zip(gates, range(0, 4 * H, H), strict=True):
        leaves = ("i", "kernel", 0, C), ("h", "kernel", C, C + H), ("h", "bias", C + H, C + H + 1)
        for k, name, first, end in leaves:
            leaf = record.where[(*record.root, k + gate, name)]
            blocks.append(Block(leaf, slice(first, end), slice(start, start + H)))
    call = Call("", tuple(blocks), _with_ones(_rows), ())
    z = record.moved((), call, u, z)
    i, f, g, o = jnp.split(z, 4, axis=-1)
    c = cell.gate_fn(f) * c + cell.gate_fn(i) * cell.activation_fn(g)
    h = cell.gate_fn(o) * cell.activation_fn(c)
    return (c, h), h


def _with_ones(rows: Rows) -> Rows:
    """``rows`` with a last column for the bias."""

    def biased(a: Array) -> Array:
        u = rows(a)
        return jnp.concatenate([u, jnp.ones_like(u[:, :1])], axis=1)

    return biased


def _rows(a: Array) -> Array:
    return a.reshape(-1, a.shape[-1])


def _size(layer: Any) -> tuple[int, ...]:
    size = layer.kernel_size
    return (size,) if isinstance(size, int) else tuple(size)


def _unfolded(layer: Any, entered: tuple[int, ...]) -> tuple[Rows, Back] | None:
    """The patches of a convolution, in the order of its kernel, and the derivative in what enters; None:
    another kind of layer."""
    size = _size(layer)
    n = len(size)
    padding = layer.padding
    known = not isinstance(padding, str) or padding in ("SAME", "VALID")
    plain = layer.feature_group_count == 1 and layer.mask is None
    if n > 3 or len(entered) != n + 2 or not known or not plain:
        return None

    def every(value: Any) -> tuple[int, ...]:
        return (value or 1,) * n if value is None or isinstance(value, int) else tuple(value)

    # read here: a layer in the closure would keep its traced parameters, and could not go to workers
    given = layer.strides, layer.input_dilation, layer.kernel_dilation
    strides, spread, apart = map(every, given)
    reach = [(k - 1) * d for k, d in zip(size, apart, strict=True)]
    wide = [(m - 1) * d + 1 for m, d in zip(entered[1:-1], spread, strict=True)]
    if isinstance(padding, str):
        whole = [r + 1 for r in reach]
        pads = jax.lax.padtype_to_pads(wide, whole, strides, padding)
    else:
        each = [padding] * n if isinstance(padding, int) else list(padding)
        pads = [(p, p) if isinstance(p, int) else tuple(p) for p in each]
    ends = [m + sum(p) - r for m, p, r in zip(wide, pads, reach, strict=True)]
    letters = "DHW"[-n:]
    order = (f"N{letters}C", f"{letters}IO", f"N{letters}C")

    def unfold(a: Array) -> Array:
        borders = [(*p, d - 1) for p, d in zip(pads, spread, strict=True)]
        a = jax.lax.pad(a, jnp.zeros((), a.dtype), [(0, 0, 0), *borders, (0, 0, 0)])
        columns = []
        for offset in np.ndindex(*size):
            starts = [k * d for k, d in zip(offset, apart, strict=True)]
            cuts = [slice(s, s + e, t) for s, e, t in zip(starts, ends, strides, strict=True)]
            columns.append(a[:, *cuts])
        patches = jnp.concatenate(columns, -1)
        return patches.reshape(-1, patches.shape[-1])

    def back(slope: Array, weight: Array) -> Array:
        """As a convolution in the usual order: XLA is slow at others in loops on CPUs."""
        before = [r - p[0] for r, p in zip(reach, pads, strict=True)]
        steps = [(m - 1) * t + 1 for m, t in zip(slope.shape[1:-1], strides, strict=True)]
        after = [m + r - s - b for m, r, s, b in zip(wide, reach, steps, before, strict=True)]
        flipped = jnp.flip(weight, range(n)).swapaxes(n, n + 1)
        return jax.lax.conv_general_dilated(
            slope,
            flipped,
            spread,
            list(zip(before, after, strict=True)),
            lhs_dilation=strides,
            rhs_dilation=apart,
            dimension_numbers=order,
        )

    return unfold, back
