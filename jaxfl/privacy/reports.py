"""Reports: the claimed and the proven eps, delta at the claimed eps, and a red flag."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from jaxfl.privacy import dp_event as exports
from jaxfl.privacy.accountants import delta as delta_of
from jaxfl.privacy.accountants import epsilon
from jaxfl.privacy.claims import Claim, Condition, understates
from jaxfl.privacy.events import AnyEvent, NoClaim, until
from jaxfl.privacy.gaussian import Floats

__all__ = ["Report", "report", "spent"]


class Report(NamedTuple):
    """One line of a result file."""

    claimed: float | None  # the eps of the paper's formula for this noise
    proven: float  # the eps that an accountant proves for the event
    delta: float
    delta_at_claimed: float | None  # proven delta at the claimed eps
    method: str
    status: str  # E, D, N; empty where nothing is proven
    flag: bool  # proven exceeds the claim by more than 1 %, or there is a note
    source: str = ""
    conditions: tuple[Condition, ...] = ()
    note: str = ""  # a statement that does not hold
    event: AnyEvent = NoClaim("not recorded")  # what was accounted for

    def dp_event(self) -> Any:
        """The event as a ``dp_accounting.DpEvent`` [:mod:`jaxfl.privacy.dp_event`]."""
        return exports.dp_event(self.event, self.delta)

    def neighboring_relation(self) -> Any:
        """The ``dp_accounting.NeighboringRelation`` for which :meth:`dp_event` is made."""
        return exports.neighboring_relation(self.event, self.delta)

    def __str__(self) -> str:
        claim = "-" if self.claimed is None else f"{self.claimed:.4g}"
        at = "-" if self.delta_at_claimed is None else f"{self.delta_at_claimed:.3g}"
        proven = "infinity" if math.isinf(self.proven) else f"{self.proven:.4g}"
        status = f" [{self.status}]" if self.status else ""
        text = (
            f"claimed eps {claim} | proven eps {proven} at delta {self.delta:.3g} | "
            f"delta at the claimed eps {at} | {self.method}{status}"
        )
        failed = "; ".join(c.text for c in self.conditions if c.holds is False)
        text += f" | the claim's conditions fail: {failed}" if failed else ""
        text += f" | {self.note}" if self.note else ""
        return f"RED FLAG: {text}" if self.flag else text


def report(
    event: AnyEvent, claimed: Claim | float | None, delta: float, method: str | None = None
) -> Report:
    """``claimed | proven | delta at the claimed eps | status`` of an event."""
    proven = epsilon(event, delta, method)
    claim = claimed.eps if isinstance(claimed, Claim) else claimed
    at = None
    if claim is not None:
        at = 1.0 if math.isinf(proven.eps) else delta_of(event, claim, method).delta
    source, conditions = (
        (claimed.source, claimed.conditions) if isinstance(claimed, Claim) else ("", ())
    )
    return Report(
        claim,
        proven.eps,
        delta,
        at,
        proven.method,
        proven.status,
        claim is not None and bool(understates(claim, proven.eps)),
        source,
        conditions,
        event=event,
    )


def spent(
    event: AnyEvent, rounds: Iterable[int], delta: float, method: str | None = None
) -> Floats:
    """Proven eps after each of these numbers of releases."""
    return np.array([epsilon(until(event, int(t)), delta, method).eps for t in rounds])
