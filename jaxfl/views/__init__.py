"""Tables and pictures of results.

* :mod:`~jaxfl.views.bounds` -- a paper's convergence bound beside the curve of a run, with its
  assumptions
* :mod:`~jaxfl.views.cells` -- the axes of a sweep, its cells, and their values at their last
  rounds
* :mod:`~jaxfl.views.compare` -- two sweeps, or two runs, side by side
* :mod:`~jaxfl.views.ink` -- the drawing kit of all pictures: frames, legends, panels of lines,
  axes, files
* :mod:`~jaxfl.views.pictures` -- the pictures of a sweep: curves, heat maps, and fronts of
  utility and bits
* :mod:`~jaxfl.views.plots` -- values against rounds, bits and gradients: the lines of sweeps, and
  the figure of single runs
* :mod:`~jaxfl.views.rows` -- the table of a sweep: one row per cell, with its final metrics and
  its costs
* :mod:`~jaxfl.views.selection` -- the best step size of every setting, and a note on the privacy
  cost of the choice
* :mod:`~jaxfl.views.tables` -- tables, as text, CSV, LaTeX and Markdown
* :mod:`~jaxfl.views.targets` -- the cost of reaching a target: rounds, bits, gradients, and
  seconds on given links
* :mod:`~jaxfl.views.words` -- numbers, units and names of axes as texts
"""

from jaxfl.core.links import Links
from jaxfl.views.cells import final, restrict
from jaxfl.views.compare import compare
from jaxfl.views.pictures import draw, figures
from jaxfl.views.rows import table
from jaxfl.views.selection import Selection, select
from jaxfl.views.targets import to_target

__all__ = [
    "Links",
    "Selection",
    "compare",
    "draw",
    "figures",
    "final",
    "restrict",
    "select",
    "table",
    "to_target",
]
