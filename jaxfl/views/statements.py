"""Privacy cards side by side, and the trade-off of a proof, a claim and an audit in one picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxfl.core.checks import instance
from jaxfl.core.display import greek
from jaxfl.privacy.claims import above
from jaxfl.privacy.gaussian import gdp_power
from jaxfl.privacy.statements import Card, power_at
from jaxfl.views import ink
from jaxfl.views.ink import GREY, Line, Panel
from jaxfl.views.tables import Column, Table
from jaxfl.views.words import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["cards", "trade_off"]

CARD = "make one with run.privacy().card()"
MU = "μ bounds nothing below the δ in the column after it."
LOOSELY = (
    "No μ is quoted where its regret, what it loses of an attacker's error rates, is above 0.01."
)
LEAST = 1e-4  # false positive rate that a picture shows


def cards(of: Mapping[str, Card]) -> Table:
    """A row for each card, under its label; notes say what the statements protect and rest on."""
    instance("of", of, dict, f"label them, as in cards({{'mine': card}}): {CARD}")
    for card in of.values():
        instance("card", card, Card, CARD)
    rates = sorted({fpr for card in of.values() for fpr in card.rates}, reverse=True)
    powers = {label: (card.audited or {}).get("power") or {} for label, card in of.items()}
    each = [*of.values()]
    columns = [
        Column("label", "", [*of]),
        Column("proven_eps", "proven ε", [_finite(card.eps) for card in each], bound=True),
        Column("delta", "δ", [card.delta for card in each], bound=True),
        Column("mu", "μ", [_finite(card.quoted) for card in each], bound=True),
        Column("floor", "down to δ", [card.floor for card in each], bound=True),
        Column("regret", "regret", [_finite(card.regret) for card in each], bound=True),
    ]
    for fpr in rates:
        found, head = [card.rates.get(fpr) for card in each], f"TPR at {100 * fpr:g} % FPR"
        columns.append(Column(f"tpr_{fpr:g}", head, found, bound=True))
    for fpr in rates if any(powers.values()) else ():
        reached = [power.get(fpr) for power in powers.values()]
        columns.append(Column(f"reached_{fpr:g}", f"audit, {100 * fpr:g} %", reached))
    notes = [
        f"{label}: protects {card.neighbours}; the adversary sees {card.seen}; rests on "
        f"{'; '.join(card.rests_on) or 'no part of yours'}."
        for label, card in of.items()
        if card.neighbours
    ]
    some = [card for card in of.values() if card.profile and card.regret > 0]
    notes += [MU] * any(card.quoted for card in some)
    notes += [LOOSELY] * any(card.quoted is None for card in some)
    notes += [f"Assumed: {words}." for words in dict.fromkeys(c.assumes for c in each) if words]
    return Table("", tuple(columns), tuple(notes))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def trade_off(card: Card, path: str | Path | None = None, *, title: str = "") -> Figure:
    """The largest true positive rate at each false positive rate: proven, of the Gaussian with mu, and of
    the claimed eps, and what an audit reached.  A mu that a card does not quote is left out.  Where nothing
    is proven the picture says why, and where the runs of an audit bound no rate, a note has its eps.
    ``path`` ends in .png, .pdf or .svg."""
    instance("card", card, Card, f"{CARD}; jaxfl.views.cards has several in one table")
    fpr = np.geomspace(LEAST, 1.0, 300)
    lines = [Line("no attack", fpr, fpr, None, GREY, 2, width=0.8)]
    if card.profile:
        eps, delta = np.array(card.profile).T
        lines.append(Line("proven", fpr, power_at(eps, delta, fpr)))
        if card.quoted is not None:
            down = f" down to δ = {number(above(card.floor))}" * (card.regret > 0)
            label = f"Gaussian, μ = {number(above(card.mu))}{down}"
            lines.append(Line(label, fpr, gdp_power(card.mu, fpr), None, 2, 1))
    else:
        lines.append(Line("nothing is proven", fpr, np.ones_like(fpr)))
    if card.claimed is not None and math.isfinite(card.claimed):
        claimed = power_at(np.array([card.claimed]), np.array([card.delta]), fpr)
        lines.append(Line(f"claimed, ε = {number(card.claimed)}", fpr, claimed, None, 1, 3))
    power = (card.audited or {}).get("power") or {}
    if power:
        at = Line("reached by an audit", [*power], [*power.values()], None, "#000000", "none", "o")
        lines.append(at)
    panel = Panel("", "false positive rate", "true positive rate", lines, True, True)
    proven = f"ε = {number(above(card.eps))} at δ = {number(above(card.delta))} proven."
    notes = [proven if card.profile else f"Nothing is proven: {greek(card.method)}."]
    notes += [f"Protected: {card.neighbours}; seen: {card.seen}."] * bool(card.neighbours)
    if card.audited is not None:
        few = "; it has too few runs for a rate at 1 % or 0.1 % false positives" * (not power)
        notes.append(f"Audited: {greek(card.audit())}{few}.")
    figure = ink.picture(title, [[panel]], notes)
    if path is not None:
        ink.write(figure, Path(path))
    return figure
