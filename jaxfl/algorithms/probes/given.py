"""Small numbers for a part that is checked alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfl.core.schedules import Schedule
from jaxfl.core.types import Hyper, Key, ProblemFacts

__all__ = ["DRAWS", "FACTS", "FAST", "D", "Given", "M", "N", "hyper"]

D, M, N = 23, 12, 9  # coordinates, which no number of blocks divides, records of a client, clients
DRAWS = 4000
FAST: dict[str, Any] = {"xla_backend_optimization_level": 0}  # compilation takes longer than runs
FACTS = ProblemFacts(n=N, m=M, m_max=M, d=D, rounds=3, smoothness=None)


class Given(NamedTuple):
    """The hyper-parameters of a part, and the seed of its draws."""

    numbers: Mapping[str, Any]
    seed: int

    def keys(self, draws: int = DRAWS) -> Key:
        return jax.random.split(jax.random.key(self.seed), draws)


def hyper(part: Any, numbers: Mapping[str, Any], d: int = D, **more: Any) -> Hyper:
    """The hyper-parameters of a part, given or small ones, and its slots."""
    whole = {param.name for param in part.params if param.integer}
    values = {param.name: max(param.low, min(0.5, param.high)) for param in part.params}
    values = {**values, **more, **numbers}
    caps = part.capacity(values, FACTS._replace(d=d)) if hasattr(part, "capacity") else {}
    leaves = {
        name: jnp.asarray(v, jnp.int32 if name in whole else jnp.float32)
        for name, v in values.items()
        if not isinstance(v, Schedule)
    }
    return Hyper(leaves, tuple(sorted(caps.items())))
