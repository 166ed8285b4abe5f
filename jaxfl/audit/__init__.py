"""Audits, which bound eps from below by attack, and questions by the name of an algorithm.

* :mod:`~jaxfl.audit.attack` -- lower bounds on eps by attack, for any algorithm
* :mod:`~jaxfl.audit.calculators` -- calculators for questions without an event: conversions, and
  bounds from counts of an attack
* :mod:`~jaxfl.audit.canary` -- an algorithm on the problem of a canary, with its numbers
  resolved, and what an attack on it does not look at
* :mod:`~jaxfl.audit.checks` -- two quick audits: the change that one record makes without noise,
  and the leak of one run
* :mod:`~jaxfl.audit.questions` -- ``jaxfl.account`` and ``jaxfl.calibrate``: privacy by the name
  of an algorithm, without data
* :mod:`~jaxfl.audit.ranges` -- ranges of the parameters of questions and audits that no algorithm
  declares
"""

from jaxfl.audit.attack import AuditResult, audit
from jaxfl.audit.checks import one_run_audit, sensitivity

__all__ = ["AuditResult", "audit", "one_run_audit", "sensitivity"]
