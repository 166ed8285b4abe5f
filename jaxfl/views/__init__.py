"""What can be seen in the results of sweeps: choices, tables, comparisons, pictures."""

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
