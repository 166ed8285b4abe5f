"""Per-example gradients of flax modules, layer by layer.

Where a dense or a convolutional layer is called once, the gradient of one example in its weights is
``sum_r u_r v_r'``: the input at position r (of a convolution, the unfolded patch) times the loss
derivative at the output there [Goodfellow, 2015, arXiv:1510.01799; Rochette et al., 2019,
arXiv:1912.06015].  A layer keeps the pairs (u, v), or the sum where that is smaller; parameters of all
other layers keep their gradients.

This is the whole gradient if the layer's output is that product and its weights enter the loss only
through it.  The traced program of the loss shows whether they do: with the outputs of these layers
replaced, the loss uses none of their weights.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.products import EXACT, crossed
from jaxfl.core.types import Array, Kernel, Key, PyTree
from jaxfl.problems.kernels import dot, generic_kernel, rowwise
from jaxfl.problems.parameters import Layout

__all__ = ["Call", "Factors", "Module", "Moves", "Tapped", "layered_kernel"]

Moves = Mapping[Any, Callable[[Array], Array]]
"""Functions that replace a layer's output, by the layer's path."""
Tapped = Callable[[PyTree, Array, Moves, "list[Call]"], tuple[Any, dict[Any, Array]]]
"""(parameters, a batch, moves, list to note calls in) -> outputs, inputs of the layers moved."""
ALIKE = 1e-3  # relative: float32 gradients by two ways
TRIED = 4  # points at which gradients are compared, and examples at each
log = logging.getLogger("jaxfl")


class Call(NamedTuple):
    """One call of a layer whose gradients are products."""

    path: tuple[Any, ...]
    kernel: Any  # positions among the leaves of the parameters
    bias: Any
    unfold: Callable[[Array], Array]  # what enters (1, ...) -> (R, K)
    out: tuple[int, ...]  # shape of the output, (1, ..., C)


class Layer(NamedTuple):
    """A call, and the sizes of its gradient."""

    call: Call
    inputs: int  # K, and 1 for a bias
    outputs: int
    positions: int

    @property
    def whole(self) -> bool:
        """Whether the sum over positions is smaller than its factors."""
        return self.inputs * self.outputs <= self.positions * (self.inputs + self.outputs)

    @property
    def width(self) -> int:
        """Numbers that one example's gradient takes."""
        return min(self.inputs * self.outputs, self.positions * (self.inputs + self.outputs))


class Module(NamedTuple):
    """A flax module with a loss, as a function of its parameters."""

    tapped: Tapped
    loss: Callable[[Any, PyTree], Array]  # of the outputs for a batch of one example
    params: Layout
    sample: jax.ShapeDtypeStruct
    flat_loss: Callable[[Array, PyTree], Array]  # the model's own
    name: str


class Factors(NamedTuple):
    """Gradients of b examples: pairs (b, R, K) and (b, R, C) of some layers, (b, p) of the others."""

    pairs: tuple[tuple[Array, Array], ...]
    whole: tuple[Array, ...]


def layered_kernel(module: Module) -> Kernel:
    """The kernel of a module; :func:`generic_kernel` where no layer's gradients are products."""
    calls: list[Call] = []
    params, sample = module.params, module.sample
    tree = params.unravel(jnp.zeros(params.dim))
    batch = jnp.zeros((1, *sample.shape), sample.dtype)
    jax.eval_shape(lambda p, a: module.tapped(p, a, {}, calls)[0], tree, batch)
    paths = [call.path for call in calls]
    layers = [_layer(call, params) for call in calls if paths.count(call.path) == 1]
    kernel = _kernel(module, layers)
    try:
        usable = bool(layers) and _alone(module, layers) and _products(module, layers)
        usable = usable and _agrees(module, kernel)
    except Exception:  # in the user's own code; make_problem reports what is wrong
        usable = False
    if not usable:
        log.warning("%s: per-example gradients use the slow vmap(grad).", module.name)
        return generic_kernel(module.flat_loss, params.dim)
    return kernel


def _layer(call: Call, params: Layout) -> Layer:
    outputs = call.out[-1]
    K = math.prod(params.shapes[call.kernel]) // outputs
    return Layer(call, K + (call.bias is not None), outputs, math.prod(call.out[:-1]))


