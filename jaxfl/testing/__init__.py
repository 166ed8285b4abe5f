"""Checks of parts and algorithms of a user's own, which jaxfl's own pass: ``import jaxfl.testing``.

* :mod:`~jaxfl.testing.algorithms` -- descent, counts, ``jit``, ``vmap``, sweeps,
  resumption, noise, and an attack
* :mod:`~jaxfl.algorithms.probes.laws` -- what draws have to be like, within standard errors
* :mod:`~jaxfl.algorithms.probes.parts` -- what one part declares, and what it does
"""

from jaxfl.algorithms.probes.laws import CheckFailed
from jaxfl.algorithms.probes.parts import check_part
from jaxfl.testing.algorithms import Checked, check_algorithm

__all__ = ["CheckFailed", "Checked", "check_algorithm", "check_part"]
