"""Laws of client sizes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from jaxfl.core.checks import stream
from jaxfl.core.errors import require
from jaxfl.core.params import choice, nonnegative, whole

__all__ = ["LAWS", "enough", "sizes"]

LAWS = ("equal", "lognormal", "zipf")


def sizes(
    law: str, rows: int, clients: int, seed: int = 0, *, spread: float = 1.0, min_size: int = 1
) -> npt.NDArray[np.intp]:
    """Client sizes that sum to ``rows``: ``min_size`` each, the rest in proportion to weights.

    ``equal``: weight 1; ``lognormal``: exp(spread N(0, 1)); ``zipf``: (i + 1)^(-spread), client 0
    the largest.  Rounded by largest remainder.
    """
    rows, clients = whole("rows", rows, 1), whole("clients", clients, 1)
    choice("law", law, LAWS)
    spread, min_size = nonnegative("spread", spread), whole("min_size", min_size, 0)
    enough(rows, clients, min_size)
    extra = rows - min_size * clients
    log_weight = np.zeros(clients)
    if law == "lognormal":
        log_weight = spread * stream(seed, "sizes").standard_normal(clients)
    elif law == "zipf":
        log_weight = -spread * np.log(np.arange(1, clients + 1))
    weight = np.exp(log_weight - log_weight.max())
    exact = extra * (weight / weight.sum())
    out: npt.NDArray[np.intp] = np.floor(exact).astype(np.intp) + min_size
    out[np.argsort(out - exact, kind="stable")[: rows - out.sum()]] += 1
    return out


def enough(rows: int, clients: int, each: int = 1) -> None:
    """Raise unless every client can have ``each`` rows."""
    wrong = f"{clients} clients with at least {each} rows each cannot share {rows} rows"
    way = f"ask for at most {rows // max(each, 1)} clients"
    require(clients * each <= rows, wrong, way)
