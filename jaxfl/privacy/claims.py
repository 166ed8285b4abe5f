"""Claims: what a paper states about noise and privacy, and whether its conditions hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxfl.core.params import exactly_one, number
from jaxfl.privacy.gaussian import check_delta

__all__ = ["TOLERANCE", "Claim", "Condition", "above", "either", "rounded", "solved", "understates"]

# A proven eps this much above the claimed one is rounding: of batches to whole records, of accountants
# to grids, of calibration to its tolerance (0.4 % at most where formula and proof agree).
TOLERANCE = 0.01


class Condition(NamedTuple):
    """A condition of the theorem, and whether it holds; None: not known.

    ``needed``: without it the formula does not apply, and ``noise="paper"`` raises.
    """

    text: str  # what the theorem needs
    holds: bool | None
    needed: bool = False
    here: str = ""  # what there is instead

    def __str__(self) -> str:
        needs = f"the theorem needs {self.text}"
        if self.holds is False:
            return "fails: " + needs + f", and here {self.here}" * bool(self.here)
        if self.holds is None:
            return f"may fail: {needs}"
        return "holds: " + self.text + f" (here {self.here})" * bool(self.here)


class Claim(NamedTuple):
    """A paper's statement about the noise sigma and its eps at delta, with its conditions."""

    source: str
    formula: str
    sigma: float
    eps: float
    delta: float
    conditions: tuple[Condition, ...] = ()
    verified: bool = True  # the formula, against its source; whatever its conditions
    note: str = ""
    where: str = "the paper's formula"  # the source of a sigma or an eps, as a text

    @property
    def holds(self) -> bool:
        """Whether no condition is known to fail."""
        return all(condition.holds is not False for condition in self.conditions)


def above(bound: float, digits: int = 4) -> float:
    """An upper bound rounded up to this many digits: it holds as it is printed."""
    if not 0 < bound < math.inf:
        return bound
    places = digits - 1 - math.floor(math.log10(bound))
    scaled = math.ceil(bound * 10.0**places * (1 - 1e-12))
    return float(f"{scaled}e{-places}")


def rounded(eps: float, delta: float) -> str:
    """Both bounds in words, rounded up.

    >>> rounded(4.90001, 1e-5)
    'eps = 4.901, delta = 1e-05'
    """
    return f"eps = {above(eps):.4g}, delta = {above(delta):.4g}"


def understates(claimed: Any, proven: Any) -> Any:
    """Whether the proven eps exceeds the claimed one by more than 1 %, the rule of every flag."""
    return proven > claimed * (1 + TOLERANCE)


def either(numerator: float, delta: float, **way: float) -> tuple[float, float]:
    """sigma and eps of a formula ``sigma = numerator / eps``; ``way`` is one of them, by its name."""
    return solved(lambda e: numerator / e, lambda s: numerator / s, delta, **way)


def solved(
    sigma_of: Callable[[float], float],
    eps_of: Callable[[float], float],
    delta: float,
    *,
    eps: float | None = None,
    sigma: float | None = None,
) -> tuple[float, float]:
    """sigma and eps of a formula, one of which is given; each function computes one from the other."""
    check_delta(delta)
    exactly_one(eps=eps, sigma=sigma)
    if eps is None:
        assert sigma is not None
        return sigma, eps_of(sigma) if sigma > 0 else math.inf
    number("eps", eps, above=0, remedy="no noise is enough for 0")
    return sigma_of(eps), eps
