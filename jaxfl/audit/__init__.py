"""Audits, which bound eps from below by attack, and questions by the name of an algorithm.

* :mod:`~jaxfl.audit.attack` -- ``audit``: lower bounds on eps by attack, for any algorithm
* :mod:`~jaxfl.audit.calculators` -- questions without an event: conversions, counterexamples
* :mod:`~jaxfl.audit.canary` -- the worst record that an audit can plant, and the trajectory
* :mod:`~jaxfl.audit.checks` -- the change that one record makes without noise, the leak of one run
* :mod:`~jaxfl.audit.decisions` -- the best test between two worlds, and the noise that it rules out
* :mod:`~jaxfl.audit.limits` -- lower bounds on eps from how often a test succeeds
* :mod:`~jaxfl.audit.questions` -- ``jaxfl.account`` and ``jaxfl.calibrate``, without data
* :mod:`~jaxfl.audit.ranges` -- ranges of parameters that no algorithm declares
* :mod:`~jaxfl.audit.reference` -- the audit of one canary in NumPy
"""

from jaxfl.audit.attack import AuditResult, audit
from jaxfl.audit.checks import one_run_audit, sensitivity

__all__ = ["AuditResult", "audit", "one_run_audit", "sensitivity"]
