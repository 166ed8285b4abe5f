"""Derivatives of loops of traced length and of numbers made from bits, and errors where there are none.

A user may differentiate a loop over :meth:`jaxfl.Functions.round`.  What JAX cannot differentiate, or
would give the derivative 0, has its own rule here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from jaxfl.core.errors import InputError
from jaxfl.core.types import Array, PyTree

__all__ = ["loop", "no_derivative", "pushed"]


def loop(stop: Array, most: int | None, body: Callable[..., PyTree], start: PyTree) -> PyTree:
    """``fori_loop(0, stop, body, start)`` with derivatives, those of a scan of ``most`` steps.

    They are NaN if ``stop`` is above ``most``; without ``most`` there are none in reverse mode.
    """
    if most is None:
        return jax.lax.fori_loop(0, stop, body, start)
    stop = jnp.asarray(stop, jnp.int32)
    program, shape = jax.make_jaxpr(body, return_shape=True)(stop, start)
    tree: Any = jax.tree.structure(shape)

    def closed(i: Array, carry: PyTree, *held: Array) -> PyTree:
        return tree.unflatten(jax.core.eval_jaxpr(program.jaxpr, held, i, *jax.tree.leaves(carry)))

    return _loop(closed, most, stop, start, tuple(program.consts))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _loop(
    body: Callable[..., PyTree], most: int, stop: Array, start: PyTree, held: tuple[Any, ...]
) -> PyTree:
    return jax.lax.fori_loop(0, stop, lambda i, carry: body(i, carry, *held), start)


def _derivative(body: Callable[..., PyTree], most: int, primals: Any, tangents: Any) -> Any:
    def slow(stop: Array, start: PyTree, held: tuple[Any, ...]) -> PyTree:
        def step(carry: PyTree, i: Array) -> tuple[PyTree, None]:
            new = body(i, carry, *held)
            return jax.tree.map(lambda a, b: jnp.where(i < stop, a, b), new, carry), None

        return jax.lax.scan(step, start, jnp.arange(most, dtype=jnp.int32))[0]

    out, change = pushed(slow, primals, tangents)
    late = primals[0] > most
    inexact = [jnp.issubdtype(a.dtype, jnp.inexact) for a in jax.tree.leaves(out)]
    leaves, tree = jax.tree.flatten(change)
    leaves = [jnp.where(late, jnp.nan, a) if f else a for f, a in zip(inexact, leaves, strict=True)]
    return out, jax.tree.unflatten(tree, leaves)


_loop.defjvp(_derivative, symbolic_zeros=True)


def pushed(f: Callable[..., PyTree], primals: Any, tangents: Any) -> tuple[PyTree, PyTree]:
    """``jax.jvp`` in the inputs that vary: 0 times an infinite clip would be NaN."""
    tree: Any
    given, tree = jax.tree.flatten(tuple(primals))
    changes = tree.flatten_up_to(tuple(tangents))
    fixed = [isinstance(change, SymbolicZero) for change in changes]

    def moved(*some: Array) -> PyTree:
        rest = iter(some)
        leaves = [a if still else next(rest) for a, still in zip(given, fixed, strict=True)]
        return f(*tree.unflatten(leaves))

    left = [(a, d) for a, d, still in zip(given, changes, fixed, strict=True) if not still]
    values, directions = zip(*left, strict=True)
    return jax.jvp(moved, values, directions)


def no_derivative(v: Array, problem: str, remedy: str) -> Array:
    """``v``, of which a derivative raises a sentence: it would be 0, or that of one side of a jump."""
    same: Array = _none(problem, remedy, v)
    return same


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _none(problem: str, remedy: str, v: Array) -> Array:
    return v


@_none.defjvp
def _(problem: str, remedy: str, primals: Any, tangents: Any) -> Any:
    raise InputError(problem, remedy)
