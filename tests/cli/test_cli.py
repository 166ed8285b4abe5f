"""The command line: what it makes, how it goes on, and one sentence for every mistake."""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxfl
from jaxfl.cli import main
from jaxfl.cli.interrupt import Interrupts
from jaxfl.cli.options import Setup, options
from jaxfl.cli.report import Display, amount
from jaxfl.engine import results
from jaxfl.engine import run as runs

pytestmark = pytest.mark.once

# A small problem that most tests share, so that its rounds are compiled once.
PROBLEM = """
    --data synthetic --data-option n=3 --data-option m=8 --data-option d=4 --data-option classes=2
    --clients 3 --partition contiguous --lr 0.2 --batch 3 --k 2 --sigma 0.05
"""
LOUD = PROBLEM.split()
SMALL = [*LOUD, "--quiet", "--no-plot"]


def run(*words: str) -> int:
    return main(["run", "soteriafl_sgd", *SMALL, *words])


def same_arrays(a: Path, b: Path) -> None:
    one, two = jaxfl.load(a / "result.nc"), jaxfl.load(b / "result.nc")
    assert set(one.variables) == set(two.variables)
    for name in one.variables:
        assert one[name].values.tobytes() == two[name].values.tobytes(), name


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 30 rounds."""
    out = tmp_path_factory.mktemp("cli") / "finished"
    assert run("--rounds", "30", "--out", str(out)) == 0
    return out


# --- what there is -------------------------------------------------------------------------------


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"jaxfl {jaxfl.__version__}\n"
    assert main([]) == main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "jaxfl run" in text
    assert "jaxfl list" in text


def test_help_lists_every_number_of_the_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "ldp_svrg", "--compressor", "qsgd", "--help"]) == 0
    text = capsys.readouterr().out
    qsgd = jaxfl.compressors.compressor("qsgd")
    for param in jaxfl.algorithm("ldp_svrg", compressor=qsgd).params:
        assert f"--{param.name.replace('_', '-')} " in text
    assert "--refresh" in text
    assert "--levels" in text
    assert not re.search(r"--shift\b", text)


def test_list_names_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    for name in (*jaxfl.ALGORITHMS, *jaxfl.data.PARTITIONS, *jaxfl.compressors.COMPRESSORS):
        assert re.search(rf"^  {name}  ", text, re.MULTILINE)
    assert main(["list", "samplers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(jaxfl.sampling.SAMPLERS)
    assert main(["list", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)
    assert len(tables) == 8
    assert all(about["summary"] for table in tables.values() for about in table.values())
    assert set(tables["algorithms"]) == set(jaxfl.ALGORITHMS)
    params = {p["option"]: p for p in tables["algorithms"]["soteriafl_sgd"]["parameters"]}
    assert "--noise-constant" in params
    assert params["--k"]["whole"]
    assert (params["--delta"]["high"], params["--delta"]["below_high"]) == (1, True)
    assert all(param["doc"] for param in params.values())


def test_no_number_hides_an_option() -> None:
    numbers = {p.name for make in jaxfl.ALGORITHMS.values() for p in make().params}
    assert not numbers & {*options(Setup), "out", "resume", "force", "quiet", "help", "no_plot"}


# --- running -------------------------------------------------------------------------------------


def test_files_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "out"
    assert main(["run", "soteriafl_sgd", *LOUD, "--rounds", "30", "--out", str(out)]) == 0
    names = {"result.nc", "curves.png", "checkpoint.npz", "config.json"}
    assert {file.name for file in out.iterdir()} == names
    shown = capsys.readouterr()
    assert "round 30/30" in shown.err
    for words in ("sigma", "given", "uplink", "rounds/s", "proven; the paper's formula"):
        assert words in shown.out
    ds = jaxfl.load(out / "result.nc")
    assert ds["round"].values.tolist() == list(range(31))
    assert ds.sizes["client"] == 3


def test_a_run_may_run_again_quietly(
    finished: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In its own folder too, where its result is replaced by the same one."""
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    assert run("--rounds", "30", "--out", str(out)) == 0
    assert capfd.readouterr() == ("", "")
    same_arrays(finished, out)


