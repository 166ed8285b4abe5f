"""Whole grids of runs in few compiled programs; :mod:`jaxfl.views` looks at their results."""

from jaxfl.sweeps.look import Plan, Progress
from jaxfl.sweeps.sweep import sweep

__all__ = ["Plan", "Progress", "sweep"]
