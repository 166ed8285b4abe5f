"""Clients that are called and do not answer.

Of the clients that a participation calls, each fails with a chance of its own coin, unheard: it has
left no trace, neither in the sum nor in its own memory.  What the server gets is the mean of those
that did answer, and nothing where too few did::

    A_t = those of S_t whose coin says so;   weights 1/|A_t| if |A_t| >= threshold, else none

Under secure aggregation that is what the protocol of :mod:`jaxfl.parts.dropouts` recovers, exactly, and a
sum that is seen holds the noise of ``threshold`` clients at least.  Not counted are the models that
went to clients which then failed, and the shares of seeds that recovery takes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxfl.core.errors import require
from jaxfl.core.types import Array, Draw, Hyper, Key, Param, Participation, ProblemFacts

__all__ = ["unreliable"]

DROPOUT = Param(
    "dropout", "chance that a client that was called does not answer", high=1.0, open_high=True
)
THRESHOLD = Param("threshold", "answers below which a round is lost", low=1, integer=True)
COINS = 2**32 - 1  # no round has this number


@functools.cache
def unreliable(base: Participation) -> Participation:
    """``base``, of whose clients some do not answer."""

    def draw(key: Key, t: Array, n: int, hp: Hyper) -> Draw:
        called = base.draw(key, t, n, hp)
        index = jnp.arange(n) if called.index is None else called.index
        now = jax.random.fold_in(jax.random.fold_in(key, COINS), t)
        coin = jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(now, i)))(index)
        answers = (called.weight > 0) & (coin >= hp["dropout"])
        count = jnp.sum(answers)
        heard = answers & (count >= hp["threshold"])
        return Draw(jnp.where(heard, index, n), jnp.where(heard, 1.0 / jnp.maximum(count, 1), 0.0))

    def capacity(values: Mapping[str, Any], facts: ProblemFacts) -> dict[str, int]:
        slots = base.capacity(values, facts)
        most, asked = slots.get("cohort", facts.n), int(values["threshold"])
        require(
            asked <= most,
            f"exceeds the {most} clients that are called in a round, so that all rounds would "
            "be lost",
            f"ask for at most {most}",
            threshold=asked,
        )
        return {"cohort": facts.n, **slots}

    def least(n: int, values: Mapping[str, Any]) -> int:
        return int(values["threshold"])

    return Participation(
        "unreliable",
        draw,
        params=(*base.params, DROPOUT, THRESHOLD),
        capacity=capacity,
        most=base.most,
        least=least,
    )
