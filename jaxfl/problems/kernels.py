"""Per-example gradients as factors: clipped sums without an array (b, d).

The gradient of one example in the weights of a dense layer is the outer product of the layer's input
and the loss derivative ("delta") at its output [Goodfellow, 2015, arXiv:1510.01799].  Norms are then
products of small norms, and a weighted sum over examples is one matrix product per layer.

Examples are pairs ``(a, y)``: features and label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core import provenance
from jaxfl.core.products import EXACT, outputs, summed, summed_at, totals, totals_at
from jaxfl.core.types import Array, Kernel, PyTree
from jaxfl.data.samples import Measured

__all__ = [
    "Factors",
    "combined",
    "dense_kernel",
    "generic_kernel",
    "linear_kernel",
    "rowwise",
    "scaled",
]

OutputLoss = Callable[[Array, PyTree], Array]  # (output of one example, the example) -> scalar
FLOOR = 0.8  # power of the smallest number: far above what squares lose


class Factors(NamedTuple):
    """Gradients of b examples: ``sum_r u_r v_r'`` in some layers, or whole in the others.

    ``pairs`` are u (b, R, in), with a trailing 1 where the layer has a bias, and v (b, R, out); an
    embedding has tokens (b, R) in place of u.  ``whole`` are gradients (b, p), and of the first of some
    dense layers v (b, out), as its u is the batch itself.
    """

    pairs: tuple[tuple[Array, Array], ...]
    whole: tuple[Array, ...]


def linear_kernel(output_loss: OutputLoss) -> Kernel:
    """``f_j(x) = phi_j(a_j . x)``: ``g_j = e_j a_j`` with the number ``e_j = phi_j'(a_j . x)``."""

    def factors(x: Array, batch: PyTree) -> Array:
        e: Array = jax.vmap(jax.grad(output_loss))(outputs(x, batch[0]), batch)
        return e

    def inner(e: Array, h: Array, batch: PyTree) -> Array:
        return square(batch) * e * h

    def combine(coefs: Sequence[Array | float], e: Sequence[Array]) -> Array:
        terms = [c * e_p for c, e_p in zip(coefs, e, strict=True)]
        return sum(terms[1:], terms[0])

    def contract(w: Array, e: Array, batch: PyTree) -> Array:
        return totals(w * e, batch[0])

    def coordinates(w: Array, e: Array, batch: PyTree, index: Array) -> Array:
        return totals_at(w * e, batch[0], index)

    def clip(e: Array, G: Array, batch: PyTree) -> Array:
        # |e_j a_j| <= G is |e_j| <= G/|a_j|: no root or quotient that depends on x
        most = G / jnp.sqrt(square(batch))
        return jnp.clip(e, -most, most)

    found = Kernel(factors, inner, rescaled, combine, contract, 1, clip, output_loss, squares=True)
    return provenance.kernel(found._replace(coordinates=coordinates))


