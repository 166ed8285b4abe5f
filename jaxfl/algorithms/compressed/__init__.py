"""Compression without privacy: DIANA, MARINA, EF21, EF-SGD.

* :mod:`~jaxfl.algorithms.compressed.algorithms` -- compressed descent without privacy: references
  that SoteriaFL grew out of, and its neighbours
"""

from jaxfl.algorithms.compressed.algorithms import diana, ef21, ef_sgd, marina
from jaxfl.algorithms.paper import Paper

__all__ = ["PAPER", "diana", "ef21", "ef_sgd", "marina"]

PAPER = Paper(
    "Compression without privacy: DIANA, MARINA, EF21, EF-SGD",
    (diana, ef21, ef_sgd, marina),
)
