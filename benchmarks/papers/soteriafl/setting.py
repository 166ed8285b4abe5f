"""Data, models and numbers of the published runs: 10 clients, rows sorted by label."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from jaxfl import Problem, models
from jaxfl.algorithms.soteriafl import theory
from jaxfl.data import load, map_features, split
from jaxfl.data.preprocess import append_ones, drop_trailing, scale_spectral

__all__ = [
    "CLIENTS",
    "CONSTANT",
    "DELTA",
    "METHODS",
    "STEPS",
    "a9a",
    "kept",
    "mnist",
    "numbers",
    "sent",
]

CLIENTS, DELTA = 10, 1e-3
METHODS = ("ldp_sgd", "ldp_svrg", "cdp_sgd", "soteriafl_sgd", "soteriafl_svrg")
CONSTANT = dict(zip(METHODS, (8.0, 96.0, 8.0, 12.0, 96.0), strict=True))  # c of the noise formula
STEPS = 0.01, 0.03, 0.06, 0.1, 0.3, 0.6, 1.0  # among which the paper chooses each method's
PIXELS = 0.1306604763, 0.3081078039  # mean and deviation over all training images
UNITS = 64


@functools.cache
def a9a(directory: str | None = None) -> Problem:
    """Logistic regression with the nonconvex regularizer, as the authors' code prepares it."""
    rows = map_features(load("a9a", directory=directory), append_ones)
    rows, _ = scale_spectral(drop_trailing(rows, CLIENTS))
    model = models.logistic(124, regularizer=models.nonconvex(0.2))
    x0 = np.random.RandomState(0).randn(124) / 5
    return Problem(model, split(rows, CLIENTS, "by_label"), x0=x0)


@functools.cache
def mnist(directory: str | None = None) -> Problem:
    """784-64-10 with sigmoids; the authors' start, without the 785 weights that never move."""
    mean, deviation = (np.float32(value) for value in PIXELS)

    def standardised(pixels: Any) -> Any:
        return (pixels - mean) / deviation

    rows = map_features(load("mnist", directory=directory), standardised)
    start = np.random.RandomState(0).randn(785 * (UNITS + 1) + (UNITS + 1) * 10) / 5
    first, second = np.split(start, [785 * (UNITS + 1)])
    first = first.reshape(785, UNITS + 1)[:, :UNITS]
    x0 = np.concatenate([first.ravel(), second])
    model, clients = models.mlp(784, 10, hidden=UNITS), split(rows, CLIENTS, "by_label")
    return Problem(model, clients, x0=x0, eval_records="all")


def kept(d: int) -> int:
    """The coordinates that random-k sends."""
    return d // 20


def sent(method: str, d: int) -> int:
    """Coordinates that all clients send in a round."""
    return CLIENTS * (d if method.startswith("ldp") else kept(d))


def numbers(method: str, m: int, d: int, G: float, eps: float, batch: int | None) -> dict[str, Any]:
    """The authors' batch (by their theorems with L = 1 where it is None), compression and clip."""
    k, out = kept(d), {"eps": eps, "delta": DELTA, "clip": G}
    compressed = not method.startswith("ldp")
    if compressed:
        out["k"] = k
    s = theory.Setting(CLIENTS, m, d, d / k - 1 if compressed else 0.0, 1.0, G, eps, DELTA)
    if method.endswith("svrg"):
        out["batch"] = int(theory.svrg_batch(s))
        return {**out, "refresh": out["batch"] / m}
    return {**out, "batch": int(theory.sgd_batch(s)) if batch is None else batch}
