"""The noise formula of the code of DiceSGD's authors."""

from __future__ import annotations

import math

from jaxfl.privacy import events
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.calibration import sigma_for
from jaxfl.privacy.claims import Claim, Condition, solved

__all__ = ["dice"]


def dice(
    G: float, C2: float, rows: events.Sampling, rounds: int, delta: float, **way: float
) -> Claim:
    """``sigma = z (G/b) sqrt(1 + 2 b C2/G)``, z the noise multiplier of DP-SGD for eps.

    DP-SGD's draws are ``rows``, and its record is added or removed, as in the authors' code.  The error
    is counted as if sampling amplified it and as if one round moved it.
    """
    longer = math.sqrt(1 + 2 * rows.b * C2 / G)

    def plain(sigma: float) -> events.Event:
        return events.Event(rows, events.Mean(G), sigma, rounds, adjacency="add_remove")

    def eps_of(sigma: float) -> float:
        return float(epsilon(plain(sigma / longer), delta).eps)

    def sigma_of(eps: float) -> float:
        return longer * sigma_for(plain(1.0), eps, delta).sigma

    s, e = solved(sigma_of, eps_of, delta, **way)
    formula = "sigma = z (G/b) sqrt(1 + 2 b C2/G), z the noise multiplier of DP-SGD"
    hidden = Condition("that sampling amplifies what the error reveals", False)
    note = "of a record that is added or removed"
    return Claim("DiceSGD, authors' code", formula, s, e, delta, (hidden,), note=note)
