"""What scripts use: a file of options, results as JSON, and completion in shells."""

import contextlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from scripts import ROOT
from told import SYNTHETIC, Shell

import jaxfl
from jaxfl.cli import COMMANDS, main
from jaxfl.cli.config import with_config
from jaxfl.cli.lists import KINDS, SHELLS
from jaxfl.cli.parser import parse

pytestmark = pytest.mark.once


# --- --config ------------------------------------------------------------------------------------

# command, what is on the line and in the file, and the words that this makes
FILES = [
    ("run --eps 2", 'algorithm = "ldp_gd"', "ldp_gd --eps 2"),
    ("run cdp_gd --lr 1", 'algorithm = "ldp_gd"\nlr = 2', "cdp_gd --lr 1"),
    ("run --lr -1e-3", "eps = 1", "--lr=-1e-3 --eps 1"),
    ("run --no-plot", "no_plot = true\ntest_share = 0.5", "--no-plot --test-share=0.5"),
    ("run", "quiet = true\nforce = false\nbound = true", "--quiet --bound"),
    ("run", 'data-option = {n = 3, s = "5"}', '--data-option n=3 --data-option s="5"'),
    ("sweep", 'algorithms = ["a", "b"]\nlr = ["cosine:1", -2, inf]', "a b --lr cosine:1 -2 inf"),
    ("plot out", 'label = {lr = "step", eps = 1}', "out --label lr=step --label eps=1"),
    ("show", 'folder = "out"\n[where]\neps = [1, 5]\nlr = 2', "out --where eps=1,5 --where lr=2"),
    (
        "account --noise_ratio 3",
        "noise-ratio = 1\nconvex = false",
        "--noise-ratio 3 --convex=false",
    ),
]


