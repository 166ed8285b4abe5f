"""The history of a run, or of all runs of a chunk: metrics and exact totals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxfl.core.hosts import on_host
from jaxfl.core.types import Info

__all__ = ["Counts", "Entry", "Log"]

Counts: TypeAlias = dict[str, Any]  # of one run integers, of a chunk arrays (seeds, cells)
HALVES = np.array([1 << 16, 1])  # weights of the upper and the lower bits of a count
WAITING = 64  # newest calls whose results stay on the device, which then never waits for the host


class Entry(NamedTuple):
    """One evaluation."""

    round: int
    metrics: dict[str, Any]
    counts: Counts  # of all rounds up to it


class Call(NamedTuple):
    """The results of one call: counts, on the device by their halves, and metrics if it evaluated."""

    round: int
    counts: Info | Counts
    metrics: dict[str, Any] | None


class Content(NamedTuple):
    """The content of a log: entries that have been read, and pending calls in order."""

    past: list[Entry]
    total: Counts
    pending: list[Call]


class Log:
    """Metrics and exact totals, copied to the host when they are read or the device is far ahead.

    An interrupt may come between any two lines: each change is one append, or one assignment.
    """

    def __init__(self, past: Sequence[Entry] = (), total: Counts | None = None) -> None:
        if total is None:
            total = past[-1].counts if past else dict.fromkeys(Info._fields, 0)
        self.content = Content([*past], total, [])

    def add(self, t: int, counts: Info, metrics: dict[str, Any] | None = None) -> None:
        """Take the results of a call up to round ``t``."""
        pending = self.content.pending
        pending.append(Call(t, counts, metrics))
        if len(pending) > WAITING:
            pending[-1 - WAITING] = _on_host(pending[-1 - WAITING])

    def read(self, until: float = math.inf) -> list[Entry]:
        """Bring all up to round ``until`` to the host; totals are sums of integers of at least 64 bits.

        Returns the evaluations that are on the host.
        """
        ready = [call for call in self.content.pending if call.round <= until]
        if not ready:
            return self.content.past
        past, total = list(self.content.past), self.content.total
        for t, counts, metrics in map(_on_host, ready):
            assert isinstance(counts, dict)
            total = {name: total[name] + new for name, new in counts.items()}
            if metrics is not None:
                past.append(Entry(t, metrics, total))
        self.content = Content(past, total, self.content.pending[len(ready) :])
        return past

    def forget_last(self) -> None:
        self.read()
        self.content = self.content._replace(past=self.content.past[:-1])

    def first(self) -> Log:
        """The log of the first run of a chunk."""

        def of(counts: Counts) -> Counts:
            return {name: int(a[0, 0]) for name, a in counts.items()}

        def one(entry: Entry) -> Entry:
            metrics = {name: a[0, 0] for name, a in entry.metrics.items()}
            return Entry(entry.round, metrics, of(entry.counts))

        return Log([one(entry) for entry in self.entries], of(self.total))

    @property
    def entries(self) -> list[Entry]:
        return self.read()

    @property
    def rounds(self) -> list[int]:
        return [entry.round for entry in self.entries]

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return [entry.metrics for entry in self.entries]

    @property
    def counts(self) -> list[Counts]:
        return [entry.counts for entry in self.entries]

    @property
    def total(self) -> Counts:
        self.read()
        return self.content.total

    @property
    def last(self) -> Entry:
        return self.entries[-1]

    def series(self) -> dict[str, np.ndarray]:
        """Each metric, with the evaluations as its first axis."""
        every = self.metrics
        return {name: np.stack([m[name] for m in every]) for name in (every[0] if every else ())}


def _on_host(call: Call) -> Call:
    """Whole counts, and copies of metrics: a view would keep a buffer of the device."""
    t, counts, metrics = call
    if isinstance(counts, dict):
        return call
    whole = {n: np.asarray(a, np.int64) @ HALVES for n, a in counts._asdict().items()}
    counts = {name: a if a.ndim else int(a) for name, a in whole.items()}
    if metrics is not None:
        metrics = {name: np.array(on_host(a)) for name, a in metrics.items()}
    return Call(t, counts, metrics)
