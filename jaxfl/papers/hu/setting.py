"""What all figures have in common: 16 devices of Adult, 10 of them a round, delta = 1e-4."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxfl.papers.entry import Job, Numbers

if TYPE_CHECKING:
    from jaxfl.types import Algorithm, Problem

__all__ = [
    "COHORT",
    "DELTA",
    "DEVICES",
    "TRAIN",
    "UNIT",
    "WIDTHS",
    "adult",
    "algorithm",
    "attacked",
]

DEVICES, COHORT, DELTA = 16, 10, 1e-4
TRAIN = 2440  # of a device's 3,052 rows
WIDTHS = (32, 16)
UNIT = {"logistic": 50.0, "network": 30.0}  # of our noise, in that of the paper


@functools.lru_cache(maxsize=2)
def adult(model: str, directory: str | None = None) -> Problem:
    """Logistic regression (two softmax outputs) or the network; 80/10/10 of each device's rows."""
    import jax

    from jaxfl import data, models
    from jaxfl.problems import make_problem

    every = data.load("adult", directory=directory, pool=True)
    parts = data.partition("iid", len(every.train[1]), DEVICES, 0, drop_remainder=True)
    parts, test = data.holdout(parts, 0.1, 0)
    parts, _validation = data.holdout(parts, 1 / 9, 1)
    held = np.concatenate(test)
    rows = jax.tree.map(lambda leaf: leaf[held], every.train)
    clients = data.gather(every._replace(test=rows), parts)
    features = int(clients.train[0].shape[-1])
    if model == "logistic":
        return make_problem(models.softmax_regression(features, 2), clients)
    return make_problem(models.mlp(features, WIDTHS, 2, activation="relu"), clients)


@functools.cache
def algorithm(algorithm: str = "private_local_sgd", aggregation: str = "secure_sum") -> Algorithm:
    """An algorithm that calls all devices equally often."""
    from jaxfl import aggregations, algorithms, sampling

    parts: dict[str, Any] = {"participation": sampling.participation("balanced")}
    if algorithm == "private_local_sgd":
        parts["aggregation"] = aggregations.aggregation(aggregation)
    return algorithms.algorithm(algorithm, **parts)


def attacked(job: Job, cell: Numbers, tau: int, batch: int, rounds: int, hidden: int) -> float:
    """A lower bound on the eps of one device, of whose messages sums of ``hidden`` ones are seen.

    The canary's loss is linear.  There a record moves the mean by 1/r of what it moves its message,
    beside noise 1/sqrt(r) as large, so that what is attacked is a message with sqrt(r) times the noise.
    """
    from jaxfl import aggregations, algorithms

    more: dict[str, Any] = {} if tau == 1 else {"local_steps": tau}
    parts: dict[str, Any] = {} if tau == 1 else {"aggregation": aggregations.plain_sum()}
    name = "local_dp_sgd" if tau == 1 else "private_local_sgd"
    return job.audit(
        algorithms.algorithm(name, **parts),
        rounds=-(-rounds * COHORT // DEVICES),
        m=TRAIN,
        delta=DELTA,
        clip=1.0,
        batch=batch,
        sigma=cell["used_sigma"] * hidden**0.5,
        **more,
    )
