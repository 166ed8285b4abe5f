"""One client's gradient at a point: clipped example by example, smoothed, with the public part apart.

Every round body and every local procedure evaluates gradients here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfl.core.types import Array, Gradient, Hyper, Kernel, Key, Model, PyTree, Term
from jaxfl.problems.clipping import weighed

__all__ = ["Point", "at_point", "evaluated", "in_factors", "unclipped"]

# operations that change nothing where shape and dtype stay
COPIES = ("copy", "convert_element_type", "reshape", "broadcast_in_dim", "squeeze", "stop_gradient")
NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "div": 1}  # with that number as the second operand


class Point(NamedTuple):
    """The inputs that all gradients at one point share."""

    kernel: Kernel
    terms: tuple[Term, ...]
    public: Array  # the regularizer's gradient, which depends on no samples
    jitter: (
        Callable[[Key, int], Array] | None
    )  # (key, rows) -> displacements of the points, (rows, d)
    evaluations: int  # of each drawn row: the points that differ


def at_point(gradient: Gradient, model: Model, shared: PyTree, x: Array, hp: Hyper) -> Point:
    """The gradient at x, to be evaluated for any rows."""
    kernel = model.kernel
    if gradient.kernel is not None:
        kernel = gradient.kernel(model, hp)._replace(smooth=kernel.smooth)
    terms = gradient.terms(shared, x, hp)
    evaluations = _different(lambda: gradient.terms(shared, x, hp))
    slope, jitter = jax.grad(model.regularizer), gradient.jitter
    public = slope(x) if gradient.public is None else gradient.public(shared, slope, x, hp)
    draw = None if jitter is None else lambda key, rows: jitter(key, rows, x, hp)
    return Point(kernel, terms, public, draw, evaluations)


def _different(terms: Callable[[], tuple[Term, ...]]) -> int:
    """The number of points that the terms have, without copies.

    A compiled program evaluates an expression once, however often it is written.  So a point counts once
    where terms hold it twice, or as what copies, casts to its own dtype, reshapes to its own shape, and
    ``+ 0`` or ``* 1`` make of it.  Of equal points that are computed in other ways nothing is known: the
    count is an upper bound.
    """
    program = jax.make_jaxpr(lambda: [p for term in terms() for p in term.points])().jaxpr
    original: dict[Any, Any] = {}
    for step in program.eqns:
        if (source := _copied(step)) is not None:
            original[step.outvars[0]] = original.get(source, source)
    return len({original.get(point, point) for point in program.outvars})


def _copied(step: Any) -> Any:
    """The variable that this step of a program copies; None where it computes another."""
    name, (out, *_) = step.primitive.name, step.outvars
    literals = [getattr(v, "val", None) for v in step.invars]
    variables = [v for v, val in zip(step.invars, literals, strict=True) if val is None]
    if len(variables) != 1 or (variables[0].aval.shape, variables[0].aval.dtype) != (
        out.aval.shape,
        out.aval.dtype,
    ):
        return None
    if name in COPIES or (name in NEUTRAL and NEUTRAL[name] == literals[-1]):
        return variables[0]
    swapped = name in ("add", "mul") and NEUTRAL[name] == literals[0]
    return variables[0] if swapped else None


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
    if offset is None and point.jitter is not None:
        assert key is not None
        offset = point.jitter(key, weight.size)
    factors, first = in_factors(point, batch, stored, offset)
    return point.kernel.contract(weight, factors, batch), first


def in_factors(
    point: Point, batch: PyTree, stored: PyTree, offset: Array | None
) -> tuple[PyTree, PyTree]:
    """Return the factors of the sum that :func:`evaluated` returns, and those of the first term."""
    terms = point.terms
    if offset is not None:
        terms = tuple(
            term._replace(points=tuple(p[None] + offset for p in term.points)) for term in terms
        )
    return weighed(point.kernel, terms, batch, stored)


def unclipped(point: Point) -> Point:
    """The same point, where nothing is clipped."""
    terms = tuple(term._replace(bound=jnp.full_like(term.bound, jnp.inf)) for term in point.terms)
    return point._replace(terms=terms)
