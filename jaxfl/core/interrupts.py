"""A context manager that delays signals."""

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
    """Delay SIGINT and SIGTERM until the end of the block.

    Python delivers signals to the main thread alone; in other threads nothing is delayed.
    """
    received: list[tuple[int, FrameType | None]] = []
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (int(signal.SIGINT), int(signal.SIGTERM)):
                if callable(signal.getsignal(number)):  # others end Python at once
                    before[number] = signal.signal(number, lambda *call: received.append(call))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number, frame in received[:1]:
            before[number](number, frame)
