"""What the compiler had better not fuse.

XLA fuses what makes a number with what reads it.  On CPUs that can make the same number many times
over, or turn a loop that vectors would run into one that goes number by number.  Both functions
here rest on ``min(t, 0)`` being 0 in every round t, which the compiler does not know.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxfl.core.types import Array

__all__ = ["apart", "once"]

LEAST = 1 << 10  # numbers that are worth a loop


def once(a: Array, t: Array) -> Array:
    """The identity on numbers and keys, which XLA will not compute anew for each reader.

    Without it every number of a gathered sample would draw its row again, with 20 rounds of a hash.
    """
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        words = once(jax.random.key_data(a), t)
        keys: Array = jax.random.wrap_key_data(words, impl=jax.random.key_impl(a))
        return keys
    if jnp.issubdtype(a.dtype, jnp.floating):
        bits = jax.lax.bitcast_convert_type(a, jnp.dtype(f"uint{8 * a.dtype.itemsize}"))
        return jax.lax.bitcast_convert_type(once(bits, t), a.dtype)
    one = jnp.minimum(t, 0) + 1
    same: Array = jax.lax.div(a, jnp.broadcast_to(one.astype(a.dtype), a.shape))
    return same


def apart(f: Callable[[], Array], t: Array) -> Array:
    """``f()`` in a loop of one turn, if it has at least :data:`LEAST` numbers."""
    like = jax.eval_shape(f)
    if like.size < LEAST:
        return f()
    zero = jnp.zeros(like.shape, like.dtype)
    made: Array = jax.lax.fori_loop(0, jnp.minimum(t, 0) + 1, lambda *_: f(), zero)
    return made
