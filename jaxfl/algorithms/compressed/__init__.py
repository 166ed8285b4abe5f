"""Compression without privacy: DIANA, MARINA, EF21, EF-SGD, EF21-SGDM, DASHA.

* :mod:`~jaxfl.algorithms.compressed.algorithms` -- compressed descent without privacy: references
  that SoteriaFL grew out of, and its neighbours
* :mod:`~jaxfl.algorithms.compressed.theory` -- step sizes and rates of DASHA and EF21-SGDM
"""

from jaxfl.algorithms.compressed import algorithms
from jaxfl.algorithms.paper import Paper

__all__ = ["PAPER"]

PAPER = Paper(
    "Compression without privacy: DIANA, MARINA, EF21, EF-SGD, EF21-SGDM, DASHA",
    algorithms,
)
