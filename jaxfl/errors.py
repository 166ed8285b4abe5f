"""The one error that a user is meant to read."""

__all__ = ["InputError", "said"]


class InputError(ValueError):
    """A mistake its reader can correct: one sentence with the value and the way out.

    The command line prints the sentence alone and exits with status 2.
    """


def said(error: Exception) -> str:
    """What went wrong in code that is not ours, in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
