"""A mechanism by name, before there are any."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from jaxfl.errors import InputError
from jaxfl.privacy.claims import Claim
from jaxfl.privacy.events import AnyEvent, Scheme

__all__ = ["SCHEME_NAMES", "Kind", "make", "scheme"]

SCHEME_NAMES: dict[str, Scheme] = {
    "full": "full",
    "full batch": "full",
    "poisson": "poisson",
    "wor": "without_replacement",
    "without_replacement": "without_replacement",
    "wr": "with_replacement",
    "with_replacement": "with_replacement",
    "shuffled": "shuffled",
    "shuffled epoch": "shuffled",
    "single_pass": "single_pass",
    "single pass": "single_pass",
}


@dataclasses.dataclass(frozen=True)
class Kind:
    """An algorithm's release.  ``letters``: the symbols of the papers and test vectors, by name."""

    name: str
    doc: str
    event: Callable[..., AnyEvent]
    claim: Callable[..., Claim | None]
    letters: tuple[tuple[str, str], ...] = ()

    @property
    def params(self) -> dict[str, Any]:
        """The names that the event takes, with their defaults; no default: required."""
        return {
            name: parameter.default
            for name, parameter in inspect.signature(self.event).parameters.items()
            if name != "sigma"
        }


_LETTERS = {"m": "samples", "b": "batch", "T": "rounds", "G": "clip", "C": "record_norm"}


def scheme(name: str) -> Scheme:
    """A sampling scheme under any of its names."""
    if not isinstance(name, str) or name not in SCHEME_NAMES:
        raise InputError(f"sampling = {name!r} is not known: use one of {', '.join(SCHEME_NAMES)}.")
    return SCHEME_NAMES[name]


def make(
    name: str,
    doc: str,
    event: Callable[..., AnyEvent],
    claim: Callable[..., Claim | None] | None = None,
    letters: Mapping[str, str] | None = None,
) -> Kind:
    """A kind with the common letters; without ``claim`` its paper states nothing."""
    known = tuple({**_LETTERS, **(letters or {})}.items())
    return Kind(name, doc, event, claim or (lambda **numbers: None), known)
