"""Graphs: mixing matrices of a network without a server.  Host side.

W is symmetric and doubly stochastic, and ``W_ij > 0`` where i and j are neighbours.  Every
multiplication by W shrinks ``|x_i - mean x|`` by :func:`second_eigenvalue`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxfl.core.checks import instance
from jaxfl.core.errors import InputError, attempt, require
from jaxfl.core.identity import by_identity
from jaxfl.core.params import known, number, numbers, whole
from jaxfl.core.records import document_all

__all__ = [
    "GRAPHS",
    "Graph",
    "complete",
    "erdos_renyi",
    "graph",
    "grid",
    "links",
    "metropolis",
    "mixing",
    "ring",
    "second_eigenvalue",
]

Floats = npt.NDArray[np.float64]
TRIES = 1000  # the most random graphs drawn in search of a connected one
ROUNDING = 1e-6  # tolerance of the sums of rows and columns of a user's matrix


class Graph(NamedTuple):
    """A network of any number of clients.

    Fields:
        name: how the part is called in records and messages.
        matrix: host: n -> W of n clients, (n, n) of float64, symmetric and doubly stochastic.
    """

    name: str
    matrix: Callable[[int], Floats]


@functools.cache
def complete() -> Graph:
    """All clients are neighbours: W_ij = 1/n."""
    return Graph("complete", lambda n: np.full((n, n), 1 / n))


@functools.cache
def ring() -> Graph:
    """Each client has two neighbours, with weights 1/3; the second eigenvalue is (1 + 2 cos(2 pi/n))/3."""

    def matrix(n: int) -> Floats:
        if n < 3:
            return np.full((n, n), 1 / n)
        eye = np.eye(n)
        return (eye + np.roll(eye, 1, axis=0) + np.roll(eye, -1, axis=0)) / 3

    return Graph("ring", matrix)


@functools.cache
def grid() -> Graph:
    """A rectangle as square as n allows, four neighbours inside, Metropolis weights."""

    def matrix(n: int) -> Floats:
        rows = next(r for r in range(math.isqrt(n), 0, -1) if n % r == 0)
        place = np.arange(n)
        across = np.abs(place[:, None] % (n // rows) - place[None] % (n // rows))
        down = np.abs(place[:, None] // (n // rows) - place[None] // (n // rows))
        return metropolis(across + down == 1)

    return Graph("grid", matrix)


@by_identity
def erdos_renyi(p: float = 0.4, seed: int = 0) -> Graph:
    """Each pair with probability p, Metropolis weights; the first connected graph of the seed."""
    p, seed = number("p", p, above=0, most=1), whole("seed", seed, 0)

    def matrix(n: int) -> Floats:
        rng = np.random.default_rng(seed)
        for _ in range(TRIES):
            upper = np.triu(rng.random((n, n)) < p, 1)
            linked = upper | upper.T
            if connected(linked):
                return metropolis(linked)
        raise InputError(
            f"gave no connected graph of {n} clients in {TRIES} tries", "ask for a larger p", p=p
        )

    return Graph(f"erdos_renyi:{p:g},{seed}", matrix)


def mixing(W: Any, name: str = "matrix") -> Graph:
    """A graph with the matrix W, symmetric and doubly stochastic."""
    W = numbers("W", W)
    require(
        W.ndim == 2 and W.shape[0] == W.shape[1],
        lambda: f"A mixing matrix is square, and this one is {W.shape}",
    )
    ends = np.abs(np.concatenate([W.sum(0), W.sum(1)]) - 1).max()
    require(
        np.isfinite(W).all() and W.min() >= 0 and ends <= ROUNDING,
        lambda: (
            "A mixing matrix has no negative entry, and its rows and columns sum to 1; this "
            f"one misses it by {max(ends, -W.min()):.3g}"
        ),
        "metropolis(links) makes one of any graph",
    )
    skew = np.abs(W - W.T).max()
    require(
        skew <= ROUNDING,
        lambda: (
            f"A mixing matrix is symmetric, and this one differs from its transpose by {skew:.3g}"
        ),
        "(W + W.T)/2 is symmetric, with the same sums",
    )
    return _own(tuple(map(tuple, W.tolist())), name)


@functools.cache
def _own(rows: tuple[tuple[float, ...], ...], name: str) -> Graph:
    def matrix(n: int) -> Floats:
        require(
            n == len(rows),
            lambda: f"The mixing matrix is of {len(rows)} clients, and there are {n}",
        )
        return np.asarray(rows)

    return Graph(name, matrix)


def metropolis(links: Any) -> Floats:
    """W_ij = 1/(1 + max(deg_i, deg_j)) on the links, the rest on the diagonal."""
    links = np.asarray(links, bool)
    degree = links.sum(1)
    W = np.where(links, 1 / (1 + np.maximum(degree[:, None], degree[None])), 0.0)
    return W + np.diag(1 - W.sum(1))


@functools.lru_cache(maxsize=256)
def links(graph: Graph, n: int) -> npt.NDArray[np.bool_]:
    """The neighbours among n clients, (n, n): the same for rounds and for accountants."""
    W = np.asarray(graph.matrix(n))
    out: npt.NDArray[np.bool_] = ((W != 0) | (W.T != 0)) & ~np.eye(n, dtype=bool)
    out.flags.writeable = False
    return out


def connected(links: Any) -> bool:
    """Whether every client reaches every other."""
    reached = np.eye(len(links))[0] > 0
    for _ in range(len(links)):
        reached = reached | (np.asarray(links)[reached].any(0))
    return bool(reached.all())


def second_eigenvalue(W: Any) -> float:
    """The largest ``|eigenvalue|`` of W off the direction in which all agree."""
    W = np.asarray(W, np.float64)
    return float(np.linalg.norm(W - 1 / len(W), 2))


GRAPHS: dict[str, Callable[..., Graph]] = {
    "complete": complete,
    "ring": ring,
    "grid": grid,
    "erdos_renyi": erdos_renyi,
}


def graph(name: str) -> Graph:
    """The graph of that name; ``erdos_renyi:0.4,1`` is that of probability 0.4 and seed 1."""
    kind, _, written = instance("graph", name, str, "name one, as 'ring'").partition(":")
    make = known("graph", kind, GRAPHS)
    given = written.split(",") if written else []
    with attempt("must read complete, ring, grid or erdos_renyi:P,SEED", graph=name):
        if kind != "erdos_renyi" and given:
            raise ValueError
        p, *seed = given or ["0.4"]
        return erdos_renyi(float(p), *map(int, seed)) if kind == "erdos_renyi" else make()


document_all(__name__)
