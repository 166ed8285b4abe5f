"""Every system of the four papers, and the command that runs it: the page ``systems.md``.

``python -m jaxfl.papers.systems > jaxfl/papers/systems.md`` writes the page anew.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import NamedTuple

from jaxfl.algorithms.registry import ALGORITHMS

__all__ = ["PAGE", "SYSTEMS", "System", "page"]

PAGE = Path(__file__).with_name("systems.md")
SOTERIA, HU, GAO, RESHEF = (
    "Li, Zhao, Li, Chi: SoteriaFL (NeurIPS 2022)",
    "Hu, Guo, Gong: private local SGD (2020)",
    "Gao, Lowy, Zhou, Wright: ISRL-DP (ICML 2024)",
    "Reshef, Levy: DP-mu^2-FL (2024)",
)


class System(NamedTuple):
    """A system as its paper names it."""

    paper: str
    name: str
    where: str
    algorithm: str  # that runs here
    options: str = ""

    @property
    def command(self) -> str:
        return f"jaxfl run {self.algorithm} {self.options}".rstrip()


ONE = "--clients 1"
BALL = "--constraint ball:5"
SYSTEMS: tuple[System, ...] = (
    System(SOTERIA, "SoteriaFL-GD", "Algorithm 3, Table 1", "soteriafl_gd"),
    System(SOTERIA, "SoteriaFL-SGD", "Algorithm 3, Table 1", "soteriafl_sgd"),
    System(SOTERIA, "SoteriaFL-SVRG", "Algorithm 3, Table 1", "soteriafl_svrg"),
    System(SOTERIA, "SoteriaFL-SAGA", "Algorithm 3, Table 1", "soteriafl_saga"),
    System(SOTERIA, "CDP-SGD", "Algorithm 1, Table 1", "cdp_sgd"),
    System(SOTERIA, "CDP-GD", "Algorithm 1", "cdp_gd"),
    System(SOTERIA, "LDP-SGD", "Figures 1-8", "ldp_sgd"),
    System(SOTERIA, "LDP-GD", "Algorithm 1, uncompressed", "ldp_gd"),
    System(SOTERIA, "LDP-SVRG, loopless", "Figures 1-8", "ldp_svrg"),
    System(SOTERIA, "LDP SVRG", "Table 1", "isrl_svrg"),
    System(SOTERIA, "LDP SPIDER", "Table 1", "ldp_spider"),
    System(SOTERIA, "RRPSGD", "Table 1", "rrpsgd", ONE),
    System(SOTERIA, "DP-GD", "Table 1", "dp_gd", ONE),
    System(SOTERIA, "DP-SGD", "Table 1", "dp_sgd", ONE),
    System(SOTERIA, "DP-SRM", "Table 1", "dp_srm", ONE),
    System(SOTERIA, "Distributed DP-SRM", "Table 1", "distributed_dp_srm"),
    System(SOTERIA, "Q-DPSGD-1", "Table 1", "q_dpsgd_1"),
    System(SOTERIA, "SDM-DSGD", "Table 1", "sdm_dsgd"),
    System(HU, "Private local SGD with secure aggregation", "Algorithm 1", "private_local_sgd"),
    System(
        HU,
        "Private local SGD without secure aggregation",
        "Figures 7, 8",
        "private_local_sgd",
        "--aggregation plain_sum",
    ),
    System(HU, "DP-SGD", "Figures 5, 6", "local_dp_sgd"),
    System(HU, "FedAvg", "sigma = 0", "fedavg"),
    System(
        GAO,
        "Localized ISRL-DP accelerated MB-SGD",
        "Algorithm 1",
        "localized_accelerated_mbsgd",
        BALL,
    ),
    System(GAO, "Accelerated ISRL-DP MB-SGD", "Algorithm 2", "accelerated_mbsgd", BALL),
    System(GAO, "ISRL-DP MB-Subgradient", "Algorithm 3", "mb_subgradient", BALL),
    System(GAO, "Localized ISRL-DP MB-Subgradient", "Algorithm 4", "localized_subgradient", BALL),
    System(GAO, "Multi-stage accelerated MB-SGD", "Algorithm 5", "multistage_accelerated", BALL),
    System(
        GAO, "Localized, convolutional smoothing", "Algorithms 6, 7", "localized_convolution", BALL
    ),
    System(GAO, "Localized, Nesterov smoothing", "Theorem 3.1", "localized_nesterov", BALL),
    System(GAO, "Localized ISRL-DP MB-SGD", "Figures 2, 3", "localized_mbsgd", BALL),
    System(GAO, "One-pass ISRL-DP MB-SGD", "Figures 2, 3", "one_pass_mbsgd", BALL),
    System(GAO, "Multi-pass ISRL-DP MB-SGD", "Tables 1, 2", "multi_pass_mbsgd", BALL),
    System(GAO, "One-pass accelerated ISRL-DP MB-SGD", "Tables 1, 2", "one_pass_accelerated", BALL),
    System(RESHEF, "DP-mu^2-FL, untrusted server", "Algorithm 1, Table 1", "mu2_untrusted"),
    System(RESHEF, "DP-mu^2-FL, trusted server", "Algorithm 2, Table 2", "mu2_trusted"),
    System(RESHEF, "Noisy mu^2-SGD, one machine", "M = 1", "noisy_mu2", ONE),
    System(RESHEF, "mu^2-SGD", "section 4", "mu2"),
    System(RESHEF, "Noisy minibatch SGD", "baseline, not in the paper", "noisy_sgd"),
)


def page() -> str:
    """The page, from :data:`SYSTEMS` and the algorithms' own docstrings."""

    lines = [
        "<!-- Written by `python -m jaxfl.papers.systems`; do not edit by hand. -->",
        "",
        "# Every system of the four papers, and the command that runs it",
        "",
        "All of them run on the same work: the same data, model, clients, evaluation and accounting.",
        "`jaxfl run NAME --help` lists the numbers of each, and `jaxfl sweep NAME` takes any of them.",
    ]
    for paper in (SOTERIA, HU, GAO, RESHEF):
        lines += ["", f"## {paper}", "", "| system | where | command |", "|---|---|---|"]
        lines += [f"| {s.name} | {s.where} | `{s.command}` |" for s in SYSTEMS if s.paper == paper]
    named = {s.algorithm for s in SYSTEMS}
    lines += ["", "## Beside them", "", "| algorithm | what it is |", "|---|---|"]
    for name, make in ALGORITHMS.items():
        if name not in named:
            about = " ".join((inspect.getdoc(make) or "").split("\n\n")[0].split())
            lines.append(
                f"| `jaxfl run {name}` | {about.rstrip(':').replace('|', chr(92) + '|')} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
