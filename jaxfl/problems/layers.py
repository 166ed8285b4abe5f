"""Per-example gradients of flax modules, layer by layer.

The gradient of one example in the weights of a dense or a convolutional layer is ``sum_r u_r v_r'``: the
input at position r (of a convolution, the unfolded patch) times the loss derivative at the output
there [Goodfellow, 2015, arXiv:1510.01799; Rochette et al., 2019, arXiv:1912.06015].  The positions of
a recurrent layer are the steps of time, those of weights that are used several times the positions of
all calls, and the u_r of an embedding are unit vectors, kept as tokens.  A layer keeps the pairs
(u, v), or the sum where that is smaller; parameters of all other layers keep their gradients.

This is the whole gradient if the layer's output is that product and its weights enter the loss only
through it.  The traced program of the loss shows whether they do: with the outputs of these layers
replaced, the loss uses none of their weights.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core import provenance
from jaxfl.core.products import EXACT, crossed
from jaxfl.core.types import Array, Kernel, Key, PyTree
from jaxfl.problems.kernels import Factors, combined, dot, generic_kernel, rowwise, scaled
from jaxfl.problems.parameters import Layout, raveled

__all__ = ["Back", "Block", "Call", "Module", "Move", "Tapped", "layered_kernel"]

Move = Callable[[Array, Array, Array], tuple[Array, Any]]
"""(what enters a layer, what comes out, a tap) -> what comes out instead, and a note."""
Tapped = Callable[
    [PyTree, Array, Mapping[str, Array], Move, "list[Call]"], tuple[Any, dict[str, Any]]
]
"""(parameters, a batch, taps of calls, move, list of calls to extend) -> outputs, notes of calls."""
Back = Callable[[Array, Array], Array]
"""(derivatives in what comes out, weights) -> derivatives in what enters."""
ALIKE = 1e-3  # relative: float32 gradients by two ways
TRIED = 4  # points at which gradients are compared, and examples at each
log = logging.getLogger("jaxfl")


class Block(NamedTuple):
    """The place of a leaf of the parameters in the matrix of a layer."""

    leaf: int
    rows: slice
    columns: slice


class Call(NamedTuple):
    """One call of a layer whose output is ``u M``, M the matrix of its weights."""

    slot: str
    blocks: tuple[Block, ...]  # of M; a bias is its last row
    rows: Callable[[Array], Array]  # what enters (R', ...) -> u (R, K), or the tokens (R,)
    out: tuple[int, ...]  # shape of the output, (..., C)
    tokens: bool = False  # an embedding: u are unit vectors
    transposed: bool = False  # the output is u M'
    back: Back | None = None  # the derivative in what enters, where it has a faster form


class Layer(NamedTuple):
    """The calls with the same weights, and the sizes of their gradient."""

    calls: tuple[Call, ...]
    inputs: int  # K, a bias included
    outputs: int
    positions: int

    @property
    def tokens(self) -> bool:
        """Whether only the tokens of u are kept."""
        return all(call.tokens for call in self.calls)

    @property
    def factored(self) -> int:
        """Numbers in the factors."""
        return self.positions * ((1 if self.tokens else self.inputs) + self.outputs)

    @property
    def whole(self) -> bool:
        """Whether the sum over positions is smaller than its factors."""
        return self.inputs * self.outputs <= self.factored

    @property
    def width(self) -> int:
        """Numbers that one example's gradient takes."""
        return min(self.inputs * self.outputs, self.factored)


class Module(NamedTuple):
    """A flax module with a loss, as a function of its parameters."""

    tapped: Tapped
    loss: Callable[[Any, PyTree], Array]  # of the outputs for a batch of one example
    params: Layout
    sample: jax.ShapeDtypeStruct
    flat_loss: Callable[[Array, PyTree], Array]  # the model's own
    name: str


def layered_kernel(module: Module) -> Kernel:
    """The kernel of a module; :func:`generic_kernel` where no layer's gradients are products."""
    calls: list[Call] = []
    params, sample = module.params, module.sample
    tree = params.unravel(jnp.zeros(params.dim))
    batch = jnp.zeros((1, *sample.shape), sample.dtype)
    program = jax.make_jaxpr(lambda p, a: module.tapped(p, a, {}, _add, calls)[0])(tree, batch)
    shared: dict[Any, list[Call]] = {}
    for call in calls:
        shared.setdefault(tuple(block.leaf for block in call.blocks), []).append(call)
    layers = [_layer(group) for group in shared.values()]
    kernel = _kernel(module, layers)._replace(convolves="conv_general_dilated" in str(program))
    try:
        usable = bool(layers) and _alone(module, layers) and _products(module, layers)
        usable = usable and _agrees(module, kernel)
    except Exception:  # in the user's own code; Problem reports what is wrong
        usable = False
    if not usable:
        log.warning("%s: per-example gradients use the slow vmap(grad).", module.name)
        return generic_kernel(module.flat_loss, params.dim, params.sizes)
    return kernel


