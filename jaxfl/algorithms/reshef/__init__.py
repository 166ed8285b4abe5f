"""Private mu^2-SGD [Reshef, Levy, 2024].

* :mod:`~jaxfl.algorithms.reshef.algorithms` -- mu^2-SGD, private and federated, and its
  neighbours
* :mod:`~jaxfl.algorithms.reshef.bounds` -- Theorems 5.2 and 6.2 of Reshef and Levy for a
  measured curve
* :mod:`~jaxfl.algorithms.reshef.claims` -- the noise formula of Reshef and Levy, with its
  conditions
* :mod:`~jaxfl.algorithms.reshef.theory` -- mu^2-SGD: step sizes, noise, privacy and bounds as the
  paper prints them
"""

from jaxfl.algorithms.paper import Paper, System
from jaxfl.algorithms.reshef import algorithms
from jaxfl.algorithms.reshef.bounds import ANYTIME

__all__ = ["PAPER"]

ONE = "--clients 1"
PAPER = Paper(
    "Reshef, Levy: DP-mu^2-FL (2024)",
    algorithms,
    systems=(
        System("DP-mu^2-FL, untrusted server", "Algorithm 1, Table 1", "mu2_untrusted"),
        System("DP-mu^2-FL, trusted server", "Algorithm 2, Table 2", "mu2_trusted"),
        System("Noisy mu^2-SGD, one machine", "section 3.2, M = 1", "noisy_mu2", ONE),
        System("mu^2-SGD", "section 3.1", "mu2"),
        System("Noisy minibatch SGD", "baseline, not in the paper", "noisy_sgd"),
    ),
    bounds=dict.fromkeys(("mu2_untrusted", "mu2_trusted", "noisy_mu2", "mu2"), ANYTIME),
)
