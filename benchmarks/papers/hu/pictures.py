"""The pictures, in the paper's layout as far as its captions tell it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxfl.views.ink import Line, Panel, picture
from papers.courses import epsilons, find, name_of
from papers.entry import Numbers, estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["comparison", "convergence", "tradeoff"]

ROUND = "communication round"
STYLES = {"paper": "claimed", "calibrated": "proven"}  # solid and dashed
METHODS = {"private_local_sgd": "private local SGD", "local_dp_sgd": "DP-SGD"}
SUMS = {"secure_sum": ("secure aggregation", "o"), "plain_sum": ("no secure aggregation", "s")}


def convergence(cells: Sequence[Numbers], metric: str, unit: float) -> dict[str, Figure]:
    """One column per noise: test accuracy above, loss or gradient norm below; a line per tau."""
    taus, sigmas = (sorted({c[name] for c in cells}) for name in ("local_steps", "sigma"))
    rows = []
    for shown in ("test_accuracy", metric):
        row = []
        for sigma in sigmas:
            lines = [
                _line(find(cells, sigma=sigma, local_steps=tau), shown, f"τ = {tau:g}", i)
                for i, tau in enumerate(taus)
            ]
            title = f"σ = {sigma:g} ({sigma / unit:g} published)"
            row.append(Panel(title, ROUND, name_of(shown), lines))
        rows.append(row)
    return {"": picture("Adult: noise and local steps of private local SGD", rows)}


def comparison(cells: Sequence[Numbers], metric: str) -> dict[str, Figure]:
    """Test accuracy on the left, loss or gradient norm on the right."""
    panels, flagged = [], []
    for shown in ("test_accuracy", metric):
        lines = []
        for color, (name, words) in enumerate(METHODS.items()):
            for style, (noise, stated) in enumerate(STYLES.items()):
                cell = find(cells, algorithm=name, noise=noise)
                look = {"style": style, "kind": f"{stated} ε = 10"}
                lines.append(_line(cell, shown, words, color, **look))
        panels.append(Panel("", ROUND, name_of(shown), lines))
    for name, words in METHODS.items():
        cell = find(cells, algorithm=name, noise="paper")
        if epsilons(cell, words).flagged:
            flagged.append(f"{cell['proven_eps']:.3g} for {words}")
    note = f"Where ε = 10 is claimed, what is proven is {' and '.join(flagged)}."
    return {"": picture("Adult: private local SGD beside DP-SGD", [panels], [note] * bool(flagged))}


def tradeoff(cells: Sequence[Numbers]) -> dict[str, Figure]:
    """Accuracy at the end against eps."""
    eps, lines = sorted({c["eps"] for c in cells}), []
    for color, (name, (words, marker)) in enumerate(SUMS.items()):
        for style, noise in enumerate(STYLES):
            found = [find(cells, aggregation=name, noise=noise, eps=e) for e in eps]
            ends = [estimate(cell["test_accuracy@end"]) for cell in found]
            means, errors = [end.mean for end in ends], [end.error for end in ends]
            look: dict[str, Any] = {"marker": marker, "kind": f"{STYLES[noise]} ε"}
            lines.append(Line(words, eps, means, errors, color, style, **look))
    panel = Panel("", "ε", name_of("test_accuracy"), lines, logarithmic=True)
    title = "Adult: privacy and accuracy"
    ratios = [
        cell["proven_eps"] / cell["claimed_eps"]
        for cell in cells
        if cell["noise"] == "paper" and cell["aggregation"] == "secure_sum"
    ]
    notes = []
    if min(ratios) > 1:
        times = f"{min(ratios):.2g} to {max(ratios):.2g} times"
        notes.append(f"With secure aggregation what is proven is {times} the claimed ε.")
    if len({tuple(line.y) for line in lines if line.style == 1}) == 1:
        words = "Both dashed lines are one: the proof makes no use of the sum, nor does the noise."
        notes.append(words)
    return {"": picture(title, [[panel]], notes)}


def _line(cell: Numbers, metric: str, label: str, color: int, **look: Any) -> Line:
    return Line(label, cell["round"], cell[metric], cell[f"{metric}_error"], color, **look)
