"""Which numbers the questions about privacy can mean, beside the hyper-parameters of algorithms.

Outside these ranges a formula may still give a number, and that number would be false.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxfl.core.errors import InputError, shown
from jaxfl.core.params import check
from jaxfl.core.types import Param

__all__ = ["ATTACKS", "FLAGS", "NUMBERS", "WORDS", "checked"]

COUNT = 1e12  # accountants hold counts in 64 bits, and products of two of them


def _whole(name: str, doc: str, least: int = 1) -> Param:
    return Param(name, doc, least, COUNT, integer=True)


def _above(name: str, doc: str, high: float = math.inf) -> Param:
    """Above 0; without an upper end it may be infinite, as a clip is that bounds nothing."""
    return Param(name, doc, 0.0, high, open_low=True)


def _least(name: str, doc: str) -> Param:
    return Param(name, doc, 0.0, open_high=True)


def _inside(name: str, doc: str) -> Param:
    return Param(name, doc, 0.0, 1.0, open_low=True, open_high=True)


_ROWS: tuple[Param, ...] = (
    _inside("delta", "of (eps, delta)"),
    _least("eps", "of (eps, delta)"),
    Param("sigma", "noise on the released mean"),
    Param("mu", "of Gaussian differential privacy"),
    _least("rho", "of zCDP, or mu^2-SGD's"),
    _whole("samples", "records of a client"),
    _above("batch", "records per release", COUNT),
    _whole("slots", "capacity of a padded batch"),
    _whole("rounds", "releases"),
    _above("clip", "bound of one record's gradient"),
    _above("record_norm", "the bound where an estimator changes it"),
    _above("noise_multiplier", "sigma b/G"),
    _whole("dimension", "of the model"),
    _above("bound", "of gradients, independent of data"),
    _above("constant", "of the paper's formula"),
    _whole("clients", "whose data are pooled"),
    _whole("epochs", "full rounds"),
    _whole("inner", "rounds per epoch"),
    _above("p", "chance to keep a coordinate", 1.0),
    _least("mu_per_round", "of the mask's releases"),
    _whole("local_steps", "steps per round"),
    _whole("devices", "of one sum"),
    _least("expansion", "by which a step multiplies the model"),
    _least("eta", "step size"),
    _whole("machines", "over which the noise is averaged"),
    _whole("instances", "random releases"),
    _whole("seed", "of the draws", 0),
    _whole("tp", "runs of world P that were called P", 0),
    _whole("npos", "runs of world P"),
    _whole("fp", "runs of world Q that were called P", 0),
    _whole("nneg", "runs of world Q"),
    _inside("alpha", "chance that the bound is wrong"),
    _whole("canaries", "records that are planted"),
    _whole("guesses", "about the canaries", 0),
    _whole("correct", "guesses", 0),
    _whole("runs", "in each world, of which half choose a threshold", 2),
    _inside("confidence", "of the bound"),
    Param("claimed", "the eps to refute"),
    Param("canary", "its length over clip", 0.0, open_low=True, open_high=True),
    _whole("chunk", "runs at a time"),
)

NUMBERS: Mapping[str, Param] = {row.name: row for row in _ROWS}

# Attacks and lower bounds divide by the noise, and compare it with a finite clip.
ATTACKS: Mapping[str, Param] = {
    **NUMBERS,
    "sigma": Param("sigma", "noise on the released mean", open_low=True, open_high=True),
    "clip": Param("clip", "bound of one record's gradient", open_low=True, open_high=True),
}

FLAGS = ("convex", "fresh", "turning")
WORDS: Mapping[str, tuple[str, ...]] = {"clip_what": ("example", "batch")}


def checked(given: Mapping[str, Any], table: Mapping[str, Param] = NUMBERS) -> dict[str, Any]:
    """``given``, whole numbers as ints, or one sentence about the first that is out of range.

    A name that stands nowhere here (a sampling scheme, a hyper-parameter) is checked by whoever takes it.
    """
    out = dict(given)
    for name, value in given.items():
        if value is None:
            continue
        if name in FLAGS and not isinstance(value, bool | np.bool_):
            raise InputError(f"{name} = {shown(value)} has to be true or false.")
        if name in WORDS and value not in WORDS[name]:
            raise InputError(
                f"{name} = {shown(value)} is not known: use one of {', '.join(WORDS[name])}."
            )
        if name in table:
            if np.ndim(value) != 0:
                raise InputError(f"{name} = {shown(value)} has to be one number.")
            check((table[name],), {name: value}, "privacy")
            out[name] = int(value) if table[name].integer else value
    return out
