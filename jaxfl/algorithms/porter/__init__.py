"""PORTER: a network without a server, with clipping and compression [Li, Chi, 2023].

* :mod:`~jaxfl.algorithms.porter.algorithms` -- PORTER: gradient tracking over a network, with
  error feedback for what compression leaves out
"""

from jaxfl.algorithms.paper import Paper
from jaxfl.algorithms.porter import algorithms

__all__ = ["PAPER"]

PAPER = Paper(
    "Li, Chi: PORTER, a network without a server, clipped and compressed (2023)",
    algorithms,
)
