"""Arrays and numbers of several processes, gathered on the host."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jax.experimental import multihost_utils

__all__ = ["gathered", "on_host"]


def on_host(array: Any) -> npt.NDArray[Any]:
    """Copy an array to the host; if several processes hold parts of it, all of them must call this."""
    if isinstance(array, jax.Array) and not (
        array.is_fully_addressable or array.is_fully_replicated
    ):
        array = multihost_utils.process_allgather(array, tiled=True)
    return np.asarray(array)


def gathered(value: float) -> npt.NDArray[np.float64]:
    """Gather one number of each process, exactly."""
    if jax.process_count() == 1:
        return np.array([value], np.float64)
    own = np.array([value], np.float64).view(np.uint8)
    found = np.ascontiguousarray(multihost_utils.process_allgather(own)).view(np.float64)
    return found.ravel()
