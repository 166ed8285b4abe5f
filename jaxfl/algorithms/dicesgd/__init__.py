"""DiceSGD: error feedback that makes up for clipping [Zhang et al., 2024].

* :mod:`~jaxfl.algorithms.dicesgd.algorithms` -- DiceSGD: what clipping cuts off is added later
* :mod:`~jaxfl.algorithms.dicesgd.claims` -- the noise of the authors' code
"""

from jaxfl.algorithms.dicesgd import algorithms
from jaxfl.algorithms.paper import Paper

__all__ = ["PAPER"]

PAPER = Paper("Zhang et al. (2024): DiceSGD, DP-SGD with error feedback", algorithms)
