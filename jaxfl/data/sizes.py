"""Laws of client sizes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from jaxfl.data._checks import integer, lookup, real, stream
from jaxfl.errors import InputError

__all__ = ["LAWS", "sizes"]

LAWS = ("equal", "lognormal", "zipf")


def sizes(
    law: str, rows: int, clients: int, seed: int = 0, *, spread: float = 1.0, min_size: int = 1
) -> npt.NDArray[np.intp]:
    """Client sizes that sum to ``rows``: ``min_size`` each, the rest in proportion to weights.

    ``equal``: weight 1; ``lognormal``: exp(spread N(0, 1)); ``zipf``: (i + 1)^(-spread), client 0
    the largest.  Rounded by largest remainder.
    """
    rows, clients = integer("rows", rows, 1), integer("clients", clients, 1)
    lookup("size law", law, dict.fromkeys(LAWS))
    spread = real("spread", spread)
    extra = rows - integer("min_size", min_size, 0) * clients
    if extra < 0:
        raise InputError(
            f"{clients} clients of min_size={min_size} rows need more than {rows} rows."
        )
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
