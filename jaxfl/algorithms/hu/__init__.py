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

from jaxfl.algorithms.hu import algorithms
from jaxfl.algorithms.hu.bounds import FAMILY
from jaxfl.algorithms.paper import Paper, System

__all__ = ["PAPER"]

PAPER = Paper(
    "Hu, Guo, Gong: private local SGD (2020)",
    algorithms,
    systems=(
        System("Private local SGD with secure aggregation", "Algorithm 1", "private_local_sgd"),
        System(
            "Private local SGD without secure aggregation",
            "Figures 7, 8",
            "private_local_sgd",
            "--aggregation plain_sum",
        ),
        System("DP-SGD", "Figures 5, 6", "local_dp_sgd"),
        System("FedAvg", "sigma = 0", "fedavg"),
    ),
    bounds=dict.fromkeys(("private_local_sgd", "local_dp_sgd", "fedavg"), FAMILY),
)
