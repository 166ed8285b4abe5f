"""Figures 1 to 8 of SoteriaFL: logistic regression on a9a, a network on MNIST.

Z. Li, H. Zhao, B. Li, Y. Chi: SoteriaFL: A Unified Framework for Private Federated Learning with
Communication Compression.  NeurIPS 2022.  Published values are read off the curves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxfl.papers.entry import FEW, SEEDS, Entry
from jaxfl.papers.soteriafl.setting import a9a, kept, mnist
from jaxfl.papers.soteriafl.studies import BITS, LOSS_BAND, Study

__all__ = ["ENTRIES"]

PAPER = "Z. Li, H. Zhao, B. Li, Y. Chi, NeurIPS 2022"
LOSSES = ((0.61, 0.61), (0.61, 0.61), (0.62, 0.66), (0.61, 0.70), (0.61, 0.69))
NOTES = (
    "As published: each client's minibatch mean is clipped, its rows are drawn with replacement, and the "
    "noise is that of the authors' code.  No record's influence is bounded, so nothing is proven.",
    "Private as stated: every example is clipped, rows are drawn by Poisson sampling, and the noise is the "
    "least that an accountant proves the eps for; step sizes, batches and rounds are the published ones.",
)
MOVING = (
    "The authors' network has 785 more weights, which lead into a constant hidden unit and have no effect. "
    "Without them every weight is still sent once in twenty rounds, with as much noise."
)
ONE_RUN = (
    "The published curves are one run each, and with so much noise on so few coordinates one run differs "
    "from the next: at ε = 1 by a deviation of 1.8 points for CDP-SGD and of 3.4 for SoteriaFL-SVRG.  The "
    "authors' loop with their 51,675 weights, written again in NumPy, ends there at 70.9 (deviation 1.2, 6 "
    "runs) and 49.1 (2.9, 12 runs), where their figure has 68 and 49 and the means here are 72.3 and 45.6."
)
RANGES = (
    "The published curves are one run each.  At ε = 1 one of our runs differs from the next by a deviation "
    "of 0.015 to 0.020 in the utility of the three compressed methods and of 0.022 to 0.045 in their loss, "
    "for which the band is not widened.  SoteriaFL-SVRG's utility lies 0.043 above the published one, 2.9 "
    "such deviations: that is hardly chance, and its reason is not known."
)
ABOVE = (
    "The published curve is one run, and read off to two digits.  SoteriaFL-SVRG's utility lies 0.016 "
    "above it, where one of our runs deviates by 0.007 from the next; the reason is not known."
)
QUICK = 40  # rounds of the network's fast variant
LOGISTIC = (
    (1, 1.0, 25, (1, 1, 0.6, 0.6, 0.6), (0.16, 0.14, 0.25, 0.25, 0.23)),
    (2, 5.0, 100, (1, 1, 0.1, 0.3, 0.3), (0.09, 0.09, 0.23, 0.14, 0.13)),
    (3, 10.0, 150, (1, 1, 0.3, 0.6, 0.6), (0.08, 0.08, 0.14, 0.11, 0.10)),
)
NETWORK = (
    (4, 1.0, 150, (1, 1, 0.3, 0.6, 0.3), (0.88, 0.83, 0.68, 0.74, 0.49)),
    (5, 2.0, 200, (1, 1, 0.3, 0.6, 0.3), (0.90, 0.88, 0.77, 0.83, 0.68)),
    (6, 4.0, 300, (1, 1, 0.6, 1, 0.6), (0.92, 0.91, 0.88, 0.89, 0.78)),
    (7, 8.0, 500, (1, 1, 0.6, 1, 0.6), (0.94, 0.94, 0.91, 0.92, 0.86)),
    (8, 16.0, 1000, (1, 1, 0.6, 1, 0.6), (0.96, 0.96, 0.94, 0.94, 0.90)),
)


def _bits(d: int) -> str:
    """The bits in the picture, and those of the same messages with the positions of their coordinates."""
    place = math.ceil(math.log2(d))
    apart, closer = d / kept(d), 32 * d / ((32 + place) * kept(d))
    return (
        f"Bits are those of all clients, {BITS} for a coordinate that is sent and none for its place, as "
        f"the authors count them: compressed methods send {apart:.2f} times fewer.  jaxfl itself counts 32 "
        f"for a coordinate and {place} for its place, by which they send {closer:.2f} times fewer."
    )


def _entry(figure: int, study: Study, notes: Sequence[str] = (), why: str = "") -> Entry:
    bands = [f"± {study.band:g} for the {study.metric.replace('_', ' ')}"]
    bands += [f"± {LOSS_BAND:g} for the loss"] if study.losses else []
    rule = (
        f"A value agrees if the mean of our seeds lies within {' and '.join(bands)} of the published "
        "one, or of its range; no spread between seeds widens that."
    )
    return Entry(
        f"soteriafl-figure-{figure}",
        PAPER,
        f"Figure {figure}, {study.what}, ε = {study.eps:g}",
        study.measure,
        study.judge,
        study.draw,
        privacy=study.privacy,
        notes=(*NOTES, rule, _bits(study.d), *notes),
        why=(why,) if why else (),
        few=FEW if study.quick else SEEDS,  # where the ends are judged too, by the same seeds
    )


ENTRIES = (
    *(
        _entry(
            figure,
            Study("logistic regression on a9a", a9a, 124, "utility", eps, T, steps, ends,
                  0.015, 0.5, None, LOSSES),
            why={1: RANGES, 3: ABOVE}.get(figure, ""),
        )
        for figure, eps, T, steps, ends in LOGISTIC
    ),
    *(
        _entry(
            figure,
            Study("a network on MNIST", mnist, 50_890, "test_accuracy", eps, T, steps, ends,
                  0.02, 1.0, 128, (), T // 10, QUICK),
            (f"Metrics are evaluated every {T // 10} rounds, a tenth of all.", MOVING),
            ONE_RUN if figure == 4 else "",
        )
        for figure, eps, T, steps, ends in NETWORK
    ),
)  # fmt: skip