def test_it_is_simulate(finished: Path) -> None:
    """The command adds nothing to the numbers."""
    data = jaxfl.data.load("synthetic", n=3, m=8, d=4, classes=2)
    data = jaxfl.data.split(data, 3, "contiguous")
    problem = jaxfl.make_problem(jaxfl.models.logistic(4), data)
    key, numbers = jax.random.key(0), {"lr": 0.2, "batch": 3, "k": 2, "sigma": 0.05}
    ours = jaxfl.simulate("soteriafl_sgd", problem, key, 30, **numbers).dataset()
    ds = jaxfl.load(finished / "result.nc")
    for name in ours.variables:
        assert ours[name].values.tobytes() == ds[name].values.tobytes(), name


def test_all_kinds_of_options(tmp_path: Path) -> None:
    """A LIBSVM file, a network, other parts, double precision, a limit."""
    rng = np.random.default_rng(0)
    rows = [
        f"{i % 3} " + " ".join(f"{j + 1}:{v:.4f}" for j, v in enumerate(rng.normal(size=4)))
        for i in range(60)
    ]
    file = tmp_path / "mine.libsvm"
    file.write_text("\n".join(rows))
    out = tmp_path / "out"
    words = f"""
        run --data {file} --clients 4 --partition dirichlet --alpha 5 --partition-option min_size=5
        --test-share 0.2 --model mlp --hidden 5 4 --activation tanh --regularizer l2 --strength 0.01
        --dtype float64 --compressor qsgd+random_k --levels 4 --k 3 --batch 2
        --sampler without_replacement --participation uniform --cohort 2 --noise-draw per_client
        --clip-mode batch --noise paper --rounds 20 --eval-every 5 --max-bits 1000 --device cpu
        --seed 7 --storage bfloat16 --quiet --out {out}
    """
    assert main(words.split()) == 0
    ds = jaxfl.load(out / "result.nc")
    about = results.config(ds)
    assert ds["x"].dtype == np.float64
    assert ds["x"].size == 4 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3
    assert about["ended"].startswith("stopped: ")
    assert ds["round"].values[-1] < 20
    assert about["settings"]["parts"]["compressor"] == "qsgd+random_k"
    assert about["settings"]["parts"]["storage"] == "bfloat16"
    assert about["values"]["cohort"] == 2
    assert "no per-record" in results.privacy(about)
    assert not jax.config.read("jax_enable_x64")
    # The limit was reached: going on means without it, from the stored absolute path.
    assert main(["run", "--resume", str(out), "--quiet"]) == 0
    assert jaxfl.load(out / "result.nc")["round"].values[-1] == 20


def test_demonstration_says_whose_numbers_they_are(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["run", "--quiet", "--no-plot", "--rounds", "60", "--out", str(out)]) == 0
    ds = jaxfl.load(out / "result.nc")
    sources = results.config(ds)["sources"]
    assert sources["lr"] == sources["batch"] == "demonstration"
    assert sources["rounds"] == "given"
    assert ds["loss"].values[-1] < 0.7 * ds["loss"].values[0]


def test_rounds_of_the_theory(tmp_path: Path) -> None:
    assert run("--rounds", "auto", "--out", str(tmp_path)) == 0
    about = results.config(jaxfl.load(tmp_path / "result.nc"))
    assert about["sources"]["rounds"].startswith("Corollary 1")
    assert (
        json.loads((tmp_path / "config.json").read_text())["reached"] == about["values"]["rounds"]
    )


