"""The pictures, in the paper's layout as far as its captions tell it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxfl.papers.courses import find
from jaxfl.papers.entry import Numbers, estimate
from jaxfl.papers.hu.words import NAMES, WORDS
from jaxfl.papers.panels import Line, Panel, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["comparison", "convergence", "tradeoff"]

ROUND = "communication round"


def convergence(cells: Sequence[Numbers], metric: str, unit: float) -> dict[str, Figure]:
    """One column per noise: test accuracy above, loss or gradient norm below; a line per tau."""
    taus, sigmas = (sorted({c[name] for c in cells}) for name in ("local_steps", "sigma"))
    rows = [
        [
            Panel(
                f"σ = {sigma:g} ({sigma / unit:g} published)",
                ROUND,
                WORDS[shown],
                [
                    _line(find(cells, sigma=sigma, local_steps=tau), shown, f"τ = {tau:g}", i)
                    for i, tau in enumerate(taus)
                ],
            )
            for sigma in sigmas
        ]
        for shown in ("test_accuracy", metric)
    ]
    return {"": picture("Adult: noise and local steps of private local SGD", rows)}


def comparison(cells: Sequence[Numbers], metric: str) -> dict[str, Figure]:
    """Test accuracy on the left, loss or gradient norm on the right; rigorous noise is dashed."""
    panels = [
        Panel(
            "",
            ROUND,
            WORDS[shown],
            [
                _line(
                    find(cells, algorithm=name, noise=noise),
                    shown,
                    f"{NAMES[name].split(',')[0]}, {'claimed' if noise == 'paper' else 'proven'} ε = 10",
                    color,
                    style,
                )
                for color, name in enumerate(("private_local_sgd", "local_dp_sgd"))
                for style, noise in enumerate(("paper", "calibrated"))
            ],
        )
        for shown in ("test_accuracy", metric)
    ]
    return {"": picture("Adult: private local SGD beside DP-SGD", [panels])}


def tradeoff(cells: Sequence[Numbers]) -> dict[str, Figure]:
    """Accuracy at the end against eps: claimed by the paper's formula, or (dashed) proven."""
    eps = sorted({c["eps"] for c in cells})
    lines = []
    for color, name in enumerate(("secure_sum", "plain_sum")):
        for style, (noise, words) in enumerate(
            (("paper", "claimed ε"), ("calibrated", "proven ε"))
        ):
            found = [find(cells, aggregation=name, noise=noise, eps=e) for e in eps]
            ends = [estimate(cell["test_accuracy@end"]) for cell in found]
            lines.append(
                Line(
                    f"{'secure aggregation' if name == 'secure_sum' else 'none'}, {words}",
                    eps,
                    [end.mean for end in ends],
                    [end.error for end in ends],
                    color,
                    style,
                    "s" if name == "plain_sum" else "o",
                )
            )
    panel = Panel("", "ε", WORDS["test_accuracy"], lines, logarithmic=True)
    return {
        "": picture("Adult: privacy and accuracy, with and without secure aggregation", [[panel]])
    }


def _line(cell: Numbers, metric: str, label: str, color: int, style: int = 0) -> Line:
    return Line(label, cell["round"], cell[metric], cell[f"{metric}_error"], color, style)
