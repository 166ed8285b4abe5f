"""Clients in blocks of bounded memory, their keys and their samples."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from jaxfl.core.fusion import materialized, on_cpus
from jaxfl.core.keys import at
from jaxfl.core.threefry import straight
from jaxfl.core.types import Array, Draw, Hyper, Info, Key, Pace, Problem, PyTree
from jaxfl.data.samples import samples
from jaxfl.parts.gradients import Point
from jaxfl.problems.metrics import even

__all__ = [
    "Block",
    "ClientBlock",
    "Estimate",
    "Keys",
    "RoundContext",
    "Some",
    "Work",
    "client_keys",
    "paced",
    "put",
    "start",
    "stream",
    "streams",
    "take",
]

Block: TypeAlias = tuple[PyTree, PyTree, PyTree, Info]  # totals, memory, links, counts
Some: TypeAlias = Callable[[Array], Array]
"""The numbers of a vector at these indices."""
Estimate: TypeAlias = Callable[[Key, Any], tuple[Array, PyTree, Some | None]]
"""One client's estimate and other results, from the key of its noise and its work; and some of its numbers
for less work than all, where there is such a way."""


class Keys(NamedTuple):
    """One stream per purpose; clients and rounds fold in their numbers."""

    start: Key
    clients: Key
    rows: Key
    noise: Key
    mean_noise: Key
    mask: Key
    refresh: Key
    server: Key
    pairs: Key  # secrets that two clients share
    begin: Key  # an estimator's draws before a round
    points: Key  # displacements of the points of rows


class RoundContext(NamedTuple):
    """The inputs that all clients of a round share."""

    keys: Keys
    t: Array
    cohort: Draw
    x: Array
    shared: PyTree
    evaluated: (
        Point | None
    )  # where the estimator's gradients are; None where a local procedure runs
    unit: Array | None  # by which the noise is multiplied; None: 1
    problem: Problem
    hp: Hyper
    rate: Array  # r/n

    @property
    def point(self) -> Point:
        """The point of the estimator's gradients; no local procedure runs."""
        assert self.evaluated is not None
        return self.evaluated

    def noise_key(self, me: ClientBlock) -> Key:
        """The key of the noise of one client in this round."""
        return jax.random.fold_in(at(self.keys.noise, self.t), me.index)


class ClientBlock(NamedTuple):
    """The clients of a round, or of a block of it; leaves (r, ...)."""

    index: Array  # type: ignore[assignment]  # tuples have methods of these names
    weight: Array
    count: Array  # type: ignore[assignment]
    train: PyTree  # their samples, where a draw takes all of them; None where it gathers some
    local: PyTree
    link: PyTree
    base: Array | None = None


class Work(NamedTuple):
    """The samples and the memory that clients of a block read; leaves (r, b, ...), ``base`` (r, d)."""

    rows: Draw
    batch: PyTree
    base: Array | None
    stored: PyTree
    offset: Array | None = None  # (r, b, d): displacements of the points of the rows


def streams(key: Key) -> Keys:
    """The streams of the run with this key."""
    return Keys(*jax.random.split(straight(key), len(Keys._fields)))


def paced(pace: Pace | None, keys: Keys, t: Array, hp: Hyper) -> Hyper:
    """The hyper-parameters of round t, by their schedules and by the estimator's pace."""
    hp = hp.at(t)
    if pace is None:
        return hp
    return Hyper({**hp.values, **pace(at(keys.begin, t), t, hp)}, hp.capacity)


def start(key: Key, problem: Problem) -> Array:
    """The initial point: the problem's own, or the model's for this key."""
    return problem.model.init(streams(key).start) if problem.x0 is None else problem.x0


def client_keys(streams: list[Key], index: Array, t: Array) -> Key:
    """One key per stream and client, for this round."""
    now = jax.vmap(at, (0, None))(jnp.stack(streams), t)
    return materialized(jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(now, index), t)


def take(train: PyTree, who: ClientBlock, rows: Draw) -> PyTree:
    """The drawn samples of one client, leaves (b, ...), or of several, (r, b, ...)."""
    if rows.index is not None:
        return samples(train, who.index[..., None], rows.index)
    if who.train is None:
        return samples(train, who.index[..., None], jnp.arange(rows.weight.shape[-1]))
    return who.train


def put(cohort: Draw, old: PyTree, new: PyTree) -> PyTree:
    """``old`` with the cohort's rows replaced by ``new``."""
    if cohort.index is None:
        return new
    return jax.tree.map(lambda a, v: a.at[cohort.index].set(v, mode="drop"), old, new)


def stream(
    block: Callable[[ClientBlock], Block], who: ClientBlock, sizes: tuple[int, int]
) -> Block:
    """``block`` over clients, so many at a time: sums of totals and counts, and all memories.

    ``sizes`` are the most clients of a block on CPUs, and elsewhere.
    Links are updated in place.
    """
    r = who.index.shape[0]
    small, large = (even(r, min(r, size)) for size in sizes)
    if small == large:
        return in_blocks(block, who, small)
    result: Block = on_cpus(
        functools.partial(in_blocks, block, size=small),
        functools.partial(in_blocks, block, size=large),
    )(who)
    return result


def in_blocks(block: Callable[[ClientBlock], Block], who: ClientBlock, size: int) -> Block:
    """:func:`stream` with blocks of one size; a smaller last one would be a program of its own."""
    r = who.index.shape[0]
    if r == size:
        return block(who)
    whole = r // size
    head = jax.tree.map(
        lambda a: a[: whole * size].reshape(whole, size, *a.shape[1:]), who._replace(link=None)
    )

    def step(carry: PyTree, here: ClientBlock, start: Array | int) -> tuple[PyTree, PyTree]:
        sums, links = carry

        def cut(a: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(a, start, here.index.size)

        def put(a: Array, v: Array) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(a, v, start, 0)

        here = here._replace(link=jax.tree.map(cut, links))
        totals, memory, now, counts = block(here)
        sums = jax.tree.map(jnp.add, sums, (totals, counts))
        return (sums, jax.tree.map(put, links, now)), memory

    def whole_block(carry: PyTree, part: tuple[Array, ClientBlock]) -> tuple[PyTree, PyTree]:
        k, here = part
        # a loop that reads the whole list for each entry of a sample is not vectorized
        return step(carry, here._replace(index=materialized(here.index, k)), k * size)

    shapes = jax.eval_shape(lambda: block(jax.tree.map(lambda a: a[:size], who)))
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), (shapes[0], shapes[3]))
    carry, memory = jax.lax.scan(whole_block, (zero, who.link), (jnp.arange(whole), head))
    memory = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), memory)
    if whole * size < r:
        rest = jax.tree.map(lambda a: a[whole * size :], who._replace(link=None))
        carry, last = step(carry, rest, whole * size)
        memory = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), memory, last)
    (totals, counts), links = carry
    return totals, memory, links, counts
