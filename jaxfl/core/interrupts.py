"""Lines that no signal interrupts."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

__all__ = ["held_back"]


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C, and a scheduler's request to end, wait until these lines are done.

    Python gives signals to the main thread alone, so that in others there is nothing to hold back.
    """
    came: list[tuple[int, FrameType | None]] = []
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for one in (signal.SIGINT, signal.SIGTERM):
                if callable(signal.getsignal(one)):  # what Python does not handle ends it at once
                    before[one] = signal.signal(one, lambda *call: came.append(call))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number, frame in came[:1]:
            before[number](number, frame)
