"""SoteriaFL and the algorithms that it is compared with [Li, Zhao, Li, Chi, 2022].

* :mod:`~jaxfl.algorithms.soteriafl.algorithms` -- soteriaFL and the algorithms it is compared
  with
* :mod:`~jaxfl.algorithms.soteriafl.bounds` -- cDP-SGD and SoteriaFL: Theorems 1 and 3 of Li,
  Zhao, Li and Chi
* :mod:`~jaxfl.algorithms.soteriafl.claims` -- soteriaFL's noise formula, with its conditions
* :mod:`~jaxfl.algorithms.soteriafl.tables` -- tables 1 and 2 of SoteriaFL for any numbers
* :mod:`~jaxfl.algorithms.soteriafl.theory` -- soteriaFL for any estimator: Lemma 1, Theorems 2
  and 3, and the choices of Corollaries 1 to 3
"""

from jaxfl.algorithms.soteriafl.algorithms import (
    cdp_gd,
    cdp_sgd,
    fedgd,
    fedsgd,
    ldp_gd,
    ldp_sgd,
    ldp_svrg,
    soteriafl_gd,
    soteriafl_saga,
    soteriafl_sgd,
    soteriafl_svrg,
)

__all__ = [
    "cdp_gd",
    "cdp_sgd",
    "fedgd",
    "fedsgd",
    "ldp_gd",
    "ldp_sgd",
    "ldp_svrg",
    "soteriafl_gd",
    "soteriafl_saga",
    "soteriafl_sgd",
    "soteriafl_svrg",
]
