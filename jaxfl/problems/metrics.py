"""Loss, gradient and accuracy of a problem, in bounded memory, without noise or clipping."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxfl.core.fusion import LARGEST, on_cpus
from jaxfl.core.types import Array, Model, Problem, PyTree, Term
from jaxfl.data import samples
from jaxfl.problems.clipping import evaluate

__all__ = ["evaluate_metrics", "full_gradient", "mean_gradient", "over_clients"]

CLIENTS = 1 << 14  # the most clients whose metrics are reported one by one
TENTH = 10  # the worst of ten clients count in the metrics of the worst tenth
ROWS = 2048  # examples of a block; the activations of two blocks are in memory together
FEW_ROWS = 512  # the same of linear models, whose products are as fast as the cache that holds them
NUMBERS = 1 << 22  # the most numbers in a block of samples and per-example factors


def evaluate_metrics(problem: Problem, x: Array, rows: int | None = None) -> dict[str, Array]:
    """The state of a run at x, with ``r`` the regularizer and ``f_i(x) = mean_j f_ij(x) + r(x)``.

    ========================  =====================================================================
    ``loss``                  ``f(x) = mean_i w_i f_i(x)``, with the weights of the problem
    ``grad_norm_sq``          ``||grad f(x)||^2``, no clipping
    ``client_loss``           (n,), ``f_i(x)``
    ``worst_client_loss``     ``max_i f_i(x)``
    ``worst_tenth_loss``      mean of the tenth of the f_i(x) that is largest, of 20 clients or more
    ``accuracy``              ``mean_i w_i a_i``, with a_i the share of client i's examples that is right
    ``client_accuracy``       (n,)
    ``worst_client_accuracy`` the least of them
    ``worst_tenth_accuracy``  mean of the tenth of them that is least
    ``accuracy_deviation``    their standard deviation, 0 where all clients fare alike
    ``test_loss``             mean of the loss over test examples, without r
    ``test_accuracy``         share of the test examples that is right
    ``client_test_loss``      (n,), the same over each client's own, NaN for a client without any
    ``client_test_accuracy``  (n,)
    ========================  =====================================================================

    Sums over j are over the records that ``problem.evaluated`` chooses, if not all.
    Accuracies need a model with ``correct``, ``test_*`` need test data, ``validation_*`` a validation
    share of them, and ``client_test_*``, whose worst and deviation are named alike, a ``test_owner``.
    Beyond 16,384 clients there are no metrics of each client.

    On held-out examples (``problem.held``) ``loss`` and ``accuracy`` are means over them, and metrics of
    clients are of each client's own test examples; without a ``test_owner`` there are none.
    """
    model = problem.model
    on, n = problem.held or ("", problem.n)
    owner = None if problem.test_owner is None else problem.test_owner % (n + 1)  # n: of none
    if rows is None:
        rows = FEW_ROWS if model.kernel.width == 1 else ROWS
        rows = max(1, min(rows, NUMBERS // samples.numbers(problem.train)))
    train, most = _read(problem)
    held = jnp.minimum(problem.count, most)
    count = held.astype(x.dtype)
    few = min(rows, max(1, NUMBERS // model.kernel.width)) if model.kernel.convolves else rows
    mine = owner if on == "test" else None
    losses, right, grad = sums(
        model, x, train, held, most, few, weights=problem.weights, owner=mine, n=n
    )
    r, grad_r = jax.value_and_grad(model.regularizer)(x)
    metrics = {}
    for what, total, more in (("loss", losses, r), ("accuracy", right, 0)):
        if total is None:
            continue
        each = total / count + more if mine is None else total[:n] / _owned(mine, n, x) + more
        metrics[what] = jnp.sum(total) / count[0] + more if on else mean(problem, each)
        metrics |= {} if on and mine is None else _over_clients(what, each)
    metrics["grad_norm_sq"] = jnp.sum((grad / problem.n + grad_r) ** 2)
    for name, examples in (("test", problem.test), ("validation", problem.validation)):
        if examples is None:
            continue
        examples = jax.tree.map(lambda a: a[None], examples)
        size = jax.tree.leaves(examples)[0].shape[1]
        N, mine = jnp.full(1, size), owner if name == "test" else None
        losses, right, _ = sums(model, x, examples, N, size, rows, gradient=False, owner=mine, n=n)
        for what, total in (("loss", losses), ("accuracy", right)):
            if total is not None:
                metrics[f"{name}_{what}"] = jnp.sum(total) / N[0].astype(x.dtype)
                if mine is not None:
                    metrics |= _over_clients(f"{name}_{what}", total[:n] / _owned(mine, n, x))
    return metrics


def _owned(owner: Array, n: int, x: Array) -> Array:
    """The number of test examples of each client, (n,)."""
    return jnp.zeros(n + 1, x.dtype).at[owner].add(1)[:n]


def _over_clients(name: str, values: Array) -> dict[str, Array]:
    """One metric of each client, and what summarizes it; clients without a value are NaN."""
    high = not name.endswith("accuracy")
    order = jnp.sort(-values if high else values)  # the worst first, NaN last
    out = {f"worst_client_{name}": order[0]}
    if values.size >= 2 * TENTH:
        held = jnp.sum(~jnp.isnan(values))
        worst = jnp.arange(values.size) < jnp.maximum(held // TENTH, 1)
        out[f"worst_tenth_{name}"] = jnp.sum(jnp.where(worst, order, 0)) / jnp.sum(worst)
    out = {key: -value if high else value for key, value in out.items()}
    if not high:
        out[f"{name}_deviation"] = jnp.nanstd(values)
    return out if values.size > CLIENTS else {**out, f"client_{name}": values}


def mean(problem: Problem, values: Array) -> Array:
    """``mean_i w_i values_i``."""
    return jnp.mean(values if problem.weights is None else problem.weights * values)


def _read(problem: Problem) -> tuple[PyTree, int]:
    """The samples that metrics read, and how many each client has at most."""
    k = problem.evaluated
    if k is None:
        return problem.train, problem.m_max

    def chosen(a: Array, count: Array) -> Array:
        mine = jnp.minimum(count, k)
        i = jnp.arange(k, dtype=jnp.uint32)  # i count / mine, whose numerator may overflow
        part = i * (count % mine).astype(jnp.uint32) // mine.astype(jnp.uint32)
        return a[i.astype(jnp.int32) * (count // mine) + part.astype(jnp.int32)]

    return jax.tree.map(lambda a: jax.vmap(chosen)(a, problem.count), problem.train), k


def sums(
    model: Model,
    x: Array,
    examples: PyTree,
    count: Array,
    longest: int,
    rows: int,
    gradient: bool = True,
    weights: Array | None = None,
    owner: Array | None = None,
    n: int = 0,
) -> tuple[Array, Array | None, Array]:
    """Each client's sum of losses and number of correct examples, and ``sum_i w_i grad mean_j f_ij(x)``.

    ``longest`` is the number of rows of each.  The sums are one number per client: no array over all
    examples exists.  With ``owner``, in 0..n, the rows of the one client belong to n + 1 owners,
    and the sums are theirs.
    """
    held = count.shape[0]
    wide, tall, steps, place = tiles(held, longest, rows)
    share = (1 if weights is None else weights) / count.astype(x.dtype)

    def block(x: Array, batch: PyTree, live: Array, w: Array) -> tuple[Array, PyTree]:
        losses = jax.vmap(model.loss, (None, 0))(x, batch)
        added = jnp.where(live, losses.reshape(live.shape), 0)
        added = added.sum(axis=1) if owner is None else added[0]
        right = None
        if model.correct is not None:
            right = jax.vmap(model.correct, (None, 0))(x, batch).reshape(live.shape)
            right = live & (right != 0)
            right = (jnp.sum(right, axis=1) if owner is None else right[0]).astype(x.dtype)
        return jnp.sum(w * added), (added, right)

    def derived(x: Array, batch: PyTree, live: Array, w: Array) -> tuple[Array, Any, Array]:
        (_, (l, c)), g = jax.value_and_grad(block, has_aux=True)(x, batch, live, w)
        return l, c, g

    def factored(x: Array, batch: PyTree, live: Array, w: Array) -> tuple[Array, Any, Array]:
        _, (l, c) = block(x, batch, live, w)
        each, kernel = (w[:, None] * live).reshape(-1), model.kernel
        return l, c, kernel.contract(each, kernel.factors(x, batch), batch)

    def step(k: Array, carry: PyTree) -> PyTree:
        if tall == longest:
            return filled(k, carry)
        i, j, *_ = place(k)  # blocks beyond the rows of a shorter client hold nothing
        return jax.lax.cond(j < count[i], filled, lambda k, carry: carry, k, carry)

    def filled(k: Array, carry: PyTree) -> PyTree:
        i, j, i0, j0 = place(k)
        batch = samples.block(examples, i0, j0, wide, tall)
        client, row = i0 + jnp.arange(wide), j0 + jnp.arange(tall)
        mine = jax.lax.dynamic_slice_in_dim(count, i0, wide)
        live = (client >= i)[:, None] & (row >= j)[None] & (row[None] < mine[:, None])
        w = jax.lax.dynamic_slice_in_dim(share, i0, wide)
        losses, right, grad = carry
        if gradient:
            by = on_cpus(factored, derived) if model.kernel.convolves else derived
            l, c, g = by(x, batch, live, w)
            grad = grad + g
        else:
            _, (l, c) = block(x, batch, live, w)

        def put(total: Array, part: Array) -> Array:
            if owner is not None:
                return total.at[jax.lax.dynamic_slice_in_dim(owner, j0, tall)].add(part)
            there = jax.lax.dynamic_slice_in_dim(total, i0, wide)
            return jax.lax.dynamic_update_slice_in_dim(total, there + part, i0, 0)

        return put(losses, l), None if c is None else put(right, c), grad

    zeros = jnp.zeros(held if owner is None else n + 1, x.dtype)
    start = zeros, None if model.correct is None else zeros, jnp.zeros_like(x)
    # two blocks of a network per iteration: one is read while the other is multiplied
    unroll = 1 if model.kernel.width == 1 else min(2, steps)
    result: tuple[Array, Array | None, Array] = jax.lax.fori_loop(
        0, steps, step, start, unroll=unroll
    )
    return result


def full_gradient(problem: Problem, x: Array, bound: Array, numbers: int = NUMBERS) -> Array:
    """``h_i = mean_j clip(grad f_ij(x), bound)`` for every client, (n, d); no regularizer.

    On CPUs clients go one after the other (products that are batched over clients are several times
    slower there), large ones in blocks of rows that hold about ``numbers`` numbers.
    """
    kernel, m = problem.model.kernel, problem.m_max
    each = kernel.width + samples.numbers(problem.train)
    size = even(m, max(1, numbers // each))
    term = Term(1.0, (x,), (1.0,), bound)

    def client(i: Array) -> Array:
        count = problem.count[i]

        def step(k: Array, h: Array) -> Array:
            start = jnp.minimum(k * size, m - size)
            j = start + jnp.arange(size)
            batch = samples.block(problem.train, i, start, 1, size)
            weight = jnp.where((j >= k * size) & (j < count), 1 / count.astype(x.dtype), 0)
            return h + evaluate(kernel, (term,), weight, batch)[0]

        h: Array = jax.lax.fori_loop(0, -(-m // size), step, jnp.zeros_like(x))
        return h

    clients, largest = jnp.arange(problem.n), max(size * each, x.size)
    together = max(1, LARGEST // largest)
    one_by_one = functools.partial(jax.lax.map, client)
    h: Array = on_cpus(one_by_one, functools.partial(one_by_one, batch_size=together))(clients)
    return h


def mean_gradient(problem: Problem, x: Array, bound: Array, numbers: int = NUMBERS) -> Array:
    """``mean_i w_i h_i`` of :func:`full_gradient`, (d,): no array holds one vector per client."""
    kernel, n = problem.model.kernel, problem.n
    size = max(1, numbers // (kernel.width + samples.numbers(problem.train)))
    wide, tall, steps, place = tiles(n, problem.m_max, size)
    term = Term(1.0, (x,), (1.0,), bound)
    share = (1 if problem.weights is None else problem.weights) / (
        n * problem.count.astype(x.dtype)
    )

    def step(k: Array, h: Array) -> Array:
        i, j, i0, j0 = place(k)
        batch = samples.block(problem.train, i0, j0, wide, tall)
        count = jax.lax.dynamic_slice_in_dim(problem.count, i0, wide)[:, None]
        client, row = (i0 + jnp.arange(wide))[:, None], (j0 + jnp.arange(tall))[None]
        live = (client >= i) & (row >= j) & (row < count)
        weight = jnp.where(live, jax.lax.dynamic_slice_in_dim(share, i0, wide)[:, None], 0)
        return h + evaluate(kernel, (term,), weight.reshape(-1), batch)[0]

    h: Array = jax.lax.fori_loop(0, steps, step, jnp.zeros_like(x))
    return h


def over_clients(
    each: Callable[[Array], tuple[Array, PyTree]], problem: Problem, like: Array, pooled: bool
) -> tuple[Array, PyTree]:
    """``each(i) = (h_i, more_i)`` of every client in turn; with ``pooled`` the mean of ``w_i h_i``."""
    n, weights = problem.n, problem.weights

    def step(h: Array, i: Array) -> tuple[Array, PyTree]:
        h_i, more = each(i)
        return h + (h_i if weights is None else weights[i] * h_i) / n, more

    clients = jnp.arange(n)
    result: tuple[Array, PyTree] = (
        jax.lax.scan(step, jnp.zeros_like(like), clients) if pooled else jax.lax.map(each, clients)
    )
    return result


def tiles(n: int, m: int, rows: int) -> tuple[int, int, int, Callable[[Array], PyTree]]:
    """A cover of n clients with m rows each by blocks of at most ``rows`` examples.

    A block holds some rows of one client, or all rows of some clients.  Returns the clients and the
    rows of a block, the number of blocks, and a function of a block's number: the client and the row
    from which it counts, and those from which it reads.  The last blocks read from earlier on, so as
    to be full.
    """
    tall = even(m, rows)
    wide = 1 if tall < m else even(n, max(1, rows // m))
    parts = -(-m // tall)

    def place(k: Array) -> tuple[Array, Array, Array, Array]:
        i, j = (k // parts) * wide, (k % parts) * tall
        return i, j, jnp.minimum(i, n - wide), jnp.minimum(j, m - tall)

    return wide, tall, -(-n // wide) * parts, place


def even(total: int, size: int) -> int:
    """The length of equal blocks, ``size`` at most, that cover ``total`` with least overlap."""
    return -(-total // -(-total // size))