def _layer(calls: Sequence[Call]) -> Layer:
    blocks = calls[0].blocks
    K, C = max(block.rows.stop for block in blocks), max(block.columns.stop for block in blocks)
    return Layer(tuple(calls), K, C, sum(math.prod(call.out[:-1]) for call in calls))


def _add(a: Array, out: Array, tap: Array) -> tuple[Array, Array]:
    return out + tap, a


def _kernel(module: Module, layers: Sequence[Layer], apart: bool = False) -> Kernel:
    params = module.params
    pairs = [layer for layer in layers if not layer.whole]
    sums = [layer for layer in layers if layer.whole]
    calls = [call for layer in layers for call in layer.calls]
    taken = {block.leaf for call in calls for block in call.blocks}
    rest = [i for i in params.trained if i not in taken]

    def factors(x: Array, batch: PyTree) -> Factors:
        one = functools.partial(_factors, module, layers, rest)
        F: Factors = jax.vmap(one, (None, 0))(x, batch)
        return F

    def inner(F: Factors, H: Factors, batch: PyTree) -> Array:
        totals = [dot(g, h) for g, h in zip(F.whole, H.whole, strict=True)]
        for (u, v), (s, t) in zip(F.pairs, H.pairs, strict=True):
            if u.ndim == 2:  # unit vectors: 1 where tokens are equal
                across = (u[:, :, None] == s[:, None]).astype(v.dtype)
            else:
                across = jnp.einsum("brk,bqk->brq", u, s, precision=EXACT)
            along = jnp.einsum("brk,bqk->brq", v, t, precision=EXACT)
            totals.append(jnp.sum(across * along, axis=(1, 2)))
        return jnp.stack(totals, axis=-1) if apart else sum(totals, jnp.float32(0))

    def contract(w: Array, F: Factors, batch: PyTree) -> Array:
        leaves = dict.fromkeys(params.trained, w)

        def put(layer: Layer, M: Array) -> None:
            M = M.reshape(layer.inputs, layer.outputs)
            for leaf, rows, columns in layer.calls[0].blocks:
                leaves[leaf] = M[rows, columns]

        for layer, (u, v) in zip(pairs, F.pairs, strict=True):
            v = rowwise(w, v).reshape(-1, v.shape[-1])
            u = u.reshape(v.shape[0], *u.shape[2:])
            put(layer, _spread(layer, u, v) if layer.tokens else crossed(v, u))
        added = [jnp.matmul(w, g, precision=EXACT) for g in F.whole]
        for layer, M in zip(sums, added, strict=False):
            put(layer, M)
        for i, g in zip(rest, added[len(sums) :], strict=True):
            leaves[i] = g
        return raveled([leaves[i] for i in params.trained])

    width = sum(layer.width for layer in layers) + sum(math.prod(params.shapes[i]) for i in rest)
    count = len(layers) + len(rest) if apart else 1
    found = Kernel(factors, inner, scaled, combined, contract, width, layers=count)
    found = provenance.kernel(found)
    if apart:
        return found
    return found._replace(split=functools.partial(_kernel, module, layers, True))


def _factors(
    module: Module, layers: Sequence[Layer], rest: Sequence[int], x: Array, example: PyTree
) -> Factors:
    """The factors of one example's gradient; ``rest`` are the leaves that are in no layer."""
    params = module.params
    calls = [call for layer in layers for call in layer.calls]
    leaves = jax.tree.leaves(params.unravel(x))

    def value(taps: dict[str, Array], free: list[Array]) -> tuple[Array, dict[str, Any]]:
        mine = list(leaves)
        for i, leaf in zip(rest, free, strict=True):
            mine[i] = leaf
        tree = jax.tree.unflatten(params.treedef, mine)
        z, inputs = module.tapped(tree, example[0][None], taps, _add, [])
        return module.loss(z, example), inputs

    taps = {call.slot: jnp.zeros(call.out, x.dtype) for call in calls}
    slopes, inputs = jax.grad(value, (0, 1), has_aux=True)(taps, [leaves[i] for i in rest])

    def pair(layer: Layer) -> tuple[Array, Array]:
        return _pair(layer, inputs, slopes[0], x.dtype)

    def added(layer: Layer) -> Array:
        u, v = pair(layer)
        M = _spread(layer, u, v) if layer.tokens else jnp.matmul(u.T, v, precision=EXACT)
        return M.reshape(-1)

    sums = [layer for layer in layers if layer.whole]
    whole = *map(added, sums), *(g.reshape(-1) for g in slopes[1])
    return Factors(tuple(pair(layer) for layer in layers if not layer.whole), whole)


def _pair(
    layer: Layer, inputs: Mapping[str, Array], slopes: Mapping[str, Array], dtype: Any
) -> tuple[Array, Array]:
    """The rows u and v of a layer, over all of its calls: its gradient is ``sum u v'``."""
    us, vs = [], []
    for call in layer.calls:
        u, v = call.rows(inputs[call.slot]), slopes[call.slot].reshape(-1, call.out[-1])
        if call.tokens and not layer.tokens:
            u = jax.nn.one_hot(u, layer.inputs)
        # Norms of inputs in bfloat16 would be in it too, and a clipped one exceed G.
        u = u if layer.tokens else u.astype(dtype)
        us.append(v if call.transposed else u)
        vs.append(u if call.transposed else v)
    return (us[0], vs[0]) if len(us) == 1 else (jnp.concatenate(us), jnp.concatenate(vs))


