"""Mixtures of unit normals on a line: their logarithm, half-lines, and where a loss is reached."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from jaxfl.privacy.gaussian import Floats

__all__ = ["above", "between", "invert", "log_mixture", "minus"]


def minus(means: tuple[float, ...]) -> tuple[float, ...]:
    """The means of the mirror image."""
    return tuple(-a for a in means)


def log_mixture(w: tuple[float, ...], a: tuple[float, ...], x: Floats) -> tuple[Floats, Floats]:
    """``ln sum_i w_i N(x; a_i, 1)/N(x; 0, 1)`` and its derivative."""
    terms = [math.log(wi) + ai * x - ai * ai / 2 for wi, ai in zip(w, a, strict=True)]
    if len(terms) == 1:
        return terms[0], np.full_like(x, a[0])
    top = functools.reduce(np.maximum, terms)
    total, slope = np.zeros_like(x), np.zeros_like(x)
    for ai, term in zip(a, terms, strict=True):
        part = np.exp(term - top)
        total += part
        slope += ai * part
    return top + np.log(total), slope / total


def above(w: tuple[float, ...], a: tuple[float, ...], x: Floats, log_factor: Floats) -> Floats:
    """``e^log_factor sum_i w_i P[N(a_i, 1) > x]``."""
    from scipy.special import log_ndtr

    total = np.zeros_like(x)
    for wi, ai in zip(w, a, strict=True):
        total += wi * np.exp(np.minimum(log_ndtr(ai - x) + log_factor, 700.0))
    return total


def between(w: tuple[float, ...], a: tuple[float, ...], x: Floats, y: Floats) -> Floats:
    """``sum_i w_i P[x < N(a_i, 1) < y]``."""
    from scipy.special import ndtr

    total = np.zeros_like(x)
    for wi, ai in zip(w, a, strict=True):
        total += wi * np.where(x > ai, ndtr(ai - x) - ndtr(ai - y), ndtr(y - ai) - ndtr(x - ai))
    return total


def invert(
    loss: Callable[[Floats], tuple[Floats, Floats]],
    targets: Floats,
    start: float | None = None,
    floor: float = -64.0,
) -> Floats:
    """x with ``loss(x) = target`` for increasing targets and a loss increasing from ``start`` on.

    Newton steps kept inside a bracket from a table.  A target that is not reached above ``floor``
    gives about that.
    """
    low = -1.0 if start is None else start
    while start is None and loss(np.array([low]))[0][0] > targets[0] and low > floor:
        low = max(2 * low, floor)
    high = max(low, 0.0) + 1.0
    while loss(np.array([high]))[0][0] < targets[-1] and high < 1e9:
        high += max(1.0, high)
    table = np.linspace(low, high, 1025)
    values = np.maximum.accumulate(loss(table)[0])
    cell = np.clip(np.searchsorted(values, targets), 1, 1024)
    left, right = table[cell - 1].copy(), table[cell].copy()
    rise = values[cell] - values[cell - 1]
    part = np.divide(targets - values[cell - 1], rise, out=np.full_like(rise, 0.5), where=rise > 0)
    x = left + np.clip(part, 0.0, 1.0) * (right - left)
    close = 1e-8 * max(1.0, high)  # H is flat in x at its best
    for _ in range(60):
        value, slope = loss(x)
        below = value < targets
        left, right = np.where(below, x, left), np.where(below, right, x)
        with np.errstate(over="ignore"):
            step = np.divide(targets - value, slope, out=np.full_like(x, np.inf), where=slope > 0)
        wild = (np.abs(step) > close) & ~((x + step > left) & (x + step < right))
        step = np.where(wild, (left + right) / 2 - x, step)
        x = x + step
        if np.max(np.abs(step), initial=0.0) <= close:
            break
    return np.asarray(x, np.float64)
