"""Compression without privacy: DIANA, MARINA, EF21, EF-SGD.

* :mod:`~jaxfl.algorithms.compressed.algorithms` -- compressed descent without privacy: references
  that SoteriaFL grew out of, and its neighbours
"""

from jaxfl.algorithms.compressed import algorithms
from jaxfl.algorithms.paper import Paper

__all__ = ["PAPER"]

PAPER = Paper(
    "Compression without privacy: DIANA, MARINA, EF21, EF-SGD",
    algorithms,
)
