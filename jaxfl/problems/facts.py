"""What the host knows of a problem before the first round."""

from __future__ import annotations

import numpy as np

from jaxfl.core.types import GeneratedSamples, Problem, ProblemFacts

__all__ = ["facts_of"]


def facts_of(problem: Problem, rounds: int | None) -> ProblemFacts:
    """What the resolution of numbers may look at."""
    count, model = np.asarray(problem.count), problem.model
    smoothness = None
    if model.smoothness and not isinstance(problem.train, GeneratedSamples):
        smoothness = model.smoothness(problem.train, count)
    sizes = tuple(int(m) for m in np.unique(count))
    return ProblemFacts(
        problem.n,
        sizes[0],
        problem.m_max,
        model.dim,
        rounds,
        smoothness,
        sizes,
        model.diameter,
        model.convex,
        None if model.convex is None else bool(model.convex and model.kernel.link is not None),
        model.project is not None,
    )
