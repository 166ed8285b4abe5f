"""Defer signals while a few lines run."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

__all__ = ["interrupts_deferred"]


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Ctrl-C and a scheduler's request to end wait until the block has run.

    Python delivers signals to the main thread only, so that other threads need nothing.
    """
    came: list[tuple[int, FrameType | None]] = []
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for one in (signal.SIGINT, signal.SIGTERM):
                if callable(
                    signal.getsignal(one)
                ):  # a signal that Python does not handle ends it at once
                    before[one] = signal.signal(one, lambda *call: came.append(call))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number, frame in came[:1]:
            before[number](number, frame)
