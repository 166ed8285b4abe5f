"""SoteriaFL and the algorithms that it is compared with [Li, Zhao, Li, Chi, 2022].

* :mod:`~jaxfl.algorithms.soteriafl.algorithms` -- SoteriaFL and the algorithms it is compared
  with
* :mod:`~jaxfl.algorithms.soteriafl.bounds` -- CDP-SGD and SoteriaFL: Theorems 1 and 3 of Li,
  Zhao, Li and Chi
* :mod:`~jaxfl.algorithms.soteriafl.claims` -- SoteriaFL's noise formula, with its conditions
* :mod:`~jaxfl.algorithms.soteriafl.theory` -- SoteriaFL for any estimator: Lemma 1, Theorems 2
  and 3, and the choices of Corollaries 1 to 3
"""

from jaxfl.algorithms.paper import Paper, System
from jaxfl.algorithms.soteriafl import algorithms
from jaxfl.algorithms.soteriafl.bounds import FAMILY

__all__ = ["PAPER"]

ONE = "--clients 1"
PAPER = Paper(
    "Li, Zhao, Li, Chi: SoteriaFL (NeurIPS 2022)",
    algorithms,
    systems=(
        System("SoteriaFL-GD", "Algorithm 3, Table 1", "soteriafl_gd"),
        System("SoteriaFL-SGD", "Algorithm 3, Table 1", "soteriafl_sgd"),
        System("SoteriaFL-SVRG", "Algorithm 3, Table 1", "soteriafl_svrg"),
        System("SoteriaFL-SAGA", "Algorithm 3, Table 1", "soteriafl_saga"),
        System("CDP-SGD", "Algorithm 1, Table 1", "cdp_sgd"),
        System("CDP-GD", "Algorithm 1", "cdp_gd"),
        System("LDP-SGD", "Figures 1-8", "ldp_sgd"),
        System("LDP-GD", "Algorithm 1, uncompressed", "ldp_gd"),
        System("LDP-SVRG, loopless", "Figures 1-8", "ldp_svrg"),
        System("LDP SVRG", "Table 1", "isrl_svrg"),
        System("LDP SPIDER", "Table 1", "ldp_spider"),
        System("RRPSGD", "Table 1", "rrpsgd", ONE),
        System("DP-GD", "Table 1", "dp_gd", ONE),
        System("DP-SGD", "Table 1", "dp_sgd", ONE),
        System("DP-SRM", "Table 1", "dp_srm", ONE),
        System("Distributed DP-SRM", "Table 1", "distributed_dp_srm"),
        System("Q-DPSGD-1", "Table 1", "q_dpsgd_1"),
        System("SDM-DSGD", "Table 1", "sdm_dsgd"),
    ),
    bounds=dict.fromkeys(
        (
            "cdp_gd",
            "cdp_sgd",
            "ldp_gd",
            "ldp_sgd",
            "ldp_svrg",
            "soteriafl_gd",
            "soteriafl_sgd",
            "soteriafl_svrg",
            "soteriafl_saga",
        ),
        FAMILY,
    ),
)
