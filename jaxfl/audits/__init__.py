"""Audits, which bound eps from below by attack, and questions by the name of an algorithm.

* :mod:`~jaxfl.audits.attack` -- lower bounds on eps by attack, for any algorithm
* :mod:`~jaxfl.audits.calculators` -- calculators for questions without an event: conversions, and
  bounds from counts of an attack
* :mod:`~jaxfl.audits.canary` -- an algorithm on the problem of a canary, with its numbers
  resolved, and what an attack on it does not look at
* :mod:`~jaxfl.audits.checks` -- two quick audits: the change that one record makes without noise,
  and the leak of one run
* :mod:`~jaxfl.audits.questions` -- ``jaxfl.account`` and ``jaxfl.calibrate``: privacy by the name
  of an algorithm, without data
* :mod:`~jaxfl.audits.ranges` -- ranges of the parameters of questions and audits that no algorithm
  declares
"""
