"""Figures 3 to 8 of Hu, Guo and Gong: private local SGD on Adult.

R. Hu, Y. Guo, Y. Gong: Concentrated Differentially Private and Utility Preserving Federated
Learning.  2020.  The paper states orderings and prints no numbers.
"""

from __future__ import annotations

from jaxfl.papers.entry import Entry
from jaxfl.papers.hu.setting import COHORT, DEVICES, UNIT, WIDTHS
from jaxfl.papers.hu.studies import Comparison, Convergence, Tradeoff

__all__ = ["ENTRIES"]

PAPER = "R. Hu, Y. Guo, Y. Gong, 2020"
DATA = (
    "iid devices of 3,052 rows; 2,440 of them are for training, 306 for the test, 306 for validation",
    "108 features: numbers standardised over all rows, categories one-hot",
)
NETWORK = f"hidden layers of {WIDTHS[0]} and {WIDTHS[1]}, the usual random start"
BALANCED = (
    "devices are called in random cycles, so that they take part equally often up to one round"
)
BOTH = (
    "The claimed eps counts a sum of ten messages as ten times as private as one; no proof of that is "
    "known for several local steps, so that the proven eps is that of a single message."
)
SECURE = (
    "Secure aggregation encodes x - theta_i where the paper encodes theta_i: the server learns the same "
    "mean. The seeds of the masks come from the key of the run; in a protocol each pair of devices agrees "
    "on them."
)
SQUARE = "The paper shows the norm of the gradient, these records show its square."
BASELINE = (
    "The paper's formula for DP-SGD has n = 16, although the server sees every device's messages."
)


RULE = (
    "An ordering holds if the first and the last differ by more than two standard errors, paired by "
    "seeds, and no step in between goes against it by more."
)
UNSETTLED = (
    "With small noise the network has not converged after 100 rounds: runs with more local steps are then "
    "ahead, and their gradients are smaller, not larger."
)
DROPS = (
    "At the largest noise accuracy drops in the first rounds before it rises, the more the larger tau is; "
    "the paper sees that drop too."
)


def _scale(model: str) -> str:
    return (
        f"clip G = 1 and {UNIT[model]:g} times the published sigma, since the paper prints no G: privacy "
        "depends on sigma/G alone, trajectories do not (gradients shorter than G stay as they are, and the "
        "step size is ours)"
    )


def _whole(rounds: int) -> str:
    least = rounds * COHORT // DEVICES
    return (
        f"gamma = m/tau: a round is one whole pass, as Theorem 1 needs for {least} rounds of a device and "
        f"for {least + 1}"
    )


FIGURE_3 = Convergence("logistic", "loss", (1, 5, 10, 40), 2.0, "loss", 1, -1)
FIGURE_4 = Convergence("network", "grad_norm_sq", (1, 5, 10, 20), 0.5, "test_accuracy", 8, 1)
FIGURE_5 = Comparison("logistic", "loss", 20, 10, 0.5)
FIGURE_6 = Comparison("network", "grad_norm_sq", 50, 5, 0.5)
FIGURE_7 = Tradeoff("logistic", 20, 2, 1.0, (0.01, 0.02, 0.05, 0.1, 0.2))
FIGURE_8 = Tradeoff("network", 50, 5, 0.5, (0.05, 0.1, 0.2, 0.5, 1.0))


def _entry(name: str, what: str, study: Convergence | Comparison | Tradeoff, *more: str) -> Entry:
    network, notes = study.model == "network", [RULE]
    why = (UNSETTLED, DROPS) if isinstance(study, Convergence) and network else ()
    if network and not isinstance(study, Tradeoff):
        notes += [SQUARE]
    if not isinstance(study, Convergence):
        notes += [BOTH, SECURE]
    if isinstance(study, Comparison):
        notes += [BASELINE]
    return Entry(
        f"hu-{name}",
        PAPER,
        what,
        study.measure,
        study.judge,
        study.draw,
        choices=(
            *DATA,
            *((NETWORK,) if network else ()),
            f"step size {study.lr:g}",
            BALANCED,
            *more,
        ),
        privacy=study.privacy,
        notes=tuple(notes),
        why=why,
    )


BATCH = "batches of gamma = 61, the 40th part of a device's rows, which all published tau divide"
CLIP = (
    "clip G = 1; the values of eps, all small: with such large batches a larger eps changes little"
)
ENTRIES = (
    _entry("figure-3", "Figure 3, noise and local steps, logistic regression on Adult", FIGURE_3,
           BATCH, _scale("logistic")),
    _entry("figure-4", "Figure 4, noise and local steps, a network on Adult", FIGURE_4,
           BATCH, _scale("network")),
    _entry("figure-5", "Figure 5, beside DP-SGD, logistic regression on Adult", FIGURE_5,
           _whole(FIGURE_5.rounds), "clip G = 1"),
    _entry("figure-6", "Figure 6, beside DP-SGD, a network on Adult", FIGURE_6,
           _whole(FIGURE_6.rounds), "clip G = 1"),
    _entry("figure-7", "Figure 7, secure aggregation, logistic regression on Adult", FIGURE_7,
           _whole(FIGURE_7.rounds), CLIP),
    _entry("figure-8", "Figure 8, secure aggregation, a network on Adult", FIGURE_8,
           _whole(FIGURE_8.rounds), CLIP),
)  # fmt: skip
