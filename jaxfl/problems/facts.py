"""What the host knows of a problem before the first round."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxfl.core.hosts import on_host
from jaxfl.core.types import Array, GeneratedSamples, Problem, ProblemFacts

__all__ = ["facts_of"]


def facts_of(problem: Problem, rounds: int | None) -> ProblemFacts:
    """The facts of a problem that resolution may use."""
    count, model = on_host(problem.count), problem.model
    smoothness = None
    if model.smoothness and not isinstance(problem.train, GeneratedSamples):
        smoothness = model.smoothness(problem.train, count)
    sizes = tuple(int(m) for m in np.unique(count))
    linear = model.kernel.link is not None
    return ProblemFacts(
        n=problem.n,
        m=sizes[0],
        m_max=problem.m_max,
        d=model.dim,
        rounds=rounds,
        smoothness=smoothness,
        sizes=sizes,
        diameter=model.diameter,
        convex=model.convex,
        contracts=None if model.convex is None else model.convex and linear,
        constrained=model.project is not None,
        groups=_groups(count, problem.weights),
    )


def _groups(count: Any, weights: Array | None) -> tuple[tuple[int, float, int], ...]:
    if weights is None:
        return ()
    pairs = np.stack([count, np.asarray(on_host(weights), np.float64)], axis=1)
    found, number = np.unique(pairs, axis=0, return_counts=True)
    return tuple((int(m), float(w), int(k)) for (m, w), k in zip(found, number, strict=True))
