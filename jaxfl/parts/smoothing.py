"""Smoothing of nonsmooth losses: Moreau envelope and convolution, as transforms of an estimator.

The estimator keeps its clipping bound and its sampling; it clips the gradient of the smoothed loss,
whose norm is at most that of the loss's subgradients.  A minibatch keeps its sensitivity; snapshots
hold gradients of the loss itself, and declare none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxfl.core.errors import require
from jaxfl.core.provenance import made
from jaxfl.core.types import Array, Estimator, Gradient, Hyper, Kernel, Key, Model, Param, PyTree
from jaxfl.problems.kernels import generic_kernel, linear_kernel, square

__all__ = ["CLOSED", "convolution", "moreau", "moreau_kernel", "prox", "uniform_in_ball"]

BETA = Param("moreau", "smoothness beta of the Moreau envelope", open_low=True)
RADIUS = Param("spread", "radius s of the ball that points are drawn from", open_low=True)
HALVINGS = 60  # of the interval that holds a scalar prox
STEPS = 200  # of the solver for a prox that has no other form

Link = Callable[[Array, PyTree], Array]


def _hinge(z: Array, beta: Array, example: PyTree) -> Array:
    s = 2 * jnp.asarray(example[1]).astype(z.dtype) - 1
    return -s * jnp.clip(beta * (1 - s * z), 0, 1)


def _absolute(z: Array, beta: Array, example: PyTree) -> Array:
    return jnp.clip(beta * (z - jnp.asarray(example[1]).astype(z.dtype)), -1, 1)


CLOSED: dict[str, Callable[[Array, Array, PyTree], Array]] = {
    "hinge": _hinge,
    "absolute": _absolute,
}


def moreau_kernel(model: Model, beta: Array) -> Kernel:
    """Gradients of the envelope ``f_beta(w) = min_v f(v) + beta/2 |w - v|^2``  [Nesterov, 2005]::

        grad f_beta(w) = beta (w - prox_{f/beta}(w)),   at most the Lipschitz constant of f

    v ranges over all of R^d; the paper's over W, with the same guarantees where f is L-Lipschitz
    everywhere.  For ``f(w) = phi(a.w)`` it is ``phi_b'(a.w) a`` with the scalar envelope of
    ``b = beta/|a|^2``: in closed form for the hinge and the absolute loss, by bisection for other
    convex phi.  Otherwise the prox is solved for (:func:`prox`).
    """
    way = "take the model itself"
    whole = "Gradients of the envelope are clipped as a whole, not by layer"
    require(model.kernel.layers == 1, whole, way)
    link = model.kernel.link
    if link is None:

        def gradient(w: Array, example: PyTree) -> Array:
            return beta * (w - prox(model.loss, w, beta, example))

        return generic_kernel(model.loss, model.dim)._replace(
            factors=lambda w, batch: jax.vmap(gradient, (None, 0))(w, batch)
        )
    slope = CLOSED.get(model.name) or functools.partial(_slope, link)

    def factors(x: Array, batch: PyTree) -> Array:
        z = x @ batch[0].T
        return jax.vmap(slope)(z, beta / jnp.maximum(square(batch), 1e-30), batch)

    return linear_kernel(link)._replace(factors=factors)


def _slope(link: Link, z: Array, beta: Array, example: PyTree) -> Array:
    """``phi_b'(z) = b (z - u)`` where ``phi'(u) = b (z - u)``: the right side falls, the left rises."""
    grad = jax.grad(link)
    radius = jnp.abs(grad(z, example)) / beta  # between z and u, |phi'| is at most |phi'(z)|

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        u = (low + high) / 2
        above = grad(u, example) > beta * (z - u)
        return jnp.where(above, low, u), jnp.where(above, u, high)

    low, high = jax.lax.fori_loop(0, HALVINGS, halve, (z - radius, z + radius))
    slope: Array = beta * (z - (low + high) / 2)
    return slope


def prox(loss: Callable[[Array, PyTree], Array], w: Array, beta: Array, example: PyTree) -> Array:
    """``argmin_v f(v) + beta/2 |v - w|^2`` by :data:`STEPS` subgradient steps of length
    2/(beta (k+1)), the k-th weighted k: within O(1/STEPS) for any Lipschitz convex f."""
    grad = jax.grad(loss)

    def step(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        v, mean = state
        r = k.astype(w.dtype) + 1
        # implicit in the quadratic term, which keeps the first steps from overshooting
        gamma = 2 / (beta * (r + 1))
        v = (v - gamma * grad(v, example) + gamma * beta * w) / (1 + gamma * beta)
        return v, mean + 2 / (r + 1) * (v - mean)

    mean: Array = jax.lax.fori_loop(0, STEPS, step, (w, w))[1]
    return mean


def uniform_in_ball(key: Key, shape: tuple[int, ...], radius: Array, dtype: jnp.dtype) -> Array:
    """Rows uniform in the ball of that radius; a row does not depend on how many there are."""
    direction, length = jax.random.split(key)
    v = jax.random.normal(direction, shape, dtype)
    u = jax.random.uniform(length, shape[:-1], dtype)
    size = u ** (1.0 / shape[-1]) / jnp.maximum(jnp.linalg.norm(v, axis=-1), 1e-30)
    return radius.astype(dtype) * size[..., None] * v


# --- transforms of an estimator --------------------------------------------------------------------


@made
def moreau(estimator: Estimator) -> Estimator:
    """The estimator on the Moreau envelope of every example's loss."""

    def kernel(model: Model, hp: Hyper) -> Kernel:
        return moreau_kernel(model, hp["moreau"])

    return _smoothed(estimator, estimator.gradient._replace(kernel=kernel), BETA)


@made
def convolution(estimator: Estimator) -> Estimator:
    """``grad f(x + v_ij, .)``, v_ij uniform in the ball of radius s, fresh for every row and round.

    Its mean is the gradient of ``f_s(x) = E f(x + v)`` [Kulkarni, Lee, Liu, 2021].
    """

    def jitter(key: Key, rows: int, x: Array, hp: Hyper) -> Array:
        return uniform_in_ball(key, (rows, x.size), hp["spread"], x.dtype)

    return _smoothed(estimator, estimator.gradient._replace(jitter=jitter), RADIUS)


def _smoothed(estimator: Estimator, gradient: Gradient, param: Param) -> Estimator:
    sensitivity = estimator.sensitivity if estimator.points == 1 else None  # no snapshot
    params = (*estimator.params, param)
    return estimator._replace(gradient=gradient, sensitivity=sensitivity, params=params)
