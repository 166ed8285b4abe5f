"""`jaxfl run`, and what all commands share: what they make, how they go on, one sentence for mistakes."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
from told import SYNTHETIC, Shell, refused

import jaxfl
from jaxfl.algorithms.defaults import defaults
from jaxfl.algorithms.registry import ALGORITHMS
from jaxfl.algorithms.resolution import planned
from jaxfl.algorithms.roles import BY_NAME
from jaxfl.cli import COMMANDS, compute, explained, folder, main
from jaxfl.cli.interrupt import Interrupts
from jaxfl.cli.options import Counts, Session, Setup, options
from jaxfl.cli.parser import SAID
from jaxfl.core.errors import InputError
from jaxfl.core.params import reads
from jaxfl.core.programs import bound
from jaxfl.core.types import ProblemFacts
from jaxfl.data.partition import PARTITIONS
from jaxfl.engine import results
from jaxfl.views import plots, tables

pytestmark = pytest.mark.once

# A small problem that most tests share, so that its rounds are compiled once.
LOUD = f"run soteriafl_sgd {SYNTHETIC} --lr 0.2 --batch 3 --k 2 --sigma 0.05"
QUIET = "--quiet --no-plot"
RUN = f"{LOUD} {QUIET}"


def same_arrays(a: Path, b: Path) -> None:
    one, two = jaxfl.load(a / "result.nc"), jaxfl.load(b / "result.nc")
    assert set(one.variables) == set(two.variables)
    for name in one.variables:
        assert one[name].values.tobytes() == two[name].values.tobytes(), name


def held(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 30 rounds."""
    out = tmp_path_factory.mktemp("cli") / "finished"
    assert main([*RUN.split(), "--rounds", "30", "--out", str(out)]) == 0
    return out


