"""Progress: a bar on a terminal, a changing line in a notebook, lines in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from jaxfl.core.errors import printable, require

__all__ = ["Bar", "watching"]

Now = TypeVar("Now")

LINES = 10  # in a log, for one task
SECONDS = 30.0  # between two lines of a log, at most
REFRESH = 0.2  # seconds between changes in a notebook


class Bar:
    """``with Bar() as bar: bar.update(done, total, words)`` writes to standard error, unless quiet."""

    def __init__(self, head: str = "", *, quiet: bool = False) -> None:
        self.head, self.quiet = head, quiet
        self.bar: Any = None
        self.cell: Any = None  # of a notebook
        self.shown, self.shown_at = 0, time.perf_counter()

    def __enter__(self) -> Bar:
        if self.quiet:
            return self
        if self.head:
            self.say(self.head)
        if _in_notebook():
            from IPython.display import display

            self.cell = display({"text/plain": "compiling"}, raw=True, display_id=True)
        elif sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self.bar = Progress(
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.description}", markup=False),
                console=Console(file=sys.stderr),
                transient=True,
            )
            self.bar.start()
            self.task = self.bar.add_task("compiling", total=None)
        return self

    def say(self, line: str) -> None:
        """Print a line that stays."""
        if not self.quiet:
            print(printable(line), file=sys.stderr, flush=True)

    def update(self, done: int, total: int, words: str, unit: str = "round") -> None:
        if self.quiet:
            return
        line = f"{unit} {done:,}/{total:,}, {words}"
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=total, description=printable(words))
            return
        now = time.perf_counter()
        end = done == total > self.shown
        if self.cell is not None:
            if end or now - self.shown_at > REFRESH:
                self.shown, self.shown_at = done, now
                self.cell.update({"text/plain": line}, raw=True)
        elif end or done - self.shown >= total / LINES or now - self.shown_at > SECONDS:
            self.shown, self.shown_at = done, now
            self.say(line)

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def watching(
    progress: bool | Callable[[Now], None] | None, show: Callable[[Bar, Now], None]
) -> contextlib.AbstractContextManager[Callable[[Now], None] | None]:
    """The function to report progress to: the caller's own, that of a bar for True, or None."""
    usable = progress is None or isinstance(progress, bool) or callable(progress)
    require(usable, "must be True, for a bar, or a function of what is done", progress=progress)
    return contextlib.nullcontext(progress or None) if progress is not True else _shown(show)


@contextlib.contextmanager
def _shown(show: Callable[[Bar, Now], None]) -> Iterator[Callable[[Now], None]]:
    with Bar() as bar:
        yield lambda now: show(bar, now)


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
