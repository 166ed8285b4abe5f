"""PORTER: a network without a server, with clipping and compression [Li, Chi, 2023].

* :mod:`~jaxfl.algorithms.porter.algorithms` -- PORTER: gradient tracking over a network, with
  error feedback for what compression leaves out
"""

from jaxfl.algorithms.paper import Paper
from jaxfl.algorithms.porter.algorithms import porter_dp, porter_gc

__all__ = ["PAPER", "porter_dp", "porter_gc"]

PAPER = Paper(
    "Li, Chi: PORTER, a network without a server, clipped and compressed (2023)",
    (porter_dp, porter_gc),
)
