"""The record that each paper's folder declares: algorithms, bounds, and systems that the paper names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import NamedTuple

from jaxfl.algorithms.bounds import Family
from jaxfl.core.types import Algorithm

__all__ = ["Paper", "System"]


class System(NamedTuple):
    """A system as its paper names it, and the algorithm that runs it here."""

    name: str
    where: str
    algorithm: str
    options: str = ""

    @property
    def command(self) -> str:
        return f"jaxfl run {self.algorithm} {self.options}".rstrip()


class Paper(NamedTuple):
    """``PAPER`` of each folder of :mod:`jaxfl.algorithms`.

    ``module`` holds the constructors of its algorithms, named by ``__all__``.  ``bounds`` maps names of
    algorithms to the theorems that can be drawn with their runs.  A system may run an algorithm of
    another folder.
    """

    title: str
    module: ModuleType
    systems: tuple[System, ...] = ()
    bounds: Mapping[str, Family] = MappingProxyType({})

    @property
    def algorithms(self) -> tuple[Callable[..., Algorithm], ...]:
        """The constructors."""
        return tuple(getattr(self.module, name) for name in self.module.__all__)
