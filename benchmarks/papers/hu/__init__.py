"""Figures 3 to 8 of Hu, Guo and Gong: private local SGD on Adult.

R. Hu, Y. Guo, Y. Gong: Concentrated Differentially Private and Utility Preserving Federated
Learning.  2020.  The paper states orderings and prints no numbers.
"""

from __future__ import annotations

from papers.entry import FEW, SEEDS, Entry
from papers.hu.setting import COHORT, DEVICES, UNIT, WIDTHS
from papers.hu.studies import Comparison, Convergence, Tradeoff

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
BASELINE = (
    "The paper's formula for DP-SGD has n = 16, although the server sees every device's messages."
)


RULE = (
    "An ordering holds if the first and the last differ by more than two standard errors, paired by "
    "seeds, and no step in between goes against it by more."
)
PLATEAU = (
    "In the first rounds the network predicts the more frequent class for every row, at an accuracy of "
    "0.76.  Its gradient is short there: the norm dips to about 0.2 where there is one step a round, and "
    "grows again as the network leaves this plateau."
)
WHY = {
    "figure-3": (
        "Where sigma is at least 0.025, the loss after round 1 rises from tau = 10 to tau = 40, and where "
        "it is smaller the loss does not rise: 40 steps then add more noise than they gain.",
    ),
    "figure-4": (
        "At sigma = 0.3 noise hides the first rounds: accuracy stays at the share of the more frequent "
        "class, 0.76, for all tau.",
        "At sigma <= 0.03 norms fall with tau because 100 rounds do not end the descent.  In longer runs "
        "at sigma = 0.003 (two seeds; 4,000 rounds at tau = 1, 1,600 at 5, 800 at 20) the last norms are "
        "0.55, 0.52 and 0.52: minibatches decide the level there, not tau.",
        "At sigma = 0.15 norms rise with tau, from 0.96 to 1.25, but five seeds do not decide it.",
    ),
    "figure-5": (
        "The losses end alike because steps are chosen by accuracy, which prefers larger ones than the "
        "loss does.  With the step of least loss, 2 for both, private local SGD ends at 0.373 and DP-SGD "
        "at 0.381.",
    ),
    "figure-6": (
        "With the noise of the paper's formula 39.8 is proven of private local SGD.  At a proven eps of "
        "10 it has more noise: it is still ahead in the first rounds, and at the end the seeds do not tell "
        "the methods apart.",
    ),
}


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


STEPS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
LARGE, SMALL = STEPS[5:], STEPS[:7]
FIGURE_3 = Convergence("logistic", "loss", (1, 5, 10, 40), LARGE, "loss", 1, -1)
FIGURE_4 = Convergence("network", "grad_norm", (1, 5, 10, 20), STEPS[3:9], "test_accuracy", 8, 1)
FIGURE_5 = Comparison("logistic", "loss", 20, 10, LARGE)
FIGURE_6 = Comparison("network", "grad_norm", 50, 5, LARGE)
FIGURE_7 = Tradeoff("logistic", 20, 2, STEPS, (0.01, 0.02, 0.05, 0.1, 0.2))
FIGURE_8 = Tradeoff("network", 50, 5, SMALL, (0.05, 0.1, 0.2, 0.5, 1.0))


FOR = {
    Convergence: "one for all sigma and tau, which the figure compares",
    Comparison: "for each method",
    Tradeoff: "for each eps, with and without secure aggregation",
}


def _steps(study: Convergence | Comparison | Tradeoff) -> str:
    *others, last = (f"{step:g}" for step in study.steps)
    return (
        f"step size {', '.join(others)} or {last}, by the mean accuracy on the validation data at the "
        f"end, {FOR[type(study)]}"
    )


def _entry(name: str, what: str, study: Convergence | Comparison | Tradeoff, *more: str) -> Entry:
    network, notes = study.model == "network", [RULE]
    if not isinstance(study, Convergence):
        notes += [BOTH, SECURE]
    if isinstance(study, Comparison):
        notes += [BASELINE]
    if network and not isinstance(study, Tradeoff):
        notes += [PLATEAU]
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
            _steps(study),
            BALANCED,
            *more,
        ),
        privacy=study.privacy,
        notes=tuple(notes),
        why=WHY.get(name, ()),
        few=SEEDS if isinstance(study, Comparison) else FEW,  # methods that are close to each other
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
