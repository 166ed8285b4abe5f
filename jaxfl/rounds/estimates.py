"""Clients' estimates: one evaluation per block where only the mean matters, else one per client.

Packing: a client's Poisson batch needs about twice as many slots as rows, or it overflows too often.
The total over all clients varies less.  On CPUs a round therefore reads the rows of all clients one
after the other, in strips of about the mean total: nearly always one strip, and more if it is too
short.  Accelerators multiply empty slots in less time than a loop of unknown length takes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxfl.core.derivatives import loop
from jaxfl.core.fusion import materialized, on_cpus, on_gpus, read_at, summable
from jaxfl.core.products import exact
from jaxfl.core.types import Array, Draw, Hyper, Key, PyTree, Sampler
from jaxfl.data.samples import samples
from jaxfl.parts.gradients import evaluated, in_factors
from jaxfl.parts.storage import recalled, unpacked
from jaxfl.problems.clipping import clip
from jaxfl.problems.parameters import by_leaf
from jaxfl.rounds import blocks
from jaxfl.rounds.blocks import ClientBlock, Estimate, RoundContext, Some, Work
from jaxfl.rounds.body import Body

__all__ = [
    "draw_rows",
    "follow",
    "mean_estimate",
    "own_estimate",
    "reread",
    "strip",
    "strips",
    "work_of",
]

EVEN = 256  # rows that GPUs multiply without adding empty ones, in up to 64 parts
WASTE = 0.05  # the most of empty ones
SPARE = 4.0  # standard deviations of a strip above the mean


def draw_rows(sampler: Sampler, key: Key, t: Array, who: ClientBlock, m: int, hp: Hyper) -> Draw:
    """The samples that each client of the block draws in round t."""
    keys = materialized(jax.vmap(jax.random.fold_in, (None, 0))(key, who.index), t)
    rows = jax.vmap(lambda key, count: sampler.draw(key, t, count, m, hp))(keys, who.count)
    if rows.index is not None:
        rows = rows._replace(index=materialized(rows.index, t))
    return rows._replace(weight=rows.weight.astype(who.weight.dtype))


def work_of(body: Body, context: RoundContext, who: ClientBlock) -> Work:
    """The samples of each client of the block, and its memory of them."""
    keys, t, hp, problem = context.keys, context.t, context.hp, context.problem
    rows = draw_rows(body.estimator.sampler, keys.rows, t, who, problem.m_max, hp)
    batch = blocks.take(problem.train, who, rows)
    table = body.estimator.memory.table
    stored = None if table is None else jax.vmap(table.recall)(who.local, rows)
    work = Work(rows, batch, who.base, reread(body, context, stored, batch))
    jitter = context.point.jitter
    if jitter is None:
        return work
    (points,) = blocks.client_keys([keys.points], who.index, t)
    b = rows.weight.shape[1]
    return work._replace(offset=jax.vmap(lambda key: jitter(key, b))(points))


def reread(body: Body, context: RoundContext, table: PyTree, batch: PyTree) -> PyTree:
    """Rows of a table as the round uses them; storage may have rounded them."""
    if table is None or body.storage == "exact":
        return table
    one = functools.partial(recalled, context.point.kernel, context.point.terms[0].bound)
    return jax.vmap(one)(unpacked(table, context.x.dtype), batch)


def mean_estimate(
    body: Body, context: RoundContext, who: ClientBlock, work: Work
) -> tuple[Array, PyTree]:
    """sum_i weight_i g_i in one evaluation over the samples of all clients of the block."""
    memory = body.estimator.memory
    if memory.table is not None or memory.follow is not None or work.offset is not None:
        return whole_estimate(context, who, work)

    def whole(who: ClientBlock, work: Work) -> Array:
        return whole_estimate(context, who, work)[0]

    def packed(who: ClientBlock, work: Work) -> Array:
        return packed_estimate(context, who, work)

    even = on_gpus(lambda who, work: even_estimate(context, who, work), whole)
    total: Array = on_cpus(packed if body.packs else whole, even)(who, work)
    return total, None


def whole_estimate(context: RoundContext, who: ClientBlock, work: Work) -> tuple[Array, PyTree]:
    """:func:`mean_estimate` over all slots, of which some may be empty."""
    weight = who.weight[:, None] * work.rows.weight
    batch, stored, offset = flat((work.batch, work.stored, work.offset))
    total, factors = evaluated(
        context.point, weight.reshape(-1), batch, stored=stored, offset=offset
    )
    if work.base is not None:
        total = total + exact(who.weight, work.base)
    return total, jax.tree.map(lambda a: a.reshape(*weight.shape, *a.shape[1:]), factors)


def even_estimate(context: RoundContext, who: ClientBlock, work: Work) -> Array:
    """:func:`whole_estimate` with some empty slots more, where GPUs would copy all samples to add them."""
    rows, size = work.rows, work.rows.weight.size
    more = -size % EVEN
    if rows.index is None or not 0 < more < size * WASTE:
        return whole_estimate(context, who, work)[0]
    weight = (who.weight[:, None] * rows.weight).reshape(-1)
    clients = jnp.repeat(who.index, rows.weight.shape[1])
    clients, index = (jnp.pad(a.reshape(-1), (0, more), "edge") for a in (clients, rows.index))
    batch = samples(context.problem.train, clients, index)
    total = evaluated(context.point, jnp.pad(weight, (0, more)), batch)[0]
    return total if work.base is None else total + exact(who.weight, work.base)


def packed_estimate(context: RoundContext, who: ClientBlock, work: Work) -> Array:
    """:func:`mean_estimate` over packed rows, with few empty slots."""

    def part(i: Array, rows: Draw) -> Array:
        assert rows.index is not None
        batch = samples(context.problem.train, who.index[i], rows.index)
        return evaluated(context.point, who.weight[i] * rows.weight, batch)[0]

    clients, slots = work.rows.weight.shape
    length = strip(clients * context.hp.caps.get("mean_batch", slots), clients * slots)
    total = strips(work.rows, length, part, context.x)
    return total if work.base is None else total + exact(who.weight, work.base)


def own_estimate(body: Body, context: RoundContext) -> Estimate:
    """One client's g_i, the factors of its gradients, and some of its coordinates."""

    def estimate(_: Key, work: Work) -> tuple[Array, PyTree, Some | None]:
        weight, batch, kernel = work.rows.weight, work.batch, context.point.kernel
        factors, first = in_factors(context.point, batch, work.stored, work.offset)
        added = [] if work.base is None else [work.base]
        if not body.regularizer_apart:
            added.append(context.point.public)

        def some(index: Array) -> Array:
            assert kernel.coordinates is not None
            g = kernel.coordinates(weight, factors, batch, index)
            return sum((read_at(v, index, context.t) for v in added), g)

        g = kernel.contract(weight, factors, batch)
        g = sum(added, summable(g, functools.partial(by_leaf, context.problem.model)))
        if body.clip != "example":
            return clip(g, context.hp["clip"], kernel.smooth), first, None
        return g, first, None if kernel.coordinates is None else some

    return estimate


