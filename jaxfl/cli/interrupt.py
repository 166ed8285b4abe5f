"""Ctrl-C, and a scheduler's request to end, always arrive."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

__all__ = ["Interrupts", "Terminated"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 0.2  # seconds; what stops sooner needs no word, and a signal that is sent twice is one


class Terminated(KeyboardInterrupt):
    """An interrupt that SIGTERM asked for."""


class Interrupts:
    """Turns SIGINT and SIGTERM into `KeyboardInterrupt`, at once and again in :meth:`check`.

    An exception that is raised while a callback runs, of JAX or of Python's own imports, is printed and
    lost there, and a signal alone may have no effect: such an interrupt is not printed, and
    :meth:`check` raises it again.  While compiled code runs, Python raises nothing: a thread prints that
    the signal has arrived, and ends the process at a second one.
    """

    def __init__(self) -> None:
        self.asked: int | None = None  # the signal
        self.before: dict[signal.Signals, Any] = {}
        self.ended = threading.Event()

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            read, self.write = os.pipe()
            os.set_blocking(self.write, False)
            self.wakeup = signal.set_wakeup_fd(self.write, warn_on_full_buffer=False)
            self.thread = threading.Thread(target=self.listen, args=(read,), daemon=True)
            self.thread.start()
            self.usual, sys.unraisablehook = sys.unraisablehook, self.lost
            for number in SIGNALS:
                self.before[number] = signal.signal(number, self.arrive)
        return self

    def lost(self, what: Any) -> None:
        """Say nothing of an interrupt that a callback has lost."""
        if not isinstance(what.exc_value, KeyboardInterrupt):
            self.usual(what)

    def arrive(self, number: int, frame: FrameType | None) -> None:
        self.asked = number
        raise KeyboardInterrupt

    def check(self) -> None:
        if self.asked is not None:
            raise KeyboardInterrupt

    def listen(self, pipe: int) -> None:
        """Read the numbers of signals, which arrive here even while the main thread is busy."""
        first = 0.0
        while number := os.read(pipe, 1):
            if number[0] not in SIGNALS:
                continue
            if not first:
                first = time.monotonic()
                stopped = self.ended.wait(PATIENCE)
                if select.select([pipe], [], [], 0)[0]:
                    os.read(pipe, 64)  # before the words: what follows them is a second signal
                if not stopped:
                    how = "stopping after the computation in progress (again: at once)"
                    print(f"interrupted: {how}", file=sys.stderr, flush=True)
            elif time.monotonic() - first > PATIENCE and not self.ended.is_set():
                if sys.stderr.isatty():
                    os.write(2, b"\x1b[?25h\n")  # the cursor, which a bar hides
                os._exit(128 + number[0])
        os.close(pipe)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.ended.set()
        for number, handler in self.before.items():
            signal.signal(number, handler)
        if self.before:
            sys.unraisablehook = self.usual
            signal.set_wakeup_fd(self.wakeup)
            os.close(self.write)
            self.thread.join()
        if self.asked == signal.SIGTERM and isinstance(error, KeyboardInterrupt):
            raise Terminated(*error.args) from None
