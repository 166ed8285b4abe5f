"""`jaxfl account` and `jaxfl calibrate`, with no data at all."""

import json
import re
from typing import Any

import pytest
from told import Shell

pytestmark = pytest.mark.once

SOTERIA = (
    "soteriafl_sgd --samples 3256 --batch 51 --rounds 100 --clip 0.5 --sigma 0.01 --delta 1e-3"
)
SGD = "dp_sgd --samples 100 --batch 10 --clip 1 --sigma 1"
SRM = "dp_srm --samples 100 --batch 10 --sigma 1 --delta 1e-5 --rounds 5 --clip 1"
EVENT = "event --samples 100 --batch 10 --clip 1 --sigma 1 --rounds 5 --delta 1e-5"
PRIVATE = "private_local_sgd --samples 100 --batch 10 --rounds 5 --clip 1 --delta 1e-5"


@pytest.fixture
def ask(shell: Shell) -> Any:
    """The answer to a question, as JSON."""
    return lambda *line: json.loads(shell(*line, "--json").out)


def test_account_flags_a_claim_that_does_not_hold(ask: Any, shell: Shell) -> None:
    """The published a9a run at eps 1: b = 10, T = 25, drawn with replacement; constant 8."""
    sigma = (8 * 0.25 * 25 * 6.907755) ** 0.5 / 3256
    line = "account cdp_sgd --samples 3256 --batch 10 --rounds 25 --clip 0.5 --delta 1e-3 "
    line += f"--sampler poisson --sigma {sigma}"
    found = ask(line)
    assert found["claimed_eps"] == pytest.approx(1, rel=1e-5)
    assert found["eps"] == pytest.approx(68.8, abs=0.2)
    assert found["flag"] is True
    text = shell(line).out
    assert "status                established: by published accountants\n" in text
    assert "flag                  the proven eps is above the paper's by more than 1 %" in text
    assert text.count("\npaper_condition  ") == len(found["paper_conditions"]) == 3
    fails = r"paper_condition +fails: the theorem needs eps <= [.\d]+, and here eps = 1 = "
    assert re.search(fails, text)
    for programming in ("{", "[", "True", "None", "paper_note"):
        assert programming not in text


def test_what_was_assumed_is_said(ask: Any, shell: Shell) -> None:
    """In words too: numbers that nobody gave, a noise for every phase, and who may collude."""
    line = f"account {PRIVATE} --sigma 1"
    assert ask(line)["assumed"] == {"local_steps": 5, "clients": 1}
    assert "\nassumed               local_steps = 5, clients = 1\n" in shell(line).out
    line = "calibrate localized_mbsgd --samples 64 --batch 8 --rounds 9 --phases 2 --clip 1 --eps 1"
    first, second = ask(line, "--delta 1e-5")["sigmas"]
    assert first < second
    assert f"sigmas                {first:.8g}, {second:.8g}\n" in shell(line, "--delta 1e-5").out
    words = "if at most 2 of the 5 clients of a sum collude with the server"
    for asked in ("account --sigma 1", "calibrate --eps 1"):
        command, noise = asked.split(maxsplit=1)
        found = ask(command, PRIVATE, noise, "--convex true --clients 5 --colluding 2")
        assert found["method"].endswith(words)


def test_the_price_of_a_choice_is_added_to_the_answer(ask: Any) -> None:
    more = ("", "--runs 12", "--runs 12 --seen winner")
    alone, every, winner = (ask(f"account {SOTERIA} {options}") for options in more)
    for found in (every, winner):
        assert {name: found[name] for name in alone} == alone
        assert found["runs_of_selection"] == 12
    assert alone["eps"] < winner["eps_of_selection"] < every["eps_of_selection"]


MISTAKES = f"""
account --sigma 1 | --sigma
account cdp_gd samples 3 | samples
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
audit ldp_gd --rounds 3 --noise x | --noise x must be
audit ldp_gd --rounds 3 --clip-mode x | 'x'
account cdp_gd --samples x --rounds 3 --clip 1 --sigma 1 --delta .1 | --samples x
calibrate cdp_gd --samples 9 --rounds 3 --clip 1 --eps 1 --delta .1 --method x | --method x
audit ldp_gd --rounds 3 --batsh 3 | batsh
audit ldp_gd --rounds 5 --name 3 | --name
account {SGD} --rounds 5 --delta 1e-5 --eps 2 | give exactly one of them
account {EVENT} --record-norm -1 | --record-norm -1
account {SRM} --momentum 1.5 | --momentum 1.5
account private_local_sgd --samples 9 --batch 3 --rounds 3 --clip 1 --sigma 1 --convex 2 | --convex 2
account audit_cp --tp 9 --npos 9 --fp 0 --nneg 9 --delta 1e-5 --alpha 2 | --alpha 2
"""


@pytest.mark.parametrize("row", MISTAKES.strip().splitlines())
def test_mistakes(row: str, shell: Shell) -> None:
    line, words = row.split(" | ")
    assert words in shell.refused(line)
