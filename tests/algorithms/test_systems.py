"""The page of systems is that of the code, and nothing that the papers name is missing."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import load
from told import Shell

import jaxfl
from jaxfl.algorithms import gao, hu, reshef, soteriafl
from jaxfl.algorithms.registry import PAPERS
from jaxfl.algorithms.soteriafl.tables import table_1, table_2, text
from jaxfl.algorithms.soteriafl.theory import Setting
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


EVERY = [(s.algorithm, s.options) for s in SYSTEMS]
EVERY += [(name, "") for name in jaxfl.ALGORITHMS if name not in {n for n, _ in EVERY}]
EVERY += [("q_dpsgd_1", "--graph erdos_renyi:0.5,1")]


@pytest.mark.full  # minutes: every system once
@pytest.mark.parametrize(("name", "options"), EVERY, ids=lambda x: x or "-")
def test_every_system_runs_and_sweeps(
    name: str, options: str, tmp_path: Path, shell: Shell
) -> None:
    """A run and a sweep of two numbers, eight rounds each, and the results that they leave."""
    run, sweep = tmp_path / "run", tmp_path / "sweep"
    words = f"{name} {options} --rounds 8 --quiet"
    shell(f"run {words} --no-plot --out {run}")
    assert np.isfinite(jaxfl.load(run / "result.nc")["loss"].values).all()
    if options.startswith("--graph"):
        assert options.split()[1] in (run / "config.json").read_text()
    axis = "lr" if "lr" in jaxfl.algorithm(name).names else "clip"
    shell(f"sweep {words} --{axis} 0.01 0.02 --out {sweep}")
    ds = jaxfl.load(sweep / "result.nc")
    assert ds[axis].values.tolist() == [0.01, 0.02]
    assert np.isfinite(ds["loss"].isel(round=-1)).all()
    assert list(sweep.rglob("*.png"))


# --- Tables 1 and 2 of SoteriaFL -----------------------------------------------------------------

S = Setting(n=16, m=1000, d=50, omega=3.0, L=4.0, G=0.5, eps=2.0, delta=1e-2)
l = np.log(100)


def test_table_1_by_hand() -> None:
    rows = {row.algorithm: row for row in table_1(S)}
    alone = 0.5 * 2 * np.sqrt(50 * l) / 2000  # G sqrt(L) sqrt(d l)/(m eps)
    sent = 16**1.5 * 2000 * np.sqrt(50) / np.sqrt(l) * 4  # n^{3/2} m eps sqrt(d/l) sqrt(L)/G
    tau = 4**1.5 / 4
    expected = {
        "RRPSGD": (alone * np.sqrt(np.log(1e5)), None),
        "DP-GD/SGD": (alone, None),
        "DP-SRM": (alone, None),
        "Distributed DP-SRM": (alone / 16, 4 * sent),
        "LDP SVRG/SPIDER": (alone / 4, sent),
        "Q-DPSGD-1": (
            (4 / 16 + 1e-3) ** (2 / 3) * (50 * l) ** (1 / 3) / 2000 ** (2 / 3),
            (1 + 16 / 4000) * 2000**2 / (50 * l),
        ),
        "SDM-DSGD": (alone / 4, sent / 8 * 16**2 + 16 * 2000**2 / (4 * l)),
        "CDP-SGD": (alone / 2, sent / 8 + 16 * 2000**2 / (4 * l)),
        "SoteriaFL-SGD/GD": (alone / 2 * (1 + tau**0.5), sent / 8 * (1 + tau**0.5)),
        "SoteriaFL-SVRG/SAGA": (alone / 2, sent / 8 * (1 + tau)),
    }
    assert set(rows) == set(expected)
    for name, (utility, communication) in expected.items():
        assert rows[name].utility == pytest.approx(utility), name
        if communication is None:
            assert rows[name].communication is None
        else:
            assert rows[name].communication == pytest.approx(communication), name
    assert "as printed" in rows["Q-DPSGD-1"].note
    assert table_1(S, 2.0)[5].utility == pytest.approx(
        (2 / 16 + 1e-3) ** (2 / 3) * (50 * l) ** (1 / 3) / 2000 ** (2 / 3)
    )


def test_table_2_by_hand() -> None:
    K = np.sqrt(16 * 4) * 2000 / (0.5 * np.sqrt(4 * 50 * l))
    b = 2000 * 0.5 * np.sqrt(2 / 8) / np.sqrt(4 * 4 * 50 * l)
    gd, sgd, svrg = table_2(S)
    assert gd.gradients == pytest.approx(K * (1 + 2**0.5) * 1000)
    assert sgd.gradients == pytest.approx(K * (1 + 2**0.5) * np.floor(b))
    assert svrg.gradients == pytest.approx(K * 3 * 100)
    known, printed = {s.algorithm for s in SYSTEMS} & set(jaxfl.ALGORITHMS), text(S)
    for row in (*table_1(S), *table_2(S)):
        assert row.names
        assert set(row.names) <= known
        assert row.algorithm in printed
