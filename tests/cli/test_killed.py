"""Whatever instant a run or a sweep is killed at, the command that the program names goes on."""

import contextlib
import functools
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from told import SYNTHETIC

import jaxfl
from jaxfl.cli import main

pytestmark = pytest.mark.once

QUIET = f"--sigma 0.1 --quiet --no-plot {SYNTHETIC}"
SWEEP = f"sweep ldp_gd --lr 0.1 0.2 {QUIET} --rounds 4".split()
TWICE = [*SWEEP, "5"]  # another number of rounds: two chunks
RUN = f"run ldp_gd --lr 0.1 {QUIET} --rounds 4".split()
CHANGES = {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir"}
watched: list[Callable[[], None]] = []


def hook(event: str, args: tuple[Any, ...]) -> None:
    reads = event == "open" and args[1] in (None, "r", "rb", "r+b")
    if watched and event in CHANGES and not reads:
        with contextlib.suppress(IndexError):
            watched.pop()()


@functools.cache
def hooked() -> None:
    sys.addaudithook(hook)  # for good


@contextlib.contextmanager
def moments(folder: Path, into: Path) -> Iterator[list[Path]]:
    """A copy of ``folder`` before each change of a file: what a kill at that instant leaves."""
    hooked()
    copies: list[Path] = []
    known: set[tuple[Any, ...]] = set()

    def copy() -> None:
        found = sorted(file for file in folder.rglob("*") if file.is_file())
        state = tuple((f.relative_to(folder), f.read_bytes()) for f in found if f.suffix != ".part")
        new = (folder.exists(), state) not in known
        known.add((folder.exists(), state))
        if new:
            copies.append(into / f"moment {len(copies)}")
            if folder.exists():
                shutil.copytree(folder, copies[-1], symlinks=True)
        watched.append(copy)

    watched.append(copy)
    try:
        yield copies
    finally:
        watched.clear()


def go_on(folder: Path, words: list[str], told: Callable[[], str]) -> list[str]:
    """Do as the program says until the folder has a result; return the commands."""
    done: list[str] = []
    while not (folder / "result.nc").exists():
        main(["show", str(folder)])  # it names the command, also where it shows what is finished
        text = told()
        named = re.search(r"`jaxfl (.*)`", text)
        done.append(named[1] if named else "again")
        assert len(done) < 4, (done, text)
        again = [*words, "--out", str(folder)]
        main([*shlex.split(named[1]), "--quiet", "--no-plot"] if named else again)
    return done


def same(one: Path, other: Path) -> bool:
    a, b = (jaxfl.load(folder / "result.nc") for folder in (one, other))
    return bool(a.drop_attrs().equals(b.drop_attrs()))


@pytest.mark.plain
@pytest.mark.parametrize("words", [SWEEP, RUN, pytest.param(TWICE, marks=pytest.mark.full)])
def test_every_moment(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A sweep and a run with a checkpoint: what a kill leaves goes on to the whole result."""
    monkeypatch.setattr("jaxfl.engine.compute.SAVE_EVERY", 0.0)
    monkeypatch.setattr("jaxfl.engine.compute.SHARE", 1e9)
    out, into = tmp_path / "it's", tmp_path / "at"
    with moments(out, into) as copies:
        assert main([*words, "--out", str(out)]) == 0
    assert len(copies) > 4
    other = {"run": "sweep", "sweep": "run"}[words[0]]
    ways = set()
    for copy in copies:
        if (copy / "config.json").exists():
            assert main([other, "--resume", str(copy)]) == 2
            way = f"`jaxfl {words[0]} --resume {shlex.quote(str(copy))}`"
            assert way in capsys.readouterr().err
        ways |= set(go_on(copy, words, lambda: capsys.readouterr().err))
        assert same(copy, out), copy
    assert any(way.startswith(f"{words[0]} --resume") for way in ways)
    assert not [*out.rglob("*.part"), *out.rglob("*.before")]