def test_a_file_stands_for_words(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    for words, table, expected in FILES:
        command, *line = words.split()
        file.write_text(table)
        found, _ = with_config([*line, "--config", str(file)], COMMANDS[command].parser)
        assert [word.replace(", ", ",") for word in found] == expected.split()


def test_the_file_of_the_documentation_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "scripting.md").read_text(encoding="utf-8")
    (file := tmp_path / "grid.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    words, _ = with_config(["--eps", "8", "--config", str(file)], COMMANDS["sweep"].parser)
    study, session = parse("sweep", words)
    assert study.numbers == {"lr": [0.03, 0.1, 0.3], "eps": [8]}
    assert (study.seeds, session.no_plot) == ([0, 1, 2], True)


def test_a_command_reads_its_file(tmp_path: Path, shell: Shell) -> None:
    (file := tmp_path / "a.toml").write_text("eps = 3\nclients = 5\n")
    words = "calibrate cdp_gd --samples 100 --rounds 3 --clip 1 --delta 1e-3"
    told = shell(words, "--config", file, "--clients 4").out
    assert told == shell(words, "--eps 3 --clients 4").out


MISTAKES = {
    "lrr = 3": "a.toml: There is no option 'lrr': did you mean 'lr'?",
    "lr = [1, 2]": "a.toml: `jaxfl run` computes one run, and --lr has 2 values",
    "lr = true": "a.toml: lr = True must be a number or a text",
    "hidden = []": "a.toml: hidden = [] must not be empty",
    "no-plot = 1": "a.toml: no-plot = 1 must be true or false",
    "no_plot = true\nno-plot = true": "a.toml has the option no-plot twice",
    "lr = 1 2": "a.toml is damaged, or not a TOML configuration",
}  # fmt: skip


def test_a_mistake_in_a_file_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.chdir(tmp_path)
    for table, words in MISTAKES.items():
        Path("a.toml").write_text(table)
        assert words in shell.refused("run --config a.toml")


def test_a_mistake_on_the_line_is_not_of_the_file(tmp_path: Path, shell: Shell) -> None:
    (file := tmp_path / "a.toml").write_text("lr = 1")
    assert "a.toml" not in shell.refused("run --rounds 0 --config", file)
    assert "given twice" in shell.refused("run --config a --config", file)
    assert "b.toml does not exist" in shell.refused("show --config b.toml")
    assert "--config needs a value" in shell.refused("sweep --config")


# --- completion ----------------------------------------------------------------------------------

BASH = """
source {script}
complete -p jaxfl >/dev/null || exit 1
COMP_WORDS=({words} "{last}"); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_jaxfl jaxfl "{last}"
echo "${{COMPREPLY[*]}}"
"""
COMPLETED = {
    "run --part": ("--partition", "--partition-option", "--participation"),
    "run ldp_gd --partition diri": ("dirichlet",),
    "sweep ldp_gd --lr 1 2 --ep": ("--eps", "--epoch"),
    "account event --noise-m": ("--noise-multiplier",),
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scripts")
    for shell in SHELLS:
        with (folder / shell).open("w") as file, contextlib.redirect_stdout(file):
            assert main(["completion", shell]) == 0
    return folder


def test_a_shell_reads_its_script(scripts: Path) -> None:
    for shell in filter(shutil.which, SHELLS):
        done = subprocess.run([shell, "-n", scripts / shell], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(scripts: Path) -> None:
    for words, completed in COMPLETED.items():
        *before, last = ["jaxfl", *words.split()]
        text = BASH.format(script=scripts / "bash", words=" ".join(before), last=last)
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
        assert sorted(done.stdout.split()) == sorted(completed)


# --- --json --------------------------------------------------------------------------------------

SMALL = f"{SYNTHETIC} --sigma 1 --rounds 3"
QUESTION = "--samples 100 --batch 10 --rounds 5 --clip 1 --delta 1e-3"
RUN = {"algorithm", "problem", "ended", "rounds", "hyper_parameters", "sources", "metrics"} | {
    "best_loss", "privacy", "seconds", "compile_seconds", "files", "parts"
}  # fmt: skip
TABLE = {"title", "rows", "notes"}
# command -> keys of what it prints
ANSWERS = {
    f"run ldp_gd {SMALL} --no-plot --out far --lr 1e30 --max-bits 1": RUN,
    f"sweep ldp_gd {SMALL} --lr 0.2 0.4 --no-plot --quiet --out grid": {*TABLE, "files"},
    f"sweep ldp_gd {SMALL} --lr 0.2 0.4 --plan": {*jaxfl.engine.progress.Plan._fields},
    f"run ldp_gd {SMALL} --plan": {*jaxfl.engine.progress.Plan._fields},
    "show RUN": RUN,
    "show RUN --metric loss": TABLE,
    "show SWEEP": TABLE,
    "compare SWEEP SWEEP": TABLE,
    "plot RUN --out pictures --format svg": {"files"},
    "list": {*KINDS},
    "list parts": {"graphs", "compressors", "samplers", "participations", "aggregations"},
    f"account ldp_sgd {QUESTION} --sigma 0": {"kind", "sigma", "eps", "delta", "method", "status"}
    | {"protects"},
    "audit ldp_gd --samples 4 --rounds 3 --runs 100 --eps 4 --delta 1e-3": None,
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    for command, lr in (("run", "0.1"), ("sweep", "0.1 0.2")):
        words = f"{command} ldp_gd {SMALL} --lr {lr} --no-plot --quiet --out"
        assert main([*words.split(), str(out / command)]) == 0
    return out


@pytest.mark.parametrize("words", ANSWERS)
def test_a_result_is_one_strict_object(
    words: str, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.chdir(tmp_path)
    line = words.replace("RUN", str(results / "run")).replace("SWEEP", str(results / "sweep"))
    found = json.loads(shell(line, "--json").out, parse_constant=pytest.fail)
    assert isinstance(found, dict)
    if ANSWERS[words] is not None:
        assert set(found) == ANSWERS[words]
    for file in found.get("files", []):
        assert Path(file).exists()


def test_a_run_answers_what_other_rounds_would_spend(
    results: Path, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all m = 8 records of a client in each release, as by name; its folder is read where it lies."""
    folder = shutil.copytree(results / "run", tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}
    found = json.loads(shell("account", results / "run", "--rounds 9 --delta 1e-4 --json").out)
    by_name = jaxfl.account("ldp_gd", samples=8, clip=1.0, sigma=1.0, rounds=9, delta=1e-4)
    assert found["eps"] == pytest.approx(by_name["eps"], rel=1e-6)
    assert found["delta_from"] == "given"
    assert found["eps_so_far"] < found["eps"]
    assert (found["method"], found["status"]) == (by_name["method"], by_name["status"])
    usual = json.loads(shell("account", results / "run", "--json").out)
    assert usual["eps_so_far"] == usual["eps"]
    usual = usual["delta"], usual["delta_from"]
    assert usual == (1e-3, "of the run, default: min(0.001, 0.1/m)")
    assert "takes no --sigma" in shell.refused("account", results / "run", "--sigma 2")
    sweep = shutil.copytree(results / "sweep", tmp_path / "sweep")
    shell("sweep --no-plot --quiet --sigma 2 --extend", sweep)
    assert "name one, as in --where sigma=1." in shell.refused("account", sweep)
    assert "did you mean 'sigma'?" in shell.refused("account", sweep, "--where sigm=1")
    assert shell("account", sweep, "--where sigma=1 clip=1 --rounds 9").out
    assert "--where is for sweeps" in shell.refused("account", folder, "--where sigma=1")
    of = shell("account", sweep, "--where sigma=1 lr=0.1 --rounds 9 --delta 1e-4 --json")
    assert json.loads(of.out)["eps"] == found["eps"]
    monkeypatch.setattr(shutil, "copytree", None)
    shell("account", folder, "--rounds 4")
    shell("show", folder, "--card")
    assert {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]} == before
    (folder / "chunks" / "state-00000.npz").unlink()
    assert "has lost the end of its run" in shell.refused("account", folder)
    (folder / "result.nc").unlink()
    assert f"`jaxfl run --resume {folder}`" in shell.refused("account", folder)


def test_rows_have_values_and_errors(results: Path, shell: Shell) -> None:
    found = json.loads(shell("show", results / "sweep", "--json --choose-by none").out)
    assert [row["lr"] for row in found["rows"]] == [0.1, 0.2]
    assert all(row["loss"] > 0 and row["loss_se"] == "nan" for row in found["rows"])


def test_a_mistake_leaves_standard_output_empty(shell: Shell) -> None:
    assert "@register names in an --import FILE" in shell.refused("run my_own_algorithm")
    for words in ("run --rounds 0", "show nowhere", "completion tcsh"):
        shell.refused(words, "--json" * (words[0] != "c"))


def test_an_audit_that_refutes_ends_with_a_status_of_its_own(shell: Shell) -> None:
    words = "audit ldp_sgd --samples 8 --rounds 2 --runs 200 --batch 8 --eps 8 --claimed"
    out = shell(words, "8").out
    assert "refutes_claim  no" in out and "power          nothing certified" in out  # noqa: PT018
    assert "refutes_described" not in out  # nothing is described that is not proven
    assert "refutes_claim  yes" in shell(words, "0.1", status=3).out
