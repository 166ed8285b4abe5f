"""Checks of parts and algorithms of a user's own, which jaxfl's own pass: ``import jaxfl.testing``.

* :mod:`~jaxfl.testing.algorithms` -- descent, counts, ``jit``, ``vmap``, sweeps,
  resumption, noise, and an attack
* :mod:`~jaxfl.testing.laws` -- what draws have to be like, within standard errors
* :mod:`~jaxfl.testing.parts` -- what one part declares, and what it does
"""

from jaxfl.testing.algorithms import Checked, check_algorithm
from jaxfl.testing.laws import CheckFailed
from jaxfl.testing.parts import check_part

__all__ = ["CheckFailed", "Checked", "check_algorithm", "check_part"]
