"""Privacy cards side by side, and the trade-off of a proof, a claim and an audit in one picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
LOOSELY = "Regret is how far μ is off in an attacker's error rates; above 0.01, no μ is quoted."


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


def trade_off(
    card: Card | Mapping[str, Card], path: str | Path | None = None, *, title: str = ""
) -> Figure:
    """The largest true positive rate at each false positive rate: proven, of the Gaussian with mu, and of
    the claimed eps, and what an audit reached.  A mu that a card does not quote is left out.  Where nothing
    is proven the picture says why, and where the runs of an audit bound no rate, a note has its eps.
    Of several cards, each under its label, it has what is proven and what audits reached.  ``path`` ends
    in .png, .pdf or .svg."""
    of: Mapping[str, Card] = card if isinstance(card, Mapping) else {"": card}
    fpr, notes, alone = np.geomspace(1e-4, 1.0, 300), list[str](), len(of) == 1
    lines = [Line("no attack", fpr, fpr, None, GREY, 2, width=0.8)]
    for i, (label, one) in enumerate(of.items()):
        instance("card", one, Card, CARD)
        eps, delta = np.array(one.profile or [(0.0, 1.0)]).T
        name = label or ("proven" if one.profile else "nothing is proven")
        lines.append(Line(name, fpr, power_at(eps, delta, fpr), None, i, i))
        if alone and one.quoted is not None:
            down = f" down to δ = {number(above(one.floor))}" * (one.regret > 0)
            name = f"Gaussian, μ = {number(above(one.mu))}{down}"
            lines.append(Line(name, fpr, gdp_power(one.mu, fpr), None, 2, 1))
        if alone and one.claimed is not None and math.isfinite(one.claimed):
            claimed = power_at(np.array([one.claimed]), np.array([one.delta]), fpr)
            lines.append(Line(f"claimed, ε = {number(one.claimed)}", fpr, claimed, None, 1, 3))
        if power := (one.audited or {}).get("power") or {}:
            at: Any = {"color": "#000000" if alone else i, "style": "none", "marker": "o"}
            lines.append(Line("reached by an audit", [*power], [*power.values()], **at))
        proven = f"ε = {number(above(one.eps))} at δ = {number(above(one.delta))} proven."
        said = [proven if one.profile else f"Nothing is proven: {greek(one.method)}."]
        said += [f"Protected: {one.neighbours}; seen: {one.seen}."] * bool(one.neighbours)
        few = "; it has too few runs for a rate at 1 % or 0.1 % false positives" * (not power)
        said += [f"Audited: {greek(one.audit())}{few}."] if one.audited is not None else []
        notes.append(f"{label}: " * bool(label) + " ".join(said))
    panel = Panel("", "false positive rate", "true positive rate", lines, True, True)
    figure = ink.picture(title, [[panel]], notes)
    if path is not None:
        ink.write(figure, Path(path))
    return figure
