"""Privacy accounting: what a run releases about one record, and the eps that is proven for it.

* :mod:`~jaxfl.privacy.accountants` -- accountants: ``epsilon(event, delta)`` and ``delta(event,
  eps)``
* :mod:`~jaxfl.privacy.calibration` -- calibration: the noise, batch size or rounds whose proven
  eps is at most a given one
* :mod:`~jaxfl.privacy.claims` -- claims: what a paper states about noise and privacy, and whether
  its conditions hold
* :mod:`~jaxfl.privacy.decisions` -- the best test between two worlds, and the noise that its
  success rules out
* :mod:`~jaxfl.privacy.dp_event` -- events as a ``dp_accounting.DpEvent``, with which another tool
  can check what is proven
* :mod:`~jaxfl.privacy.events` -- events, which describe what a run releases about one record:
  frozen, hashable, for accountants
* :mod:`~jaxfl.privacy.gaussian` -- gaussian differential privacy in closed form, and conversions
  from zCDP
* :mod:`~jaxfl.privacy.groups` -- group privacy: the eps of several records, from the proof for one
* :mod:`~jaxfl.privacy.limits` -- lower bounds on eps from how often a test succeeds
* :mod:`~jaxfl.privacy.mixtures` -- bounds for estimators in which a record enters every release,
  drawn or not: SVRG and SAGA
* :mod:`~jaxfl.privacy.networks` -- noise that neighbours of a network share, and that cancels in
  the sum of all clients
* :mod:`~jaxfl.privacy.pld` -- composition of many releases: privacy loss distributions on a grid,
  multiplied by FFT
* :mod:`~jaxfl.privacy.profiles` -- privacy profiles of single releases under replace-one
* :mod:`~jaxfl.privacy.releases` -- the releases of an event, which an accountant composes
* :mod:`~jaxfl.privacy.rings` -- integer noise on the ring of a secure sum: its probabilities as
  integers, and the eps that a sum proves
* :mod:`~jaxfl.privacy.reports` -- reports: the claimed and the proven eps, delta at the claimed
  eps, and a red flag
* :mod:`~jaxfl.privacy.statements` -- statements about a mechanism that a reader can use: mu, rates
  of an attack, and the profile itself
* :mod:`~jaxfl.privacy.selection` -- the privacy cost of choosing the best of several runs by a
  score of the private data

Host side, in float64, never traced.  An :class:`Event` describes the release, :func:`epsilon` and
:func:`delta` account for it, :func:`sigma_for` calibrates its noise, and :func:`report` compares the
proof with a paper's claim.  :func:`jaxfl.account` and :func:`jaxfl.calibrate` take the name of an
algorithm.

>>> from jaxfl import privacy as p
>>> event = p.Event(p.Sampling("poisson", 3256, 51), p.Mean(0.5), sigma=0.005, releases=100)
>>> p.epsilon(event, 1e-3)
Guarantee(eps = 4.9, delta = 0.001: Poisson sampling: PLD)
"""

from jaxfl.privacy.accountants import delta, epsilon
from jaxfl.privacy.calibration import sigma_for
from jaxfl.privacy.claims import Claim
from jaxfl.privacy.events import (
    Event,
    Increments,
    LocalSteps,
    Mean,
    NoClaim,
    Phases,
    Sampling,
    Sequence,
    worst,
)
from jaxfl.privacy.groups import of_group
from jaxfl.privacy.reports import report
from jaxfl.privacy.selection import best_of

__all__ = [
    "Claim",
    "Event",
    "Increments",
    "LocalSteps",
    "Mean",
    "NoClaim",
    "Phases",
    "Sampling",
    "Sequence",
    "best_of",
    "delta",
    "epsilon",
    "of_group",
    "report",
    "sigma_for",
    "worst",
]
