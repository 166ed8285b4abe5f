"""Bounds and schedules of the papers.  Host side: floats in and out.

==============  ===========================================================
name            paper
==============  ===========================================================
``soteriafl``   SoteriaFL: Theorems 1-3, and Algorithm 2 for any estimator
``hu``          Hu, Guo, Gong: Theorem 2, Lemma 6
``gao``         Gao, Lowy, Zhou, Wright: Theorems 2.1-3.5
``reshef``      Reshef, Levy: Theorems 5.1-6.2
``lowy``        Lowy et al.: rounds of SPIDER
``curator``     what SoteriaFL's comparators print
``compressed``  EF21-SGDM: Theorem 3; DASHA: Theorem 6.1
==============  ===========================================================

Numbers may be NumPy arrays; they broadcast.

>>> from jaxfl import theory
>>> s = theory.soteriafl.Setting(n=10, m=3256, d=123, omega=19, L=1, G=1, eps=5, delta=1e-3, gap=1)
>>> int(theory.soteriafl.sgd_batch(s)) > 0
True
"""

from jaxfl.algorithms.compressed import theory as compressed
from jaxfl.algorithms.curator import theory as curator
from jaxfl.algorithms.gao import theory as gao
from jaxfl.algorithms.hu import theory as hu
from jaxfl.algorithms.lowy import theory as lowy
from jaxfl.algorithms.reshef import theory as reshef
from jaxfl.algorithms.soteriafl import theory as soteriafl

__all__ = ["compressed", "curator", "gao", "hu", "lowy", "reshef", "soteriafl"]
