"""Products of samples with models, in the order in which CPUs multiply fastest.

On CPUs a product that reads columns is slow, and the compiler copies a whole batch to avoid it.  All
orders give the same sum; the barriers keep the compiler from replacing one by another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxfl.core.fusion import on_cpus, on_gpus
from jaxfl.core.params import choice
from jaxfl.core.types import Array

__all__ = [
    "EXACT",
    "crossed",
    "exact",
    "outputs",
    "precision",
    "summed",
    "summed_at",
    "totals",
    "totals_at",
]

# Accelerators may round the inputs of a product to three digits; a clipped norm would exceed G.
EXACT = jax.lax.Precision.HIGHEST
PRECISIONS = ("default", "highest")
TALL = 512  # rows from which the other factor is faster on the left
PART = 128  # the most rows of a part of a sum
LOW = 32  # rows up to which CPUs compute single entries of a product faster than all; TPUs never do
LONG = 1 << 12  # numbers of a sum from which CPUs read some of them faster than they compute all
UNROLLED = 16  # rows whose products CPUs add in one loop
SPARSE = 12  # entries of a product for each one that is wanted, from which these alone are computed
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


def in_parts(w: Array, a: Array) -> Array:
    """:func:`total`, which GPUs add up in enough parts to read gathered samples where they are."""
    size = next((s for s in range(PART, PART // 8, -1) if a.shape[0] % s == 0), 0)
    if not size:
        return total(w, a)
    products = barrier(w)[:, None] * a
    if size == a.shape[0]:
        return products.sum(axis=0)
    return barrier(products.reshape(-1, size, a.shape[1]).sum(axis=1)).sum(axis=0)


#: ``a x``, for samples a (b, d) and a model x (d,).
outputs = of_many(output, on_cpus(lambda X, a: barrier(a @ barrier(X.T)).T, lambda X, a: X @ a.T))

#: ``w' a``, for weights w (b,) and samples a (b, d).
totals = of_many(
    on_gpus(in_parts, total),
    on_cpus(lambda W, a: barrier(jnp.matmul(a.T, barrier(W.T), precision=EXACT)).T, total),
)


def totals_at(w: Array, a: Array, index: Array) -> Array:
    """``w' a`` at these indices."""

    def read(w: Array, a: Array, index: Array) -> Array:
        return jnp.matmul(w, a[:, index], precision=EXACT)

    def whole(w: Array, a: Array, index: Array) -> Array:
        return totals(w, a)[index]

    index = jnp.minimum(index, a.shape[1] - 1)
    if a.shape[1] < SPARSE * index.size:
        return whole(w, a, index)
    here = read if a.shape[1] >= LONG else whole
    found: Array = jax.lax.platform_dependent(w, a, index, cpu=here, tpu=whole, default=read)
    return found


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


def summed(u: Array | None, v: Array) -> Array:
    """``u' v`` row by row, for u (b, p) and v (b, q); without u, which is then 1, the sum of v."""
    return v.sum(axis=0) if u is None else crossed(v, u).reshape(-1)


def summed_at(parts: Sequence[tuple[Array | None, Array]], index: Array) -> Array:
    """The numbers at these indices of all :func:`summed` parts, one after the other.

    Of large products no others are computed; CPUs compute all of tall ones.
    """

    def of_all(index: Array) -> Array:
        return jnp.concatenate([summed(u, v) for u, v in parts])[index]

    def of_some(index: Array) -> Array:
        before, rest, dense = 0, index, []
        found = jnp.zeros(index.shape, parts[0][1].dtype)
        for (u, v), size, whole in zip(parts, sizes, few, strict=True):
            if whole or u is None:
                dense.append(summed(u, v))
            else:
                place = index - before
                inside = (place >= 0) & (place < size)
                found = jnp.where(inside, _entries(u, v, jnp.where(inside, place, 0)), found)
                rest = jnp.where(place >= size, rest - size, jnp.where(inside, -1, rest))
            before += size
        if not dense:
            return found
        small = jnp.concatenate(dense)
        return jnp.where(rest >= 0, small[jnp.maximum(rest, 0)], found)

    sizes = [v.shape[1] * (1 if u is None else u.shape[1]) for u, v in parts]
    few = [size < SPARSE * index.size for size in sizes]
    index = jnp.minimum(index, sum(sizes) - 1)
    here = of_some if parts[0][1].shape[0] <= LOW else of_all
    at: Array = on_cpus(here, of_some)(index)
    return at


def _entries(u: Array, v: Array, place: Array) -> Array:
    """Entries of ``u' v``, numbered row by row."""

    def read(row: Array, column: Array) -> Array:
        def add(total: Array, some: tuple[Array, ...]) -> tuple[Array, None]:
            for a, b in zip(*some, strict=True):
                total = total + a[row] * b[column]
            return total, None

        whole = u.shape[0] // UNROLLED * UNROLLED
        many = tuple(w[:whole].reshape(-1, UNROLLED, w.shape[1]) for w in (u, v))
        total, _ = jax.lax.scan(add, jnp.zeros(place.shape, v.dtype), many)
        return add(total, (u[whole:], v[whole:]))[0]

    def fused(row: Array, column: Array) -> Array:
        return jnp.sum(u[:, row] * v[:, column], axis=0)

    def whole(row: Array, column: Array) -> Array:
        return crossed(v, u)[row, column]

    row, column = place // v.shape[1], place % v.shape[1]
    found: Array = jax.lax.platform_dependent(row, column, cpu=read, tpu=whole, default=fused)
    return found
