"""Probes, which try to refute what parts of a user's own declare, before a run.

* :mod:`~jaxfl.algorithms.probes.attack` -- an attack on the first rounds of a composition
* :mod:`~jaxfl.algorithms.probes.canary` -- the worst record that an attack can plant, and what an
  adversary sees
* :mod:`~jaxfl.algorithms.probes.clients` -- probes of estimators, local procedures and gradients of models
* :mod:`~jaxfl.algorithms.probes.given` -- small numbers for a part that is checked alone
* :mod:`~jaxfl.algorithms.probes.kernels` -- a kernel compared with ``vmap(grad)``
* :mod:`~jaxfl.algorithms.probes.laws` -- checks of random draws, within standard errors
* :mod:`~jaxfl.algorithms.probes.parts` -- checks that one part does what its record declares
* :mod:`~jaxfl.algorithms.probes.sums` -- aggregations and graphs
* :mod:`~jaxfl.algorithms.probes.probe` -- all probes of a composition
"""

from jaxfl.algorithms.probes.probe import probed

__all__ = ["probed"]
