"""Private mu^2-SGD [Reshef, Levy, 2024].

* :mod:`~jaxfl.algorithms.reshef.algorithms` -- mu^2-SGD, private and federated, and its
  neighbours
* :mod:`~jaxfl.algorithms.reshef.bounds` -- theorems 5.2 and 6.2 of Reshef and Levy beside a
  measured curve
* :mod:`~jaxfl.algorithms.reshef.claims` -- the noise formula of Reshef and Levy, with its
  conditions
* :mod:`~jaxfl.algorithms.reshef.theory` -- mu^2-SGD: step sizes, noise, privacy and bounds as the
  paper prints them
"""

from jaxfl.algorithms.reshef.algorithms import (
    mu2,
    mu2_trusted,
    mu2_untrusted,
    noisy_mu2,
    noisy_sgd,
)

__all__ = ["mu2", "mu2_trusted", "mu2_untrusted", "noisy_mu2", "noisy_sgd"]
