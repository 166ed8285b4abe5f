"""Exact loss, gradient and accuracy of a problem, in bounded memory."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxfl.clipping import evaluate
from jaxfl.types import Array, Model, Problem, PyTree, Term

__all__ = ["evaluate_metrics", "full_gradient"]

ROWS = 2048  # examples whose activations are held together
NUMBERS = 1 << 22  # numbers that a block of per-example factors may hold


def evaluate_metrics(problem: Problem, x: Array, rows: int = ROWS) -> dict[str, Array]:
    """The state of a run at x, with ``r`` the regularizer and ``f_i(x) = mean_j f_ij(x) + r(x)``.

    ========================  =====================================================================
    ``loss``                  ``f(x) = mean_i f_i(x)``, clients weighted equally
    ``grad_norm_sq``          ``||grad f(x)||^2``, no clipping
    ``client_loss``           (n,), ``f_i(x)``
    ``worst_client_loss``     ``max_i f_i(x)``
    ``accuracy``              mean over clients of the share of their examples that is right
    ``client_accuracy``       (n,)
    ``worst_client_accuracy`` the least of them
    ``test_loss``             mean of the loss over test examples, without r
    ``test_accuracy``         share of the test examples that is right
    ========================  =====================================================================

    Accuracies exist where the model can be right, ``test_*`` where there are test data.
    """
    model, n, m = problem.model, problem.n, problem.m_max
    count = problem.count.astype(x.dtype)
    live = jnp.arange(m)[None] < problem.count[:, None]
    flat = jax.tree.map(lambda a: a.reshape(n * m, *a.shape[2:]), problem.train)
    share = jnp.where(live, 1 / (n * count[:, None]), 0).reshape(-1)
    losses, right, grad = sums(model, x, flat, share, rows)

    r, grad_r = jax.value_and_grad(model.regularizer)(x)

    def means(values: Array) -> Array:
        return jnp.sum(jnp.where(live, values.reshape(n, m), 0), axis=1) / count

    client_loss = means(losses) + r
    metrics = {
        "loss": jnp.mean(client_loss),
        "grad_norm_sq": jnp.sum((grad + grad_r) ** 2),
        "client_loss": client_loss,
        "worst_client_loss": jnp.max(client_loss),
    }
    if right is not None:
        client_accuracy = means(right)
        metrics["accuracy"] = jnp.mean(client_accuracy)
        metrics["client_accuracy"] = client_accuracy
        metrics["worst_client_accuracy"] = jnp.min(client_accuracy)
    if problem.test is not None:
        losses, right, _ = sums(model, x, problem.test, None, rows)
        metrics["test_loss"] = jnp.mean(losses)
        if right is not None:
            metrics["test_accuracy"] = jnp.mean(right)
    return metrics


def sums(
    model: Model, x: Array, examples: PyTree, weight: Array | None, rows: int
) -> tuple[Array, Array | None, Array]:
    """Losses and correctness of all examples, and ``grad sum_j weight_j f_j(x)`` (0 if None)."""
    N = jax.tree.leaves(examples)[0].shape[0]
    size = even(N, rows)

    def block(x: Array, batch: PyTree, w: Array | None) -> tuple[Array, tuple[Array, Array | None]]:
        losses = jax.vmap(model.loss, (None, 0))(x, batch)
        right = None
        if model.correct is not None:
            right = jax.vmap(model.correct, (None, 0))(x, batch).astype(x.dtype)
        return jnp.zeros((), x.dtype) if w is None else w @ losses, (losses, right)

    def step(k: Array, carry: PyTree) -> PyTree:
        # The last block starts early to be full; rows seen twice count once.
        start = jnp.minimum(k * size, N - size)
        batch = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, size), examples)
        losses, right, grad = carry
        if weight is None:
            _, (l, c) = block(x, batch, None)
        else:
            w = jax.lax.dynamic_slice_in_dim(weight, start, size)
            w = jnp.where(start + jnp.arange(size) >= k * size, w, 0)
            (_, (l, c)), g = jax.value_and_grad(block, has_aux=True)(x, batch, w)
            grad = grad + g
        losses = jax.lax.dynamic_update_slice_in_dim(losses, l, start, 0)
        if c is not None:
            right = jax.lax.dynamic_update_slice_in_dim(right, c, start, 0)
        return losses, right, grad

    zeros = jnp.zeros(N, x.dtype)
    start = zeros, None if model.correct is None else zeros, jnp.zeros_like(x)
    result: tuple[Array, Array | None, Array] = jax.lax.fori_loop(0, -(-N // size), step, start)
    return result


def full_gradient(problem: Problem, x: Array, bound: Array, numbers: int = NUMBERS) -> Array:
    """``h_i = mean_j clip(grad f_ij(x), bound)`` for every client, (n, d); no regularizer.

    Clients go one after the other (products that are batched over clients are several times slower
    on CPUs), large ones in blocks of rows that hold about ``numbers`` numbers.
    """
    kernel, m = problem.model.kernel, problem.m_max
    each = kernel.width + sum(math.prod(a.shape[2:]) for a in jax.tree.leaves(problem.train))
    size = even(m, max(1, numbers // each))
    term = Term(1.0, (x,), (1.0,), bound)

    def client(i: Array) -> Array:
        count = problem.count[i]

        def step(k: Array, h: Array) -> Array:
            start = jnp.minimum(k * size, m - size)
            j = start + jnp.arange(size)
            batch = jax.tree.map(
                lambda a: jax.lax.dynamic_slice(
                    a, (i, start, *(0,) * (a.ndim - 2)), (1, size, *a.shape[2:])
                )[0],
                problem.train,
            )
            weight = jnp.where((j >= k * size) & (j < count), 1 / count.astype(x.dtype), 0)
            return h + evaluate(kernel, (term,), weight, batch)[0]

        h: Array = jax.lax.fori_loop(0, -(-m // size), step, jnp.zeros_like(x))
        return h

    h: Array = jax.lax.map(client, jnp.arange(problem.n))
    return h


def even(total: int, size: int) -> int:
    """The length of equal blocks, ``size`` at most, that cover ``total`` with least overlap."""
    return -(-total // -(-total // size))
