"""Whole grids of runs in few compiled programs, and what can be seen in their results."""

from jaxfl.sweeps.cells import final, restrict
from jaxfl.sweeps.compare import compare
from jaxfl.sweeps.links import Links
from jaxfl.sweeps.look import Plan, Progress
from jaxfl.sweeps.pictures import draw
from jaxfl.sweeps.rows import table
from jaxfl.sweeps.selection import Selection, select
from jaxfl.sweeps.sweep import sweep
from jaxfl.sweeps.targets import to_target

__all__ = [
    "Links",
    "Plan",
    "Progress",
    "Selection",
    "compare",
    "draw",
    "final",
    "restrict",
    "select",
    "sweep",
    "table",
    "to_target",
]
