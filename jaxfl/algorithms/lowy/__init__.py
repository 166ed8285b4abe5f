"""Private variance reduction without a trusted server [Lowy et al., 2023].

* :mod:`~jaxfl.algorithms.lowy.algorithms` -- variance-reduced algorithms with local privacy: SVRG
  and SPIDER of Lowy et al
* :mod:`~jaxfl.algorithms.lowy.claims` -- the noise formulas of Lowy et al., with their conditions
* :mod:`~jaxfl.algorithms.lowy.theory` -- the rounds of SPIDER [Lowy et al.]
"""

from jaxfl.algorithms.lowy import algorithms
from jaxfl.algorithms.paper import Paper

__all__ = ["PAPER"]

PAPER = Paper(
    "Lowy et al.: private variance reduction without a trusted server (2023)",
    algorithms,
)
