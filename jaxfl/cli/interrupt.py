"""Ctrl-C, and a scheduler's request to end, always arrive."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interrupts", "Terminated"]


class Terminated(KeyboardInterrupt):
    """An interrupt that SIGTERM asked for."""


class Interrupts:
    """Turns SIGINT and SIGTERM into `KeyboardInterrupt`, at once and again in :meth:`check`.

    An exception that is raised while a callback of JAX runs is printed and lost there, so that a
    signal alone may have no effect.
    """

    def __init__(self) -> None:
        self.asked: int | None = None  # the signal
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self.arrive)
        return self

    def arrive(self, number: int, frame: FrameType | None) -> None:
        self.asked = number
        raise KeyboardInterrupt

    def check(self) -> None:
        if self.asked is not None:
            raise KeyboardInterrupt

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        if self.asked == signal.SIGTERM and isinstance(error, KeyboardInterrupt):
            raise Terminated(*error.args) from None
