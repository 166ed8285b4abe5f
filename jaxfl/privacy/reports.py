"""Reports: the claimed and the proven eps, delta at the claimed eps, and a red flag."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from jaxfl.core import display
from jaxfl.privacy import dp_event as exports
from jaxfl.privacy.accountants import STATUS, Guarantee, epsilon, of_client
from jaxfl.privacy.accountants import delta as delta_of
from jaxfl.privacy.claims import Claim, Condition, above, understates
from jaxfl.privacy.events import AnyEvent, Mean, NoClaim, Status, plain_events, protects, until
from jaxfl.privacy.gaussian import Floats
from jaxfl.privacy.groups import of_group
from jaxfl.privacy.statements import Card, basis, card

__all__ = ["PUBLIC", "Report", "report", "spent"]

# what every statement takes for granted
PUBLIC = (
    "that losses, regularizers, initial points, schedules, arrays in the user's parts and statistics of "
    "the data, such as those of standardise, are public, that the noise's key or seed is secret, and that "
    "no other run uses that key"
)


class Report(NamedTuple):
    """The claimed and the proven eps of an event, with the proof; a result holds those of each run."""

    claimed: float | None  # the eps of the paper's formula for this noise
    proven: float  # the eps that an accountant proves for the event
    delta: float
    delta_at_claimed: float | None  # proven delta at the claimed eps
    method: str
    status: Status  # E, D, N, U, P; empty where nothing is proven
    flag: bool  # proven exceeds the claim by more than 1 %, or there is a note
    source: str = ""
    conditions: tuple[Condition, ...] = ()
    note: str = ""  # a statement that does not hold
    event: AnyEvent = NoClaim("not recorded")  # what was accounted for
    asked: str | None = None  # the method by which, where one was named
    assumes: str = PUBLIC

    def dp_event(self) -> exports.Export:
        """The event as a ``dp_accounting.DpEvent``, with its relation and its accountant."""
        return exports.export(self.event, self.delta)

    @property
    def multiplier(self) -> float | None:
        """The noise multiplier of DP-SGD: sigma over the norm of a drawn record's share.

        That is G/b for the mean of a batch, and C for a client's update that is clipped to C.  None where
        releases have several, where shares are bounded otherwise, and where nothing is proven.
        """
        every = [] if math.isinf(self.proven) else list(plain_events(self.event))
        shares = [
            min(e.sensitivity.X(e.sampling), e.sensitivity.whole)
            if isinstance(e.sensitivity, Mean)
            else 0
            for e in every
        ]
        each = {e.sigma / share if share else None for e, share in zip(every, shares, strict=True)}
        plain = len(each) == 1 and not any(e.correlation for e in every)
        return each.pop() if plain else None

    def of_group(self, size: int) -> Guarantee:
        """The eps of ``size`` records together, of one client or of several  [:func:`.of_group`].

        It is that of this delta alone; :meth:`card` is about one record.
        """
        return of_group(self.event, size, self.delta)

    def card(self, floor: float | None = None, audited: Any = None) -> Card:
        """mu down to a ``floor`` of delta, rates of attacks, and the profile  [:mod:`.statements`]."""
        return card(
            self.event,
            self.delta,
            floor=floor,
            method=self.asked,
            claimed=self.claimed,
            assumes=self.assumes,
            audited=audited,
        )

    def __str__(self) -> str:
        lines = [f"{name:<9}{words}" for name, words in self._rows()]
        if self.flag:
            lines.insert(0, f"RED FLAG: {self._alarm()}")
        elif self.note:
            lines.append(self.note)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        title = f"RED FLAG: {self._alarm()}" if self.flag else "Privacy"
        rows = [(name, display.greek(words)) for name, words in self._rows()]
        return display.table(title, rows, notes=[self.note] * bool(self.note and not self.flag))

    def _rows(self) -> list[tuple[str, str]]:
        """Rows (name, text): the proven eps, whom it protects, and the claimed eps."""
        status = f" ({STATUS[self.status]})" if self.status else ""
        nothing = math.isinf(self.proven)
        proven = "none" if nothing else f"eps {above(self.proven):.4g}"
        why = f"{self.method}{status}{of_client(self.event, self.delta) if nothing else ''}"
        rows = [(basis(self.status), f"{proven} at delta {above(self.delta):.4g}: {why}")]
        if self.multiplier is not None:
            unit = next(plain_events(self.event)).unit
            share = f"the largest contribution of one {unit}"
            rows.append(("noise", f"multiplier {self.multiplier:.4g}: sigma divided by {share}"))
        if words := "" if nothing else protects(self.event):
            one = {event.unit for event in plain_events(self.event)} == {"record"}
            words += "; .of_group(k) has the eps of k records" * one
            rows += [("protects", words), ("assumes", self.assumes)]
        if self.claimed is not None:
            claim = f"eps {self.claimed:.4g}" + f" [{self.source}]" * bool(self.source)
            at = f". The accountant proves this eps at delta {above(self.delta_at_claimed or 0):.4g}."
            rows.append(("claimed", claim + at * (not nothing)))
        failed = [condition for condition in self.conditions if condition.holds is False]
        return rows + [("", f"a condition of the claim {condition}") for condition in failed]

    def _alarm(self) -> str:
        usual = (
            "nothing proves the claim"
            if math.isinf(self.proven)
            else "the paper's formula states less eps than is proven for this noise; the proven eps holds"
        )
        return self.note or usual


def report(
    event: AnyEvent, claimed: Claim | float | None, delta: float, method: str | None = None
) -> Report:
    """Report the claimed and the proven eps of an event at this delta.

    ``claimed`` is a claim, an eps, or None; ``method`` is that of :func:`jaxfl.privacy.epsilon`.
    """
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
        asked=method,
    )


def spent(
    event: AnyEvent, rounds: Iterable[int], delta: float, method: str | None = None
) -> Floats:
    """Proven eps after each of these numbers of releases."""
    return np.array([epsilon(until(event, int(t)), delta, method).eps for t in rounds])
