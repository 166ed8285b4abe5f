"""A round with 10 to 1,000,000 of a million clients taking part, as a worker of `rounds.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import ours
from protocol import serve
from workloads import WORKLOADS

SIZES = (10, 100, 1000, 10_000, 100_000, 1_000_000)


def contenders() -> dict[str, Callable[[], Any]]:
    crowd = WORKLOADS["W5 b=1 all"]
    held: dict[str, Any] = {}

    def entry(r: int) -> Callable[[], Any]:
        def start() -> Any:
            if not held:
                held["problem"] = ours.problem(crowd)
            w = crowd._replace(cohort=r)
            run, told = ours.rounds_of(w, held["problem"], "ldp_sgd", {}, {})
            return run, {**told, "r": r}

        return start

    return {f"jaxfl, r = {r:,}": entry(r) for r in SIZES}


if __name__ == "__main__":
    serve(contenders(), {"jax": jax.__version__})
