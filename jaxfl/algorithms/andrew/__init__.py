"""A clip that adapts to a quantile [Andrew et al., NeurIPS 2021].

* :mod:`~jaxfl.algorithms.andrew.algorithms` -- DP-FedAvg and DP-SGD with a clip that adapts
"""

from jaxfl.algorithms.andrew import algorithms
from jaxfl.algorithms.paper import Paper

__all__ = ["PAPER"]

PAPER = Paper("Andrew et al. (2021): a clip that adapts to a quantile", algorithms)
