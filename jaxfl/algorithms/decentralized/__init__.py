"""Gradient descent over a network without a server.

* :mod:`~jaxfl.algorithms.decentralized.algorithms` -- private optimization over a network without
  a server
* :mod:`~jaxfl.algorithms.decentralized.claims` -- what Q-DPSGD-1 and SDM-DSGD claim of their
  noise
"""

from jaxfl.algorithms.decentralized.algorithms import dp_dsgd, q_dpsgd_1, sdm_dsgd
from jaxfl.algorithms.paper import Paper

__all__ = ["PAPER", "dp_dsgd", "q_dpsgd_1", "sdm_dsgd"]

PAPER = Paper(
    "Gradient descent over a network without a server",
    (dp_dsgd, q_dpsgd_1, sdm_dsgd),
)
