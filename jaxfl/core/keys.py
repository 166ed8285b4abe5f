"""The keys of rounds."""

from __future__ import annotations

import jax

from jaxfl.core.fusion import materialized
from jaxfl.core.types import Array, Key

__all__ = ["at"]


def at(key: Key, t: Array) -> Key:
    """The key of round t of a stream."""
    return materialized(jax.random.fold_in(key, t), t)
