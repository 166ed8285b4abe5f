"""Mechanisms by name: the event of each algorithm from a few numbers, and its paper's formula.

A kind needs no data and no model: ``event(**numbers)`` describes what is released,
``claim(eps=... or sigma=..., **numbers)`` is what its paper states.  :mod:`jaxfl.privacy.questions`
asks both.
"""

from __future__ import annotations

import difflib

from jaxfl.errors import InputError
from jaxfl.privacy.kinds_base import Kind, scheme
from jaxfl.privacy.kinds_federated import TABLE as FEDERATED
from jaxfl.privacy.kinds_gradient import TABLE as GRADIENT

__all__ = ["KINDS", "Kind", "kind", "scheme"]

KINDS: dict[str, Kind] = {each.name: each for each in (*GRADIENT, *FEDERATED)}


def kind(name: str) -> Kind:
    """The kind of that name, or an error that names the nearest match."""
    key = name.replace("-", "_").lower()
    if key in KINDS:
        return KINDS[key]
    near = difflib.get_close_matches(key, KINDS, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise InputError(f"There is no mechanism {name!r}.{hint} Known: {', '.join(KINDS)}.")
