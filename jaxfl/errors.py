"""The one error that a user is meant to read."""

__all__ = ["InputError"]


class InputError(ValueError):
    """A mistake its reader can correct: one sentence with the value and the way out.

    The command line prints the sentence alone and exits with status 2.
    """
