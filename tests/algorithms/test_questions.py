"""`jaxfl account` and `jaxfl calibrate`, with no data at all."""

import json
import re

import pytest
from told import Shell

from jaxfl.audit.calculators import CALCULATORS
from jaxfl.cli import main
from jaxfl.cli.questions import FORMULAS

pytestmark = pytest.mark.once

SOTERIA = (
    "soteriafl_sgd --samples 3256 --batch 51 --rounds 100 --clip 0.5 --sigma 0.01 --delta 1e-3"
)
SGD = "dp_sgd --samples 100 --batch 10 --clip 1 --sigma 1"
UNCLIPPED = "dp_srm --samples 100 --batch 10 --sigma 1 --delta 1e-5 --rounds 5"
SRM = f"{UNCLIPPED} --clip 1"
CANARY = "audit_canary --samples 100 --rounds 5 --clip 1 --delta 1e-5"
EVENT = "event --samples 100 --batch 10 --clip 1 --sigma 1 --rounds 5 --delta 1e-5"
MU2 = "mu2_untrusted --rounds 5 --clip 1 --smoothness 1 --sigma 1 --delta .1"


def ask(capsys: pytest.CaptureFixture[str], line: str) -> dict:
    assert main([*line.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_calibrate(capsys: pytest.CaptureFixture[str]) -> None:
    line = "calibrate soteriafl_gd --samples 3256 --rounds 100 --clip 0.5 --eps 5 --delta 1e-3"
    found = ask(capsys, line)
    # GDP: mu solves delta(5; mu) = 1e-3; sigma = 2 G sqrt(T) / (m mu)
    assert found["sigma"] == pytest.approx(0.00211868, rel=1e-5)
    assert found["paper_sigma"] == pytest.approx(0.00279624, rel=1e-5)
    assert found["status"] == "E"
    assert found["eps"] == pytest.approx(5, rel=1e-3)


def test_account_flags_a_claim_that_does_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """The published a9a run at eps 1: b = 10, T = 25, drawn with replacement; constant 8."""
    line = (
        "account cdp_sgd --samples 3256 --batch 10 --rounds 25 --clip 0.5 --delta 1e-3 "
        "--sampler poisson --sigma "
    )
    sigma = (8 * 0.25 * 25 * 6.907755) ** 0.5 / 3256
    found = ask(capsys, line + str(sigma))
    assert found["claimed_eps"] == pytest.approx(1, rel=1e-5)
    assert found["eps"] == pytest.approx(68.8, abs=0.2)
    assert found["flag"] is True
    assert main([*line.split(), str(sigma)]) == 0
    text = capsys.readouterr().out
    assert "claimed_eps" in text
    assert "status                established: by published accountants\n" in text
    assert "flag                  the proven eps is above the paper's by more than 1 %" in text
    assert text.count("\npaper_condition  ") == len(found["paper_conditions"]) == 3
    assert re.search(
        r"paper_condition +fails: the theorem needs eps <= [.\d]+, and here eps = 1 = ", text
    )
    for programming in ("{", "[", "True", "None", "paper_note"):
        assert programming not in text


def test_what_was_assumed_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """In words too, and a noise for every phase."""
    line = "account private_local_sgd --samples 100 --batch 10 --rounds 5 --clip 1 --sigma 1 --delta 1e-5"
    assert ask(capsys, line)["assumed"] == {"local_steps": 5, "clients": 1}
    assert main(line.split()) == 0
    assert "\nassumed               local_steps = 5, clients = 1\n" in capsys.readouterr().out
    line = "calibrate localized_mbsgd --samples 64 --batch 8 --rounds 9 --phases 2 --clip 1 --eps 1"
    line += " --delta 1e-5"
    first, second = ask(capsys, line)["sigmas"]
    assert first < second
    assert main(line.split()) == 0
    assert f"sigmas                {first:.8g}, {second:.8g}\n" in capsys.readouterr().out


def test_an_answer_says_who_may_collude(capsys: pytest.CaptureFixture[str]) -> None:
    line = "account private_local_sgd --samples 100 --batch 10 --rounds 5 --clip 1 --sigma 1 --delta 1e-5"
    line += " --convex true --clients 5 --colluding 2"
    words = "if at most 2 of the 5 clients of a sum collude with the server"
    assert ask(capsys, line)["method"].endswith(words)
    found = ask(capsys, line.replace("account", "calibrate").replace("--sigma", "--eps"))
    assert found["method"].endswith(words)


def test_the_price_of_a_choice_is_added_to_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    more = ("", "--runs 12", "--runs 12 --seen winner")
    alone, every, winner = (ask(capsys, f"account {SOTERIA} {options}") for options in more)
    for found in (every, winner):
        assert {name: found[name] for name in alone} == alone
        assert found["runs_of_selection"] == 12
    assert alone["eps"] < winner["eps_of_selection"] < every["eps_of_selection"]
    assert winner["seen_of_selection"] == "winner"


MISTAKES = f"""
account --sigma 1 | --sigma
account cdp_gd samples 3 | samples
account cdp_gd --samples 10 --rounds 3 --clip 1 --sigma -1 --delta 1e-3 | -1
account cdp_gd --samples 10 --rounds 3 --clip 1 --sigma 1 --sigma 2 | --sigma
calibrate cdp_gd --samples 10 --rounds 3 --clip 1 --delta 1e-3 | eps
calibrate cdp_sgd --samples 10 --batch 11 --rounds 3 --clip 1 --eps 1 --delta .1 | 11
account {SOTERIA} --runs 0 | --runs 0
account {SOTERIA} --seen winner | --seen winner needs runs
account {SOTERIA} --runs 3 --seen some | --seen some
account cdp_gd --samples 9 --rounds 3 --clip 1 --sigma 1 --eps 1 --runs 3 | delta
audit ldp_sdg --rounds 3 | ldp_sgd
audit ldp_gd --rounds 3 --runs 3 | --runs 3
audit ldp_gd --rounds 3 --eps inf | for no noise give --sigma 0
audit ldp_gd --rounds 2.5 | --rounds 2.5
audit ldp_gd --rounds 3 --noise x | --noise x must be
audit ldp_gd --rounds 3 --clip-mode x | 'x'
account cdp_gd --samples x --rounds 3 --clip 1 --sigma 1 --delta .1 | --samples x
calibrate cdp_gd --samples 9 --rounds 3 --clip 1 --eps 1 --delta .1 --method x | --method x
audit ldp_gd --rounds 3 --batsh 3 | batsh
audit ldp_gd --rounds 5 --name 3 | --name
audit ldp_gd --rounds 5 --canary -1 | --canary -1
audit ldp_gd --rounds 5 --claimed -1 | --claimed -1
audit ldp_gd --rounds 5 --turning 0 | --turning 0
account dp_gd --samples 9 --kind 3 | --kind
account {SGD} --rounds 5 --delta 1e-5 --eps 2 | give exactly one of them
account {EVENT} --record-norm -1 | --record-norm -1
account {SRM} --momentum 1.5 | --momentum 1.5
account {SRM} --clients 1.5 | --clients 1.5
account {MU2} --diameter 1 --rho 1 | rho
account {EVENT} --noise-multiplier 0 | --noise-multiplier 0
account private_local_sgd --samples 9 --batch 3 --rounds 3 --clip 1 --sigma 1 --convex 2 | --convex 2
account zcdp --rho -1 --delta 1e-5 | --rho -1
account batch_clip --samples 9 --batch 3 --rounds 0 --clip 1 --eps 1 --delta 1e-5 | --rounds 0
account {CANARY} --batch 200 --sigma 1 --runs 20 | exceeds the 100 records
account {CANARY} --batch 10 --sigma 1 --runs 20 --clip-what foo | --clip-what foo
account audit_cp --tp 9 --npos 9 --fp 0 --nneg 9 --delta 1e-5 --alpha 2 | --alpha 2
account audit_one_run --canaries 9 --guesses 9 --correct 9 --delta 1e-5 --alpha 1.5 | --alpha 1.5
"""


@pytest.mark.parametrize("row", MISTAKES.strip().splitlines())
def test_mistakes(row: str, capsys: pytest.CaptureFixture[str]) -> None:
    line, words = row.split(" | ")
    assert words in Shell(capsys).refused(line)


@pytest.mark.full
def test_audit_exposes_batch_clipping(capsys: pytest.CaptureFixture[str]) -> None:
    line = "audit ldp_sgd --samples 1000 --rounds 20 --runs 200 --batch 100 --clip-mode batch "
    found = ask(capsys, line + "--noise paper --eps 1")
    assert found["claimed"] == pytest.approx(1)
    assert found["lower"] > 1
    assert found["refutes_claim"] is True
    assert found["proven"] == "inf"
    # without noise there is no claim
    line = "audit ldp_sgd --runs 50 --sigma 0 --samples 50 --rounds 2 --batch 10 --seed 1"
    found = ask(capsys, line)
    assert found["claimed"] is None
    assert found["refutes_claim"] is False
    assert found["proven"] == "inf"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("account", "calibrate", "audit"):
        assert main([command, "--help"]) == 0
        text = capsys.readouterr().out
        assert "--rounds" in text
        assert command != "account" or "--seen all|winner" in text
        checks = text.partition("or a check of a published or new formula:")[2]
        for name, make in CALCULATORS.items():
            said = f"\n  {name} " in text, f"\n  {name} " in checks
            assert said == (command == "account", command == "account" and name in FORMULAS)
            assert str(make.__doc__).splitlines()[0].endswith(".")
