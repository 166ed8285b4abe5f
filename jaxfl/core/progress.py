"""Progress: a bar on a terminal, one in a notebook, lines in a log.

The bar of a notebook is HTML on IPython's display, which every notebook has; that of rich needs ipywidgets
to change in place.  Both bars go when the work is done.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from jaxfl.core.display import progress
from jaxfl.core.errors import printable, require

__all__ = ["Bar", "amount", "duration", "plural", "watching"]

Now = TypeVar("Now")

LINES = 10  # in a log, for one task
SECONDS = 30.0  # between two lines of a log, at most
PATIENCE = 5.0  # seconds until a bar is shown that nobody has asked for
REFRESH = 0.2  # seconds between changes in a notebook
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
WIDTH = 16  # of the bar: 80 columns hold it and its words


class Bar:
    """``with Bar() as bar: bar.update(done, total, words)`` writes to standard error, unless quiet.

    Before the first update it says "starting"; :meth:`doing` says what takes time instead of rounds.
    What ends within ``wait`` seconds shows nothing.
    """

    def __init__(self, head: str = "", *, quiet: bool = False, wait: float = 0.0) -> None:
        self.head, self.quiet, self.wait = head, quiet, wait
        self.bar: Any = None
        self.cell: Any = None  # of a notebook
        self.shown, self.shown_at = 0, time.perf_counter()
        self.began, self.started = self.shown_at, False

    def __enter__(self) -> Bar:
        self._late()
        return self

    def _late(self) -> bool:
        """Begin to show something once it is time; whether it is not."""
        if self.quiet or time.perf_counter() - self.began < self.wait:
            return True
        if not self.started:
            self.started = True
            self._start()
        return False

    def _start(self) -> None:
        if self.head:
            self.say(self.head)
        if _in_notebook():
            from IPython.display import display

            self.cell = display(_shown_in_notebook("starting"), raw=True, display_id=True)
        elif sys.stderr.isatty():
            self.bar = _terminal()
            self.bar.start()
            self.task = self.bar.add_task("starting", total=None, note="")

    def say(self, line: str) -> None:
        """Print a line that stays."""
        if not self.quiet:
            print(printable(line), file=sys.stderr, flush=True)

    def doing(self, words: str) -> None:
        """Show what takes time now; a terminal counts the seconds."""
        if self._late():
            return
        if self.bar is not None:
            self.bar.reset(self.task, total=None, description=printable(words), note="")
        elif self.cell is not None:
            self.cell.update(_shown_in_notebook(words), raw=True)
        else:
            self.say(words)

    def update(self, done: int, total: int, words: str, note: str = "") -> None:
        """Show that ``done`` of ``total`` rounds are computed; the note has a line of its own."""
        if self._late():
            return
        if self.bar is not None:
            text = f"{amount(done)}/{amount(total)} rounds, {printable(words)}"
            note = printable(note)
            self.bar.update(self.task, completed=done, total=total, description=text, note=note)
            return
        line = f"round {done:,}/{total:,}, {words}" + (f", {note}" if note else "")
        now = time.perf_counter()
        end = done == total > self.shown
        if self.cell is not None:
            if end or now - self.shown_at > REFRESH:
                self.shown, self.shown_at = done, now
                self.cell.update(_shown_in_notebook(line, done, total), raw=True)
        elif end or done - self.shown >= total / LINES or now - self.shown_at > SECONDS:
            self.shown, self.shown_at = done, now
            self.say(line)

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()
        if self.cell is not None:
            self.cell.update({"text/plain": ""}, raw=True)


def amount(number: float) -> str:
    """A number in at most six characters."""
    if number < 1e4:
        return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"
    size, letter = next(unit for unit in UNITS if number >= unit[0])
    return f"{number / size:#.3g}".rstrip(".") + letter if number < 999 * size else f"999{letter}"


def plural(number: int, what: str) -> str:
    """A number of things, such as "1 run" or "2,000 runs"."""
    return f"{number:,} {what}" + "s" * (number != 1)


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.1f} min" if seconds < 600 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _shown_in_notebook(words: str, done: int = 0, total: int = 0) -> dict[str, str]:
    return {"text/plain": words, "text/html": progress(done, total, words)}


def _terminal() -> Any:
    """A bar and its words in one line, and a line below for the note."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task
    from rich.table import Column
    from rich.text import Text

    class Words(ProgressColumn):
        max_refresh = None

        def render(self, task: Task) -> Text:
            since = "" if task.total is not None else f"{task.elapsed or 0:.0f} s, "
            return Text(since + task.description, overflow="ellipsis", no_wrap=True)

    class Lines(Progress):
        def get_renderables(self) -> Iterator[Any]:
            yield self.make_tasks_table(self.tasks)
            for task in self.tasks:
                if task.fields["note"]:
                    yield Text(task.fields["note"], overflow="ellipsis", no_wrap=True)

    return Lines(
        BarColumn(WIDTH, table_column=Column(min_width=WIDTH, no_wrap=True)),
        Words(Column(no_wrap=True, overflow="ellipsis")),
        console=Console(file=sys.stderr),
        transient=True,
    )


def watching(
    progress: bool | Callable[[Now], None] | None, show: Callable[[Bar, Now], None]
) -> contextlib.AbstractContextManager[Callable[[Now], None] | None]:
    """The function to report progress to: the caller's own, that of a bar for True, or None.

    Without a choice there is a bar where somebody looks, in a terminal or a notebook, and it takes long.
    """
    usable = progress is None or isinstance(progress, bool) or callable(progress)
    require(usable, "must be True, for a bar, or a function of what is done", progress=progress)
    if progress is None and (sys.stderr.isatty() or _in_notebook()):
        return _shown(show, PATIENCE)
    return _shown(show, 0.0) if progress is True else contextlib.nullcontext(progress or None)


@contextlib.contextmanager
def _shown(show: Callable[[Bar, Now], None], wait: float) -> Iterator[Callable[[Now], None] | None]:
    with Bar(wait=wait) as bar:
        yield lambda now: show(bar, now)


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
