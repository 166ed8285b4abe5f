"""Runs and sweeps: compiled loops, logs, results, checkpoints.

* :mod:`~jaxfl.engine.callbacks` -- callbacks: what they receive of each evaluation, of runs and
  of the runs of a sweep
* :mod:`~jaxfl.engine.checkpoint` -- checkpoints: state and log of a run, or of the runs of a
  chunk, in one file
* :mod:`~jaxfl.engine.executors` -- what computes the chunks of a sweep elsewhere: local
  processes, Ray, Dask and SLURM
* :mod:`~jaxfl.engine.ledger` -- the privacy cost of each client of a run: the rounds in which it
  took part, and its eps
* :mod:`~jaxfl.engine.log` -- the history of a run, or of the runs of a chunk: metrics and exact
  totals
* :mod:`~jaxfl.engine.loop` -- the loop over rounds of one run or of the runs of a chunk, and what
  it compiles: rounds, metrics
* :mod:`~jaxfl.engine.memory` -- the memory that a run needs and the memory that is free, compared
  before the run starts
* :mod:`~jaxfl.engine.profiling` -- time a round by phase, and compare it with what the machine
  can do
* :mod:`~jaxfl.engine.pure` -- rounds as pure functions, for the user's own loop
* :mod:`~jaxfl.engine.runs` -- the record of a run: state, history, privacy, and the settings
  that reproduce it
* :mod:`~jaxfl.engine.results` -- a run as labelled arrays, and as one portable file
* :mod:`~jaxfl.engine.run` -- run an algorithm: rounds compiled once, metrics at a cadence,
  checkpoints, resuming
* :mod:`~jaxfl.engine.stopping` -- stopping rules: what ends a run before its last round, and what
  that reveals of the data
* :mod:`~jaxfl.engine.trackers` -- trackers of experiments, as callbacks: TensorBoard, Weights &
  Biases, MLflow
"""
