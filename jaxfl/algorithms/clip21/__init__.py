"""Clip21-SGD2M: error feedback for clipping, over a server, with noise [Islamov et al., 2025].

* :mod:`~jaxfl.algorithms.clip21.algorithms` -- Clip21-SGD2M: clients clip what their gradients
  changed by, so that clipping has no bias in the end
"""

from jaxfl.algorithms.clip21 import algorithms
from jaxfl.algorithms.paper import Paper

__all__ = ["PAPER"]

PAPER = Paper(
    "Khirirat et al. (2023), Islamov et al. (2025): Clip21, error feedback for clipping",
    algorithms,
)