def _kernel(module: Module, layers: Sequence[Layer]) -> Kernel:
    params = module.params
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
            moves = {path: partial(jnp.add, tap) for path, tap in taps.items()}
            z, inputs = module.tapped(tree, example[0][None], moves, [])
            return module.loss(z, example), inputs

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
        F: Factors = jax.vmap(single, (None, 0))(x, batch)
        return F

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


def _alone(module: Module, layers: Sequence[Layer]) -> bool:
    """Whether weights of layers enter their own outputs, once, and nothing else."""
    moved: list[Any] = []
    params = module.params

    def cut(leaves: list[Array], example: PyTree) -> Any:
        def move(call: Call, out: Array) -> Array:
            moved.append(call.path)
            return jnp.zeros(call.out, leaves[0].dtype)

        moves = {layer.call.path: partial(move, layer.call) for layer in layers}
        tree = jax.tree.unflatten(params.treedef, leaves)
        z, inputs = module.tapped(tree, example[0][None], moves, [])
        return module.loss(z, example), list(
            inputs.values()
        )  # a layer's input may hold others' weights

    leaves = [jnp.zeros(shape) for shape in params.shapes]
    program = jax.make_jaxpr(cut)(leaves, (module.sample, jnp.int32(0))).jaxpr
    needed = set(map(id, program.outvars))
    for step in reversed(program.eqns):
        if any(id(v) in needed for v in step.outvars):
            needed.update(map(id, step.invars))  # of an inner program all inputs: at worst too many
    calls = [layer.call for layer in layers]
    weights = [i for call in calls for i in (call.kernel, call.bias) if i is not None]
    return len(moved) == len(layers) and not any(id(program.invars[i]) in needed for i in weights)


def _products(module: Module, layers: Sequence[Layer]) -> bool:
    """Whether layers' outputs are products with the parameters, and not with functions of them."""
    params = module.params

    def outputs(x: Array, a: Array, key: Key) -> list[tuple[Array, Array]]:
        outs: dict[Any, Array] = {}

        def move(call: Call, out: Array) -> Array:
            outs[call.path] = out
            return jax.random.normal(jax.random.fold_in(key, len(outs)), call.out)

        moves = {layer.call.path: partial(move, layer.call) for layer in layers}
        _, inputs = module.tapped(params.unravel(x), a[None], moves, [])
        leaves, pairs = jax.tree.leaves(params.unravel(x)), []
        for call, _, C, _ in layers:
            u = call.unfold(inputs[call.path]).astype(x.dtype)
            z = jnp.matmul(u, leaves[call.kernel].reshape(-1, C), precision=EXACT)
            pairs.append((z if call.bias is None else z + leaves[call.bias][None], outs[call.path]))
        return pairs

    rng, keys = np.random.default_rng(0), jax.random.split(jax.random.key(0), TRIED)
    x = jnp.asarray(rng.normal(size=(TRIED, params.dim)) / 3, jnp.float32)
    pairs = jax.jit(jax.vmap(outputs))(x, _examples(rng, module.sample), keys)
    return all(_close(out.reshape(z.shape), z) for z, out in pairs)


def _agrees(module: Module, kernel: Kernel) -> bool:
    """Whether the layers' gradients are the gradient."""
    rng = np.random.default_rng(0)

    @jax.jit
    def both(x: Array, batch: PyTree) -> Any:
        F = kernel.factors(x, batch)
        g = jax.vmap(jax.grad(module.flat_loss), (None, 0))(x, batch)
        w = jnp.arange(1.0, TRIED + 1)
        mine = kernel.contract(w, F, batch), kernel.inner(F, F, batch)
        return mine, (w @ g, jnp.sum(g * g, axis=1))

    for _ in range(TRIED):  # at one point some units, or all, may pass nothing
        x = jnp.asarray(rng.normal(size=module.params.dim) / 3, jnp.float32)
        batch = _examples(rng, module.sample), jnp.zeros(TRIED, jnp.int32)
        if not all(map(_close, *both(x, batch))):
            return False
    return True


def _examples(rng: np.random.Generator, sample: jax.ShapeDtypeStruct) -> Array:
    size = TRIED, *sample.shape
    whole = jnp.issubdtype(sample.dtype, jnp.integer)  # 0 and 1 are in any vocabulary
    return jnp.asarray(rng.integers(0, 2, size) if whole else rng.normal(size=size), sample.dtype)


def _close(mine: Array, true: Array) -> bool:
    return bool(np.linalg.norm(mine - true) <= ALIKE * np.linalg.norm(true))  # not if NaN
