"""Probes of sums over clients: aggregations and graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.algorithms.probes.given import D, Given, N, hyper
from jaxfl.algorithms.probes.laws import confirm, equal
from jaxfl.core.types import Aggregation, Array, Draw, Hyper
from jaxfl.parts.graphs import Graph, second_eigenvalue

__all__ = ["CHECKS", "settled"]

NOISE = 0.01  # next to messages of norm 1
CLOSE = 1e-6


def settled(part: Aggregation, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that an aggregation settles for messages of norm 1."""
    found = part.settle({"rounds": 1, **numbers}, (1.0, NOISE), N, D)
    return {name: value for name, (value, _) in found.items()}


def _settled(part: Aggregation, given: Given) -> tuple[dict[str, Any], Hyper]:
    """The numbers of an aggregation, given or its own."""
    numbers = {**settled(part, given.numbers), **given.numbers}
    return numbers, hyper(part, numbers)


def _added(part: Aggregation, v: Array, cohort: Draw, hp: Hyper) -> tuple[Array, Array, Array]:
    """The sum that a server recovers of the live slots, their words, and the clamped coordinates."""
    key, me = jax.random.key(0), jnp.arange(N) if cohort.index is None else cohort.index
    words, clamped = jax.vmap(
        lambda me, v: part.protect(key, jnp.int32(0), me, cohort, v, hp), (0, 0)
    )(me, v)
    live = (cohort.weight > 0)[:, None]
    total = jnp.sum(jnp.where(live, words, 0), axis=0, dtype=words.dtype)
    return part.recover(total, v[0], hp), words, clamped


def _messages(given: Given) -> list[Array]:
    """Messages of norm up to 1, dense and of one coordinate."""
    rng = np.random.default_rng(given.seed)
    v = rng.normal(size=(N, D))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    return [jnp.asarray(a, jnp.float32) for a in (v, v * 1e-3, np.eye(N, D), -np.ones((N, D)) / D)]


def _sum(part: Aggregation, given: Given) -> None:
    """The server recovers the sum of those who send, up to half a ``precision`` each, in any order."""
    numbers, hp = _settled(part, given)
    allowed = N * float(numbers.get("precision", 0.0)) / 2 + CLOSE * N
    for v in _messages(given):
        for order in (np.arange(N), np.roll(np.arange(N)[::-1], 3)):
            for gone in (0, 2):
                who = Draw(jnp.asarray(order), jnp.where(jnp.arange(N) < N - gone, 1 / N, 0.0))
                sent = v[order]
                found, _, clamped = _added(part, sent, who, hp)
                apart = float(np.abs(found - sent[: N - gone].sum(0)).max())
                confirm(
                    apart <= allowed and not np.asarray(clamped).any(),
                    f"The aggregation {part.name!r} recovers a sum that is {apart:.4g} off, where its "
                    f"precision allows {allowed:.4g}, and clamps {np.sum(clamped)} coordinates of "
                    "messages within their bound",
                )


def _clamped(part: Aggregation, given: Given) -> None:
    """Check that coordinates out of range are counted as clamped."""
    _, hp = _settled(part, given)
    v = 1e6 * jnp.ones((N, D))
    found, _, clamped = _added(part, v, Draw(None, jnp.full(N, 1 / N)), hp)
    right = np.allclose(found, v.sum(0), rtol=1e-5)
    words = (
        f"The aggregation {part.name!r} changes a sum of long messages, and counts no clamped one"
    )
    confirm(right or np.asarray(clamped).any(), words)


def _word(part: Aggregation, given: Given) -> None:
    """Words have the declared ``bits``, and sums are the same with and without ``jit``."""
    _, hp = _settled(part, given)
    v, who = _messages(given)[0], Draw(None, jnp.full(N, 1 / N))
    found, words, _ = jax.jit(lambda v: _added(part, v, who, hp))(v)
    bits = 8 * words.dtype.itemsize
    confirm(
        words.shape == v.shape and bits == part.bits,
        f"The aggregation {part.name!r} declares words of {part.bits} bits, and has {bits} for each of "
        f"{words.shape[1:]} coordinates of {v.shape[1:]}",
    )
    equal(found, _added(part, v, who, hp)[0], f"Sums of {part.name!r} with and without jit")


def _mixing(part: Graph, given: Given) -> None:
    """W is symmetric and doubly stochastic, and connects all clients."""
    for n in (int(given.numbers["clients"]),) if given.numbers else (1, 2, N):
        W = np.asarray(part.matrix(n), np.float64)
        said = f"The matrix of the graph {part.name!r} of {n} clients"
        confirm(W.shape == (n, n) and np.isfinite(W).all(), f"{said} has the shape {W.shape}")
        skew, sums = np.abs(W - W.T).max(), np.abs(W.sum(1) - 1).max()
        confirm(skew <= CLOSE, f"{said} differs from its transpose by {skew:.4g}")
        confirm(W.min() >= 0, f"{said} has a weight of {W.min():.4g}, and no weight is negative")
        confirm(sums <= CLOSE, f"{said} has rows that miss a sum of 1 by {sums:.4g}")
        second = second_eigenvalue(W) if n > 1 else 0.0
        confirm(
            second < 1 - CLOSE,
            f"{said} has a second eigenvalue of {second:.4g}, and those of connected clients are below 1",
        )


CHECKS: dict[type, dict[str, Callable[[Any, Given], str | None]]] = {
    Aggregation: {"sum": _sum, "clamped": _clamped, "word": _word},
    Graph: {"mixing": _mixing},
}
