"""Who takes part in a round, and which of its rows a client draws.

A draw is a weighting with fixed weights: 1/b for each of b rows, also where chance (Poisson) gives
more or fewer of them, since dividing by the realised number would let one record change every
other record's weight.  Letters: q = b/m is a client's sampling rate, r/n the clients' rate.

Everything is written for one client and a traced b; the caller maps over clients.  Draws have a
static number of slots, and slot s does not depend on that number.  Constructors are cached: equal
calls give one and the same part, and programs compiled with it are found again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.errors import InputError
from jaxfl.core.keys import at
from jaxfl.core.params import known
from jaxfl.core.subsets import coin_slots, coins, subset
from jaxfl.core.subsets import uniform as independent
from jaxfl.core.types import (
    Array,
    Capacity,
    Draw,
    Hyper,
    Key,
    Param,
    Participation,
    ProblemFacts,
    Sampler,
)
from jaxfl.parts.unreliable import unreliable

__all__ = [
    "PARTICIPATIONS",
    "SAMPLERS",
    "balanced",
    "everyone",
    "full",
    "in_order",
    "participation",
    "poisson",
    "poisson_clients",
    "sampler",
    "shuffled",
    "single_pass",
    "uniform",
    "with_replacement",
    "without_replacement",
]

_BATCH = Param("batch", "rows that a client draws per round", low=1, integer=True)
_MEAN_BATCH = Param("batch", "rows that a client draws per round, on average", open_low=True)
_COHORT = Param("cohort", "clients that take part per round", low=1, integer=True)
_MEAN_COHORT = Param("cohort", "clients that take part per round, on average", open_low=True)


# --- rows of one client --------------------------------------------------------------------------


@functools.cache
def full() -> Sampler:
    """Every row, weighted 1/m."""

    def draw(key: Key, t: Array, count: Array, m_max: int, hp: Hyper) -> Draw:
        live = jnp.arange(m_max) < count
        return Draw(None, jnp.where(live, 1.0 / jnp.maximum(count, 1), 0.0))

    return Sampler("full", draw, distinct=True, scheme="full")


@functools.cache
def with_replacement() -> Sampler:
    """b independent rows; one may come twice."""

    def draw(key: Key, t: Array, count: Array, m_max: int, hp: Hyper) -> Draw:
        slots, b = hp.caps["batch"], hp["batch"]
        rows = independent(at(key, t), jnp.maximum(count, 1), slots)
        live = (jnp.arange(slots) < b) & (count > 0)
        return _weighted(rows, live, 1.0 / b, m_max)

    return Sampler(
        "with_replacement",
        draw,
        distinct=False,
        params=(_BATCH,),
        capacity=_fixed("batch", None),
        scheme="with_replacement",
    )


@functools.cache
def without_replacement() -> Sampler:
    """b distinct rows, every set of them equally likely, independently in each round."""

    def draw(key: Key, t: Array, count: Array, m_max: int, hp: Hyper) -> Draw:
        slots, b = hp.caps["batch"], hp["batch"]
        rows = subset(at(key, t), count, slots)
        live = jnp.arange(slots) < jnp.minimum(b, count)
        return _weighted(rows, live, 1.0 / b, m_max)

    return Sampler(
        "without_replacement",
        draw,
        distinct=True,
        params=(_BATCH,),
        capacity=_fixed("batch", "m"),
        scheme="without_replacement",
    )


@functools.cache
def poisson() -> Sampler:
    """Each row by its own coin of probability q = b/m; weight 1/b whatever their number.

    The slots are chosen so that no draw of the run overflows with more than negligible chance;
    where one does, its last rows are dropped, and the event of the run counts that in its delta.
    """

    def draw(key: Key, t: Array, count: Array, m_max: int, hp: Hyper) -> Draw:
        slots, b = hp.caps["batch"], hp["batch"]
        rows = coins(at(key, t), count, b, slots, t)
        return _weighted(rows, rows < count, 1.0 / b, m_max)

    return Sampler(
        "poisson",
        draw,
        distinct=True,
        params=(_MEAN_BATCH,),
        capacity=_padded("batch", "m", "m_max"),
        scheme="poisson",
        strips=True,
    )


@functools.cache
def shuffled() -> Sampler:
    """Random reshuffling: one permutation per epoch, b of its rows per round.

    An epoch has floor(m/b) rounds and then starts anew: the m mod b rows at the end of a
    permutation are not used.
    """

    def draw(key: Key, t: Array, count: Array, m_max: int, hp: Hyper) -> Draw:
        slots, b = hp.caps["batch"], jnp.asarray(hp["batch"]).astype(jnp.int32)
        count = jnp.asarray(count, jnp.int32)
        rounds = jnp.maximum(count // b, 1)
        epoch, step = t // rounds, t % rounds
        rows = subset(jax.random.fold_in(key, epoch), count, slots, start=step * b)
        live = jnp.arange(slots) < jnp.minimum(b, count)
        return _weighted(rows, live, 1.0 / b, m_max)

    return Sampler(
        "shuffled",
        draw,
        distinct=True,
        params=(_BATCH,),
        capacity=_fixed("batch", "m"),
        scheme="shuffled",
    )


@functools.cache
def single_pass() -> Sampler:
    """Disjoint batches: b rows per round off one permutation, no row ever again.

    Refused where the rounds ask for more than the smallest client has.
    """

    def draw(key: Key, t: Array, count: Array, m_max: int, hp: Hyper) -> Draw:
        slots, b = hp.caps["batch"], jnp.asarray(hp["batch"]).astype(jnp.int32)
        count = jnp.asarray(count, jnp.int32)
        rounds = count // jnp.maximum(b, 1)
        rows = subset(key, count, slots, start=jnp.minimum(t, rounds) * b)
        live = (jnp.arange(slots) < b) & (t < rounds)
        return _weighted(rows, live, 1.0 / b, m_max)

    return Sampler(
        "single_pass", draw, distinct=True, params=(_BATCH,), capacity=_once, scheme="single_pass"
    )


@functools.cache
def in_order() -> Sampler:
    """:func:`single_pass` in the order of the data."""

    def draw(key: Key, t: Array, count: Array, m_max: int, hp: Hyper) -> Draw:
        slot, b = jnp.arange(hp.caps["batch"]), jnp.asarray(hp["batch"]).astype(jnp.int32)
        rows = t * b + slot
        return _weighted(rows, (slot < b) & (rows < count), 1.0 / b, m_max)

    return single_pass()._replace(name="in_order", draw=draw)


def _once(values: Mapping[str, Any], facts: ProblemFacts) -> dict[str, int]:
    """Slots of a batch, where no sample is used twice."""
    slots = _fixed("batch", "m")(values, facts)
    rounds = np.maximum(facts.rounds or 1, values.get("rounds", 1))
    used = float(np.max(rounds * np.asarray(values["batch"])))
    if used > facts.m:
        raise InputError(
            f"use {used:g} samples of each client once, and the smallest client has {facts.m}",
            f"ask for at most {facts.m // slots['batch']} rounds",
            rounds=int(np.max(rounds)),
        )
    return slots


# --- clients -------------------------------------------------------------------------------------


@functools.cache
def everyone() -> Participation:
    """All clients, weighted 1/n."""

    def draw(key: Key, t: Array, n: int, hp: Hyper) -> Draw:
        return Draw(None, jnp.full(n, 1.0 / n))

    return Participation("everyone", draw, everyone=True, fixed_size=True)


@functools.cache
def uniform() -> Participation:
    """r distinct clients, every set of them equally likely."""

    def draw(key: Key, t: Array, n: int, hp: Hyper) -> Draw:
        slots, r = hp.caps["cohort"], hp["cohort"]
        clients = subset(at(key, t), n, slots)
        return _weighted(clients, jnp.arange(slots) < r, 1.0 / r, n)

    return Participation(
        "uniform",
        draw,
        params=(_COHORT,),
        capacity=_fixed("cohort", "n"),
        scheme="without_replacement",
        fixed_size=True,
    )


@functools.cache
def poisson_clients() -> Participation:
    """Each client by its own coin of probability r/n; weight 1/r whatever their number."""

    def draw(key: Key, t: Array, n: int, hp: Hyper) -> Draw:
        slots, r = hp.caps["cohort"], hp["cohort"]
        clients = coins(at(key, t), n, r, slots, t)
        return _weighted(clients, clients < n, 1.0 / r, n)

    return Participation(
        "poisson",
        draw,
        params=(_MEAN_COHORT,),
        capacity=_padded("cohort", "n", "n"),
        scheme="poisson",
    )


@functools.cache
def balanced() -> Participation:
    """r distinct clients, in an order that calls all equally often: no client more than ceil(T r/n).

    Over n/gcd(n, r) rounds, the r clients of each follow one another in a cycle through a random
    permutation; then comes another permutation.
    """

    def draw(key: Key, t: Array, n: int, hp: Hyper) -> Draw:
        slots, r = hp.caps["cohort"], jnp.asarray(hp["cohort"]).astype(jnp.int32)
        length = n // jnp.gcd(n, r)
        cycle = jax.random.fold_in(key, t // length)
        first, slot = (t % length) * r % n, jnp.arange(slots)
        # a cycle that ends goes on with its beginning, which the end does not hold
        end, beginning = subset(cycle, n, slots, start=first), subset(cycle, n, slots)
        clients = jnp.where(slot < n - first, end, beginning[slot - (n - first)])
        return _weighted(clients, slot < r, 1.0 / r, n)

    def most(T: int, n: int, values: Mapping[str, Any]) -> int:
        return math.ceil(T * int(values["cohort"]) / n)

    def capacity(values: Mapping[str, Any], facts: ProblemFacts) -> dict[str, int]:
        slots = _fixed("cohort", "n")(values, facts)
        if slots["cohort"] * facts.n >= 2**31:
            raise InputError(
                f"of {facts.n} clients is more than a balanced order can count (2^31)",
                "let fewer take part, or draw them by uniform",
                cohort=slots["cohort"],
            )
        return slots

    return Participation(
        "balanced", draw, params=(_COHORT,), capacity=capacity, most=most, fixed_size=True
    )


def _weighted(index: Array, live: Array, weight: Array | float, end: int) -> Draw:
    return Draw(jnp.where(live, index, end), jnp.where(live, weight, 0.0))


# --- on the host ---------------------------------------------------------------------------------


def _checked(name: str, limit: str | None, values: Mapping[str, Any], facts: ProblemFacts) -> float:
    """The largest of the numbers in all cells, none of them impossible."""
    asked = np.asarray(values[name], dtype=np.float64)
    if not (asked > 0).all():
        raise InputError(f"{name} = {asked.min():g}: ask for a positive number.")
    most = float(asked.max())
    if limit is not None and most > getattr(facts, limit):
        there = {"m": "samples of the smallest client", "n": "clients"}[limit]
        end = getattr(facts, limit)
        raise InputError(f"exceeds the {end} {there}", f"ask for at most {end}", **{name: most})
    return most


def _fixed(name: str, limit: str | None) -> Capacity:
    """As many slots as the largest cell draws."""

    def capacity(values: Mapping[str, Any], facts: ProblemFacts) -> dict[str, int]:
        most = _checked(name, limit, values, facts)
        if not (np.asarray(values[name]) % 1 == 0).all():
            raise InputError(f"{name} = {values[name]}: this draw needs a whole number.")
        return {name: int(most)}

    return capacity


def _padded(name: str, limit: str, size: str) -> Capacity:
    """Slots that a client's other rows fill with chance below 1e-12 in all rounds, which is added to
    delta; and the mean, for :mod:`jaxfl.rounds.packing`.

    At equal mean the tail of Bin(m, b/m) above b grows with m (Anderson and Samuels, 1967), so the
    largest client decides; at equal m it grows with b.  A million rounds where T is not known.
    """

    def capacity(values: Mapping[str, Any], facts: ProblemFacts) -> dict[str, int]:
        most = _checked(name, limit, values, facts)
        every = getattr(facts, size)
        others = every - 1
        filled = coin_slots(most / every * others, others, facts.rounds or 10**6)
        return {name: min(1 + filled, every), f"mean_{name}": math.ceil(most)}

    return capacity


# --- by name -------------------------------------------------------------------------------------

SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "full": full,
    "with_replacement": with_replacement,
    "without_replacement": without_replacement,
    "poisson": poisson,
    "shuffled": shuffled,
    "single_pass": single_pass,
}


def _unreliable() -> Participation:
    """The clients of "uniform", of whom some do not answer."""
    return unreliable(uniform())


PARTICIPATIONS: dict[str, Callable[[], Participation]] = {
    "everyone": everyone,
    "uniform": uniform,
    "balanced": balanced,
    "poisson": poisson_clients,
    "unreliable": _unreliable,
}


def sampler(name: str) -> Sampler:
    """The sampler of that name."""
    return known("sampler", name, SAMPLERS)()


def participation(name: str) -> Participation:
    """The participation of that name."""
    return known("participation", name, PARTICIPATIONS)()