def test_diverging_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = list(LOUD)
    words[words.index("--lr") + 1] = "1e38"
    out = ["--rounds", "30", "--out", str(tmp_path)]
    assert main(["run", "soteriafl_sgd", *words, *out, "--force"]) == 0
    shown = capsys.readouterr()
    assert "diverged" in shown.out
    assert "best" not in shown.out  # a loss on the way there is no result
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    assert main(["run", "soteriafl_sgd", *words, *out, "--quiet", "--no-plot"]) == 0
    quiet = capsys.readouterr()
    assert quiet.out == ""
    for told in (shown.err, quiet.err):
        last = told.splitlines()[-1]
        assert last.startswith("jaxfl: soteriafl_sgd on synthetic diverged: the loss is not finite")
        assert last.endswith("take a smaller --lr.")


# --- going on ------------------------------------------------------------------------------------


def test_extended_run_is_the_longer_run(finished: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    shutil.copytree(finished, parts)
    assert run("--rounds", "47", "--eval-every", "1", "--out", str(whole)) == 0
    assert main(["run", "--resume", str(parts), "--rounds", "47", "--quiet", "--no-plot"]) == 0
    same_arrays(whole, parts)
    assert json.loads((parts / "config.json").read_text())["reached"] == 47
    proven = [
        float(results.config(jaxfl.load(out / "result.nc"))["privacy"]["proven"])
        for out in (finished, parts)
    ]
    assert proven[0] < proven[1] < float("inf")


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ("--eps", "given; sigma was calibrated for it and 10 rounds"),
        ("--sigma", "from sigma; of 10 rounds"),
    ],
)
def test_an_extended_run_says_what_its_numbers_were_for(
    privacy: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, small = str(tmp_path), [privacy if word == "--sigma" else word for word in SMALL]
    assert main(["run", "soteriafl_sgd", *small, "--rounds", "10", "--out", out]) == 0
    assert main(["show", out]) == 0
    assert "10 rounds" not in capsys.readouterr().out
    assert main(["run", "--resume", out, "--rounds", "14", "--quiet", "--no-plot"]) == 0
    assert main(["show", out]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^rounds +10, extended to 14 +given", shown, re.MULTILINE)
    assert re.search(rf"^eps .*{words}", shown, re.MULTILINE)


def test_a_run_of_an_earlier_version_goes_on(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options that came later have their defaults; one that only a later version knows is named."""
    whole, out = tmp_path / "whole", tmp_path / "out"
    shutil.copytree(finished, out)
    about = json.loads((out / "config.json").read_text())
    for name in ("storage", "graph", "constraint", "noise_draw"):
        del about["setup"][name]
    (out / "config.json").write_text(json.dumps(about))
    assert run("--rounds", "30", "--storage", "bfloat16", "--out", str(out)) == 2
    assert "holds a run with --storage exact, not bfloat16" in capsys.readouterr().err
    assert run("--rounds", "33", "--eval-every", "1", "--out", str(whole)) == 0
    assert main(["run", "--resume", str(out), "--rounds", "33", "--quiet", "--no-plot"]) == 0
    same_arrays(whole, out)
    about["setup"]["light_speed"] = 3
    (out / "config.json").write_text(json.dumps(about))
    assert main(["run", "--resume", str(out), "--rounds", "40"]) == 2
    shown = capsys.readouterr().err
    one_sentence(shown)
    assert "has the option --light-speed, which this version" in shown


@pytest.mark.parametrize(("every", "round"), [("1", 1), ("4", 7), ("0", 14)])
def test_interrupted_and_resumed_is_uninterrupted(
    every: str,
    round: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    words = ("--rounds", "30", "--eval-every", every, "--checkpoint-every", "7")

    def stop(self: Display, now: jaxfl.Progress) -> None:
        if now.round >= round:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Display, "show", stop)
        patch.setattr(
            "time.perf_counter", itertools.count().__next__
        )  # so that every mark is shown
        assert main(["run", "soteriafl_sgd", *LOUD, *words, "--out", str(parts)]) == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"jaxfl: interrupted; continue with `jaxfl run --resume {parts}`."
    assert not (parts / "result.nc").exists()

    assert run(*words, "--out", str(parts)) == 2
    assert "unfinished run of this configuration" in capsys.readouterr().err
    assert main(["run", "--resume", str(parts), "--quiet", "--no-plot"]) == 0
    assert run(*words, "--out", str(whole)) == 0
    same_arrays(whole, parts)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_status_tells_the_signal(
    number: signal.Signals, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(self: Display, now: jaxfl.Progress) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr(Display, "show", ask)
    words = ["--rounds", "30", "--out", str(tmp_path / "out")]
    assert main(["run", "soteriafl_sgd", *LOUD, *words]) == status
    assert (tmp_path / "out" / "checkpoint.npz").exists()


def test_a_signal_that_jax_swallows_still_arrives(tmp_path: Path) -> None:
    """An exception raised within a callback of JAX is lost; the next evaluation raises it again."""
    with Interrupts() as interrupts:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    assert signal.getsignal(signal.SIGTERM) is not interrupts.arrive


@pytest.mark.parametrize(
    "words", [("--eval-every", "4"), ("--eval-every", "0"), ("--max-bits", "800")]
)
def test_a_result_that_is_gone_is_written_again(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it ended, and not further, unless more is asked for; also of a run killed at the very end."""
    finished, out = tmp_path / "finished", tmp_path / "out"
    assert run("--rounds", "30", *words, "--out", str(finished)) == 0
    shutil.copytree(finished, out)
    for spoil, way in (
        (lambda file: file.write_bytes(file.read_bytes()[:900]), "damaged or cut short: remove it"),
        (lambda file: file.unlink(), "has lost its result.nc"),
    ):
        spoil(out / "result.nc")
        assert main(["show", str(out)]) == 2
        told = capsys.readouterr().err
        one_sentence(told)
        assert way in told
        assert f"`jaxfl run --resume {out}` writes it again." in told
    assert main(["run", "--resume", str(out)]) == 0
    told = capsys.readouterr().err
    assert told.startswith(f"{out / 'result.nc'} was missing: it is written again")
    assert (out / "curves.png").exists()
    same_arrays(finished, out)
    ended = [results.config(jaxfl.load(a / "result.nc"))["ended"] for a in (finished, out)]
    assert ended[0] == ended[1]
    assert ended[0].startswith("stopped" if "--max-bits" in words else "finished")
    assert (out / "config.json").read_text() == (finished / "config.json").read_text()
    (out / "result.nc").unlink()  # killed before it was written
    about = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(about | {"reached": None}))
    assert main(["run", "--resume", str(out), "--quiet", "--no-plot"]) == 0
    if "--max-bits" not in words:
        same_arrays(finished, out)


# --- nothing is lost -----------------------------------------------------------------------------


def fails(error: BaseException) -> Callable[..., None]:
    def raises(*args: object) -> None:
        raise error

    return raises


def test_another_configuration_needs_force(
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    assert run("--rounds", "30", "--seed", "5", "--out", str(out)) == 2
    assert "--seed 0, not 5" in capsys.readouterr().err
    # A mistake that is found late replaces nothing, even with --force.
    late = ("--rounds", "30", "--seed", "5", "--shift", "7", "--out", str(out), "--force")
    assert run(*late) == 2
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    # Nor one that is found last of all, nor an interrupt before anything is saved.
    force = ("--rounds", "30", "--seed", "5", "--out", str(out), "--force")
    for error, status in ((jaxfl.InputError("too late"), 2), (KeyboardInterrupt(), 130)):
        with monkeypatch.context() as patch:
            patch.setattr(runs, "check_room", fails(error))
            assert run(*force) == status
        assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    assert run(*force) == 0
    assert {file.name for file in out.iterdir()} <= set(before)
    assert results.config(jaxfl.load(out / "result.nc"))["settings"]["key"] == [0, 5]


def test_what_a_killed_run_put_aside_is_not_brought_back(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--force`, killed after it had saved something, and then a resumption that fails."""
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    shutil.copy(out / "result.nc", out / "result.nc.before")
    with monkeypatch.context() as patch:
        patch.setattr(runs, "build", fails(jaxfl.InputError("too late")))
        assert main(["run", "--resume", str(out), "--rounds", "40", "--quiet"]) == 2
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before


@pytest.mark.parametrize("mark", ["sweep.json", "config.json"])
@pytest.mark.parametrize("more", [[], ["--force"]])
def test_a_sweep_is_never_replaced(
    mark: str, more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its result was lost with --force, and its config.json was called damaged without."""
    (tmp_path / "result.nc").write_text("hours of work")
    (tmp_path / mark).write_text('{"sweep": {}}')
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert run("--rounds", "30", "--out", str(tmp_path), *more) == 2
    assert "holds a sweep, which no run replaces" in capsys.readouterr().err
    assert main(["run", "--resume", str(tmp_path)]) == 2
    assert f"continue with `jaxfl sweep --resume {tmp_path}`" in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_foreign_files_are_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "result.nc").write_text("mine")
    assert run("--rounds", "30", "--out", str(tmp_path)) == 2
    assert f"{tmp_path} holds result.nc already" in capsys.readouterr().err
    assert (tmp_path / "result.nc").read_text() == "mine"


# --- mistakes ------------------------------------------------------------------------------------

# command line -> what the one sentence has to contain; FINISHED is the folder of a finished run
MISTAKES = {
    "rnu": "'rnu': did you mean run?",
    "xyz": "'xyz': the commands are run, ",
    "--verison": "'--verison': did you mean --version?",
    "run --eps inf": "for no noise give --sigma 0",
    "run --rounds 999999999999999999999": "at most 2147483647",
    "run dp_fedavg --local-steps 99999999999999999": "at most 2147483647",
    "run --lr cosin:0.3": "did you mean cosine:0.3?",
    "run --lr cosine": "as in cosine:0.3",
    "run --data /dev/null": "'/dev/null' is not a file",
    "theory --omega 1e300 --dim 1e300 --samples 1e300": "than floating point holds",
    "theory --eps 1e-300 --clip 1e200": "--eps 1e-300",
    "list algos": "'algos'",
    "list --jsn": "--json",
    "list data models": "'models'",
    "run soteriafl_sdg": "'soteriafl_sgd'",
    "run soteriafl_sgd ldp_sgd": "'ldp_sgd'",
    "run --rond 5": "--rond: did you mean --rounds",
    "run --noise_constant 5": "--noise-constant",
    "run -x": "-x",
    "run --rounds": "--rounds",
    "run --rounds 0": "--rounds 0",
    "run --rounds 2.5": "--rounds 2.5",
    "run --rounds ten": "--rounds ten",
    "run --clients 100000": "100000",
    "run --data digit": "'digits'",
    "run --data ./no.libsvm": "no.libsvm",
    "run --data-option a=1": "'a'",
    "run --data-option a": "--data-option a ",
    "run --data synthetic --data-option n=abc": "n=abc is not a number",
    "run --partition dirichelt": "'dirichlet'",
    "run --partition-option spread=2": "'spread'",
    "run --alpha 0.3": "'alpha'",
    "run --test-share 1.5": "--test-share 1.5 must be above 0 and below 1",
    "run --validation-share 1": "--validation-share 1 must be above 0 and below 1",
    "run --data /": "'/' is a folder",
    "run --test-data x.libsvm": "x.libsvm",
    "run --model lgistic": "'logistic'",
    "run --model logistic": "10 classes",
    "run --hidden 5": "'hidden'",
    "run --model mlp --hidden 5 x": "--hidden x",
    "run --model mlp --activation foo": "'foo'",
    "run --init foo": "--init foo must be",
    "run --strength 0.1": "--strength 0.1",
    "run --regularizer l3": "'l3'",
    "run --regularizer l2": "--regularizer l2 needs --strength",
    "run --regularizer l2 --strength -1": "--regularizer l2:-1.0: --strength -1 must be",
    "run --constraint ball:x": "'ball:x'",
    "run --constraint ball:-1": "--constraint ball:-1: radius = -1.0 must be",
    "run --dtype float16": "--dtype float16",
    "run --device npu": "--device npu",
    "run --clip-mode both": "--clip-mode both",
    "run --noise-draw x": "--noise-draw x",
    "run --storage int8": "--storage int8",
    "run ldp_sgd --storage float16": "--storage float16 does not",
    "run --noise pappr": "--noise pappr",
    "run --clip-mode batch": "clip='batch'",
    "run --compressor qsgd+random_j": "'random_j'",
    "run --compressor random_k+qsgd": "random_k+qsgd",
    "run --sampler posson": "'poisson'",
    "run soteriafl_gd --sampler poisson": "--sampler poisson does not",
    "run --participation uniform --cohort 30": "30",
    "run --seed -1": "--seed -1",
    "run --lr abc": "--lr abc",
    "run --lr -1e-3": "-0.001",
    "run --lr inf": "--lr inf",
    "run --lr nan": "--lr nan",
    "run --lr 1 --lr 2": "--lr is given twice, the second time as 2",
    "run --k 2000": "2000",
    "run --k 3 --omega 2": "--omega 2",
    "run --batch 500": "500",
    "run --batch inf": "--batch inf",
    "run --delta 2": "--delta 2",
    "run --eps 1 --sigma 2": "--sigma 2 both",
    "run ldp_sgd --k 3": "--k 3",
    "run --eval-every -2": "--eval-every -2",
    "run --checkpoint-every 0": "--checkpoint-every 0",
    "run --max-bits -4": "--max-bits -4",
    "run --target-loss low": "--target-loss low",
    "run --resume nowhere": "nowhere",
    "run --resume .": "no config.json",
    "run --resume FINISHED": "round 30",
    "run --resume FINISHED --rounds 12": "--rounds 12",
    "run --resume FINISHED --rounds auto": "--rounds auto does not go with --resume",
    "run --resume FINISHED --rounds 40 --lr 0.1": "--lr 0.1",
    "run --resume FINISHED --rounds 40 --seed 3": "--seed 3",
    "run ldp_sgd --resume FINISHED --rounds 40": "ldp_sgd",
    "run --resume FINISHED --rounds 40 --out other": "other",
    "run --resume FINISHED --rounds 40 --force": "--force",
    "run --out FINISHED/result.nc": "result.nc",
    "run --out FINISHED": "ALGORITHM soteriafl_sgd",
    "run ldp_sgd --graph ring": "--graph ring does not apply to ldp_sgd, which has a server",
    "profile ldp_sgdd": "did you mean 'ldp_sgd'",
    "profile ldp_sgd --out x": "--out is an option of `jaxfl run`",
    "profile ldp_sgd --batch 0": "batch",
    "papers run": "No figure is named",
    "papers run hu-figure-33": "did you mean 'hu-figure-3'?",
    "papers run h": "no figure or table named 'h'",
    "papers walk": "There is no `jaxfl papers walk`",
    "papers run hu-figure-3 --fats": "did you mean --fast?",
    "papers run hu-figure-3 --out a --out b": "given twice",
    "theory --omga 3": "did you mean --omega?",
    "theory --omega -1": "must be at least 0",
    "theory --delta 2": "below 1",
    "theory --clients 2.5": "must be a whole number",
    "theory 3": "one word too many",
    "theory --eps 1 --eps 2": "given twice",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_sentence(
    words: str,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.replace("FINISHED", str(finished)).split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    one_sentence(shown.err)
    assert MISTAKES[words] in shown.err
    assert not list(tmp_path.iterdir())


def one_sentence(text: str) -> None:
    assert text.startswith("jaxfl: error: ")
    assert text.endswith((".\n", "?\n"))
    assert text.count("\n") == 1
    assert not re.search(r"[.?!] +[A-Z]", text)


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="there is one")
def test_a_device_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--device", "gpu"]) == 2
    one_sentence(capsys.readouterr().err)


def test_damaged_config_and_missing_checkpoint(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    (out / "checkpoint.npz").unlink()
    go_on = ["run", "--resume", str(out), "--rounds", "40"]
    assert main(go_on) == 2
    assert "no checkpoint.npz" in capsys.readouterr().err
    for content in ("", "{", "[]", "{}", '{"setup": {}, "assumed": {}, "reached": 3}'):
        (out / "config.json").write_text(content)
        assert main(go_on) == 2
        shown = capsys.readouterr().err
        one_sentence(shown)
        assert "config.json is damaged" in shown


def test_data_that_have_changed_are_noticed_and_nothing_is_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "mine.libsvm", tmp_path / "out"
    file.write_text("".join(f"{i % 2} 1:{i / 8} 2:1 3:{i % 3} 4:0.5\n" for i in range(24)))
    words = ["run", "soteriafl_sgd", "--data", str(file), "--clients", "3", "--batch", "3"]
    words += ["--k", "2", "--lr", "0.2", "--rounds", "30", "--out", str(out), "--quiet"]
    assert main(words) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    file.write_text(file.read_text().replace("0.5", "0.25"))
    assert main(["run", "--resume", str(out), "--rounds", "40"]) == 2
    shown = capsys.readouterr().err.splitlines()
    one_sentence(shown[-1] + "\n")
    assert "its data is" in shown[-1]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


# --- as a program --------------------------------------------------------------------------------


def test_an_interrupt_before_anything_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jaxfl.cli.keep_programs", fails(KeyboardInterrupt()))
    monkeypatch.setattr("sys.argv", ["jaxfl", "list"])
    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "jaxfl: interrupted.\n"


def test_a_file_with_one_label_is_no_regression(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "one.libsvm"
    file.write_text("".join(f"1 1:{i / 8} 2:1\n" for i in range(24)))
    words = ["run", "ldp_gd", "--data", str(file), "--clients", "3", "--rounds", "2", *SMALL[-2:]]
    words += ["--out", str(tmp_path / "out")]
    assert main(words) == 2
    shown = capsys.readouterr().err
    one_sentence(shown)
    assert "has one training label, 1, in all rows" in shown
    assert "give --data-option classes=0" in shown
    assert main([*words, "--data-option", "classes=0"]) == 0


def test_a_full_disk_is_one_sentence() -> None:
    """And to list what there is no device is started."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "jaxfl", "list", "data"], stdout=full, stderr=subprocess.PIPE,
            text=True, timeout=120, env={**os.environ, "JAX_PLATFORMS": "none_such"},
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "jaxfl: error: cannot write: No space left on device.\n"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError("Unable to allocate 7 TiB"), "the memory is too small (Unable to allocate"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "the memory is too small"),
        (OverflowError("too large"), "a number is too large to compute with"),
        (PermissionError(13, "Permission denied", "a.csv"), "cannot read or write a.csv: Perm"),
        (
            jaxfl.InputError("It is large", "give more {memory}", suggested={"memory": None}),
            "It is large: give more --memory.",
        ),
    ],
)
def test_the_last_net(
    error: Exception,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(words: list[str]) -> None:
        raise error

    monkeypatch.setattr("jaxfl.cli._dispatch", fail)
    assert main(["list"]) == 2
    shown = capsys.readouterr().err
    one_sentence(shown)
    assert says in shown


def test_amounts() -> None:
    assert amount(0) == "0 bit (0 B)"
    assert amount(800) == "800 bit (100 B)"
    assert amount(2_688_000) == "2.69 Mbit (336 kB)"
    assert amount(8e15) == "8 Pbit (1 PB)"
