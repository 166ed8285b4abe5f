"""Attacks and what they show; questions about privacy, by the name of an algorithm.

* :mod:`~jaxfl.audit.attack` -- how private is it at least *not*: lower bounds on eps by attack,
  for any algorithm
* :mod:`~jaxfl.audit.calculators` -- small questions that have no event: conversions,
  counterexamples, audits
* :mod:`~jaxfl.audit.canary` -- the worst record an audit can plant, and what an adversary then
  sees
* :mod:`~jaxfl.audit.checks` -- two quick looks at a mechanism: what one record moves with the
  noise off, and one run's leak
* :mod:`~jaxfl.audit.decisions` -- which test tells two worlds apart best, and which noise that
  rules out
* :mod:`~jaxfl.audit.limits` -- from how often a test succeeds to how much privacy there can be at
  most
* :mod:`~jaxfl.audit.questions` -- ``jaxfl.account`` and ``jaxfl.calibrate``: privacy by the name
  of an algorithm, without data
* :mod:`~jaxfl.audit.ranges` -- which numbers the questions about privacy can mean, beside the
  hyper-parameters of algorithms
* :mod:`~jaxfl.audit.reference` -- a canary audited in NumPy: one coordinate, Poisson sampling,
  other gradients zero
"""

from jaxfl.audit.attack import AuditResult, audit
from jaxfl.audit.checks import one_run_audit, sensitivity

__all__ = ["AuditResult", "audit", "one_run_audit", "sensitivity"]
