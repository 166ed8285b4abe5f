"""Private local SGD with secure aggregation [Hu, Guo, Gong, 2020].

* :mod:`~jaxfl.algorithms.hu.algorithms` -- local SGD: several steps of each client between two
  rounds
* :mod:`~jaxfl.algorithms.hu.bounds` -- private local SGD: Theorem 2 and Lemma 6 of Hu, Guo and
  Gong
* :mod:`~jaxfl.algorithms.hu.claims` -- the noise formulas of Hu, Guo and Gong and of their
  baseline, with their conditions
* :mod:`~jaxfl.algorithms.hu.theory` -- private local SGD: its step size and its convergence as
  the paper prints them
"""

from jaxfl.algorithms.hu.algorithms import (
    dp_fedavg,
    fedavg,
    fedprox,
    local_dp_sgd,
    private_local_sgd,
    scaffold,
)

__all__ = ["dp_fedavg", "fedavg", "fedprox", "local_dp_sgd", "private_local_sgd", "scaffold"]
