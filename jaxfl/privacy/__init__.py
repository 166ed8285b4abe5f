"""Privacy accounting: what a run releases about one record, and the eps that is proven for it.

Host side, in float64, never traced.  An :class:`Event` describes the release, :func:`epsilon` and
:func:`delta` account for it, :func:`sigma_for` calibrates its noise, and :func:`report` compares the
proof with a paper's claim.  :func:`jaxfl.account` and :func:`jaxfl.calibrate` take the name of an
algorithm.

>>> from jaxfl import privacy as p
>>> event = p.Event(p.Sampling("poisson", 3256, 51), p.Mean(0.5), sigma=0.005, releases=100)
>>> p.epsilon(event, 1e-3)._replace(eps=round(p.epsilon(event, 1e-3).eps, 2))
Guarantee(eps=4.9, delta=0.001, method='Poisson sampling: PLD', status='E')
"""

from jaxfl.privacy.accountants import METHODS, Guarantee, delta, epsilon
from jaxfl.privacy.calibration import Calibration, batch_for, rounds_for, sigma_for, sigma_grid
from jaxfl.privacy.claims import Claim, Condition
from jaxfl.privacy.events import (
    AnyEvent,
    Event,
    Increments,
    LocalSteps,
    Mean,
    NoClaim,
    Phases,
    Sampling,
    Sequence,
    batch_clipped,
    saga,
    scaled,
    svrg,
    until,
)
from jaxfl.privacy.reports import Report, report, spent
from jaxfl.privacy.selection import Selected, best_of, selection_note

__all__ = [
    "METHODS",
    "AnyEvent",
    "Calibration",
    "Claim",
    "Condition",
    "Event",
    "Guarantee",
    "Increments",
    "LocalSteps",
    "Mean",
    "NoClaim",
    "Phases",
    "Report",
    "Sampling",
    "Selected",
    "Sequence",
    "batch_clipped",
    "batch_for",
    "best_of",
    "delta",
    "epsilon",
    "report",
    "rounds_for",
    "saga",
    "scaled",
    "selection_note",
    "sigma_for",
    "sigma_grid",
    "spent",
    "svrg",
    "until",
]
