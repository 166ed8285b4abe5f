"""Tables 1 and 2 of SoteriaFL for any numbers.  Host side.

Each row is an order that the paper prints, evaluated with constant 1, and the names of the algorithms
here that it speaks of.  The paper's Table 1 leaves G and L out; they come in as in Corollaries 1 to 3,
a factor G sqrt(L) of the utility and sqrt(L)/G of the rounds, where units leave no other choice.
Communication is ``n d T/(1 + omega)``, in coordinates sent by all clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfl.algorithms.soteriafl.theory import Setting, order, sgd_batch, svrg_batch, tau

__all__ = ["Complexity", "Row", "table_1", "table_2", "text"]

CDP, LDP = "(eps, delta)-DP", "(eps, delta)-LDP"
OLD = "the final version of its paper has a better rate"


class Row(NamedTuple):
    """A line of Table 1."""

    algorithm: str
    names: tuple[str, ...]  # of the algorithms that run here
    privacy: str
    utility: float  # of the mean squared gradient norm
    communication: float | None
    remark: str
    note: str = ""


class Complexity(NamedTuple):
    """A line of Table 2."""

    algorithm: str
    names: tuple[str, ...]
    gradients: float  # of one client in all rounds


def table_1(s: Setting, variance: float | None = None) -> tuple[Row, ...]:
    """Utility and communication.

    ``variance`` is sigma~^2, the absolute error that Q-DPSGD-1's quantizer may make; by default
    1 + omega, whose place it takes.
    """
    n, m, d, w, l = s.n, s.m, s.d, 1 + s.omega, np.log(1 / s.delta)
    v = w if variance is None else variance
    size, speed, noise, t = s.G * np.sqrt(s.L), np.sqrt(s.L) / s.G, np.sqrt(d * l), tau(s)
    signal = m * s.eps
    shared = size * noise / (np.sqrt(n) * signal)  # n nodes with local privacy
    rounds = n**1.5 * signal * np.sqrt(d) / np.sqrt(l) * speed  # n d T without compression
    many = n * signal**2 / (w * l)  # of the m^2 rounds of direct compression
    lessened = rounds / w**1.5
    alone, direct, shifted = (
        "single node",
        "n nodes, direct compression",
        "n nodes, shifted compression",
    )
    rows = (
        (
            "RRPSGD", ("rrpsgd",), CDP, size * np.sqrt(d * np.log(m / s.delta) * l) / signal, None, alone,
        ),
        ("DP-GD/SGD", ("dp_gd", "dp_sgd"), CDP, size * noise / signal, None, alone),
        ("DP-SRM", ("dp_srm",), CDP, size * noise / signal, None, alone, OLD),
        (
            "Distributed DP-SRM", ("distributed_dp_srm",), CDP, size * noise / (n * signal),
            n**2 * signal * np.sqrt(d) / np.sqrt(l) * speed, "n nodes, no compression",
            "global privacy: not of one node against the others",
        ),
        (
            "LDP SVRG/SPIDER", ("isrl_svrg", "ldp_spider", "ldp_svrg"), LDP, shared, rounds,
            "n nodes, no compression", OLD,
        ),
        (
            "Q-DPSGD-1", ("q_dpsgd_1",), LDP, ((v / n + 1 / m) / signal) ** (2 / 3) * (d * l) ** (1 / 3),
            (1 + n / (m * v)) * signal**2 / (d * l), direct,
            "as printed: n d T/(1 + omega) with the T of footnote 2 is d times as much; G and L left out",
        ),
        (
            "SDM-DSGD", ("sdm_dsgd",), LDP, shared, n**2 * lessened + many,
            direct, "logarithms left out; asks for 1 + omega << log T and T > n^5",
        ),
        (
            "CDP-SGD", ("cdp_sgd", "cdp_gd"), LDP, np.sqrt(w) * shared, lessened + many, direct,
        ),
        (
            "SoteriaFL-SGD/GD", ("soteriafl_sgd", "soteriafl_gd"), LDP,
            np.sqrt(w) * shared * (1 + np.sqrt(t)), lessened * (1 + np.sqrt(t)), shifted,
        ),
        (
            "SoteriaFL-SVRG/SAGA", ("soteriafl_svrg", "soteriafl_saga"), LDP, np.sqrt(w) * shared,
            lessened * (1 + t), shifted,
        ),
    )  # fmt: skip
    made = []
    for name, names, privacy, utility, communication, remark, *note in rows:
        sent = None if communication is None else float(communication)
        made.append(Row(name, names, privacy, float(utility), sent, remark, *note))
    return tuple(made)


def table_2(s: Setting) -> tuple[Complexity, ...]:
    """Gradient complexity bT, ``K = sqrt(n L) m eps/(G sqrt((1 + omega) d ln(1/delta)))``.

    b of SoteriaFL-SGD is that of Corollary 1.
    """
    t = tau(s)
    K = order(s)
    reduced = ("soteriafl_svrg", "soteriafl_saga")
    return (
        Complexity("SoteriaFL-GD", ("soteriafl_gd",), float(K * (1 + np.sqrt(t)) * s.m)),
        Complexity("SoteriaFL-SGD", ("soteriafl_sgd",), float(K * (1 + np.sqrt(t)) * sgd_batch(s))),
        Complexity("SoteriaFL-SVRG/SAGA", reduced, float(K * (1 + t) * s.m ** (2 / 3))),
    )


def text(s: Setting, variance: float | None = None) -> str:
    """Both tables, with the command that runs each row."""
    first = [("algorithm", "privacy", "utility", "communication", "remark", "jaxfl run")]
    notes: list[str] = []
    for row in table_1(s, variance):
        mark = ""
        if row.note:
            notes.append(f"[{len(notes) + 1}] {row.algorithm}: {row.note}.")
            mark = f" [{len(notes)}]"
        sent = "-" if row.communication is None else f"{row.communication:.4g}"
        names = ", ".join(row.names)
        first.append(
            (row.algorithm + mark, row.privacy, f"{row.utility:.4g}", sent, row.remark, names)
        )
    second = [("algorithm", "gradients per client", "jaxfl run")]
    second += [(c.algorithm, f"{c.gradients:.4g}", ", ".join(c.names)) for c in table_2(s)]
    parts = [
        "Table 1: utility and communication, orders with constant 1",
        *_lined(first),
        *notes,
        "",
    ]
    parts += [
        f"Table 2: gradient complexity (tau = {float(tau(s)):.4g}, b = {float(sgd_batch(s)):g} and "
        f"{float(svrg_batch(s)):g} of SGD and SVRG)",
        *_lined(second),
    ]
    return "\n".join(parts)


def _lined(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(a.ljust(w) for a, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
