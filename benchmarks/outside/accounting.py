"""The eps that others print for their noise, beside the eps that is proven here for the same noise."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxfl import InputError, Problem, algorithm, models, simulate
from jaxfl.data import from_clients
from jaxfl.parts import sampling
from jaxfl.privacy import Event, Mean, Sampling, epsilon, sigma_for
from outside.row import Measure

__all__ = ["DELTA", "IMAGES", "MEASURES"]

DELTA = 1e-5
IMAGES = 60_000  # of MNIST


def _images(
    batch: int, epochs: Mapping[float, int], data: str | None, seed: int
) -> Mapping[str, float]:
    """DP-SGD with Poisson batches, a record added or removed: eps by the noise multiplier."""
    found = {}
    for sigma, passes in epochs.items():
        sampling, releases = (
            Sampling("poisson", IMAGES, batch),
            math.ceil(passes * IMAGES / batch),
        )
        event = Event(sampling, Mean(1.0), sigma / batch, releases, adjacency="add_remove")
        found[f"{sigma:g}"] = epsilon(event, DELTA).eps
    return found


def _scaffold(data: str | None, seed: int) -> Mapping[str, float]:
    """DP-SCAFFOLD: batches of a fixed size, a record replaced, every user in every round."""
    users, m, share, steps, sigma = 100, 4000, 0.2, 100 * 50, 60.0

    def eps(sigma: float) -> float:  # the noise has 2 sigma times the share of a clipped gradient
        batch = int(share * m)
        sampling = Sampling("without_replacement", m, batch)
        return epsilon(Event(sampling, Mean(1.0), 2 * sigma / batch, steps), 1 / (users * m)).eps

    return {"sum": eps(sigma * (share * users) ** 0.5), "one": eps(sigma)}


def _limit(clients: int, norm: float, eps: float, adjacency: Any) -> float:
    """The squared error of a coordinate that the noise of a mean of vectors has."""
    sampling = Sampling("full", clients, clients)
    event = Event(sampling, Mean(norm), 1.0, 1, adjacency=adjacency, trust="secure_sum")
    return sigma_for(event, eps, DELTA).sigma ** 2


def _mean(data: str | None, seed: int) -> Mapping[str, float]:
    """One step of DP-SGD from 0 along ``x - v``, of length 1: the mean of the vectors, and noise."""
    clients, d, norm = 100, 250, 10.0
    vectors = np.random.default_rng(seed).normal(size=(clients, d))
    vectors *= 0.999999 * norm / np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = [(vectors.astype(np.float32), np.zeros(clients, np.float32))]
    model = models.custom(
        {"x": jnp.zeros(d)}, lambda p, example: jnp.sum((p["x"] - example[0]) ** 2) / 2
    )
    problem = Problem(model, from_clients(rows, classes=0))
    found = {}
    for eps in (1.0, 4.0):
        found[f"added-{eps:g}"] = _limit(clients, norm, eps, "add_remove")
        found[f"replaced-{eps:g}"] = _limit(clients, norm, eps, "replace_one")
        given: dict[str, Any] = {"clip": norm, "lr": 1.0, "eps": eps, "delta": DELTA}
        made = algorithm("dp_sgd", sampler=sampling.full())
        with warnings.catch_warnings():  # of a loss that rises, since noise is all that is measured
            warnings.simplefilter("ignore")
            x = simulate(made, problem, rounds=1, seed=seed, **given).x
        found[f"run-{eps:g}"] = float(np.mean((np.asarray(x) - vectors.mean(axis=0)) ** 2))
    return found


def _integers(
    name: str, cases: Sequence[tuple[int, float, int]], data: str | None, seed: int
) -> Mapping[str, float]:
    """The limit over the error of a mean with integer noise: a local step from 0 ends at a vector."""
    d, norm, found = 250, 10.0, {}
    model = models.custom(
        {"x": jnp.zeros(d)}, lambda p, example: jnp.sum((p["x"] - example[0]) ** 2) / 2
    )
    given: dict[str, Any] = {"update_clip": norm, "lr": 1.0, "local_steps": 1, "delta": DELTA}
    for clients, eps, bits in cases:
        vectors = np.random.default_rng(seed).normal(size=(clients, 1, d)).astype(np.float32)
        vectors *= 0.99999 * norm / np.linalg.norm(vectors, axis=2, keepdims=True)
        rows = [(v, np.zeros(1, np.float32)) for v in vectors]
        problem = Problem(model, from_clients(rows, classes=0))
        limit = _limit(clients, norm, eps, "add_remove")
        # of 8 deviations of a coordinate of the sum, the share of the noise
        noise, signal = (clients * limit) ** 0.5, norm * (clients / d) ** 0.5
        most = 2**bits / 8 / clients**0.5 * noise / (noise**2 + signal**2) ** 0.5
        x = _finest(problem, name, bits, 1.4 * most, eps=eps, seed=seed, **given)
        error = float(np.mean((np.asarray(x) - vectors.mean(axis=(0, 1))) ** 2))
        found[f"{clients}-{eps:g}-{bits}"] = limit / error
    return found


def _finest(problem: Any, name: str, bits: int, most: float, **given: Any) -> Any:
    """The point after a round with the most noise, in integers, that the words hold."""
    rounded: dict[str, Any] = {"rounded": True} if name == "discrete_fedavg" else {}
    for std in 2.0 ** np.arange(math.ceil(4 * math.log2(most)) / 4, -0.25, -0.25):
        made = algorithm(name, noise_std=float(std), bits=bits, **rounded)
        with warnings.catch_warnings():  # of a loss that rises, since noise is all that is measured
            warnings.simplefilter("ignore")
            with contextlib.suppress(InputError):  # which wrap around
                return simulate(made, problem, rounds=1, **given).x
    raise InputError(f"No noise fits into {bits} bits")


FEW = ((100, 1.0, 10), (100, 1.0, 16), (100, 4.0, 10), (100, 4.0, 16), (1000, 4.0, 16))
ALL = itertools.product((100,), (1.0, 2.0, 4.0, 8.0), (10, 12, 16))
MORE = tuple(
    case for case in ALL if case != (100, 8.0, 10)
)  # which needs noise too coarse for a proof
MEASURES: dict[str, Measure] = {
    "opacus-eps": functools.partial(_images, 256, {1.3: 15, 1.1: 60, 0.7: 45}),
    "tensorflow-eps": functools.partial(_images, 256, {1.12: 60, 0.6: 30, 1.2: 10}),
    "handcrafted-eps": functools.partial(_images, 512, {1.23: 40}),
    "gaussian-dp-eps": functools.partial(_images, 256, {1.3: 20, 0.7: 70}),
    "dp-scaffold-eps": _scaffold,
    "mean-estimation": _mean,
    "mean-estimation-bits": functools.partial(_integers, "skellam_fedavg", FEW),
    "mean-estimation-rounded": functools.partial(_integers, "discrete_fedavg", MORE),
}
