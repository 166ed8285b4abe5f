"""The history of a run: metrics and exact totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxfl.core.types import Info

__all__ = ["Entry", "Log"]


Item: TypeAlias = Info | tuple[int, dict[str, Any]]  # counts, or a round and its metrics


class Entry(NamedTuple):
    """One evaluation."""

    round: int
    metrics: dict[str, Any]
    counts: dict[str, int]  # of all rounds up to it


WAITING = 64  # newest items that stay on the device, so that it does not wait for the host


class Content(NamedTuple):
    """The content of a log: entries that have been read, and pending items in order."""

    past: list[Entry]
    total: dict[str, int]
    pending: list[Item]


class Log:
    """Metrics and exact totals, copied to the host when they are read or the device is far ahead.

    An interrupt may come between any two lines: each change is one append, or one assignment.
    """

    def __init__(
        self,
        rounds: Sequence[int] = (),
        metrics: Sequence[dict[str, Any]] = (),
        counts: Sequence[dict[str, int]] = (),
        total: Mapping[str, int] | None = None,
    ) -> None:
        past = [Entry(*one) for one in zip(rounds, metrics, counts, strict=True)]
        if total is None:
            total = past[-1].counts if past else dict.fromkeys(Info._fields, 0)
        self.content = Content(past, dict(total), [])

    def count(self, info: Info) -> None:
        self._add(info)

    def record(self, t: int, metrics: dict[str, Any]) -> None:
        self._add((t, metrics))

    def _add(self, item: Item) -> None:
        pending = self.content.pending
        pending.append(item)
        if len(pending) > WAITING:
            pending[-1 - WAITING] = _on_host(pending[-1 - WAITING])

    def read(self) -> None:
        """Bring everything to the host; totals are sums of Python integers."""
        if not self.content.pending:
            return
        past, total = list(self.content.past), self.content.total
        for item in map(_on_host, self.content.pending):
            if isinstance(item, Info):
                total = {n: total[n] + int(s) for n, s in zip(Info._fields, item, strict=True)}
            else:
                past.append(Entry(item[0], item[1], total))
        self.content = Content(past, total, [])

    def forget_last(self) -> None:
        self.read()
        self.content = self.content._replace(past=self.content.past[:-1])

    @property
    def rounds(self) -> list[int]:
        self.read()
        return [entry.round for entry in self.content.past]

    @property
    def metrics(self) -> list[dict[str, Any]]:
        self.read()
        return [entry.metrics for entry in self.content.past]

    @property
    def counts(self) -> list[dict[str, int]]:
        self.read()
        return [entry.counts for entry in self.content.past]

    @property
    def total(self) -> dict[str, int]:
        self.read()
        return self.content.total

    @property
    def last(self) -> Entry:
        self.read()
        return self.content.past[-1]

    def series(self) -> dict[str, np.ndarray]:
        every = self.metrics
        return {name: np.stack([m[name] for m in every]) for name in (every[0] if every else ())}


def _on_host(item: Any) -> Any:
    """Sums of counts, or copies of metrics: a view would keep a buffer of the device."""
    if isinstance(item, Info):
        return jax.tree.map(lambda a: int(np.sum(np.asarray(a), dtype=np.int64)), item)
    t, metrics = item
    return t, {n: a if isinstance(a, np.ndarray) else np.array(a) for n, a in metrics.items()}
