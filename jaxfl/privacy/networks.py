"""Noise that neighbours of a network share, and that cancels in the sum of all clients.

Client i adds ``w_i + sum_{j ~ i} v_ij``, w_i ~ N(0, sigma^2 I), and v_ij = -v_ji ~ N(0, c^2 sigma^2 I),
which only i and j know.  With L the Laplacian of the graph, the noises of all clients are one Gaussian
vector of covariance ``sigma^2 (I + c^2 L)``.  Who sees every message and no seed sees a Gaussian mechanism:
what one client's data move is as hidden as under independent noise of deviation
``sigma/sqrt([(I + c^2 L)^{-1}]_ii)`` [DECOR; Allouah et al., ICML 2024].  Clients that collude know the
seeds of their own edges: they leave the graph.  An exposure is ``[(I + c^2 L)^{-1}]_ii``.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxfl.core.errors import require
from jaxfl.core.params import nonnegative, whole
from jaxfl.privacy.gaussian import bisect

__all__ = ["Hidden", "balanced", "exposures", "hidden"]

Floats = npt.NDArray[np.float64]
MOST_SETS = 2000  # of colluding clients that are tried one by one


class Hidden(NamedTuple):
    """The protection by noise that neighbours share, whoever the colluding clients are.

    Fields:
        noise: the deviation of independent noise that hides as much of any client, in units of its own.
        connected: whether the other clients stay connected without them; None: not known.
    """

    noise: float
    connected: bool | None


def components(links: Any) -> list[npt.NDArray[np.intp]]:
    """The clients of each connected part of a graph."""
    links = np.asarray(links, bool)
    left, found = np.ones(len(links), bool), []
    while left.any():
        part = np.zeros(len(links), bool)
        part[np.argmax(left)] = True
        while (more := part | links[part].any(0)).sum() > part.sum():
            part = more
        found.append(np.flatnonzero(part))
        left &= ~part
    return found


def exposures(links: Any, coupling: float) -> Floats:
    """The exposure of each client: between 1/n, where all is noise of neighbours, and 1.

    Each connected part has the eigenvalue 0 once, which is set, and not computed: c may be large.
    """
    links = np.asarray(links, bool)
    out = np.ones(len(links))
    for part in components(links):
        inside = links[np.ix_(part, part)].astype(np.float64)
        values, vectors = np.linalg.eigh(np.diag(inside.sum(1)) - inside)
        shrunk = 1 / (1 + coupling**2 * np.maximum(values[1:], 0.0))
        out[part] = 1 / len(part) + vectors[:, 1:] ** 2 @ shrunk
    return np.minimum(out, 1.0)


def balanced(links: Any) -> float:
    """The coupling with which the exposure of every client is at most twice the least that any has."""
    limit = 2 / min(len(part) for part in components(links))

    def enough(log_c: Floats) -> bool:
        return bool(exposures(links, math.exp(log_c)).max() <= limit)

    if limit >= 1:
        return 0.0
    return math.exp(float(bisect(enough, np.asarray(-20.0), np.asarray(20.0))))


def hidden(links: Any, coupling: float, colluding: int = 0) -> Hidden:
    """The protection of every client by its neighbours' noise, if up to ``colluding`` others collude.

    Every set of colluding clients is tried, unless one is all neighbours of a client: then its own noise is
    all.  Where there are more than :data:`MOST_SETS`, the algebraic connectivity lambda_2 counts, which
    falls by 1 at most with each client that leaves [Fiedler, 1973]: an exposure among r clients is at most
    ``1/r + (1 - 1/r)/(1 + c^2 lambda_2)``.
    """
    links = np.asarray(links, bool) & ~np.eye(len(links), dtype=bool)
    n, degree = len(links), links.sum(1)
    nonnegative("coupling", coupling)
    whole("colluding", colluding, 0)
    require(
        colluding < n,
        lambda: f"leaves none of the {n} clients of the network to protect",
        lambda: f"ask for at most {n - 1}",
        colluding=colluding,
    )
    left = n - colluding
    if colluding and colluding >= degree.min():
        return Hidden(1.0, left == 1)
    if degree.min() == n - 1:  # all sets are alike
        return Hidden(float(exposures(links[:left, :left], coupling).max() ** -0.5), True)
    if math.comb(n, colluding) > MOST_SETS:
        gap = np.linalg.eigvalsh(np.diag(degree) - links.astype(np.float64))[1] - colluding
        bound = 1 / left + (1 - 1 / left) / (1 + coupling**2 * max(float(gap) - 1e-9, 0.0))
        return Hidden(bound**-0.5, True if gap > 1e-9 else None)
    most, whole_graph = 0.0, True
    for gone in itertools.combinations(range(n), colluding):
        stay = np.setdiff1d(np.arange(n), gone)
        inside = links[np.ix_(stay, stay)]
        most = max(most, float(exposures(inside, coupling).max()))
        whole_graph &= len(components(inside)) == 1
    return Hidden(most**-0.5, whole_graph)
