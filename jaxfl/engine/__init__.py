"""Runs and sweeps: compiled loops, logs, results, checkpoints.

* :mod:`~jaxfl.engine.checkpoint` -- a run in one file: written whole or not at all, read back bit
  for bit
* :mod:`~jaxfl.engine.ledger` -- what a run cost each of its clients: who took part how often, and
  the eps of each
* :mod:`~jaxfl.engine.log` -- the history of a run: metrics and exact totals
* :mod:`~jaxfl.engine.loop` -- rounds and metrics of one run, ready to be compiled alone or mapped
  over the cells of a sweep
* :mod:`~jaxfl.engine.memory` -- what is free, and what a run remembers: refused before it begins
  where that is too much
* :mod:`~jaxfl.engine.profiling` -- where the time of a round goes, beside what the machine could
  do
* :mod:`~jaxfl.engine.pure` -- rounds as pure functions, for a loop of one's own
* :mod:`~jaxfl.engine.record` -- what a run leaves: its state and history, what it proves, and how
  it can be made again
* :mod:`~jaxfl.engine.results` -- a run as labelled arrays, and as one portable file
* :mod:`~jaxfl.engine.run` -- running an algorithm: rounds compiled once, evaluated at a cadence,
  durable, extendable
"""
