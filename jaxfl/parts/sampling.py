"""Participations, which choose the clients of a round, and samplers, which draw a client's rows.

A draw is a weighting with fixed weights: 1/b for each of b rows.  They stay 1/b where chance
(Poisson) gives more or fewer rows, since dividing by the realised number would let one record
change the weight of every other record.  Letters: q = b/m is a client's sampling rate, r/n the
clients' rate.

Every function is written for one client and a traced b; the caller maps over clients.  Draws have a
static number of slots, and slot s does not depend on that number.  Constructors are cached: equal
calls return one part, and compiled programs are found again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.core.checks import named_part
from jaxfl.core.errors import require
from jaxfl.core.keys import at
from jaxfl.core.params import check
from jaxfl.core.params import whole as whole_number
from jaxfl.core.provenance import made
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
    Scheme,
    Values,
)

__all__ = [
    "PARTICIPATIONS",
    "SAMPLERS",
    "balanced",
    "cyclic",
    "everyone",
    "full",
    "in_order",
    "participation",
    "poisson",
    "poisson_clients",
    "retiring",
    "sampler",
    "shuffled",
    "single_pass",
    "uniform",
    "unreliable",
    "with_replacement",
    "without_replacement",
]

_BATCH = Param("batch", "records that a client draws per round", low=1, integer=True)
_MEAN_BATCH = Param("batch", "records that a client draws per round, on average", open_low=True)
_COHORT = Param("cohort", "clients that take part per round", low=1, integer=True)
_MEAN_COHORT = Param("cohort", "clients that take part per round, on average", open_low=True)
_DROPOUT = Param(
    "dropout", "chance that a client that was called does not answer", high=1.0, open_high=True
)
_THRESHOLD = Param("threshold", "answers below which a round is lost", low=1, integer=True)
_COINS = 2**32 - 1  # no round has this number

Slots: TypeAlias = tuple[Array, Array]  # rows, and which of them are live


# --- on the host ---------------------------------------------------------------------------------


def _largest(param: Param, limit: str | None, values: Values, facts: ProblemFacts) -> float:
    """The largest of the values in all cells, none of which may be out of range."""
    name = param.name
    check((param,), {name: values[name]}, "a draw")
    most = float(np.max(values[name]))
    if limit is not None:
        unit = {"m": "samples of the smallest client", "n": "clients"}[limit]
        end = getattr(facts, limit)
        shown = int(most) if most.is_integer() else most
        require(
            most <= end,
            lambda: f"exceeds the {end} {unit}",
            lambda: f"ask for at most {end}",
            **{name: shown},
        )
    return most


def _fixed(param: Param, limit: str | None) -> Capacity:
    """The number of slots: the most rows that any cell draws."""

    def capacity(values: Values, facts: ProblemFacts) -> dict[str, int]:
        return {param.name: int(_largest(param, limit, values, facts))}

    return capacity


def _padded(param: Param, limit: str, size: str) -> Capacity:
    """Slots for a random number of rows; ``mean_batch`` for :mod:`jaxfl.rounds.estimates`.

    The chance that any draw of the run overflows is below 1e-12, which is added to delta.  At equal
    mean the tail of Bin(m, b/m) above b grows with m (Anderson and Samuels, 1967), so the largest
    client decides; at equal m it grows with b.  Where T is not known, T is 10^6.
    """

    def capacity(values: Values, facts: ProblemFacts) -> dict[str, int]:
        name, most = param.name, _largest(param, limit, values, facts)
        every = getattr(facts, size)
        others = every - 1
        filled = coin_slots(most / every * others, others, facts.rounds or 10**6)
        return {name: min(1 + filled, every), f"mean_{name}": math.ceil(most)}

    return capacity


# --- rows of one client --------------------------------------------------------------------------


@made
def full() -> Sampler:
    """Every row, weighted 1/m."""

    def draw(key: Key, t: Array, count: Array, m_max: int, hp: Hyper) -> Draw:
        live = jnp.arange(m_max) < count
        return Draw(None, jnp.where(live, 1.0 / jnp.maximum(count, 1), 0.0))

    return Sampler("full", draw, distinct=True, scheme="full")


@made
def with_replacement() -> Sampler:
    """b independent rows; one may come twice."""

    def choose(key: Key, t: Array, count: Array, m: int, b: Array, slots: int) -> Slots:
        rows = independent(at(key, t), jnp.maximum(count, 1), slots)
        return rows, (jnp.arange(slots) < b) & (count > 0)

    return _sampler("with_replacement", choose, _fixed(_BATCH, None))._replace(distinct=False)


@made
def without_replacement() -> Sampler:
    """b distinct rows, every set of them equally likely, independently in each round."""

    def choose(key: Key, t: Array, count: Array, m: int, b: Array, slots: int) -> Slots:
        return subset(at(key, t), count, slots, most=m), jnp.arange(slots) < jnp.minimum(b, count)

    return _sampler("without_replacement", choose, _fixed(_BATCH, "m"))


@made
def poisson() -> Sampler:
    """Each row independently with probability q = b/m; weight 1/b whatever their number.

    A draw overflows its slots with negligible chance in the whole run.  It then drops its last rows,
    and the event of the run adds that chance to its delta.
    """

    def choose(key: Key, t: Array, count: Array, m: int, b: Array, slots: int) -> Slots:
        rows = coins(at(key, t), count, b, slots, t)
        return rows, rows < count

    sampler = _sampler("poisson", choose, _padded(_MEAN_BATCH, "m", "m_max"))
    return sampler._replace(params=(_MEAN_BATCH,), strips=True)


@made
def shuffled() -> Sampler:
    """Random reshuffling: one permutation per epoch, b of its rows per round.

    An epoch has floor(m/b) rounds: the m mod b rows at the end of a permutation are not used.
    """

    def choose(key: Key, t: Array, count: Array, m: int, b: Array, slots: int) -> Slots:
        b, count = jnp.asarray(b).astype(jnp.int32), jnp.asarray(count, jnp.int32)
        rounds = jnp.maximum(count // b, 1)
        epoch, step = t // rounds, t % rounds
        rows = subset(jax.random.fold_in(key, epoch), count, slots, step * b, m)
        return rows, jnp.arange(slots) < jnp.minimum(b, count)

    return _sampler("shuffled", choose, _fixed(_BATCH, "m"))


@made
def cyclic() -> Sampler:
    """A fixed partition into batches of b rows, which follow one another in the same order in every epoch.

    A row comes back after s = ceil(m/b) rounds, and not earlier.  The m mod b rows that are left make a
    smaller last batch; each of them weighs 1/b, too.
    """

    def choose(key: Key, t: Array, count: Array, m: int, b: Array, slots: int) -> Slots:
        b, count = jnp.asarray(b).astype(jnp.int32), jnp.asarray(count, jnp.int32)
        start = t % jnp.maximum(-(-count // b), 1) * b
        rows, slot = subset(key, count, slots, start, m), jnp.arange(slots)
        return rows, (slot < b) & (start + slot < count)

    return _sampler("cyclic", choose, _fixed(_BATCH, "m"))


@made
def single_pass() -> Sampler:
    """Disjoint batches: b rows per round of one permutation, each row at most once in the run.

    Raises where the rounds ask for more rows than the smallest client has.
    """

    def choose(key: Key, t: Array, count: Array, m: int, b: Array, slots: int) -> Slots:
        b, count = jnp.asarray(b).astype(jnp.int32), jnp.asarray(count, jnp.int32)
        rounds = count // jnp.maximum(b, 1)
        rows = subset(key, count, slots, jnp.minimum(t, rounds) * b, m)
        return rows, (jnp.arange(slots) < b) & (t < rounds)

    return _sampler("single_pass", choose, _once)


@made
def in_order() -> Sampler:
    """:func:`single_pass` in the order of the data."""

    def choose(key: Key, t: Array, count: Array, m: int, b: Array, slots: int) -> Slots:
        slot, b = jnp.arange(slots), jnp.asarray(b).astype(jnp.int32)
        rows = t * b + slot
        return rows, (slot < b) & (rows < count)

    return _sampler("single_pass", choose, _once)._replace(name="in_order")


def _sampler(
    scheme: Scheme,
    choose: Callable[[Key, Array, Array, int, Array, int], Slots],
    capacity: Capacity,
) -> Sampler:
    """Rows of weight 1/b, which ``choose(key, t, count, m, b, slots)`` returns."""

    def draw(key: Key, t: Array, count: Array, m_max: int, hp: Hyper) -> Draw:
        b = hp["batch"]
        rows, live = choose(key, t, count, m_max, b, hp.caps["batch"])
        return _weighted(rows, live, 1.0 / b, m_max)

    return Sampler(scheme, draw, distinct=True, params=(_BATCH,), capacity=capacity, scheme=scheme)


def _once(values: Values, facts: ProblemFacts) -> dict[str, int]:
    """Slots of a batch where a run uses each row at most once."""
    slots = _fixed(_BATCH, "m")(values, facts)
    rounds = np.maximum(facts.rounds or 1, values.get("rounds", 1))
    used = float(np.max(rounds * np.asarray(values["batch"])))
    require(
        used <= facts.m,
        lambda: f"use {used:g} samples of each client once, and the smallest client has {facts.m}",
        lambda: f"ask for at most {facts.m // slots['batch']} rounds",
        rounds=int(np.max(rounds)),
    )
    return slots


# --- clients -------------------------------------------------------------------------------------


@made
def everyone() -> Participation:
    """All clients, weighted 1/n."""

    def draw(key: Key, t: Array, n: int, hp: Hyper) -> Draw:
        return Draw(None, jnp.full(n, 1.0 / n))

    return Participation("everyone", draw, everyone=True, fixed_size=True)


@made
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
        capacity=_fixed(_COHORT, "n"),
        scheme="without_replacement",
        fixed_size=True,
    )


@made
def poisson_clients() -> Participation:
    """Each client independently with probability r/n; weight 1/r whatever their number."""

    def draw(key: Key, t: Array, n: int, hp: Hyper) -> Draw:
        slots, r = hp.caps["cohort"], hp["cohort"]
        clients = coins(at(key, t), n, r, slots, t)
        return _weighted(clients, clients < n, 1.0 / r, n)

    return Participation(
        "poisson",
        draw,
        params=(_MEAN_COHORT,),
        capacity=_padded(_MEAN_COHORT, "n", "n"),
        scheme="poisson",
    )


@made
def balanced() -> Participation:
    """r distinct clients, in an order that calls all equally often: no client more than ceil(T r/n).

    Over n/gcd(n, r) rounds, the r clients of each follow one another in a cycle through a random
    permutation; then comes another permutation.

    Permutations are independent, and a client may have any place in each.  So the most of its turns among
    some rounds is the sum, over the cycles that they touch, of the most calls of any place.  j rounds
    that follow one another call j r such places, and some place ceil(j r/n) times, none more often.
    """

    def draw(key: Key, t: Array, n: int, hp: Hyper) -> Draw:
        slots, r = hp.caps["cohort"], jnp.asarray(hp["cohort"]).astype(jnp.int32)
        length = n // jnp.gcd(n, r)
        cycle = jax.random.fold_in(key, t // length)
        first, slot = (t % length) * r % n, jnp.arange(slots)
        # a cycle that ends continues with its beginning, which the end does not hold
        end, beginning = subset(cycle, n, slots, start=first), subset(cycle, n, slots)
        clients = jnp.where(slot < n - first, end, beginning[slot - (n - first)])
        return _weighted(clients, slot < r, 1.0 / r, n)

    def most(rounds: Sequence[int], n: int, values: Values) -> int:
        r = int(values["cohort"])
        length = n // math.gcd(n, r)
        if not isinstance(rounds, range) or rounds.step != 1:
            return _deepest(np.asarray(rounds, np.int64), length, r, n)
        first, end = rounds.start, rounds.stop
        opened, closed = (
            -(-first // length) * length,
            end // length * length,
        )  # whole cycles between
        if opened > closed:  # within one cycle
            return -(-(end - first) * r // n)
        parts = opened - first, closed - opened, end - closed
        return sum(-(-part * r // n) for part in parts)

    def capacity(values: Values, facts: ProblemFacts) -> dict[str, int]:
        slots = _fixed(_COHORT, "n")(values, facts)
        require(
            slots["cohort"] * facts.n < 2**31,
            lambda: f"of {facts.n} clients is more than a balanced order can count (2^31)",
            "let fewer take part, or draw them by uniform",
            cohort=slots["cohort"],
        )
        return slots

    return Participation(
        "balanced", draw, params=(_COHORT,), capacity=capacity, most=most, fixed_size=True
    )


def _deepest(t: npt.NDArray[np.int64], length: int, r: int, n: int) -> int:
    """The sum over cycles of the most of the rounds t that call one place, where intervals overlap."""
    cycle, first = t // length, t % length * r % n
    wraps, end = first + r > n, first + r
    begins = np.append(cycle * (n + 1) + first, cycle[wraps] * (n + 1))
    ends = np.append(cycle * (n + 1) + np.minimum(end, n), (cycle * (n + 1) + end - n)[wraps])
    places, steps = np.append(ends, begins), np.repeat((-1, 1), begins.size)
    order = np.argsort(places, kind="stable")  # what ends at a place does so before others begin
    depth, cycles = steps[order].cumsum(), places[order] // (n + 1)
    starts = np.flatnonzero(np.diff(cycles, prepend=-1))
    return int(np.maximum.reduceat(depth, starts).sum()) if t.size else 0


@made
def retiring(turns: tuple[int, ...]) -> Participation:
    """Client i takes part in the first ``turns[i]`` rounds, and then retires; who is left weighs 1/r.

    Turns are public, as the budgets are from which :func:`jaxfl.parts.with_budgets` computes them.
    """
    for each in turns:
        whole_number("turns", each, 1)

    def draw(key: Key, t: Array, n: int, hp: Hyper) -> Draw:
        require(
            len(turns) == n,
            lambda: f"has the turns of {len(turns)} clients, and there are {n}",
            "give one for each",
            participation="retiring",
        )
        stays = jnp.asarray(turns) > t
        left = jnp.maximum(jnp.sum(stays), 1)
        return _weighted(jnp.where(stays, jnp.arange(n), n), stays, 1.0 / left, n)

    def most(rounds: Sequence[int], n: int, values: Values) -> int:
        return int(np.sum(np.asarray(rounds) < max(turns)))

    def least(n: int, values: Values) -> int:
        return max(1, sum(each >= int(values["rounds"]) for each in turns))

    return Participation("retiring", draw, most=most, least=least)


@made
def unreliable(base: Participation = uniform()) -> Participation:  # noqa: B008
    """Uniform participation, or ``base``, some of whose clients do not answer.

    Each client that ``base`` calls fails by a coin of its own, before it changes the sum or its own
    memory.  The server gets the mean over those that answer, and nothing where too few do::

        A_t = those of S_t whose coin says so;   weights 1/|A_t| if |A_t| >= threshold, else none

    Under secure aggregation the protocol of :mod:`jaxfl.parts.dropouts` recovers exactly that sum,
    which holds the noise of ``threshold`` clients at least.  Costs leave out the models that went to
    clients which then failed, and the shares of seeds that recovery takes.
    """

    def draw(key: Key, t: Array, n: int, hp: Hyper) -> Draw:
        called = base.draw(key, t, n, hp)
        index = jnp.arange(n) if called.index is None else called.index
        now = jax.random.fold_in(jax.random.fold_in(key, _COINS), t)
        coin = jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(now, i)))(index)
        answers = (called.weight > 0) & (coin >= hp["dropout"])
        count = jnp.sum(answers)
        heard = answers & (count >= hp["threshold"])
        return Draw(jnp.where(heard, index, n), jnp.where(heard, 1.0 / jnp.maximum(count, 1), 0.0))

    def capacity(values: Values, facts: ProblemFacts) -> dict[str, int]:
        slots = base.capacity(values, facts)
        most, threshold = slots.get("cohort", facts.n), int(np.max(values["threshold"]))
        require(
            threshold <= most,
            lambda: (
                f"exceeds the {most} clients that are called in a round: all rounds would be lost"
            ),
            lambda: f"ask for at most {most}",
            threshold=threshold,
        )
        return {"cohort": facts.n, **slots}

    def least(n: int, values: Values) -> int:
        return int(values["threshold"])

    return Participation(
        "unreliable",
        draw,
        params=(*base.params, _DROPOUT, _THRESHOLD),
        capacity=capacity,
        most=base.most,
        least=least,
    )


def _weighted(index: Array, live: Array, weight: Array | float, end: int) -> Draw:
    return Draw(jnp.where(live, index, end), jnp.where(live, weight, 0.0))


# --- by name -------------------------------------------------------------------------------------

SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "full": full,
    "with_replacement": with_replacement,
    "without_replacement": without_replacement,
    "poisson": poisson,
    "shuffled": shuffled,
    "cyclic": cyclic,
    "single_pass": single_pass,
}


PARTICIPATIONS: dict[str, Callable[..., Participation]] = {
    "everyone": everyone,
    "uniform": uniform,
    "balanced": balanced,
    "poisson": poisson_clients,
    "unreliable": unreliable,
}


def sampler(name: str, **options: Any) -> Sampler:
    """The sampler of that name, with its options."""
    return named_part("sampler", name, SAMPLERS, **options)


def participation(name: str, **options: Any) -> Participation:
    """The participation of that name, with its options."""
    return named_part("participation", name, PARTICIPATIONS, **options)
