"""What the host knows of a problem before the first round."""

from __future__ import annotations

import numpy as np

from jaxfl.core.hosts import on_host
from jaxfl.core.types import GeneratedSamples, Problem, ProblemFacts

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
    )
