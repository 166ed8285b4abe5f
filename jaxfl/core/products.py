"""Products of samples with models, in the order in which CPUs multiply fastest.

On CPUs a product that reads columns is slow, and the compiler copies a whole batch to avoid it.  All
orders give the same sum; the barriers keep the compiler from replacing one by another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxfl.core.fusion import on_cpus
from jaxfl.core.params import choice
from jaxfl.core.types import Array

__all__ = ["EXACT", "crossed", "exact", "outputs", "precision", "totals"]

# Accelerators may round the inputs of a product to three digits; a clipped norm would exceed G.
EXACT = jax.lax.Precision.HIGHEST
PRECISIONS = ("default", "highest")
TALL = 512  # rows from which the other factor is faster on the left
WIDE = 32  # columns from which a copy of the samples saves time, for any number of rows

Product = Callable[[Array, Array], Array]

barrier: Callable[[Array], Array] = jax.lax.optimization_barrier


def precision(given: str | None = None) -> str:
    """The precision of forward and backward products: the given one, or that of JAX's configuration."""
    if given is None:
        config: Any = jax.config
        return str(config.jax_default_matmul_precision or "default")
    choice("matmul_precision", given, PRECISIONS)
    return given


def of_many(one: Product, many: Product) -> Product:
    """``one(v, a)``; under vmap ``many(V, a)``, if all the vectors v of V meet the same a."""
    product = jax.custom_batching.custom_vmap(one)

    @product.def_vmap
    def _(size: int, batched: list[bool], v: Array, a: Array) -> tuple[Array, bool]:
        if tuple(batched) == (True, False):
            return many(v, a), True
        axes = tuple(0 if b else None for b in batched)
        return jax.vmap(one, axes, axis_size=size)(v, a), True

    # JAX transposes no function with a rule for vmap: derivatives are sums of plain products
    linear = jax.custom_jvp(product)
    linear.defjvps(lambda dv, out, v, a: one(dv, a), lambda da, out, v, a: one(v, da))
    return linear


def output(x: Array, a: Array) -> Array:
    return a @ x if a.shape[0] < TALL else x @ a.T


def total(w: Array, a: Array) -> Array:
    return jnp.matmul(w, a, precision=EXACT)


#: ``a x``, for samples a (b, d) and a model x (d,).
outputs = of_many(output, on_cpus(lambda X, a: barrier(a @ barrier(X.T)).T, lambda X, a: X @ a.T))

#: ``w' a``, for weights w (b,) and samples a (b, d).
totals = of_many(
    total,
    on_cpus(lambda W, a: barrier(jnp.matmul(a.T, barrier(W.T), precision=EXACT)).T, total),
)


def exact(a: Array, b: Array) -> Array:
    """``a b`` of what rounds iterate, where rounded inputs would add up, as in means and in gossip."""
    return jnp.matmul(a, b, precision=EXACT)


def crossed(v: Array, a: Array) -> Array:
    """``a' v``, for samples a (b, d) and numbers v (b, r) of each."""

    def plain(v: Array, a: Array) -> Array:
        return jnp.matmul(a.T, v, precision=EXACT)

    def by_rows(v: Array, a: Array) -> Array:
        return barrier(jnp.matmul(barrier(v.T), a, precision=EXACT)).T

    def copied(v: Array, a: Array) -> Array:
        return jnp.matmul(barrier(a.T), v, precision=EXACT)

    if a.shape[0] < TALL and v.shape[1] < WIDE:
        return plain(v, a)
    product: Product = on_cpus(copied if a.shape[0] < TALL else by_rows, plain)
    return product(v, a)
