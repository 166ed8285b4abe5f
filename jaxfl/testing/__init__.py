"""Checks of parts and algorithms of a user's own, which jaxfl's own pass: ``import jaxfl.testing``.

* :mod:`~jaxfl.testing.algorithms` -- descent, counts, ``jit``, ``vmap``, sweeps,
  resumption, noise, and an attack

``check_part`` is that of :mod:`jaxfl.algorithms.probes.parts`.
"""

from jaxfl.algorithms.probes.laws import CheckFailed
from jaxfl.algorithms.probes.parts import check_part
from jaxfl.testing.algorithms import Checked, check_algorithm

__all__ = ["CheckFailed", "Checked", "check_algorithm", "check_part"]
