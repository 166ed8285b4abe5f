"""ISRL-DP federated learning [Gao, Lowy, Zhou, Wright, 2024].

* :mod:`~jaxfl.algorithms.gao.algorithms` -- ISRL-DP: localized, accelerated and nonsmooth
  algorithms for convex losses, and their baselines
* :mod:`~jaxfl.algorithms.gao.bounds` -- the bounds of Gao et al., which hold up to constants: a
  note gives the order, nothing is drawn
* :mod:`~jaxfl.algorithms.gao.claims` -- the noise formula of Gao, Lowy, Zhou and Wright, with its
  conditions
* :mod:`~jaxfl.algorithms.gao.rules` -- the hyper-parameters of ISRL-DP algorithms, and the phases that
  their theorems choose
* :mod:`~jaxfl.algorithms.gao.theory` -- parameters of ISRL-DP as Gao, Lowy, Zhou and Wright,
  2024, print them
"""

from jaxfl.algorithms.gao import algorithms
from jaxfl.algorithms.gao.bounds import ORDER, ORDERS
from jaxfl.algorithms.paper import Paper, System

__all__ = ["PAPER"]

BALL = "--constraint ball:5"
PAPER = Paper(
    "Gao, Lowy, Zhou, Wright: ISRL-DP (ICML 2024)",
    algorithms,
    systems=(
        System(
            "Localized ISRL-DP accelerated MB-SGD",
            "Algorithm 1",
            "localized_accelerated_mbsgd",
            BALL,
        ),
        System("Accelerated ISRL-DP MB-SGD", "Algorithm 2", "accelerated_mbsgd", BALL),
        System("ISRL-DP MB-Subgradient", "Algorithm 3", "mb_subgradient", BALL),
        System("Localized ISRL-DP MB-Subgradient", "Algorithm 4", "localized_subgradient", BALL),
        System("Multi-stage accelerated MB-SGD", "Algorithm 5", "multistage_accelerated", BALL),
        System(
            "Localized, convolutional smoothing", "Algorithms 6, 7", "localized_convolution", BALL
        ),
        System("Localized, Nesterov smoothing", "Theorem 3.1", "localized_nesterov", BALL),
        System("Localized ISRL-DP MB-SGD", "Figures 2, 3", "localized_mbsgd", BALL),
        System("One-pass ISRL-DP MB-SGD", "Figures 2, 3", "one_pass_mbsgd", BALL),
        System("Multi-pass ISRL-DP MB-SGD", "Tables 1, 2", "multi_pass_mbsgd", BALL),
        System("One-pass accelerated ISRL-DP MB-SGD", "Tables 1, 2", "one_pass_accelerated", BALL),
    ),
    bounds=dict.fromkeys(ORDERS, ORDER),
)
