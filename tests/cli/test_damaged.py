"""Damaged files and hostile folders: right, or refused in one sentence; nothing outside is touched."""

import contextlib
import errno
import functools
import json
import os
import random
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grids
import pytest
import xarray
from told import SYNTHETIC, one_sentence, refused

import jaxfl
from jaxfl.cli import main
from jaxfl.engine import results
from jaxfl.engine.store import Store

pytestmark = pytest.mark.once

NUMBERS = f"{SYNTHETIC} --lr 0.1 --sigma 0.1 --rounds 4".split()
QUIET = [*NUMBERS, "--quiet", "--no-plot", "--out"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run and a sweep."""
    home = tmp_path_factory.mktemp("finished")
    assert main(["run", "ldp_gd", *QUIET, str(home / "run")]) == 0
    assert main(["sweep", "ldp_gd", *QUIET, str(home / "sweep")]) == 0
    return home


# --- damaged -------------------------------------------------------------------------------------


def _store(file: Path) -> Store:
    held = Store(file.parent if file.name == "planned.jsonl" else file.parents[1])
    held.look()
    held.most = 1 << 20
    return held


def _chunk(file: Path) -> Any:
    found = _store(file).read(0)
    return None if found is None else {name: a.tolist() for name, a in found.items()}


def _state(file: Path) -> Any:
    found = _store(file).saved(0)
    return None if found is None else (found[1], {name: a.tolist() for name, a in found[0].items()})


READERS: dict[str, Callable[[Path], Any]] = {
    "sweep/result.nc": lambda file: jaxfl.load(file).to_dict(),
    "run/planned.jsonl": lambda file: (_store(file).header, _store(file).chunks),
    "sweep/chunks/chunk-00000.npz": _chunk,
    "run/chunks/state-00000.npz": _state,
}


def damaged(content: bytes, draw: random.Random) -> bytes:
    """One bit, a block of zeros or of noise, a block that is gone or doubled, an early end."""
    at, size = draw.randrange(len(content)), draw.choice([1, 8, 64, 512])
    block = content[at : at + size]
    kind = draw.choice(["bit", "bit", "bit", "zeros", "noise", "gone", "doubled", "end"])
    if kind == "bit":
        return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]
    if kind == "end":
        return content[:at]
    other = {"zeros": bytes(len(block)), "noise": draw.randbytes(len(block)), "gone": b""}
    return content[:at] + other.get(kind, 2 * block) + content[at + size :]


@pytest.mark.plain
@pytest.mark.parametrize("name", READERS)
def test_damaged_files(name: str, finished: Path, tmp_path: Path) -> None:
    """Seed 9: what is read is what was written, or nothing is."""
    count = 20
    shutil.copytree(finished / name.split("/")[0], tmp_path / name.split("/")[0])
    file, read, draw = tmp_path / name, READERS[name], random.Random(9)
    whole, honest = file.read_bytes(), read(file)
    assert honest is not None
    caught = 0
    for _ in range(count):
        file.write_bytes(damaged(whole, draw))
        found = None
        with contextlib.suppress(jaxfl.InputError):
            found = read(file)
        assert found is None or str(found) == str(honest)
        caught += found is None
    assert caught >= count * (0.9 if name.endswith(".nc") else 0.5)


def test_a_damaged_result_is_read_knowingly(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In Python and on the command line, which names the option and what writes the result again."""
    for kind in ("run", "sweep"):
        folder = shutil.copytree(finished / kind, tmp_path / kind)
        file = folder / "result.nc"
        ds = jaxfl.load(file)
        last = ds["loss"].values.ravel()[-1:]
        held = last.astype(last.dtype.newbyteorder(">")).tobytes()
        file.write_bytes(file.read_bytes().replace(held, bytes(len(held))))
        refused(functools.partial(jaxfl.load, file), "damaged or cut short: .* with unchecked=True")
        assert (jaxfl.load(file, unchecked=True)["loss"] == 0).any()
        again = f"`jaxfl {kind} --resume {shlex.quote(str(folder))}` writes it again"
        for words in (["show"], ["plot"], ["compare", str(folder)]):
            assert main([*words, str(folder)]) == 2
            said = capsys.readouterr().err
            assert said.count("\n") == 1
            assert f"damaged or cut short: {again}, or read it as it is with --unchecked." in said
        assert main(["show", str(folder), "--unchecked"]) == 0
        assert capsys.readouterr().out


# --- config.json ---------------------------------------------------------------------------------

CONFIGS: list[dict[str, Any]] = [
    {"words": 3}, {"words": [1.5]}, {"words": ["--lr", "x"]}, {"words": ["--dtype", "float8"]},
    {"words": ["--clients"]}, {"words": ["--data-option", "a"]}, {"words": ["no_algorithm"]},
    {"words": ["--hidden", "3", "x"]}, {"words": ["--seeds", "1.5"]}, {"assumed": []}, {"command": 3},
]  # fmt: skip


def test_fields_of_a_config(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(finished / "run", tmp_path / "out"))
    file, about = folder / "config.json", json.loads((folder / "config.json").read_text())
    for content in ("", "{", "[]", "{}", *(json.dumps({**about, **one}) for one in CONFIGS)):
        file.write_text(content)
        for how in ("--resume", "--extend"):
            assert main(["run", how, str(folder), "--quiet"]) == 2
            said = capsys.readouterr().err
            one_sentence(said)
            assert "config.json" in said


# --- a full disk ---------------------------------------------------------------------------------


@pytest.mark.plain
@pytest.mark.parametrize("room", [0, 2, 4])
def test_a_full_disk_is_one_sentence(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever file there is no room for: the command that was begun goes on when there is."""
    out, honest, synced = tmp_path / "out", os.fsync, []

    def full(file: int) -> None:
        synced.append(file)
        if len(synced) > 2 * room:  # each file and its folder
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        honest(file)

    monkeypatch.setattr(os, "fsync", full)
    status = main(["run", "ldp_gd", *QUIET, str(out)])
    monkeypatch.undo()
    said = capsys.readouterr().err
    if status == 2:
        assert "No space left on device" in said
        assert said.count("\n") == 1
        assert room < 5
        assert out.exists() == (room > 1)
        if room > 1:
            assert main(["run", "--resume", str(out), "--quiet", "--no-plot"]) == 0
    else:
        assert room > 1
    if out.exists():
        assert jaxfl.load(out)["round"].values.tolist() == [0, 1, 2, 3, 4]


# --- hostile -------------------------------------------------------------------------------------

NAMES = [
    "../../../escaped", "/tmp/escaped", "..", "q[/b]", "\x1b[2J\x1b]0;t\x07", "$\\frac{$",
    "\N{RIGHT-TO-LEFT OVERRIDE}cn", "new\nline", ":smile:", "x" * 300,
]  # fmt: skip
DRAWN = {"../../../escaped", "\x1b[2J\x1b]0;t\x07", "$\\frac{$"}


def tree(place: Path) -> dict[Path, bytes]:
    return {
        f: b"" if f.is_symlink() else f.read_bytes() for f in place.rglob("*") if not f.is_dir()
    }


def hostile(name: str, folder: Path) -> None:
    """A sweep with that name wherever a result has names."""
    ds = grids.grid(axes={"lr": (0.1, 0.3)}, algorithms=["ldp_sgd", name], seeds=1)
    ds = ds.assign({name: ds["loss"].assign_attrs(long_name=name)})
    about = results.config(ds)
    about["settings"] = dict.fromkeys(about.get("settings", {}), name)
    ds.attrs["config"] = json.dumps(about)
    results.save(ds, folder / "result.nc")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_hostile_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As an algorithm, a metric and a criterion: printed as it is, and no path outside is touched."""
    home = tmp_path / "a" / "b" / "c"
    home.mkdir(parents=True)
    monkeypatch.chdir(home)
    with contextlib.suppress(jaxfl.InputError, OSError, ValueError):  # a name that no file can hold
        hostile(name, home / "grid")
    if not (home / "grid" / "result.nc").exists():
        return
    before = tree(tmp_path)
    commands = [
        ["show", "grid"],
        ["show", "grid", "--choose-by", f"min:{name}", "--metric", name],
        ["compare", "grid", "grid", "--metric", name],
    ]
    if name in DRAWN:  # seconds each
        commands.append(["plot", "grid", "--choose-by", f"min:{name}", "--format", "png"])
    for words in commands:
        status = main(words)
        said = capsys.readouterr()
        assert status in (0, 2)
        assert status == 0 or said.err.count("\n") == 1
        text = said.out + said.err
        assert all(c.isprintable() or c == "\n" for c in text)
        if status == 0 and words[0] == "show" and name.isprintable() and len(name) < 99:
            assert name in text
    new = tree(tmp_path).keys() - before.keys()
    assert all(file.is_relative_to(home / "grid" / "pictures") for file in new)


def test_hostile_folders(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Links, pipes, fields that are missing, deep JSON: one sentence each, and nothing is touched."""
    victim = tmp_path / "victim"
    victim.mkdir()
    folder = shutil.copytree(finished / "sweep", tmp_path / "sweep")
    (folder / "pictures").symlink_to(victim)
    assert main(["plot", str(folder)]) == 2
    assert "pictures is a link to another folder" in capsys.readouterr().err
    ds = jaxfl.load(folder / "result.nc")
    config = results.config(ds)
    odd: list[xarray.Dataset] = [
        ds.drop_vars(["loss"]),
        ds.assign_attrs(config=json.dumps({**config, "axes": 3})),
        ds.assign_attrs(config=json.dumps({**config, "kind": "run", "values": []})),
        ds.isel(seed=slice(0)),
    ]
    for i, one in enumerate(odd):
        results.save(one, folder / "result.nc")
        for words in (["show"], ["compare", str(folder)], ["plot", "--out", str(tmp_path / "p")]):
            status = main([words[0], str(folder), *words[1:]])
            said = capsys.readouterr()
            assert status in (0, 2), i
            assert status == 0 or (said.err.count("\n") == 1 and "error: " in said.err), i
    (folder / "config.json").write_text("[" * 10**5)
    for words in (["run", "--resume"], ["show"]):
        assert main([*words, str(folder)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not list(victim.iterdir())
