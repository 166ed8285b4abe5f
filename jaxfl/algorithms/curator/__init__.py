"""Algorithms whose noise is drawn by whoever holds the data.

* :mod:`~jaxfl.algorithms.curator.algorithms` -- algorithms of a node that holds all data, or of
  one that clients trust with their sum
* :mod:`~jaxfl.algorithms.curator.claims` -- what RRPSGD and DP-SRM claim of their noise
* :mod:`~jaxfl.algorithms.curator.theory` -- the schedules of DP-SRM and of DP-GD, as their papers
  give them
"""

from jaxfl.algorithms.curator.algorithms import distributed_dp_srm, dp_gd, dp_sgd, dp_srm, rrpsgd
from jaxfl.algorithms.paper import Paper

__all__ = ["PAPER", "distributed_dp_srm", "dp_gd", "dp_sgd", "dp_srm", "rrpsgd"]

PAPER = Paper(
    "Algorithms whose noise is drawn by whoever holds the data",
    (distributed_dp_srm, dp_gd, dp_sgd, dp_srm, rrpsgd),
)