@pytest.fixture
def finished(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to spoil."""
    return Path(shutil.copytree(whole, tmp_path / "out"))


# --- what there is -------------------------------------------------------------------------------


def test_every_command_explains_itself(shell: Shell) -> None:
    """And `run` and `sweep` every option that they have."""
    assert shell("--version").out == f"jaxfl {jaxfl.__version__}\n"
    commands = COMMANDS.keys() - {"-h", "--help", "--version"}
    assert all(command in shell().out for command in commands)
    for command in commands:
        text = explained(command, [])
        assert text.startswith(f"usage: jaxfl {command}")
        assert command == "completion" or ("--config FILE" in text and "--json" in text)
        assert f"\n  jaxfl {command} " in text  # an example
        assert max(map(len, text.splitlines())) <= 108
        if command in ("run", "sweep"):
            fields = {name for kind in (Setup, Counts, Session) for name in options(kind)}
            said = {option[2:].replace("-", "_") for option, *_ in SAID.findall(text)}
            assert fields < said


HELP = {
    "soteriafl_sgd": [
        "--eps X eps that the noise is calibrated to (default: 5)",
        "--lr X step size eta of the server (default: Corollary 1)",
        "--k K coordinates that a message carries (default: d/20)",
        "estimate (default: calibrated: the least that is proven for eps)",
    ],
    "soteriafl_sgd --clip-mode batch": ["coordinate of a client's estimate --k K"],
    "ldp_svrg --compressor qsgd": ["--refresh X", "--levels "],
}


def test_help_says_what_a_hyper_parameter_is_by_default(shell: Shell) -> None:
    for words, said in HELP.items():
        text = " ".join(shell(f"run {words} --help").out.split())
        assert all(one in text for one in said)
        assert text.index("--lr X") < text.index("--data NAME")
    assert not re.search(r"--shift\b", text)  # of no part of the last


@pytest.mark.parametrize("name", ALGORITHMS)
def test_defaults_that_help_prints_as_constants_depend_on_no_problem(name: str) -> None:
    made = jaxfl.algorithm(name)
    said = {name: text for name, text in defaults(made).items() if reads(text)}
    assert said.keys() >= {"eps", "sigma"} & made.names - {"sigma"}
    for n, m, d, rounds in ((1, 20, 30, 7), (20, 4000, 300, 30)):
        facts = ProblemFacts(n, m, m, d, rounds, 2.5, (m,), 7.0, True, True)
        with contextlib.suppress(InputError):  # of one node, or of several
            values = planned(made, {}, facts)
            found = {**values.values, **(values.asked.way if values.asked else {})}
            assert {name: f"{found[name]:g}" for name in said} == said


def test_list_names_everything(shell: Shell) -> None:
    text, tables = shell("list").out, json.loads(shell("list --json").out)
    for name in (*jaxfl.ALGORITHMS, *PARTITIONS, *jaxfl.parts.compressors.COMPRESSORS):
        assert re.search(rf"^  {name}  ", text, re.MULTILINE)
    lines = shell("list samplers").out.splitlines()
    assert [line.split()[0] for line in lines] == list(jaxfl.parts.sampling.SAMPLERS)
    assert {f"{role}s" for role in BY_NAME} < set(tables)
    assert all(about["summary"] for table in tables.values() for about in table.values())
    params = {p["option"]: p for p in tables["algorithms"]["soteriafl_sgd"]["parameters"]}
    assert params["--k"]["integer"]
    assert (params["--delta"]["high"], params["--delta"]["open_high"]) == (1, True)


# --- running -------------------------------------------------------------------------------------


def test_it_is_simulate(whole: Path) -> None:
    """The command adds nothing to the numbers."""
    data = jaxfl.data.load("synthetic", n=3, m=8, d=4, classes=2)
    data = jaxfl.data.split(data, 3, "contiguous")
    problem = jaxfl.Problem(jaxfl.models.logistic(4), data)
    numbers = {"lr": 0.2, "batch": 3, "k": 2, "sigma": 0.05}
    ours = jaxfl.simulate("soteriafl_sgd", problem, rounds=30, **numbers).dataset()
    ds = jaxfl.load(whole / "result.nc")
    for name in ours.variables:
        assert ours[name].values.tobytes() == ds[name].values.tobytes(), name


def test_a_summary_states_the_proof_once(tmp_path: Path, shell: Shell) -> None:
    """The claim of the paper is in `show`; one client is not the worst of several, and sends nothing."""
    run = f"run dp_sgd --clients 1 --rounds 3 --lr 0.1 --no-plot --out {tmp_path / 'a'}"
    words = shell(run).out
    assert "noise multiplier" in words
    assert words.count("proven for one record") == 1
    for other in ("paper's", "worst client", "uplink", "downlink"):
        assert other not in words
    shown = shell("show", tmp_path / "a").out
    assert "the paper's formula" in shown
    assert "uplink" not in shown
    assert "at 1 % FPR" in shell("show", tmp_path / "a", "--card").out
    facts = json.loads(shell("show", tmp_path / "a", "--card --json").out)
    assert facts["card"]["eps"] == facts["privacy"]["proven"]
    file = tmp_path / "a" / "result.nc"
    assert "needs the folder of a run" in shell.refused("show", file, "--card")
    assert "leave one out" in shell.refused("show", file.parent, "--card --json --metric loss")


@pytest.mark.parametrize("owned", [True, False])
def test_a_summary_of_test_metrics_says_test(owned: bool, tmp_path: Path, shell: Shell) -> None:
    """The worst client is that of test examples, where their clients are known."""
    data = "--data digits --clients 4" + " --test-share 0.2" * owned
    out = tmp_path / "a"
    words = shell(
        f"run ldp_sgd {data} --rounds 3 --lr 0.1 --sigma 1 --metrics-on test --out {out}"
    ).out
    assert "training loss" not in words + (notes := shell("show", out).out)
    assert "training accuracy" not in words + notes
    assert words.count("test loss") == words.count("test accuracy") == 1
    assert ("worst client" in words) == owned
    figure = plots.curves(jaxfl.load(out))
    assert [ax.get_ylabel() for ax in figure.axes[:2]] == ["test loss", "test accuracy"]
    heads = [column.heading for column in tables.table(jaxfl.load(out)).columns]
    assert [heads.count(name) for name in ("test loss", "test accuracy")] == [1, 1]


def libsvm(folder: Path, classes: int) -> Path:
    """A file of 60 records with four unscaled features."""
    x = np.random.default_rng(0).integers(1, 9, (60, 4))
    rows = [f"{i % classes} 1:{a} 2:{b} 3:{c} 4:{d}" for i, (a, b, c, d) in enumerate(x)]
    (file := folder / "mine.libsvm").write_text("\n".join(rows))
    return file


@pytest.mark.full
def test_all_kinds_of_options(tmp_path: Path, shell: Shell) -> None:
    """A LIBSVM file, a network, other parts, double precision, a limit."""
    file, out = libsvm(tmp_path, 3), tmp_path / "out"
    shell(f"""
        run --data {file} --clients 4 --partition dirichlet --alpha 5 --partition-option min_size=5
        --test-share 0.2 --model mlp --hidden 5 4 --activation tanh --regularizer l2 --strength 0.01
        --dtype float64 --compressor qsgd+random_k --levels 4 --k 3 --batch 2
        --sampler without_replacement --participation uniform --cohort 2 --noise-draw per_client
        --clip-mode batch --noise paper --rounds 20 --eval-every 5 --max-bits 1000 --device cpu
        --seed 7 --storage bfloat16 --quiet --out {out}
    """)
    ds = jaxfl.load(out / "result.nc")
    about = results.config(ds)
    parts = about["settings"]["parts"]
    assert (ds["x"].dtype, ds["x"].size) == (np.float64, 4 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3)
    assert about["ended"].startswith("stopped: ")
    assert (parts["compressor"], parts["storage"]) == ("qsgd+random_k", "bfloat16")
    assert about["values"]["cohort"] == 2
    assert "no per-record" in results.privacy(about)
    shell("run --quiet --resume", out)  # from the stored absolute path
    assert results.config(jaxfl.load(out / "result.nc"))["ended"] == about["ended"]


def test_demonstration_says_whose_numbers_they_are(tmp_path: Path, shell: Shell) -> None:
    shell("run", QUIET, "--rounds 60 --out", tmp_path)
    ds = jaxfl.load(tmp_path / "result.nc")
    sources = results.config(ds)["sources"]
    assert sources["lr"] == sources["batch"] == "demonstration"
    assert ds["loss"].values[-1] < 0.7 * ds["loss"].values[0]
    shell(RUN, "--rounds auto --force --out", tmp_path)
    about = results.config(jaxfl.load(tmp_path / "result.nc"))
    assert about["sources"]["rounds"].startswith("Corollary 1")


def test_diverging_is_reported(tmp_path: Path, shell: Shell) -> None:
    shown = shell(LOUD.replace("--lr 0.2", "--lr 1e38"), "--rounds 30 --out", tmp_path)
    assert "diverged" in shown.out
    assert "best" not in shown.out  # a loss on the way there is no result
    last = shown.err.splitlines()[-1]
    assert last.startswith("jaxfl: soteriafl_sgd on synthetic diverged: the loss is not finite")
    assert last.endswith("take a smaller --lr.")


def test_warnings_come_last_and_name_options(tmp_path: Path, shell: Shell) -> None:
    """Of features that are unscaled, and of a run whose best loss is its first; none with --quiet."""
    line = f"""
        run ldp_sgd --data {libsvm(tmp_path, 2)} --clients 3 --rounds 5 --batch 2 --lr 50 --sigma 9
        --no-plot --force --out {tmp_path}/out
    """
    unscaled, worse = shell(line).err.splitlines()[-2:]
    assert unscaled.startswith("jaxfl: 4 of 4 features of mine.libsvm are unscaled")
    assert "--data-option scale=true" in unscaled
    assert worse.startswith("jaxfl: The last loss of ldp_sgd on mine.libsvm, ")
    assert "take a smaller --lr than 50 or a larger --batch or a smaller --sigma" in worse
    assert shell(line, "--quiet").err == ""
    shared = shell(line.replace("ldp_sgd", "dp_fedavg"), "--update-clip 9").err
    assert "take a smaller --server-lr or a smaller --update-clip or a smaller --sigma" in shared
    adapted = shell(line.replace("ldp_sgd", "adaptive_fedavg")).err
    assert "take a smaller --server-lr or a smaller --quantile or a smaller --sigma" in adapted
    assert "unscaled" not in shell(line, "--data-option scale=true").err


# --- going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_and_resumed_is_uninterrupted(
    number: int,
    status: int,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shell: Shell,
) -> None:
    """By --resume, or by the same command; and the speed that is shown is of the rounds of this call."""
    parts = tmp_path / "parts"
    monkeypatch.setattr("jaxfl.engine.compute.SECONDS", 0.0)  # so that every call is shown

    def stop(bar: object, now: jaxfl.engine.progress.Progress) -> None:
        if now.done >= 1:
            signal.raise_signal(number)

    with monkeypatch.context() as patch:
        patch.setattr(compute, "show", stop)
        last = shell(LOUD, "--rounds 30 --out", parts, status=status).err.splitlines()[-1]
    kept = "what is computed is saved"
    assert last == f"jaxfl: interrupted; {kept}: continue with `jaxfl run --resume {parts}`."
    assert not (parts / "result.nc").exists()
    assert "is unfinished" in shell.refused("show", parts)
    again = shutil.copytree(parts, tmp_path / "again")
    shown = shell("run --resume", parts)
    assert "round 30/30" in shown.err
    assert " 0 rounds/s" not in shown.err
    eps = "proven for one record", "seed is secret"
    for words in ("sigma", "given", "claimed eps ", "uplink", " s on CPU", *eps):
        assert words in shown.out
    assert set(held(parts)) == {"result.nc", "curves.png", "planned.jsonl", "config.json"}
    assert shell(RUN, "--rounds 30 --out", again) == ("", "")
    same_arrays(whole, parts)
    same_arrays(whole, again)


def test_more_rounds(finished: Path, shell: Shell) -> None:
    before = jaxfl.load(finished)["loss"].values
    assert "(1 to continue)" in shell("run --plan --rounds 34 --extend", finished).err
    assert jaxfl.load(finished)["loss"].values.tolist() == before.tolist()
    shell("run --quiet --no-plot --rounds 34 --extend", finished)
    found = jaxfl.load(finished)["loss"].values
    assert (len(found), found[:31].tolist()) == (35, before.tolist())
    assert "lies before round 34" in shell("run --rounds 12 --extend", finished, status=2).err


def test_more_rounds_with_the_same_noise(tmp_path: Path, shell: Shell) -> None:
    """As Run.extend; more rounds with a given eps begin again, and the summary says it."""
    out = tmp_path / "a"
    shell("run ldp_sgd", SYNTHETIC, "--eps 2 --rounds 8 --eval-every 1 --no-plot --out", out)
    before, told = jaxfl.load(out)["loss"].values, shell("account", out, "--rounds 12 --json").out
    assert "(1 to begin again)" in (shown := shell("run --plan --rounds 12 --extend", out).err)
    assert "no eps holds for both: continue" in shown
    assert "--until T`" in shown
    refused = {
        "--sigma 4": "or continue with the same noise with --until T",
        "--until 4": "at least 8",
    }
    for words, says in refused.items():
        assert says in shell("run --rounds 8 --extend", out, words, status=2).err
    shell("run --quiet --no-plot --until 12 --extend", out)
    now, then = (json.loads(words) for words in (shell("account", out, "--json").out, told))
    assert (now, then["eps_so_far"] < now["eps"]) == ({**then, "eps_so_far": now["eps"]}, True)
    found = jaxfl.load(out)["loss"].values
    assert (len(found), found[:9].tolist()) == (13, before.tolist())
    shell("run --quiet --no-plot --resume", out)
    assert "used that key" not in shell("show", out).out
    shell("run --quiet --no-plot --rounds 12 --extend", out)
    assert "the shorter run that this folder held did, and no eps" in shell("show", out).out


class Callback:
    """Python calls its end, and what that raises is lost."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_a_signal_that_a_callback_swallows_still_arrives(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The next evaluation raises it again, and nothing is printed."""
    with Interrupts() as interrupts:
        one = Callback()
        del one
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    assert signal.getsignal(signal.SIGTERM) is not interrupts.arrive
    assert capsys.readouterr().err == ""


BUSY = """
import hashlib, os, threading
from jaxfl.cli.interrupt import Interrupts

with Interrupts():
    threading.Timer(1, os.write, (1, b"busy\\n")).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # compiled code, in which Python raises nothing
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_acknowledged_at_once_and_a_second_one_ends(number: int, status: int) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", BUSY]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "busy\n"
            began = time.monotonic()
            process.send_signal(number)
            assert process.stderr.readline().startswith("interrupted: stopping after ")
            assert time.monotonic() - began < 5  # 0.2 s, and whatever else this machine does
            process.send_signal(number)
            assert process.wait(10) == status
        finally:
            process.kill()


# --- nothing is lost -----------------------------------------------------------------------------


def fails(error: BaseException) -> Callable[..., None]:
    def raises(*args: object) -> None:
        raise error

    return raises


def test_a_finished_run_is_not_computed_again(whole: Path, shell: Shell) -> None:
    words, nothing = f"{LOUD} --rounds 30 --no-plot --out {whole}", "nothing is left to compute"
    assert f"{whole} holds this run: {nothing}; --force computes it anew" in shell(words).err
    assert f"{nothing}\n" in shell("run --no-plot --resume", whole).err


def test_a_plan_answers_for_the_folder(whole: Path, shell: Shell) -> None:
    """What is left of these runs; of others all, and that the folder is not theirs, but for --force."""
    words, before = f"{LOUD} --rounds 30 --plan --out {whole}", held(whole)
    assert "done: all 1 run; left: nothing" in shell(words).err
    assert "left" not in shell(words, "--force").err
    other = shell(words, "--seed 5").err
    assert other.startswith("1 run in 1 compilation")
    assert "holds other runs: its seeds is 0 there, and 5 here: name another folder" in other
    assert "holds a run: name another" in shell(words.replace("run", "sweep", 1)).err
    assert "holds" not in shell(words, "--clip -1", status=2).err
    assert held(whole) == before


def test_another_configuration_needs_force(finished: Path, shell: Shell) -> None:
    before, other = held(finished), f"{RUN} --rounds 30 --seed 5 --out {finished}"
    assert "holds other runs: its seeds is 0 there, and 5 here" in shell.refused(other)
    # A mistake that is found late replaces nothing, even with --force.
    shell.refused(other, "--shift 7 --force")
    assert held(finished) == before
    shell(other, "--force")
    assert set(held(finished)) == set(before)
    assert json.loads((finished / "config.json").read_text())["words"][-2:] == ["--seed", "5"]


@pytest.mark.parametrize("mark", ["sweep", "another", "nothing"])
def test_what_is_not_of_a_run_is_never_replaced(mark: str, tmp_path: Path, shell: Shell) -> None:
    (tmp_path / "result.nc").write_text("hours of work")
    said = "holds a run or a sweep already"
    if mark != "nothing":
        said = f"{tmp_path} holds {'a sweep' if mark == 'sweep' else 'another config.json'}"
        about = {"command": "sweep"} if mark == "sweep" else {}
        (tmp_path / "config.json").write_text(json.dumps(about))
    before = held(tmp_path)
    for more in ("", "--force"):
        assert said in shell.refused(RUN, "--rounds 30 --out", tmp_path, more)
        assert held(tmp_path) == before


# --- mistakes ------------------------------------------------------------------------------------

# command line -> what the one sentence has to contain; FINISHED is the folder of a finished run
MISTAKES = {
    "run --partition dirichelt": "'dirichlet'",
    "rnu": "'rnu': did you mean run?",
    "run --rounds 999999999999999999999": "at most 2147483647",
    "run --data /dev/null": "Cannot read /dev/null: it is not a file",
    "run --rond 5": "--rond: did you mean --rounds",
    "run --learning-rate 0.1": "--learning-rate: did you mean --lr?",
    "run ldp_sgd --eps 1 4": "`jaxfl run` computes one run, and --eps has 2 values: `jaxfl sweep`",
    "run --lr 0.1,0.3": "separated by spaces: 0.1 0.3",
    "run --lr -1e-3": "-0.001",
    "run --test-share 1.5": "--test-share 1.5 must be above 0 and below 1",
    "run --model mlp --hidden 5 x": "--hidden x",
    "run --regularizer l2": "--regularizer l2 needs --strength",
    "run --regularizer l2 --strength -1": "--regularizer l2:-1.0: --strength -1 must be",
    "run --lr 1 --lr 2": "--lr is given twice, the second time as 2",
    "run --eps 1 --sigma 2": "--sigma 2 both",
    "run --resume .": "config.json does not exist, so there is no run",
    "sweep --resume FINISHED": "holds a run, and no sweep: continue with `jaxfl run --resume",
    "run --resume FINISHED --rounds 12": "--rounds does not go with --resume",
    "run --extend FINISHED --lr 0.1": "--extend adds rounds alone: for --lr 0.1 begin another",
    "run --extend FINISHED --eps 4": "was begun without --eps, and no value can be added",
    "account nosuch --rounds 3": "There is no folder nosuch, and there is no algorithm or question",
    "account nosuchthing --delta 1e-5": ", or one of your own, which @register names in an",
    "account ldp_sgd --rounds +3 --delta 1e-5": "+3 must have no plus sign: write 3, or the total of",
    "audit nosuch": ", or one of your own, which @register names in an",
    "account ldp_sgd --rounds 3 --delta 1e-5": "needs samples: give --samples, the number of records",
    "run ldp_sgd --graph ring": "no part of ldp_sgd named 'graph'",
    "run ldp_sgd --choose-by loss": "--choose-by is an option of `jaxfl sweep`",
    "run --seeds 2": "--seed has 2 values",
}


def test_a_folder_of_python_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "result.nc").touch()
    refused(
        lambda: folder.read(tmp_path, "run"),
        r"was made in Python.* resume=True, and ask run\.privacy",
    )


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_sentence(
    words: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.chdir(tmp_path)
    assert MISTAKES[words] in shell.refused(words.replace("FINISHED", str(whole)))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="there is one")
def test_a_device_that_is_not_there_is_refused(shell: Shell) -> None:
    shell.refused("run --device gpu")


ALPHA = """
import jaxfl
from jaxfl.core.types import Param

@jaxfl.register
def mine(**parts):
    made = jaxfl.algorithm("ldp_gd", **parts)
    return made._replace(params=(*made.params, Param("alpha", "what is called as an option is")))
"""


def test_a_hyper_parameter_may_be_called_as_an_option_is(tmp_path: Path, shell: Shell) -> None:
    (tmp_path / "mine.py").write_text(ALPHA)
    words = f"--import {tmp_path}/mine.py --sigma 1 --rounds 2 --plan"
    shell("run mine --hyper-alpha 3 --partition dirichlet --alpha 5", words)
    assert "alpha" in shell.refused("sweep ldp_gd --hyper-alpha 3 4", words)


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


def test_a_full_disk_is_one_sentence() -> None:
    """And to list what there is no device is started."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "jaxfl", "list", "data"], stdout=full, stderr=subprocess.PIPE,
            text=True, timeout=120, env={**os.environ, "JAX_PLATFORMS": "none_such"},
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "jaxfl: error: cannot write: No space left on device.\n"


def test_the_last_net(monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    monkeypatch.setattr("jaxfl.cli.record", dict)  # no file is imported
    for error, says in (
        (MemoryError("Unable to allocate 7 TiB"), "the memory is too small (Unable to allocate"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "the memory is too small"),
        (OverflowError("too large"), "a number is too large to compute with"),
        (PermissionError(13, "Permission denied", "a.csv"), "cannot read or write a.csv: Perm"),
        (InputError("It is large", "{memory}", suggested={"memory": None}), "large: --memory."),
    ):
        monkeypatch.setattr("jaxfl.cli._dispatch", fails(error))
        assert says in shell.refused("list")


def test_compiled_programs_are_bounded(tmp_path: Path) -> None:
    """Those that were read last are kept."""
    for i in range(4):
        (file := tmp_path / f"{i}-cache").write_bytes(bytes(100))
        os.utime(file, (10 + i % 3, 10 + i % 3))
    bound(tmp_path, 250)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1-cache", "2-cache"]
    bound(tmp_path / "nowhere", 1)
