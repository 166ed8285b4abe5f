"""The page of systems is that of the code, and nothing that the papers name is missing."""

import re
from typing import Any

import pytest
from scripts import load

import jaxfl
from jaxfl.algorithms import gao, hu, reshef, soteriafl
from jaxfl.algorithms.registry import PAPERS
from jaxfl.cli.build import choose_algorithm
from jaxfl.cli.parser import parse

pytestmark = pytest.mark.once

SYSTEMS = [system for paper in PAPERS for system in paper.systems]
# What the papers call them, gone through by hand, apart from the table of the page.
NAMED = {
    soteriafl: """RRPSGD, DP-GD, DP-SGD, DP-SRM, Distributed DP-SRM, LDP SVRG, LDP SPIDER, Q-DPSGD-1,
        SDM-DSGD, CDP-SGD, CDP-GD, LDP-SGD, LDP-SVRG, SoteriaFL-GD, SoteriaFL-SGD, SoteriaFL-SVRG,
        SoteriaFL-SAGA""",
    hu: "with secure aggregation, without secure aggregation, DP-SGD, FedAvg",
    gao: """Localized ISRL-DP accelerated MB-SGD, Accelerated ISRL-DP MB-SGD, MB-Subgradient,
        Localized ISRL-DP MB-Subgradient, Multi-stage, convolutional smoothing, Nesterov smoothing,
        Localized ISRL-DP MB-SGD, One-pass ISRL-DP MB-SGD, Multi-pass ISRL-DP MB-SGD""",
    reshef: "untrusted server, trusted server, Noisy mu^2-SGD, mu^2-SGD, Noisy minibatch SGD",
}  # fmt: skip


@pytest.mark.parametrize("folder", NAMED)
def test_no_system_is_missing(folder: Any) -> None:
    mine = folder.PAPER.systems
    for name in re.split(r",\s+", NAMED[folder]):
        assert any(name in s.name for s in mine), f"the page has no {name}"
    for s in mine:
        assert s.algorithm in jaxfl.ALGORITHMS, f"{s.name} needs an algorithm {s.algorithm}"
    assert len({s.name for s in mine}) == len(mine)


def test_the_page_is_generated() -> None:
    systems = load("docs/systems")
    written = systems.PAGE.read_text(encoding="utf-8")
    assert written == systems.page(), "write it again with python docs/systems.py"
    for s in SYSTEMS:
        assert f"| {s.name} | {s.where} | `jaxfl run {s.algorithm}" in written
    for name in jaxfl.ALGORITHMS:
        assert f"`jaxfl run {name}" in written, f"{name} is not on the page"


def test_every_command_can_be_read() -> None:
    for s in SYSTEMS:
        study, _ = parse("run", s.command.split()[2:])
        assert choose_algorithm(study.setup).name == s.algorithm
