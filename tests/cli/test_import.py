"""`--import FILE`: what a file registers is known to every command, and to folders that are resumed."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from told import Shell

import jaxfl
from jaxfl.algorithms.registry import TABLES
from jaxfl.cli import imports

pytestmark = pytest.mark.once

MINE = '''
import numpy as np
import optax

import jaxfl


@jaxfl.register("data")
def mine(side=4):
    """Bright left or right halves, of three clients."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(3, 20, side, side, 1)).astype("float32")
    labels = rng.integers(0, 2, (3, 20))
    return jaxfl.data.from_clients(list(zip(images, labels)), classes=2)


@jaxfl.register
def heavy_ball(**parts):
    """LDP-SGD with momentum at the server."""
    step = jaxfl.parts.servers.optimizer(lambda hp: optax.sgd(hp["lr"], 0.9), name="heavy_ball")
    return jaxfl.algorithm("ldp_sgd", server=step, **parts)


@jaxfl.register("model")
def flat(shape, classes):
    """Softmax regression of an image."""
    return jaxfl.models.flax_model(Flat(), shape)


from flax import linen


class Flat(linen.Module):
    @linen.compact
    def __call__(self, a):
        return linen.Dense(2)(a.reshape(len(a), -1))
'''
GIVEN = "--eps 8 --lr 0.05 --batch 5 --no-plot --quiet"


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shell]:
    """An empty folder with one file."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    modules = set(sys.modules)
    monkeypatch.setattr(imports, "LOADED", {})
    yield Shell(capsys)
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def test_a_study_of_ones_own(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """From an empty folder: a sweep, and then, as in another process, more of it."""
    words = "sweep heavy_ball --import mine.py --data mine --model flat --rounds 4 --out a"
    shell(words, GIVEN)
    found = jaxfl.load("a")
    assert found["algorithm"].values.tolist() == ["heavy_ball"]
    forget(monkeypatch)
    for words in ("--resume a", "--extend a --eps 16"):
        said = shell.refused("sweep", words)
        assert f"to have what it registers, give --import {Path('mine.py').resolve()}, or" in said
    assert not imports.LOADED
    assert "heavy_ball" in shell("show a").out
    asked = "account a --rounds 2"  # its event is that of the file, wherever that is
    assert f"give --import {Path('mine.py').resolve()}, or where it is now." in shell.refused(asked)
    Path("moved").mkdir()
    Path("moved/mine.py").write_text(MINE)
    assert re.search("^eps +[0-9]", shell(asked, "--import moved/mine.py").out, re.MULTILINE)
    forget(monkeypatch)
    shell("sweep --import mine.py --extend a --eps 16 --no-plot --quiet")
    assert jaxfl.load("a")["eps"].values.tolist() == [8, 16]
    Path("mine.py").write_text(MINE + "#")
    assert "mine.py has changed since it was imported" in shell.refused("list --import mine.py")
    forget(monkeypatch)
    said = shell.refused("sweep --import mine.py --resume a")
    assert "mine.py has changed since a was begun with it: restore it" in said


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another process."""
    for table in TABLES.values():
        for name in ("mine", "heavy_ball", "flat"):
            table.pop(name, None)
    monkeypatch.setattr(imports, "LOADED", {})


def test_every_command_knows_what_is_imported(shell: Shell) -> None:
    listed = shell("list --import mine.py").out
    assert "Bright left or right halves, of three clients. [mine.py]" in listed
    assert re.search(r"heavy_ball +LDP-SGD \[mine.py\]", listed)
    said = shell.refused("run hevy --import mine.py")
    assert "or one of those that your code registers: heavy_ball" in said
    words = 'import = "mine.py"\nalgorithm = "heavy_ball"\ndata = "mine"\nmodel = "flat"'
    Path("c.toml").write_text(words)
    shell("run --config c.toml --rounds 2 --out c", GIVEN)
    assert "heavy_ball" in shell("show c").out
    Path("c", "result.nc").unlink()
    for words in ("account c", "show c", "sweep --extend c"):  # what continues it has the file
        said = shell.refused(words, "--import mine.py")
        assert f"`jaxfl run --import {Path('mine.py').resolve()} --resume c`" in said
    refused = shell.refused("run heavy_ball --import mine.py --data mine --partition iid")
    assert "--partition iid does not apply to the data set mine, where clients" in refused


MODEL = "@jaxfl.register('model')\ndef"
MISTAKES = [  # what is in the file, the options, and what is said
    ("def f(:", "", "line 2: SyntaxError"),
    ("x = 1\n\nx / 0", "", "line 4: ZeroDivisionError: division by zero"),
    ("raise SystemExit(3)", "", "line 2: SystemExit"),
    ("jaxfl.register('modle')", "", "did you mean 'model'"),
    (f"{MODEL} cnn(features, classes): pass", "", "There is a model 'cnn' already"),
    (f"{MODEL} b(features, classes): return 3", "--model b", "b = 3 must be a Model"),
    ("@jaxfl.register('data')\ndef c(): return 4", "--data c", "The data set c returned 4"),
    ("@jaxfl.register\ndef a(): return 4", "a", "The algorithm a is 4: make it"),
    (
        "@jaxfl.register\ndef a(): return jaxfl.algorithm('fedsgd', x=1)",
        "a",
        "'a': There is no part",
    ),
]


def test_mistakes_in_a_file(shell: Shell) -> None:
    assert "no.py does not exist" in shell.refused("run --import no.py")
    assert "--import needs a value" in shell.refused("run --import")
    for i, (code, words, says) in enumerate(MISTAKES):
        Path(f"bad{i}.py").write_text(f"import jaxfl\n{code}")
        assert says in shell.refused("run", words, f"--import bad{i}.py")


def test_what_is_broken_blocks_nothing_else(shell: Shell) -> None:
    """A compressor, too, where no option names it."""
    made = "@jaxfl.register{}\ndef {}(): return {}\n"
    good = made.format("", "good", "jaxfl.algorithm('fedsgd')")
    rows = ("", "bad", "1 / 0"), ("('compressor')", "worse", "4")
    Path("mixed.py").write_text("import jaxfl\n" + good.join(made.format(*row) for row in rows))
    said = shell("list --import mixed.py")
    assert re.search(r"^ *good +FedSGD \[mixed.py\]", said.out, re.MULTILINE)
    assert re.search(r"^ *(bad|worse) ", said.out, re.MULTILINE) is None
    first, line, second = said.err.splitlines()
    assert first.endswith(
        "mixed.py: The algorithm 'bad': it raises ZeroDivisionError: division by zero. It is left out."
    )
    assert line.endswith("mixed.py, line 3, in bad: def bad(): return 1 / 0")
    assert second.endswith(
        "The compressor worse is 4: make it return Compressor(...). It is left out."
    )
    words = "run good --import mixed.py --rounds 1 --clients 3 --no-plot"
    assert "The compressor worse is 4" in shell(words, "--compressor qsgd+worse", status=2).err
    shell(words, "--quiet")


def test_a_function_of_a_file_may_import_another(shell: Shell) -> None:
    made = "@jaxfl.register\ndef {}():\n    {}return jaxfl.algorithm('ldp_sgd')\n"
    Path("deeper.py").write_text(f"import jaxfl\n{made.format('second', '')}")
    late = "import deeper\n    "
    Path("lazy.py").write_text(f"import jaxfl\n{made.format('first', late)}")
    assert {"first", "second"} <= {*shell("list algorithms --import lazy.py").out.split()}


REPEATS = """
import jax.numpy as jnp
import jaxfl

@jaxfl.register("compressor")
def repeats():
    def select(key, d, hp):
        return jaxfl.parts.Draw(jnp.zeros(hp.caps["k"], "int32"), jnp.ones(hp.caps["k"]))

    return jaxfl.parts.compressors.random_k()._replace(name="repeats", select=select)
"""


def test_strict_refuses_what_a_probe_refutes(shell: Shell) -> None:
    Path("repeats.py").write_text(REPEATS)
    words = (
        "run cdp_sgd --import repeats.py --compressor repeats --k 2 --eps 1 --batch 5 --rounds 2"
    )
    out = shell.refused(words, "--clients 3 --strict")
    assert "a probe refutes the compressor 'repeats'" in out
    shell(words, "--clients 3 --quiet --out a", status=3)  # what is refuted is no success
    assert "as 'repeats' declares, unchecked" in shell("show a").out
    shell(words.replace("run cdp_sgd", "sweep cdp_sgd"), "--clients 3 --quiet --no-plot", status=3)
    shell(words.replace("repeats --k", "random_k --k"), "--clients 3 --quiet --out own")
