"""Whole grids of runs in few compiled programs; :mod:`jaxfl.views` looks at their results.

* :mod:`~jaxfl.engine.sweeps.compute` -- compute one chunk, from its first round or its checkpoint
  to its last
* :mod:`~jaxfl.engine.sweeps.driver` -- have an executor compute the chunks: send what they share,
  submit them, collect arrays
* :mod:`~jaxfl.engine.sweeps.engine` -- one compiled program for many runs: vmap over cells
  inside, over seeds outside
* :mod:`~jaxfl.engine.sweeps.fit` -- chunks that fit in memory and in time: estimated from shapes,
  measured by the compiler and a clock
* :mod:`~jaxfl.engine.sweeps.gather` -- merge chunks into one labelled dataset
* :mod:`~jaxfl.engine.sweeps.grid` -- axes and cells: from the values of a grid to the
  hyper-parameters of every run
* :mod:`~jaxfl.engine.sweeps.identity` -- what identifies a sweep: the content of its manifest,
  compared when it is resumed or extended
* :mod:`~jaxfl.engine.sweeps.look` -- the plan and the progress of a sweep
* :mod:`~jaxfl.engine.sweeps.placement` -- place the arrays of a program: on one device, with runs
  split over several, or with clients split
* :mod:`~jaxfl.engine.sweeps.plan` -- divide cells into compiled programs, and programs into
  chunks
* :mod:`~jaxfl.engine.sweeps.store` -- the folder of a sweep: its manifest, one file per
  chunk, checkpoints of chunks and final states
* :mod:`~jaxfl.engine.sweeps.sweep` -- run a grid: plan it, compile it, compute it chunk by chunk,
  and save each chunk
* :mod:`~jaxfl.engine.sweeps.watch` -- hand the evaluations of the runs of a sweep to callbacks
* :mod:`~jaxfl.engine.sweeps.worker` -- compute one chunk for a driver elsewhere: the function that
  executors call on workers
"""

from jaxfl.engine.sweeps.look import Plan, Progress
from jaxfl.engine.sweeps.sweep import sweep

__all__ = ["Plan", "Progress", "sweep"]
