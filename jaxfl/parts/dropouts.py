"""The protocol of secure aggregation, message by message, where clients may drop out.  Host side.

Pairwise masks alone need every client: :func:`collect` raises where one is missing.  The protocol of
Bonawitz et al. (CCS 2017, the honest-but-curious one) needs only t clients: each client also adds a
mask of its own, and shares the seeds of both by Shamir's scheme [1979] among all.  After the messages
have arrived, the survivors reveal the shares of the *own* seed of each survivor, and of the *pair*
seeds of each client that dropped out, never both for one client::

    c_i = w_i + PRF(b_i, t) + sum_{j != i} (PRF(s_ij, t) - PRF(s_ji, t))   mod 2^32

An :class:`Enrolment` holds the secrets of all clients; no client knows all of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl.core.checks import instance
from jaxfl.core.errors import require
from jaxfl.core.params import whole

__all__ = ["Enrolment", "Message", "collect", "enrol"]

Words: TypeAlias = npt.NDArray[np.uint32]
PRIME = 2**61 - 1  # seeds are shared in the field of this size
MOST = 256  # clients of an enrolment, which holds shares of the seeds of all pairs at all clients


class Message(NamedTuple):
    """One client's message in a round: its masked words, and the numbers that identify their masks."""

    words: Words
    client: int
    t: int
    group: int  # of the enrolment


@dataclasses.dataclass(frozen=True)
class Enrolment:
    """Seeds and their shares: ``own[i]`` and ``pair[i, j]`` with threshold t."""

    clients: tuple[int, ...]
    threshold: int
    own: Mapping[int, int]
    pair: Mapping[tuple[int, int], int]
    own_shares: Mapping[int, Mapping[int, int]]  # of own[i], held by each client
    pair_shares: Mapping[tuple[int, int], Mapping[int, int]]
    group: int  # a number that identifies the enrolment

    def message(self, i: int, words: npt.ArrayLike, t: int) -> Message:
        """The message of client i in round t for its encoded vector."""
        i, t = whole("client", i, 0), whole("t", t, 0)
        require(i in self.own, "is not enrolled", lambda: f"enrolled are {self.clients}", client=i)
        plain = _words(f"client {i}", words)
        total: Words = plain + expand(self.own[i], t, plain.size)
        for j in self.clients:
            if j != i:
                total += expand(self.pair[i, j], t, total.size)
                total -= expand(self.pair[j, i], t, total.size)
        return Message(total, i, t, self.group)

    def unmask(self, messages: Mapping[int, Message], t: int) -> Words:
        """The sum of the words of those who reported in round t, if ``threshold`` of them did."""
        t, alive = whole("t", t, 0), _clients(_by_client("messages", messages))
        unknown = sorted(set(alive) - set(self.clients))
        require(
            not unknown,
            lambda: f"Clients {unknown} reported and are not enrolled",
            "leave them out",
        )
        require(
            len(alive) >= self.threshold,
            lambda: (
                f"{len(alive)} of {len(self.clients)} clients reported, and their sum needs the "
                f"shares of {self.threshold}"
            ),
            "run the round again with more of them",
        )
        for i in alive:
            m = instance(f"messages[{i}]", messages[i], Message, "make it with Enrolment.message")
            require(
                (m.client, m.t, m.group) == (i, t, self.group),
                lambda: (
                    f"The message under client {i} is of client {m.client} in round {m.t}"
                    f"{'' if m.group == self.group else ' of another enrolment'}, and its masks do not "
                    f"cancel in round {t}"
                ),
                "unmask what one round collected",
            )
        total = _sum({i: messages[i].words for i in alive})
        helpers = alive[: self.threshold]
        for i in alive:
            own = reconstruct({h: self.own_shares[i][h] for h in helpers})
            total -= expand(own, t, total.size)
        for gone in set(self.clients) - set(alive):
            for i in alive:
                for pair, sign in (((i, gone), -1), ((gone, i), 1)):
                    seed = reconstruct({h: self.pair_shares[pair][h] for h in helpers})
                    mask = expand(seed, t, total.size)
                    total = total + mask if sign > 0 else total - mask
        return total


