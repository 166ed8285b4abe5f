"""Tables and pictures of results.

* :mod:`~jaxfl.views.bounds` -- convergence bounds of papers beside the curve of a run
* :mod:`~jaxfl.views.cells` -- the axes of a sweep, its cells, and their final values
* :mod:`~jaxfl.views.compare` -- two sweeps, or two runs, side by side
* :mod:`~jaxfl.views.ink` -- the drawing kit of all pictures
* :mod:`~jaxfl.views.pictures` -- the pictures of a sweep: curves, heat maps, fronts
* :mod:`~jaxfl.views.plots` -- the curves of single runs
* :mod:`~jaxfl.views.rows` -- the table of a sweep
* :mod:`~jaxfl.views.selection` -- the best step size of every setting
* :mod:`~jaxfl.views.tables` -- tables as text, CSV, LaTeX and Markdown
* :mod:`~jaxfl.views.targets` -- the cost of reaching a target
* :mod:`~jaxfl.views.words` -- numbers, units and names of axes as texts
"""

from jaxfl.views.cells import final, restrict
from jaxfl.views.compare import compare
from jaxfl.views.pictures import draw, figures
from jaxfl.views.rows import table
from jaxfl.views.selection import Selection, select
from jaxfl.views.targets import Links, to_target

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