def dense_kernel(
    widths: Sequence[int],
    output_loss: OutputLoss,
    activation: Callable[[Array], Array] | None = None,
    bias: bool = True,
    apart: bool = False,
) -> Kernel:
    """Dense layers in a chain: ``z_l = u_l W_l``, ``u_{l+1} = (act(z_l), 1)``, ``f = phi(z_L)``.

    With ``v_l = d f / d z_l`` the gradient in W_l is ``u_l v_l'``, and
    ``<g, h> = sum_l (u_l(g) . u_l(h)) (v_l(g) . v_l(h))``.  ``widths`` are the features, the hidden
    widths and the outputs; a single output enters ``output_loss`` as a scalar.  The coordinates of
    x are W_1, W_2, ... row by row, the bias being the last row of each.  ``activation`` takes the units of
    all examples of a batch.  ``apart`` makes the kernel of several layers.
    """
    shapes = [(i + bias, o) for i, o in pairwise(widths)]  # the last of the rows is the bias
    ends = [sum(math.prod(s) for s in shapes[:l]) for l in range(len(shapes) + 1)]
    outputs = widths[-1]
    one = 1 if bias else 0

    def matrices(x: Array) -> list[Array]:
        return [x[i:j].reshape(s) for (i, j), s in zip(pairwise(ends), shapes, strict=True)]

    def factors(x: Array, batch: PyTree) -> Factors:
        a, W = batch[0], matrices(x)
        first = widths[0] * shapes[0][1]  # apart from the bias, or XLA copies both to cut them
        z = a @ x[:first].reshape(widths[0], -1)
        if bias:
            z = z + x[None, first : ends[1]]
        u, slopes = [], []
        for W_l in W[1:]:
            assert activation is not None
            h, slope = jax.jvp(activation, (z,), (jnp.ones_like(z),))
            if bias:
                h = jnp.concatenate([h, jnp.ones_like(h[:, :1])], axis=1)
            u.append(h)
            slopes.append(slope)
            z = h @ W_l
        output_slope = jax.vmap(jax.grad(output_loss))
        v = [output_slope(z[:, 0], batch)[:, None] if outputs == 1 else output_slope(z, batch)]
        for W_l, slope in zip(W[:0:-1], slopes[::-1], strict=True):
            v.append((v[-1] @ W_l[: slope.shape[1]].T) * slope)
        v.reverse()
        pairs = zip(u, v[1:], strict=True)
        return Factors(tuple((u_l[:, None], v_l[:, None]) for u_l, v_l in pairs), (v[0],))

    def inner(F: Factors, H: Factors, batch: PyTree) -> Array:
        totals = [(square(batch) + one) * dot(F.whole[0], H.whole[0])]
        for (u, v), (s, t) in zip(F.pairs, H.pairs, strict=True):
            places = np.ndindex(u.shape[1], s.shape[1])  # few: unrolled, these are faster
            more = [dot(u[:, r], s[:, q]) * dot(v[:, r], t[:, q]) for r, q in places]
            totals.append(sum(more[1:], more[0]))
        return jnp.stack(totals, axis=-1) if apart else sum(totals[1:], totals[0])

    def weighted(w: Array, F: Factors, batch: PyTree) -> list[tuple[Array | None, Array]]:
        """The u and v of each part of x; without u, which is then 1, a bias."""
        v = rowwise(w, F.whole[0])
        parts: list[tuple[Array | None, Array]] = [(batch[0], v)] + [(None, v)] * bias
        for u, v in F.pairs:
            rows = rowwise(w, v).reshape(-1, v.shape[-1])
            parts.append((u.reshape(-1, u.shape[-1]), rows))
        return parts

    def contract(w: Array, F: Factors, batch: PyTree) -> Array:
        return jnp.concatenate([summed(u, v) for u, v in weighted(w, F, batch)])

    def coordinates(w: Array, F: Factors, batch: PyTree, index: Array) -> Array:
        return summed_at(weighted(w, F, batch), index)

    width = sum(widths[1:]) + sum(h + one for h in widths[1:-1])
    layers = len(shapes) if apart else 1
    found = Kernel(factors, inner, scaled, combined, contract, width, squares=True, layers=layers)
    found = provenance.kernel(found._replace(coordinates=coordinates))
    if apart or len(shapes) == 1:
        return found
    return found._replace(split=partial(dense_kernel, widths, output_loss, activation, bias, True))


def scaled(c: Array | float, F: Factors) -> Factors:
    """The factors of ``c_j g_j``."""
    whole = tuple(rowwise(of_layer(c, l), g) for l, g in enumerate(F.whole))
    last = enumerate(F.pairs, len(whole))
    return Factors(tuple((u, rowwise(of_layer(c, l), v)) for l, (u, v) in last), whole)