def follow(
    body: Body, context: RoundContext, who: ClientBlock, work: Work, factors: PyTree
) -> tuple[Array | None, Array | None]:
    """The new ``base_i + sum_j u_j (c_j - stored_j)`` of each client, or the change of their mean."""
    weights = body.estimator.memory.follow
    if weights is None:
        return None, None
    kernel = context.point.kernel
    u = jax.vmap(weights)(work.rows, who.count)

    def step(u: Array, batch: PyTree, new: PyTree, old: PyTree) -> Array:
        new = new if old is None else kernel.combine((1.0, -1.0), (new, old))
        return kernel.contract(u, new, batch)

    parts = work.batch, factors, work.stored
    if body.pooled:
        return None, step((who.weight[:, None] * u).reshape(-1), *flat(parts))
    assert who.base is not None
    return who.base + jax.vmap(step)(u, *parts), None


def flat(tree: PyTree) -> PyTree:
    """Rows of all clients one after the other."""
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), tree)


# --- packing -------------------------------------------------------------------------------------


def strip(mean: float, slots: int) -> int:
    """The length of a strip, for ``slots`` that hold ``mean`` rows on average."""
    return min(slots, math.ceil(mean + SPARE * math.sqrt(mean)))


def strips(rows: Draw, length: int, f: Callable[[Array, Draw], Array], like: Array) -> Array:
    """The sum of ``f(who, rows)`` over strips of live rows; ``who`` (L,) are the rows' clients.

    The live slots of a client come before its dead ones.  Sums have the shape and dtype of ``like``.
    """
    count = jnp.sum(rows.weight > 0, axis=1, dtype=jnp.int32)
    end = jnp.cumsum(count)
    clients, slots = rows.weight.shape

    def add(k: Array, total: Array) -> Array:
        place = k * length + jnp.arange(length, dtype=jnp.int32)
        who = jnp.searchsorted(end, place, side="right").astype(jnp.int32)
        who = jnp.minimum(who, clients - 1)
        slot = jnp.clip(place - (end - count)[who], 0, slots - 1)
        weight = jnp.where(place < end[-1], rows.weight[who, slot], 0)
        assert rows.index is not None
        return total + f(who, Draw(rows.index[who, slot], weight))

    most = -(-clients * slots // length)
    total: Array = loop((end[-1] + length - 1) // length, most, add, jnp.zeros_like(like))
    return total
