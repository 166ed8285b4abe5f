"""A paper's convergence bound with the curve of a run, and its assumptions.

========================================  ========================================  ============
algorithms                                bound                                     of
========================================  ========================================  ============
``cdp_``, ``ldp_gd`` and ``_sgd``         (46), of which Theorem 1 is a case        utility
``soteriafl_...``, ``ldp_svrg``           Theorem 3                                 utility
``private_local_sgd`` and its neighbours  Theorem 2, Lemma 6 [Hu, Guo, Gong]        utility, loss
``mu2...``, ``noisy_mu2``                 Theorems 5.2 and 6.2 [Reshef, Levy]       last loss
``localized_...``                         Theorems 2.1, 3.1, 3.2, 3.5 [Gao et al.]  never drawn
========================================  ========================================  ============

Unknown constants are replaced by upper bounds: the loss is not negative, hence
f(x_0) - f* <= f(x_0), and clipped gradients are no longer than the clip.  If a condition of the
theorem fails, no bound is drawn, and the note gives the reason.  A bound that a paper states up to a
constant is not drawn; the note gives its order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxfl.algorithms.bounds import Bound, Case, Measured
from jaxfl.algorithms.registry import PAPERS
from jaxfl.core.errors import require
from jaxfl.core.params import number
from jaxfl.engine import results

if TYPE_CHECKING:
    import xarray

__all__ = ["FAMILIES", "Bound", "bounds", "possible"]

FAMILIES = {name: family for paper in PAPERS for name, family in paper.bounds.items()}


def possible(*about: Any) -> Case:
    """Raise unless a bound exists, and can be computed from these fields of a case."""
    case = Case(*about)
    none = f"No bound is known to draw for {case.algorithm}"
    require(case.algorithm in FAMILIES, none, lambda: f"there are those of {', '.join(FAMILIES)}")
    FAMILIES[case.algorithm].check(case)
    return case


def bounds(ds: xarray.Dataset, lam: float | None = None) -> list[Bound]:
    """The bounds of its paper for a result; with ``lam`` also that for lam-strong convexity (Lemma 6 of
    Hu, Guo and Gong)."""
    about = results.config(ds)
    settings = about["settings"]
    fixed = settings["algorithm"], settings["parts"]
    case = possible(*fixed, about["values"], about["facts"], about["sources"])
    if lam is not None:
        number("lam", lam, above=0, remedy="it is the constant of strong convexity")
    loss, regularized = ds["loss"].values, float(settings["objective"].split()[1]) != 0
    ends = float(loss[0]), float(np.nanmin(loss))
    measured = Measured(ds["round"].values[1:], *ends, regularized)
    return FAMILIES[case.algorithm].bounds(case, measured, lam)
