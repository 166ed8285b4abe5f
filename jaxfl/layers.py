"""Per-example gradients of flax modules, layer by layer.

Where a dense or a convolutional layer is called once, the gradient of one example in its weights is
``sum_r u_r v_r'``: what enters the layer at position r (of a convolution, the patch that it sees,
"unfolded") times the loss derivative at its output there [Goodfellow, 2015, arXiv:1510.01799;
Rochette et al., 2019, arXiv:1912.06015].  A layer keeps the pairs (u, v), or the sum where that is
smaller; parameters of all other layers keep their gradients.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.kernels import dot, generic_kernel, rowwise
from jaxfl.parameters import Layout
from jaxfl.products import EXACT, crossed
from jaxfl.types import Array, Kernel, PyTree

__all__ = ["Call", "Factors", "Tapped", "layered_kernel"]

Tapped = Callable[[PyTree, Array, dict[Any, Array], "list[Call]"], tuple[Any, dict[Any, Array]]]
"""(parameters, a batch, what is added to layers' outputs, list to note calls in) -> outputs, inputs."""
ALIKE = 1e-3  # relative: float32 gradients by two ways
log = logging.getLogger("jaxfl")


class Call(NamedTuple):
    """One call of a layer whose gradients are products."""

    path: tuple[Any, ...]
    kernel: Any  # positions among the leaves of the parameters
    bias: Any
    unfold: Callable[[Array], Array]  # what enters (1, ...) -> (R, K)
    out: tuple[int, ...]  # shape of the output, (1, ..., C)


class Layer(NamedTuple):
    """A call, and how its gradient is kept."""

    call: Call
    inputs: int  # K, and 1 for a bias
    outputs: int
    positions: int

    @property
    def whole(self) -> bool:
        """Whether the sum over positions is smaller than what it is made of."""
        return self.inputs * self.outputs <= self.positions * (self.inputs + self.outputs)

    @property
    def width(self) -> int:
        if self.whole:
            return self.inputs * self.outputs
        return self.positions * (self.inputs + self.outputs)


class Factors(NamedTuple):
    """Leaves (b, ...): pairs (b, R, K) and (b, R, C) of some layers, and gradients (b, p)."""

    pairs: tuple[tuple[Array, Array], ...]
    whole: tuple[Array, ...]


def layered_kernel(
    tapped: Tapped,
    loss: Callable[[Any, PyTree], Array],
    params: Layout,
    shape: tuple[int, ...],
    flat_loss: Callable[[Array, PyTree], Array],
    name: str,
) -> Kernel:
    """The kernel of a module; that of :func:`generic_kernel` where no layer can be told.

    ``loss`` is of the outputs for a batch of one, ``flat_loss`` the model's own.
    """
    calls: list[Call] = []
    tree = params.unravel(jnp.zeros(params.dim))
    jax.eval_shape(lambda p, a: tapped(p, a, {}, calls)[0], tree, jnp.zeros((1, *shape)))
    paths = [call.path for call in calls]
    layers = [_layer(call, params) for call in calls if paths.count(call.path) == 1]
    kernel = _kernel(tapped, loss, params, layers)
    if not layers or not _agrees(kernel, flat_loss, params, shape):
        log.warning("%s: gradients of single examples take the slow way, vmap(grad).", name)
        return generic_kernel(flat_loss, params.dim)
    return kernel


def _layer(call: Call, params: Layout) -> Layer:
    outputs = call.out[-1]
    K = math.prod(params.shapes[call.kernel]) // outputs
    return Layer(call, K + (call.bias is not None), outputs, math.prod(call.out[:-1]))


def _kernel(
    tapped: Tapped,
    loss: Callable[[Any, PyTree], Array],
    params: Layout,
    layers: Sequence[Layer],
) -> Kernel:
    pairs = [layer for layer in layers if not layer.whole]
    sums = [layer for layer in layers if layer.whole]
    taken = {i for layer in layers for i in (layer.call.kernel, layer.call.bias)}
    rest = [i for i in range(len(params.shapes)) if i not in taken]

    def single(x: Array, example: PyTree) -> Factors:
        leaves = jax.tree.leaves(params.unravel(x))

        def value(taps: dict[Any, Array], free: list[Array]) -> tuple[Array, dict[Any, Array]]:
            mine = list(leaves)
            for i, leaf in zip(rest, free, strict=True):
                mine[i] = leaf
            tree = jax.tree.unflatten(params.treedef, mine)
            z, inputs = tapped(tree, example[0][None], taps, [])
            return loss(z, example), inputs

        taps = {layer.call.path: jnp.zeros(layer.call.out, x.dtype) for layer in layers}
        slopes, inputs = jax.grad(value, (0, 1), has_aux=True)(taps, [leaves[i] for i in rest])

        def pair(layer: Layer) -> tuple[Array, Array]:
            # Norms of inputs in bfloat16 would be in it too, and a clipped one exceed G.
            u = layer.call.unfold(inputs[layer.call.path]).astype(x.dtype)
            if layer.call.bias is not None:
                u = jnp.concatenate([u, jnp.ones_like(u[:, :1])], axis=1)
            return u, slopes[0][layer.call.path].reshape(-1, layer.outputs)

        added = [jnp.matmul(u.T, v, precision=EXACT).reshape(-1) for u, v in map(pair, sums)]
        return Factors(tuple(map(pair, pairs)), (*added, *(g.reshape(-1) for g in slopes[1])))

    def factors(x: Array, batch: PyTree) -> Factors:
        found: Factors = jax.vmap(single, (None, 0))(x, batch)
        return found

    def inner(F: Factors, H: Factors, batch: PyTree) -> Array:
        total = sum((dot(g, h) for g, h in zip(F.whole, H.whole, strict=True)), jnp.float32(0))
        for (u, v), (s, t) in zip(F.pairs, H.pairs, strict=True):
            across = jnp.einsum("brk,bqk->brq", u, s, precision=EXACT)
            total = total + jnp.sum(
                across * jnp.einsum("brk,bqk->brq", v, t, precision=EXACT), axis=(1, 2)
            )
        return total

    def scale(c: Array | float, F: Factors) -> Factors:
        return Factors(
            tuple((u, rowwise(c, v)) for u, v in F.pairs), tuple(rowwise(c, g) for g in F.whole)
        )

    def combine(coefs: Sequence[Array | float], points: Sequence[Factors]) -> Factors:
        # As in dense layers: sum_p u_p v_p' = u_1 (sum_p v_p)' + sum_{p>1} (u_p - u_1) v_p'
        first, *others = [scale(c, F) for c, F in zip(coefs, points, strict=True)]
        if not others:
            return first
        out = []
        for l, (u, v) in enumerate(first.pairs):
            more = [F.pairs[l] for F in others]
            n = u.shape[1]
            if any(u_p.shape[1] != n for u_p, _ in more):  # already sums themselves
                us, vs = [u, *(u_p for u_p, _ in more)], [v, *(v_p for _, v_p in more)]
            else:
                us = [u, *(u_p - u for u_p, _ in more)]
                vs = [sum((v_p for _, v_p in more), v), *(v_p for _, v_p in more)]
            out.append((jnp.concatenate(us, axis=1), jnp.concatenate(vs, axis=1)))
        whole = [sum(g[1:], g[0]) for g in zip(*(F.whole for F in (first, *others)), strict=True)]
        return Factors(tuple(out), tuple(whole))

    def contract(w: Array, F: Factors, batch: PyTree) -> Array:
        leaves: list[Array] = [w] * len(params.shapes)

        def put(layer: Layer, M: Array) -> None:
            M = M.reshape(layer.inputs, layer.outputs)
            call = layer.call
            if call.bias is not None:
                leaves[call.bias] = M[-1]
                M = M[:-1]
            leaves[call.kernel] = M

        for layer, (u, v) in zip(pairs, F.pairs, strict=True):
            v = rowwise(w, v).reshape(-1, v.shape[-1])
            put(layer, crossed(v, u.reshape(-1, u.shape[-1])))
        added = [jnp.matmul(w, g, precision=EXACT) for g in F.whole]
        for layer, M in zip(sums, added, strict=False):
            put(layer, M)
        for i, g in zip(rest, added[len(sums) :], strict=True):
            leaves[i] = g
        return jnp.concatenate([leaf.reshape(-1) for leaf in leaves])

    width = sum(layer.width for layer in layers) + sum(math.prod(params.shapes[i]) for i in rest)
    return Kernel(factors, inner, scale, combine, contract, width)


def _agrees(
    kernel: Kernel,
    flat_loss: Callable[[Array, PyTree], Array],
    params: Layout,
    shape: tuple[int, ...],
) -> bool:
    """Whether the layers' gradients are the gradient: not so where weights are used twice."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=params.dim) / 3, jnp.float32)
    batch = jnp.asarray(rng.normal(size=(1, *shape)), jnp.float32), jnp.zeros(1, jnp.int32)
    example = jax.tree.map(lambda a: a[0], batch)

    @jax.jit
    def both(x: Array) -> tuple[Array, Array, Array]:
        F = kernel.factors(x, batch)
        g = jax.grad(flat_loss)(x, example)
        return g, kernel.contract(jnp.ones(1), F, batch), kernel.inner(F, F, batch)[0]

    try:
        g, mine, square = map(np.asarray, both(x))
    except (TypeError, ValueError):
        return False
    norm = np.linalg.norm(g)
    near = np.linalg.norm(g - mine) <= ALIKE * norm
    return bool(near and abs(square - norm**2) <= ALIKE * norm**2)
