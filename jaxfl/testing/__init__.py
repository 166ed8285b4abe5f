"""Checks of parts and algorithms of a user's own, which jaxfl's own pass.

* :mod:`~jaxfl.testing.algorithms` -- descent, counts, ``jit``, ``vmap``, sweeps,
  resumption, noise, and an attack

``check_part`` is that of :mod:`jaxfl.algorithms.probes.parts`; ``sensitivity`` and ``one_run_audit`` are
those of :mod:`jaxfl.audits.checks`.
"""

from jaxfl.algorithms.probes.laws import CheckFailed
from jaxfl.algorithms.probes.parts import check_part
from jaxfl.audits.checks import one_run_audit, sensitivity
from jaxfl.testing.algorithms import check_algorithm

__all__ = ["CheckFailed", "check_algorithm", "check_part", "one_run_audit", "sensitivity"]
