"""The setting of all figures: 16 devices of Adult, 10 of them a round, delta = 1e-4."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

import jaxfl
from jaxfl import Problem, models
from jaxfl.data import load
from jaxfl.data.partition import partition
from jaxfl.data.records import gather
from jaxfl.data.splits import holdout
from jaxfl.parts import Algorithm, aggregations, sampling
from papers.entry import Job, Numbers

if TYPE_CHECKING:
    import xarray

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
    "best",
]

DEVICES, COHORT, DELTA = 16, 10, 1e-4
TRAIN = 2440  # of a device's 3,052 rows
WIDTHS = (32, 16)
UNIT = {"logistic": 50.0, "network": 30.0}  # of our noise, in that of the paper


@functools.lru_cache(maxsize=2)
def adult(model: str, directory: str | None = None) -> Problem:
    """Logistic regression (two softmax outputs) or the network; 80/10/10 of each device's rows."""
    import jax

    every = load("adult", directory=directory, pool=True)
    parts = partition("iid", len(every.train[1]), DEVICES, 0, drop_remainder=True)
    parts, test = holdout(parts, 0.1, 0)
    parts, validation = holdout(parts, 1 / 9, 1)
    held = np.concatenate([*test, *validation])
    rows = jax.tree.map(lambda leaf: leaf[held], every.train)
    clients = gather(every._replace(test=rows), parts)
    features = int(clients.train[0].shape[-1])
    if model == "logistic":
        found = models.softmax_regression(features, 2)
    else:
        found = models.mlp(features, 2, hidden=WIDTHS, activation="relu")
    return Problem(found, clients, validation_share=0.5)


def best(ds: xarray.Dataset, each: Collection[str] = ()) -> xarray.DataArray:
    """Which step size is best on validation data, for each value of some axes."""
    ends = ds["validation_accuracy"].isel(round=-1, drop=True)
    others = [dim for dim in ends.dims if dim not in (*each, "lr")]
    return ends.mean(others, skipna=False).fillna(-1).argmax("lr")


@functools.cache
def algorithm(algorithm: str = "private_local_sgd", aggregation: str = "secure_sum") -> Algorithm:
    """An algorithm that calls all devices equally often."""
    parts: dict[str, Any] = {"participation": sampling.participation("balanced")}
    if algorithm == "private_local_sgd":
        parts["aggregation"] = aggregations.aggregation(aggregation)
    return jaxfl.algorithm(algorithm, **parts)


def attacked(job: Job, cell: Numbers, tau: int, batch: int, rounds: int, hidden: int) -> float:
    """A lower bound on the eps of one device, if the server sees sums of r = ``hidden`` messages.

    The canary's loss is linear.  A record then moves the mean by 1/r of what it moves its message, and
    the noise of the mean is 1/sqrt(r) as large: the attack sees a message with sqrt(r) times the noise.
    """
    more: dict[str, Any] = {} if tau == 1 else {"local_steps": tau}
    parts: dict[str, Any] = {} if tau == 1 else {"aggregation": aggregations.plain_sum()}
    name = "local_dp_sgd" if tau == 1 else "private_local_sgd"
    return job.audit(
        jaxfl.algorithm(name, **parts),
        rounds=-(-rounds * COHORT // DEVICES),
        m=TRAIN,
        delta=DELTA,
        clip=1.0,
        batch=batch,
        sigma=cell["used_sigma"] * hidden**0.5,
        **more,
    )
