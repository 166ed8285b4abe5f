"""Sweeps: many runs as one labelled result."""
