"""The version of the package, where every module can read it, and the mark of what a later one removes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["__version__", "deprecated"]

__version__ = "0.2.0"

P = ParamSpec("P")
R = TypeVar("R")


def deprecated(since: str, remedy: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a public function that a later version removes: a call warns, and says what to do.

    >>> @deprecated("0.2.0", "use new()")
    ... def old(): return 3
    """

    def mark(f: Callable[P, R]) -> Callable[P, R]:
        words = f"{f.__qualname__} is deprecated since jaxfl {since}: {remedy}."

        @functools.wraps(f)
        def marked(*args: P.args, **keywords: P.kwargs) -> R:
            warnings.warn(words, DeprecationWarning, stacklevel=2)
            return f(*args, **keywords)

        return marked

    return mark
