"""Control flow that stays cheap under vmap."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxfl.types import Array, PyTree

__all__ = ["rarely"]


def rarely(coin: Array, move: Callable[..., PyTree], state: PyTree, *operands: PyTree) -> PyTree:
    """``move(*operands) if coin else state``, and under vmap no work unless some coin shows heads.

    A batched predicate turns ``lax.cond`` into a select that pays for both sides every time; the
    batching rule here asks ``any(coin)`` first, at each level of vmap.
    """

    @jax.custom_batching.custom_vmap
    def step(coin: Array, state: PyTree, operands: PyTree) -> PyTree:
        return jax.lax.cond(coin, lambda: move(*operands), lambda: state)

    @step.def_vmap
    def _(size: int, batched: PyTree, coin: Array, state: PyTree, operands: PyTree) -> PyTree:
        axes = jax.tree.map(lambda b: 0 if b else None, batched[2])
        state = jax.tree.map(
            lambda a, b: a if b else jnp.broadcast_to(a, (size, *a.shape)), state, batched[1]
        )

        def some(coin: Array, state: PyTree, operands: PyTree) -> PyTree:
            moved = jax.vmap(lambda o: move(*o), (axes,), axis_size=size)(operands)
            return jax.tree.map(
                lambda new, old: jnp.where(
                    jnp.expand_dims(coin, tuple(range(coin.ndim, old.ndim))), new, old
                ),
                moved,
                state,
            )

        result = rarely(jnp.any(coin), some, state, coin, state, operands)
        return result, jax.tree.map(lambda _: True, state)

    return step(coin, state, operands)
