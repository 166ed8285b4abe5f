"""Gradient descent over a network without a server.

* :mod:`~jaxfl.algorithms.decentralized.algorithms` -- private optimization over a network without
  a server
* :mod:`~jaxfl.algorithms.decentralized.claims` -- the noise formulas of Q-DPSGD-1 and
  DECOR
"""

from jaxfl.algorithms.decentralized import algorithms
from jaxfl.algorithms.paper import Paper

__all__ = ["PAPER"]

PAPER = Paper(
    "Gradient descent over a network without a server",
    algorithms,
)
