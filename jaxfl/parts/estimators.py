"""Local gradient estimators: weightings of per-example gradients, and their memory.

Every per-example gradient is clipped, ``clip(g) = g min(1, G/|g|)``.  With ``clip_examples=False``
the round clips the whole estimate instead (``clip="batch"``); per-example gradients are then clipped
to ``gradient_bound`` where it is given, and a proof may rest on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxfl.core.batching import cond_any
from jaxfl.core.provenance import made
from jaxfl.core.types import (
    Array,
    Draw,
    Estimator,
    Gradient,
    Hyper,
    Key,
    Memory,
    Param,
    Problem,
    PyTree,
    Remembered,
    Sampler,
    Table,
    Term,
    Values,
)
from jaxfl.data.samples import block
from jaxfl.parts.storage import packed, recalled, rounded
from jaxfl.privacy import events
from jaxfl.problems.clipping import evaluate
from jaxfl.problems.metrics import full_gradient, mean_gradient, over_clients

__all__ = ["minibatch", "saga", "svrg"]

CLIP = Param("clip", "bound G on the norm of one example's gradient", open_low=True)
REFRESH = Param(
    "refresh", "probability p that the snapshot moves to the current point", high=1.0, schedule=True
)


def bound(hp: Hyper, clip_examples: bool) -> Array:
    """G; with ``clip_examples=False`` the ``gradient_bound``, or infinity where none is given."""
    G: Array = hp["clip"]
    if not clip_examples:
        G = hp.values.get("gradient_bound", jnp.full_like(G, jnp.inf))
    return G


@made
def minibatch(sampler: Sampler, clip_examples: bool = True) -> Estimator:
    """g_i = sum_j weight_j clip grad f_ij(x): full gradient or minibatch, as the sampler says.

    Every example is clipped.  A body with ``clip="batch"`` or ``clip="client"`` clips g_i as a whole and
    takes ``clip_examples=False``.
    """

    def terms(shared: PyTree, x: Array, hp: Hyper) -> tuple[Term, ...]:
        return (Term(1.0, (x,), (1.0,), bound(hp, clip_examples)),)

    return Estimator(
        "minibatch",
        sampler,
        Gradient(terms),
        params=(CLIP,),
        points=1,
        sensitivity=declared("Mean", clip_examples),
        clips=clip_examples,
    )


@made
def svrg(sampler: Sampler, clip_examples: bool = True) -> Estimator:
    """Loopless SVRG [SoteriaFL, Algorithm 3, option II]::

        g_i = mean_{j in I_b} (clip grad f_ij(x) - clip grad f_ij(w)) + h_i
        h_i = mean_j clip grad f_ij(w)
        w <- x with probability p, one coin for all clients;  w_0 = x_0

    A coin that moves w costs a full pass over the data.
    """

    def init(problem: Problem, x: Array, hp: Hyper, pooled: bool, storage: str) -> Remembered:
        h = (mean_gradient if pooled else full_gradient)(problem, x, bound(hp, clip_examples))
        return Remembered(shared=x, base=h, gradients=jnp.sum(problem.count))

    def terms(w: Array, x: Array, hp: Hyper) -> tuple[Term, ...]:
        G = bound(hp, clip_examples)
        return Term(1.0, (x,), (1.0,), G), Term(-1.0, (w,), (1.0,), G)

    def refresh(
        key: Key, w: Array, h: Array, x: Array, problem: Problem, hp: Hyper
    ) -> tuple[Array, Array, Array]:
        coin = jax.random.uniform(key) < hp["refresh"]
        gradient = mean_gradient if h.ndim == 1 else full_gradient

        def move(x: Array, problem: Problem, G: Array) -> PyTree:
            return x, gradient(problem, x, G)

        w, h = cond_any(coin, move, (w, h), x, problem, bound(hp, clip_examples))
        return w, h, jnp.where(coin, jnp.sum(problem.count), 0)

    return Estimator(
        "svrg",
        sampler,
        Gradient(terms),
        Memory(init, refresh=refresh),
        params=(CLIP, REFRESH),
        points=3,
        sensitivity=declared("svrg", clip_examples),
        clips=clip_examples,
    )


@made
def saga(sampler: Sampler, clip_examples: bool = True) -> Estimator:
    """SAGA [SoteriaFL, Algorithm 3, option III; Defazio et al., 2014]::

        g_i = mean_{j in I_b} (clip grad f_ij(x) - c_ij) + h_i,  h_i = mean_j c_ij
        c_ij <- clip grad f_ij(x) for j in I_b;  c_ij = clip grad f_ij(x_0) at first

    The table holds the kernel's factors of c_ij: one number per sample of a scalar linear model,
    activations and deltas of a network, whole gradients of other models.  Where it is stored in fewer
    bits, c_ij is the row as it is read and clipped again, and h_i the mean of these.
    """

    def init(problem: Problem, x: Array, hp: Hyper, pooled: bool, storage: str) -> Remembered:
        kernel, m = problem.model.kernel, problem.m_max
        G = bound(hp, clip_examples)
        live = jnp.arange(m)[None] < problem.count[:, None]
        weight = live / problem.count[:, None].astype(x.dtype)

        term = Term(1.0, (x,), (1.0,), G)

        def client(i: Array) -> tuple[Array, PyTree]:
            batch = block(problem.train, i, jnp.int32(0), 1, m)
            h_i, c_i = evaluate(kernel, (term,), weight[i], batch)
            if storage == "exact":
                return h_i, c_i
            kept = recalled(kernel, G, rounded(c_i, storage), batch)
            return kernel.contract(weight[i], kept, batch), packed(c_i, storage)

        h, table = over_clients(client, problem, x, pooled)
        return Remembered(local=table, base=h, gradients=jnp.sum(problem.count))

    def terms(shared: PyTree, x: Array, hp: Hyper) -> tuple[Term, ...]:
        return (Term(1.0, (x,), (1.0,), bound(hp, clip_examples)),)

    def follow(rows: Draw, count: Array) -> Array:
        # A row drawn twice moves the mean once.
        one = 1 / count.astype(rows.weight.dtype)
        return jnp.where(first_seen(rows, sampler.distinct), one, 0)

    return Estimator(
        "saga",
        sampler,
        Gradient(terms),
        Memory(init, table=Table(recall=read, absorb=write), follow=follow),
        params=(CLIP,),
        points=3,
        sensitivity=declared("saga", clip_examples),
        clips=clip_examples,
    )


def declared(kind: str, clip_examples: bool) -> Callable[[Values], Any]:
    """The sensitivity of that name in :mod:`jaxfl.privacy.events`.

    With ``clip_examples=False`` it rests on ``gradient_bound``.
    """
    make = getattr(events, kind)

    def sensitivity(values: Values) -> Any:
        if clip_examples:
            return make(values["clip"])
        return events.batch_clipped(values.get("gradient_bound"), values["clip"], make)

    return sensitivity


def read(table: PyTree, rows: Draw) -> PyTree:
    """The rows drawn; a dead slot reads some row, with weight 0."""
    if rows.index is None:
        return table
    return jax.tree.map(lambda a: a.at[rows.index].get(mode="clip"), table)


def write(table: PyTree, rows: Draw, new: PyTree) -> PyTree:
    """The table with ``new`` in the live slots' rows."""

    def put(a: Array, v: Array) -> Array:
        if rows.index is None:
            return jnp.where(jnp.expand_dims(rows.weight > 0, tuple(range(1, v.ndim))), v, a)
        return a.at[rows.index].set(v, mode="drop")

    return jax.tree.map(put, table, new)


def first_seen(rows: Draw, distinct: bool) -> Array:
    """Which slots are live and the first to hold their row."""
    live = rows.weight > 0
    if distinct or rows.index is None:
        return live
    slot = jnp.arange(rows.index.size)
    order = jnp.argsort(rows.index, stable=True)
    ordered = rows.index[order]
    new = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    return live & jnp.zeros(slot.shape, bool).at[order].set(new)
