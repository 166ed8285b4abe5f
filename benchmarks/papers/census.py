"""Logistic regression on a9a, the problem of those entries that no paper prints."""

from __future__ import annotations

import functools

from jaxfl import Problem, models
from jaxfl.data import load, map_features, split
from jaxfl.data.preprocess import append_ones, drop_trailing

__all__ = ["DIMENSION", "SPLITS", "census"]

DIMENSION = 124
SPLITS = {"by_label": "split by label", "iid": "split at random"}


@functools.cache
def census(how: str, directory: str | None = None, *, clients: int = 10) -> Problem:
    """Features as they are in the file, with a constant 1; no regularizer; from 0."""
    rows = drop_trailing(map_features(load("a9a", directory=directory), append_ones), clients)
    return Problem(models.logistic(DIMENSION), split(rows, clients, how))