def _spread(layer: Layer, tokens: Array, v: Array) -> Array:
    """The matrix in whose row t the rows of v with token t are added."""
    return jnp.zeros((layer.inputs, layer.outputs), v.dtype).at[tokens].add(v)


def _alone(module: Module, layers: Sequence[Layer]) -> bool:
    """Whether weights of layers enter their own outputs, once, and nothing else."""
    params = module.params
    calls = [call for layer in layers for call in layer.calls]

    def cut(leaves: list[Array], example: PyTree) -> Any:
        taps = {call.slot: jnp.zeros(call.out, leaves[0].dtype) for call in calls}
        tree = jax.tree.unflatten(params.treedef, leaves)
        z, inputs = module.tapped(tree, example[0][None], taps, lambda a, out, tap: (tap, a), [])
        return module.loss(z, example), inputs  # a layer's input may hold others' weights

    leaves = jax.tree.leaves(params.unravel(jnp.zeros(params.dim)))
    program = jax.make_jaxpr(cut)(leaves, (module.sample, jnp.int32(0))).jaxpr
    needed, weights = _needed(program), {block.leaf for call in calls for block in call.blocks}
    moved = len(program.outvars) == 1 + len(calls)
    return moved and not any(id(program.invars[i]) in needed for i in weights)


def _needed(program: Any) -> set[int]:
    """The variables on which a traced program's results depend: all of them, and perhaps more."""
    needed = set(map(id, program.outvars))
    for step in reversed(program.eqns):
        if not any(id(v) in needed for v in step.outvars):
            continue
        inner = step.params.get("jaxpr")  # of a loop of known length, or of a function compiled
        inner = getattr(inner, "jaxpr", inner)
        if inner is not None and len(inner.invars) == len(step.invars):
            read = _needed(inner)
            pairs = zip(step.invars, inner.invars, strict=True)
            needed.update(id(v) for v, own in pairs if id(own) in read)
        else:
            needed.update(map(id, step.invars))
    return needed


def _products(module: Module, layers: Sequence[Layer]) -> bool:
    """Whether layers' outputs are products with the parameters, and not with functions of them."""
    params = module.params

    def outputs(x: Array, a: Array, key: Key) -> list[tuple[Array, Array]]:
        taps = {
            call.slot: jax.random.normal(jax.random.fold_in(key, i), call.out)
            for i, call in enumerate(call for layer in layers for call in layer.calls)
        }
        _, notes = module.tapped(
            params.unravel(x), a[None], taps, lambda a, out, tap: (tap, (a, out)), []
        )
        leaves, pairs = jax.tree.leaves(params.unravel(x)), []
        for layer in layers:
            M = jnp.zeros((layer.inputs, layer.outputs), x.dtype)
            for leaf, rows, columns in layer.calls[0].blocks:
                part = M[rows, columns]
                M = M.at[rows, columns].set(leaves[leaf].reshape(part.shape))
            for call in layer.calls:
                entered, out = notes[call.slot]
                u = call.rows(entered)
                if call.tokens:
                    z = M[u]
                else:
                    W = M.T if call.transposed else M
                    z = jnp.matmul(u.astype(x.dtype), W, precision=EXACT)
                pairs.append((z, out))
        return pairs

    rng, keys = np.random.default_rng(0), jax.random.split(jax.random.key(0), TRIED)
    x = jnp.stack([_point(rng, params) for _ in range(TRIED)])
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
        x = _point(rng, module.params)
        batch = _examples(rng, module.sample), jnp.zeros(TRIED, jnp.int32)
        if not all(map(_close, *both(x, batch))):
            return False
    return True


def _point(rng: np.random.Generator, params: Layout) -> Array:
    """Random parameters, at which signals neither vanish nor grow from layer to layer or in time."""
    shapes = [params.shapes[i] for i in params.trained]
    fans = [math.prod(shape[:-1]) for shape in shapes]
    leaves = [
        rng.normal(size=math.prod(shape)) / max(3, math.sqrt(fan))
        for shape, fan in zip(shapes, fans, strict=True)
    ]
    return jnp.asarray(np.concatenate(leaves), jnp.float32)


def _examples(rng: np.random.Generator, sample: jax.ShapeDtypeStruct) -> Array:
    size = TRIED, *sample.shape
    whole = jnp.issubdtype(sample.dtype, jnp.integer)  # 0 and 1 are in any vocabulary
    return jnp.asarray(rng.integers(0, 2, size) if whole else rng.normal(size=size), sample.dtype)


def _close(mine: Array, true: Array) -> bool:
    return bool(np.linalg.norm(mine - true) <= ALIKE * np.linalg.norm(true))  # not if NaN
