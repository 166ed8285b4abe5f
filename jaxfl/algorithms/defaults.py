"""The defaults of hyper-parameters in words: constants, or where values come from."""

from __future__ import annotations

import contextlib
from typing import Any

from jaxfl.algorithms.resolution import planned, resolve
from jaxfl.core.errors import InputError
from jaxfl.core.types import Algorithm, Eps, Origin, ProblemFacts, Source

__all__ = ["defaults"]


def defaults(algorithm: Algorithm) -> dict[str, str]:
    """The default of each hyper-parameter: a constant, or where its value comes from.

    They are those of one typical problem; how a value depends on the problem, its source says.
    """
    for n in (10, 1):  # some algorithms are for a single node
        with contextlib.suppress(InputError):
            facts = ProblemFacts(n, 1000, 1000, 100, 100, 1.0, (1000,), 10.0, True, True)
            plan, given = planned(algorithm, {}, facts), {}
            if isinstance(plan.asked, Eps):  # to calibrate may take seconds, and changes no source
                given = {"sigma": 1.0}
            found = resolve(algorithm, given, facts)
            values, sources = {**found.values, **plan.values}, {**found.sources, **plan.sources}
            texts = {name: _default(values[name], source) for name, source in sources.items()}
            if isinstance(plan.asked, Eps):
                texts["eps"] = f"{plan.asked.eps:g}"
                calibrated = "calibrated: the least that is proven for eps"
                texts["sigma"] = calibrated * algorithm.per_record
            return {name: shown for name, shown in texts.items() if shown}
    return {}


def _default(value: Any, source: Source) -> str:
    return f"{value:g}" if source == Origin.DEFAULT.value else source.removeprefix("default: ")
