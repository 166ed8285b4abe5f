"""Algorithms whose noise is drawn by the party that holds the data.

* :mod:`~jaxfl.algorithms.curator.algorithms` -- algorithms of a node that holds all data, or of
  one that clients trust with their sum
* :mod:`~jaxfl.algorithms.curator.claims` -- the noise formulas of RRPSGD and DP-SRM
* :mod:`~jaxfl.algorithms.curator.theory` -- the schedules of DP-SRM and of DP-GD, as their papers
  give them
"""

from jaxfl.algorithms.curator import algorithms
from jaxfl.algorithms.paper import Paper

__all__ = ["PAPER"]

PAPER = Paper(
    "Algorithms whose noise is drawn by whoever holds the data",
    algorithms,
)
