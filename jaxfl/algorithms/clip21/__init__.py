"""Error feedback for clipping and for normalization, over a server, with noise.

* :mod:`~jaxfl.algorithms.clip21.algorithms` -- Clip21-SGD2M [Islamov et al., 2025], alpha-NormEC and
  Fed-alpha-NormEC [Shulgin et al., 2025]: clients shorten the change of their gradients, and no bias
  remains
"""

from jaxfl.algorithms.clip21 import algorithms
from jaxfl.algorithms.paper import Paper

__all__ = ["PAPER"]

PAPER = Paper(
    "Khirirat et al. (2023), Islamov et al. (2025), Shulgin et al. (2025): error feedback for clipping",
    algorithms,
)
