"""Runs and sweeps, from a call to its results.

A call lays out a grid, plans its runs in chunks, computes these here or by workers, and makes one data
set of what they return.  A single run is a grid without axes.

* :mod:`~jaxfl.engine.simulate`, :mod:`~jaxfl.engine.sweep` -- the calls
* :mod:`~jaxfl.engine.session` -- the steps of both: plan, compute, keep, report

The grid and its plan:

* :mod:`~jaxfl.engine.grid` -- from axes to the resolved values of each run
* :mod:`~jaxfl.engine.plan` -- programs, chunks and addresses of runs
* :mod:`~jaxfl.engine.planned` -- the plan of a folder, matched with a grid
* :mod:`~jaxfl.engine.store` -- the folder: the plan, finished chunks, checkpoints
* :mod:`~jaxfl.engine.memory` -- the memory that a run needs, compared with what is free

A chunk:

* :mod:`~jaxfl.engine.loop` -- the computation of a program: rounds, metrics, and an estimate of their work
* :mod:`~jaxfl.engine.program` -- the compiled program of a chunk, and its devices
* :mod:`~jaxfl.engine.compute` -- compute a chunk, from its first round or a checkpoint
* :mod:`~jaxfl.engine.log` -- metrics and exact totals of its runs
* :mod:`~jaxfl.engine.checkpoint` -- states and logs of its runs, in one file
* :mod:`~jaxfl.engine.stopping` -- rules that end runs early, and what they reveal

Elsewhere:

* :mod:`~jaxfl.engine.executors` -- local processes, Ray, Dask and SLURM
* :mod:`~jaxfl.engine.driver` -- send chunks to an executor, and collect what it returns
* :mod:`~jaxfl.engine.worker` -- compute a chunk that a driver has sent

What is shown and returned:

* :mod:`~jaxfl.engine.progress` -- the plan and the progress of a call
* :mod:`~jaxfl.engine.callbacks` -- evaluations of runs, handed to functions
* :mod:`~jaxfl.engine.trackers` -- callbacks for TensorBoard, Weights & Biases and MLflow
* :mod:`~jaxfl.engine.runs` -- the record of a run: values, sources, privacy, totals
* :mod:`~jaxfl.engine.ledger` -- the privacy cost of each client
* :mod:`~jaxfl.engine.dataset` -- one labelled data set of the runs of a grid
* :mod:`~jaxfl.engine.results` -- its variables, and its file

Without a session:

* :mod:`~jaxfl.engine.functions` -- rounds as pure functions, for the user's own loop
"""
