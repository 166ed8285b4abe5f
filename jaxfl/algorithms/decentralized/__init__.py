"""Gradient descent over a network without a server.

* :mod:`~jaxfl.algorithms.decentralized.algorithms` -- private optimization over a network without
  a server
* :mod:`~jaxfl.algorithms.decentralized.claims` -- what Q-DPSGD-1 and SDM-DSGD claim of their
  noise
"""

from jaxfl.algorithms.decentralized.algorithms import (
    dp_dsgd,
    q_dpsgd_1,
    sdm_dsgd,
)

__all__ = ["dp_dsgd", "q_dpsgd_1", "sdm_dsgd"]
