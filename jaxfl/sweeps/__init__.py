"""Whole grids of runs in few compiled programs."""

from jaxfl.sweeps.look import Plan, Progress
from jaxfl.sweeps.sweep import sweep

__all__ = ["Plan", "Progress", "sweep"]
