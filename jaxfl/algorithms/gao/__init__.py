"""ISRL-DP federated learning [Gao, Lowy, Zhou, Wright, 2024].

* :mod:`~jaxfl.algorithms.gao.algorithms` -- iSRL-DP: localized, accelerated and nonsmooth
  algorithms for convex losses, and their baselines
* :mod:`~jaxfl.algorithms.gao.bounds` -- gao et al.: excess risks hold up to constants, so that
  their orders are said and not drawn
* :mod:`~jaxfl.algorithms.gao.claims` -- the noise formula of Gao, Lowy, Zhou and Wright, with its
  conditions
* :mod:`~jaxfl.algorithms.gao.rules` -- what an ISRL-DP algorithm is given, and the phases that
  its theorem makes of it
* :mod:`~jaxfl.algorithms.gao.theory` -- parameters of ISRL-DP as Gao, Lowy, Zhou and Wright,
  2024, print them
"""

from jaxfl.algorithms.gao.algorithms import (
    accelerated_mbsgd,
    localized_accelerated_mbsgd,
    localized_convolution,
    localized_mbsgd,
    localized_nesterov,
    localized_subgradient,
    mb_subgradient,
    multi_pass_mbsgd,
    multistage_accelerated,
    one_pass_accelerated,
    one_pass_mbsgd,
)

__all__ = [
    "accelerated_mbsgd",
    "localized_accelerated_mbsgd",
    "localized_convolution",
    "localized_mbsgd",
    "localized_nesterov",
    "localized_subgradient",
    "mb_subgradient",
    "multi_pass_mbsgd",
    "multistage_accelerated",
    "one_pass_accelerated",
    "one_pass_mbsgd",
]
