"""Weighted sums of clipped per-example gradients.

``hard`` clipping is ``C(g) = g min(1, G/|g|)``.  ``smooth`` clipping is ``C(g) = g G/(G + |g|)``
[Li, Chi, 2023].  Proofs need no more than three properties that both have, for any bound G:

* ``|C(g)| <= G``, and below G where it is smooth.  One of b records that is exchanged for another
  therefore moves a mean by ``|C(g) - C(g')|/b <= 2G/b``, and no less bound holds for all g and g'.
* ``|C(g) - C(h)| <= |g - h|``.  Hard clipping projects on a ball.  The derivative of smooth clipping is
  symmetric, with the eigenvalues ``G^2/(G + |g|)^2`` along g and ``G/(G + |g|)`` across, within [0, 1].
* Of a convex loss ``phi(a.x)``, the clipped gradient is that of another convex loss, which is at least as
  smooth: C acts on ``phi'`` as a function whose slope is within [0, 1].
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from jaxfl.core.identity import by_identity
from jaxfl.core.types import Array, Kernel, Model, Problem, PyTree, Term
from jaxfl.problems.kernels import Factors

__all__ = [
    "CLIPPINGS",
    "clip",
    "clip_factor",
    "clipped_as",
    "evaluate",
    "factor",
    "share",
    "smooth_factor",
    "squared_norm",
    "weighed",
]

CLIPPINGS = ("hard", "smooth")


@jax.custom_jvp
def clip_factor(square: Array, bound: Array) -> Array:
    """``min(1, G / ||g||)`` from ``||g||^2``: 1 for g = 0 and for G = inf, NaN for a NaN."""
    norm = jnp.sqrt(jnp.maximum(square, 0))
    return jnp.where(norm <= bound, 1, bound / norm)


def _change(primals: tuple[Array, Array], tangents: Any) -> tuple[Array, Array]:
    """The derivative: 0 for what is not clipped, where the chain rule has 0/0 at g = 0."""
    square, bound = primals
    factor: Array = clip_factor(square, bound)
    clipped = jnp.sqrt(jnp.maximum(square, 0)) > bound
    safe, change = jnp.where(clipped, square, 1), jnp.zeros_like(factor)
    if not isinstance(tangents[0], SymbolicZero):
        change = change - jnp.where(clipped, factor, 0) / (2 * safe) * tangents[0]
    if not isinstance(tangents[1], SymbolicZero):
        change = change + jnp.where(clipped, tangents[1] / jnp.sqrt(safe), 0)
    return factor, change


clip_factor.defjvp(_change, symbolic_zeros=True)


def smooth_factor(square: Array, bound: Array) -> Array:
    """``G / (G + ||g||)`` from ``||g||^2``: 1 for g = 0 and for G = inf, NaN for a NaN."""
    zero = square <= 0  # where a root has no derivative
    ratio = jnp.sqrt(jnp.where(zero, 1, square)) / jnp.where(zero, 1, bound)
    return 1 / (1 + jnp.where(zero, 0, ratio))


def _smooth(model: Model) -> Model:
    return model._replace(kernel=model.kernel._replace(smooth=True))


_once = by_identity(_smooth, most=64)


def clipped_as(problem: Problem, clipping: str) -> Problem:
    """The problem, whose gradients are clipped in that way."""
    smooth = clipping == "smooth"
    return dataclasses.replace(problem, model=_once(problem.model)) if smooth else problem


def share(kernel: Kernel, bound: Array) -> Array:
    """``G / sqrt(K)``, the bound of each of K layers, whose gradients together are then within G."""
    return bound if kernel.layers == 1 else bound / math.sqrt(kernel.layers)


def factor(kernel: Kernel, F: PyTree, batch: PyTree, bound: Array) -> Array:
    """``min(1, G / ||g_j(F)||)`` of each example, and of each of K layers with its share."""
    square, s = _square(kernel, F, batch, bound)
    return clip_factor(square, s * share(kernel, bound))


def _square(kernel: Kernel, F: PyTree, batch: PyTree, bound: Array) -> tuple[Array, Array]:
    """``||s g_j||^2`` with powers of two s that lose no digit: ||g_j||^2 exceeds 32 bits from 1e19 on.

    The largest entry of what ``scale`` scales becomes about 1, of each layer that is clipped apart.
    Vectors have one s for all, which keeps norms from the bound up in range.
    """
    if isinstance(F, Factors):
        parts = [*F.whole, *(v for _, v in F.pairs)]
        each = [jnp.max(jnp.abs(v), axis=tuple(range(1, v.ndim))) for v in parts]
        largest = jnp.stack(each, axis=-1)
        s = _inverse(largest if kernel.layers > 1 else largest.max(axis=-1))
    elif isinstance(F, jax.Array) and F.ndim == 1:
        s = _inverse(jnp.abs(F))
    elif isinstance(F, jax.Array) and F.ndim == 2:
        s = in_range(bound)
    else:  # of a kernel of the user's own
        return kernel.inner(F, F, batch), jnp.ones(())
    F = kernel.scale(s, F)
    return kernel.inner(F, F, batch), s


def in_range(bound: Array) -> Array:
    """A power of two s such that 32 bits hold ``||s g||^2`` for norms from the bound G to 1e32 G."""
    return _power(2.0**-43 / jnp.clip(bound, 2.0**-100, 2.0**80))


def _inverse(a: Array) -> Array:
    return _power(1 / jnp.clip(a, 2.0**-120, 2.0**120))  # of what has a finite one


def _power(a: Array) -> Array:
    """The nearest power of two, a constant to derivatives."""
    exponents = np.finfo(a.dtype).nexp
    return jax.lax.stop_gradient(jax.lax.reduce_precision(a, exponents, 0))


def squared_norm(kernel: Kernel, F: PyTree, batch: PyTree) -> Array:
    """``||g_j||^2`` of each example."""
    square = kernel.inner(F, F, batch)
    return square if kernel.layers == 1 else square.sum(axis=-1)


def clip(g: Array, bound: Array, smooth: bool = False) -> Array:
    """``clip(g, G) = g min(1, G / ||g||)`` for one vector, or ``g G / (G + ||g||)``."""
    s = in_range(bound)
    return (smooth_factor if smooth else clip_factor)(jnp.sum((s * g) ** 2), s * bound) * g


def evaluate(
    kernel: Kernel,
    terms: tuple[Term, ...],
    weight: Array,
    batch: PyTree,
    stored: PyTree = None,
) -> tuple[Array, PyTree]:
    """Returns a (d,) total and the clipped gradients of the first term, as factors::

        total = sum_terms scale sum_j weight_j clip(sum_p coef_p grad f_j(point_p), bound)
                - sum_j weight_j stored_j

    Points are (d,), or (b, d): one for each example.  Terms are added example by example before the
    sum over examples, which takes one matrix product for all of them, and differences of nearly equal
    gradients keep their digits.  The factors returned are those of the first term without its scale,
    ``c_j sum_p coef_p grad f_j(point_p)`` with c_j the clipping factor.
    """
    factors, first = weighed(kernel, terms, batch, stored)
    return kernel.contract(weight, factors, batch), first


def weighed(
    kernel: Kernel, terms: tuple[Term, ...], batch: PyTree, stored: PyTree = None
) -> tuple[PyTree, PyTree]:
    """The factors of what :func:`evaluate` sums over examples, and those of the first term."""
    coefs: list[Array | float] = []
    factors: list[PyTree] = []
    first: PyTree = None
    for scale, points, coefs_p, bound in terms:
        F = [at(kernel, point, batch) for point in points]
        one = len(F) == 1 and isinstance(coefs_p[0], float) and coefs_p[0] == 1
        if kernel.clip is not None and not kernel.smooth and one:
            clipped = kernel.clip(F[0], bound, batch)
            coefs.append(scale)
            factors.append(clipped)
            first = clipped if first is None else first
            continue
        g = F[0] if len(F) == 1 else kernel.combine(coefs_p, F)
        square, s = _square(kernel, g, batch, bound)
        if len(F) == 1:
            square = coefs_p[0] ** 2 * square
        c = (smooth_factor if kernel.smooth else clip_factor)(square, s * share(kernel, bound))
        coefs += [scale * coef * c for coef in coefs_p]
        factors += F
        if first is None:
            own = [coef * c for coef in coefs_p]
            first = kernel.scale(own[0], F[0]) if len(F) == 1 else kernel.combine(own, F)
    if stored is not None:
        coefs.append(-1.0)
        factors.append(stored)
    return kernel.combine(coefs, factors), first


def at(kernel: Kernel, point: Array, batch: PyTree) -> PyTree:
    """The factors at one point, or at one point per example."""
    if point.ndim == 1:
        return kernel.factors(point, batch)

    def single(x: Array, example: PyTree) -> PyTree:
        factors = kernel.factors(x, jax.tree.map(lambda a: a[None], example))
        return jax.tree.map(lambda a: a[0], factors)

    return jax.vmap(single)(point, batch)
