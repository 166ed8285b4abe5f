"""`jaxfl account` and `jaxfl calibrate`, with no data at all."""

import json

import pytest

from jaxfl.cli import main
from jaxfl.privacy import Event, Mean, Sampling, epsilon


def ask(capsys: pytest.CaptureFixture[str], line: str) -> dict:
    assert main([*line.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_calibrate(capsys: pytest.CaptureFixture[str]) -> None:
    found = ask(
        capsys,
        "calibrate soteriafl_gd --samples 3256 --rounds 100 --clip 0.5 --eps 5 --delta 1e-3",
    )
    # GDP: mu solves delta(5; mu) = 1e-3; sigma = 2 G sqrt(T) / (m mu)
    assert found["sigma"] == pytest.approx(0.00211868, rel=1e-5)
    assert found["paper_sigma"] == pytest.approx(0.00279624, rel=1e-5)
    assert found["status"] == "E"
    assert found["eps"] == pytest.approx(5, rel=1e-3)


def test_account_flags_a_claim_that_does_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """The published a9a run at eps 1: b = 10, T = 25, drawn with replacement; constant 8."""
    line = (
        "account cdp_sgd --samples 3256 --batch 10 --rounds 25 --clip 0.5 --delta 1e-3 "
        "--sampling poisson --sigma "
    )
    sigma = (8 * 0.25 * 25 * 6.907755) ** 0.5 / 3256
    found = ask(capsys, line + str(sigma))
    assert found["claimed_eps"] == pytest.approx(1, rel=1e-5)
    assert found["eps"] == pytest.approx(68.8, abs=0.2)
    assert found["flag"] is True
    assert main([*line.split(), str(sigma)]) == 0
    text = capsys.readouterr().out
    assert "claimed_eps" in text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("account soteria --sigma 1 --delta 1e-3", "soteria"),
        ("account --sigma 1", "--sigma"),
        ("account cdp_gd samples 3", "samples"),
        ("account cdp_gd --samples 10 --rounds 3 --clip 1 --sigma -1 --delta 1e-3", "-1"),
        ("account cdp_gd --samples 10 --rounds 3 --clip 1 --sigma 1 --delta 2", "2"),
        ("account cdp_gd --samples 10 --rounds 3 --clip 1 --sigma 1 --sigma 2", "--sigma"),
        ("calibrate cdp_gd --samples 10 --rounds 3 --clip 1 --eps 0 --delta 1e-3", "eps"),
        ("calibrate cdp_gd --samples 10 --rounds 3 --clip 1 --delta 1e-3", "eps"),
        ("calibrate cdp_sgd --samples 10 --batch 11 --rounds 3 --clip 1 --eps 1 --delta .1", "11"),
        ("audit ldp_sdg --rounds 3", "ldp_sgd"),
        ("audit ldp_gd --rounds 3 --runs 3", "runs = 3"),
        ("audit ldp_gd --rounds 3 --runs x", "--runs x"),
        ("audit ldp_gd --rounds 2.5", "rounds = 2.5"),
        ("audit ldp_gd --rounds 3 --delta x", "--delta x"),
        ("audit ldp_gd --rounds 3 --noise x", "'x'"),
        ("audit ldp_gd --rounds 3 --clip-mode x", "'x'"),
        ("account cdp_gd --samples x --rounds 3 --clip 1 --sigma 1 --delta .1", "--samples x"),
        ("calibrate cdp_gd --samples 9 --rounds 3 --clip x --eps 1 --delta .1", "--clip x"),
        ("calibrate cdp_gd --samples 9 --rounds 3 --clip 1 --eps 1 --delta .1 --method x", "'x'"),
        ("audit ldp_gd --rounds 3 --batsh 3", "batsh"),
        ("calibrate cdp_gd --sampels 10 --rounds 3 --clip 1 --eps 1 --delta 1e-3", "sampels"),
    ],
)
def test_mistakes(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert words in said


def test_audit_exposes_batch_clipping(capsys: pytest.CaptureFixture[str]) -> None:
    found = ask(
        capsys,
        "audit ldp_sgd --samples 1000 --rounds 20 --runs 200 --batch 100 --clip-mode batch "
        "--noise paper --eps 1",
    )
    assert found["claimed"] == pytest.approx(1)
    assert found["lower"] > 1
    assert found["exposed"] is True
    assert found["proven"] == "inf"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("account", "calibrate", "audit"):
        assert main([command, "--help"]) == 0
        assert "--rounds" in capsys.readouterr().out


@pytest.mark.parametrize(
    "phases",
    [
        '{"n": 1}',
        "[1]",
        '[{"n": 5}]',
        '[{"n": 50, "R": 2, "K": 5, "sigma": "x"}]',
        "[]",
        "abc",
        "[{",
    ],
)
def test_malformed_phases_are_one_sentence(phases: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["isrl_localized", "--phases", phases, "--clip", "1", "--delta", "1e-5"]
    assert main(["account", *words]) == 2
    told = capsys.readouterr().err
    assert told.startswith("jaxfl: error: ")
    assert "phase" in told
    assert told.count("\n") == 1


def test_the_best_of_several_runs_costs_more(capsys: pytest.CaptureFixture[str]) -> None:
    words = "cdp_sgd --samples 500 --batch 25 --rounds 10 --clip 1 --sigma 0.1 --delta 1e-4 --json"
    eps = {}
    for seen in ("all", "winner"):
        assert main(["account", *words.split(), "--best-of", "40", "--seen", seen]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["best_of"] == 40
        eps[seen] = answer["eps_of_best"]
        assert eps[seen] > answer["eps"]
    assert eps["winner"] < eps["all"]
    event = Event(Sampling("poisson", 500, 25), Mean(1.0), 0.1, 400)
    assert eps["all"] == pytest.approx(epsilon(event, 1e-4).eps, rel=1e-9)
    for wrong in (["--seen", "all"], ["--best-of", "0"], ["--best-of", "2", "--seen", "some"]):
        assert main(["account", *words.split(), *wrong]) == 2
        told = capsys.readouterr().err
        assert "has to be" in told or "needs" in told
