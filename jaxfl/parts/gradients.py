"""One client's gradient at a point: clipped example by example, smoothed, with the public part apart.

Every round body and every local procedure evaluates gradients here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxfl.core.types import Array, Gradient, Hyper, Kernel, Key, Model, PyTree, Term
from jaxfl.problems.clipping import evaluate

__all__ = ["Point", "at_point", "evaluated", "unclipped"]


class Point(NamedTuple):
    """What all gradients at one point have in common."""

    kernel: Kernel
    terms: tuple[Term, ...]
    public: Array  # the regularizer's gradient, which depends on no samples
    jitter: (
        Callable[[Key, int], Array] | None
    )  # (key, rows) -> displacements of the points, (rows, d)


def at_point(gradient: Gradient, model: Model, shared: PyTree, x: Array, hp: Hyper) -> Point:
    """The gradient at x, to be evaluated for any rows."""
    kernel = model.kernel
    if gradient.kernel is not None:
        kernel = gradient.kernel(model, hp)._replace(smooth=kernel.smooth)
    terms = gradient.terms(shared, x, hp)
    slope, jitter = jax.grad(model.regularizer), gradient.jitter
    public = slope(x) if gradient.public is None else gradient.public(shared, slope, x, hp)
    draw = None if jitter is None else lambda key, rows: jitter(key, rows, x, hp)
    return Point(kernel, terms, public, draw)


def evaluated(
    point: Point,
    weight: Array,
    batch: PyTree,
    key: Key | None = None,
    *,
    stored: PyTree = None,
    offset: Array | None = None,
) -> tuple[Array, PyTree]:
    """Return ``sum of terms - sum_j weight_j stored_j``, and the clipped factors of the first term.

    ``key`` draws the displacements of the points where the loss is smoothed by them, unless they are
    given as ``offset``.  The public part is not in the sum.
    """
    terms = point.terms
    if offset is None and point.jitter is not None:
        assert key is not None
        offset = point.jitter(key, weight.size)
    if offset is not None:
        terms = tuple(
            term._replace(points=tuple(p[None] + offset for p in term.points)) for term in terms
        )
    return evaluate(point.kernel, terms, weight, batch, stored)


def unclipped(point: Point) -> Point:
    """The same point, where nothing is clipped."""
    terms = tuple(term._replace(bound=jnp.full_like(term.bound, jnp.inf)) for term in point.terms)
    return point._replace(terms=terms)
