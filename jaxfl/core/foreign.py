"""Code of users: imports of its modules, standard output, NumPy's error settings, lines in warnings."""

from __future__ import annotations

import contextlib
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np

from jaxfl.core.errors import JaxflWarning
from jaxfl.core.identity import INSTALLED

__all__ = ["CALM", "apart", "importing", "output", "warn"]

CALM = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")  # whatever users set
_outputs: list[TextIO] = []  # standard output, while others print elsewhere


@contextlib.contextmanager
def importing(folder: Path) -> Iterator[list[types.ModuleType]]:
    """Run a file that can import modules of its folder.  They come first while it runs, and last later.

    Yields a list, which at the end has those that were imported.  What the file prints goes to standard
    error, and what it sets of NumPy's errors ends with it.
    """
    known, place, found = {*sys.modules}, str(folder), list[types.ModuleType]()
    sys.path.insert(0, place)
    try:
        with contextlib.redirect_stdout(sys.stderr), np.errstate():
            yield found
    finally:
        sys.path.remove(place)
    sys.path.append(place)
    for module in (sys.modules[name] for name in {*sys.modules} - known):
        file = str(getattr(module, "__file__", None) or "")
        if Path(file).is_relative_to(folder) and not file.startswith(INSTALLED):
            found.append(module)


@contextlib.contextmanager
def apart(only: bool) -> Iterator[None]:
    """If standard output has results ``only``, print to standard error what others print."""
    if not only:
        yield
        return
    _outputs.append(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _outputs.pop()


def output() -> TextIO:
    """Standard output, which is for results."""
    return _outputs[-1] if _outputs else sys.stdout


def warn(warning: JaxflWarning) -> None:
    """Issue a warning at the innermost line of the user's own code, however deep in jaxfl it arises."""
    frame: types.FrameType = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(("<frozen", *INSTALLED)):
        frame = frame.f_back
    place = frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__")
    seen = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(warning, type(warning), *place, seen)
