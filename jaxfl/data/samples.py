"""The clients' samples, stored in arrays or computed where they are needed."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxfl.core.types import Array, GeneratedSamples, Problem, PyTree

__all__ = [
    "DRAWING",
    "Measured",
    "block",
    "example",
    "few",
    "measured",
    "numbers",
    "plain",
    "samples",
]


DRAWING = 4  # arrays of the samples' size that drawing them needs: keys, bits, numbers, examples


class Measured(NamedTuple):
    """Examples (a_j, y_j), and ``|a_j|^2``."""

    a: Array
    y: Array
    square: Array


def example(train: PyTree) -> PyTree:
    """Shapes and types of one sample."""
    if isinstance(train, GeneratedSamples):
        one = jnp.zeros(1, jnp.int32)
        shapes = jax.eval_shape(train.make, train.source, one, one)
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), shapes)
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[2:], a.dtype), train)


def numbers(train: PyTree) -> int:
    """The number of numbers in one sample."""
    return sum(math.prod(a.shape) for a in jax.tree.leaves(example(train)))


def few(train: GeneratedSamples, most: int) -> int:
    """The number of a client's samples that hold at most ``most`` numbers together; at least 1."""
    return max(1, min(train.m, most // max(1, numbers(train))))


def samples(train: PyTree, i: Array, j: Array) -> PyTree:
    """Samples j of clients i, leaves (..., ·); an index beyond the last gives some other sample."""
    i, j = jnp.broadcast_arrays(i, j)
    if not isinstance(train, GeneratedSamples):
        m = jax.tree.leaves(train)[0].shape[1]
        flat = i * m + jnp.minimum(j, m - 1)
        return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]).at[flat].get(mode="clip"), train)
    j = jnp.minimum(j, train.m - 1)
    generated = train.make(train.source, i.reshape(-1), j.reshape(-1))
    return jax.tree.map(lambda a: a.reshape(*i.shape, *a.shape[1:]), generated)


def block(train: PyTree, i: Array, j: Array, wide: int, tall: int) -> PyTree:
    """Samples j, ..., j + tall - 1 of clients i, ..., i + wide - 1, leaves (wide * tall, ·)."""
    i, j = jnp.asarray(i, jnp.int32), jnp.asarray(j, jnp.int32)
    if isinstance(train, GeneratedSamples):
        clients, rows = i + jnp.arange(wide)[:, None], j + jnp.arange(tall)[None]
        part = samples(train, clients, rows)
    else:
        part = jax.tree.map(
            lambda a: jax.lax.dynamic_slice(
                a, (i, j, *(jnp.int32(0),) * (a.ndim - 2)), (wide, tall, *a.shape[2:])
            ),
            train,
        )
    return jax.tree.map(lambda a: a.reshape(wide * tall, *a.shape[2:]), part)


def measured(problem: Problem) -> Problem:
    """The problem with ``|a_ij|^2`` stored with (a_ij, y_ij): rounds need not compute it.

    For rounds only: the samples must not change afterwards.
    """
    if not problem.model.kernel.squares or isinstance(problem.train, GeneratedSamples):
        return problem
    a, y = problem.train
    return dataclasses.replace(problem, train=Measured(a, y, _squares(a)))


def plain(problem: Problem) -> Problem:
    """The problem without what :func:`measured` added."""
    if not isinstance(problem.train, Measured):
        return problem
    return dataclasses.replace(problem, train=(problem.train.a, problem.train.y))


@jax.jit
def _squares(a: Array) -> Array:
    return jnp.sum(a**2, axis=-1)
