"""Control flow that stays cheap under vmap."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxfl.core.derivatives import pushed
from jaxfl.core.types import Array, PyTree

__all__ = ["cond_any"]


def cond_any(coin: Array, move: Callable[..., PyTree], state: PyTree, *operands: PyTree) -> PyTree:
    """``move(*operands) if coin else state``; under vmap, ``move`` runs for true coins alone.

    Under vmap ``lax.cond`` becomes a select that computes both branches every time.  This batching
    rule keeps a coin that the batch shares, and otherwise visits the members with true coins one
    after the other.  A batch then costs as much as its members one by one.
    """

    def one(coin: Array, state: PyTree, operands: PyTree) -> PyTree:
        return jax.lax.cond(coin, lambda: move(*operands), lambda: state)

    @jax.custom_batching.custom_vmap
    def step(coin: Array, state: PyTree, operands: PyTree) -> PyTree:
        return one(coin, state, operands)

    @step.def_vmap
    def _(size: int, batched: PyTree, coin: Array, state: PyTree, operands: PyTree) -> PyTree:
        state = jax.tree.map(
            lambda a, b: a if b else jnp.broadcast_to(a, (size, *a.shape)), state, batched[1]
        )
        axes = jax.tree.map(lambda b: 0 if b else None, batched[2])

        def together(operands: PyTree) -> PyTree:
            return jax.vmap(lambda o: move(*o), (axes,), axis_size=size)(operands)

        def each(coin: Array, state: PyTree, operands: PyTree) -> PyTree:
            def visit(i: Array, state: PyTree) -> PyTree:
                here = jax.tree.map(lambda a, b: a[i] if b else a, operands, batched[2])
                mine = jax.tree.map(lambda a: a[i], state)
                mine = cond_any(coin[i], move, mine, *here)
                return jax.tree.map(lambda a, v: a.at[i].set(v), state, mine)

            return jax.lax.fori_loop(0, size, visit, state)

        if batched[0]:
            result = cond_any(jnp.any(coin), each, state, coin, state, operands)
        else:
            result = cond_any(coin, together, state, operands)
        return result, jax.tree.map(lambda _: True, state)

    either = jax.custom_jvp(step)  # since JAX transposes no function with a rule for vmap
    either.defjvp(functools.partial(pushed, one), symbolic_zeros=True)
    result: PyTree = either(coin, state, operands)
    return result
