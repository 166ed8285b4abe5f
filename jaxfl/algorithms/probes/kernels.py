"""Compare a kernel of a user's own with ``vmap(grad)`` of the loss."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms.probes.laws import confirm
from jaxfl.core.types import Array, Kernel, Model, Problem, PyTree, Term
from jaxfl.data.samples import block, plain
from jaxfl.problems.clipping import evaluate
from jaxfl.problems.kernels import generic_kernel

__all__ = ["kernel", "rows_of"]

ROWS = 6
OUTLIER = 1e3  # times as long as a record
CLOSE = 1e-3  # of the bound


def kernel(problem: Problem) -> None:
    """Raise unless the kernel clips as its record says, on some records of the problem and on outliers.

    It is asked to clip in both ways: of smooth clipping it computes the norms alone.
    """
    model, batch = problem.model, rows_of(problem)
    x = jax.random.normal(jax.random.key(0), (2, model.dim))
    reference = generic_kernel(model.loss, model.dim)
    for factor, smooth in itertools.product((1.0, OUTLIER), (False, True)):
        long = jax.tree.map(lambda a: a * factor if _real(a) else a, batch)
        norms = np.linalg.norm(reference.factors(x[0], long), axis=-1)
        middle = float(np.median([*norms[np.isfinite(norms)], 1.0]))
        for bound in (0.5 * middle, 10 * middle):
            both = (each._replace(smooth=smooth) for each in (model.kernel, reference))
            found, expected = (_clipped(each, x, long, bound) for each in both)
            sure = np.isfinite(expected).all(-1)
            apart = float(np.abs(found - expected)[sure].max(initial=0.0))
            confirm(
                apart <= CLOSE * bound and np.isfinite(found)[sure].all(),
                f"the gradient kernel of the model {model.name!r} clips a gradient to one that differs "
                f"by {apart:.4g} from that of vmap(grad), at the bound {bound:.4g}",
            )
    if model.kernel.coordinates is not None:
        _some(model, x[0], batch, min(ROWS, problem.m_max))


def rows_of(problem: Problem) -> PyTree:
    """The records of a problem on which its kernel is compared."""
    rows = min(ROWS, problem.m_max)
    return block(plain(problem).train, jnp.int32(0), jnp.int32(0), 1, rows)


def _some(model: Model, x: Array, batch: PyTree, rows: int) -> None:
    """Raise unless the kernel computes single coordinates as it computes all."""
    kernel, weight = model.kernel, jnp.linspace(-1.0, 1.0, rows, dtype=x.dtype)
    F = kernel.factors(x, batch)
    whole = np.asarray(kernel.contract(weight, F, batch))
    for few in (1, model.dim):
        index = jax.random.permutation(jax.random.key(few), model.dim)[:few]
        assert kernel.coordinates is not None
        found = np.asarray(kernel.coordinates(weight, F, batch, index))
        apart = float(np.abs(found - whole[index]).max())
        confirm(
            apart <= CLOSE * float(np.abs(whole).max()),
            f"the gradient kernel of the model {model.name!r} computes a coordinate that differs by "
            f"{apart:.4g} from that of the whole sum",
        )


def _clipped(kernel: Kernel, x: Array, batch: PyTree, bound: float) -> np.ndarray:
    """Clipped gradients and differences of each record, alone, and their mean, (terms * (rows + 1), d)."""
    G, rows = jnp.asarray(bound, x.dtype), len(jax.tree.leaves(batch)[0])
    weights = jnp.concatenate(
        [jnp.eye(rows, dtype=x.dtype), jnp.full((1, rows), 1 / rows, x.dtype)]
    )
    terms = (
        (Term(1.0, (x[0],), (1.0,), G),),
        (Term(1.0, (x[0],), (1.0,), G), Term(-1.0, (x[1],), (1.0,), G)),
        (Term(1.0, (x[0], x[1]), (1.0, -1.0), G),),
    )
    total: Callable[..., Array] = lambda some: jax.vmap(  # noqa: E731
        lambda weight: evaluate(kernel, some, weight, batch)[0]
    )(weights)
    return np.concatenate([np.asarray(total(some), np.float64) for some in terms])


def _real(a: Array) -> bool:
    return bool(jnp.issubdtype(a.dtype, jnp.floating))