def enrol(clients: Iterable[int], threshold: int, seed: int) -> Enrolment:
    """Seeds for these clients, and shares of them that any ``threshold`` clients can put together."""
    members = _clients(clients)
    require(
        len(members) <= MOST,
        lambda: f"{len(members)} clients have {len(members) ** 2:,} seeds to share among all",
        lambda: f"enrol at most {MOST}, such as the cohort of a round",
    )
    threshold = whole("threshold", threshold, 1)
    most, way = f"exceeds the {len(members)} clients", "ask for at most that many"
    require(threshold <= len(members), most, way, threshold=threshold)
    rng = np.random.default_rng(whole("seed", seed, 0, math.inf))
    own = {i: int(rng.integers(PRIME)) for i in members}
    pair = {(i, j): int(rng.integers(PRIME)) for i in members for j in members if i != j}

    return Enrolment(
        members,
        threshold,
        own,
        pair,
        {i: share(secret, members, threshold, rng) for i, secret in own.items()},
        {key: share(secret, members, threshold, rng) for key, secret in pair.items()},
        int(rng.integers(PRIME)),
    )


def collect(cohort: Iterable[int], messages: Mapping[int, npt.ArrayLike]) -> Words:
    """The sum of messages under pairwise masks alone: everyone of the cohort has to report."""
    members, reported = set(_clients(cohort)), set(_clients(_by_client("messages", messages)))
    extra, missing = sorted(reported - members), sorted(members - reported)
    require(
        not extra, lambda: f"Clients {extra} reported and are not in the cohort", "leave them out"
    )
    require(
        not missing,
        lambda: (
            f"Clients {missing} did not report, and the masks of the other clients do not cancel"
        ),
        "run the round again without them, or enrol with a threshold (jaxfl.parts.dropouts)",
    )
    return _sum(messages)


def _by_client(name: str, given: Any) -> Any:
    way = f"give a dict with one of the {name} by the number of each client"
    return instance(name, given, dict, way)


def _clients(clients: Any) -> tuple[int, ...]:
    """Clients in order; raises unless there are some, each once."""
    require(isinstance(clients, Iterable), "must be numbers of clients", clients=clients)
    members = tuple(sorted(whole("client", i, 0) for i in clients))
    require(members, "There are 0 clients", "name at least one")
    require(len(set(members)) == len(members), "name a client twice", clients=members)
    return members


def _words(whose: str, words: Any) -> Words:
    """A vector of words; raises for anything that is no integer of 32 bits."""
    try:
        array = np.asarray(words)
    except ValueError:  # a ragged list
        array = np.asarray(None)
    usable = array.ndim == 1 and array.size and array.dtype.kind in "iu"
    require(
        usable and array.min() >= 0 and array.max() < 2**32 and not np.ma.is_masked(words),
        lambda: f"The words of {whose} must be a vector of integers in 0..{2**32 - 1}",
        "encode them first (jaxfl.parts.aggregations.encode)",
    )
    return array.astype(np.uint32)


def _sum(messages: Mapping[int, Any]) -> Words:
    arrays = {i: _words(f"client {i}", words) for i, words in messages.items()}
    sizes = sorted({array.size for array in arrays.values()})
    require(
        len(sizes) == 1, lambda: f"Messages of {sizes} words do not add up", "send equally many"
    )
    total: Words = np.sum(list(arrays.values()), 0, np.uint32)
    return total


def expand(seed: int, t: int, d: int) -> Words:
    """PRF(seed, t): d words.  Good statistics, not cryptography."""
    words = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, t]))
    return words.integers(0, 2**32, d, np.uint32)


# --- Shamir's secret sharing -----------------------------------------------------------------------


def share(
    secret: int, members: tuple[int, ...], threshold: int, rng: np.random.Generator
) -> dict[int, int]:
    """Client i's share is P(i + 1) for a random P of degree t - 1 with P(0) = secret, mod the prime."""
    coefficients = [secret, *(int(rng.integers(PRIME)) for _ in range(threshold - 1))]

    def value(at: int) -> int:
        total = 0
        for c in reversed(coefficients):
            total = (total * at + c) % PRIME
        return total

    return {i: value(i + 1) for i in members}


def reconstruct(shares: Mapping[int, int]) -> int:
    """P(0) of the polynomial through these shares."""
    total = 0
    for i, y in shares.items():
        top = bottom = 1
        for j in shares:
            if j != i:
                top, bottom = top * (j + 1) % PRIME, bottom * (j - i) % PRIME
        total = (total + y * top * pow(bottom, -1, PRIME)) % PRIME
    return total
