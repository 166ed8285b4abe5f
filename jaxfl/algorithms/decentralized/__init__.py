"""Gradient descent over a network without a server.

* :mod:`~jaxfl.algorithms.decentralized.algorithms` -- private optimization over a network without
  a server
* :mod:`~jaxfl.algorithms.decentralized.claims` -- what Q-DPSGD-1 and DECOR claim
  of their noise
"""

from jaxfl.algorithms.decentralized import algorithms
from jaxfl.algorithms.paper import Paper

__all__ = ["PAPER"]

PAPER = Paper(
    "Gradient descent over a network without a server",
    algorithms,
)
