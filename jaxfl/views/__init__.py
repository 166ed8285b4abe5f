"""Tables and pictures of results.

* :mod:`~jaxfl.views.bounds` -- a paper's convergence bound with the curve of a run, and its
  assumptions
* :mod:`~jaxfl.views.cells` -- the axes of a sweep, its cells, and their values at their last
  rounds
* :mod:`~jaxfl.views.explorer` -- a picture of a sweep in a notebook that follows sliders
* :mod:`~jaxfl.views.ink` -- the drawing kit of all pictures: frames, legends, panels of lines,
  axes, files
* :mod:`~jaxfl.views.plots` -- the pictures of results: fronts of a metric and bits, heat maps, and
  curves of sweeps and of runs
* :mod:`~jaxfl.views.selection` -- the best step size of every setting, and a note on the privacy
  cost of the choice
* :mod:`~jaxfl.views.statements` -- privacy cards side by side, and the trade-off of a proof, a claim
  and an audit in one picture
* :mod:`~jaxfl.views.tables` -- tables of results, as text, CSV, LaTeX and Markdown: one row per
  cell, two results side by side, and the cost of reaching a target
* :mod:`~jaxfl.views.words` -- numbers, units and names of axes as texts
"""

from jaxfl.views.explorer import explore
from jaxfl.views.plots import draw, figures
from jaxfl.views.selection import select
from jaxfl.views.statements import cards, trade_off
from jaxfl.views.tables import compare, table, to_target

__all__ = [
    "cards",
    "compare",
    "draw",
    "explore",
    "figures",
    "select",
    "table",
    "to_target",
    "trade_off",
]
