"""The identity of a problem: digests of its data, its objective, and the type of its numbers."""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.hosts import on_host
from jaxfl.core.types import Array, GeneratedSamples, Problem
from jaxfl.data import samples
from jaxfl.problems.clipping import squared_norm
from jaxfl.problems.metrics import NUMBERS, even

__all__ = ["dtype", "fingerprint", "largest_gradient", "objective"]

SUMMED = 1 << 25  # the most entries that are generated for a fingerprint
CLIENTS = 64  # whose generated samples a fingerprint reads, at most, evenly spaced
DIGITS = 16  # of a fingerprint, in base 16


def dtype(problem: Problem) -> Any:
    """The dtype of the model's parameters."""
    if problem.x0 is not None:
        return problem.x0.dtype
    return jax.eval_shape(problem.model.init, jax.random.key(0)).dtype


def fingerprint(problem: Problem) -> str:
    """A digest of the data of a problem, and of its model's frozen parameters."""
    out = hashlib.sha256()
    train = problem.train
    if isinstance(train, GeneratedSamples):  # of some clients, the first and the last among them
        some = np.unique(np.linspace(0, problem.n - 1, CLIENTS).astype(np.int32))
        rows = jnp.arange(samples.few(train, SUMMED // len(some)))
        train = samples.samples(train, jnp.asarray(some)[:, None], rows)
    model, held = problem.model, (problem.test, problem.x0, problem.validation, problem.test_owner)
    frozen = None if model.trained is None else model.unravel(jnp.zeros(model.dim))
    parts = (train, problem.count, *held, problem.weights, frozen)
    for leaf in jax.tree.leaves(parts):
        array = np.ascontiguousarray(on_host(leaf))
        out.update(repr((array.shape, str(array.dtype))).encode())
        out.update(array.tobytes())
    return out.hexdigest()[:DIGITS]


def objective(problem: Problem) -> str:
    """Loss, regularizer and constraint at one arbitrary point, by which problems differ."""
    model = problem.model
    x = jnp.sin(jnp.arange(1, model.dim + 1, dtype=dtype(problem)))
    example = samples.samples(problem.train, jnp.int32(0), jnp.int32(0))
    moved = x if model.project is None else model.project(x)
    parts = (model.loss(x, example), model.regularizer(x), jnp.sum(moved * x))
    return " ".join(f"{float(part):.9g}" for part in parts)


@jax.jit
def largest_gradient(problem: Problem, x: Array) -> Array:
    """``max_ij ||grad f_ij(x)||``, the public regularizer left out."""
    kernel, m = problem.model.kernel, problem.m_max
    each = kernel.width + samples.numbers(problem.train)
    size = even(m, max(1, NUMBERS // each))

    def client(i: Array) -> Array:
        def step(k: Array, most: Array) -> Array:
            start = jnp.minimum(k * size, m - size)
            batch = samples.block(problem.train, i, start, 1, size)
            F = kernel.factors(x, batch)
            norm = jnp.sqrt(jnp.maximum(squared_norm(kernel, F, batch), 0))
            live = start + jnp.arange(size) < problem.count[i]
            return jnp.maximum(most, jnp.max(jnp.where(live, norm, 0)))

        most: Array = jax.lax.fori_loop(0, -(-m // size), step, jnp.zeros((), x.dtype))
        return most

    return jnp.max(jax.lax.map(client, jnp.arange(problem.n)))
