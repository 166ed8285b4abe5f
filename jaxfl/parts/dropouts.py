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
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import require
from jaxfl.core.params import whole

__all__ = ["Enrolment", "collect", "enrol", "reconstruct", "share"]

Words: TypeAlias = npt.NDArray[np.uint32]
PRIME = 2**61 - 1  # seeds are shared in the field of this size


@dataclasses.dataclass(frozen=True)
class Enrolment:
    """Seeds and their shares: ``own[i]`` and ``pair[i, j]`` with threshold t."""

    clients: tuple[int, ...]
    threshold: int
    own: Mapping[int, int]
    pair: Mapping[tuple[int, int], int]
    own_shares: Mapping[int, Mapping[int, int]]  # of own[i], held by each client
    pair_shares: Mapping[tuple[int, int], Mapping[int, int]]

    def message(self, i: int, words: npt.ArrayLike, t: int) -> Words:
        """What client i sends in round t for its encoded vector."""
        total = np.array(words, np.uint32) + expand(self.own[i], t, np.size(words))
        for j in self.clients:
            if j != i:
                total += expand(self.pair[i, j], t, total.size)
                total -= expand(self.pair[j, i], t, total.size)
        return total

    def unmask(self, messages: Mapping[int, npt.ArrayLike], t: int) -> Words:
        """The sum of the words of those who reported, if t of them did."""
        alive = sorted(messages)
        unknown = sorted(set(alive) - set(self.clients))
        require(not unknown, f"Clients {unknown} reported and are not enrolled", "leave them out")
        require(
            len(alive) >= self.threshold,
            f"{len(alive)} of {len(self.clients)} clients reported, and their sum needs the "
            f"shares of {self.threshold}",
            "run the round again with more of them",
        )
        arrays = [np.asarray(messages[i], np.uint32) for i in alive]
        total: Words = np.sum(arrays, axis=0, dtype=np.uint32)
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
    members = tuple(sorted({whole("client", i, 0) for i in clients}))
    threshold = whole("threshold", threshold, 1)
    require(
        threshold <= len(members),
        f"exceeds the {len(members)} clients",
        "ask for at most that many",
        threshold=threshold,
    )
    rng = np.random.default_rng(seed)
    own = {i: int(rng.integers(PRIME)) for i in members}
    pair = {(i, j): int(rng.integers(PRIME)) for i in members for j in members if i != j}

    def shares(secret: int) -> dict[int, int]:
        return share(secret, members, threshold, rng)

    return Enrolment(
        members,
        threshold,
        own,
        pair,
        {i: shares(secret) for i, secret in own.items()},
        {key: shares(secret) for key, secret in pair.items()},
    )


def collect(cohort: Iterable[int], messages: Mapping[int, npt.ArrayLike]) -> Words:
    """The sum of messages under pairwise masks alone: everyone of the cohort has to report."""
    members = set(cohort)
    missing = sorted(members - set(messages))
    require(
        not missing,
        f"Clients {missing} did not report, so that the masks of the other clients do not cancel",
        "run the round again without them, or enrol with a threshold (jaxfl.dropouts)",
    )
    total: Words = np.sum([np.asarray(messages[i], np.uint32) for i in members], 0, np.uint32)
    return total


def expand(seed: int, t: int, d: int) -> Words:
    """PRF(seed, t): d words.  Good statistics, not cryptography."""
    words = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, t]))
    return words.integers(0, 2**32, d, np.uint32)


# --- Shamir's secret sharing -----------------------------------------------------------------------


def share(
    secret: int, members: Iterable[int], threshold: int, rng: np.random.Generator
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
