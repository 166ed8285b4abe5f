"""Whole grids of runs in few compiled programs; :mod:`jaxfl.views` looks at their results.

* :mod:`~jaxfl.engine.sweeps.compute` -- one chunk, from its first round to its last
* :mod:`~jaxfl.engine.sweeps.engine` -- one compiled program for many runs: vmap over cells
  inside, over seeds outside
* :mod:`~jaxfl.engine.sweeps.fit` -- chunks that fit the device: from shapes first, then checked
  against the compiler's own analysis
* :mod:`~jaxfl.engine.sweeps.gather` -- chunks as one labelled dataset
* :mod:`~jaxfl.engine.sweeps.grid` -- axes and cells: from what a user spans to the numbers of
  every run
* :mod:`~jaxfl.engine.sweeps.identity` -- what makes a sweep this one and no other: what its
  manifest says, and a resumed one has to be
* :mod:`~jaxfl.engine.sweeps.look` -- what is shown while a sweep goes on
* :mod:`~jaxfl.engine.sweeps.placement` -- where the arrays of a program lie: on one device, runs
  split over several, or clients split
* :mod:`~jaxfl.engine.sweeps.plan` -- from cells to compiled programs and the chunks that they are
  run in
* :mod:`~jaxfl.engine.sweeps.store` -- the folder of a sweep: what it is, and one file per
  finished chunk
* :mod:`~jaxfl.engine.sweeps.sweep` -- running a grid: planned, compiled, computed chunk by chunk,
  kept as it comes
"""

from jaxfl.engine.sweeps.look import Plan, Progress
from jaxfl.engine.sweeps.sweep import sweep

__all__ = ["Plan", "Progress", "sweep"]