def combined(coefs: Sequence[Array | float], points: Sequence[Factors]) -> Factors:
    """The factors of a sum over points."""
    # sum_p u_p v_p' = u_1 (sum_p v_p)' + sum_{p>1} (u_p - u_1) v_p': where points are close,
    # small differences remain in place of large numbers that cancel.
    first, *others = [scaled(c, F) for c, F in zip(coefs, points, strict=True)]
    if not others:
        return first
    out = []
    for l, (u, v) in enumerate(first.pairs):
        more = [F.pairs[l] for F in others]
        n = u.shape[1]
        if any(u_p.shape[1] != n for u_p, _ in more):  # already sums themselves
            us, vs = [u, *(u_p for u_p, _ in more)], [v, *(v_p for _, v_p in more)]
        elif u.ndim == 2:  # what has the same token is added, and leaves zeros
            same = [(u_p == u)[..., None] for u_p, _ in more]
            us = [u, *(u_p for u_p, _ in more)]
            vs = [jnp.where(e, 0, v_p) for e, (_, v_p) in zip(same, more, strict=True)]
            equal = [jnp.where(e, v_p, 0) for e, (_, v_p) in zip(same, more, strict=True)]
            vs.insert(0, sum(equal, v))
        else:
            us = [u, *(u_p - u for u_p, _ in more)]
            vs = [sum((v_p for _, v_p in more), v), *(v_p for _, v_p in more)]
        out.append((jnp.concatenate(us, axis=1), jnp.concatenate(vs, axis=1)))
    whole = [sum(g[1:], g[0]) for g in zip(*(F.whole for F in (first, *others)), strict=True)]
    return Factors(tuple(out), tuple(whole))


def generic_kernel(
    loss: Callable[[Array, PyTree], Array],
    dim: int,
    sizes: Sequence[int] = (),
    apart: bool = False,
) -> Kernel:
    """The kernel of any loss, by ``vmap(grad)``: the factors are the (b, d) gradients.

    ``sizes`` are those of the leaves of the parameters, which count as layers where they are ``apart``.
    """

    def factors(x: Array, batch: PyTree) -> Array:
        g: Array = jax.vmap(jax.grad(loss), (None, 0))(x, batch)
        return g

    def inner(g: Array, h: Array, batch: PyTree) -> Array:
        if not apart:
            return dot(g, h)
        ends = np.cumsum(sizes)[:-1]
        return jnp.stack([a.sum(axis=-1) for a in jnp.split(g * h, ends, axis=-1)], axis=-1)

    def scale(c: Array | float, g: Array) -> Array:
        if jnp.ndim(c) < 2:
            return rowwise(c, g)
        return jnp.repeat(jnp.asarray(c), np.array(sizes), axis=1, total_repeat_length=dim) * g

    def combine(coefs: Sequence[Array | float], g: Sequence[Array]) -> Array:
        terms = [scale(c, g_p) for c, g_p in zip(coefs, g, strict=True)]
        return sum(terms[1:], terms[0])

    def contract(w: Array, g: Array, batch: PyTree) -> Array:
        return jnp.matmul(w, g, precision=EXACT)

    layers = len(sizes) if apart else 1
    found = provenance.kernel(Kernel(factors, inner, scale, combine, contract, dim, layers=layers))
    if apart or len(sizes) < 2:
        return found
    return found._replace(split=partial(generic_kernel, loss, dim, sizes, True))


def square(batch: PyTree) -> Array:
    """``|a_j|^2``, which :func:`jaxfl.data.samples.measured` adds to (a_j, y_j), and no less than a floor.

    Squares of small entries vanish in 32 bits: without the floor, a gradient with a large factor e_j
    would pass clipping.
    """
    whole = batch.square if isinstance(batch, Measured) else jnp.sum(batch[0] ** 2, axis=-1)
    return jnp.maximum(whole, float(np.finfo(whole.dtype).tiny) ** FLOOR)


def rescaled(c: Array, e: Array) -> Array:
    return c * e


def dot(a: Array, b: Array) -> Array:
    return jnp.sum(a * b, axis=-1)


def of_layer(c: Array | float, l: int) -> Array | float:
    """The factors of layer l: its column of c (b, layers), or c itself of shape () or (b,)."""
    return c if jnp.ndim(c) < 2 else jnp.asarray(c)[:, l]


def rowwise(c: Array | float, a: Array) -> Array:
    """``c_j a_j`` for c of shape () or (b,) and a of shape (b, ...)."""
    c = jnp.asarray(c)
    return (c if c.ndim == 0 else c.reshape(-1, *(1,) * (a.ndim - 1))) * a
